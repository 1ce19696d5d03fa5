"""Rows in files that workers can read: memory-mapped arrays where they are, and copies of all others."""

from __future__ import annotations

import math
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.io.folders import temporary_folder
from schmp_estimators.core.io.slices import telling
from schmp_estimators.core.places.errors import NotSharedError
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.shared import Piece, checksum_of, who_is_denied, who_misses

#: How many elements every worker compares before a fit, at how many places of each file: all of a small one.
_ELEMENTS, _PLACES = 1 << 13, 64


def origin_of(array: Any) -> tuple[str, int] | None:
    """Return the file of a memory-mapped array, and the bytes before its first element there.

    It is None for all other arrays, and if the elements do not lie one after the other.
    """
    root: Any = array
    while isinstance(root, np.ndarray) and not (isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c" or not array.flags.c_contiguous:
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
    indptr: NDArray[Any]
    n_columns: int

    def read(self) -> Any:
        """Return the rows; raises as `Piece.read`."""
        parts = self.data.read(), self.indices.read(), self.indptr - self.indptr[0]
        return self.kind(parts, shape=(len(self.indptr) - 1, self.n_columns), copy=False)


@contextmanager
def loads_of_workers(
    prepare: Callable[[Any], Any], matrix: Any, bounds: list[int], place: Place, folder: str | None
) -> Iterator[list[Callable[[], Any]]]:
    """Give functions that make the partitions of a matrix, between bounds, on workers, who read its files.

    If an array is in memory, or in a file that a worker does not reach, copies are in a folder until this ends.

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
        For copies, made if it is not there; by default a temporary one.

    Raises
    ------
    NotSharedError
        If workers do not reach that, or find other bytes in the files of the matrix.  The functions raise it, too.
    """
    is_sparse = sparse.issparse(matrix)
    arrays = [matrix.data, matrix.indices] if is_sparse else [matrix]
    cuts = matrix.indptr[bounds].tolist() if is_sparse else bounds
    origins = [origin for origin in map(origin_of, arrays) if origin]
    with ExitStack() as stack:
        if len(origins) < len(arrays) or who_misses(place, list(chain(*map(_samples, arrays, origins)))):
            origins = [(path, 0) for path in stack.enter_context(_copies(arrays, place, folder))]
        found = [_pieces(array, origin, pairwise(cuts)) for array, origin in zip(arrays, origins, strict=True)]
        rows: list[Any] = found[0]
        if is_sparse:
            ptrs = [matrix.indptr[first : last + 1] for first, last in pairwise(bounds)]
            parts = zip(found[0], found[1], ptrs, strict=True)
            rows = [SparsePieces(type(matrix), *one, matrix.shape[1]) for one in parts]
        yield [partial(_load, prepare, one) for one in rows]


def _pieces(array: NDArray[Any], origin: tuple[str, int], bounds: Iterable[tuple[int, int]]) -> list[Piece]:
    """Return pieces of an array, each between two of its elements, or rows, in the file that has it."""
    (path, offset), of_row = origin, math.prod(array.shape[1:]) * array.itemsize
    found = [(first, array[first:last]) for first, last in bounds]
    return [Piece(path, offset + first * of_row, one.dtype.str, one.shape, checksum_of(one)) for first, one in found]


def _samples(array: NDArray[Any], origin: tuple[str, int]) -> list[Piece]:
    """Return what every worker compares before a fit, spread over the file from the first to the last element."""
    firsts = np.linspace(0, max(0, array.size - _ELEMENTS), _PLACES).astype(np.int64).tolist()
    return _pieces(array.reshape(-1), origin, [(first, first + _ELEMENTS) for first in sorted(set(firsts))])


@contextmanager
def _copies(arrays: list[Any], place: Place, folder: str | None) -> Iterator[list[str]]:
    """Give the paths of copies of arrays, which are in a folder until this ends."""
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(temporary_folder())
        else:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            os.makedirs(folder, exist_ok=True)
        if missing := who_is_denied(place, folder, os.R_OK):
            raise NotSharedError(
                f"X is in the memory of this process, or in files that not all workers reach, and {missing[0]} "
                f"does not reach {folder!r}, where it would read a copy. Give memory-mapped files where all "
                "workers reach them, a Dask collection whose chunks workers load, or, as spill, a folder that all reach"
            )
        paths = [os.path.join(folder, f"input-{number}") for number in range(len(arrays))]
        with telling(folder):
            for path, array in zip(paths, arrays, strict=True):
                np.ascontiguousarray(array).tofile(path)
        yield paths


def _load(prepare: Callable[[Any], Any], rows: Piece | SparsePieces) -> Any:
    return prepare(rows.read())
