"""Predictions of fitted L1 models, here or lazily where chunks of X are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.door.inputs import is_dask, map_rows, validate_in_memory
from schmp_estimators.linear.data.samples import check_finite, check_responses, here
from schmp_estimators.linear.programs.input import is_sparse

#: Elements that are converted at once when integers are predicted from.
_AT_A_TIME = 1 << 24


class Scored:
    """Has scikit-learn's score, of responses and weights that are checked as those of a fit are."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return how good predictions are, 1 at best: R² of a regressor, accuracy of a classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Their responses, or class labels.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        float
            The score.
        """
        y = check_responses(self, here(y, "y"), multi_output=True, y_numeric=is_regressor(self))
        scored: Any = super()
        return float(scored.score(X, y, here(sample_weight, "sample_weight")))


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
        options: dict[str, Any] = {"accept_sparse": ("csr", "csc"), "dtype": "numeric"}
        return _apply(function, validate_in_memory(X, estimator, reset=False, **options), model)
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
