"""The Poisson loss of counts, with a logarithmic link."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy
from sklearn.metrics import d2_tweedie_score

from schmp_estimators.linear.losses.base import Derivatives, Floats, derivatives_of, weigh


@dataclass(frozen=True)
class Poisson:
    """Half the Poisson deviance, y ln(y/μ) − y + μ, of counts y ≥ 0 with the mean μ = e^{u + b}.

    P. McCullagh and J. A. Nelder, "Generalized linear models", 1989, section 6.2.  The second
    derivative μ has no upper bound.  In `dual`, q = y + scale·(μ − y) is ≥ 0, and so feasible, for
    any scale ≤ 1.
    """

    smoothness = np.inf
    certified = True
    #: whether responses may be negative
    signed = False

    def derivatives(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float
    ) -> Derivatives:
        """Return the loss, slopes s(y − μ) and curvatures s μ.

        Raises
        ------
        ValueError
            If a response is negative.
        """
        if len(target) and target.min() < 0.0:
            raise ValueError(
                f"the Poisson loss takes responses y >= 0; got {target.min():.6g}: give counts or "
                "rates"
            )
        place = decision + intercept
        with np.errstate(over="ignore", invalid="ignore"):  # of steps that are too long
            mean = np.exp(place)
            loss = weigh(weights, xlogy(target, target) - target * place - target + mean)
            slope = weigh(weights, target - mean)
            return derivatives_of(max(0.0, float(loss.sum())), slope, weigh(weights, mean))

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the dual loss Σ s [y ln y − y − (q ln q − q)] at q = y + scale·(μ − y)."""
        part = target + scale * (np.exp(decision + intercept) - target)
        return float(
            weigh(weights, xlogy(target, target) - xlogy(part, part) + part - target).sum()
        )

    def mean(self, decision: Floats) -> Floats:
        """Return the predicted mean μ."""
        return np.exp(decision)

    def score(self, target: Floats, predicted: Floats, sample_weight: Any) -> float:
        """Return the share of the deviance that the predictions explain."""
        return float(d2_tweedie_score(target, predicted, sample_weight=sample_weight, power=1))
