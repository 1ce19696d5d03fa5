"""The logistic loss of several classes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from schmp_estimators.linear.losses.base import Floats, weigh


class Seen(NamedTuple):
    """The value and derivatives of a loss of K decision values, for n rows."""

    loss: float
    #: (K, n) negative first derivatives, times s
    slope: Floats
    #: probabilities (K, n), or for one decision value curvatures and their upper bounds (2, n)
    shape: Floats


@dataclass(frozen=True)
class Multinomial:
    """ln Σ_k e^{v_k} − v_y for classes y = 0 … K − 1, each with its own coefficients and intercept.

    The loss does not change if the same number is added to all classes; the penalty determines this number (J.
    Friedman, T. Hastie and R. Tibshirani, "Regularization paths for generalized linear models via coordinate descent",
    Journal of Statistical Software 2010, section 4).  Curvatures are at most ½ (D.  Böhning, "Multinomial logistic
    regression algorithm", Annals of the Institute of Statistical Mathematics 1992).
    """

    #: K, or 0 for the number of classes in y
    n_outputs: int = 0

    smoothness = 0.5
    certified = True
    classifies = True

    def look(self, decision: Floats, target: Floats, weights: Floats) -> Seen:
        """Return the loss, s([y = k] − p_k) and p, the probabilities."""
        decision = decision - decision.max(axis=0)
        shape = np.exp(decision)
        sums = shape.sum(axis=0)
        shape /= sums
        slope, chosen = -shape, (target.astype(np.int64), np.arange(len(target)))
        slope[chosen] += 1.0
        loss = weigh(weights, np.log(sums) - decision[chosen])
        return Seen(float(loss.sum()), weigh(weights, slope), shape)

    def products(
        self, values: Floats, outputs: np.ndarray, seen: Seen, weights: Floats, damping: float
    ) -> Floats:
        """Return Σ s x_a x_b (p_a[k_a = k_b] − p_a p_b) over rows, for values x (m, n) of outputs k (m,).

        `damping` times ½ is added to the curvature.
        """
        weighed = seen.shape[outputs] * weigh(np.sqrt(weights), values)
        gram = -(weighed @ weighed.T)
        for number in range(self.n_outputs):
            own = np.flatnonzero(outputs == number)
            curvature = weigh(weights, seen.shape[number] + damping * self.smoothness)
            gram[np.ix_(own, own)] += (values[own] * curvature) @ values[own].T
        return gram

    def dual(
        self, seen: Seen, decision: Floats, target: Floats, weights: Floats, scale: float
    ) -> float:
        """Return the entropy −Σ s q ln q at q = [y = k] + scale·(p_k − [y = k])."""
        part = scale * seen.shape
        part[target.astype(np.int64), np.arange(len(target))] += 1.0 - scale
        return -float(weigh(weights, xlogy(part, part).sum(axis=0)).sum())
