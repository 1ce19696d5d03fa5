"""Sparse logistic regression with the penalty chosen by cross-validation."""

from numbers import Integral
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import _fit_context
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets

from schmp_estimators.estimators import _regression as shared
from schmp_estimators.estimators._base import undone_on_error
from schmp_estimators.estimators._certified import CONSTRAINTS
from schmp_estimators.estimators.logistic import SparseLogisticRegression, _LinearClassifier


class SparseLogisticRegressionCV(_LinearClassifier):
    """Sparse logistic regression whose C is chosen by cross-validation, each fold along a warm-started path.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C, or how many to space geometrically between 1e-4 and 1e4.
    cv : int, cross-validation generator or iterable, default=None
        How samples are split; None: five stratified folds.
    scoring : str, callable or None, default=None
        What to maximise on held-out samples; None: accuracy.
    fit_intercept : bool, default=True
        Whether to fit the intercept.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; see `SparseLogisticRegression`.
    max_iter : int, default=1000
        Most outer steps for each C.
    tol : float, default=1e-4
        Duality gap to reach; see `SparseLogisticRegression`.
    n_jobs : int or None, default=None
        Folds worked on at a time, in threads; None means 1, -1 all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    C_ : float
        Value with the best mean score, the smallest of equals.
    Cs_ : ndarray of shape (n_Cs,)
        Values tried, rising.
    scores_ : ndarray of shape (n_Cs, n_folds)
        Score of each held-out fold.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of the fit on all samples with `C_`.
    sparse_coef_ : sparse array of the same shape
        `coef_` without its zeros.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_gap_ : ndarray of shape (1,) or (n_classes,)
        Duality gaps of the fit on all samples.
    n_iter_ : ndarray of shape (1,) or (n_classes,)
        Outer steps of the fit on all samples.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if X has any that are all strings.

    See Also
    --------
    SparseLogisticRegression : The same with a given C.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.estimators.logistic_cv import SparseLogisticRegressionCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> y = X[:, 0] > 0
    >>> SparseLogisticRegressionCV(Cs=[0.01, 0.1, 1.0]).fit(X, y).scores_.shape
    (3, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012  (scikit-learn's convention)
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "cv": ["cv_object"],
        "scoring": [str, callable, None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        **CONSTRAINTS,
    }

    def __init__(
        self,
        *,
        Cs: Any = 10,
        cv: Any = None,
        scoring: Any = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        n_jobs: int | None = None,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose C, and fit the model with it on all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in fits and in scores.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are not finite, are empty or of different lengths, or the weights are negative or
            all zero; if y holds one class only; if `Cs` are not positive.
        TypeError
            If X is on Dask: folds cannot be cut out of it.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        shared.refuse_dask("SparseLogisticRegressionCV", X)
        with undone_on_error(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        y, sample_weight = shared.here(y), shared.here(sample_weight)
        X, y = shared.check_input(self, X, y)
        check_classification_targets(y)
        weights = shared.check_weights(sample_weight, X)
        self.Cs_ = self._values()
        rows = X.tocsr() if shared.is_sparse(X) else X
        folds = check_cv(self.cv, y, classifier=True).split(X, y)
        scores = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(self._fold_scores)(rows, y, weights, train, test) for train, test in folds
        )
        self.scores_ = np.array([score for score, _ in scores]).T
        sizes = [size for _, size in scores] if weights is not None else None
        best = int(np.argmax(np.average(self.scores_, axis=1, weights=sizes)))
        self.C_ = float(self.Cs_[best])
        final = self._model(self.C_)._fit_on(shared.LocalRuntime(), X, y, weights)
        self.classes_, self.coef_, self.intercept_ = final.classes_, final.coef_, final.intercept_
        self.dual_gap_, self.n_iter_ = final.dual_gap_, final.n_iter_
        return self

    def _values(self) -> np.ndarray:
        if isinstance(self.Cs, Integral):
            return np.logspace(-4, 4, int(self.Cs))
        values = np.sort(np.asarray(self.Cs, dtype=np.float64).ravel())
        if not len(values) or not (values > 0.0).all() or not np.isfinite(values).all():
            raise ValueError(f"Cs={self.Cs!r}; give positive finite numbers, or how many to space geometrically")
        return values

    def _model(self, C: float, warm_start: bool = False) -> SparseLogisticRegression:
        return SparseLogisticRegression(
            C,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            max_iter=self.max_iter,
            tol=self.tol,
            warm_start=warm_start,
        )

    def _fold_scores(
        self, X: Any, y: np.ndarray, weights: np.ndarray | None, train: np.ndarray, test: np.ndarray
    ) -> tuple[list[float], float]:
        """Return the held-out score of each C, and the weight of the fold."""
        part = X[train].tocsc() if shared.is_sparse(X) else X[train]
        model = self._model(float(self.Cs_[0]), warm_start=True)
        scorer = check_scoring(model, scoring=self.scoring)
        held_out = None if weights is None else weights[test]
        options = {} if held_out is None else {"sample_weight": held_out}
        scores = []
        for value in self.Cs_:
            model.set_params(C=float(value))._fit_on(
                shared.LocalRuntime(), part, y[train], None if weights is None else weights[train]
            )
            scores.append(float(scorer(model, X[test], y[test], **options)))
        return scores, float(len(test) if held_out is None else held_out.sum())
