"""Data that do not fit into memory: values with arrays in files, and the memory that is left.

`Slices.keep` writes the large arrays of a value to a file, and returns the value with arrays that
are mapped from it.  The system reads pages of the file when they are used, and writes changed pages
when it needs memory, so functions work on a shard where it is.  Arrays that are in a file already
are not written again.

Files have no names: the system removes a file with the last array that uses it, however the process
ends.

The package `zict` also has buffers over files, but it reads and writes whole values: a sweep would
copy all tokens into memory and back twice, and an exchange could not read its piece of a shard
alone.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np

from schmp_estimators.core.errors import SpillError
from schmp_estimators.core.later import Later, setting
from schmp_estimators.core.typing import Arguments, Array, FloatPair, IntPair

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from distributed import Worker

dask: Any = Later("dask")
distributed: Any = Later("distributed")

T = TypeVar("T")
#: A file, and the position where something begins in it.
_Place = tuple[mmap.mmap, int]

#: Bytes below which an array stays in memory, because a file would take more.
LEAST_BYTES = 1 << 16
#: Arrays begin in a file at multiples of this number of bytes, which is that of a cache line.
_LINE = 64
#: Bytes of a request to read ahead: of a longer one the system may ignore the rest.
_AHEAD = 1 << 17
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


class Filed(Generic[T]):
    """A value with arrays in files: Dask takes it for small, and does not move it.

    Parameters
    ----------
    value : object
    slices : Slices, optional
        Each process that reads the value back puts its arrays into these files first.
    """

    def __init__(self, value: T, slices: Slices | None = None) -> None:
        self.value = value
        self.slices = slices


def read_back(value: Any) -> Any:
    """Return a value, which may be `Filed`."""
    if not isinstance(value, Filed):
        return value
    if value.slices is not None:
        value.value = value.slices.keep(value.value)
    return value.value


#: All files that are mapped in this process, by any thread.
_maps: WeakSet[mmap.mmap] = WeakSet()
_lock = Lock()


class Slices:
    """Files of arrays in a folder.

    On a worker of a cluster, it is the worker's own or one that all workers share.

    Parameters
    ----------
    folder : str, optional
        Where the files are, which have no names; by default, on a worker, in its own folder.
    is_named : bool, default=False
        Whether the user has named the folder: then workers use it, too; else they use their
        ``local_directory``.
    """

    def __init__(self, folder: str | None, *, is_named: bool = False) -> None:
        self._folder = folder
        self.is_named = is_named

    def __reduce__(self) -> Arguments:
        """Pickle as the files of the receiver.

        They are in its own folder, or in one that the user has named.
        """
        return _there, (self._folder if self.is_named else None, self.is_named)

    @property
    def folder(self) -> str:
        """Folder of the files."""
        return distributed.get_worker().local_directory if self._folder is None else self._folder

    def keep(self, value: T) -> T:
        """Return `value` with its large arrays in a file.

        Arrays that are in a file already share its bytes: a change to the result changes `value`,
        too.

        Raises
        ------
        SpillError
            If they cannot be written.
        """
        text = io.BytesIO()
        taking = _Taking(text)
        taking.dump(value)
        if not taking.arrays:
            return value
        files = [_place_of(array) for array in taking.arrays]
        new = [array for array, place in zip(taking.arrays, files, strict=True) if place is None]
        written = iter(self._write(new))
        places = [next(written) if place is None else place for place in files]
        kept: T = _Giving(
            text, [_array_at(*given) for given in zip(taking.arrays, places, strict=True)]
        ).load()
        return kept

    def read_ahead(self, value: Any) -> None:
        """Let the system read the files of a value ahead.

        The process works on other values meanwhile.
        """
        taking = _Taking(io.BytesIO())
        taking.dump(value)
        for array in taking.arrays if hasattr(mmap, "MADV_WILLNEED") else ():
            if (place := _place_of(array)) is not None:
                memory, begin = place
                for at in range(
                    begin // mmap.PAGESIZE * mmap.PAGESIZE, begin + array.nbytes, _AHEAD
                ):
                    memory.madvise(mmap.MADV_WILLNEED, at, min(_AHEAD, len(memory) - at))

    def empty(self, n: int, dtype: Any) -> Array:
        """Return an array of n numbers in a file; raises as `keep`."""
        if not n:
            return np.empty(0, dtype)
        size = n * np.dtype(dtype).itemsize
        folder = self.folder
        with explained_errors(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            os.truncate(file.fileno(), size)
            if hasattr(os, "posix_fallocate"):  # so that a full disk raises an error now
                os.posix_fallocate(file.fileno(), 0, size)
            memory = _map(file, size)
        return np.ndarray(n, dtype, memory)

    def leave(self) -> None:
        """Release the pages of mapped files from this process, until they are read again."""
        with _lock:
            maps = list(_maps)
        for memory in maps if hasattr(mmap, "MADV_DONTNEED") else ():
            memory.madvise(mmap.MADV_DONTNEED)

    def _write(self, arrays: list[Array]) -> list[_Place]:
        """Write arrays to a new file, and return their places."""
        if not arrays:
            return []
        sizes = [-(-array.nbytes // _LINE) * _LINE for array in arrays]
        folder = self.folder
        with explained_errors(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            os.truncate(file.fileno(), sum(sizes))
            for size, array in zip(sizes, arrays, strict=True):
                left = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                while left.nbytes:
                    left = left[file.write(left) :]
                file.seek(size - array.nbytes, os.SEEK_CUR)
            memory = _map(file, sum(sizes))
        return [
            (memory, end - size) for end, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)
        ]


def _map(file: Any, size: int) -> mmap.mmap:
    memory = mmap.mmap(file.fileno(), size)
    with _lock:
        _maps.add(memory)
    return memory


class _Taking(pickle.Pickler):
    """Takes arrays out of a value: those that are in files, and those that will be."""

    def __init__(self, text: io.BytesIO) -> None:
        super().__init__(text, protocol=5)
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        """Return the index of an array that is taken out, and None for all other values."""
        if type(value) is not np.ndarray or value.dtype.hasobject or not value.nbytes:
            return None
        if value.nbytes < LEAST_BYTES and _place_of(value) is None:
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.arrays)
            self.arrays.append(value)
        return self._numbers[id(value)]


class _Giving(pickle.Unpickler):
    """Puts back the arrays that `_Taking` has taken out."""

    def __init__(self, text: io.BytesIO, arrays: list[Array]) -> None:
        text.seek(0)
        super().__init__(text)
        self._arrays = arrays

    def persistent_load(self, number: int) -> Array:
        """Return the array with this index."""
        return self._arrays[number]


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _place_of(array: Array) -> _Place | None:
    """Return the file of an array and its position there, or None if it is not in a file."""
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    memory = base.obj if isinstance(base, memoryview) else base
    if not isinstance(memory, mmap.mmap) or memory not in _maps:
        return None
    return memory, _address(array) - _address(np.frombuffer(memory, np.uint8))


def _array_at(like: Array, place: _Place) -> Array:
    """Return a writable array in a file, of the shape and dtype of another array."""
    memory, begin = place
    strides = like.strides if _place_of(like) else None
    return np.ndarray(like.shape, like.dtype, memory, begin, strides)


def _there(folder: str | None, is_named: bool) -> Slices:
    return Slices(folder, is_named=is_named)


@contextmanager
def explained_errors(folder: str) -> Iterator[None]:
    """Turn errors of the system into errors that say what they mean for a fit."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SpillError(
                f"the disk has no room for what spill puts into {folder!r} ({error}); free some, "
                "or give another folder"
            ) from error
        if error.errno == errno.ENOMEM:
            raise SpillError(
                "spill maps files into the address space of this process, which is too small: "
                "raise or remove its limit (ulimit -v)"
            ) from error
        if error.errno == errno.EMFILE:
            raise SpillError(
                "spill needs some files for each slice, more than this process may have open: "
                "raise that limit (ulimit -n), or give the fit more memory, so that it has fewer "
                "slices"
            ) from error
        raise SpillError(f"spill cannot use {folder!r}: {error}; give another folder") from error


def memory_left() -> int:
    """Return the bytes that this process may still use.

    They are beside its arrays, its libraries, and what it runs in.

    The limit is the ``dask.config`` key ``schmp-estimators.memory-limit``, a number or a text such
    as "4 GiB".  Without it, the result is the least that is left of three limits: the memory of the
    machine or its container, as Dask knows it, and the limits of this process on addresses and on
    data.
    """
    space, data, held = _taken()
    asked = setting("schmp-estimators.memory-limit")
    if asked is None:
        of_addresses, of_data = _process_limits()
        return max(
            0,
            int(
                min(distributed.system.memory_limit() - held, of_addresses - space, of_data - data)
            ),
        )
    found = int(dask.utils.parse_bytes(asked))
    if found < 1:
        raise ValueError(
            f"dask.config schmp-estimators.memory-limit is {asked!r}; it must be at least one byte"
        )
    return max(0, found - held)


def memory_left_of_worker(dask_worker: Worker) -> IntPair:
    """Return `memory_left` for a worker: first by its own memory limit, then without it.

    Dask counts all resident memory, including files.  A worker writes results to disk, and then
    pauses, long before it reaches its limit; the first number is what is left until then.
    """
    manager = dask_worker.memory_manager
    here = memory_left()
    if not manager.memory_limit or setting("schmp-estimators.memory-limit") is not None:
        return here, here
    most = (
        float(manager.memory_spill_fraction or manager.memory_pause_fraction or 1)
        * manager.memory_limit
    )
    return max(0, int(most) - dask_worker.monitor.get_process_memory()), here


def _taken() -> tuple[int, int, int]:
    """Return the bytes of this process's addresses, and of two kinds of its memory.

    These are writable memory, and memory that is not in files.

    They are 0 if the system does not say.
    """
    try:
        size, resident, shared, _, _, data, *_ = map(
            int, Path("/proc/self/statm").read_text().split()
        )
    except OSError:
        return 0, 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return size * page, data * page, (resident - shared) * page


def _process_limits() -> FloatPair:
    """Return the limits on the bytes of addresses and of writable memory."""
    if sys.platform == "win32":
        return math.inf, math.inf
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    space, data = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return space, data
