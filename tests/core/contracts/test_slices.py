"""Values in files.

What comes back is what was kept, nothing is left on the disk, and how much memory there is.
"""

import errno
import mmap
import os
import resource
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import dask
import numpy as np
import pytest
from clusters import files_in
from dask.sizeof import sizeof

from schmp_estimators.core.errors import CheckpointMismatchError, SpillError, SpillInUseError
from schmp_estimators.core.io import files, slices
from schmp_estimators.core.io.files import named_folder, temporary_folder
from schmp_estimators.core.io.slices import LEAST_BYTES, Filed, Slices, memory_left


class Pair(NamedTuple):
    first: np.ndarray
    rest: object


LARGE = np.arange(LEAST_BYTES, dtype=np.int16)


def is_in_a_file(array):
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else base.base
    return base is not None


@pytest.mark.parametrize(
    "array",
    [
        LARGE,
        LARGE.reshape(-1, 4)[:, 1],
        np.asfortranarray(LARGE.reshape(256, -1)),
        LARGE.astype(np.float64) / 3,
        LARGE[1:],
        np.broadcast_to(np.float32(2), (300, 300)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_what_comes_back_is_equal_and_can_be_written_to(array, tmp_path):
    value = Pair(array, {"more": [array, 3, None], "small": np.arange(3), "none": np.empty((0, 2))})
    kept = Slices(str(tmp_path)).keep(value)
    assert type(kept) is Pair and kept.rest["more"][1:] == [3, None]
    assert kept.first is kept.rest["more"][0]
    for one in (kept.first, kept.rest["more"][0]):
        np.testing.assert_array_equal(one, array, strict=True)
    np.testing.assert_array_equal(kept.rest["small"], np.arange(3), strict=True)
    assert kept.rest["none"].shape == (0, 2)
    assert list(tmp_path.iterdir()) == []


def test_arrays_in_a_file_are_not_written_again_and_share_what_is_written(tmp_path, monkeypatch):
    files = Slices(str(tmp_path))
    kept = files.keep(Pair(LARGE.copy(), LARGE + 1))
    monkeypatch.setattr(Slices, "_write", lambda self, arrays: [1 / 0 for _ in arrays])
    again, piece = (
        files.keep(kept),
        files.keep([kept.rest[7:9], kept.first])[0],
    )  # a piece of any size
    again.first[3], piece[1] = -1, -2
    assert (kept.first[3], kept.rest[8]) == (-1, -2)
    assert all(map(is_in_a_file, (again.first, piece)))
    kept.first.flags.writeable = False
    assert files.keep(Pair(kept.first, None)).first.flags.writeable


def test_what_is_in_files_is_small_for_dask(tmp_path):
    assert sizeof(Filed(Slices(str(tmp_path)).keep(LARGE))) < 1000 < sizeof(LARGE)


def test_workers_have_files_of_their_own_unless_the_folder_is_named(client, tmp_path):
    own = client.run(lambda dask_worker: dask_worker.local_directory).values()
    for is_named, folders in ((False, own), (True, [str(tmp_path)])):
        given = Slices(str(tmp_path), is_named=is_named)
        assert client.submit(attrgetter("folder"), given, pure=False).result() in folders


def test_files_go_with_the_last_array_that_shows_them(tmp_path):
    files = Slices(str(tmp_path))
    kept = files.keep([LARGE.copy(), LARGE + 1])
    view = kept[1][2:4]
    assert files_in(tmp_path) == 1
    del kept
    assert files_in(tmp_path) == 1 and view.tolist() == [3, 4]
    del view
    assert files_in(tmp_path) == 0


@pytest.mark.parametrize(
    ("number", "message"), [(errno.EDQUOT, "no room for"), (errno.EACCES, "give another folder")]
)
def test_errors_of_the_system_say_what_they_mean(number, message, tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(slices.tempfile, "TemporaryFile", fail)
    with pytest.raises(SpillError, match=message):
        Slices(str(tmp_path)).keep(LARGE)


# Folders.


def test_a_named_folder_is_made_and_goes_if_nothing_is_in_it(tmp_path):
    with named_folder(tmp_path / "a" / "b") as folder:
        assert folder == str(tmp_path / "a" / "b") and os.path.isdir(folder)
        with pytest.raises(SpillInUseError, match="another fit works in"), named_folder(folder):
            pass
    assert list(tmp_path.iterdir()) == []
    with named_folder(tmp_path / "a") as folder:
        Path(folder, "checkpoint").touch()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["checkpoint", "lock"]
    (tmp_path / "a" / "mark-0f").touch()  # of a client that was killed, with a copy of its input
    (tmp_path / "a" / "input").mkdir()
    (tmp_path / "a" / "input" / "input-0").touch()
    with named_folder(tmp_path / "a"):
        pass
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["checkpoint", "lock"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thesis.tex", "holds 'thesis.tex', which no fit has put there"),
        ("manifest.spill", "begun by an older version"),
    ],
)
def test_a_folder_with_something_else_is_refused_and_left_alone(name, message, tmp_path):
    (tmp_path / name).write_text("mine")
    with pytest.raises(CheckpointMismatchError, match=message), named_folder(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


KILLED = """
    import os, signal, sys, dask
    from schmp_estimators.core.io.files import temporary_folder
    dask.config.set({"temporary-directory": sys.argv[1]})
    with temporary_folder() as folder:
        open(os.path.join(folder, "input-0"), "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_temporary_folder_goes_and_so_does_what_a_killed_process_left(tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        subprocess.run([sys.executable, "-c", dedent(KILLED), str(tmp_path)], check=False)
        [left] = tmp_path.iterdir()
        with temporary_folder() as first, temporary_folder() as second:
            assert (
                sorted(map(str, tmp_path.iterdir())) == sorted([first, second])
                and not left.exists()
            )
            (Path(second) / "input-0").touch()
        assert list(tmp_path.iterdir()) == []
        assert files.temporary_directory() == str(tmp_path)


@pytest.fixture
def little_taken(monkeypatch):
    monkeypatch.setattr(slices, "_taken", lambda: (0, 0, 45))


def test_what_is_asked_for_counts(little_taken):
    for asked, found in ((12345, 12345), ("2 GiB", 2 << 30), ("100 kB", 100_000)):
        with dask.config.set({"schmp-estimators.memory-limit": asked}):
            assert memory_left() == found - 45
    for asked in (0, -5, "much"):
        config = dask.config.set({"schmp-estimators.memory-limit": asked})
        with config, pytest.raises(ValueError, match=r"memory-limit|much"):
            memory_left()


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_a_limit_of_the_process_counts(kind, little_taken):
    before = memory_left()
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (before - 4096, hard))
    try:
        assert memory_left() == before - 4096
    finally:
        resource.setrlimit(kind, (soft, hard))


def test_each_limit_is_for_something_else(monkeypatch):
    monkeypatch.setattr(slices, "_process_limits", lambda: (1000, 600))
    for taken, left in (
        ((100, 50, 10), 550),
        ((700, 50, 10), 300),
        ((2000, 50, 10), 0),
        ((100, 590, 10), 10),
    ):
        monkeypatch.setattr(slices, "_taken", lambda taken=taken: taken)
        assert memory_left() == left
