"""Inputs of regression: samples, their responses and their weights.

X may stay on Dask.  Responses and weights come here, 8 bytes for a sample: they are checked by the
same code for any kind of input.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.validation import (
    _check_n_features,
    _check_sample_weight,
    assert_all_finite,
    check_X_y,
    validate_data,
)

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.sparse_arrays import check_sparse
from schmp_estimators.core.inputs.validation import (
    as_numbers,
    check_features,
    check_names,
    check_width,
    explain_not_finite,
    is_dask,
    is_missing,
    may_miss,
    name_input,
    refuse_dates,
)
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import Array, Floats, Masks, Named
from schmp_estimators.linear.contracts import classifies, declared
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.choose import refuse_texts
from schmp_estimators.linear.programs.matrix import REQUIRED, Storage

da: Any = Later("dask.array")
dask: Any = Later("dask")
#: Bytes from which merging chunks of columns in every fit is worth a warning.
_COSTLY = 1 << 27


class Samples(NamedTuple):
    """Checked samples."""

    X: Any
    y: Array
    #: (n,), or (0,) if there are none
    weights: Floats
    #: (n_all,) bool, which rows of an X on Dask are used; None for all
    used: Masks | None = None

    @property
    def counted(self) -> Masks:
        """Which samples have a positive weight."""
        return self.weights > 0.0 if len(self.weights) else np.ones(len(self.y), bool)

    def rows(self, used: Masks) -> Samples:
        """Return the used rows; rows of an X on Dask are left out later, when chunks are joined."""
        if used.all():
            return self
        y = self.y[used]
        weights = self.weights[used] if len(self.weights) else self.weights
        return (
            Samples(self.X, y, weights, used)
            if is_dask(self.X)
            else Samples(cut(self.X, used), y, weights)
        )


def read_samples(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    place: Place | None = None,
    whole: bool = False,
    **options: Any,
) -> Samples:
    """Check samples of any type, and set the number and names of features as far as they are known.

    Parameters
    ----------
    estimator : estimator
    X, y, sample_weight : inputs of any kind
    place : Place, optional
        Where `y` and `sample_weight` are computed if they are on Dask; by default in this process.
    whole : bool, default=False
        Whether to keep samples of weight zero, and to search X for values that are not finite.
        Otherwise the fit finds them.
    **options
        Further arguments of `sklearn.utils.validation.validate_data` for `y`.

    Raises
    ------
    ValueError
        If values or lengths are invalid.  An X on Dask is checked later, when it is opened.
    """
    y = here(y, "y", place)
    sample_weight = here(sample_weight, "sample_weight", place)
    is_storage = isinstance(X, Storage)
    checked = whole or sample_weight is not None
    estimator._labels = X.names if is_storage else getattr(X, "columns", ())
    vars(estimator).pop("fill_values_", None)
    if not is_storage and not is_dask(X):
        # A fit makes only a few passes over X, and the first one finds NaN.  Rows of weight zero
        # are not in that pass.
        finite = checked and ("allow-nan" if may_miss(estimator) else True)
        X, y = check_input(estimator, X, y, ensure_all_finite=finite, **options)
    else:
        if not is_storage:
            check_features(X, estimator, reset=True)
            _warn_of_columns(X)
        else:
            check_storage(X, estimator, reset=True)
            if not X.may_miss:
                if estimator.missing_values is not None:
                    raise ValueError(
                        f"missing_values={estimator.missing_values!r} is for arrays and sparse "
                        f"matrices; X={type(X).__name__} has to know itself which values are "
                        "missing, by may_miss"
                    )
                if checked:
                    check_finite(X, None)
        y = check_responses(estimator, y, **options)
        length = getattr(X, "shape", (np.nan,))[0]
        if isinstance(length, int | float) and not np.isnan(length):
            check_length(int(length), len(y))
    found = Samples(X, y, check_weights(sample_weight, y))
    return found if whole else found.rows(found.counted)


def here(values: Any, name: str, place: Place | None = None) -> Any:
    """Return responses or weights as arrays in memory; raise an error if any is masked."""
    if values is None or not is_dask(values):
        return unmask(values, name)
    pieces = list(values) if isinstance(values, list | tuple) else [values]
    place = place or Place()
    found = [unmask(one, name) for one in place.gather(place.hold(list(map(dask.delayed, pieces))))]
    return found[0] if len(found) == 1 else np.concatenate([np.asarray(piece) for piece in found])


def check_length(n_rows: int, n_responses: int) -> None:
    """Raise scikit-learn's error if X and y have different lengths."""
    if n_rows != n_responses:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, n_responses]} "
            "(rows of X, and y)"
        )


def is_nan(value: float | None) -> bool:
    """Return whether a value is NaN."""
    return value is not None and bool(np.isnan(float(value)))


def check_finite(rows: Any, names: Any, missing: float | None = None) -> Any:
    """Return rows of X, whose columns have names or None.

    Raises an error that names columns with NaN or infinity.
    """
    is_storage = isinstance(rows, Storage)
    pieces = rows.pieces(np.arange(rows.n_columns)) if is_storage else [(None, rows)]
    for _, values in pieces:
        try:
            assert_all_finite(values, allow_nan=is_nan(missing), input_name="X")
        except ValueError as error:
            raise explain_not_finite(error, values, names) from None
    return rows


def check_storage(X: Storage, estimator: Any, *, reset: bool) -> None:
    """Set or compare the number of features.

    Raises TypeError if the class of X lacks what it has to define.
    """
    absent = [
        name
        for name in REQUIRED
        if getattr(getattr(X, name, None), "__isabstractmethod__", not hasattr(X, name))
    ]
    if absent:
        raise TypeError(
            f"X={type(X).__name__} does not define {', '.join(absent)}; "
            f"a penalised.Storage has to define {', '.join(REQUIRED)}"
        )
    names = X.names
    if not len(names):
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)
    elif reset:
        estimator.n_features_in_ = X.n_columns
        estimator.feature_names_in_ = np.array(names, object)
    elif not np.array_equal(known := getattr(estimator, "feature_names_in_", names), names):
        absent = [name for name in known if name not in set(names)][:5]
        raise ValueError(
            "X has other columns than in fit"
            + (f"; there is no {absent}" if absent else ", or in another order")
        )
    else:
        _check_n_features(estimator, X, reset=False)
    check_width(X.n_columns, estimator)


def check_input(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Array]:
    """Return X and y as arrays.

    A dense X keeps an integer or float dtype and its order, a sparse X becomes CSC.
    """
    X = check_sparse(unmask(X, "X", missing=may_miss(estimator)))
    check_names(X, estimator)
    with name_input(y, "y"), name_input(X):
        _refuse_gaps(refuse_dates(np.asarray(y), "y"))
        X, y = validate_data(estimator, X, y, accept_sparse="csc", dtype="numeric", **options)
        return as_numbers(X), _refuse_texts(y, options)


def check_responses(estimator: Any, y: Any, **options: Any) -> Array:
    """Return y as an array of numbers, or of labels; `options` are as in `read_samples`."""
    with name_input(y, "y"):
        _refuse_gaps(refuse_dates(np.asarray(y), "y"))
        return _refuse_texts(
            check_X_y(_nothing_but_rows(y), y, estimator=estimator, **options)[1], options
        )


def _refuse_gaps(y: Array) -> None:
    """Raise ValueError if labels, or other objects, are missing."""
    may_lack = y.dtype.kind == "O" and y.ndim == 1
    rows = [row for row, one in enumerate(y) if is_missing(one)] if may_lack else []
    if rows:
        raise ValueError(
            f"y is missing in {len(rows)} of {len(y)} rows, the first of them row {rows[0]}; leave "
            "these rows out"
        )


def _refuse_texts(y: Array, options: Named) -> Array:
    """Return y, or raise ValueError if responses should be numbers and are texts."""
    if options.get("y_numeric") and y.dtype.kind in "SU":
        raise ValueError(
            f"y has an entry that is no number: {y.flat[0].item()!r}; give numbers, or for classes "
            'use SparseLogisticRegression, or SparseGLM with loss="logistic"'
        )
    return y


def check_weights(sample_weight: Any, y: Any) -> Floats:
    """Return weights that are ≥ 0 and not all zero, or an empty array if there are none."""
    if sample_weight is None:
        return np.empty(0)
    refuse_texts(refuse_dates(np.asarray(sample_weight), "sample_weight"), "sample_weight")
    found: Floats = _check_sample_weight(
        sample_weight, _nothing_but_rows(y), dtype=np.float64, ensure_non_negative=True
    )
    return found


def cut(X: Any, rows: Any) -> Any:
    """Return some rows of X."""
    return X.tocsr()[rows].tocsc() if sparse.issparse(X) else X[rows]


def _nothing_but_rows(y: Any) -> Floats:
    """Return an empty X with as many rows as y, for checks that need an X."""
    return np.broadcast_to(0.0, (np.shape(y)[0] if np.ndim(y) else 1, 1))


def _warn_of_columns(X: Any) -> None:
    divided = isinstance(X, da.Array) and X.numblocks[1] > 1
    if divided and not X.nbytes < _COSTLY:  # NaN: unknown
        warnings.warn(
            f"X has {X.numblocks[1]} chunks of columns, which every fit puts together anew. Do it "
            "once, with X = X.rechunk({1: -1}).persist(), or build X with chunks of whole rows.",
            UserWarning,
            stacklevel=6,
        )


def reading(loss: Loss) -> Named:
    """Return options of scikit-learn's checks of y."""
    return {} if classifies(loss) else {"multi_output": declared(loss, "signed"), "y_numeric": True}
