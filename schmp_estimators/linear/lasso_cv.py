"""The Lasso along a path of penalties, and the choice of one of them by cross-validation."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils._param_validation import validate_parameter_constraints
from sklearn.utils.validation import check_X_y, column_or_1d

from schmp_estimators.core.door.inputs import name_input
from schmp_estimators.core.door.sparse_arrays import check_sparse
from schmp_estimators.core.following import undone_on_error
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.cross_validated import (
    CrossValidatedEstimator,
    FoldFits,
    Results,
    best_of,
)
from schmp_estimators.linear.lasso import PrioritizedLasso, _LinearRegressor
from schmp_estimators.linear.lasso_path import PATH_CONSTRAINTS, falling, geometric, solution, weighted_path
from schmp_estimators.linear.programs.model import Model


def prioritized_lasso_path(
    X: Any,
    y: Any,
    *,
    eps: float = 1e-3,
    alphas: Any = 100,
    fit_intercept: bool = True,
    positive: bool = False,
    max_iter: int = 1000,
    tol: float = 1e-4,
    sample_weight: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute the Lasso for several penalties, each certified by its duality gap.

    Every solution starts from the one before; the strong rule leaves columns out until the solution is verified on all
    of them, and the Gram matrix of candidates is shared.  Each penalty is solved anew, also where the solution before
    would meet the tolerance: neighbours differ where they should.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples.
    y : array-like of shape (n_samples,)
        Responses.
    eps : float, default=1e-3
        Ratio of the smallest to the largest alpha, where `alphas` is a number.
    alphas : int or array-like, default=100
        Penalties, or how many.
    fit_intercept : bool, default=True
        Whether to fit an intercept for each alpha.
    positive : bool, default=False
        Whether coefficients are restricted to be ≥ 0.
    max_iter : int, default=1000
        Most outer steps for each alpha.
    tol : float, default=1e-4
        Duality gap to reach, see `PrioritizedLasso`; and each gap is at most a hundredth of the one that the exact
        solution before has at this alpha, as far as that is above rounding.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Penalties, falling.
    coefs : ndarray of shape (n_features, n_alphas)
        Coefficients.
    intercepts : ndarray of shape (n_alphas,)
        Intercepts.
    dual_gaps : ndarray of shape (n_alphas,)
        Duality gaps reached.

    Raises
    ------
    ValueError
        If X, y or the weights are not finite, are empty or of different lengths, or the weights are negative or all
        zero; if a parameter is not what it should be.
    TypeError
        If X is on Dask.

    Warns
    -----
    ConvergenceWarning
        If a gap is above the tolerance after `max_iter`.

    See Also
    --------
    sklearn.linear_model.lasso_path : Returns (alphas, coefs, dual_gaps), without intercepts, which it does not fit.
    PrioritizedLassoCV : Chooses a point of the path by cross-validation.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import prioritized_lasso_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> alphas, coefs, intercepts, gaps = prioritized_lasso_path(X, X[:, 0], alphas=5)
    >>> coefs.shape, int((coefs[:, 0] != 0).sum())
    ((200, 5), 0)
    """
    shared.refuse_dask("prioritized_lasso_path", X)
    options = {"fit_intercept": fit_intercept, "positive": positive, "max_iter": max_iter}
    validate_parameter_constraints(
        PATH_CONSTRAINTS, {"eps": eps, "alphas": alphas, "tol": tol, **options}, "prioritized_lasso_path"
    )
    given, count = falling(alphas)
    y, sample_weight = shared.here(y), shared.here(sample_weight)
    with name_input(X):
        X, y = check_X_y(check_sparse(X), y, accept_sparse="csc", dtype="numeric", y_numeric=True)
    weights = shared.check_weights(sample_weight, X)
    X, y, weights = shared.drop_weightless(X, y, weights)
    points = []
    for alpha, model in weighted_path(X, y, weights, given, count, eps, tolerance=tol, **options):
        shared.warn_unless_converged(model, max_iter, f"The Lasso at alpha={alpha:.3g}")
        points.append((alpha, *solution(model), model.gap / model.total_weight))
    found, coefs, intercepts, gaps = zip(*points, strict=True)
    return np.array(found), np.array(coefs).T, np.array(intercepts), np.array(gaps)


class PrioritizedLassoCV(CrossValidatedEstimator, _LinearRegressor):
    """Lasso whose penalty is chosen by cross-validation along a path.

    Parameters
    ----------
    eps : float, default=1e-3
        Ratio of the smallest to the largest alpha, where `alphas` is a number.
    alphas : int or array-like, default=100
        Penalties, or how many.
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
        Folds worked on at a time, in threads; None means 1, -1 all processors.
    verbose : int or bool, default=0
        Whether to show a progress bar, which needs the package rich.

    Attributes
    ----------
    alpha_ : float
        Penalty with the smallest mean over folds of the mean squared error, the largest of equals.
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
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Responses.
        sample_weight : array-like of shape (n_samples,), default=None
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
            If X, y or the weights are not finite, are empty or of different lengths, or the weights are negative or
            all zero; if `alphas` are not positive; if a fold has no samples to fit, or none held out.
        TypeError
            If X is on Dask: folds cannot be cut out of it.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        shared.refuse_dask("PrioritizedLassoCV", X)
        with undone_on_error(self):
            return self._fit(X, y, sample_weight, params)

    def _fit(self, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        y, sample_weight = shared.here(y), shared.here(sample_weight)
        X, y = shared.check_input(self, X, y, y_numeric=True)
        y = column_or_1d(y).astype(np.float64, copy=False)
        weights = shared.check_weights(sample_weight, X)
        alphas, count = falling(self.alphas)
        folds = self._folds(X, y, weights, self._route(sample_weight, params))
        if alphas is None:
            alphas = geometric(self._largest_alpha(X, y, weights), count, self.eps)
        rows = X.tocsr() if shared.is_sparse(X) else X
        with self._followed(X, y) as context:
            self.alphas_ = alphas
            fits = partial(self._fits, rows, y, weights, alphas)
            self.mse_path_ = self._fit_folds(context, folds, len(alphas), fits)
            self.alpha_ = float(alphas[best_of(-self.mse_path_)])
            model = PrioritizedLasso(
                self.alpha_,
                fit_intercept=self.fit_intercept,
                positive=self.positive,
                max_iter=self.max_iter,
                tol=self.tol,
            )
            final = self._fit_all(context, model, shared.LocalPlace(), X, y, weights)
            self.coef_, self.intercept_ = final.coef_, final.intercept_
            self.dual_gap_, self.n_iter_ = final.dual_gap_, final.n_iter_
        return self

    def _options(self) -> dict[str, Any]:
        return {
            "fit_intercept": self.fit_intercept,
            "positive": self.positive,
            "max_iter": self.max_iter,
            "tolerance": self.tol,
        }

    def _largest_alpha(self, X: Any, y: np.ndarray, weights: np.ndarray | None) -> float:
        X, y, used = shared.drop_weightless(X, y, weights)
        return next(weighted_path(X, y, used, None, 1, 1.0, **self._options()))[0]

    def _fits(
        self, X: Any, y: np.ndarray, weights: np.ndarray | None, alphas: np.ndarray, train: Any, test: Any
    ) -> FoldFits:
        """Cut a fold out: the samples to fit, and the held-out error of each alpha."""
        part = None if weights is None else weights[train]
        X_train, y_train, used = shared.drop_weightless(X[train], y[train], part)
        X_test = X[test]
        if shared.is_sparse(X):  # columns are taken from both
            X_train, X_test = X_train.tocsc(), X_test.tocsc()
        path = weighted_path(X_train, y_train, used, alphas, len(alphas), self.eps, **self._options())
        held_out = None if weights is None else weights[test]
        return FoldFits(X_train, y_train, self._errors(path, X_test, y[test], held_out))

    def _errors(
        self, path: Iterator[tuple[float, Model]], X: Any, y: np.ndarray, weights: np.ndarray | None
    ) -> Results:
        """Yield the mean squared error of each point of a path on held-out samples, and the attributes of the point."""
        for alpha, model in path:
            shared.warn_unless_converged(model, self.max_iter, f"A fold of the Lasso at alpha={alpha:.3g}")
            coef, level = solution(model)
            support = np.flatnonzero(coef)
            residual = y - X[:, support] @ coef[support] - level
            error = float(np.average(residual**2, weights=weights))
            yield error, partial(dict, alpha_=alpha, coef_=coef, intercept_=level)
