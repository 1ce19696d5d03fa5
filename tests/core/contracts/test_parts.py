"""Checkpoints in parts: read as one, refused if a part is not what it was, and nothing is left of older ones."""

import os
import zipfile
from functools import partial

import fsspec
import numpy as np
import pytest
from definition import run_serial
from ranks import RankPlace
from toys import Remade, Resting, Ring, bits, make_shards, make_sources

from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.errors import WorkerLostError
from schmp_estimators.core.io import archive
from schmp_estimators.core.io.archive import folder_of
from schmp_estimators.core.io.checkpoint import (
    Checkpoint,
    CheckpointMismatchError,
    CheckpointWarning,
    read_checkpoint,
    save_part,
    write_checkpoint,
)
from schmp_estimators.core.places.place import Place

MARK = {"data": "abc"}
VALUES = [{"topics": np.arange(40, dtype=np.int16)}, [np.linspace(0, 1, 9), 3, None]]


def write_in_parts(url, values=VALUES, done=1):
    """Write each value as a worker would; return the checkpoint."""
    checkpoint = Checkpoint(url, MARK)
    where = checkpoint.invite()
    written = [save_part(*where, number, value) for number, value in enumerate(values)]
    assert checkpoint.has(written)
    checkpoint.write(done, {"done": done, "parts": written})
    return checkpoint


def files_at(url):
    return sorted(os.listdir(folder_of(url))) if os.path.exists(folder_of(url)) else []


@pytest.fixture
def url(tmp_path):
    return tmp_path / "state"


def test_parts_are_read_as_if_they_were_in_the_file(url):
    write_in_parts(url)
    found = read_checkpoint(url, MARK)
    assert found["done"] == 1
    np.testing.assert_array_equal(found["parts"][0]["topics"], VALUES[0]["topics"], strict=True)
    np.testing.assert_array_equal(found["parts"][1][0], VALUES[1][0], strict=True)
    assert found["parts"][1][1:] == [3, None]


@pytest.mark.parametrize("url", ["memory://test-parts/state"])
def test_parts_on_another_file_system(url):
    write_in_parts(url)
    assert read_checkpoint(url, MARK)["parts"][1][1] == 3
    fsspec.filesystem("memory").rm("/test-parts", recursive=True)


def test_parts_are_beside_a_checkpoint_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_in_parts("~/state")
    assert sorted(os.listdir(tmp_path)) == ["state", "state.parts"]
    assert read_checkpoint(tmp_path / "state", MARK)["parts"][1][1] == 3


def spoil_missing(part, other):
    part.unlink()


def spoil_bit(part, other):
    whole = bytearray(part.read_bytes())
    whole[whole.index(VALUES[0]["topics"].tobytes())] ^= 1
    part.write_bytes(whole)


def spoil_short(part, other):
    part.write_bytes(part.read_bytes()[:-1])


def spoil_another(part, other):
    part.write_bytes(other.read_bytes())


@pytest.mark.parametrize("spoil", [spoil_missing, spoil_bit, spoil_short, spoil_another])
def test_a_part_that_is_not_what_it_was_is_refused(spoil, url, tmp_path):
    write_in_parts(url)
    folder = tmp_path / "state.parts"
    names = files_at(url)
    spoil(folder / names[0], folder / names[1])
    with pytest.raises(CheckpointMismatchError, match=r"one .*part [0-9a-f]{16}-0, parts\[0\], is not as .*; give"):
        read_checkpoint(url, MARK)


def test_a_checkpoint_names_no_files_elsewhere(url, tmp_path):
    [name] = [write_in_parts(url, VALUES[:1]), files_at(url)][1]
    (tmp_path / "elsewhere").write_bytes((tmp_path / "state.parts" / name).read_bytes())
    with zipfile.ZipFile(url) as archive:
        header = archive.read("header.json")
    with zipfile.ZipFile(url, "w") as archive:
        archive.writestr("header.json", header.replace(name.encode(), b"../elsewhere"))
    with pytest.raises(CheckpointMismatchError, match="is no name of a part"):
        read_checkpoint(url, MARK)


def test_parts_of_older_checkpoints_and_of_killed_writers_go_and_other_files_stay(url, tmp_path):
    write_in_parts(url)
    older, folder = files_at(url), tmp_path / "state.parts"
    (folder / f"{'0' * 16}-3.{'1' * 16}.part").write_bytes(b"half")
    (folder / ("2" * 16)).write_bytes(b"a mark")
    (folder / "notes").write_text("mine")
    write_in_parts(url, done=2)
    newer = files_at(url)
    assert len(newer) == 3 and not set(newer) & set(older) and "notes" in newer
    assert read_checkpoint(url, MARK)["done"] == 2
    write_checkpoint(url, MARK, [1])  # in one file
    assert files_at(url) == ["notes"]
    (folder / "notes").unlink()
    write_in_parts(url)
    write_checkpoint(url, MARK, [1])
    assert os.listdir(tmp_path) == ["state"]


def test_who_does_not_see_the_mark_writes_nothing(url, tmp_path):
    checkpoint = Checkpoint(url, MARK)
    _, mark = checkpoint.invite()
    assert archive.write_part(str(tmp_path / "other.parts"), mark, 0, pytest.fail) is None
    assert not checkpoint.has([None])
    assert checkpoint.invite() is None  # whoever failed once is not asked again
    checkpoint.write(1, [1])
    assert os.listdir(tmp_path) == ["state"]
    assert read_checkpoint(url, MARK) == [1]


def test_a_part_that_comes_too_late_is_taken_away(url, monkeypatch):
    checkpoint, replace = Checkpoint(url, MARK), archive.replace_file
    where = checkpoint.invite()

    def late(url, write):
        checkpoint.withdraw()
        replace(url, write)

    monkeypatch.setattr(archive, "replace_file", late)
    assert save_part(*where, 0, VALUES[0]) is None
    assert files_at(url) == []


GROUPS = [[0, 2], [1]]
N_SWEEPS = 8


def values_after(done, saved):
    return {"done": done, "saved": saved}


def run_kept(program, place, checkpoint, saved=None, first=0, every=2):
    """Run with a checkpoint after every second sweep; return what is left."""
    with static_run(program, make_sources(3), place, n_sweeps=N_SWEEPS, saved=saved, first=first) as run:
        for done, record in enumerate(run, first + 1):  # noqa: B007
            if done % every == 0:
                run.keep(checkpoint, done, partial(values_after, done))
        harvest = run.harvest()
    assert not getattr(place, "held", ())
    return bits((record, harvest))


def by_definition(program):
    *_, (record, harvest, _) = run_serial(program, make_shards(3), N_SWEEPS)
    return bits((record, harvest))


@pytest.mark.parametrize("program", [Ring(), Resting(), Remade()], ids=lambda program: program.name)
def test_a_run_with_checkpoints_ends_alike_and_can_be_resumed(program, url, tmp_path):
    checkpoint = Checkpoint(url, MARK)
    assert run_kept(program, RankPlace(GROUPS), checkpoint, every=5) == by_definition(program)
    found = read_checkpoint(url, MARK)
    assert found["done"] == 5
    assert len(files_at(url)) == 3 + 3 * program.saves_blocks
    for place in (RankPlace([[0, 1, 2]]), Place()):
        assert run_kept(program, place, Checkpoint(url, MARK), found["saved"], first=5, every=8) == by_definition(
            program
        )
    assert sorted(os.listdir(tmp_path)) == ["state"]  # what this process has written is one file


def test_work_lost_at_any_moment_changes_neither_the_result_nor_the_checkpoint():
    program, expected, store = Ring(), by_definition(Ring()), fsspec.filesystem("memory")
    whole = RankPlace(GROUPS)
    run_kept(program, whole, Checkpoint("memory://lost/whole", MARK))
    for loss in range(1, whole.n_calls + 1):
        url, place = f"memory://lost/{loss}", RankPlace(GROUPS, [loss, loss + 2])
        assert run_kept(program, place, Checkpoint(url, MARK)) == expected
        assert place.n_resets
        assert str(read_checkpoint(url, MARK)) == str(read_checkpoint("memory://lost/whole", MARK))
        assert len(store.find(f"/lost/{loss}.parts")) == 6
    store.rm("/lost", recursive=True)


def full(descriptor):
    raise OSError("no space left on device")


def test_where_nobody_can_write_a_warning_says_so_and_nothing_is_left(url, tmp_path, monkeypatch):
    with (
        monkeypatch.context() as patch,
        pytest.warns(CheckpointWarning, match="after iteration 2 .*no space") as caught,
    ):
        patch.setattr(os, "fsync", full)
        assert run_kept(Ring(), RankPlace(GROUPS), Checkpoint(url, MARK)) == by_definition(Ring())
    assert len(caught) == 1
    assert os.listdir(tmp_path) == []


def test_what_workers_cannot_write_is_written_here(url, tmp_path, monkeypatch):
    monkeypatch.setattr("schmp_estimators.core.engine.batch.save_part", nothing)
    assert run_kept(Ring(), RankPlace(GROUPS), Checkpoint(url, MARK)) == by_definition(Ring())
    assert os.listdir(tmp_path) == ["state"]
    monkeypatch.undo()
    run_kept(Ring(), RankPlace(GROUPS), Checkpoint(tmp_path / "other", MARK))
    assert str(read_checkpoint(url, MARK)) == str(read_checkpoint(tmp_path / "other", MARK))


def nothing(folder, mark, number, values):
    return None


def test_a_manifest_that_cannot_be_written_leaves_the_last_checkpoint_and_no_parts(url, monkeypatch):
    write_in_parts(url)
    kept, checkpoint = files_at(url), Checkpoint(url, MARK)
    written = [save_part(*checkpoint.invite(), 0, VALUES[0])]
    assert checkpoint.has(written)
    with monkeypatch.context() as patch, pytest.warns(CheckpointWarning):
        patch.setattr(os, "fsync", full)
        checkpoint.write(2, written)
    assert files_at(url) == kept
    assert read_checkpoint(url, MARK)["done"] == 1


def test_a_run_that_is_given_up_leaves_no_parts_behind():
    store, n_left = fsspec.filesystem("memory"), set()
    for first in range(3, 14):
        with pytest.raises(WorkerLostError):
            run_kept(Ring(), RankPlace(GROUPS, range(first, 999)), Checkpoint("memory://up/state", MARK))
        n_left.add(len(store.find("/up")))
        if store.exists("/up"):
            store.rm("/up", recursive=True)
    assert n_left == {0, 7}  # a checkpoint with its six parts, or none


@pytest.mark.parametrize("place", [Place(), RankPlace(GROUPS)], ids=["here", "ranks"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_ends_with_an_error_still_hands_over_its_checkpoint(url, place, error):
    with pytest.raises(error), static_run(Ring(), make_sources(3), place, n_sweeps=N_SWEEPS) as run:
        for done, _ in enumerate(run, 1):
            if done == 4:
                run.keep(Checkpoint(url, MARK), done, partial(values_after, done))
                raise error
    assert read_checkpoint(url, MARK)["done"] == 4
    assert not getattr(place, "held", ())
