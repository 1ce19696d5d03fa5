"""Folders on disks of this machine: those that users name for a fit, and temporary ones.

A folder that the user names has the fit's checkpoint, and a lock while a fit works there.  A temporary one is removed,
whatever happens, but for a process that is killed: the next one removes what that has left.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from schmp_estimators.core.io.checkpoint import CheckpointMismatchError
from schmp_estimators.core.io.files import leave_folder, local_folder, lock, missing_folders
from schmp_estimators.core.io.slices import SpillInUseError, telling
from schmp_estimators.core.later import setting

#: The checkpoint in a folder, copies of the input, and how marks and temporary folders begin.
CHECKPOINT, INPUT, MARK, PREFIX = "checkpoint", "input", "mark-", "schmp-spill-"
_LOCK = "lock"
#: What a fit puts there, and what it leaves if it is killed; names that begin with a dot are those of the system.
_OURS = re.compile(r"lock|checkpoint(\.parts|\.[0-9a-f]{16}\.part)?|input|mark-[0-9a-f]+|\..*")


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
