"""Checkpoints: files from which a run can continue in any later process.

A checkpoint is an archive of nested values (`archive`) with its identity: estimator, data,
parameters, version.  It may be at any place that fsspec knows, and is replaced in one step.

Any damage raises an error that names the file and the array.  A forged file whose header is forged,
too, may be recognised or not: only trusted users should be able to write the file.
"""

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pickle import PicklingError
from typing import Any, TypeVar
from zipfile import ZipFile

import fsspec
import joblib

from schmp_estimators import __version__
from schmp_estimators.core.errors import (
    CheckpointMismatchError,
    CheckpointWarning,
    SchMPError,
    shortened,
)
from schmp_estimators.core.io.archive import pack, read_head, unpack
from schmp_estimators.core.io.files import PathLike, located, replace_file
from schmp_estimators.core.typing import Named
from schmp_estimators.core.values import itself

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Version of the format; a file of another version is refused.
FORMAT = 4

_REMEDY = "give another path, or remove the file to start anew"


class Checkpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    url : str or path-like
        Its path or URL; see `located`.
    identity : mapping of str to JSON values
        The fit that it belongs to: estimator, data, parameters.
    before : mapping of str to JSON values, optional
        The fit that it may be left from, because this fit follows that one: then it is as if there
        were none.
    """

    def __init__(self, url: PathLike, identity: Named, before: Named | None = None) -> None:
        self.url = located(url)
        self._identity = identity
        self._before = before
        self._failed = False
        #: The number of iterations done, and the write that a thread does.
        self._behind: tuple[int, Future[None]] | None = None

    def read(self, use: Callable[[Any], T] = itself) -> T | None:
        """Return what `use` makes of the written values, or None if there is no checkpoint.

        Raises
        ------
        CheckpointMismatchError
            If it belongs to other data, parameters or versions, or if the file is damaged or no
            checkpoint at all; also if `use` fails.
        """
        system, path = fsspec.core.url_to_fs(self.url)
        if not system.exists(path):
            return None
        with refusing_damage(f"checkpoint={self.url!r}"):
            if not system.isfile(path):  # reading a pipe or a device might never end
                raise OSError("it is no file")
            with system.open(path, "rb") as file, ZipFile(file) as archive:
                head = read_head(archive)
                if self._before is not None and head["identity"] == _as_read(self._before):
                    return None
                _check_identity(self.url, head, self._identity)
                return use(unpack(archive))

    def write(self, done: int, values: Any) -> None:
        """Write `values`; if that fails, warn once, and leave the last checkpoint as it is.

        Parameters
        ----------
        done : int
            Iterations done, for the warning.
        values : nested tuples, named tuples, lists and dicts
            What to save: ndarray, int, float, str, bool, None and NumPy's numbers.  Arrays are
            streamed: no copy of them is made.

        Raises
        ------
        TypeError
            If there is anything else in `values`.

        Warns
        -----
        CheckpointWarning
            If it could not be written, but the one before could.
        """
        self.settle()
        self._finish(done, self._replaces(values))

    def write_behind(self, done: int, values: Any) -> None:
        """Write in a thread.

        Arrays in `values` may not be changed any more.  The next call waits, and may warn.
        """
        self.settle()
        pool = ThreadPoolExecutor(1, "schmp-checkpoint")
        self._behind = done, pool.submit(self._replaces(values))
        pool.shutdown(wait=False)

    def _replaces(self, values: Any) -> Callable[[], None]:
        """Return a function that writes the file, once `values` have been looked through."""
        head = {"format": FORMAT, "version": __version__, "identity": dict(self._identity)}
        return partial(replace_file, self.url, pack(head, values))

    def settle(self) -> None:
        """Wait until the thread has written; warns as `write`."""
        if self._behind is not None:
            done, writing = self._behind
            self._behind = None
            self._finish(done, writing.result)

    def _finish(self, done: int, end: Callable[[], None]) -> None:
        try:
            end()
        except Exception as error:  # file systems of fsspec have errors of their own
            if not self._failed:
                warnings.warn(
                    f"checkpoint={self.url!r} could not be written after iteration {done} "
                    f"({type(error).__name__}: {error}); the fit goes on, and tries again after "
                    "each `checkpoint_every`. To end a fit instead: "
                    "warnings.simplefilter('error', schmp_estimators.exceptions.CheckpointWarning)",
                    CheckpointWarning,
                    stacklevel=3,
                )
            logger.info("no checkpoint after iteration %d: %r", done, error)
            self._failed = True
        else:
            self._failed = False


def identity_of(estimator: Any, data: Iterable[str], **more: Any) -> Named:
    """Return the identity of a fit: its estimator, a hash of the hashes of its data, and more."""
    digest = hashlib.sha256("".join(data).encode()).hexdigest()
    return {"estimator": type(estimator).__name__, "data": digest, **more}


def identity_of_run(name: str, parameters: Named, pieces: Sequence[Any]) -> Named:
    """Return the identity of a run, which must be equal for a checkpoint to be its own.

    Pieces that are made elsewhere are compared by the functions that make them.
    """
    return {
        "program": name,
        **{f"parameter {key}": recognised(value) for key, value in parameters.items()},
        "data": [_digest(piece) for piece in pieces],
    }


def recognised(value: Any) -> Any:
    """Return what stands for a parameter in an identity.

    That is a number or string itself, of others a hash.
    """
    return value if isinstance(value, (int, float, str, bool, type(None))) else _digest(value)


def _digest(value: Any) -> str:
    try:
        found: str = joblib.hash(_bare(value))
    except (PicklingError, TypeError) as error:
        raise TypeError(
            f"checkpoint cannot recognise {value!r} in another process ({error}); give values, "
            "functions that stand in a module, or functools.partial of these"
        ) from error
    return found


def _bare(value: Any) -> Any:
    """Return tuples and lists as plain tuples.

    Only the values matter, not where a class was defined.
    """
    return tuple(map(_bare, value)) if isinstance(value, (tuple, list)) else value


def settle(checkpoint: Checkpoint | None, error: BaseException | None) -> None:
    """Wait until a run's checkpoint is written, if it has one.

    If the run ends with an error, ignore further ones.
    """
    if checkpoint is not None:
        with suppress(Exception) if error is not None else nullcontext():
            checkpoint.settle()


def check_records(url: str, records: Sequence[Named], limit: int) -> int:
    """Return the number of iterations in an estimator's records; raises as `check_sweeps`."""
    sum(one["seconds"] for one in records)  # raises if these are no records
    check_sweeps(url, len(records), limit)
    return len(records)


def check_sweeps(url: str, done: int, limit: int, name: str = "max_iter") -> None:
    """Raise CheckpointMismatchError if a checkpoint has more iterations than allowed.

    The parameter `name` allows them.
    """
    if done > limit:
        raise CheckpointMismatchError(
            f"checkpoint={url!r} has {done} iterations behind it, and {name}={limit}; raise "
            f"{name}, {_REMEDY}"
        )


@contextmanager
def refusing_damage(name: str, what: str = "is no checkpoint, or a damaged one") -> Iterator[None]:
    """Turn any error that a damaged file causes into a CheckpointMismatchError."""
    try:
        yield
    except (CheckpointMismatchError, SchMPError, MemoryError):
        raise
    except Exception as error:  # zipfile, NumPy, json and fsspec raise many kinds of errors
        what = "cannot be read" if isinstance(error, OSError) else what
        raise CheckpointMismatchError(
            f"{shortened(name, 150)} {what} ({type(error).__name__}: "
            f"{shortened(str(error), 200)}); {_REMEDY}"
        ) from error


def _as_read(identity: Named) -> Named:
    """Return an identity as it is read from a file."""
    found: Named = json.loads(json.dumps(dict(identity)))
    return found


def _check_identity(name: str, head: Named, identity: Named) -> None:
    """Raise CheckpointMismatchError if a checkpoint belongs to another fit.

    The error says what differs.
    """
    found = {"format": head["format"], "version": head["version"], **head["identity"]}
    expected = {"format": FORMAT, "version": __version__, **_as_read(identity)}
    differing = [one for one in {**expected, **found} if expected.get(one) != found.get(one)]
    if differing:
        details = "; ".join(
            f"{shortened(one, 80)}: {shortened(repr(found.get(one)), 80)} there, "
            f"{shortened(repr(expected.get(one)), 80)} here"
            for one in differing
        )
        raise CheckpointMismatchError(
            f"checkpoint={name!r} belongs to another fit ({details}); {_REMEDY}"
        )
