"""Parts of a checkpoint, each written by the worker that has its values.

They are in a folder beside the checkpoint, ``<checkpoint>.parts``.  The writer of the checkpoint first leaves a mark
there, 16 hex digits.  Who sees the mark sees the same folder, and writes ``<mark>-<number>``; who does not, writes
nothing.  A part has its own name in it.  The checkpoint, which names its parts, is written when all of them are there,
and whatever else is in the folder goes after that.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple

import fsspec

from schmp_estimators.core.io.files import PathLike, located, replace_file

_PART = re.compile(r"[0-9a-f]{16}-\d+")
#: Marks and parts, and what a killed process leaves of them; see `files`.
_OURS = re.compile(r"[0-9a-f]{16}(-\d+)?(\.[0-9a-f]{16}\.part)?")


class Part(NamedTuple):
    """What a checkpoint says of one of its parts."""

    name: str


def folder_of(url: PathLike) -> str:
    """Return the folder of the parts of a checkpoint, as every process may call it."""
    return f"{located(url)}.parts"


def leave_mark(folder: str) -> str:
    """Leave a new mark in a folder, and return it."""
    mark = secrets.token_hex(8)
    try:
        replace_file(f"{folder}/{mark}", _write_mark, outlives_power=False)
    except BaseException:
        take_back(folder, mark)
        raise
    return mark


def _write_mark(file: IO[bytes]) -> None:
    file.write(b"parts are being written")


def write_part(folder: str, mark: str, number: int, pack: Callable[[str], Callable[[IO[bytes]], Any]]) -> Part | None:
    """Write a part, if the mark is there; else the folder is another one, or nobody waits for the part.

    ``pack(name)`` returns what writes a part of this name to a file.
    """
    if not _exists(folder, mark):
        return None
    name = f"{mark}-{number}"
    replace_file(f"{folder}/{name}", pack(name))
    if not _exists(folder, mark):  # taken away meanwhile
        take_back(folder, mark)
        return None
    return Part(name)


def are_there(folder: str, parts: Sequence[Part]) -> bool:
    """Return whether all parts can be seen from here."""
    with suppress(Exception):  # file systems of fsspec have errors of their own
        return all(_exists(folder, part.name) for part in parts)
    return False


def reading(folder: str, name: str) -> Any:
    """Open a part.

    Raises
    ------
    Exception
        If it is not there, or its name is none.
    """
    if not _PART.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a part")
    system, path = _reach(folder)
    return system.open(f"{path}/{name}", "rb")


def tidy(folder: str, kept: Collection[str] = ()) -> None:
    """Remove all marks and parts but those with these names."""
    _remove_if(folder, lambda name: name not in kept)


def take_back(folder: str, mark: str) -> None:
    """Remove a mark, and parts with this mark."""
    _remove_if(folder, lambda name: name.startswith(mark))


def _exists(folder: str, name: str) -> bool:
    system, path = _reach(folder)
    return bool(system.exists(f"{path}/{name}"))


def _remove_if(folder: str, goes: Callable[[str], bool]) -> None:
    """Remove marks and parts, and the folder if it is empty then.  What cannot be removed stays for the next time."""
    with suppress(Exception):  # there is no such folder, or the file system has an error of its own
        system, path = _reach(folder)
        names = [os.path.basename(one.rstrip("/")) for one in system.ls(path, detail=False)]
        gone = [name for name in names if _OURS.fullmatch(name) and goes(name)]
        for name in gone:
            system.rm_file(f"{path}/{name}")
        if len(gone) == len(names):
            system.rmdir(path)


def _reach(folder: str) -> tuple[Any, str]:
    """Return the file system of a folder, without a memory of what was in it, and the folder's path there."""
    system, path = fsspec.core.url_to_fs(folder, skip_instance_cache=True)
    return system, path
