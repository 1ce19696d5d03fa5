"""The elastic net with penalty factors: objectives, and what others' solvers make of them."""

import warnings

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso


def penalty(coef, l1_ratio, factors):
    return (factors * (l1_ratio * np.abs(coef) + 0.5 * (1.0 - l1_ratio) * coef**2)).sum()


def net_objective(X, y, coef, intercept, alpha, l1_ratio, factors, weights):
    residual = y - X @ coef - intercept
    return 0.5 * (weights @ residual**2) / weights.sum() + alpha * penalty(coef, l1_ratio, factors)


def without(basis, X):
    """Return X less its projection on the span of the columns of `basis`.

    These columns may depend on each other.
    """
    sizes = np.linalg.norm(basis, axis=0)
    left, values, _ = np.linalg.svd(basis[:, sizes > 0.0] / sizes[sizes > 0.0], full_matrices=False)
    left = left[:, values > 1e-12]
    for _ in range(2):
        X = X - left @ (left.T @ X)
    return X


def net_least(X, y, alpha, l1_ratio, factors, weights, fit_intercept, positive, start):
    """Return the least objective that scikit-learn's Lasso finds from `start`.

    Weights are rows times their roots, a factor is a column divided by it, a ridge is a row more,
    and the intercept and columns of factor 0 are projected off.
    """
    roots = np.sqrt(weights / weights.sum())[:, None]
    free = factors == 0.0
    basis = np.column_stack([roots * X[:, free], *([roots] if fit_intercept else [])])
    whole, response = roots * X[:, ~free], roots[:, 0] * y
    rows, target = (
        (without(basis, whole), without(basis, response)) if basis.shape[1] else (whole, response)
    )
    rows[:, np.linalg.norm(rows, axis=0) < 1e-10 * np.linalg.norm(whole, axis=0)] = (
        0.0  # constant, but for rounding
    )
    scales = factors[~free]
    ridge = np.diag(np.sqrt(alpha * (1.0 - l1_ratio) * scales))
    design = np.asfortranarray(np.vstack([rows, ridge]) / scales)
    target = np.concatenate([target, np.zeros(len(scales))])
    n = len(target)
    solver = Lasso(
        alpha * l1_ratio / n,
        fit_intercept=False,
        positive=positive,
        tol=1e-14,
        max_iter=2000,
        warm_start=True,
    )
    solver.coef_ = start[~free] * scales
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any point bounds the least value
        solver.fit(design, target)
    residual = target - design @ solver.coef_
    return 0.5 * residual @ residual + alpha * l1_ratio * np.abs(solver.coef_).sum()


def logistic_net_objective(X, sign, coef, intercept, C, l1_ratio, factors, weights):
    loss = weights @ np.logaddexp(0.0, -sign * (X @ coef + intercept))
    return penalty(coef, l1_ratio, factors) + C * loss


def logistic_net_least(X, sign, C, l1_ratio, factors, weights, fit_intercept, coef, intercept):
    """Return the least objective of L-BFGS-B on positive and negative parts, from a start."""
    p = X.shape[1]
    means = X.mean(axis=0) if fit_intercept else np.zeros(p)
    units = (X - means).std(axis=0)
    units[units <= 1e-10 * np.abs(X).max(axis=0)] = 1.0
    scaled = (X - means) / units

    def objective(v):
        plus, minus, level = v[:p], v[p : 2 * p], v[2 * p]
        w = (plus - minus) / units
        margins = sign * (scaled @ (plus - minus) + level)
        slopes = -C * weights * sign / (1.0 + np.exp(margins))
        smooth = scaled.T @ slopes + (1.0 - l1_ratio) * factors * w / units
        absolute = l1_ratio * factors / units
        total = C * (weights @ np.logaddexp(0.0, -margins)) + absolute @ (plus + minus)
        total += 0.5 * (1.0 - l1_ratio) * (factors * w * w).sum()
        return total, np.concatenate(
            [smooth + absolute, absolute - smooth, [slopes.sum() if fit_intercept else 0.0]]
        )

    given = coef * units
    first = np.concatenate(
        [np.maximum(given, 0.0), np.maximum(-given, 0.0), [intercept + means @ coef]]
    )
    bounds = [(0.0, None)] * (2 * p) + [(None, None)]
    options = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-16, "gtol": 1e-12}
    with np.errstate(over="ignore"):
        return minimize(
            objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).fun
