"""Predictions of fitted sparse linear models, in this process or lazily on Dask."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.inputs.validation import (
    is_dask,
    map_rows,
    may_miss,
    name_input,
    refuse_dates,
    validate_in_memory,
)
from schmp_estimators.core.typing import Array, Named
from schmp_estimators.linear.contracts import classifies, declared, is_joint
from schmp_estimators.linear.programs.folds import class_of
from schmp_estimators.linear.programs.matrix import Storage
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.stored import is_sparse
from schmp_estimators.linear.samples import (
    check_finite,
    check_responses,
    check_storage,
    here,
    is_nan,
)

#: Elements that are converted at once when integers are predicted from.
_AT_A_TIME = 1 << 24


class LinearModel:
    """A linear model with coefficients, most of them zero."""

    coef_: Array
    intercept_: Any
    missing_values: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__name__ = _Selecting(cls.__name__)

    def _loss(self) -> Any:
        raise NotImplementedError

    @property
    def _classifies(self) -> bool:
        return classifies(self._loss())

    def predict(self, X: Any) -> Array:
        """Return predicted responses, or for a classifier the most probable class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples,) or (n_samples, n_targets)
            Predicted responses, or labels.
        """
        if self._classifies:
            dtype = getattr(self, "classes_", np.empty(0)).dtype
            return _apply_rows(self, _labels, X, "logistic-predict", dtype=dtype)
        n_targets = len(self.coef_) if np.ndim(getattr(self, "coef_", 0)) == 2 else None
        mean = declared(self._loss(), "mean")
        function: Any = partial(_means, mean) if mean else _scores
        return _apply_rows(self, function, X, "lasso-predict", n_targets)

    def _linear_values(self, X: Any) -> Array:
        """Return X·coef_ᵀ + intercept_, of shape (n_samples, n_functions), in memory."""
        return np.asarray(_apply_rows(self, _scores, X, "linear-values", len(self.coef_)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier or the R² of a regressor.

        The largest possible score is 1.  With the Poisson loss, the score is the share of the
        deviance that the predictions explain.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Responses, or class labels.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        float
            The score.
        """
        y = here(y, "y")
        weights = here(sample_weight, "sample_weight")
        predicted = np.asarray(self.predict(X))
        usual = accuracy_score if self._classifies else r2_score
        metric = declared(self._loss(), "score") or usual
        with name_input(y, "y"):
            refuse_dates(np.asarray(y), "y")
            try:
                return float(metric(y, predicted, sample_weight=weights))
            except ValueError:  # most metrics do not name y
                check_responses(self, y, multi_output=True, y_numeric=not self._classifies)
                raise

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Return the names of parameters.

        Scikit-learn would read them from the signature at each call.
        """
        return super()._get_param_names()  # type: ignore[misc]

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """`coef_` as a sparse array of two dimensions."""
        return sp.csr_array(np.atleast_2d(self.coef_))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()  # type: ignore[misc]  # those of BaseEstimator
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = is_nan(self.missing_values)
        return tags


class _Selecting(str):
    """The name of a class whose models set coefficients to zero.

    scikit-learn's `SelectFromModel` keeps all other coefficients of a model if the name of its
    class has "Lasso" in it, and of other models, or penalties that it does not know, those of more
    than average size.
    """

    __slots__ = ()

    def __contains__(self, part: object) -> bool:
        return part == "Lasso" or super().__contains__(part)  # type: ignore[operator]


class LinearRegressor(LinearModel, RegressorMixin, BaseEstimator):
    """A regressor."""


_if_it_classifies = available_if(lambda model: model._classifies)


class Deciding(LinearModel):
    """A model that may be a classifier; only then it has the methods of a classifier."""

    classes_: Array

    @_if_it_classifies
    def decision_function(self, X: Any) -> Array:
        """Return the decision values, ``X @ coef_.T + intercept_``.

        With the logistic loss, they are the log odds of each class against all others.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples,) or (n_samples, n_classes)
            Decision values.  For two classes, only those of ``classes_[1]``.
        """
        n_functions = len(getattr(self, "coef_", "?"))
        n_outputs = None if n_functions == 1 else n_functions
        return _apply_rows(self, _scores, X, "logistic-decision-function", n_outputs)

    @_if_it_classifies
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        If each class was fitted against all others, the probabilities are divided by their sum over
        the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; each row sums to 1.
        """
        return self._of_classes(_probabilities, X, "logistic-predict-proba")

    @_if_it_classifies
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples, n_classes)
            Logarithms of probabilities.
        """
        return self._of_classes(_log_probabilities, X, "logistic-predict-log-proba")

    def _of_classes(self, function: Any, X: Any, name: str) -> Any:
        function = partial(function, joint=is_joint(self._loss()))
        return _apply_rows(self, function, X, name, len(getattr(self, "classes_", ())))


class LinearClassifier(Deciding, ClassifierMixin, BaseEstimator):
    """A classifier."""


def _labels(scores: Array, classes: Array) -> Array:
    return classes[class_of(scores)]


def _probabilities(scores: Array, classes: Array, joint: bool) -> Array:
    return np.exp(_log_probabilities(scores, classes, joint))


def _log_probabilities(scores: Array, classes: Array, joint: bool) -> Array:
    """Return logarithms of probabilities, without underflow.

    A `joint` loss is one of all classes at once.
    """
    if scores.shape[1] == 1:
        return np.column_stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])])
    return log_softmax(scores if joint else log_expit(scores), axis=1)


def _apply_rows(
    estimator: Any,
    function: Callable[[Any, Any], Any],
    X: Any,
    name: str,
    n_outputs: int | None = None,
    dtype: Any = np.float64,
) -> Any:
    """Apply a fitted estimator row by row: now, if X is in memory, and lazily, if it is on Dask.

    ``function(scores, classes)`` gets the values X·coef_ᵀ + intercept_.  It returns an array of
    shape (n_rows, n_outputs), or of shape (n_rows,) if `n_outputs` is None.
    """
    check_is_fitted(estimator)
    coef = np.asarray(estimator.coef_, dtype=np.float64).T
    missing = (
        estimator.missing_values,
        getattr(estimator, "fill_values_", np.full(len(coef), np.nan)),
    )
    model = (coef, estimator.intercept_, getattr(estimator, "classes_", None), missing)
    if isinstance(X, Storage):
        check_storage(X, estimator, reset=False)
        return _apply(function, X, model)
    if not is_dask(X):
        options: Named = {"accept_sparse": ("csr", "csc"), "dtype": "numeric"}
        options["ensure_all_finite"] = "allow-nan" if may_miss(estimator) else True
        return _apply(function, validate_in_memory(X, estimator, reset=False, **options), model)
    of_chunk = partial(_apply_to_chunk, function, getattr(estimator, "feature_names_in_", None))
    count = n_outputs or 1
    outputs = map_rows(of_chunk, X, estimator, model, n_outputs=count, dtype=dtype, name=name)
    if n_outputs is not None:
        return outputs
    return [one[:, 0] for one in outputs] if isinstance(outputs, list) else outputs[:, 0]


def _apply(function: Callable[[Any, Any], Any], X: Any, model: tuple[Any, Any, Any, Any]) -> Any:
    coef, intercept, classes, (missing, fill) = model
    if missing is not None and not isinstance(X, Storage):
        X = with_missing(X, missing)
    if isinstance(X, Storage):
        values = _combined(X.filled(fill) if X.may_miss else X, coef)
    elif is_sparse(X) or X.dtype.kind == "f":
        values = safe_sparse_dot(X, coef, dense_output=True)
    else:
        step = max(1, _AT_A_TIME // X.shape[1])
        starts = range(0, max(1, len(X)), step)
        values = np.concatenate([X[at : at + step].astype(np.float64) @ coef for at in starts])
    return function(values + intercept, classes)


def _combined(X: Storage, coef: Array) -> Array:
    """Return X·coef for coefficients (p,) or (p, k), most of them zero."""
    functions = [(one, np.flatnonzero(one)) for one in np.atleast_2d(coef.T)]
    found = np.stack([X.combine(used, one[used]) for one, used in functions], axis=-1)
    if not np.isfinite(found).all():
        check_finite(X, None)
    return found if coef.ndim == 2 else found[:, 0]


def _apply_to_chunk(
    function: Callable[[Any, Any], Any], names: Any, rows: Any, model: tuple[Any, Any, Any, Any]
) -> Any:
    outputs = _apply(function, check_finite(rows, names, model[3][0]), model)
    return outputs if outputs.ndim == 2 else outputs[:, None]


def _means(mean: Callable[[Any], Any], values: Any, classes: Any) -> Any:
    """Return predictions of decision values."""
    return mean(values)


def _scores(values: Any, classes: Any) -> Any:
    """Return decision values unchanged; those of a single function have one dimension."""
    return values[:, 0] if values.shape[1:] == (1,) and classes is not None else values
