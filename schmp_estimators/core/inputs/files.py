"""Rows in files that workers can read: mapped arrays where they are, and copies of all others.

A path alone is not enough: another host may have another file or folder there.  So whoever reads a
piece of a file compares its checksum with that of the client's data.  A folder is the client's if
it contains a file whose name the client has just invented.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import os
import shutil
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
from scipy import sparse

from schmp_estimators.core.errors import NotSharedError
from schmp_estimators.core.io.files import MARK, temporary_folder
from schmp_estimators.core.io.slices import explained_errors, memory_left_of_worker
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import Arguments, Array, Function, IntPair, Named, Unary

if TYPE_CHECKING:
    from schmp_estimators.core.places.dask import DaskPlace
#: Number of hosts that an error names; it counts the others.
_NAMED = 5
_REMEDY = (
    "Put the same files there on all hosts (after X.flush(), if X was written to), map X from a "
    "path that all hosts share, or pass X in memory: then workers read a copy that the fit makes"
)
_OTHER_FOLDER = (
    "give one that this process and all workers reach, or 'auto', so that each uses its own disk"
)


class Piece(NamedTuple):
    """A contiguous array in a file, as the client has it."""

    path: str
    #: Bytes before its first element.
    offset: int
    dtype: str
    shape: tuple[int, ...]
    #: CRC-32 of its bytes.
    checksum: int

    def read(self) -> Array:
        """Return the array; no page of the file stays mapped.  Raises as `mapped`."""
        return self._checked(lambda: np.fromfile(*self._place, offset=self.offset))

    def mapped(self) -> Array:
        """Return the array as a mapping of the file.

        Raises
        ------
        NotSharedError
            If the file has other bytes, or cannot be read; in the latter case the error has a
            cause.
        """
        path, dtype, count = self._place
        return self._checked(lambda: np.memmap(path, dtype, "r", self.offset, count))

    @property
    def _place(self) -> tuple[str, str, int]:
        return self.path, self.dtype, math.prod(self.shape)

    def _checked(self, read: Callable[[], Array]) -> Array:
        try:
            found = read()
        except (OSError, ValueError) as error:  # NumPy does not map a file that is too short
            raise NotSharedError(
                f"host {socket.gethostname()} cannot read {self.path!r}, which X is in ({error}). "
                f"{_REMEDY}"
            ) from error
        if checksum_of(found) != self.checksum:
            raise NotSharedError(
                f"host {socket.gethostname()} does not find in {self.path!r} what X had there "
                f"when the fit began: it is another file, or has changed. {_REMEDY}"
            )
        return found.reshape(self.shape)


def checksum_of(array: Array) -> int:
    """Return the CRC-32 of the bytes of an array."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def who_is_denied(place: Place, path: str, mode: int) -> list[str]:
    """Return the hosts whose workers may not use a file or folder in a mode of `os.access`."""
    return list(_ask(place, _is_denied, path, mode))


@contextmanager
def marked(place: Place, folder: str) -> Iterator[None]:
    """Put a file into a folder, by which workers recognise it as the client's.

    It is removed in the end.

    Raises
    ------
    NotSharedError
        If workers do not see the file, or may not write into the folder.
    """
    mark = Path(folder, f"{MARK}{uuid4().hex}")
    try:
        mark.touch()
        if denied := who_is_denied(place, str(mark), os.R_OK):
            raise NotSharedError(
                f"spill={folder!r} is another folder, or none, on {listed(denied)}; {_OTHER_FOLDER}"
            )
        if denied := who_is_denied(place, folder, os.W_OK):
            raise NotSharedError(
                f"{listed(denied)} may not write into spill={folder!r}; {_OTHER_FOLDER}"
            )
        yield
    finally:
        mark.unlink(missing_ok=True)


def listed(found: Sequence[str]) -> str:
    """Return a list of hosts for an error."""
    n_more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {n_more} more" if n_more > 0 else "")


def _ask(place: Place, question: Function, *args: Any) -> Named:
    """Call a function on all workers; return its results that are not empty.

    There is one for each host, named by it.
    """
    found = cast("DaskPlace", place).ask(_answer, question, args)
    by_host = {
        host: (address, answer)
        for address, (host, answer) in sorted(found.items(), reverse=True)
        if answer
    }
    return {
        f"host {host} (worker {address})": answer
        for host, (address, answer) in sorted(by_host.items())
    }


async def _answer(question: Function, args: Arguments) -> tuple[str, Any]:
    return socket.gethostname(), await asyncio.to_thread(
        question, *args
    )  # meanwhile the worker answers others


def _is_denied(path: str, mode: int) -> bool:
    return not os.access(path, mode)


def memory_of_workers(place: Place) -> list[int]:
    """Return the bytes that each worker may still use.

    Workers on one machine share what is left there.
    """
    found = cast("DaskPlace", place).ask(memory_left_of_worker)
    neighbours = Counter(address.rsplit(":", 1)[0] for address in found)
    return [
        min(own, here // neighbours[address.rsplit(":", 1)[0]])
        for address, (own, here) in found.items()
    ]


def origin_of(array: Any) -> tuple[str, int] | None:
    """Return the file of a memory-mapped array, and the bytes before its first element in the file.

    For other arrays, and for those that are not contiguous, it returns None.
    """
    root: Any = array
    while isinstance(root, np.ndarray) and not (
        isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)
    ):
        root = root.base
    if (
        not isinstance(root, np.memmap)
        or root.filename is None
        or root.mode == "c"
        or not array.flags.c_contiguous
    ):
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if not 0 <= start <= root.nbytes - array.nbytes:
        return None
    return os.path.abspath(root.filename), root.offset + start


class SparsePieces(NamedTuple):
    """Some rows of a sparse matrix whose entries are in files."""

    kind: type
    data: Piece
    indices: Piece
    indptr: Array
    n_columns: int

    def read(self) -> Any:
        """Return the rows; raises as `Piece.read`."""
        parts = self.data.read(), self.indices.read(), self.indptr - self.indptr[0]
        return self.kind(parts, shape=(len(self.indptr) - 1, self.n_columns), copy=False)


@contextmanager
def loads_of_workers(
    prepare: Unary, matrix: Any, bounds: list[int], place: Place, folder: str | None
) -> Iterator[list[Callable[[], Any]]]:
    """Give functions that make the partitions of a matrix on workers, which read its files.

    If an array is in memory, or in a file that a worker cannot read, a copy is kept in a folder
    until the end.

    Parameters
    ----------
    prepare : callable
        As in `open_rows`.
    matrix : CSR array or matrix, or ndarray
        Validated.
    bounds : list of int
        Partition p has the rows from ``bounds[p]`` up to ``bounds[p + 1]``.
    place : Place
        The cluster.
    folder : str, optional
        Folder of the copies, made if it does not exist; by default a temporary one.

    Raises
    ------
    NotSharedError
        If workers cannot read the folder.  The functions raise it if a file has other bytes than
        the client's data.
    """
    is_sparse = sparse.issparse(matrix)
    arrays = [matrix.data, matrix.indices] if is_sparse else [matrix]
    cuts = matrix.indptr[bounds].tolist() if is_sparse else bounds
    origins = [origin for origin in map(origin_of, arrays) if origin]
    with ExitStack() as stack:
        if len(origins) < len(arrays) or any(
            who_is_denied(place, path, os.R_OK) for path, _ in origins
        ):
            origins = [(path, 0) for path in stack.enter_context(_copies(arrays, place, folder))]
        found = [
            _pieces(array, origin, pairwise(cuts))
            for array, origin in zip(arrays, origins, strict=True)
        ]
        rows: list[Any] = found[0]
        if is_sparse:
            ptrs = [matrix.indptr[first : last + 1] for first, last in pairwise(bounds)]
            parts = zip(found[0], found[1], ptrs, strict=True)
            rows = [SparsePieces(type(matrix), *one, matrix.shape[1]) for one in parts]
        yield [partial(_load, prepare, one) for one in rows]


def _pieces(array: Array, origin: tuple[str, int], bounds: Iterable[IntPair]) -> list[Piece]:
    """Return pieces of an array in its file, each between two of its elements or rows."""
    path, offset = origin
    of_row = math.prod(array.shape[1:]) * array.itemsize
    found = [(first, array[first:last]) for first, last in bounds]
    return [
        Piece(path, offset + first * of_row, one.dtype.str, one.shape, checksum_of(one))
        for first, one in found
    ]


@contextmanager
def _copies(arrays: list[Any], place: Place, folder: str | None) -> Iterator[list[str]]:
    """Give the paths of copies of arrays, which stay in a folder until the end."""
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(temporary_folder())
        else:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            os.makedirs(folder, exist_ok=True)
        if missing := who_is_denied(place, folder, os.R_OK):
            raise NotSharedError(
                "X is in the memory of this process, or in files that not all workers reach, and "
                f"{missing[0]} does not reach {folder!r}, where it would read a copy. Give "
                "memory-mapped files where all workers reach them, a Dask collection whose chunks "
                "workers load, or, as spill, a folder that all reach"
            )
        paths = [os.path.join(folder, f"input-{number}") for number in range(len(arrays))]
        with explained_errors(folder):
            for path, array in zip(paths, arrays, strict=True):
                Path(path).write_bytes(
                    np.ascontiguousarray(array).data
                )  # unlike tofile it says why it fails
        yield paths


def _load(prepare: Unary, rows: Piece | SparsePieces) -> Any:
    return prepare(rows.read())
