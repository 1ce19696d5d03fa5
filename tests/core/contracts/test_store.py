"""Stores: what is read is what was written, whoever was faster; folders belong to one run, and tell what is wrong."""

import errno
import os
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest

from schmp_estimators.core import store as module
from schmp_estimators.core.io.checkpoint import CheckpointMismatchError
from schmp_estimators.core.store import SpillError, SpillInUseError, open_store

MARK = {"data": "abc"}
NUMBERS = np.arange(100, dtype=np.int16)


@pytest.fixture
def scratch(tmp_path):
    """Dask's temporary directory, for this test."""
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        yield tmp_path


def read(store, name, n, at=0, dtype=np.int16):
    found = np.empty(n, dtype)
    store.read(name, at, found)
    return found.tolist()


def test_arrays_one_after_the_other(scratch):
    with open_store() as store:
        store.write("some", np.arange(3), np.empty(0, np.uint32), NUMBERS)
        parts = np.empty(3, np.int64), np.empty(0, np.uint32), np.empty(100, np.int16)
        store.read("some", 0, *parts)
        assert [one.tolist() for one in parts] == [[0, 1, 2], [], NUMBERS.tolist()]
        assert read(store, "some", 4, at=24) == [0, 1, 2, 3]


def test_what_is_written_behind_is_there_for_whoever_takes_it(scratch, monkeypatch):
    with open_store() as store:
        store.allocate("topics", 400)
        slow, go = module.write_array, threading.Event()

        def wait(file, array):
            go.wait(60)
            return slow(file, array)

        monkeypatch.setattr(module, "write_array", wait)
        store.write_behind("topics", 0, NUMBERS)
        store.read_ahead("a", lambda: read(store, "topics", 100))
        go.set()
        assert store.take("a", lambda: 1 / 0) == NUMBERS.tolist()
        go.clear()
        store.write_behind("topics", 200, NUMBERS + 1)
        threading.Timer(0.05, go.set).start()
        assert store.take("b", lambda: read(store, "topics", 100, 200)) == (NUMBERS + 1).tolist()


def test_what_was_read_ahead_is_for_its_key_only_and_once(scratch):
    with open_store() as store:
        store.read_ahead("a", lambda: "early")
        assert store.take("b", lambda: "now") == "now"
        assert store.take("a", lambda: "late") == "early"
        assert store.take("a", lambda: "late") == "late"
        store.read_ahead("a", lambda: "early")
        store.forget_ahead()
        assert store.take("a", lambda: "late") == "late"


def test_an_error_behind_is_met_by_the_next(scratch):
    with open_store() as store:
        store.write_behind("nowhere", 0, NUMBERS)  # the file has not been allocated
        with pytest.raises(SpillError, match="nowhere"):
            store.settle()
        store.settle()
        store.write_behind("nowhere", 0, NUMBERS)
        store.read_ahead("a", lambda: 1)
        with pytest.raises(SpillError, match="nowhere"):
            store.take("a", lambda: 1)
        store.read_ahead("b", lambda: 1 / 0)
        store.forget_ahead()


def test_a_temporary_folder_goes_whatever_happens(scratch):
    for error in (KeyboardInterrupt, ZeroDivisionError, SystemExit):
        with pytest.raises(error), open_store() as store:
            store.write("some", NUMBERS)
            assert os.listdir(scratch) == [os.path.basename(store.folder)]
            raise error
        assert os.listdir(scratch) == []


def test_temporary_folders_of_dead_processes_go_and_no_others(scratch):
    dead, strange = scratch / "schmp-spill-dead", scratch / "schmp-spill-without-lock"
    for folder in (dead, strange):
        folder.mkdir()
    (dead / "lock.spill").touch()
    (dead / "topics.spill").write_bytes(b"123")
    with open_store() as one, open_store() as other:
        assert sorted(os.listdir(scratch)) == sorted(map(os.path.basename, (one.folder, other.folder, strange)))


def test_a_folder_is_for_one_at_a_time(tmp_path):
    with open_store(tmp_path / "a" / "b") as store:
        store.write("some", NUMBERS)
        with pytest.raises(SpillInUseError, match="wait for it"), open_store(tmp_path / "a" / "b"):
            pass
    with open_store(tmp_path / "a" / "b") as store:
        assert read(store, "some", 100) == NUMBERS.tolist()


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(CheckpointMismatchError, match=r"thesis\.tex.*give a new or empty folder"), open_store(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("folder", ["own", "own/a/b", "~/a"])
def test_a_folder_in_which_nothing_is_kept_is_left_as_it_was(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    for error in (ZeroDivisionError, KeyError):
        with pytest.raises(error), open_store(folder if folder[0] == "~" else tmp_path / folder) as store:
            assert Path(store.folder).is_relative_to(tmp_path / "own") and os.listdir(store.folder) == ["lock.spill"]
            if error is KeyError:
                store.write("some", NUMBERS)
            raise error
        found = [path.name for path in (tmp_path / "own").rglob("*.spill")]
        assert sorted(found) == (["lock.spill", "some.spill"] if error is KeyError else [])
        assert error is KeyError or os.listdir(tmp_path / "own") == []


def test_a_lock_that_another_run_has_just_removed_is_not_held(tmp_path, monkeypatch):
    held = module.lock

    def remove_first(file, *, wait):
        os.remove(file.name)
        return held(file, wait=wait)

    monkeypatch.setattr(module, "lock", remove_first)
    with pytest.raises(SpillInUseError, match="wait for it"), open_store(tmp_path):
        pass


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_what_is_no_folder_is_refused(where, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpillError, match="give another folder"), open_store(tmp_path / where):
        pass


def committed(folder, content=NUMBERS):
    with open_store(folder) as store:
        store.allocate("even", content.nbytes)
        for half, at in ((content[:50], 0), (content[50:], 100)):
            store.write_behind("even", at, half)
        store.commit(MARK, "even", {"done": 2})


def test_a_manifest_is_found_again(tmp_path):
    for content in (NUMBERS, NUMBERS + 1):
        committed(tmp_path, content)
        with open_store(tmp_path) as store:
            assert store.read_manifest(MARK, lambda *found: found) == ("even", 200, {"done": 2})
            assert read(store, "even", 100) == content.tolist()


def test_a_manifest_knows_only_what_was_written_since(tmp_path):
    committed(tmp_path)
    with open_store(tmp_path) as store:
        store.read_manifest(MARK, lambda *found: found)
        for name, content in (("odd", NUMBERS + 2), ("even", NUMBERS + 3)):  # in other pieces than before
            store.allocate(name, 200)
            store.write_behind(name, 0, content)
            store.commit(MARK, name, {"done": 4})
    with open_store(tmp_path) as store:
        assert store.read_manifest(MARK, lambda *found: found) == ("even", 200, {"done": 4})


@contextmanager
def damaged(folder, name, change):
    path = Path(folder) / f"{name}.spill"
    before = path.read_bytes()
    path.write_bytes(change(before))
    yield
    path.write_bytes(before)


@pytest.mark.parametrize("name", ["even", "manifest"])
@pytest.mark.parametrize(
    "change", [lambda old: b"", lambda old: old[:-1], lambda old: old[:60] + bytes([old[60] ^ 1]) + old[61:]]
)
def test_damage_is_noticed(name, change, tmp_path):
    committed(tmp_path)
    message = "what is in spill=.* cannot be gone on with"
    refused = pytest.raises(CheckpointMismatchError, match=message)
    with damaged(tmp_path, name, change), open_store(tmp_path) as store, refused:
        store.read_manifest(MARK, lambda *found: found)
    with open_store(tmp_path) as store, pytest.raises(CheckpointMismatchError, match="data: 'abc' there"):
        store.read_manifest({"data": "other"}, lambda *found: found)
    with open_store(tmp_path) as store, pytest.raises(CheckpointMismatchError, match="ZeroDivisionError"):
        store.read_manifest(MARK, lambda *found: 1 / 0)


@pytest.mark.parametrize("method", ["allocate", "write", "write_behind", "commit"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_is_told_from_a_broken_one(method, number, scratch, monkeypatch):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    calls = {
        "allocate": lambda store: store.allocate("some", 100),
        "write": lambda store: store.write("some", NUMBERS),
        "write_behind": lambda store: (store.write_behind("some", 0, NUMBERS), store.settle()),
        "commit": lambda store: store.commit(MARK, "some", {}),
    }
    with ExitStack() as stack:
        store = stack.enter_context(open_store(scratch / "named"))
        store.allocate("some", 300)
        for name in ("write_array", "_forget", "write_checkpoint"):
            monkeypatch.setattr(module, name, fail)
        monkeypatch.setattr(os, "posix_fallocate", fail)
        if method == "allocate" and number == errno.EIO:  # a file system that cannot
            calls[method](store)
            return
        message = "no room.*free some" if number == errno.ENOSPC else "cannot use"
        with pytest.raises(SpillError, match=message):
            calls[method](store)


def test_files_are_removed_but_those_that_are_kept(tmp_path):
    with open_store(tmp_path) as store:
        for name in ("topics-even", "topics-odd", "shard-0"):
            store.write(name, NUMBERS)
        store.remove({"topics-odd"}.__contains__)
        assert sorted(os.listdir(tmp_path)) == ["lock.spill", "topics-odd.spill"]
