"""Sparse logistic regression with the penalty chosen by cross-validation."""

import inspect
from collections.abc import Mapping
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

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.places.place import Place
from schmp_estimators.linear.classifier import LinearClassifier, class_weights
from schmp_estimators.linear.cross_validated import (
    CV_CONSTRAINTS,
    CrossValidatedEstimator,
    Given,
    best_of,
    brief,
    make_plan,
    positive_values,
    within_one_standard_error,
)
from schmp_estimators.linear.fold_paths import LogisticFold
from schmp_estimators.linear.folding import FoldedProblem
from schmp_estimators.linear.following import PENALTY_CONSTRAINTS
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.penalties.choose import unit_penalty
from schmp_estimators.linear.programs.folds import Decisions, OfFold, Right
from schmp_estimators.linear.programs.path import PathOptions
from schmp_estimators.linear.programs.smooth import SmoothModel

#: Part of the objective at zero below which gaps are rounding.
_ROUNDING = 1e-12


class SparseLogisticRegressionCV(CrossValidatedEstimator, LinearClassifier):
    """Sparse logistic regression whose C is chosen by cross-validation, each fold along a warm-started path.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C, or how many to space geometrically between 1e-4 and 1e4.
    l1_ratio : float, default=1.0
        Part of the penalty that is absolute values; see `SparseLogisticRegression`.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors of the penalty of each coefficient, 0 for columns that are never penalised; see
        `SparseLogisticRegression`.
    cv : int, cross-validation generator or iterable, default=None
        How samples are split; None: five stratified folds.
    scoring : str, callable or None, default=None
        What to maximise on held-out samples; None: accuracy.  On Dask accuracy is counted on the workers, and for other
        scores decision values come here, 8 bytes a sample and class; a callable gets an estimator that predicts from
        these, and them as X.
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
        Folds worked on at a time, in threads; None means 1, -1 all processors.  Not used on a Dask cluster, where all
        folds are.
    verbose : int or bool, default=0
        Whether to show a progress bar, which needs the package rich.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    C_ : float
        Value with the largest mean score over folds, the smallest of equals.
    C_1se_ : float
        Smallest value whose mean score is at most one standard error, that of the largest mean, below the largest mean:
        a simpler model that is about as good.
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
        **PENALTY_CONSTRAINTS,
        **CV_CONSTRAINTS,
    }
    _n_tasks = 3

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
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
        self.l1_ratio = l1_ratio
        self.penalty_factors = penalty_factors
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
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.  On Dask it stays where it is; it is read twice or three times, for the folds and for fits on all
            samples: persist it if reading takes long.
        y : array-like or Dask collection of shape (n_samples,)
            Class labels.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
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
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if y holds one class only, or what a fold is fitted to does; if `Cs` are not positive; if a fold
            has no samples to fit, or none held out, or its score is NaN.
        TypeError
            If X is a Dask collection of another kind than arrays, data frames and lists of Delayed objects.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        return self._fit_where_x_is(X, y, sample_weight, params)

    def _fit(self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        given = self._read(place, X, y, sample_weight)
        check_classification_targets(given.y)
        values = positive_values("Cs", self.Cs)
        routed = self._route(sample_weight, params)
        folds = self._folds(given, routed)
        counted = np.ones(len(given.y), bool) if given.weights is None else given.weights > 0.0
        classes, factors = self._weigh_classes(given.y, given.weights)
        fitted = counted if factors is None else factors > 0.0
        given = given._replace(weights=factors)
        codes = np.searchsorted(classes, given.y[counted])
        self._check_folds(classes, folds, given.y, fitted)
        unit = 1.0
        if factors is not None and (factors[counted] == factors[counted][0]).all():
            unit, factors = float(factors[counted][0]), None
        samples, _ = given._replace(weights=factors).rows(counted)
        scored = routed.score.get("sample_weight")
        responses: list[Any] = [codes]
        if factors is not None:  # weights in scores are others, without those of classes
            responses.append(np.ones(len(codes)) if scored is None else np.asarray(scored, np.float64)[counted])
        self.Cs_ = np.logspace(-4, 4, int(self.Cs)) if values is None else values
        plan = make_plan(folds, fitted, counted)
        with self._opened(place, given, samples, np.array(responses), plan, "logistic-cv") as (problem, context):
            penalty = unit_penalty(problem.extent.n_columns, self.l1_ratio, self.penalty_factors)
            options = PathOptions(penalty, self.tol, self.max_iter, self.fit_intercept)
            scores = partial(self._score, given, folds, routed.score, classes, np.flatnonzero(counted), problem)

            def path(number: int) -> LogisticFold:
                found = np.unique(codes[plan.folds[number][0]])
                return LogisticFold(problem, options, number, found, classes, unit, partial(scores, number))

            self.scores_ = self._fit_folds(context, given, folds, problem, self.Cs_.tolist(), path)
            problem.close()
            self.C_ = float(self.Cs_[best_of(self.scores_)])
            self.C_1se_ = float(self.Cs_[within_one_standard_error(self.scores_)])
            final = self._fit_to_objective(context, place, given)
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

    def _check_folds(self, classes: np.ndarray, folds: Any, y: np.ndarray, fitted: np.ndarray) -> None:
        for train, _ in folds:
            found = np.unique(y[train][fitted[train]])
            if len(found) < 2:
                raise ValueError(
                    f"cv={brief(self.cv)} leaves one class only, {found[0]!r}, to fit a fold to; give a splitter "
                    "that spreads each class over the folds, such as StratifiedKFold, or fewer folds"
                )

    def _fit_to_objective(self, context: Any, place: Place, given: Given) -> SparseLogisticRegression:
        """Fit on all samples; a gap that is small beside the objective at zero may be large beside the one reached."""
        model = SparseLogisticRegression(
            self.C_,
            l1_ratio=self.l1_ratio,
            penalty_factors=self.penalty_factors,
            fit_intercept=self.fit_intercept,
            max_iter=self.max_iter,
            tol=self.tol,
            warm_start=True,
        )
        models: list[SmoothModel] = []
        self._fit_all(context, model, place, given, models=models)
        parts = np.array([one.objective / one.null_objective for one in models])
        gaps = np.array([one.certified_gap / one.null_objective for one in models])
        if (gaps <= self.tol * parts).all():
            return model
        steps = model.n_iter_
        self._fit_all(context, model.set_params(tol=max(self.tol * float(parts.min()), _ROUNDING)), place, given)
        model.n_iter_ = model.n_iter_ + steps
        return model

    def _score(
        self,
        given: Given,
        folds: Any,
        params: Mapping[str, Any],
        classes: np.ndarray,
        kept: np.ndarray,
        problem: FoldedProblem,
        number: int,
        fold: LogisticFold,
    ) -> Steps:
        """Return the score of a fold's present fit."""
        if self.scoring in (None, "accuracy") and set(params) <= {"sample_weight"}:
            right, total = yield Sum(OfFold(number, Right(fold.functions(), fold.codes)))
            return right / total
        partials = yield OfFold(number, Decisions(fold.functions()))
        values = np.concatenate([one for one in partials if one is not None], axis=1)
        rows = kept[problem.held_out(number)]
        options = _check_method_params(given.y, params, indices=rows)
        scorer = _knowing_classes(self._scorer(), classes)
        if hasattr(scorer, "_response_method") or is_dask(given.X):
            model, X = fold.on_decisions(), values.T
        else:
            model, X = fold.fitted(), fold.held_out_rows(given.X, rows)
        value = float(scorer(model, X, given.y[rows], **options))
        if np.isnan(value):
            raise ValueError(
                f"scoring={self.scoring!r} is NaN on a fold of cv={brief(self.cv)}; give a splitter that holds out "
                "samples of every class, such as StratifiedKFold, or fewer folds"
            )
        return value


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
