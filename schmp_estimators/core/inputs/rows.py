"""The rows of an input where they are worked upon: held here, or by workers, or made again each time they are read.

What is in memory makes one partition, on Dask every chunk of rows makes one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from scipy import sparse

from schmp_estimators.core.inputs.files import loads_of_workers
from schmp_estimators.core.inputs.validation import (
    Chunked,
    as_chunks,
    check_features,
    is_dask,
    may_miss,
    read_chunk,
    validate_in_memory,
)
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place

dask: Any = Later("dask")
distributed: Any = Later("distributed")
_delayed: Any = Later("dask.delayed")
#: Entries of a sparse matrix in memory, or bytes of a dense one, that are prepared at a time where rows are read again
#: and again.
_ENTRIES_AT_ONCE, _BYTES_AT_ONCE = 1 << 22, 1 << 25
#: How many partial results one task merges.
_FAN_IN = 16


class Rows:
    """Consecutive partitions of rows, each as some function has prepared it.

    Use it as a context manager: on a cluster the partitions are futures.

    Parameters
    ----------
    partitions : list
        Values, or what stands for them in their place.
    place : Place, optional
        Where the partitions are held; by default in this process.
    """

    def __init__(self, partitions: list[Any], place: Place | None = None) -> None:
        self.partitions = partitions
        self.place = place or Place()

    def each(self, function: Callable[..., Any], name: str) -> list[Any]:
        """Return ``function(partition)`` of every partition: values, or futures of them."""
        return self.place.map(function, list(zip(self.partitions, strict=True)), name)

    def tasks(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may hold partitions: values, or what stands for them."""
        return self.place.map(function, arguments, name)

    def cut(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return the same of `arguments` for each shard, made where it will be worked upon.

        That is where the partition is which is in the middle of them, unless one place would get too many shards.
        """
        self.place.settle([row[len(row) // 2 : len(row) // 2 + 1] for row in arguments])
        return self.place.map(function, arguments, name, by_shard=True)

    def here(self, results: list[Any]) -> list[Any]:
        """Return the values of what `each` or `tasks` returned."""
        return self.place.gather(results)

    def reduce(self, function: Callable[..., Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return all ``function(partition)`` merged into one, by a tree of tasks: only the result comes here."""
        return self.merged(self.each(function, name), merge, name)

    def merged(self, results: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return what `each` or `tasks` returned, merged into one by a tree of tasks: only the result comes here."""
        return merged(*self.place.made(results, name), merge, name)

    def held(self) -> Rows:
        """Return rows that are held, where these are made again each time, and now are let go of."""
        place, found = self.place.made(self.partitions, "read-rows")
        if place is self.place:
            rows = Rows(self.here(found))
            self.close()
            return rows
        self.partitions = []
        return Rows(found, place)

    def close(self) -> None:
        """Let go of the partitions and of all that `tasks` has returned.  Closing twice does no harm."""
        self.place.let_go()
        self.partitions = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def merged(place: Place, found: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
    """Return what a tree of tasks makes of results that a place holds."""
    while len(found) > 1:
        groups = [(found[first : first + _FAN_IN],) for first in range(0, len(found), _FAN_IN)]
        found = place.map(merge, groups, f"{name}-merge")
    return place.gather(found)[0]


class Again:
    """A call that is made whenever its result is asked for; arguments that are such calls are made first.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Of the function: values, calls of this kind, or lists of these.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self) -> Any:
        """Make the call."""
        return self._function(*map(_now, self._arguments))


def _now(value: Any) -> Any:
    if isinstance(value, Again):
        return value()
    return list(map(_now, value)) if type(value) is list else value


class Rereading(Place):
    """A place that keeps nothing: what it holds is made again each time somebody reads it.

    It is for rows that do not fit into memory together.  Only one partition is there at a time for each thread, and the
    one read last is kept, since neighbours in turn ask for the same.

    Parameters
    ----------
    cluster : Place, optional
        Whose workers make what is asked for; by default this process does.
    """

    def __init__(self, cluster: Place | None = None) -> None:
        super().__init__()
        self._cluster = cluster

    def partitions(self, loads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what stands for partitions, given what makes each; it goes to workers with what it stands for."""
        token = uuid4().hex
        return [Again(_load_once, ((token, number), load)) for number, load in enumerate(loads)]

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Return what stands for the results."""
        return [Again(function, given) for given in arguments]

    def made(self, held: list[Any], name: str) -> tuple[Place, list[Any]]:
        """Let workers make the results, each in a task of its own."""
        if self._cluster is None:
            return self, held
        return self._cluster, self._cluster.map(make, [(one,) for one in held], name)

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Make the results, one after the other, or let workers make them, and bring them here."""
        if self._cluster is None:
            return list(map(_now, held))
        return self._cluster.gather(self.made(list(held), "read-again")[1])

    def let_go(self) -> None:
        """Forget the partition that was read last, and let go of what is on the cluster."""
        forget_last()
        if self._cluster is not None:
            self._cluster.let_go()


#: The partition that a thread has loaded last.
_last = threading.local()


def make(again: Again) -> Any:
    """Make something again in a task; what it was made of is let go of."""
    try:
        return again()
    finally:
        forget_last()


def _load_once(key: tuple[str, int], load: Callable[[], Any]) -> Any:
    """Return a partition, which is still there if this thread has just loaded it."""
    if getattr(_last, "key", None) != key:
        forget_last()
        _last.value = load()
        _last.key = key
    return _last.value


def forget_last() -> None:
    """Let go of the partition that this thread has loaded last."""
    _last.key = _last.value = None


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
