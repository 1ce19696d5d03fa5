"""Rows in files that workers can read: memory-mapped arrays where they are, and copies of all others."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.places.disks import who_misses
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.store import open_store


class InFile(NamedTuple):
    """An array in a file, element after element."""

    path: str
    dtype: str
    #: Bytes before its first element.
    offset: int
    shape: tuple[int, ...]

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Return elements, or rows, from `first` up to `last`; no page of the file stays mapped."""
        of_row = int(np.prod(self.shape[1:], dtype=np.int64))
        count, dtype = (last - first) * of_row, np.dtype(self.dtype)
        found = np.fromfile(self.path, dtype, count, offset=self.offset + first * of_row * dtype.itemsize)
        return found.reshape(last - first, *self.shape[1:])


def in_file(array: Any) -> InFile | None:
    """Return where a memory-mapped array is, None if it is none, or its elements do not lie one after the other."""
    root: Any = array
    while isinstance(root, np.ndarray) and not (isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c" or not array.flags.c_contiguous:
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if not 0 <= start <= root.nbytes - array.nbytes:
        return None
    return InFile(str(Path(root.filename).resolve()), array.dtype.str, root.offset + start, array.shape)


class SparseInFiles(NamedTuple):
    """A sparse matrix whose entries are in files."""

    kind: type
    data: InFile
    indices: InFile
    indptr: NDArray[Any]
    n_columns: int

    def read(self, first: int, last: int) -> Any:
        """Return some rows."""
        ptr = self.indptr[first : last + 1]
        entries = int(ptr[0]), int(ptr[-1])
        parts = self.data.read(*entries), self.indices.read(*entries), ptr - ptr[0]
        return self.kind(parts, shape=(last - first, self.n_columns), copy=False)


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
    ValueError
        If workers do not reach that.
    """
    arrays = [matrix.data, matrix.indices] if sparse.issparse(matrix) else [matrix]
    found = [in_file(array) for array in arrays]
    there = [one.path for one in found if one]
    has_all = None not in found and not who_misses(place, there)
    with ExitStack() as stack:
        store = None
        if not has_all:
            if folder is not None:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            store = stack.enter_context(open_store(folder))
        if store is not None:
            found = []
            for number, array in enumerate(arrays):
                name = f"input-{number}"
                store.write(name, array)
                found.append(InFile(store.path(name), array.dtype.str, 0, array.shape))
            if missing := who_misses(place, [one.path for one in found if one]):
                raise ValueError(
                    f"X is in the memory of this process, and worker {missing[0]} does not reach {store.folder!r}, "
                    "where it would read it. Give memory-mapped files where all workers reach them, a Dask collection "
                    "whose chunks workers load, or, as spill, a folder that all reach"
                )
        pieces = [one for one in found if one is not None]
        yield [_load_of(prepare, matrix, pieces, *pair) for pair in pairwise(bounds)]


def _load_of(
    prepare: Callable[[Any], Any], matrix: Any, pieces: list[InFile], first: int, last: int
) -> Callable[[], Any]:
    if not sparse.issparse(matrix):
        return partial(_load, prepare, pieces[0], first, last)
    data, indices = pieces
    rows = SparseInFiles(type(matrix), data, indices, matrix.indptr[first : last + 1], matrix.shape[1])
    return partial(_load, prepare, rows, 0, last - first)


def _load(prepare: Callable[[Any], Any], rows: InFile | SparseInFiles, first: int, last: int) -> Any:
    return prepare(rows.read(first, last))
