"""Half of the squared error."""

from dataclasses import dataclass

import numpy as np

from schmp_estimators.linear.losses.base import Derivatives, Floats, derivatives_of, weigh


@dataclass(frozen=True)
class Squared:
    """Half the squared error, ½(y − u − b)².

    Its second derivative is constant, so fits compute products of columns only once.
    """

    smoothness = 1.0
    certified = True
    constant_curvature = True
    #: whether ℓ is a function of y − u − b
    of_difference = True

    def derivatives(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float
    ) -> Derivatives:
        """Return the loss, slopes s(y − u − b) and curvatures s."""
        residual = target - decision - intercept
        slope = weigh(weights, residual)
        curvature = weigh(weights, np.ones_like(residual))
        return derivatives_of(0.5 * float(residual @ slope), slope, curvature)

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the dual loss Σ s (q y − ½q²) at q = scale·(y − u − b)."""
        part = scale * (target - decision - intercept)
        return float(weigh(weights, part) @ (target - 0.5 * part))
