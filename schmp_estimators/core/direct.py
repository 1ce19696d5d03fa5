"""Files past the system's cache of pages, where the system lets them.

What is larger than memory is gone from a cache before it comes again.  There the cache only costs: a copy of every
byte, the pages for it, and the work to drop them, together several times what the transfer itself takes of a processor.
Past it go whole blocks; what is left at both ends of an array goes through it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.recycling import RECYCLER

#: Files and arrays are cut at multiples of so many bytes: those of a page, and a multiple of all usual disks' blocks.
BLOCK = 1 << 12
#: Fewer bytes are not worth a further opening of the file.
_LEAST = 1 << 16
#: Bytes that are copied at a time where an array does not lie as the file does.
_COPIED = 1 << 20
_CANNOT = {errno.EINVAL, errno.EOPNOTSUPP}


def empty_at(n: int, dtype: Any, at: int) -> NDArray[Any]:
    """Return an array that lies in memory as byte `at` of a file does in its block, so that it needs no copy."""
    size = n * np.dtype(dtype).itemsize
    # in steps, so that one of nearly the same size can use it again: new memory costs as much as reading into it
    step = max(BLOCK, 1 << max(0, size.bit_length() - 5))
    room = RECYCLER.room((-(-size // step) * step + BLOCK,), np.uint8)
    first = (at - _address(room)) % BLOCK
    return room[first : first + size].view(dtype)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def write_array(file: Any, array: NDArray[Any]) -> bool:
    """Write an array where an unbuffered file is now, and return whether much of it is in the system's cache."""
    data, at = bytes_of(array), file.tell()
    first, last = _move_blocks(file.name, os.O_RDWR, at, data, _write_some)
    for begin, end in ((0, first), (last, len(data))):
        file.seek(at + begin)
        left = data[begin:end]
        while left:
            left = left[file.write(left) :]
    return not last


def fill_array(file: Any, array: NDArray[Any]) -> None:
    """Fill a contiguous array from where an unbuffered file is now."""
    data, at = bytes_of(array), file.tell()
    first, last = _move_blocks(file.name, os.O_RDONLY, at, data, _read_some)
    for begin, end in ((0, first), (last, len(data))):
        file.seek(at + begin)
        left = data[begin:end]
        while left:
            n = file.readinto(left)
            if not n:
                raise OSError(errno.EIO, f"{os.path.basename(file.name)} is shorter than it was")
            left = left[n:]


class Appending:
    """A new local file that only gets longer, for libraries that write to files in small pieces.

    Parameters
    ----------
    file : binary file
        Unbuffered, and empty.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._room, self._filled = file, empty_at(_COPIED, np.uint8, 0), 0

    def write(self, data: Any) -> int:
        """Take bytes, which may change afterwards."""
        left = np.frombuffer(data, np.uint8)
        n_bytes = len(left)
        while len(left):
            n = min(len(left), len(self._room) - self._filled)
            self._room[self._filled : self._filled + n] = left[:n]
            self._filled += n
            left = left[n:]
            if self._filled == len(self._room):
                self.finish()
        return n_bytes

    def finish(self) -> None:
        """Let the file have all that has been taken."""
        write_array(self._file, self._room[: self._filled])
        self._filled = 0

    def flush(self) -> None:
        """Do nothing: `finish` does it when all has been written."""


def _read_some(number: int, piece: memoryview, at: int, room: memoryview) -> int:
    if not len(room):
        return os.preadv(number, [piece], at)
    n = os.preadv(number, [room[: len(piece)]], at)
    piece[:n] = room[:n]
    return n


def _write_some(number: int, piece: memoryview, at: int, room: memoryview) -> int:
    if not len(room):
        return os.pwritev(number, [piece], at)
    room[: len(piece)] = piece
    return os.pwritev(number, [room[: len(piece)]], at)


def _move_blocks(
    path: str, flags: int, at: int, data: memoryview, move: Callable[[int, Any, int, Any], int]
) -> tuple[int, int]:
    """Move the whole blocks of some bytes, which begin at byte `at` of a file; return where those are that were moved.

    They are none where that is not possible.  `room` is of length 0 if blocks can be moved from where they are.
    """
    flag = getattr(os, "O_DIRECT", 0)
    begin, end = -at % BLOCK, len(data) - (at + len(data)) % BLOCK
    if not flag or end - begin < _LEAST:
        return 0, 0
    done, is_alike = begin, (_address(np.frombuffer(data, np.uint8)) - at) % BLOCK == 0
    room = memoryview(b"") if is_alike else empty_at(_COPIED, np.uint8, 0).data
    try:
        number = os.open(path, flags | flag)
        try:
            while done < end:
                piece = data[done : end if is_alike else min(end, done + _COPIED)]
                n = move(number, piece, at + done, room)
                if n <= 0 or n % BLOCK:  # a file that is shorter than it was: the caller will find out
                    break
                done += n
        finally:
            os.close(number)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    return (begin, done) if done > begin else (0, 0)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
