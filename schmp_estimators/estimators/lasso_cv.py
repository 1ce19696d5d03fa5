"""The Lasso along a path of penalties, and the choice of one of them by cross-validation."""

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import _fit_context
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_X_y, column_or_1d

from schmp_estimators.data.inputs import name_input
from schmp_estimators.data.sparse_arrays import check_sparse
from schmp_estimators.estimators import _regression as shared
from schmp_estimators.estimators._base import undone_on_error
from schmp_estimators.estimators._certified import CONSTRAINTS
from schmp_estimators.estimators.lasso import PrioritizedLasso, _LinearRegressor
from schmp_estimators.programs.regression_input import prefer_residual
from schmp_estimators.programs.regression_lasso import ResolveLasso
from schmp_estimators.programs.regression_model import Model

#: A penalty above which every solution is zero.
_ABOVE_ALL = 1e100


def _weighted_path(
    X: Any, y: np.ndarray, weights: np.ndarray, alphas: Any, n_alphas: int, eps: float, **options: Any
) -> Iterator[tuple[float, Model]]:
    """Yield alpha and the model at its solution, from the largest alpha; candidates and their Gram matrix are shared.

    With `alphas` None they are spaced geometrically down from the smallest alpha whose solution is zero.
    """
    rows = shared.rows_here(X, y, weights)
    program = ResolveLasso(prefer_residual(rows.extent))
    with rows.rounds:
        model = Model(penalty=_ABOVE_ALL, n_partitions=rows.n_partitions, n_rows=len(y), **options)
        shared.solve(program, model, rows)
        assert model.full_gradient is not None
        largest = float(model.strengths(model.full_gradient).max()) / model.total_weight
        if alphas is None:
            alphas = geometric(largest, n_alphas, eps)
        for alpha in alphas:
            shared.go_on(program, model, rows, float(alpha) * model.total_weight)
            yield float(alpha), model


def geometric(largest: float, count: int, ratio: float) -> np.ndarray:
    """Return `count` values spaced geometrically from `largest` down to ratio·largest."""
    largest = max(largest, float(np.finfo(float).resolution))
    return np.geomspace(largest, ratio * largest, count) if count > 1 else np.array([largest])


def _solution(model: Model) -> tuple[np.ndarray, float]:
    return model.coef.copy(), model.level - float(model.means @ model.coef)


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
    of them, and the Gram matrix of candidates is shared.

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
        Duality gap to reach; see `PrioritizedLasso`.
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
        zero; if `alphas` are not positive.
    TypeError
        If X is on Dask.

    Warns
    -----
    ConvergenceWarning
        If a gap is above the tolerance after `max_iter`.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.estimators.lasso_cv import prioritized_lasso_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> alphas, coefs, intercepts, gaps = prioritized_lasso_path(X, X[:, 0], alphas=5)
    >>> coefs.shape, int((coefs[:, 0] != 0).sum())
    ((200, 5), 0)
    """
    shared.refuse_dask("prioritized_lasso_path", X)
    y, sample_weight = shared.here(y), shared.here(sample_weight)
    with name_input(X):
        X, y = check_X_y(check_sparse(X), y, accept_sparse="csc", dtype="numeric", y_numeric=True)
    weights = shared.check_weights(sample_weight, X)
    X, y, weights = shared.drop_weightless(X, y, weights)
    given, count = _check_alphas(alphas)
    options = {"fit_intercept": fit_intercept, "positive": positive, "max_iter": max_iter, "tolerance": tol}
    points = []
    for alpha, model in _weighted_path(X, y, weights, given, count, eps, **options):
        shared.warn_unless_converged(model, max_iter, f"The Lasso at alpha={alpha:.3g}")
        points.append((alpha, *_solution(model), model.gap / model.total_weight))
    found, coefs, intercepts, gaps = zip(*points, strict=True)
    return np.array(found), np.array(coefs).T, np.array(intercepts), np.array(gaps)


def _check_alphas(alphas: Any) -> tuple[np.ndarray | None, int]:
    """Return given alphas, falling, or None and their number."""
    if isinstance(alphas, Integral):
        return None, int(alphas)
    values = np.sort(np.asarray(alphas, dtype=np.float64).ravel())[::-1]
    if not len(values) or not (values > 0.0).all() or not np.isfinite(values).all():
        raise ValueError(f"alphas={alphas!r}; give positive finite numbers, or how many to space geometrically")
    return values, len(values)


class PrioritizedLassoCV(_LinearRegressor):
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
        Duality gap to reach; see `PrioritizedLasso`.
    n_jobs : int or None, default=None
        Folds worked on at a time, in threads; None means 1, -1 all processors.

    Attributes
    ----------
    alpha_ : float
        Penalty with the smallest mean squared error.
    alphas_ : ndarray of shape (n_alphas,)
        Penalties tried, falling.
    mse_path_ : ndarray of shape (n_alphas, n_folds)
        Mean squared error of each held-out fold.
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

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.estimators.lasso_cv import PrioritizedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=100)
    >>> PrioritizedLassoCV(alphas=20).fit(X, y).mse_path_.shape
    (20, 5)
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012  (scikit-learn's convention)
        "eps": [Interval(Real, 0, 1, closed="neither")],
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "cv": ["cv_object"],
        "positive": ["boolean"],
        **CONSTRAINTS,
    }

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
    ) -> None:
        self.eps = eps
        self.alphas = alphas
        self.cv = cv
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose the penalty, and fit the model with it on all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Responses.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in fits and in errors.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are not finite, are empty or of different lengths, or the weights are negative or
            all zero; if `alphas` are not positive.
        TypeError
            If X is on Dask: folds cannot be cut out of it.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`.
        """
        shared.refuse_dask("PrioritizedLassoCV", X)
        with undone_on_error(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        y, sample_weight = shared.here(y), shared.here(sample_weight)
        X, y = shared.check_input(self, X, y, y_numeric=True)
        y = column_or_1d(y).astype(np.float64, copy=False)
        weights = shared.check_weights(sample_weight, X)
        alphas, count = _check_alphas(self.alphas)
        if alphas is None:
            alphas = geometric(self._largest_alpha(X, y, weights), count, self.eps)
        rows = X.tocsr() if shared.is_sparse(X) else X
        folds = check_cv(self.cv).split(X, y)
        errors = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(self._fold_errors)(rows, y, weights, train, test, alphas) for train, test in folds
        )
        self.alphas_, self.mse_path_ = alphas, np.array([error for error, _ in errors]).T
        mean = np.average(self.mse_path_, axis=1, weights=[size for _, size in errors] if weights is not None else None)
        self.alpha_ = float(alphas[int(np.argmin(mean))])
        final = PrioritizedLasso(
            self.alpha_, fit_intercept=self.fit_intercept, positive=self.positive, max_iter=self.max_iter, tol=self.tol
        )._fit_on(shared.LocalRuntime(), X, y, weights)
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
        return next(_weighted_path(X, y, used, None, 1, 1.0, **self._options()))[0]

    def _fold_errors(
        self,
        X: Any,
        y: np.ndarray,
        weights: np.ndarray | None,
        train: np.ndarray,
        test: np.ndarray,
        alphas: np.ndarray,
    ) -> tuple[list[float], float]:
        """Return the held-out error of each alpha, and the weight of the fold."""
        part = None if weights is None else weights[train]
        X_train, y_train, used = shared.drop_weightless(X[train], y[train], part)
        if shared.is_sparse(X):
            X_train = X_train.tocsc()
        held_out = None if weights is None else weights[test]
        errors = []
        for _, model in _weighted_path(X_train, y_train, used, alphas, len(alphas), self.eps, **self._options()):
            shared.warn_unless_converged(model, self.max_iter, "A fold of the Lasso")
            coef, level = _solution(model)
            support = np.flatnonzero(coef)
            residual = y[test] - X[test][:, support] @ coef[support] - level
            errors.append(float(np.average(residual**2, weights=held_out)))
        return errors, float(len(test) if held_out is None else held_out.sum())
