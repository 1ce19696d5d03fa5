"""Letting the rows of an input in: what is in memory makes one partition, on Dask every chunk of rows makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from scipy import sparse

from schmp_estimators.core.door.files import loads_of_workers
from schmp_estimators.core.door.inputs import (
    Chunked,
    as_chunks,
    check_features,
    is_dask,
    may_miss,
    read_chunk,
    validate_in_memory,
)
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.held import Rereading, Rows
from schmp_estimators.core.places.place import Place

dask: Any = Later("dask")
distributed: Any = Later("distributed")
_delayed: Any = Later("dask.delayed")
#: Entries of a sparse matrix in memory, or bytes of a dense one, that are prepared at a time where rows are read again
#: and again.
_ENTRIES_AT_ONCE, _BYTES_AT_ONCE = 1 << 22, 1 << 25


def open_rows(
    prepare: Callable[[Any], Any],
    X: Any,
    estimator: Any,
    *,
    place: Place | None = None,
    reset: bool = True,
    **check: Any,
) -> Rows:
    """Let an input of any kind in.

    Parameters
    ----------
    prepare : callable
        ``prepare(rows)`` gets a CSR array or matrix or an ndarray, and returns what a partition shall hold.  On Dask it
        runs in the task that makes the chunk, so that no more than one chunk a thread is held as it was.
    X : input of any kind
        In memory it makes one partition; on Dask every chunk of rows makes one.
    estimator : estimator
        Gets the number and names of the features, or is asked for them.
    place : Place, optional
        Where a Dask input shall be held; by default in this process.
    reset : bool, default=True
        Whether this is a fit.
    **check
        Further arguments of `sklearn.utils.validation.validate_data`, for input in memory.
    """
    if not is_dask(X):
        return Rows([prepare(validate_in_memory(X, estimator, reset=reset, **check))])
    check_features(X, estimator, reset=reset)
    chunks = as_chunks(X)
    place = place or Place()
    return Rows(place.hold(_lazily(chunks, prepare, estimator)), place)


def open_again(
    prepare: Callable[[Any], Any],
    X: Any,
    estimator: Any,
    *,
    place: Place | None = None,
    reset: bool = True,
    **check: Any,
) -> Rows:
    """Let an input of any kind in without keeping it: its partitions are made again each time that they are read.

    What is in memory, or in memory-mapped files, is prepared some rows at a time in this process; see `elsewhere`.  On
    Dask a chunk is computed each time, in a task of a worker, or in this process.

    Parameters
    ----------
    prepare, X, estimator, place, reset, **check
        As in `open_rows`.
    """
    if not is_dask(X):
        matrix = validate_in_memory(X, estimator, reset=reset, **check)
        return RowsAgain(prepare, matrix, _bounds(matrix))
    check_features(X, estimator, reset=reset)
    lazy = _lazily(as_chunks(X), prepare, estimator)
    n_chunks = len(lazy) if isinstance(lazy, list) else lazy.numblocks[0]
    if place is None or place.is_local:
        here, holder = Rereading(), Place()
        return Rows(here.partitions([partial(_compute, holder, lazy, n) for n in range(n_chunks)]), here)
    there = Rereading(place)
    blocks = [lazy[n] if isinstance(lazy, list) else lazy.blocks[n] for n in range(n_chunks)]
    if not distributed.futures_of(lazy):  # else each would lose them
        blocks = [dask.optimize(block)[0] for block in blocks]
    return Rows(there.partitions([partial(_compute_there, block) for block in blocks]), there)


class RowsAgain(Rows):
    """Rows of a matrix in this process, or in its files, that are prepared again each time.

    Parameters
    ----------
    prepare : callable
        As in `open_rows`.
    matrix : CSR array or matrix, or ndarray
        Validated.
    bounds : list of int
        Where to cut it.
    """

    def __init__(self, prepare: Callable[[Any], Any], matrix: Any, bounds: list[int]) -> None:
        place = Rereading()
        loads = [partial(_prepare_some, prepare, matrix, *pair) for pair in pairwise(bounds)]
        super().__init__(place.partitions(loads), place)
        self._prepare, self._matrix, self._bounds = prepare, matrix, bounds

    @contextmanager
    def elsewhere(self, place: Place, folder: str | None) -> Iterator[Rows]:
        """Give the same rows, prepared by workers; the parameters are those of `loads_of_workers`."""
        there = Rereading(place)
        with loads_of_workers(self._prepare, self._matrix, self._bounds, place, folder) as loads:
            yield Rows(there.partitions(loads), there)


def _compute(place: Place, lazy: Any, number: int) -> Any:
    return place.hold(lazy[number : number + 1])[0]


def _compute_there(block: Any) -> Any:
    """Compute a chunk in this task; if the cluster holds some of what it is made of, with the cluster."""
    lazy = [block] if isinstance(block, _delayed.Delayed) else block
    if not distributed.futures_of(block):
        return Place().hold(lazy)[0]
    with distributed.worker_client() as client:
        return distributed.futures_of(client.persist(block))[0].result()


def _bounds(matrix: Any) -> list[int]:
    """Return where to cut the rows of a matrix, so that each piece can be prepared at a time."""
    n_rows, n_columns = matrix.shape
    if sparse.issparse(matrix):
        goals = np.arange(_ENTRIES_AT_ONCE, matrix.indptr[-1], _ENTRIES_AT_ONCE)
        inner = np.unique(np.searchsorted(matrix.indptr, goals)).tolist()
    else:
        inner = list(range(0, n_rows, max(1, _BYTES_AT_ONCE // max(1, n_columns * matrix.itemsize))))
    return [0, *(at for at in inner if 0 < at < n_rows), n_rows]


def _prepare_some(prepare: Callable[[Any], Any], matrix: Any, first: int, last: int) -> Any:
    if not sparse.issparse(matrix):
        return prepare(matrix[first:last])
    ptr = matrix.indptr[first : last + 1]
    entries = slice(int(ptr[0]), int(ptr[-1]))  # views: slicing a sparse matrix copies
    parts = matrix.data[entries], matrix.indices[entries], ptr - ptr[0]
    return prepare(type(matrix)(parts, shape=(last - first, matrix.shape[1]), copy=False))


def open_tasks(prepare: Callable[..., Any], arguments: list[tuple[Any, ...]], *, place: Place | None = None) -> Rows:
    """Return the rows whose partitions are ``prepare(*a)`` for all `arguments`, which may be Delayed objects."""
    task, name = dask.delayed(prepare, pure=False), f"read-rows-{uuid4().hex}"
    lazy = [task(*given, dask_key_name=(name, i)) for i, given in enumerate(arguments)]
    place = place or Place()
    return Rows(place.hold(lazy), place)


def _prepare_chunk(chunk: Any, *, prepare: Callable[[Any], Any], missing: bool) -> Any:
    return prepare(read_chunk(chunk, missing=missing))


def _lazily(chunks: Chunked, prepare: Callable[[Any], Any], estimator: Any) -> Any:
    name, options = f"read-rows-{uuid4().hex}", {"prepare": prepare, "missing": may_miss(estimator)}
    if isinstance(chunks, list):
        task: Any = dask.delayed(_prepare_chunk, pure=False)
        return [task(chunk, **options, dask_key_name=(name, i)) for i, chunk in enumerate(chunks)]
    shape, meta = ((1,) * chunks.numblocks[0], (1,)), np.empty((0, 0), object)
    lazy: Any = chunks
    return lazy.map_blocks(_prepare_chunk, dtype=object, chunks=shape, meta=meta, name=name, **options)
