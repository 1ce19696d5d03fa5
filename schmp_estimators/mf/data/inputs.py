"""Inputs of ratings.

A matrix of users and items with missing entries, or pairs of ids with one rating each.
"""

import warnings
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length, column_or_1d

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_dask, is_missing, refuse_dates
from schmp_estimators.core.later import Later
from schmp_estimators.core.typing import Array, Floats
from schmp_estimators.core.values import offsets_of
from schmp_estimators.mf.data.ids import KINDS, read_ids
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.layout import UserRows, select, sort_items
from schmp_estimators.mf.kernels.sgd import RatingBlock

da: Any = Later("dask.array")
#: Smallest range and largest size of ratings that float32 can hold without loss.
_LEAST_RANGE, _LARGEST_RATING = 1e-30, 1e36

_TABLE = (
    "Pass pairs of ids and, apart, their ratings: fit(df[['user', 'item']], df['rating']) for a "
    "data frame, fit(X[:, :2], X[:, 2]) for an array. Of a log of clicks pass their numbers: "
    "counts = df.groupby(['user', 'item'], as_index=False).size(); fit(counts[['user', 'item']], "
    "counts['size'])."
)


def columns_of(X: Any) -> list[Any] | None:
    """Return the columns of a dense X in memory, as arrays or as narwhals Series.

    None if it has none.
    """
    if sparse.issparse(X) or isinstance(X, str):
        return None
    # for an array, narwhals takes longer to find out that it is no frame than a prediction takes
    frame = (
        X if isinstance(X, np.ndarray) else nw.from_native(X, eager_only=True, pass_through=True)
    )
    if isinstance(frame, nw.DataFrame):
        return [frame[:, at] for at in range(frame.shape[1])]
    if not hasattr(X, "shape") and not isinstance(X, list | tuple):
        return None
    try:
        array = np.asarray(unmask(X, "X", missing=True))
    except ValueError:  # rows of different lengths
        return None
    return list(array.T) if array.ndim == 2 else None


def are_pairs(X: Any, y: Any) -> bool:
    """Return whether X holds pairs of ids: it has two columns, and the ratings are separate."""
    return y is not None and pair_columns(X) is not None and not _are_labelled(X, y)


def pair_columns(X: Any) -> list[Any] | None:
    """Return both columns of a dense X with two, as `columns_of` does, else None.

    Those of a Dask collection are empty.
    """
    if is_dask(X):
        meta = getattr(X, "_meta", None)
        if not hasattr(meta, "columns"):
            is_dense_array = getattr(X, "ndim", 0) == 2 and not sparse.issparse(meta)
            meta = (
                np.empty((0, X.shape[1]), X.dtype) if is_dense_array and X.shape[1] == 2 else None
            )
        X = meta
    elif getattr(X, "shape", (0, 2))[1:] != (2,):  # so that wide arrays are not converted
        return None
    columns = columns_of(X)
    return columns if columns is not None and len(columns) == 2 else None


def _are_labelled(X: Any, y: Any) -> bool:
    """Return whether X are measurements, and y labels of classes.

    No measurement but 0 is whole, and none occurs twice.

    scikit-learn's checks pass such X and y to every estimator.  Ids are never like this, because
    some must occur twice.
    """
    arrays = isinstance(X, np.ndarray) and isinstance(y, np.ndarray)
    if not (arrays and X.dtype.kind == "f" and y.dtype.kind in "iu" and np.isfinite(X).all()):
        return False
    return not ((np.floor(X) == X) & (X != 0)).any() and all(
        np.unique(column).size == column.size for column in X.T
    )


def warn_unused(y: Any, n_rows: int) -> None:
    """Warn that `y`, if it is given, is not used with a matrix of `n_rows` rows.

    Raises
    ------
    ValueError
        If its length is different; the length of a Dask series is not known.
    """
    if y is None:
        return
    if not is_dask(y) or (isinstance(y, da.Array) and not np.isnan(y.shape[0])):
        check_consistent_length(range(n_rows), y)
    warnings.warn(
        "y is not used: X is a matrix, whose entries are the ratings. Leave y out; or pass pairs, "
        "two columns with the ids of a user and an item, beside their ratings as y",
        UserWarning,
        stacklevel=2,
    )


def check_no_text(X: Any) -> None:
    """Raise ValueError if X, which holds no pairs, is no table, or has text or dates.

    The column of text or dates is named.
    """
    X = getattr(X, "_meta", X) if is_dask(X) else X
    dtypes = X.dtypes if hasattr(X, "dtypes") else [getattr(X, "dtype", None)]
    if is_dask(X) or all(map(_is_numeric, dtypes)):  # of Delayed objects nothing is known
        return
    if (columns := columns_of(X)) is None and not hasattr(X, "__array__"):
        raise ValueError(
            f"X is {X!r:.80}; pass a matrix of ratings with a row for each user, or pairs: two "
            "columns with the ids of a user and an item"
        )
    columns = columns or []
    for at, column in enumerate(columns):
        if _is_numeric(column.dtype):
            continue
        name: Any = at
        entries = column
        if isinstance(column, nw.Series):
            name, entries = column.name, column.to_list()
            if not (entries or str(column.to_native().dtype) == "object"):
                entries = [str(column.dtype)]  # on Dask only the dtype is known
        text = str | bytes | date | timedelta | np.datetime64 | np.timedelta64
        if (found := next((one for one in entries if isinstance(one, text)), None)) is None:
            continue
        if len(columns) == 1 and isinstance(found, str):
            raise ValueError(
                "X is one column of text. Pass pairs, two columns with the ids of user and item, "
                "and their ratings as y"
            )
        fault = f"the column {name!r} of X holds {found!r:.100}, which is no rating"
        if n_missing := sum(map(is_missing, entries)):
            fault += (
                f"; {n_missing} of its {len(entries)} entries are missing: drop these rows first"
            )
        raise ValueError(f"{fault}. {_TABLE}")


def _is_numeric(dtype: Any) -> bool:
    """Return whether a dtype of NumPy, pandas, polars or narwhals is one of numbers."""
    is_number = getattr(dtype, "kind", "O") in "biufc" or isinstance(dtype, nw.Boolean)
    return is_number or bool(getattr(dtype, "is_numeric", bool)())


def is_table(rows: Any) -> bool:
    """Return whether `rows` may be pairs of ids, with or without ratings.

    They have two or three columns without a missing entry, and the first two may be ids.
    """
    if sparse.issparse(rows) or rows.shape[1] not in (2, 3) or np.isnan(rows).any():
        return False
    return bool((rows[:, :2] >= 0).all() and (rows[:, :2] == np.floor(rows[:, :2])).all())


def refuse_table(width: int) -> None:
    """Raise the error for a matrix that must be a table of ids and ratings."""
    raise ValueError(
        f"X has {width} columns, of which the first two hold ids rather than ratings: no entry is "
        f"missing. {_TABLE} If X is a complete matrix of ratings of {width} items, pass "
        "scipy.sparse.csr_array(X)."
    )


def check_duplicates_kept(X: Any, converted: Any) -> None:
    """Raise if scikit-learn's conversion of `X` from the COO format has summed duplicates."""
    if sparse.issparse(X) and X.format == "coo" and X.nnz != converted.nnz:
        raise ValueError(
            f"X stores {X.nnz - converted.nnz} entries more than once; each user may rate an item "
            "once. Sum or average duplicates first, for example with X.sum_duplicates()."
        )


def weights_of(X: Any, rows: Any, weights: Any) -> Floats:
    """Return weights of the entries of a matrix, in the order of `ratings_of_rows`.

    Parameters
    ----------
    X : matrix
        As it was given.  Weights are in the order of ``X.data`` if it is sparse, else row by row.
    rows : CSR array or ndarray
        X as scikit-learn has converted it.
    weights : array-like of shape (n_entries,)

    Raises
    ------
    ValueError
        If there is not exactly one finite weight of at least 0 for each entry.
    """
    size = rows.nnz if sparse.issparse(rows) else int(np.count_nonzero(~np.isnan(rows)))
    found = read_weights(weights)
    check_one_for_each(found.size, size)
    if sparse.issparse(X) and X.format in ("coo", "csc"):
        X = X.copy()
        X.data = found
        found = X.tocsr().data
    return found


def check_one_for_each(n_weights: float, n_ratings: int) -> None:
    """Raise ValueError if there is not one weight for each rating of a matrix."""
    if n_weights != n_ratings:
        raise ValueError(
            f"sample_weight has {n_weights} entries, but X holds {n_ratings} ratings, and each has "
            "a weight; give them in the order of X.data if X is sparse and in memory, else row by "
            "row, without those of missing entries"
        )


def read_weights(weights: Any) -> Floats:
    """Return weights, which must be finite numbers of at least 0."""
    return _check_weights(read_column(weights, "sample_weight", "weight"))


def weighed(ratings: Any, weights: Any, *, clicks: bool) -> Any:
    """Add weights to ratings, if there are any.

    Ratings of weight 0 are left out, unless they are clicks.
    """
    if weights is None:
        return ratings
    ratings = ratings._replace(values=ratings.values + 1j * weights)
    if clicks:
        return ratings
    if isinstance(ratings, UserRows):
        return select(ratings, weights > 0)
    return RatingBlock(*(array[weights > 0] for array in ratings))


def ratings_of_rows(rows: Any) -> UserRows:
    """Return the observed entries of a CSR matrix or of an array.

    They are all stored entries of the matrix, or all of the array that are not NaN.

    Raises
    ------
    ValueError
        If a rating is not finite, or too large.
    """
    if sparse.issparse(rows):
        indptr, items, values = rows.indptr.astype(np.int64), rows.indices, rows.data
    else:
        there = ~np.isnan(rows)
        indptr = offsets_of(np.count_nonzero(there, axis=1))
        items, values = np.nonzero(there)[1], rows[there]
    users = np.arange(rows.shape[0], dtype=np.int32)
    found = UserRows(users, indptr, items.astype(np.int32, copy=False), values)
    return found._replace(values=check_values(values, "X", found))


def user_ratings(rows: Any, weights: Any = None) -> UserRatings:
    """Return the observed entries of `rows` as float64, sorted by user and item.

    They are those of `ratings_of_rows`.

    Values are complex if there are weights, which are the imaginary parts.

    Raises
    ------
    ValueError
        If a rating is not finite, or an entry is stored twice.
    """
    ratings = ratings_of_rows(rows)
    exact = ratings._replace(values=ratings.values.astype(np.float64, copy=False))
    ratings, pair = sort_items(weighed(exact, weights, clicks=True), rows.shape[1])
    if pair:
        row, column = pair
        raise ValueError(
            f"X stores the entry of row {row} and column {column} more than once; call "
            "X.sum_duplicates() first"
        )
    return UserRatings(*ratings[1:])


def read_pairs(pairs: Any, source: str = "pairs") -> tuple[Array, Array]:
    """Return the ids of users and of items, as views if possible; errors call the input `source`.

    Raises
    ------
    ValueError
        If `pairs` does not have two columns, or ids are missing, negative or fractional.
    """
    columns = columns_of(pairs)
    if columns is None or len(columns) != 2:
        raise ValueError(
            "pairs must have two columns, the ids of a user and of an item; ranking.as_pairs makes "
            "them of a matrix"
        )
    users, items = map(_as_array, columns, KINDS)
    return read_ids(users, "user", source), read_ids(items, "item", source)


def read_ratings(
    pairs: Any, values: Any, weights: Any = None, *, clicks: bool = False
) -> RatingBlock:
    """Return pairs of ids with a rating each, and with its weight if there are weights.

    Raises
    ------
    ValueError
        As `read_pairs`; also if ratings are not finite or too large, if weights are not finite or
        negative, or if lengths differ.
    """
    check_consistent_length(pairs, values)
    users, items = read_pairs(pairs, "with y, two columns are pairs: X")
    numbers = check_values(read_column(values, "y", "rating"), "y")
    if weights is not None:
        check_consistent_length(pairs, weights)
        weights = read_weights(weights)
    ratings: RatingBlock = weighed(RatingBlock(users, items, numbers), weights, clicks=clicks)
    return ratings


def clicks_of(values: Array, confidence: Callable[[Array], Any]) -> tuple[Array, Array]:
    """Return ratings, and the results of `confidence` for the values.

    Ratings are 1 for values above 0 and else 0.

    Raises
    ------
    ValueError
        If the results are not one finite number of at least 0 for each value.
    """
    returned = confidence(values.copy())  # which it may change in place
    found = np.asarray(unmask(returned, "confidence"))
    if found.shape != values.shape:
        raise ValueError(
            f"confidence returned {type(returned).__name__} of shape {found.shape}, not an array "
            f"of a confidence for each of the {values.size} values"
        )
    return (values > 0).astype(np.float64), _check_weights(found, "confidence")


def confide(confidence: Callable[[Array], Any], ratings: Any) -> Any:
    """Return ratings with confidences that are computed from their values."""
    clicks, confidences = clicks_of(ratings.values, confidence)
    return ratings._replace(values=clicks + 1j * confidences)


def read_column(values: Any, name: str, what: str) -> Array:
    """Return the input `name`, one column of any library, as an array.

    Errors call its entries `what`.
    """
    values = unmask(values, name)
    series = nw.from_native(values, allow_series=True, eager_only=True, pass_through=True)
    if isinstance(series, nw.DataFrame) and series.shape[1] == 1:
        series = series[:, 0]
    column = np.asarray(_as_array(series, what) if isinstance(series, nw.Series) else values)
    if column.shape[1:] not in ((), (1,)) or not column.ndim:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {column.shape} instead"
        )
    return column_or_1d(column)


def _check_weights(weights: Array, name: str = "sample_weight") -> Floats:
    weights = _as_numbers(weights, name, "weight").astype(np.float64, copy=False)
    wrong = np.flatnonzero(~((weights >= 0) & (weights <= _LARGEST_RATING)))
    if wrong.size:
        raise ValueError(
            f"{name} holds {weights[wrong[0]]} in row {wrong[0]}, but weights must be finite "
            f"numbers from 0 to {_LARGEST_RATING:g}. Leave pairs out that nothing is known of; 1 "
            "is the weight of the others."
        )
    return weights


def _as_numbers(values: Any, name: str, what: str) -> Array:
    """Return values as real numbers, if possible in their own dtype.

    Strings are none, whatever they say.
    """
    array = refuse_dates(np.asarray(values), name)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} holds complex {what}s")
    if array.dtype.kind in "iufb":
        return array
    for row, one in enumerate(array):
        if not isinstance(one, Real | Decimal):
            raise ValueError(
                f"{name} holds a {what} that is no number: {one!r} in row {row}; convert {what}s "
                "to numbers"
            )
    return array.astype(np.float64)


def _as_array(column: Any, what: str) -> Array:
    if not isinstance(column, nw.Series):
        return np.asarray(column)
    if column.null_count() and not column.dtype.is_float():
        row = int(np.argmax(column.is_null().to_numpy()))
        raise ValueError(
            f"the {what} in row {row} is missing. Drop these rows first, for example with dropna()."
        )
    return column.to_numpy()


def check_values(values: Any, name: str, rows: UserRows | None = None) -> Array:
    """Return ratings as float32 if it holds their dtype, else as float64.

    Errors name the place, also in a matrix.

    Raises
    ------
    ValueError
        If they are no real numbers, not finite, or too large for float32.
    """
    array = _as_numbers(values, name, "rating")
    is_short = np.can_cast(array.dtype, np.float32)
    array = array.astype(np.float32 if is_short else np.float64, copy=False)
    if array.size and not -_LARGEST_RATING <= array.min() <= array.max() <= _LARGEST_RATING:
        wrong = int(np.argmax(~(np.abs(array) <= _LARGEST_RATING)))
        place = f"row {wrong}"
        if rows is not None:
            row = np.searchsorted(rows.indptr, wrong, "right") - 1
            place = f"row {row} and column {rows.items[wrong]}"
        raise ValueError(
            f"{name} holds the rating {array[wrong]} in {place}, but ratings must be finite "
            f"numbers of at most {_LARGEST_RATING:g}, not infinity or NaN. Leave missing ratings "
            "out, or mark them in a dense matrix as NaN; scale others down."
        )
    return array


def check_taken(lowest: float) -> None:
    """Raise ValueError if a value is not above 0.

    A ranking loss ranks what users took above what they did not.
    """
    if lowest <= 0:
        raise ValueError(
            f"a value is {lowest:g}, but with this loss each pair is an item that the user took, "
            "of a value above 0; leave other pairs out, as in fit(pairs[y > 0], y[y > 0])"
        )


def nothing_to_draw(loss: Any) -> ValueError:
    """Return the error about a ranking loss, if all users took all items."""
    return ValueError(
        f"with loss={loss!r} no item can be drawn beside any pair, as all users took all items; "
        "rank more items, or mark in a dense matrix as NaN what a user did not take"
    )


def check_range(low: float, high: float) -> None:
    """Raise ValueError if ratings differ by so little that factors would underflow."""
    if 0.0 < high - low < _LEAST_RANGE:
        raise ValueError(
            f"ratings differ by {high - low:g} at most, too little for float32; multiply them, for "
            f"example by {10.0 ** -np.floor(np.log10(high - low)):g}"
        )
