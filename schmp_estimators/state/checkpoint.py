"""Checkpoints: what a run needs to go on, in a file that any later process can read.

A checkpoint is one ``.npz`` archive: arrays, and a JSON header that says how they nest and what they belong to.  There
is no pickle in it.  It may be at any place that fsspec knows; on a local disk it is replaced in one step.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from zipfile import BadZipFile

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

#: Version of the format; a file of another version is refused.
FORMAT = 1


class CheckpointMismatchError(ValueError):
    """The checkpoint belongs to another fit."""


def write_checkpoint(url: str | os.PathLike[str], fingerprint: Mapping[str, Any], values: Any) -> None:
    """Write `values`, nested tuples, lists and dicts of arrays and plain numbers, under `url`.

    Parameters
    ----------
    url : str or path-like
        Where to write; anything fsspec can open.
    fingerprint : mapping of str to JSON values
        What the checkpoint belongs to: data, parameters, versions.
    values : nested tuples, lists and dicts of ndarray, int, float, str, bool and None
        What to keep.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    header = {"format": FORMAT, "fingerprint": dict(fingerprint), "values": _strip(values, arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **_named(arrays))
    system, path = fsspec.core.url_to_fs(os.fspath(url))
    if isinstance(system, LocalFileSystem):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        aside = f"{path}.{os.getpid()}.part"
        try:
            with open(aside, "wb") as file:
                file.write(buffer.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.remove(aside)
            raise
    else:
        system.pipe_file(path, buffer.getvalue())


def read_checkpoint(url: str | os.PathLike[str], fingerprint: Mapping[str, Any]) -> Any:
    """Return the values of the checkpoint at `url`, or None if there is none.

    Raises
    ------
    CheckpointMismatchError
        If it was written for other data, parameters or versions, or if the file is no checkpoint at all.
    """
    system, path = fsspec.core.url_to_fs(os.fspath(url))
    if not system.exists(path):
        return None
    with _open_archive(system.cat_file(path), os.fspath(url)) as archive:
        header = json.loads(archive["header"].tobytes())
        found = {"format": header["format"], **header["fingerprint"]}
        expected = {"format": FORMAT, **json.loads(json.dumps(dict(fingerprint)))}
        differing = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
        if differing:
            details = "; ".join(f"{n}: {found.get(n)!r} there, {expected.get(n)!r} here" for n in differing)
            raise CheckpointMismatchError(
                f"checkpoint={os.fspath(url)!r} belongs to another fit ({details}); "
                "give another path, or remove the file to start anew"
            )
        return _fill(header["values"], archive)


def check_sweeps(url: str | os.PathLike[str], done: int, max_iter: int) -> None:
    """Raise CheckpointMismatchError if a checkpoint is further than a fit may go."""
    if done > max_iter:
        raise CheckpointMismatchError(
            f"checkpoint={os.fspath(url)!r} has {done} iterations behind it, and max_iter={max_iter}; raise max_iter, "
            "give another path, or remove the file to start anew"
        )


def remove_checkpoint(url: str | os.PathLike[str]) -> None:
    """Remove the checkpoint at `url`, if there is one."""
    system, path = fsspec.core.url_to_fs(os.fspath(url))
    if system.exists(path):
        system.rm_file(path)


def _open_archive(content: bytes, name: str) -> Any:
    try:
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        archive["header"]
    except (EOFError, KeyError, IndexError, ValueError, BadZipFile) as error:
        raise CheckpointMismatchError(
            f"checkpoint={name!r} is no checkpoint, or a damaged one ({error}); "
            "give another path, or remove the file to start anew"
        ) from error
    return archive


def _named(arrays: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {f"array{i}": array for i, array in enumerate(arrays)}


def _strip(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("arrays of objects do not go into a checkpoint: they would have to be pickled")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, (tuple, list)):
        return {"list": [_strip(part, arrays) for part in value]}
    if isinstance(value, dict):
        return {"dict": {name: _strip(part, arrays) for name, part in value.items()}}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def _fill(stripped: dict[str, Any], archive: Any) -> Any:
    [(kind, value)] = stripped.items()
    if kind == "array":
        return archive[f"array{value}"]
    if kind == "list":
        return [_fill(part, archive) for part in value]
    if kind == "dict":
        return {name: _fill(part, archive) for name, part in value.items()}
    return value
