"""Files past the system's cache: the same bytes as through it, wherever arrays begin, possible or not."""

import errno
import os

import numpy as np
import pytest

from schmp_estimators.core.direct import BLOCK, Appending, empty_at, fill_array, write_array

SIZE = 3 << 20


def cannot(how, monkeypatch):
    """Let nothing go past the cache: the system has no such flag, or the file system refuses it, sooner or later."""

    def refuse(*_):
        raise OSError(errno.EINVAL, "no")

    def open_cached(path, flags, *more, given=os.open):
        return refuse() if flags & os.O_DIRECT else given(path, flags, *more)

    if how == "no flag":
        monkeypatch.delattr(os, "O_DIRECT")
    elif how == "refused":
        monkeypatch.setattr(os, "open", open_cached)
    elif how == "refused later":
        for name in ("preadv", "pwritev"):
            monkeypatch.setattr(os, name, refuse)


@pytest.mark.covering
@pytest.mark.parametrize("how", ["no flag", "refused", "refused later", "possible"])
@pytest.mark.parametrize("at", [0, 6, BLOCK, 5 * BLOCK - 2])
def test_bytes_are_those_of_the_array(how, at, tmp_path, monkeypatch):
    cannot(how, monkeypatch)
    path, old = tmp_path / "file", np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
    for n, phase in [
        (0, at),
        (7, at),
        (BLOCK, at),
        (100_001, at),
        (100_001, at + 2),
        (1_100_000, at + 4),
        (700_000, at),
    ]:
        array = empty_at(n, np.int16, phase)
        array[:] = np.arange(n)
        path.write_bytes(old.tobytes())
        with open(path, "r+b", buffering=0) as file:
            file.seek(at)
            write_array(file, array)
            expected = old.copy()
            expected[at : at + 2 * n] = array.view(np.uint8)
            np.testing.assert_array_equal(np.fromfile(path, np.uint8), expected)
            for other in (0, 2):
                found = empty_at(n, np.int16, phase + other)
                file.seek(at)
                fill_array(file, found)
                np.testing.assert_array_equal(found, array)


def test_whole_blocks_leave_the_cache_alone(tmp_path, monkeypatch):
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("a system without such files")
    moved, pwritev = [], os.pwritev

    def note(number, pieces, at):
        moved.append((at, len(pieces[0])))
        return pwritev(number, pieces, at)

    monkeypatch.setattr(os, "pwritev", note)
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    with open(path, "r+b", buffering=0) as file:
        file.seek(10)
        if write_array(file, empty_at(1 << 20, np.uint8, 10)):
            pytest.skip("a file system that cannot")
        assert moved == [(BLOCK, (1 << 20) - BLOCK)]
        assert write_array(file, np.zeros(1000, np.uint8)) and len(moved) == 1  # too few to be worth it


@pytest.mark.parametrize("phase", [0, 8])
def test_a_file_that_is_too_short_is_told(phase, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(2_000_000))
    for size in (0, 1000, 1_500_000, 1_999_999):
        os.truncate(path, size)
        with open(path, "rb", buffering=0) as file, pytest.raises(OSError, match="file is shorter than it was"):
            fill_array(file, empty_at(2_000_000, np.uint8, phase))


def test_arrays_lie_as_files_do():
    for at in (0, 6, BLOCK, 12_346):
        array = empty_at(100, np.int16, at)
        assert (array.ctypes.data - at) % BLOCK == 0 and len(array) == 100 and array.flags.writeable


@pytest.mark.covering
@pytest.mark.parametrize("how", ["no flag", "refused", "refused later", "possible"])
def test_what_is_written_in_pieces_is_all_there(how, tmp_path, monkeypatch):
    cannot(how, monkeypatch)
    rng = np.random.default_rng(0)
    for sizes in [(), (0, 5), (1 << 20,), (3, 1 << 20, 0, (1 << 21) + 1, 70_000), (BLOCK,) * 300]:
        pieces = [rng.integers(0, 256, size).astype(np.uint8) for size in sizes]
        with open(tmp_path / "file", "wb", buffering=0) as file:
            appending = Appending(file)
            for number, piece in enumerate(pieces):
                given = piece.tobytes() if number % 2 else piece.view(np.int8).data
                assert appending.write(given) == len(piece)
            before = [one.copy() for one in pieces]
            for piece in pieces:
                piece[:] = 0  # nobody reads them any more
            appending.flush()
            appending.finish()
        expected = b"".join(one.tobytes() for one in before)
        assert (tmp_path / "file").read_bytes() == expected
