"""The door for ratings: a matrix of users and items with missing entries, or pairs of ids with one rating each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from schmp_estimators.kernels.mf_ccd import UserRatings
from schmp_estimators.kernels.mf_layout import first_duplicate, sort_ratings
from schmp_estimators.kernels.mf_sgd import RatingBlock

_LARGEST_ID = np.iinfo(np.int32).max - 1


def _is_sparse(X: Any) -> bool:
    return bool(sparse.issparse(X))


def is_pairs(X: Any, y: Any) -> bool:
    """Return whether X holds pairs of ids: if y is given, and X has two columns of integers."""
    return y is not None and looks_like_pairs(X)


def looks_like_pairs(X: Any) -> bool:
    """Return whether X has two columns of integers; nothing is computed, and no sparse X does."""
    if _is_sparse(X) or (not hasattr(X, "shape") and not isinstance(X, list | tuple)):
        return False
    array = X if hasattr(X, "shape") else np.asarray(X)
    if len(array.shape) != 2 or array.shape[1] != 2:
        return False
    if hasattr(array, "dtypes"):
        return all(isinstance(kind, np.dtype) and kind.kind in "iu" for kind in array.dtypes)
    return getattr(array, "dtype", np.dtype(object)).kind in "iu"


def check_duplicates_kept(X: Any, converted: Any) -> None:
    """Raise if scikit-learn's conversion of `X` from the COO format has summed duplicates."""
    if _is_sparse(X) and X.format == "coo" and X.nnz != converted.nnz:
        raise ValueError(
            f"X stores {X.nnz - converted.nnz} entries more than once; each user may rate an item once. "
            "Sum or average duplicates first, for example with X.sum_duplicates()."
        )


def check_not_pairs(rows: Any) -> None:
    """Raise if `rows`, given together with y, look like pairs of ids that have become floats on their way."""
    if not _is_sparse(rows) and rows.shape[1] == 2 and (rows == np.floor(rows)).all():
        raise ValueError(
            f"X has two columns of whole numbers, but of dtype {rows.dtype}, and y is given. If these are pairs of "
            "ids, pass X.astype(int); if this is a matrix of ratings of two items, leave y out."
        )


def ratings_of_rows(rows: Any, first_user: int = 0) -> RatingBlock:
    """Return the observed entries of a CSR matrix (all stored ones) or of an array (all that are not NaN).

    Raises
    ------
    ValueError
        If a rating is not finite as float32.
    """
    if _is_sparse(rows):
        users = np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(rows.indptr))
        items, values = rows.indices.astype(np.int32, copy=False), rows.data
    else:
        users, items = (ids.astype(np.int32) for ids in np.nonzero(~np.isnan(rows)))
        values = rows[users, items]
    return RatingBlock(users + np.int32(first_user), items, _finite(values, "X"))


def user_ratings(rows: Any) -> UserRatings:
    """Return the observed entries of `rows`, as in `ratings_of_rows`, sorted by user and item.

    Raises
    ------
    ValueError
        If a rating is not finite, or an entry is stored twice.
    """
    indptr, ratings = sort_ratings(ratings_of_rows(rows), *rows.shape)
    twice = first_duplicate(indptr, ratings.items)
    if twice >= 0:
        raise ValueError(
            f"X stores the entry of row {ratings.users[twice]} and column {ratings.items[twice]} more than once; "
            "call X.sum_duplicates() first"
        )
    return UserRatings(indptr, ratings.items, ratings.values)


def ratings_of_pairs(pairs: Any, values: Any, shape: tuple[int | None, int | None]) -> RatingBlock:
    """Return pairs of ids with a rating each.

    Raises
    ------
    ValueError
        If ids are not integers, negative, or beyond `shape`; if ratings are not finite; if lengths differ.
    """
    check_consistent_length(pairs, values)
    users, items = check_pairs(pairs, shape)
    return RatingBlock(users.astype(np.int32), items.astype(np.int32), _finite(column_or_1d(values), "y"))


def check_pairs(pairs: Any, shape: tuple[int | None, int | None] = (None, None)) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return users and items of `pairs`, as views where that is possible.

    Raises
    ------
    ValueError
        If `pairs` has not two columns, if ids are not integers, negative, or beyond `shape`.
    """
    array = check_array(pairs, dtype=None, ensure_all_finite=False, input_name="pairs")
    if array.shape[1] != 2:
        raise ValueError(f"pairs has {array.shape[1]} columns; give two, the numbers of a user and of an item")
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"pairs has dtype {array.dtype}; ids must be integers. Number users and items from 0, for example with "
            "numpy.unique(names, return_inverse=True)."
        )
    for column, kind, limit in zip(array.T, ("user", "item"), shape, strict=True):
        lowest, highest = int(column.min()), int(column.max())
        if lowest < 0:
            raise ValueError(f"pairs holds the {kind} {lowest}; ids count from 0. Renumber with numpy.unique.")
        if limit is not None and highest >= limit:
            raise ValueError(f"pairs holds the {kind} {highest}, but n_{kind}s={limit}; raise it, or leave it None")
        if highest > _LARGEST_ID:
            raise ValueError(f"pairs holds the {kind} {highest}; ids must be below 2**31. Renumber with numpy.unique.")
    return array[:, 0], array[:, 1]


def _finite(values: Any, name: str) -> NDArray[np.float32]:
    """Return ratings as float32."""
    with np.errstate(over="ignore"):
        narrow: NDArray[np.float32] = np.asarray(values).astype(np.float32, copy=False)
    if not np.isfinite(narrow).all():
        worst = np.asarray(values)[~np.isfinite(narrow)][0]
        raise ValueError(
            f"{name} holds the rating {worst}, but ratings must be finite float32 numbers, not infinity or NaN. "
            "Leave missing ratings out, or mark them in a dense matrix as NaN."
        )
    return narrow
