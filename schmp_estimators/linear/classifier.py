"""What the coefficients of a linear classifier predict, and the weights of its classes."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from schmp_estimators.linear.predicting import Scored, apply_rows, scores

#: Classes up to which scikit-learn does not warn that y may be a response, and integers that float64 can hold.
_FEW, _EXACT = 10, 2.0**53


class LinearClassifier(Scored, ClassifierMixin, BaseEstimator):
    """A classifier with coefficients, most of them zero."""

    coef_: np.ndarray
    intercept_: np.ndarray
    classes_: np.ndarray

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the log odds of each class against all others.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples,) or (n_samples, n_classes)
            For two classes the log odds of ``classes_[1]``.
        """
        n_functions = len(getattr(self, "coef_", "?"))
        n_outputs = None if n_functions == 1 else n_functions
        return apply_rows(self, scores, X, n_outputs=n_outputs, dtype=np.float64, name="logistic-decision-function")

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each sample.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples,)
            Class labels.
        """
        dtype = getattr(self, "classes_", np.empty(0)).dtype
        return apply_rows(self, _labels, X, n_outputs=None, dtype=dtype, name="logistic-predict")

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class; of more than two classes, those of one-versus-rest, normalised.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`; each row sums to 1.
        """
        n_classes = len(getattr(self, "classes_", ()))
        return apply_rows(self, _probabilities, X, n_outputs=n_classes, dtype=np.float64, name="logistic-predict-proba")

    def predict_log_proba(self, X: Any) -> np.ndarray:
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
        n_classes = len(getattr(self, "classes_", ()))
        return apply_rows(
            self, _log_probabilities, X, n_outputs=n_classes, dtype=np.float64, name="logistic-predict-log-proba"
        )

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """`coef_` as a sparse array of the same shape."""
        return sp.csr_array(self.coef_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _labels(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    return classes[(scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)]


def _probabilities(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])
    # a row whose probabilities all underflow keeps its order: the largest log odds are taken out first
    logarithms = -np.logaddexp(0.0, -scores)
    odds = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def _log_probabilities(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    return np.log(_probabilities(scores, classes))


def find_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, in order, and for each sample the number of its own.

    Raises
    ------
    ValueError
        If y holds numbers that are no classes.
    """
    if y.dtype.kind not in "biuf":
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    classes = np.unique(y)
    numbers = classes.astype(np.float64)
    are_integers = (abs(numbers) < _EXACT).all() and (numbers == np.floor(numbers)).all()
    if len(classes) > _FEW or not are_integers:  # of others scikit-learn would have nothing to say, after a long look
        check_classification_targets(y)
    return classes, np.searchsorted(classes, y)


def class_weights(class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sample weights times class weights; empty if there are neither."""
    if class_weight is None:
        return weights
    given = weights if len(weights) else None
    per_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=given)
    factors = per_class[np.searchsorted(classes, y)]
    return factors if given is None else weights * factors
