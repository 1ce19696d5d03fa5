"""Files that are replaced in one step: whoever looks sees the old one or the new one, whole.

On a local disk the new file is written beside the old one, as ``<name>.<16 hex digits>.part``, and renamed.  A writer
holds a lock on its part; a part that nobody holds was left by a process that died, and is removed by the next writer.
Elsewhere it is written in a transaction of fsspec, so that an object store shows it when it is complete, or never.

And folders on disks of this machine: those that users name for a fit, and temporary ones.  A folder that the user names
has the fit's checkpoint, and a lock while a fit works there.  A temporary one is removed, whatever happens, but for a
process that is killed: the next one removes what that has left.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schmp_estimators.core.errors import CheckpointMismatchError, SpillInUseError
from schmp_estimators.core.io.slices import telling
from schmp_estimators.core.later import setting

if sys.platform != "win32":  # Windows removes no file that is open: the lock is not missed there
    import fcntl

#: The checkpoint in a folder, copies of the input, and how marks and temporary folders begin.
CHECKPOINT, INPUT, MARK, PREFIX = "checkpoint", "input", "mark-", "schmp-spill-"
_LOCK = "lock"
#: What a fit puts there, and what it leaves if it is killed; names that begin with a dot are those of the system.
_OURS = re.compile(r"lock|checkpoint(\.[0-9a-f]{16}\.part)?|input|mark-[0-9a-f]+|\..*")
#: What a user may give as a path.
PathLike = str | os.PathLike[str]


def located(path: PathLike) -> str:
    """Return a path or URL with the home folder for ``~``, and environment variables; what is on a disk is absolute.

    Raises
    ------
    ValueError
        If it is empty, or a URL that fsspec cannot open.
    """
    try:
        if not (name := os.path.expandvars(os.fspath(path))):
            raise ValueError("it is empty")
        name = name if "://" in name else os.path.abspath(os.path.expanduser(name))
        fsspec.core.url_to_fs(name)
    except Exception as error:  # of packages for file systems
        raise ValueError(
            f"checkpoint={path!r} is no path, and no URL that fsspec can open ({error}); give another one, or None"
        ) from error
    return name


def local_folder(path: PathLike) -> str:
    """Return the folder on a disk of this machine that is given as `spill`, a path or URL as `located` reads it.

    Raises
    ------
    ValueError
        If it is elsewhere.
    """
    with suppress(ValueError):
        system, folder = fsspec.core.url_to_fs(located(path))
        if isinstance(system, LocalFileSystem):
            return str(folder)
    raise ValueError(f"spill={path!r} is no folder on a disk of this machine; give one, 'auto' or None")


def replace_file(url: PathLike, write: Callable[[Any], Any], *, outlives_power: bool = True) -> None:
    """Let `write` fill a new file, and put it at the place of the one at `url`.

    Parameters
    ----------
    url : str or path-like
        A path, or a URL known to fsspec.  Missing folders on a local disk are made.
    write : callable
        Gets a binary file to which it can write, and no more.
    outlives_power : bool, default=True
        Whether to wait until a local disk has it, so that it is there after a failure of the machine.

    Raises
    ------
    Exception
        Whatever `write` or the file system raises; what was at `url` is still there then.
    """
    # A transaction belongs to an instance: those that fsspec keeps are shared with all other threads.
    system, path = fsspec.core.url_to_fs(os.fspath(url), skip_instance_cache=True)
    if isinstance(system, LocalFileSystem):
        _replace_local(path, write, outlives_power)
        return
    with system.transaction, system.open(path, "wb") as file:
        write(file)


def _replace_local(path: str, write: Callable[[Any], Any], outlives_power: bool) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    _remove_stale_parts(path)
    file = _open_part(path)
    try:
        with file:
            write(file)
            file.flush()
            if outlives_power:
                os.fsync(file.fileno())
            if sys.platform != "win32":
                os.replace(file.name, path)  # under the lock, so that nobody takes the part for stale
        if sys.platform == "win32":  # which renames no file that is open
            os.replace(file.name, path)
    except BaseException:
        with suppress(OSError):
            os.remove(file.name)
        raise


def _open_part(path: str) -> IO[bytes]:
    """Return a new part of `path`, open and locked."""
    while True:
        file = open(f"{path}.{secrets.token_hex(8)}.part", "xb")  # noqa: SIM115  (the caller closes it)
        lock(file, wait=True)
        if os.path.exists(file.name):
            return file
        file.close()  # another writer took it for stale before it was locked


def _remove_stale_parts(path: str) -> None:
    folder, name = os.path.split(path)
    part = re.compile(re.escape(name) + r"\.[0-9a-f]{16}\.part")
    for other in os.listdir(folder or "."):
        if part.fullmatch(other):
            with suppress(OSError), open(os.path.join(folder, other), "rb+") as file:
                if lock(file, wait=False):
                    os.remove(file.name)


def lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock a file until it is closed, and return whether that could be done."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by its writer, or a file system without locks, where stale parts have to stay
        return False
    return True


def missing_folders(path: str) -> list[str]:
    """Return a folder, and those that it is in, from the innermost on, as far as they are not there."""
    return [one for one in (path, *map(str, Path(path).parents)) if not os.path.exists(one)]


def leave_folder(folder: str, lock_name: str, made: Sequence[str]) -> None:
    """Remove the lock in a folder that holds nothing else, and then the folders that have been made for it."""
    with suppress(OSError):
        if os.listdir(folder) == [lock_name]:
            os.remove(os.path.join(folder, lock_name))
            for one in made:
                os.rmdir(one)


@contextmanager
def named_folder(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Give the path of a folder for one fit alone, which is removed on leaving if it was made here and is empty.

    Raises
    ------
    SpillInUseError
        If another fit works there.
    CheckpointMismatchError
        If something else is there.
    SpillError
        If it cannot be used.
    """
    path = local_folder(folder)
    made = missing_folders(path)
    with telling(path):
        os.makedirs(path, exist_ok=True)
        names = sorted(os.listdir(path))
    if "manifest.spill" in names:
        raise CheckpointMismatchError(
            f"spill={path!r} was begun by an older version of this package, which kept topics in another form; give "
            "another folder, or finish the fit with that version"
        )
    if foreign := [name for name in names if not _OURS.fullmatch(name)]:
        raise CheckpointMismatchError(
            f"spill={path!r} holds {foreign[0]!r}, which no fit has put there; give a new or empty folder"
        )
    with telling(path), open(os.path.join(path, _LOCK), "ab") as file:
        if not lock(file, wait=False) or not os.path.exists(file.name):  # else another fit has just left
            raise SpillInUseError(f"another fit works in spill={path!r}; wait for it, or give another folder")
        for name in names:  # what a client that was killed has left
            if name.startswith(MARK):
                os.remove(os.path.join(path, name))
        shutil.rmtree(os.path.join(path, INPUT), ignore_errors=True)
        try:
            yield path
        finally:
            leave_folder(path, _LOCK, made)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give a new folder in Dask's temporary directory, which is removed on leaving; raises as `named_folder`."""
    parent = temporary_directory()
    with telling(parent):
        for name in os.listdir(parent):
            if name.startswith(PREFIX):
                _remove_stale(os.path.join(parent, name))
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    try:
        # Locked before it has its name, so that nobody takes it for one that was left.
        with open(os.path.join(path, f"{_LOCK}.new"), "ab") as file:
            lock(file, wait=False)
            if sys.platform != "win32":  # which renames no file that is open
                os.rename(file.name, os.path.join(path, _LOCK))
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def temporary_directory() -> str:
    """Return Dask's temporary directory, or that of the system; it is made if it is not there."""
    parent = str(setting("temporary-directory") or tempfile.gettempdir())
    with telling(parent):
        os.makedirs(parent, exist_ok=True)
    return parent


def _remove_stale(folder: str) -> None:
    """Remove a temporary folder if it has a lock that nobody holds: its process has died."""
    if sys.platform == "win32":  # where there are no such locks
        return
    with suppress(OSError), open(os.path.join(folder, _LOCK), "r+b") as file:
        if lock(file, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
