"""Letting the rows of an input in: what is in memory makes one partition, on Dask every chunk of rows makes one."""

from __future__ import annotations

from collections.abc import Callable
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
from schmp_estimators.core.places.held import Rows
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Place


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
