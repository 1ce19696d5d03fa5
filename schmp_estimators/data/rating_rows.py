"""Ratings where they are worked upon: here, or in the memory of the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import dask.array as da
import numpy as np

from schmp_estimators.data.inputs import is_dask, validate_in_memory
from schmp_estimators.data.rating_inputs import (
    check_duplicates_kept,
    check_not_pairs,
    is_pairs,
    ratings_of_pairs,
    ratings_of_rows,
)
from schmp_estimators.data.rows import Rows, open_rows
from schmp_estimators.kernels.mf_sgd import RatingBlock


class RatingRows(NamedTuple):
    """All ratings of an input."""

    #: Partitions are `RatingBlock`, with numbers of users and items in the whole data.
    pieces: Rows
    n_users: int
    n_items: int


class _Part(NamedTuple):
    """A chunk of a matrix."""

    n_rows: int
    n_columns: int
    ratings: RatingBlock


def open_ratings(X: Any, y: Any, estimator: Any, *, client: Any = None, reset: bool = True) -> RatingRows:
    """Let ratings of any kind in.

    Parameters
    ----------
    X, y : as in `ModelParallelMF.fit`
    estimator : ModelParallelMF
        Gets the number and names of the features, which are the items.
    client : distributed.Client, default=None
        The cluster that shall hold a Dask input.
    reset : bool, default=True
        Whether this is a fit, rather than the continuation of one.
    """
    if is_pairs(X, y):
        return _open_pairs(X, y, estimator, client, reset)
    if is_dask(X):
        return _open_chunks(X, estimator, client, reset)
    rows = validate_in_memory(X, estimator, reset=reset, ensure_all_finite=False)
    check_duplicates_kept(X, rows)
    if y is not None:
        check_not_pairs(rows)
    return RatingRows(Rows([ratings_of_rows(rows)]), rows.shape[0], rows.shape[1])


def _open_pairs(pairs: Any, values: Any, estimator: Any, client: Any, reset: bool) -> RatingRows:
    limits = estimator.n_users, estimator.n_items
    if is_dask(pairs) or is_dask(values):
        table = _side_by_side(*(_as_columns(given) for given in (pairs, values)))
        rows = open_rows(partial(_pairs_of_chunk, limits=limits), table, estimator, client=client)
    else:
        rows = Rows([ratings_of_pairs(pairs, values, limits)])
    found = np.max(_asked(rows, _largest, "mf-largest-ids"), axis=0) + 1
    n_users, n_items = (limit or int(size) for limit, size in zip(limits, found, strict=True))
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = n_items if reset else max(n_items, estimator.components_.shape[1])
    return RatingRows(rows, n_users, n_items)


def _as_columns(given: Any) -> Any:
    """Return an array or a data frame, on Dask or not, as a two-dimensional Dask array with undivided columns."""
    array = da.asarray(given)
    return array[:, None] if array.ndim == 1 else array.rechunk({1: -1})


def _side_by_side(pairs: Any, values: Any) -> Any:
    """Return pairs and ratings as one array, chunk by chunk."""
    if np.isnan(pairs.shape[0] + values.shape[0]):
        if pairs.numblocks[0] != values.numblocks[0]:
            raise ValueError(
                f"X has {pairs.numblocks[0]} partitions and y {values.numblocks[0]}, of unknown lengths; take both "
                "from one data frame, or pass Dask arrays whose chunk sizes are known, for example from "
                "frame.to_dask_array(lengths=True)"
            )
    else:
        if pairs.shape[0] != values.shape[0]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: {[pairs.shape[0], values.shape[0]]}"
            )
        values = values.rechunk({0: pairs.chunks[0]})
    options = {"dtype": np.float64, "meta": np.empty((0, 3)), "chunks": (pairs.chunks[0], (3,))}
    return da.map_blocks(_join_columns, pairs, values, name=f"join-pairs-{uuid4().hex}", **options)


def _join_columns(pairs: Any, values: Any) -> Any:
    """Return one table: ids below 2**31 are exact in float64."""
    if len(pairs) != len(values):
        raise ValueError(
            f"a chunk of X has {len(pairs)} pairs, but that of y {len(values)} ratings; X and y must have the same "
            "length, and the same partitions if their lengths are not known"
        )
    return np.hstack([np.asarray(part, np.float64) for part in (pairs, values)])


def _open_chunks(X: Any, estimator: Any, client: Any, reset: bool) -> RatingRows:
    rows = open_rows(_part_of_chunk, X, estimator, client=client, reset=reset)
    shapes = _asked(rows, _shape, "mf-shape")
    widths = {width for _, width in shapes}
    if len(widths) != 1:
        rows.close()
        raise ValueError(f"the chunks of X have different numbers of columns: {sorted(widths)}")
    lengths = [length for length, _ in shapes]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arguments = [(part, int(offset)) for part, offset in zip(rows.partitions, offsets, strict=False)]
    rows.partitions = rows.tasks(_shift, arguments, "mf-number-users")
    estimator.n_features_in_ = widths.pop()
    return RatingRows(rows, int(offsets[-1]), estimator.n_features_in_)


def _asked(rows: Rows, function: Callable[..., Any], name: str) -> list[Any]:
    """Return ``function(partition)`` of every partition; leave nothing behind if one of them is refused."""
    try:
        return rows.here(rows.each(function, name))
    except BaseException:
        rows.close()
        raise


def _pairs_of_chunk(table: Any, limits: tuple[int | None, int | None]) -> RatingBlock:
    if not len(table):
        return RatingBlock(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    return ratings_of_pairs(table[:, :2].astype(np.int64), table[:, 2], limits)


def _part_of_chunk(rows: Any) -> _Part:
    return _Part(rows.shape[0], rows.shape[1], ratings_of_rows(rows))


def _shape(part: _Part) -> tuple[int, int]:
    return part.n_rows, part.n_columns


def _shift(part: _Part, first_user: int) -> RatingBlock:
    return part.ratings._replace(users=part.ratings.users + np.int32(first_user))


def _largest(ratings: RatingBlock) -> tuple[int, int]:
    """Return the largest numbers of a user and of an item, -1 if there are none."""
    return int(ratings.users.max(initial=-1)), int(ratings.items.max(initial=-1))
