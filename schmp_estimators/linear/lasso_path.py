"""The Lasso for falling penalties, each solution from the one before."""

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, validate_parameter_constraints

from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.cross_validated import CV_CONSTRAINTS, positive_values
from schmp_estimators.linear.following import PENALTY_CONSTRAINTS
from schmp_estimators.linear.paths import PathProgram, Solutions, as_they_are, run_path
from schmp_estimators.linear.penalties.choose import unit_penalty
from schmp_estimators.linear.programs.choose import choose_solver
from schmp_estimators.linear.programs.homotopy import HomotopyProblem
from schmp_estimators.linear.programs.input import prefer_residual, resolution
from schmp_estimators.linear.programs.path import LassoPath, PathOptions

#: Constraints of the parameters of paths and of their cross-validation.
PATH_CONSTRAINTS: dict[str, list[Any]] = {
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "positive": ["boolean"],
    **PENALTY_CONSTRAINTS,
    **CV_CONSTRAINTS,
}


_WHAT = "The Lasso at alpha={:.3g}"


def prioritized_lasso_path(
    X: Any,
    y: Any,
    *,
    eps: float = 1e-3,
    alphas: Any = 100,
    l1_ratio: float = 1.0,
    penalty_factors: Any = None,
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
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples.  On Dask it stays where it is, and each chunk of rows makes a partition, as in `PrioritizedLasso`.
    y : array-like or Dask collection of shape (n_samples,)
        Responses.
    eps : float, default=1e-3
        Ratio of the smallest to the largest alpha, where `alphas` is a number.
    alphas : int or array-like, default=100
        Penalties, or how many.
    l1_ratio : float, default=1.0
        Part of the penalty that is absolute values; see `PrioritizedLasso`.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors of the penalty of each coefficient, 0 for columns that are never penalised; see `PrioritizedLasso`.
    fit_intercept : bool, default=True
        Whether to fit an intercept for each alpha.
    positive : bool, default=False
        Whether coefficients are restricted to be ≥ 0.
    max_iter : int, default=1000
        Most outer steps for each alpha.
    tol : float, default=1e-4
        Duality gap to reach, see `PrioritizedLasso`; and each gap is at most a hundredth of the one that the exact
        solution before has at this alpha, as far as that is above rounding.
    sample_weight : array-like or Dask collection of shape (n_samples,), default=None
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
        If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or all
        zero; if a parameter is not what it should be.
    TypeError
        If X is a Dask collection of another kind than arrays, data frames and lists of Delayed objects.

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
    common: dict[str, Any] = {"fit_intercept": fit_intercept, "max_iter": max_iter}
    penalised = {"l1_ratio": l1_ratio, "penalty_factors": penalty_factors, "positive": positive}
    parameters = {"eps": eps, "alphas": alphas, "tol": tol, **common, **penalised}
    validate_parameter_constraints(PATH_CONSTRAINTS, parameters, "prioritized_lasso_path")
    given, count = falling(alphas)

    penalties = partial(_penalties, given, count, eps)

    def program(problem: shared.Problem) -> PathProgram:
        size = problem.extent
        path = LassoPath(
            PathOptions(unit_penalty(size.n_columns, **penalised), tol, **common),
            prefer_residual(size),
            n_partitions=problem.n_partitions,
            n_rows=size.n_rows,
            eps=resolution(size.dtype),
        )
        return PathProgram(path, penalties, _WHAT)

    def at_hand(problem: shared.Problem) -> Solutions | None:
        penalty = unit_penalty(problem.extent.n_columns, **penalised)
        solver = choose_solver(None, problem.extent, count, penalty)
        found = shared.at_hand(problem, solver, fit_intercept, penalty)
        return None if found is None else _follow(found, penalties, tol, max_iter)

    name = "prioritized_lasso_path"
    found = run_path(name, program, as_they_are, X, y, sample_weight, max_iter, at_hand, y_numeric=True)
    return found.penalties, found.coefs, found.intercepts, found.gaps / found.weights


def _follow(
    problem: HomotopyProblem, penalties: Callable[[float], np.ndarray], tol: float, max_iter: int
) -> Solutions | None:
    """Return the path of a problem that needs no rounds; None if it does."""
    total = problem.total
    alphas = penalties(problem.largest(0) / total)
    points = problem.path(0, alphas * total, tol * problem.square(0), max_iter)
    if not problem.at_hand and (points.gaps > tol * problem.square(0)).any():
        return None
    for alpha, solution in zip(alphas.tolist(), problem.solutions(0, points, tol * problem.square(0)), strict=True):
        shared.warn_unless_converged(solution, max_iter, _WHAT.format(alpha))
    intercepts = problem.intercepts(0, points.coefs)
    return Solutions(alphas, points.coefs.T, intercepts, points.gaps, np.full(len(alphas), total))


def _penalties(given: np.ndarray | None, count: int, ratio: float, largest: float) -> np.ndarray:
    return geometric(largest, count, ratio) if given is None else given


def geometric(largest: float, count: int, ratio: float) -> np.ndarray:
    """Return `count` values spaced geometrically from `largest` down to ratio·largest.

    Where `largest` is but rounding, all are its resolution, as scikit-learn has it: gradients are no smaller than that.
    """
    resolution = float(np.finfo(float).resolution)
    if largest <= resolution:
        return np.full(count, resolution)
    return np.geomspace(largest, ratio * largest, count) if count > 1 else np.array([largest])


def falling(alphas: Any) -> tuple[np.ndarray | None, int]:
    """Return given alphas, falling, or None and their number."""
    values = positive_values("alphas", alphas)
    return (None, int(alphas)) if values is None else (values[::-1], len(values))
