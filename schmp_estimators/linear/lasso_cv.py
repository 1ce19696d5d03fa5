"""The Lasso with the penalty chosen by cross-validation along a path."""

from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils.validation import column_or_1d

from schmp_estimators.core.places.place import Place
from schmp_estimators.linear.cross_validated import (
    CrossValidatedEstimator,
    best_of,
    make_plan,
    within_one_standard_error,
)
from schmp_estimators.linear.fold_paths import FoldAtHand, LassoFold
from schmp_estimators.linear.lasso import PrioritizedLasso, _LinearRegressor
from schmp_estimators.linear.lasso_path import PATH_CONSTRAINTS, falling, geometric
from schmp_estimators.linear.penalties.choose import unit_penalty
from schmp_estimators.linear.programs.choose import choose_solver
from schmp_estimators.linear.programs.path import PathOptions


class PrioritizedLassoCV(CrossValidatedEstimator, _LinearRegressor):
    """Lasso whose penalty is chosen by cross-validation along a path.

    Parameters
    ----------
    eps : float, default=1e-3
        Ratio of the smallest to the largest alpha, where `alphas` is a number.
    alphas : int or array-like, default=100
        Penalties, or how many.
    l1_ratio : float, default=1.0
        Part of the penalty that is absolute values; see `PrioritizedLasso`.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors of the penalty of each coefficient, 0 for columns that are never penalised; see `PrioritizedLasso`.
    cv : int, cross-validation generator or iterable, default=None
        How samples are split; None: five folds.
    fit_intercept : bool, default=True
        Whether to fit the intercept.
    positive : bool, default=False
        Whether coefficients are restricted to be ≥ 0.
    max_iter : int, default=1000
        Most outer steps for each alpha.
    tol : float, default=1e-4
        Duality gap to reach; see `prioritized_lasso_path` for the folds, `PrioritizedLasso` for the fit on all samples.
    n_jobs : int or None, default=None
        Folds worked on at a time, in threads; None means 1, -1 all processors.  Not used on a Dask cluster, where all
        folds are.
    verbose : int or bool, default=0
        Whether to show a progress bar, which needs the package rich.

    Attributes
    ----------
    alpha_ : float
        Penalty with the smallest mean over folds of the mean squared error, the largest of equals.
    alpha_1se_ : float
        Largest penalty whose mean is at most one standard error, that of the smallest mean, above the smallest mean:
        a simpler model that is about as good.
    alphas_ : ndarray of shape (n_alphas,)
        Penalties tried, falling.
    mse_path_ : ndarray of shape (n_alphas, n_folds)
        Mean squared error of each held-out fold, weighted by `sample_weight`; NaN where a callback has ended a path.
    coef_ : ndarray of shape (n_features,)
        Coefficients of the fit on all samples with `alpha_`.
    sparse_coef_ : sparse array of shape (1, n_features)
        `coef_` without its zeros.
    intercept_ : float
        Intercept.
    dual_gap_ : float
        Duality gap of the fit on all samples.
    n_iter_ : int
        Outer steps of the fit on all samples.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if X has any that are all strings.

    See Also
    --------
    PrioritizedLasso : The same with a given penalty.
    prioritized_lasso_path : Solutions for all penalties.
    sklearn.linear_model.LassoCV : Chooses the same penalty.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import PrioritizedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=100)
    >>> PrioritizedLassoCV(alphas=20).fit(X, y).mse_path_.shape
    (20, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = PATH_CONSTRAINTS

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        cv: Any = None,
        fit_intercept: bool = True,
        positive: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.eps = eps
        self.alphas = alphas
        self.l1_ratio = l1_ratio
        self.penalty_factors = penalty_factors
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the penalty, and fit the model with it on all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.  On Dask it stays where it is; it is read twice, for the folds and for the fit on all samples:
            persist it if reading takes long.
        y : array-like or Dask collection of shape (n_samples,)
            Responses.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, in fits and in the error of each fold; folds count alike, as in `LassoCV`.
        **params
            Arguments of the splitter: `groups`, and with ``enable_metadata_routing=True`` whatever `cv` asks for.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if `alphas` are not positive; if a fold has no samples to fit, or none held out.
        TypeError
            If X is a Dask collection of another kind than arrays, data frames and lists of Delayed objects.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        return self._fit_where_x_is(X, y, sample_weight, params)

    def _fit(self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        given = self._read(place, X, y, sample_weight, y_numeric=True)
        given = given._replace(y=column_or_1d(given.y).astype(np.float64, copy=False))
        alphas, count = falling(self.alphas)
        folds = self._folds(given, self._route(sample_weight, params))
        used = np.ones(len(given.y), bool) if given.weights is None else given.weights > 0.0
        samples, target = given.rows(used)
        plan = make_plan(folds, used, used)
        with self._opened(place, given, samples, target, plan, "lasso-cv") as (problem, context):
            shape = self.l1_ratio, self.penalty_factors, self.positive
            penalty = unit_penalty(problem.extent.n_columns, *shape)
            options = PathOptions(penalty, self.tol, self.max_iter, self.fit_intercept)
            found = problem.fetch(choose_solver(None, problem.extent, count, penalty), options)
            if alphas is None:
                whole = found(len(folds))
                if whole is None:
                    [largest] = problem.run([LassoFold(problem, options, len(folds)).largest])
                else:
                    largest = whole.largest(0) / whole.total
                alphas = geometric(largest, count, self.eps)
            paths = partial(FoldAtHand, problem, options, found=found, alphas=alphas)
            self.alphas_ = alphas
            self.mse_path_ = self._fit_folds(context, given, folds, problem, alphas.tolist(), paths)
            problem.close()
            self.alpha_ = float(alphas[best_of(-self.mse_path_)])
            self.alpha_1se_ = float(alphas[within_one_standard_error(-self.mse_path_)])
            model = PrioritizedLasso(
                self.alpha_,
                l1_ratio=self.l1_ratio,
                penalty_factors=self.penalty_factors,
                fit_intercept=self.fit_intercept,
                positive=self.positive,
                max_iter=self.max_iter,
                tol=self.tol,
            )
            final = self._fit_all(context, model, place, given)
            self.coef_, self.intercept_ = final.coef_, final.intercept_
            self.dual_gap_, self.n_iter_ = final.dual_gap_, final.n_iter_
        return self
