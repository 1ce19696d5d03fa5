"""Penalised losses of K decision values in plain NumPy: objectives and gaps.

Coefficients are (K, p), intercepts (K,), decision values (K, n).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, xlogy


def softmax(decision):
    decision = np.exp(decision - decision.max(axis=0))
    return decision / decision.sum(axis=0)


def of_rows(loss, decision, y, epsilon=1.0):
    """Return the losses of rows, and minus their derivatives, (K, n)."""
    v = decision[0]
    if loss == "squared":
        return 0.5 * (y - v) ** 2, (y - v)[None]
    if loss == "logistic":
        return np.logaddexp(0.0, -y * v), (y * expit(-y * v))[None]
    if loss == "poisson":
        return xlogy(y, y) - y - y * v + np.exp(v), (y - np.exp(v))[None]
    if loss == "huber":
        size = np.abs(y - v)
        return np.where(size <= epsilon, 0.5 * size**2, epsilon * (size - 0.5 * epsilon)), np.clip(
            y - v, -epsilon, epsilon
        )[None]
    hot = np.eye(len(decision))[:, y.astype(int)]
    top = decision.max(axis=0)
    total = top + np.log(np.exp(decision - top).sum(axis=0))
    return total - (hot * decision).sum(axis=0), hot - softmax(decision)


def conjugates(loss, slope, decision, y, scale):
    """Return minus the conjugates of the losses of rows, at the dual point scale·slope."""
    point = scale * slope
    if loss in ("squared", "huber"):
        return point[0] * y - 0.5 * point[0] ** 2
    if loss == "logistic":
        q = point[0] * y
        return -xlogy(q, q) - xlogy(1.0 - q, 1.0 - q)
    if loss == "poisson":
        q = y - point[0]
        return xlogy(y, y) - y - (xlogy(q, q) - q)
    q = np.eye(len(decision))[:, y.astype(int)] - point
    return -xlogy(q, np.maximum(q, 0.0)).sum(axis=0)


@dataclass
class Glm:
    """min Σ s ℓ(y, WX + b) + λ Σ_g f_g(‖W_g‖ + ½ρ‖W_g‖²), groups of entries k·p + j."""

    loss: str
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    groups: list
    factors: np.ndarray
    n_outputs: int = 1
    ridge: float = 0.0
    fit_intercept: bool = True
    positive: bool = False
    options: dict = field(default_factory=dict)

    def decision(self, coef, intercept):
        """Return WX + b, rounded once."""
        wide = np.atleast_2d(coef).astype(np.longdouble) @ self.X.T.astype(np.longdouble)
        return (wide + np.atleast_1d(intercept).astype(np.longdouble)[:, None]).astype(np.float64)

    def penalty(self, coef):
        flat = np.ravel(coef)
        sizes = np.array([np.linalg.norm(flat[group]) for group in self.groups])
        return float(self.factors @ (sizes + 0.5 * self.ridge * sizes**2))

    def objective(self, coef, intercept, strength):
        losses, _ = of_rows(self.loss, self.decision(coef, intercept), self.y, **self.options)
        return float(self.weights @ losses) + strength * self.penalty(coef)

    def excess(self, coef, intercept):
        """Return the largest ratio of the norm of a group's slopes to its factor.

        Coefficients are zero.
        """
        _, slope = of_rows(self.loss, self.decision(coef, intercept), self.y, **self.options)
        middle = self.X.mean(axis=0) if self.fit_intercept else 0.0
        gradient = np.ravel((self.weights * slope) @ (self.X - middle))
        gradient = np.maximum(gradient, 0.0) if self.positive else gradient
        pairs = zip(self.groups, self.factors, strict=True)
        return max(np.linalg.norm(gradient[one]) / f for one, f in pairs if f > 0.0)

    def gap(self, coef, intercept, strength):
        """Return the duality gap, and how far the slopes are from adding up to zero.

        Those of a dual point do.
        """
        decision, flat = self.decision(coef, intercept), np.ravel(coef)
        _, slope = of_rows(self.loss, decision, self.y, **self.options)
        middle = self.X.mean(axis=0) if self.fit_intercept else 0.0
        gradient = np.ravel((self.weights * slope) @ (self.X - middle))
        apart = np.abs((self.weights * slope).sum(axis=1)).max() if self.fit_intercept else 0.0
        excess = 1.0
        for group, factor in zip(self.groups, self.factors, strict=True):
            slopes = gradient[group] - strength * factor * self.ridge * flat[group]
            slopes = np.maximum(slopes, 0.0) if self.positive else slopes
            if factor == 0.0:
                apart = max(apart, np.abs(slopes).max())
            else:
                excess = max(excess, np.linalg.norm(slopes) / (strength * factor))
        target, shift = self.y, 0.0
        if self.loss in ("squared", "huber"):  # numbers near zero, as slopes add up to zero
            shift = np.median(self.y) if self.fit_intercept else 0.0
        dual = self.weights @ conjugates(self.loss, slope, decision, target - shift, 1.0 / excess)
        squares = sum(
            f * self.ridge * flat[g] @ flat[g]
            for g, f in zip(self.groups, self.factors, strict=True)
        )
        return self.objective(
            coef, intercept, strength
        ) - dual + 0.5 * strength * squares / excess**2, apart
