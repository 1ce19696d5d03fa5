"""What the L1 problems are, in plain NumPy: objectives and duality gaps."""

import numpy as np
from scipy.special import expit, xlogy


def lasso_gap(X, y, coef, intercept, alpha, weights=None, positive=False):
    """Return the duality gap of the Lasso in scikit-learn's scaling."""
    weights = np.ones(len(y)) if weights is None else weights / np.mean(weights)
    n = len(y)
    residual = y - X @ coef - intercept
    gradient = X.T @ (weights * residual)
    largest = gradient.max() if positive else np.abs(gradient).max()
    dual_point = residual / max(n * alpha, largest)
    primal = (weights * residual**2).sum() / (2 * n) + alpha * np.abs(coef).sum()
    # the response less its mean is what an optimal intercept leaves
    target = y - np.average(y, weights=weights) if abs((weights * residual).sum()) < 1e-8 * n else y
    dual = (weights * target**2).sum() / (2 * n)
    dual -= n * alpha**2 / 2 * (weights * (dual_point - target / (n * alpha)) ** 2).sum()
    return primal - dual


def lasso_objective(X, y, coef, intercept, alpha, weights=None):
    weights = np.ones(len(y)) if weights is None else weights / np.mean(weights)
    return (weights * (y - X @ coef - intercept) ** 2).mean() / 2 + alpha * np.abs(coef).sum()


def logistic_objective(X, sign, coef, intercept, C, weights=None):
    weights = np.ones(len(sign)) if weights is None else weights
    return (
        np.abs(coef).sum() + C * (weights * np.logaddexp(0, -sign * (X @ coef + intercept))).sum()
    )


def logistic_gap(X, sign, coef, intercept, C, weights=None):
    """Return the duality gap of sparse logistic regression.

    The intercept has to be optimal, or zero.
    """
    weights = np.ones(len(sign)) if weights is None else weights
    wrong = expit(-sign * (X @ coef + intercept))
    scale = min(1.0, 1.0 / (C * np.abs(X.T @ (weights * sign * wrong)).max()))
    point = scale * wrong
    dual = -C * (weights * (xlogy(point, point) + xlogy(1 - point, 1 - point))).sum()
    return logistic_objective(X, sign, coef, intercept, C, weights) - dual
