"""Validation of inputs: the only module that looks at their types.

In memory, an input is an array, a list of lists, a sparse array or matrix, or a data frame;
scikit-learn validates it.  On Dask, it is a Dask array with dense or sparse chunks, a Dask data
frame, or a list of Delayed objects, each a chunk of rows.  Every chunk is then validated in its own
task, and the client gets only its shape and sums.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Union
from uuid import uuid4

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils import get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_array, validate_data

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.sparse_arrays import check_sparse
from schmp_estimators.core.later import Later
from schmp_estimators.core.typing import Binary, Named

if TYPE_CHECKING:
    from dask.array import Array
    from dask.delayed import Delayed

dask: Any = Later("dask")
da: Any = Later("dask.array")
_delayed: Any = Later("dask.delayed")
#: A Dask input with undivided columns, and one task for each chunk of rows.
Chunked = Union["Array", "list[Delayed]"]

_TEXT = (
    "X holds text. Count the words first, for example with "
    "sklearn.feature_extraction.text.CountVectorizer, alone or as the first step of a Pipeline."
)
#: Hint for documents that are lists of words, or of pairs as in gensim.
_LISTS = (
    " If X holds documents as lists of words, count these first, with "
    "sklearn.feature_extraction.text.CountVectorizer(analyzer=list); pairs of words and counts "
    "become a matrix by gensim.matutils.corpus2csc(X).T."
)
#: Beginnings of NumPy's errors about entries that are no numbers.
_NO_NUMBER = re.compile(
    r"^(float\(\) argument|setting an array element|could not convert|must be real|"
    r"dtype='numeric'|The DType)"
)
#: What numbers parameters may be.
COUNT = Interval(Integral, 1, None, closed="left")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="neither")
_COMPLEX = "Complex data not supported: {0} holds complex numbers. Pass {0}.real."
_IN_CHUNK = "X is on Dask: rows are numbered from the start of their chunk."


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection.

    Call this before validation, which would compute X.
    """
    if "dask" not in sys.modules:
        return False
    return bool(dask.is_dask_collection(X[0] if isinstance(X, list | tuple) and X else X))


def entries_of(X: Any) -> float:
    """Return how many entries an input has, stored ones if it is sparse.

    It is infinity if the shape does not say.
    """
    if sparse.issparse(X):
        return float(X.nnz)
    shape = getattr(X, "shape", None)  # of a Delayed object it may be anything
    if not isinstance(shape, tuple) or not all(isinstance(n, Real) for n in shape):
        return math.inf
    found = float(math.prod(shape))
    return found if math.isfinite(found) else math.inf


def validate_in_memory(
    X: Any, estimator: Any, *, reset: bool, name: str = "X", **check: Any
) -> Any:
    """Return X as a CSR array or matrix or as an ndarray, validated by scikit-learn.

    Sparse indices are checked, too.

    Parameters
    ----------
    X : array-like, sparse array or matrix of any format, or data frame
    estimator : estimator
        Its `n_features_in_` and `feature_names_in_` are set by a fit, and else compared with those
        of X.
    reset : bool
        Whether this is a fit.
    name : str, default="X"
        Its name for the user.
    **check
        Further arguments of `sklearn.utils.validation.validate_data`.
    """
    X = unmask(X, name, missing=may_miss(estimator))
    if _is_text(X):
        raise ValueError(_TEXT)
    check_names(X, estimator)
    check = {"accept_sparse": "csr", **check}
    with name_input(X, name):
        found = validate_data(estimator, X=check_sparse(X, name), reset=reset, **check)
        return as_numbers(found, name)


def may_miss(estimator: Any) -> bool:
    """Return whether entries of X may be missing, that is, NaN or masked."""
    return bool(get_tags(estimator).input_tags.allow_nan)


def as_numbers(values: Any, name: str = "X") -> Any:
    """Return numbers for what scikit-learn has left as objects: lists, categories and polars."""
    values = refuse_dates(values, name)
    return values.astype(np.float64) if values.dtype.kind == "O" else values


class EntryError(TypeError, ValueError):
    """An entry that is no number, for which scikit-learn may also raise a TypeError."""


def refuse_dates(values: Any, name: str = "X") -> Any:
    """Return `values`, unless they are dates or times.

    NumPy cannot convert these to numbers without a unit.
    """
    entries = values.flat if values.dtype.kind == "O" else ()
    first = next((one for one in entries if isinstance(one, date | timedelta)), None)
    if values.dtype.kind in "mM" or first is not None:
        kind = values.dtype if first is None else type(first).__name__
        labels = "; of labels give the texts, list(map(str, y))" if name == "y" else ""
        raise ValueError(
            f"{name} holds dates or times ({kind}), not numbers; choose a unit, for example by "
            f"({name} - {name}.min()) / numpy.timedelta64(1, 'D'){labels}"
        )
    return values


def is_missing(one: Any) -> bool:
    """Return whether a value is None, or differs from itself, as NaN, NaT and pandas.NA do.

    An array is not missing, whatever it holds.
    """
    if one is None:
        return True
    same = one == one  # noqa: PLR0124
    if isinstance(same, bool | np.bool_):
        return not same
    return np.ndim(same) == 0


@contextmanager
def name_input(X: Any, name: str = "X") -> Iterator[None]:
    """Add the name and column of X to errors about an entry that is no number or not finite."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith(f"Input {name} contains"):
            raise explain_not_finite(error, X, getattr(X, "columns", None)) from None
        if str(error).startswith("Complex data") and np.iscomplexobj(X):
            raise ValueError(_COMPLEX.format(name)) from None
        is_entry = isinstance(error, OverflowError) or _NO_NUMBER.search(str(error))
        if not is_entry or sparse.issparse(X):
            raise
        try:
            np.asarray(X, np.float64)
        except (TypeError, ValueError, OverflowError):
            what_else = _LISTS if _holds_lists(X) else ""
            label, found = _column_without_numbers(X, error)
            where = "" if label is None else f" (column {label!r})"
            said = f"{name} has an entry that is no number: {found}{where}{what_else}"
            raise EntryError(said) from error
        raise


def _column_without_numbers(X: Any, error: Exception) -> tuple[Any, Exception]:
    """Return the first column with an entry that is no number, and the error about it.

    The column is returned if X has columns.
    """
    try:
        values = np.asarray(X, object)
    except ValueError:  # rows of different lengths
        return None, error
    for number, column in enumerate(values.T if values.ndim == 2 else ()):
        label = _label(getattr(X, "columns", None), number)
        try:
            refuse_dates(column, f"X[{label!r}]").astype(np.float64)
        except (TypeError, ValueError, OverflowError) as found:
            return label, found
    return None, error


def _label(names: Any, number: int) -> Any:
    """Return the name of a column, or its number if it has none, as a type of Python."""
    return number if names is None else getattr(names[number], "item", lambda: names[number])()


def explain_not_finite(error: Exception, values: Any, names: Any = None) -> ValueError:
    """Return scikit-learn's error about values that are not finite.

    Their columns and what to do are added.
    """
    said = str(error).partition("\n")[0].rstrip(".")
    is_bad = np.isnan if "NaN" in said else np.isinf
    try:
        if sparse.issparse(values):
            entries = sparse.coo_array(values)
            columns = entries.col[is_bad(entries.data)]
        else:
            if hasattr(values, "astype"):  # so a missing value of pandas becomes NaN
                values = values.astype(np.float64)
            columns = np.nonzero(is_bad(np.asarray(values, np.float64)))[-1]
            if np.ndim(values) == 1:
                return ValueError(
                    f"{said}: {len(columns)} of {len(values)}, the first in row {columns[0]}; "
                    "leave these rows out"
                )
    except (TypeError, ValueError, IndexError):  # it is no table of numbers
        return ValueError(said)
    found, counts = np.unique(columns, return_counts=True)
    shown = [
        f"{count} in column {_label(names, number)!r}"
        for number, count in zip(found[:5].tolist(), counts, strict=False)
    ]
    more = f" and others in {len(found) - 5} more columns" if len(found) > 5 else ""
    return ValueError(
        f"{said}: {', '.join(shown)}{more}; replace these entries first, for example by "
        "sklearn.impute.SimpleImputer for NaN (missing_values=numpy.nan of linear models does it, "
        "too), or leave their rows out"
    )


def check_features(X: Any, estimator: Any, *, reset: bool) -> None:
    """Set or compare number and names of the features of a Dask input.

    They are used as far as they are known without computing.
    """
    meta = _meta(X)
    if meta is not None:
        check_names(meta, estimator)
        validate_data(estimator, X=meta, reset=reset, skip_check_array=True)
        check_width(meta.shape[1], estimator)
    elif reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_names(X: Any, estimator: Any) -> None:
    """Raise ValueError if a data frame has no columns, or two with one name."""
    # the `columns` of PyArrow are data
    labels = getattr(X, "column_names", getattr(X, "columns", None))
    if labels is None:
        return
    names = list(labels)
    check_width(len(names), estimator)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has several columns with the name {twice!r}; give each its own name")


def check_width(n_features: int, estimator: Any) -> None:
    """Raise scikit-learn's error, if there are no features."""
    if n_features < 1:
        raise ValueError(
            "Found array with 0 feature(s) while a minimum of 1 is required by "
            f"{type(estimator).__name__}."
        )


def as_chunks(X: Any) -> Chunked:
    """Return a Dask input as a Dask array with undivided columns, or as Delayed objects.

    The latter are a list.
    """
    if isinstance(X, da.Array):
        _check_array_kind(X)
        whole: Array = X if X.numblocks[1] == 1 else _one_column_chunk(X)
        return whole
    if isinstance(X, list | tuple) and len(X) > 0 and all(map(_is_delayed, X)):
        return list(X)
    if _is_dask_frame(X):
        return list(X.to_delayed())
    raise TypeError(
        f"X is on Dask, but of type {type(X).__name__}. Pass one two-dimensional Dask array, such "
        "as X.data of an xarray.DataArray, one Dask data frame, or a list of Delayed objects, "
        "each of which is a chunk of rows. If X holds text, count the words first, with a "
        "vectorizer that has a vocabulary: [dask.delayed(vectorizer.transform)(texts) for texts "
        "in X.to_delayed()]."
    )


def read_chunk(chunk: Any, *, missing: bool = False) -> Any:
    """Return one chunk of rows as a CSR array or matrix or as an ndarray.

    Values are not checked, but indices and masks are; `missing` is as in `unmask`.
    """
    if _is_text(chunk):
        raise ValueError(_TEXT)
    chunk = check_sparse(unmask(chunk, "X", missing=missing))
    # The order of a frame's values in memory depends on whether it was sent, and the bits of a fit
    # on that order.
    order = "F" if hasattr(chunk, "columns") else None
    with name_input(chunk):
        found = check_array(
            chunk,
            accept_sparse="csr",
            order=order,
            ensure_all_finite=False,
            ensure_min_samples=0,
            input_name="X",
        )
        return as_numbers(found)


def refuse_container(estimator: Any, X: Any) -> None:
    """Raise ValueError if the output of `transform` shall be a data frame, but X is on Dask.

    scikit-learn would compute all of it here to make the frame.
    """
    chosen = getattr(estimator, "_sklearn_output_config", {}).get(
        "transform", get_config()["transform_output"]
    )
    if chosen != "default" and is_dask(X):
        raise ValueError(
            f'X is on Dask, whose results stay there, but set_output(transform="{chosen}") asks '
            'for a data frame in memory. Call set_output(transform="default"), or pass X in '
            "memory. A Dask data frame of a lazy result is dask.dataframe.from_dask_array(result, "
            "columns=model.get_feature_names_out())."
        )


def map_rows(
    function: Binary,
    X: Any,
    estimator: Any,
    model: Any,
    *,
    n_outputs: int,
    dtype: Any,
    name: str,
) -> Any:
    """Apply a fitted estimator row by row: at once if X is in memory, lazily if it is on Dask.

    Parameters
    ----------
    function : callable
        ``function(rows, model)`` gets a CSR array or matrix, or an ndarray, and returns an array of
        shape (n_rows, n_outputs).  It must accept an array without rows.
    X : input of any kind
    estimator : estimator
        Its number and names of features are compared with those of X.
    model : object
        What the function needs of the estimator.  It is sent once, not with every chunk.
    n_outputs : int
        Columns of the result.
    dtype : dtype
        The dtype of the result.
    name : str
        Name of the tasks on the dashboard.

    Returns
    -------
    ndarray, dask.array.Array or list of Delayed
        In memory an ndarray; for Dask arrays and data frames a Dask array with the same chunks of
        rows, also where their sizes are unknown; for a list of Delayed objects another one.
    """
    if not is_dask(X):
        return function(
            validate_in_memory(X, estimator, reset=False, ensure_all_finite=False), model
        )
    check_features(X, estimator, reset=False)
    apply = partial(
        _apply, function, estimator.n_features_in_, type(estimator).__name__, may_miss(estimator)
    )
    run = uuid4().hex
    meta = np.empty((0, n_outputs), dtype)
    chunks = as_chunks(X)
    shared = dask.delayed(model, name=f"model-{run}", traverse=False)
    if isinstance(chunks, list):
        task = dask.delayed(apply, pure=False)
        found = [
            task(chunk, shared, dask_key_name=(f"{name}-{run}", i))
            for i, chunk in enumerate(chunks)
        ]
        if not _is_dask_frame(X):
            return found
        blocks = [da.from_delayed(one, (np.nan, n_outputs), meta=meta) for one in found]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)
    sizes = chunks.chunks[0], (n_outputs,)
    return da.map_blocks(
        apply, chunks, shared, chunks=sizes, dtype=meta.dtype, meta=meta, name=f"{name}-{run}"
    )


def _apply(
    function: Binary,
    n_features: int,
    owner: str,
    missing: bool,
    chunk: Any,
    model: Any,
) -> Any:
    try:
        rows = read_chunk(chunk, missing=missing)
        if rows.shape[1] != n_features:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {owner} is expecting {n_features} features "
                "as input."
            )
        return function(rows, model)
    except ValueError as error:
        error.add_note(_IN_CHUNK)
        raise


def _is_delayed(X: Any) -> bool:
    return isinstance(X, _delayed.Delayed)


def _is_dask_frame(X: Any) -> bool:
    collection = dask.is_dask_collection(X) and not _is_delayed(
        X
    )  # a Delayed object claims to have every attribute
    return collection and hasattr(X, "columns") and getattr(X, "ndim", 0) == 2


def _is_text(X: Any) -> bool:
    """Return whether X is one document, or a list, column or table with one column of documents."""
    if isinstance(X, str | bytes):
        return True
    if sparse.issparse(X) or not hasattr(X, "__iter__"):
        return False
    if getattr(X, "shape", ())[1:] == (1,):
        return isinstance(next(iter(np.asarray(X[:1]).flat), None), str | bytes)
    return len(getattr(X, "shape", (0,))) == 1 and isinstance(next(iter(X), None), str | bytes)


def _holds_lists(X: Any) -> bool:
    """Return whether X is a list of documents that are lists.

    Their elements are words, or pairs of words and counts.
    """
    first = X[0] if isinstance(X, list | tuple) and X else None
    return (
        isinstance(first, list | tuple)
        and bool(first)
        and isinstance(first[0], str | bytes | tuple)
    )


def _meta(X: Any) -> Any:
    """Return an empty array or frame with the columns of X, None while they are unknown."""
    if isinstance(X, da.Array):
        _check_array_kind(X)
        return (
            None
            if np.isnan(X.shape[1])
            else np.broadcast_to(np.empty((0, 1)), (0, int(X.shape[1])))
        )
    return X._meta if _is_dask_frame(X) else None


def _check_array_kind(X: Any) -> None:
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: a Dask array of shape {X.shape}. "
            "Reshape your data either with X.reshape(-1, 1), if it has one feature, or with "
            "X.reshape(1, -1), if it is one sample."
        )
    if X.dtype is not None and X.dtype.kind == "c":
        raise ValueError(_COMPLEX.format("X"))
    if X.dtype is not None and X.dtype.kind in "US":
        raise ValueError(_TEXT)


def _one_column_chunk(X: Any) -> Any:
    if np.isnan(X.shape[1]):
        raise ValueError(
            "X has several chunks of columns, of unknown widths. Call X.compute_chunk_sizes() "
            "first, or build X with chunks of whole rows."
        )
    return X.map_blocks(_to_csr, dtype=X.dtype, meta=X._meta).rechunk({1: -1})


def _to_csr(block: Any) -> Any:
    """Convert sparse blocks to CSR, which Dask is sure to join side by side.

    Return others as they are.
    """
    return sparse.csr_array(check_sparse(block)) if sparse.issparse(block) else block


def keep(estimator: Any, given: Named) -> None:
    """Store the arguments of `__init__`, its local variables, as attributes."""
    vars(estimator).update(
        {name: value for name, value in given.items() if name not in ("self", "__class__")}
    )
