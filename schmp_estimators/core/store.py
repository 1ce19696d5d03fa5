"""Arrays on disk, in a folder that one run has for itself: some are read and written while others are worked upon.

One thread reads ahead, another one writes behind, past the system's cache of pages where that is possible (`direct`).
Else what has been read or written is dropped from it: it would grow until it takes memory from others.

A folder that the user names stays, with a manifest that says what is in it; a temporary one is removed, whatever
happens, but for a process that is killed: the next run removes what that has left.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.direct import bytes_of, fill_array, write_array
from schmp_estimators.core.io.checkpoint import CheckpointMismatchError, read_checkpoint, write_checkpoint
from schmp_estimators.core.io.files import leave_folder, local_folder, lock, missing_folders
from schmp_estimators.core.later import setting
from schmp_estimators.core.places.errors import SchMPError

#: What all files in a folder are called, and how temporary folders begin.
SUFFIX = ".spill"
_OURS = re.compile(r"[\w-]+\.spill(\.[0-9a-f]{16}\.part)?")
PREFIX = "schmp-spill-"
_MANIFEST, _LOCK = "manifest", "lock"
#: Bytes that are read at a time to see whether they are what was written.
_CHECKED_AT_ONCE = 1 << 24
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


class SpillError(SchMPError):
    """What does not fit into memory cannot be kept on disk, either."""


class SpillInUseError(SpillError):
    """Another fit works in the folder."""


class SpillWarning(UserWarning):
    """A fit does not fit into memory, and uses a folder on disk."""


class Written(NamedTuple):
    """What was written behind: where, how long it is, and its checksum."""

    at: int
    size: int
    crc: int


class Part(NamedTuple):
    """What a manifest says of what others have written: a file in a folder, as ``folder/name``, and `Written`."""

    name: str
    at: int
    size: int
    crc: int


class Store:
    """Files of arrays in a folder; made by `open_store`.

    Parameters
    ----------
    folder : str
        Where they are.
    is_kept : bool
        Whether they are to be found again: then they have checksums, and are safe on disk once `settle` returns.
    """

    def __init__(self, folder: str, *, is_kept: bool) -> None:
        self.folder, self.is_kept = folder, is_kept
        self._reader, self._writer = (ThreadPoolExecutor(1, f"schmp-{what}") for what in ("read", "write"))
        self._ahead: tuple[Hashable, Future[Any]] | None = None
        self._behind: list[Future[None]] = []
        #: What was written behind to each file, by its place there.
        self._written: dict[str, dict[int, Written]] = {}

    def allocate(self, name: str, size: int) -> None:
        """Make a file of this size, so that a disk that is too small is known at once; one of this size stays."""
        with self._telling(), open(self.path(name), "ab") as file:
            if os.fstat(file.fileno()).st_size != size:
                file.truncate(size)
            if size and hasattr(os, "posix_fallocate"):
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    if error.errno in _FULL:
                        raise
                    # else a file system that cannot, which will tell when it is full

    def write(self, name: str, *arrays: NDArray[Any]) -> None:
        """Write a file of arrays, one after the other."""
        with self._telling(), open(self.path(name), "wb", buffering=0) as file:
            for array in arrays:
                write_array(file, array)
            _forget(file.fileno(), written=True)

    def write_behind(self, name: str, at: int, array: NDArray[Any]) -> None:
        """Let a thread write an array to byte `at` of a file, after what it has been given before."""
        self._behind.append(self._writer.submit(self._write_at, name, at, array))

    def scribble_behind(self, name: str, at: int, array: NDArray[Any]) -> None:
        """Do so with what no later process needs: it may never come to the disk, and has no checksum."""
        self._behind.append(self._writer.submit(self._scribble, name, at, array))

    def _write_at(self, name: str, at: int, array: NDArray[Any]) -> None:
        self._scribble(name, at, array, is_kept=self.is_kept)
        if self.is_kept:
            self._written.setdefault(name, {})[at] = Written(at, array.nbytes, zlib.crc32(bytes_of(array)))

    def _scribble(self, name: str, at: int, array: NDArray[Any], *, is_kept: bool = False) -> None:
        with self._telling(), open(self.path(name), "r+b", buffering=0) as file:
            file.seek(at)
            if write_array(file, array) or is_kept:
                _forget(file.fileno(), written=True, is_kept=is_kept)

    def write_at(self, name: str, at: int, array: NDArray[Any]) -> None:
        """Write an array to byte `at` of a file, now."""
        self.settle()
        self._write_at(name, at, array)

    def settle(self) -> None:
        """Wait until all is written."""
        behind, self._behind = self._behind, []
        for one in behind:
            one.result()

    def read(self, name: str, at: int, *arrays: NDArray[Any]) -> None:
        """Fill arrays from byte `at` of a file on."""
        with self._telling(), open(self.path(name), "rb", buffering=0) as file:
            file.seek(at)
            for array in arrays:
                fill_array(file, array)
            _forget(file.fileno())

    def read_ahead(self, key: Hashable, load: Callable[[], Any]) -> None:
        """Let a thread `load` something, which may be what is being written now, for whoever will `take` the key."""
        behind = list(self._behind)

        def wait_and_load() -> Any:
            for one in behind:
                one.result()
            return load()

        self.forget_ahead()
        self._ahead = key, self._reader.submit(wait_and_load)

    def take(self, key: Hashable, load: Callable[[], Any]) -> Any:
        """Return what has been read ahead under a key, or `load` it now."""
        if self._ahead is not None and self._ahead[0] == key:
            (_, found), self._ahead = self._ahead, None
            return found.result()
        self.settle()
        return load()

    def forget_ahead(self) -> None:
        """Forget what has been read ahead."""
        if self._ahead is not None:
            (_, found), self._ahead = self._ahead, None
            if not found.cancel():
                found.exception()  # it may be half done; what is wrong will be met again by whoever needs it

    def commit(self, fingerprint: Mapping[str, Any], name: str, values: Any) -> None:
        """Say in the manifest that all is in the file `name`: what a later process will find from now on."""
        self.settle()
        written = [[*one] for one in self.written(name)]
        content = {"name": name, "written": written, "values": values}
        with self._telling():
            write_checkpoint(self.path(_MANIFEST), fingerprint, content)
        self._written = {name: self._written.get(name, {})}  # other files are written anew

    def commit_parts(self, fingerprint: Mapping[str, Any], parts: Sequence[Part], values: Any) -> None:
        """Say the same of parts that others have written."""
        with self._telling():
            write_checkpoint(self.path(_MANIFEST), fingerprint, {"parts": [[*one] for one in parts], "values": values})

    def read_parts(self, fingerprint: Mapping[str, Any], check: Callable[[list[Part], Any], Any]) -> Any:
        """Return what ``check(parts, values)`` makes of the manifest; otherwise as `read_manifest`."""
        return self._read(fingerprint, lambda content: self._checked_parts(content, check))

    def _checked_parts(self, content: Any, check: Callable[[list[Part], Any], Any]) -> Any:
        parts = [Part(str(name), int(at), int(size), int(crc)) for name, at, size, crc in content["parts"]]
        for name, at, size, crc in parts:
            folder, _, file = name.partition("/")
            if not (_OURS.fullmatch(folder) and _OURS.fullmatch(f"{file}{SUFFIX}")):
                raise ValueError(f"{name!r} is no name of a part")
            if self._crc(name, at, size) != crc:
                raise ValueError(f"{name}{SUFFIX} is not as it was written")
        return check(parts, content["values"])

    def _crc(self, name: str, at: int, size: int) -> int:
        found = 0
        for first in range(at, at + size, _CHECKED_AT_ONCE):
            data = np.empty(min(_CHECKED_AT_ONCE, at + size - first), np.uint8)
            self.read(name, first, data)
            found = zlib.crc32(bytes_of(data), found)
        return found

    def read_manifest(self, fingerprint: Mapping[str, Any], check: Callable[[str, int, Any], Any]) -> Any:
        """Return what ``check(name, size, values)`` makes of the manifest, None if there is no manifest.

        The file was found as it was when the manifest was written.

        Raises
        ------
        CheckpointMismatchError
            If the folder belongs to something else, or is damaged.
        """
        return self._read(fingerprint, lambda content: self._checked(content, check))

    def _read(self, fingerprint: Mapping[str, Any], check: Callable[[Any], Any]) -> Any:
        try:
            with self._telling():
                return read_checkpoint(self.path(_MANIFEST), fingerprint, check)
        except CheckpointMismatchError as error:
            raise CheckpointMismatchError(
                f"what is in spill={self.folder!r} cannot be gone on with: {error}; or give another folder"
            ) from error

    def _checked(self, content: Any, check: Callable[[str, int, Any], Any]) -> Any:
        name, found, end = content["name"], {}, 0
        if not _OURS.fullmatch(f"{name}{SUFFIX}"):
            raise ValueError(f"{name!r} is no name of a file")
        for at, size, crc in content["written"]:
            if at != end or self._crc(name, at, size) != crc:
                raise ValueError(f"{name}{SUFFIX} is not as it was written")
            found[at], end = Written(at, size, crc), at + size
        self._written = {name: found}
        return check(name, end, content["values"])

    def remove(self, keep: Callable[[str], bool] = lambda name: False) -> None:
        """Remove all files and folders, but the lock and those whose names are to be kept."""
        with self._telling():
            for name in os.listdir(self.folder):
                stem = name.removesuffix(SUFFIX)
                path = os.path.join(self.folder, name)
                if stem == _LOCK or not _OURS.fullmatch(name) or keep(stem):
                    continue
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)

    def names(self) -> list[str]:
        """Return the names of all files."""
        with self._telling():
            return [name.removesuffix(SUFFIX) for name in os.listdir(self.folder) if _OURS.fullmatch(name)]

    def size(self, name: str) -> int:
        """Return the bytes of a file, -1 if it is not there."""
        try:
            return os.stat(self.path(name)).st_size
        except OSError:
            return -1

    def link(self, name: str, other: str) -> None:
        """Give a file another name, too: what is written to a new file of the first name later does not change it."""
        with self._telling(), suppress(FileExistsError):
            try:
                os.link(self.path(name), self.path(other))
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                shutil.copyfile(self.path(name), self.path(other))

    def take_name(self, name: str, other: str) -> bool:
        """Give a file another name, and return whether there was one: of several who ask, one gets it."""
        try:
            with self._telling():
                os.replace(self.path(name), self.path(other))
        except SpillError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def written(self, name: str) -> list[Written]:
        """Return what was written behind to a file that is to be found again."""
        return [self._written[name][at] for at in sorted(self._written.get(name, {}))]

    def close(self) -> None:
        """End the threads."""
        for pool in (self._reader, self._writer):
            pool.shutdown(wait=True, cancel_futures=True)
        self._ahead, self._behind = None, []

    def path(self, name: str) -> str:
        """Return where a file is."""
        return os.path.join(self.folder, f"{name}{SUFFIX}")

    def _telling(self) -> Any:
        return _telling(self.folder)


@contextmanager
def open_store(folder: str | os.PathLike[str] | None = None) -> Iterator[Store]:
    """Give a store in a folder, or in a temporary one, which is removed on leaving.

    Parameters
    ----------
    folder : str or path-like, optional
        Made if it is not there, and removed if nothing is in it on leaving.  By default a new one in Dask's temporary
        directory.

    Raises
    ------
    SpillInUseError
        If another run works there.
    CheckpointMismatchError
        If something else is there.
    SpillError
        If it cannot be used.
    """
    path = _make_temporary() if folder is None else local_folder(folder)
    made = missing_folders(path)
    try:
        with _telling(path):
            os.makedirs(path, exist_ok=True)
            if foreign := [name for name in sorted(os.listdir(path)) if not _OURS.fullmatch(name)]:
                raise CheckpointMismatchError(
                    f"spill={path!r} holds {foreign[0]!r}, which no fit has put there; give a new or empty folder"
                )
        with _locked(path, is_new=folder is None):
            store = Store(path, is_kept=folder is not None)
            try:
                yield store
            finally:
                store.close()
                leave_folder(path, _LOCK + SUFFIX, made)
    finally:
        if folder is None:
            shutil.rmtree(path, ignore_errors=True)


def _make_temporary() -> str:
    parent = str(setting("temporary-directory") or tempfile.gettempdir())
    with _telling(parent):
        os.makedirs(parent, exist_ok=True)
        for name in os.listdir(parent):
            if name.startswith(PREFIX):
                _remove_stale(os.path.join(parent, name))
        return tempfile.mkdtemp(prefix=PREFIX, dir=parent)


def _remove_stale(folder: str) -> None:
    """Remove a temporary folder if it has a lock that nobody holds: its process has died."""
    if sys.platform == "win32":  # where there are no such locks
        return
    with suppress(OSError), open(os.path.join(folder, _LOCK + SUFFIX), "r+b") as file:
        if lock(file, wait=False):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: str, *, is_new: bool) -> Iterator[None]:
    path = os.path.join(folder, _LOCK + SUFFIX)
    hidden = is_new and sys.platform != "win32"  # which renames no file that is open
    with _telling(folder), open(f"{path}.new" if hidden else path, "ab") as file:
        held = lock(file, wait=False) and os.path.exists(file.name)  # else another run has just left
        if hidden:  # locked before it has its name, so that nobody takes it for one that was left
            os.rename(file.name, path)
        if not held:
            raise SpillInUseError(f"another fit works in spill={folder!r}; wait for it, or give another folder")
        yield


def _forget(number: int, *, written: bool = False, is_kept: bool = False) -> None:
    """Drop a file's pages from the system's cache; what is not on disk yet cannot be dropped."""
    can = hasattr(os, "posix_fadvise")
    if written and (can or is_kept):
        getattr(os, "fdatasync", os.fsync)(number)
    if can:
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _telling(folder: str) -> Iterator[None]:
    """Let the errors of the system say what they mean for a fit."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SpillError(
                f"the disk has no room for what spill puts into {folder!r} ({error}); free some, or give another folder"
            ) from error
        raise SpillError(f"spill cannot use {folder!r}: {error}; give another folder") from error
