"""Files that are replaced in one step, and folders for fits.

Readers of a file see the old or the new one, complete.

On a local disk the new file is written beside the old one, as ``<name>.<16 hex digits>.part``, and
renamed.  A writer locks its part.  A part without a lock was left by a process that died, and the
next writer removes it.  Elsewhere the file is written in a transaction of fsspec, so that an object
store shows it only when it is complete.

Folders are on disks of this machine.  A folder that the user names has the fit's checkpoint, and a
lock while a fit uses it.  A temporary folder is removed in the end, even after an error.  If its
process was killed, the next process that makes a temporary folder removes it.
"""

import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schmp_estimators.core.errors import CheckpointMismatchError, SpillInUseError
from schmp_estimators.core.io.slices import explained_errors
from schmp_estimators.core.later import setting
from schmp_estimators.core.typing import Unary

if sys.platform != "win32":  # Windows does not remove open files, so no lock is needed there
    import fcntl

#: Names of the checkpoint and of copies of the input, and prefixes of marks (see `marked`) and
#: temporary folders.
CHECKPOINT, INPUT, MARK, PREFIX = "checkpoint", "input", "mark-", "schmp-spill-"
_LOCK = "lock"
#: Names that a fit makes in a folder, or leaves if it is killed; names that begin with a dot are
#: those of the system.
_OURS = re.compile(r"lock|checkpoint(\.[0-9a-f]{16}\.part)?|input|mark-[0-9a-f]+|\..*")
#: A path as a user may give it.
PathLike = str | os.PathLike[str]


def located(path: PathLike) -> str:
    """Return a path or URL with ``~`` and environment variables expanded.

    A path on a disk becomes absolute.

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
    except Exception as error:  # packages for file systems have errors of their own
        raise ValueError(
            f"checkpoint={path!r} is no path, and no URL that fsspec can open ({error}); give "
            "another one, or None"
        ) from error
    return name


def local_folder(path: PathLike) -> str:
    """Return the folder on a disk of this machine that `spill` names.

    It is given as a path or URL that `located` reads.

    Raises
    ------
    ValueError
        If it is not on a disk of this machine.
    """
    with suppress(ValueError):
        system, folder = fsspec.core.url_to_fs(located(path))
        if isinstance(system, LocalFileSystem):
            return str(folder)
    raise ValueError(
        f"spill={path!r} is no folder on a disk of this machine; give one, 'auto' or None"
    )


def replace_file(url: PathLike, write: Unary) -> None:
    """Let `write` fill a new file, and replace the file at `url` by it.

    Parameters
    ----------
    url : str or path-like
        A path, or a URL known to fsspec.  Missing folders on a local disk are made.
    write : callable
        Gets a binary file; it may only write to it.

    Raises
    ------
    Exception
        Any error of `write` or of the file system; the old file at `url` is then still there.
    """
    # A transaction belongs to an instance, and the instances that fsspec caches are shared with
    # other threads.
    system, path = fsspec.core.url_to_fs(os.fspath(url), skip_instance_cache=True)
    if isinstance(system, LocalFileSystem):
        _replace_local(path, write)
        return
    with system.transaction, system.open(path, "wb") as file:
        write(file)


def _replace_local(path: str, write: Unary) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    _remove_stale_parts(path)
    file = _open_part(path)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # so that it survives a failure of the machine
            if sys.platform != "win32":
                os.replace(
                    file.name, path
                )  # while it is locked, so that no other writer removes the part as stale
        if sys.platform == "win32":  # Windows does not rename open files
            os.replace(file.name, path)
    except BaseException:
        with suppress(OSError):
            os.remove(file.name)
        raise


def _open_part(path: str) -> IO[bytes]:
    """Return a new part of `path`, open and locked."""
    while True:
        # the caller closes it
        file = open(f"{path}.{secrets.token_hex(8)}.part", "xb")  # noqa: SIM115
        lock(file, wait=True)
        if os.path.exists(file.name):
            return file
        file.close()  # another writer removed it as stale before it was locked


def _remove_stale_parts(path: str) -> None:
    folder, name = os.path.split(path)
    part = re.compile(re.escape(name) + r"\.[0-9a-f]{16}\.part")
    for other in os.listdir(folder or "."):
        if part.fullmatch(other):
            with suppress(OSError), open(os.path.join(folder, other), "rb+") as file:
                if lock(file, wait=False):
                    os.remove(file.name)


def lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock a file until it is closed, and return whether that was possible."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (
        OSError
    ):  # its writer holds the lock, or the file system has no locks; there stale parts have to stay
        return False
    return True


def missing_folders(path: str) -> list[str]:
    """Return those of a folder and its parents that do not exist, the folder itself first."""
    return [one for one in (path, *map(str, Path(path).parents)) if not os.path.exists(one)]


def leave_folder(folder: str, lock_name: str, made: Sequence[str]) -> None:
    """If a folder holds nothing but the lock, remove the lock.

    Then remove the folders that were made for the fit.
    """
    with suppress(OSError):
        if os.listdir(folder) == [lock_name]:
            os.remove(os.path.join(folder, lock_name))
            for one in made:
                os.rmdir(one)


@contextmanager
def named_folder(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Give the path of a folder that only one fit uses.

    If it was made here and is empty in the end, it is removed.

    Raises
    ------
    SpillInUseError
        If another fit uses the folder.
    CheckpointMismatchError
        If it holds files that are not a fit's, or those of an older version.
    SpillError
        If the system does not let the fit use it.
    """
    path = local_folder(folder)
    made = missing_folders(path)
    with explained_errors(path):
        os.makedirs(path, exist_ok=True)
        names = sorted(os.listdir(path))
    if "manifest.spill" in names:
        raise CheckpointMismatchError(
            f"spill={path!r} was begun by an older version of this package, which kept topics in "
            "another form; give another folder, or finish the fit with that version"
        )
    if foreign := [name for name in names if not _OURS.fullmatch(name)]:
        raise CheckpointMismatchError(
            f"spill={path!r} holds {foreign[0]!r}, which no fit has put there; give a new or "
            "empty folder"
        )
    with explained_errors(path), open(os.path.join(path, _LOCK), "ab") as file:
        if not lock(file, wait=False) or not os.path.exists(
            file.name
        ):  # it is gone if another fit has just ended
            raise SpillInUseError(
                f"another fit works in spill={path!r}; wait for it, or give another folder"
            )
        for name in names:  # left by a client that was killed
            if name.startswith(MARK):
                os.remove(os.path.join(path, name))
        shutil.rmtree(os.path.join(path, INPUT), ignore_errors=True)
        try:
            yield path
        finally:
            leave_folder(path, _LOCK, made)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Give a new folder in Dask's temporary directory; raises SpillError.

    It is removed in the end.
    """
    parent = temporary_directory()
    with explained_errors(parent):
        for name in os.listdir(parent):
            if name.startswith(PREFIX):
                _remove_stale(os.path.join(parent, name))
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    try:
        # It is locked before it gets its name, so that no other process removes it as stale.
        with open(os.path.join(path, f"{_LOCK}.new"), "ab") as file:
            lock(file, wait=False)
            if sys.platform != "win32":  # Windows does not rename open files
                os.rename(file.name, os.path.join(path, _LOCK))
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def temporary_directory() -> str:
    """Return Dask's temporary directory, or that of the system; make it if it does not exist."""
    parent = str(setting("temporary-directory") or tempfile.gettempdir())
    with explained_errors(parent):
        os.makedirs(parent, exist_ok=True)
    return parent


def _remove_stale(folder: str) -> None:
    """Remove a temporary folder if nobody holds its lock: its process has died."""
    if sys.platform == "win32":  # which has no such locks
        return
    with suppress(OSError), open(os.path.join(folder, _LOCK), "r+b") as file:
        if lock(file, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
