"""The logistic loss of several classes."""

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from schmp_estimators.linear.losses.base import Floats, Seen, weigh


@dataclass(frozen=True)
class Multinomial:
    """ln Σ_k e^{v_k} − v_y for classes y = 0 … K − 1, each with its own coefficients and intercept.

    The loss does not change if the same number is added to all classes; the penalty determines this
    number (J.  Friedman, T. Hastie and R. Tibshirani, "Regularization paths for generalized linear
    models via coordinate descent", Journal of Statistical Software 2010, section 4).  Curvatures
    are at most ½ (D.  Böhning, "Multinomial logistic regression algorithm", Annals of the Institute
    of Statistical Mathematics 1992).
    """

    #: K, or 0 for the number of classes in y
    n_outputs: int = 0

    smoothness = 0.5
    certified = True
    classifies = True

    def look(self, decision: Floats, target: Floats, weights: Floats) -> Seen:
        """Return the loss, s([y = k] − p_k), s p and the probabilities p."""
        decision = decision - decision.max(axis=0)
        shares = np.exp(decision)
        sums = shares.sum(axis=0)
        shares /= sums
        slope = -shares
        chosen = (target.astype(np.int64), np.arange(len(target)))
        slope[chosen] += 1.0
        loss = weigh(weights, np.log(sums) - decision[chosen])
        return Seen(float(loss.sum()), weigh(weights, slope), weigh(weights, shares), shares)

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the entropy −Σ s q ln q at q = [y = k] + scale·(p_k − [y = k])."""
        shares = np.exp(decision - decision.max(axis=0))
        shares *= scale / shares.sum(axis=0)
        shares[target.astype(np.int64), np.arange(len(target))] += 1.0 - scale
        return -float(weigh(weights, xlogy(shares, shares).sum(axis=0)).sum())
