"""Sparse logistic regression with the penalty chosen by cross-validation."""

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.metrics import get_scorer, get_scorer_names, make_scorer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params

from schmp_estimators.core.following import undone_on_error
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.cross_validated import (
    CV_CONSTRAINTS,
    CrossValidatedEstimator,
    FoldFits,
    Results,
    best_of,
    brief,
    positive_values,
)
from schmp_estimators.linear.logistic import SparseLogisticRegression, _LinearClassifier, class_weights

#: Part of the objective at zero below which gaps are rounding.
_ROUNDING = 1e-12


class SparseLogisticRegressionCV(CrossValidatedEstimator, _LinearClassifier):
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
        Weights of the classes in fits, not in scores; "balanced": inversely proportional to their frequencies among
        all samples.
    max_iter : int, default=1000
        Most outer steps for each C.
    tol : float, default=1e-7
        Duality gap to reach, as a part of the objective at zero in folds (see `SparseLogisticRegression`), of the
        objective reached in the fit on all samples.  Where a large C separates the classes, the objective reached is
        so much smaller than that at zero that a larger `tol` would leave coefficients and scores undetermined.
    n_jobs : int or None, default=None
        Folds worked on at a time, in threads; None means 1, -1 all processors.
    verbose : int or bool, default=0
        Whether to show a progress bar, which needs the package rich.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    C_ : float
        Value with the largest mean score over folds, the smallest of equals.
    Cs_ : ndarray of shape (n_Cs,)
        Values tried, rising.
    scores_ : ndarray of shape (n_Cs, n_folds)
        Score of each held-out fold, weighted by `sample_weight`; NaN where a callback has ended a path.
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
    sklearn.linear_model.LogisticRegressionCV : Of two classes, chooses the same C with ``l1_ratios=(1,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import SparseLogisticRegressionCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> y = X[:, 0] > 0
    >>> SparseLogisticRegressionCV(Cs=[0.01, 0.1, 1.0]).fit(X, y).scores_.shape
    (3, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012  (scikit-learn's convention)
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "scoring": [StrOptions(set(get_scorer_names())), callable, None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        **CV_CONSTRAINTS,
    }
    _n_tasks = 3

    def __init__(
        self,
        *,
        Cs: Any = 10,
        cv: Any = None,
        scoring: Any = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-7,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose C, and fit the model with it on all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in fits and in the score of each fold; folds count alike, as in
            `LogisticRegressionCV`.
        **params
            Arguments of the splitter and the scorer: `groups`, and with ``enable_metadata_routing=True`` whatever `cv`
            and `scoring` ask for.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are not finite, are empty or of different lengths, or the weights are negative or
            all zero; if y holds one class only, or what a fold is fitted to does; if `Cs` are not positive; if a fold
            has no samples to fit, or none held out, or its score is NaN.
        TypeError
            If X is on Dask: folds cannot be cut out of it.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        shared.refuse_dask("SparseLogisticRegressionCV", X)
        with undone_on_error(self):
            return self._fit(X, y, sample_weight, params)

    def _fit(self, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        y, sample_weight = shared.here(y), shared.here(sample_weight)
        X, y = shared.check_input(self, X, y)
        check_classification_targets(y)
        weights = shared.check_weights(sample_weight, X)
        values = positive_values("Cs", self.Cs)
        routed = self._route(sample_weight, params)
        folds = self._folds(X, y, weights, routed)
        if weights is not None:  # what has no weight may be of a class that no fit knows
            folds = [(train, np.arange(len(y))[test][weights[test] > 0.0]) for train, test in folds]
        classes, used = self._weigh_classes(y, weights)
        rows = X.tocsr() if shared.is_sparse(X) else X
        with self._followed(X, y) as context:
            self.Cs_ = np.logspace(-4, 4, int(self.Cs)) if values is None else values
            fits = partial(self._fits, rows, y, used, classes, routed.score)
            self.scores_ = self._fit_folds(context, folds, len(self.Cs_), fits)
            self.C_ = float(self.Cs_[best_of(self.scores_)])
            final = self._fit_to_objective(context, X, y, used)
            self.classes_, self.coef_, self.intercept_ = final.classes_, final.coef_, final.intercept_
            self.dual_gap_, self.n_iter_ = final.dual_gap_, final.n_iter_
        return self

    def _scorer(self) -> Any:
        return get_scorer(self.scoring or "accuracy")

    def _weigh_classes(self, y: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the classes that have weight, and the weights of samples times those of their classes."""
        used = np.ones(len(y), bool) if weights is None else weights > 0.0
        classes = np.unique(y[used])
        given = np.empty(0) if weights is None else weights[used]
        factors = class_weights(self.class_weight, classes, y[used], given)
        if not len(factors):
            return classes, None
        weighed = np.zeros(len(y))
        weighed[used] = factors
        return classes, weighed

    def _model(self, C: float) -> SparseLogisticRegression:
        return SparseLogisticRegression(
            C, fit_intercept=self.fit_intercept, max_iter=self.max_iter, tol=self.tol, warm_start=True
        )

    def _fit_to_objective(
        self, context: Any, X: Any, y: np.ndarray, weights: np.ndarray | None
    ) -> SparseLogisticRegression:
        """Fit on all samples; a gap that is small beside the objective at zero may be large beside the one reached."""
        model = self._fit_all(context, self._model(self.C_), shared.LocalPlace(), X, y, weights)
        weigh = np.ones(len(y)) if weights is None else weights
        values = model.decision_function(X).reshape(len(y), -1)
        others = model.classes_ if len(model.classes_) > 2 else model.classes_[1:]
        losses = np.logaddexp(0.0, np.where(y[:, None] == others, -values, values))
        objectives = np.abs(model.coef_).sum(axis=1) + self.C_ * (weigh @ losses)
        if (model.dual_gap_ <= self.tol * objectives).all():
            return model
        part = float(objectives.min()) / (self.C_ * float(weigh.sum()) * np.log(2.0))
        steps = model.n_iter_
        self._fit_all(
            context, model.set_params(tol=max(self.tol * part, _ROUNDING)), shared.LocalPlace(), X, y, weights
        )
        model.n_iter_ = model.n_iter_ + steps
        return model

    def _fits(
        self,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        classes: np.ndarray,
        score_params: Mapping[str, Any],
        train: Any,
        test: Any,
    ) -> FoldFits:
        """Cut a fold out: the samples to fit, and the held-out score of each C."""
        part = X[train].tocsc() if shared.is_sparse(X) else X[train]
        used = None if weights is None else weights[train]
        found = np.unique(y[train] if used is None else y[train][used > 0.0])
        if len(found) < 2:
            raise ValueError(
                f"cv={brief(self.cv)} leaves one class only, {found[0]!r}, to fit a fold to; give a splitter "
                "that spreads each class over the folds, such as StratifiedKFold, or fewer folds"
            )
        held_out, y_test = X[test], y[test]
        scorer = _knowing_classes(self._scorer(), classes)
        given = _check_method_params(X, score_params, indices=test)

        def score(model: SparseLogisticRegression) -> float:
            return float(scorer(model, held_out, y_test, **given))

        return FoldFits(part, y[train], self._scores(part, y[train], used, classes, score))

    def _scores(
        self,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        classes: np.ndarray,
        score: Callable[[SparseLogisticRegression], float],
    ) -> Results:
        """Yield the score of each C on held-out samples, and the attributes of its fit."""
        model = self._model(float(self.Cs_[0]))
        for C in self.Cs_.tolist():
            model.set_params(C=C)._fit_on(shared.LocalPlace(), X, y, weights)
            fitted = _with_all_classes(model, classes)
            value = score(fitted)
            if np.isnan(value):
                raise ValueError(
                    f"scoring={self.scoring!r} is NaN on a fold of cv={brief(self.cv)}; give a splitter that holds out "
                    "samples of every class, such as StratifiedKFold, or fewer folds"
                )
            yield value, partial(dict, C_=C, classes_=classes, coef_=fitted.coef_, intercept_=fitted.intercept_)


def _with_all_classes(model: SparseLogisticRegression, classes: np.ndarray) -> SparseLogisticRegression:
    """Return a fitted model for which classes that it was not fitted to are impossible."""
    if len(model.classes_) == len(classes):
        return model
    whole, signs = copy.copy(model), np.array([[-1.0], [1.0]]) if len(model.classes_) == 2 else 1.0
    known = np.searchsorted(classes, model.classes_)
    whole.classes_, whole.coef_ = classes, np.zeros((len(classes), model.coef_.shape[1]))
    whole.intercept_ = np.full(len(classes), -np.inf)
    whole.coef_[known] = signs * model.coef_
    whole.intercept_[known] = np.ravel(signs) * model.intercept_
    return whole


def _knowing_classes(scorer: Any, classes: np.ndarray) -> Any:
    """Return a scorer that takes labels for given, where its metric takes any: a fold may lack some of them."""
    metric = getattr(scorer, "_score_func", None)
    known = inspect.signature(metric).parameters if metric else {}
    if "labels" not in known:
        return scorer
    options = {"labels": classes, **getattr(scorer, "_kwargs", {})}
    if len(classes) == 2 and "pos_label" in known:
        options = {"pos_label": classes[1], **options}
    return make_scorer(metric, greater_is_better=scorer._sign == 1, response_method=scorer._response_method, **options)
