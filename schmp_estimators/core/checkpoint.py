"""Checkpoints: what a run needs to go on, in a file that any later process can read.

A checkpoint is one ``.npz`` archive: arrays, and a JSON header that says how they nest and what they belong to.  There
is no pickle in it.  It may be at any place that fsspec knows, and is replaced in one step.  On a cluster some of its
values are in archives beside it, which workers have written; see `parts`.

Nothing in such a file is believed.  The archive has a checksum for every array; shapes, types and ranges are for the
reader to check, who knows what they should be.
"""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import IO, Any, TypeVar
from zipfile import ZIP_STORED, ZipFile

import fsspec
import numpy as np

from schmp_estimators.core.files import replace_file
from schmp_estimators.core.parts import Part, are_there, folder_of, leave_mark, reading, take_back, tidy, write_part

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Version of the format; a file of another version is refused.
FORMAT = 1

#: Types that JSON knows.
_PLAIN = {int, float, str, bool, type(None)}
_REMEDY = "give another path, or remove the file to start anew"
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class CheckpointMismatchError(ValueError):
    """The checkpoint belongs to another fit, or is damaged."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the fit goes on without it."""


class Checkpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    url : str or path-like
        Where it is; anything fsspec can open.
    fingerprint : mapping of str to JSON values
        What it belongs to: data, parameters, versions.
    """

    def __init__(self, url: str | os.PathLike[str], fingerprint: Mapping[str, Any]) -> None:
        self._url, self._fingerprint = url, fingerprint
        self._failed = False
        #: What a thread writes, and after how many iterations.
        self._behind: tuple[int, Future[None]] | None = None
        self._folder = folder_of(url)
        #: Whether workers have failed to write parts: another machine may not see the place.
        self._alone = False
        #: Of the checkpoint that is being written.
        self._mark: str | None = None

    def invite(self) -> tuple[str, str] | None:
        """Return what `save_part` needs to write parts of the next checkpoint, None if workers cannot."""
        if self._alone:
            return None
        self.withdraw()
        try:
            self._mark = leave_mark(self._folder)
        except Exception as error:  # `write` will meet it, too
            logger.info("no parts in %s: %r", self._folder, error)
            return None
        return self._folder, self._mark

    def has(self, parts: Sequence[Part | None]) -> bool:
        """Return whether all parts are where the checkpoint will be; if not, workers are not asked again."""
        self._alone = None in parts or not are_there(self._folder, [part for part in parts if part])
        return not self._alone

    def withdraw(self) -> None:
        """Remove what has been written of a checkpoint that will not be."""
        if self._mark:
            take_back(self._folder, self._mark)
        self._mark = None

    def read(self, check: Callable[[Any], T]) -> T | None:
        """Return what `check` makes of the values, or None if there is no checkpoint; see `read_checkpoint`."""
        found: T | None = read_checkpoint(self._url, self._fingerprint, check)
        return found

    def write(self, done: int, values: Any) -> None:
        """Write `values`; if that cannot be done, say so once, and leave the last checkpoint as it is.

        Parameters
        ----------
        done : int
            Iterations done, for the warning.
        values : nested tuples, lists and dicts
            What to keep, as in `write_checkpoint`; each `Part` in it stands for what workers have written.

        Warns
        -----
        CheckpointWarning
            If it could not be written, and the one before could.
        """
        self.settle()
        self._finish(done, partial(_replace, self._url, *_packed(self._fingerprint, values)))

    def write_behind(self, done: int, values: Any) -> None:
        """Let a thread do so; arrays in `values` may not be changed any more.  Who comes next waits, and warns."""
        self.settle()
        pool = ThreadPoolExecutor(1, "schmp-checkpoint")
        self._behind = done, pool.submit(_replace, self._url, *_packed(self._fingerprint, values))
        pool.shutdown(wait=False)

    def settle(self) -> None:
        """Wait until the thread has written; warns as `write`."""
        if self._behind is not None:
            (done, writing), self._behind = self._behind, None
            self._finish(done, writing.result)

    def _finish(self, done: int, end: Callable[[], None]) -> None:
        try:
            end()
        except Exception as error:  # file systems of fsspec have errors of their own
            if not self._failed:
                warnings.warn(
                    f"checkpoint={os.fspath(self._url)!r} could not be written after iteration {done} "
                    f"({type(error).__name__}: {error}); the fit goes on, and tries again after each "
                    "`checkpoint_every`. To end a fit instead: "
                    "warnings.simplefilter('error', schmp_estimators.exceptions.CheckpointWarning)",
                    CheckpointWarning,
                    stacklevel=3,
                )
            logger.info("no checkpoint after iteration %d: %r", done, error)
            self._failed = True
            self.withdraw()
        else:
            self._failed, self._mark = False, None


def settle(checkpoint: Checkpoint | None, error: BaseException | None) -> None:
    """Wait until a run's checkpoint is written, if it has one; if the run ends with an error, that is what counts."""
    if checkpoint is not None:
        with suppress(Exception) if error is not None else nullcontext():
            checkpoint.settle()


def write_checkpoint(url: str | os.PathLike[str], fingerprint: Mapping[str, Any], values: Any) -> None:
    """Write `values`, nested tuples, lists and dicts of arrays and plain numbers, under `url`.

    Arrays are streamed: no copy of them is made.

    Parameters
    ----------
    url : str or path-like
        Where to write; anything fsspec can open.
    fingerprint : mapping of str to JSON values
        What the checkpoint belongs to: data, parameters, versions.
    values : nested tuples, lists and dicts of ndarray, int, float, str, bool and None
        What to keep.
    """
    _replace(url, *_packed(fingerprint, values))


def save_part(folder: str, mark: str, number: int, values: Any) -> Part | None:
    """Write `values` as a part of a checkpoint; None if that cannot be done from here."""
    try:
        save, _ = _packed({}, values)
        return write_part(folder, mark, number, save)
    except Exception as error:  # whoever writes the checkpoint tries it with all values, and tells
        logger.info("no part in %s: %r", folder, error)
        return None


def read_checkpoint(
    url: str | os.PathLike[str], fingerprint: Mapping[str, Any], check: Callable[[Any], Any] = lambda values: values
) -> Any:
    """Return what `check` makes of the values of the checkpoint at `url`, or None if there is none.

    Parameters
    ----------
    url : str or path-like
        Where to look; anything fsspec can open.
    fingerprint : mapping of str to JSON values
        What the checkpoint must belong to.
    check : callable, optional
        Gets the values and raises any exception if they are not what was written; its result is returned.

    Raises
    ------
    CheckpointMismatchError
        If it was written for other data, parameters or versions, or if the file is damaged or no checkpoint at all.
    """
    name = os.fspath(url)
    system, path = fsspec.core.url_to_fs(name)
    if not system.exists(path):
        return None
    with system.open(path, "rb") as file, _refusing_damage(name), ZipFile(file) as archive:
        header = _header(archive)
        found = {"format": header["format"], **header["fingerprint"]}
        expected = {"format": FORMAT, **json.loads(json.dumps(dict(fingerprint)))}
        differing = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
        if differing:
            details = "; ".join(f"{n}: {found.get(n)!r} there, {expected.get(n)!r} here" for n in differing)
            raise CheckpointMismatchError(f"checkpoint={name!r} belongs to another fit ({details}); {_REMEDY}")
        return check(_fill(header["values"], archive, folder_of(url)))


def check_sweeps(url: str | os.PathLike[str], done: int, limit: int, name: str = "max_iter") -> None:
    """Raise CheckpointMismatchError if a checkpoint is further than a fit may go, by the parameter with this name."""
    if done > limit:
        raise CheckpointMismatchError(
            f"checkpoint={os.fspath(url)!r} has {done} iterations behind it, and {name}={limit}; raise {name}, "
            f"{_REMEDY}"
        )


def check_history(history: Any, done: Any) -> None:
    """Raise ValueError if `history` is no list of one record for each of `done` iterations."""
    if type(done) is not int or done < 1:
        raise ValueError(f"{done!r} iterations done")
    numbers = [record["iterations"] for record in history]
    if type(history) is not list or numbers != list(range(1, done + 1)):
        raise ValueError(f"the history is not that of {done} iterations")
    for record in history:
        if not all(type(value) in (int, float) for value in record.values()) or not 0 <= record["seconds"] < math.inf:
            raise ValueError("the history holds what is no number")


def check_array(
    name: str,
    array: Any,
    shape: tuple[int, ...],
    dtype: Any,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Raise ValueError if something is no array of this shape and type with finite values from `low` to `high`."""
    if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (shape, np.dtype(dtype)):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"{name}: {found} instead of {np.dtype(dtype)} of shape {shape}")
    if array.size == 0:
        return
    least, most = array.min(), array.max()  # NaN if there is one
    if not (np.isfinite(least) and np.isfinite(most)):
        raise ValueError(f"{name}: not finite")
    if (low is not None and least < low) or (high is not None and most > high):
        raise ValueError(f"{name}: values from {least} to {most}, which must be in [{low}, {high}]")


def remove_checkpoint(url: str | os.PathLike[str]) -> None:
    """Remove the checkpoint at `url`, if there is one."""
    system, path = fsspec.core.url_to_fs(os.fspath(url))
    if system.exists(path):
        system.rm_file(path)
    tidy(folder_of(url))


@contextmanager
def _refusing_damage(name: str) -> Iterator[None]:
    """Turn whatever a damaged file leads to into a CheckpointMismatchError."""
    try:
        yield
    except CheckpointMismatchError:
        raise
    except Exception as error:  # zipfile, NumPy and json have a dozen of them
        raise CheckpointMismatchError(
            f"checkpoint={name!r} is no checkpoint, or a damaged one ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error


def _packed(fingerprint: Mapping[str, Any], values: Any) -> tuple[Callable[[IO[bytes]], None], list[str]]:
    """Return a function that writes a checkpoint to a file, and the names of its parts elsewhere."""
    arrays: list[np.ndarray[Any, Any]] = []
    parts: list[str] = []
    header = {"format": FORMAT, "fingerprint": dict(fingerprint), "values": _strip(values, arrays, parts)}
    content: dict[str, Any] = {f"array{i}": array for i, array in enumerate(arrays)}
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return partial(_save, content), parts


def _save(content: Mapping[str, np.ndarray[Any, Any]], file: IO[bytes]) -> None:
    """Write arrays as `numpy.savez` does, but without copies of them."""
    with ZipFile(file, "w") as archive:
        for name, array in content.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if array.flags.c_contiguous:
                    np.lib.format.write_array_header_2_0(member, np.lib.format.header_data_from_array_1_0(array))
                    member.write(array.reshape(-1).view(np.uint8).data)
                else:
                    np.lib.format.write_array(member, array, allow_pickle=False)


def _replace(url: str | os.PathLike[str], save: Callable[[IO[bytes]], None], parts: Sequence[str]) -> None:
    """Replace a checkpoint, and remove the parts of the one before."""
    replace_file(url, save)
    tidy(folder_of(url), parts)


def _header(archive: ZipFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read_array(archive, "header").tobytes())
    return found


def _read_array(archive: ZipFile, name: str) -> np.ndarray[Any, Any]:
    """Return an array of the archive, if it fills its member: only then has the checksum been compared."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with archive.open(info) as member:
        shape, _, dtype = _READ_HEADER[np.lib.format.read_magic(member)](member)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"{name} does not hold {dtype} of shape {shape}")
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


def _strip(value: Any, arrays: list[np.ndarray[Any, Any]], parts: list[str]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("arrays of objects do not go into a checkpoint: they would have to be pickled")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Part):
        parts.append(value.name)
        return {"part": value}
    if isinstance(value, (tuple, list)):
        return {"list": [_strip(one, arrays, parts) for one in value]}
    if isinstance(value, dict):
        if all(type(one) in _PLAIN for one in value.values()):  # as the records of a history, of which there are many
            return {"plain": value}
        return {"dict": {name: _strip(one, arrays, parts) for name, one in value.items()}}
    return {"value": value.item() if isinstance(value, np.generic) else value}


def _fill(stripped: dict[str, Any], archive: ZipFile, folder: str) -> Any:
    [(kind, value)] = stripped.items()
    if kind == "array":
        return _read_array(archive, f"array{value}")
    if kind == "part":
        with reading(folder, value) as file, ZipFile(file) as part:
            return _fill(_header(part)["values"], part, folder)
    if kind == "list":
        return [_fill(one, archive, folder) for one in value]
    if kind == "dict":
        return {name: _fill(one, archive, folder) for name, one in value.items()}
    return value
