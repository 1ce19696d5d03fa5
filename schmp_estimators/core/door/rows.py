"""The rows of an input where they are worked upon: here, or in the memory of the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import dask
import numpy as np

from schmp_estimators.core.door.inputs import (
    Chunked,
    as_chunks,
    box,
    check_features,
    is_dask,
    read_chunk,
    validate_in_memory,
)

#: How many partial results one task merges.
_FAN_IN = 16


class Rows:
    """Consecutive partitions of rows, each as some function has prepared it.

    Use it as a context manager: on a cluster the partitions are futures.

    Parameters
    ----------
    partitions : list
        Values, or futures of them.
    client : distributed.Client, default=None
        The cluster that holds the partitions; None if they are here.
    """

    def __init__(self, partitions: list[Any], client: Any = None) -> None:
        self.partitions = partitions
        self.client = client
        self._futures: WeakSet[Any] = WeakSet(partitions if client is not None else ())

    def each(self, function: Callable[..., Any], name: str) -> list[Any]:
        """Return ``function(partition)`` of every partition: values, or futures of them."""
        return self.tasks(function, [(partition,) for partition in self.partitions], name)

    def tasks(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may hold partitions: values, or futures of them."""
        if self.client is None:
            return [function(*row) for row in arguments]
        run = f"{name}-{uuid4().hex}"
        with _reaching(self.client):
            futures = [self.client.submit(function, *row, key=(run, i), pure=False) for i, row in enumerate(arguments)]
        self._futures.update(futures)
        return futures

    def here(self, results: list[Any]) -> list[Any]:
        """Return the values of what `each` or `tasks` returned."""
        return results if self.client is None else gathered(self.client, results)

    def reduce(self, function: Callable[..., Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return all ``function(partition)`` merged into one, by a tree of tasks: only the result comes here."""
        partial = self.each(function, name)
        while len(partial) > 1:
            groups = [(partial[first : first + _FAN_IN],) for first in range(0, len(partial), _FAN_IN)]
            partial = self.tasks(merge, groups, f"{name}-merge")
        return self.here(partial)[0]

    def close(self) -> None:
        """Let go of the partitions and of all that `tasks` has returned.  Closing twice does no harm."""
        for future in self._futures:  # all, by name: the traceback of an error may hold on to any of them
            future.release()
        self.partitions = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _reaching(client: Any) -> Any:
    from schmp_estimators.core.places.cluster import reaching  # noqa: PLC0415  (only users of a cluster need it)

    return reaching(client)


def gathered(client: Any, futures: list[Any]) -> list[Any]:
    """Return the results of futures, watched while they are waited for.

    Raises
    ------
    WorkLostError, NoWorkersError
        As `schmp_estimators.core.places.watch.gather`.
    """
    from schmp_estimators.core.places.watch import gather  # noqa: PLC0415  (only users of a cluster need it)

    return gather(client, futures)


def open_rows(
    prepare: Callable[[Any], Any], X: Any, estimator: Any, *, client: Any = None, reset: bool = True, **check: Any
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
    client : distributed.Client, default=None
        The cluster that shall hold a Dask input.  Without one, chunks are computed in threads of this process.
    reset : bool, default=True
        Whether this is a fit.
    **check
        Further arguments of `sklearn.utils.validation.validate_data`, for input in memory.
    """
    if not is_dask(X):
        return Rows([prepare(validate_in_memory(X, estimator, reset=reset, **check))])
    check_features(X, estimator, reset=reset)
    chunks = as_chunks(X)
    return Rows(_compute_here(prepare, chunks)) if client is None else Rows(_persist(prepare, chunks, client), client)


def open_tasks(prepare: Callable[..., Any], arguments: list[tuple[Any, ...]], *, client: Any = None) -> Rows:
    """Return the rows whose partitions are ``prepare(*a)`` for all `arguments`, which may be Delayed objects."""
    task, name = dask.delayed(prepare, pure=False), f"read-rows-{uuid4().hex}"
    lazy = [task(*given, dask_key_name=(name, i)) for i, given in enumerate(arguments)]
    return Rows(_compute_list(lazy)) if client is None else Rows(_persist_list(lazy, client), client)


def _prepare_chunk(chunk: Any, *, prepare: Callable[[Any], Any]) -> Any:
    return prepare(read_chunk(chunk))


def _box_chunk(chunk: Any, *, prepare: Callable[[Any], Any]) -> Any:
    return box(_prepare_chunk(chunk, prepare=prepare))


def _lazily(function: Any, chunks: Any, prepare: Callable[[Any], Any]) -> Any:
    name = f"read-rows-{uuid4().hex}"
    if isinstance(chunks, list):
        task = dask.delayed(function, pure=False)
        return [task(chunk, prepare=prepare, dask_key_name=(name, i)) for i, chunk in enumerate(chunks)]
    shape, meta = ((1,) * chunks.numblocks[0], (1,)), np.empty((0, 0), object)
    return chunks.map_blocks(function, dtype=object, chunks=shape, meta=meta, name=name, prepare=prepare)


def _compute_here(prepare: Callable[[Any], Any], chunks: Chunked) -> list[Any]:
    """Compute chunk by chunk, and never with a cluster that happens to be the default."""
    if isinstance(chunks, list):
        return _compute_list(_lazily(_prepare_chunk, chunks, prepare))
    return list(_lazily(_box_chunk, chunks, prepare).compute(scheduler=_scheduler_here()).ravel())


def _compute_list(lazy: list[Any]) -> list[Any]:
    return list(dask.compute(*lazy, scheduler=_scheduler_here()))


def _scheduler_here() -> str:
    chosen = dask.config.get("scheduler", "threads")
    return chosen if chosen in ("sync", "synchronous", "single-threaded") else "threads"


def _persist(prepare: Callable[[Any], Any], chunks: Chunked, client: Any) -> list[Any]:
    from distributed import futures_of  # noqa: PLC0415  (takes 0.1 s, and only users of a cluster need it)

    lazy = _lazily(_prepare_chunk, chunks, prepare)
    if isinstance(lazy, list):
        return _persist_list(lazy, client)
    with _reaching(client):
        held = client.persist(lazy)
    # Query planning may rename the tasks, but each key still ends with the numbers of its block.
    return sorted(futures_of(held), key=lambda future: future.key[1:])


def _persist_list(lazy: list[Any], client: Any) -> list[Any]:
    from distributed import futures_of  # noqa: PLC0415

    with _reaching(client):
        held = client.persist(lazy)
    return [futures_of(one)[0] for one in held]
