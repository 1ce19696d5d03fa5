"""Predictions of fitted L1 models, here or lazily where chunks of X are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from schmp_estimators.core.door.inputs import is_dask, map_rows, name_input
from schmp_estimators.core.door.sparse_arrays import check_sparse
from schmp_estimators.linear.data.samples import check_finite
from schmp_estimators.linear.programs.input import is_sparse

#: Elements that are converted at once when integers are predicted from.
_AT_A_TIME = 1 << 24


def apply_rows(
    estimator: Any, function: Callable[[Any, Any], Any], X: Any, *, n_outputs: int | None, dtype: Any, name: str
) -> Any:
    """Apply a fitted estimator row by row: now, if X is in memory, and lazily, if it is on Dask.

    ``function(scores, classes)`` makes of the values X·coef_ᵀ + intercept_ what is wanted: an array of shape
    (n_rows, n_outputs), or of shape (n_rows,) if `n_outputs` is None.
    """
    check_is_fitted(estimator)
    coef = np.asarray(estimator.coef_, dtype=np.float64).T
    model = (coef, estimator.intercept_, getattr(estimator, "classes_", None))
    if not is_dask(X):
        with name_input(X):
            X = validate_data(estimator, check_sparse(X), accept_sparse=("csr", "csc"), dtype="numeric", reset=False)
        return _apply(function, X, model)
    of_chunk = partial(_apply_to_chunk, function, type(estimator).__name__)
    outputs = map_rows(of_chunk, X, estimator, model, n_outputs=n_outputs or 1, dtype=dtype, name=name)
    if n_outputs is not None:
        return outputs
    return [one[:, 0] for one in outputs] if isinstance(outputs, list) else outputs[:, 0]


def _apply(function: Callable[[Any, Any], Any], X: Any, model: tuple[Any, Any, Any]) -> Any:
    coef, intercept, classes = model
    if is_sparse(X) or X.dtype.kind == "f":
        return function(safe_sparse_dot(X, coef, dense_output=True) + intercept, classes)
    step = max(1, _AT_A_TIME // X.shape[1])
    blocks = [X[start : start + step].astype(np.float64) @ coef for start in range(0, max(1, len(X)), step)]
    return function(np.concatenate(blocks) + intercept, classes)


def _apply_to_chunk(function: Callable[[Any, Any], Any], owner: str, rows: Any, model: tuple[Any, Any, Any]) -> Any:
    outputs = _apply(function, check_finite(rows, owner), model)
    return outputs if outputs.ndim == 2 else outputs[:, None]


def scores(values: Any, classes: Any) -> Any:
    """Return decision values as they are, those of one function in one dimension."""
    return values.ravel() if values.ndim == 2 and values.shape[1] == 1 and classes is not None else values
