"""The rows of an input where they are worked upon: here, or in the memory of the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import uuid4

import dask
import numpy as np

from schmp_estimators.core.door.inputs import (
    Chunked,
    as_chunks,
    check_features,
    is_dask,
    read_chunk,
    validate_in_memory,
)
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Place

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
        self.place = place or LocalPlace()

    def each(self, function: Callable[..., Any], name: str) -> list[Any]:
        """Return ``function(partition)`` of every partition: values, or what stands for them."""
        return self.tasks(function, [(partition,) for partition in self.partitions], name)

    def tasks(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may hold partitions: values, or what stands for them."""
        return self.place.map(function, arguments, name)

    def here(self, results: list[Any]) -> list[Any]:
        """Return the values of what `each` or `tasks` returned."""
        return self.place.gather(results)

    def share(self, value: Any) -> Any:
        """Return what stands for a value in arguments of `tasks`; it travels once."""
        return self.place.share(value)

    def take(self, results: list[Any], position: int, name: str) -> list[Any]:
        """Return element `position` of each of some lists that `each` or `tasks` returned, for the last time."""
        return self.place.take(results, position, name)

    def reduce(self, function: Callable[..., Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return all ``function(partition)`` merged into one, by a tree of tasks: only the result comes here."""
        partial = self.each(function, name)
        while len(partial) > 1:
            groups = [(partial[first : first + _FAN_IN],) for first in range(0, len(partial), _FAN_IN)]
            partial = self.tasks(merge, groups, f"{name}-merge")
        return self.here(partial)[0]

    def close(self) -> None:
        """Let go of the partitions and of all that `tasks` has returned.  Closing twice does no harm."""
        self.place.let_go()
        self.partitions = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


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
    place = place or LocalPlace()
    return Rows(place.hold(_lazily(chunks, prepare)), place)


def open_tasks(prepare: Callable[..., Any], arguments: list[tuple[Any, ...]], *, place: Place | None = None) -> Rows:
    """Return the rows whose partitions are ``prepare(*a)`` for all `arguments`, which may be Delayed objects."""
    task, name = dask.delayed(prepare, pure=False), f"read-rows-{uuid4().hex}"
    lazy = [task(*given, dask_key_name=(name, i)) for i, given in enumerate(arguments)]
    place = place or LocalPlace()
    return Rows(place.hold(lazy), place)


def _prepare_chunk(chunk: Any, *, prepare: Callable[[Any], Any]) -> Any:
    return prepare(read_chunk(chunk))


def _lazily(chunks: Chunked, prepare: Callable[[Any], Any]) -> Any:
    name = f"read-rows-{uuid4().hex}"
    if isinstance(chunks, list):
        task: Any = dask.delayed(_prepare_chunk, pure=False)
        return [task(chunk, prepare=prepare, dask_key_name=(name, i)) for i, chunk in enumerate(chunks)]
    shape, meta = ((1,) * chunks.numblocks[0], (1,)), np.empty((0, 0), object)
    lazy: Any = chunks
    return lazy.map_blocks(_prepare_chunk, dtype=object, chunks=shape, meta=meta, name=name, prepare=prepare)
