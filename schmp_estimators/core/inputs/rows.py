"""The rows of an input as partitions.

They are held in this process or by workers, or made again each time they are read.

An input in memory makes one partition, or several if they are made again; on Dask every chunk of
rows makes one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from scipy import sparse

from schmp_estimators.core.inputs.files import loads_of_workers
from schmp_estimators.core.inputs.validation import (
    Chunked,
    EntryError,
    as_chunks,
    check_features,
    is_dask,
    may_miss,
    read_chunk,
    validate_in_memory,
)
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import Arguments, Function, Unary

dask: Any = Later("dask")
distributed: Any = Later("distributed")
_delayed: Any = Later("dask.delayed")
#: Entries of a sparse matrix in memory, or bytes of a dense one, that are prepared at a time if
#: rows are made again.
_ENTRIES_AT_ONCE, _BYTES_AT_ONCE = 1 << 22, 1 << 25
#: Number of partial results that one task merges.
_FAN_IN = 16


class Refused(NamedTuple):
    """What stands for a partition that is refused, and for all that should be made of it.

    A task that raised an error would leave a traceback in the log of its worker, once for each
    partition.
    """

    error: ValueError


def _prepared(prepare: Callable[..., Any], number: int, *args: Any) -> Any:
    """Return ``prepare(*args)``, the content of a partition on Dask; or if it is refused, why."""
    try:
        return prepare(*args)
    except (TypeError, ValueError) as error:
        kind = EntryError if isinstance(error, TypeError) else ValueError
        return Refused(
            kind(
                f"in partition {number} of the input (it and its rows are counted from 0): {error}"
            )
        )


def _of_accepted(function: Callable[..., Any], *args: Any) -> Any:
    return next((one for one in args if isinstance(one, Refused)), None) or function(*args)


def _of_all(merge: Callable[[list[Any]], Any], *parts: Any) -> Any:
    return merge([*parts])


def _gather(place: Place, held: Sequence[Any]) -> list[Any]:
    """Return the values of results that a place holds.

    Raise the error of the first that is refused.
    """
    found = place.gather(held)
    for one in found:
        if isinstance(one, Refused):
            raise one.error
    return found


class Rows:
    """Consecutive partitions of rows, each prepared by a function.

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

    def each(self, function: Function, name: str) -> list[Any]:
        """Return ``function(partition)`` of every partition: values, or futures of them."""
        return self.tasks(function, list(zip(self.partitions, strict=True)), name)

    def tasks(self, function: Function, arguments: list[Arguments], name: str) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`.

        These may contain partitions: values, or futures of them.
        """
        return self.place.map(partial(_of_accepted, function), arguments, name)

    def cut(self, function: Function, arguments: list[Arguments], name: str) -> list[Any]:
        """Do as `tasks` for the `arguments` of each shard, in the place where the shard will stay.

        That is where the middle one of its partitions is, unless one place would get too many
        shards.
        """
        self.place.settle([row[len(row) // 2 : len(row) // 2 + 1] for row in arguments])
        return self.place.map(function, arguments, name, by_shard=True)

    def here(self, results: list[Any]) -> list[Any]:
        """Return the values of what `each` or `tasks` returned."""
        return _gather(self.place, results)

    def reduce(self, function: Function, merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return all ``function(partition)``, merged by a tree of tasks.

        Only the result comes to this process.
        """
        return self.merged(self.each(function, name), merge, name)

    def merged(self, results: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return what `each` or `tasks` returned, merged by a tree of tasks.

        Only the result comes to this process.
        """
        return merged(*self.place.made(results, name), merge, name)

    def held(self) -> Rows:
        """Return rows that are held, from rows that are made again each time.

        The latter are released.
        """
        place, found = self.place.made(self.partitions, "read-rows")
        if place is self.place:
            rows = Rows(self.here(found))
            self.close()
            return rows
        self.partitions = []
        return Rows(found, place)

    def close(self) -> None:
        """Release the partitions and all that `tasks` has returned.  A second call does nothing."""
        self.place.let_go()
        self.partitions = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def merged(place: Place, found: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
    """Return results that a place holds, merged by a tree of tasks, sixteen by each."""
    while len(found) > 1:
        groups = [tuple(found[first : first + _FAN_IN]) for first in range(0, len(found), _FAN_IN)]
        found = place.map(partial(_of_accepted, partial(_of_all, merge)), groups, f"{name}-merge")
    return _gather(place, found)[0]


class Again:
    """A call that is made each time its result is needed, after arguments that are such calls.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Of the function: values, objects of this class, or lists of these.
    """

    def __init__(self, function: Function, arguments: Arguments) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self) -> Any:
        """Make the call, and return its result."""
        return self._function(*map(_now, self._arguments))


def _now(value: Any) -> Any:
    if isinstance(value, Again):
        return value()
    return list(map(_now, value)) if type(value) is list else value


class Rereading(Place):
    """A place that keeps nothing: its results are made again each time they are read.

    It is for rows that do not fit into memory together.  Each thread has only one partition at a
    time, the one that it has read last, because the next calls often need the same one.

    Parameters
    ----------
    cluster : Place, optional
        The place whose workers make the results; by default this process does.
    """

    def __init__(self, cluster: Place | None = None) -> None:
        super().__init__()
        self._cluster = cluster

    def partitions(self, loads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return objects that stand for partitions, given functions that make them.

        They can be sent to workers.
        """
        token = uuid4().hex
        return [Again(_load_once, ((token, number), load)) for number, load in enumerate(loads)]

    def map(
        self,
        function: Function,
        arguments: Sequence[Arguments],
        name: str,
        *,
        by_shard: bool = False,
    ) -> list[Any]:
        """Return objects that stand for the results."""
        return [Again(function, given) for given in arguments]

    def made(self, held: list[Any], name: str) -> tuple[Place, list[Any]]:
        """Let workers make the results, each in a task of its own."""
        if self._cluster is None:
            return self, held
        return self._cluster, self._cluster.map(make, [(one,) for one in held], name)

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Make the results one after the other, or let workers make them; return them."""
        if self._cluster is None:
            return list(map(_now, held))
        return self._cluster.gather(self.made(list(held), "read-again")[1])

    def let_go(self) -> None:
        """Forget the partition that was read last, and release what is on the cluster."""
        forget_last()
        if self._cluster is not None:
            self._cluster.let_go()


#: The last partition that a thread has loaded.
_last = threading.local()


def make(again: Again) -> Any:
    """Make a result in a task, and forget the partition that was read for it."""
    try:
        return again()
    finally:
        forget_last()


def _load_once(key: tuple[str, int], load: Callable[[], Any]) -> Any:
    """Return a partition.

    It is not loaded again if it is the last one that this thread has loaded.
    """
    if getattr(_last, "key", None) != key:
        forget_last()
        _last.value = load()
        _last.key = key
    return _last.value


def forget_last() -> None:
    """Forget the last partition that this thread has loaded."""
    _last.key = _last.value = None


def open_rows(
    prepare: Unary,
    X: Any,
    estimator: Any,
    *,
    place: Place | None = None,
    reset: bool = True,
    again: bool = False,
    **check: Any,
) -> Rows:
    """Read an input of any kind, and hold its rows, or make them again each time they are read.

    If they are made again, some rows of an input in memory, or in memory-mapped files, are prepared
    at a time in this process; see `RowsAgain.elsewhere`.  Of an input on Dask a chunk is computed
    each time, in a task of a worker or in this process.

    Parameters
    ----------
    prepare : callable
        ``prepare(rows)`` gets a CSR array or matrix or an ndarray, and returns the content of a
        partition.  On Dask it runs in the task that makes the chunk, so that each thread holds at
        most one chunk before it is prepared.
    X : input of any kind
        In memory it makes one partition; on Dask every chunk of rows makes one.
    estimator : estimator
        Its number and names of features are set by a fit, and else compared with those of X.
    place : Place, optional
        Where to hold a Dask input; by default in this process.
    reset : bool, default=True
        Whether this is a fit.
    again : bool, default=False
        Whether partitions are made again each time they are read, and not held.
    **check
        Further arguments of `sklearn.utils.validation.validate_data`, for input in memory.
    """
    if not is_dask(X):
        matrix = validate_in_memory(X, estimator, reset=reset, **check)
        return RowsAgain(prepare, matrix, _bounds(matrix)) if again else Rows([prepare(matrix)])
    check_features(X, estimator, reset=reset)
    lazy = _lazily(as_chunks(X), prepare, estimator)
    if again:
        return _made_again(lazy, place)
    place = place or Place()
    return Rows(place.hold(lazy), place)


def _made_again(lazy: Any, place: Place | None) -> Rows:
    """Return rows whose chunks are computed each time they are read."""
    n_chunks = len(lazy) if isinstance(lazy, list) else lazy.numblocks[0]
    if place is None or place.is_local:
        here = Rereading()
        holder = Place()
        return Rows(
            here.partitions([partial(_compute, holder, lazy, n) for n in range(n_chunks)]), here
        )
    there = Rereading(place)
    blocks = [lazy[n] if isinstance(lazy, list) else lazy.blocks[n] for n in range(n_chunks)]
    if not distributed.futures_of(lazy):  # optimised blocks would lose these
        blocks = [dask.optimize(block)[0] for block in blocks]
    return Rows(there.partitions([partial(_compute_there, block) for block in blocks]), there)


class RowsAgain(Rows):
    """Rows of a matrix, in memory or in mapped files, that are prepared each time they are read.

    Parameters
    ----------
    prepare : callable
        As in `open_rows`.
    matrix : CSR array or matrix, or ndarray
        Validated.
    bounds : list of int
        Where each partition begins, and where the last one ends.
    """

    def __init__(self, prepare: Unary, matrix: Any, bounds: list[int]) -> None:
        place = Rereading()
        loads = [partial(_prepare_some, prepare, matrix, *pair) for pair in pairwise(bounds)]
        super().__init__(place.partitions(loads), place)
        self._prepare = prepare
        self._matrix = matrix
        self._bounds = bounds

    @contextmanager
    def elsewhere(self, place: Place, folder: str | None) -> Iterator[Rows]:
        """Give the same rows, prepared by workers; parameters as in `loads_of_workers`."""
        there = Rereading(place)
        with loads_of_workers(self._prepare, self._matrix, self._bounds, place, folder) as loads:
            yield Rows(there.partitions(loads), there)


def _compute(place: Place, lazy: Any, number: int) -> Any:
    return place.hold(lazy[number : number + 1])[0]


def _compute_there(block: Any) -> Any:
    """Compute a chunk in this task.

    If it needs futures of the cluster, compute it with the cluster.
    """
    lazy = [block] if isinstance(block, _delayed.Delayed) else block
    if not distributed.futures_of(block):
        return Place().hold(lazy)[0]
    with distributed.worker_client() as client:
        return distributed.futures_of(client.persist(block))[0].result()


def _bounds(matrix: Any) -> list[int]:
    """Return bounds of partitions of a matrix that are small enough to be prepared at a time."""
    n_rows, n_columns = matrix.shape
    if sparse.issparse(matrix):
        goals = np.arange(_ENTRIES_AT_ONCE, matrix.indptr[-1], _ENTRIES_AT_ONCE)
        inner = np.unique(np.searchsorted(matrix.indptr, goals)).tolist()
    else:
        inner = list(
            range(0, n_rows, max(1, _BYTES_AT_ONCE // max(1, n_columns * matrix.itemsize)))
        )
    return [0, *(at for at in inner if 0 < at < n_rows), n_rows]


def _prepare_some(prepare: Unary, matrix: Any, first: int, last: int) -> Any:
    if not sparse.issparse(matrix):
        return prepare(matrix[first:last])
    ptr = matrix.indptr[first : last + 1]
    entries = slice(
        int(ptr[0]), int(ptr[-1])
    )  # the parts are views: slicing a sparse matrix copies
    parts = matrix.data[entries], matrix.indices[entries], ptr - ptr[0]
    return prepare(type(matrix)(parts, shape=(last - first, matrix.shape[1]), copy=False))


def open_tasks(
    prepare: Function, arguments: list[Arguments], *, place: Place | None = None
) -> Rows:
    """Return rows whose partitions are ``prepare(*a)`` for all `arguments`.

    These may contain Delayed objects.
    """
    task = dask.delayed(_prepared, pure=False)
    name = f"read-rows-{uuid4().hex}"
    lazy = [task(prepare, i, *given, dask_key_name=(name, i)) for i, given in enumerate(arguments)]
    place = place or Place()
    return Rows(place.hold(lazy), place)


def _prepare_chunk(chunk: Any, *, prepare: Unary, missing: bool, block_id: tuple[int, ...]) -> Any:
    return _prepared(lambda: prepare(read_chunk(chunk, missing=missing)), block_id[0])


def _lazily(chunks: Chunked, prepare: Unary, estimator: Any) -> Any:
    name = f"read-rows-{uuid4().hex}"
    options = {"prepare": prepare, "missing": may_miss(estimator)}
    if isinstance(chunks, list):
        task: Any = dask.delayed(_prepare_chunk, pure=False)
        return [
            task(chunk, **options, block_id=(i,), dask_key_name=(name, i))
            for i, chunk in enumerate(chunks)
        ]
    shape = ((1,) * chunks.numblocks[0], (1,))
    meta = np.empty((0, 0), object)
    lazy: Any = chunks
    return lazy.map_blocks(
        _prepare_chunk, dtype=object, chunks=shape, meta=meta, name=name, **options
    )
