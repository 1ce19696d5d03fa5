"""Huber's loss, which grows linearly for large errors."""

from dataclasses import dataclass

import numpy as np

from schmp_estimators.linear.losses.base import Derivatives, Floats, derivatives_of, weigh


@dataclass(frozen=True)
class Huber:
    """Huber's loss of an error r = y − u − b: ½r² for −ε ≤ r ≤ ε, otherwise ε|r| − ½ε².

    P. J. Huber, "Robust estimation of a location parameter", The Annals of Mathematical Statistics
    1964.

    Parameters
    ----------
    epsilon : float, default=1.35
        Size ε > 0, in the units of y, above which errors count as outliers.  If errors are normal,
        1.35 times their standard deviation gives 95 % of the efficiency of least squares.

    Raises
    ------
    ValueError
        If ε is not a finite number > 0.
    """

    epsilon: float = 1.35

    smoothness = 1.0
    certified = True
    #: whether ℓ is a function of y − u − b
    of_difference = True
    #: what helps a fit that has not converged
    remedy = (
        " If fewer rows than columns have errors below epsilon, steps are singular: give a larger "
        "alpha, or a larger epsilon by penalised.Huber."
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < np.inf:
            raise ValueError(
                f"epsilon of the Huber loss must be a finite number > 0, got {self.epsilon!r}"
            )

    def derivatives(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float
    ) -> Derivatives:
        """Return the loss, slopes s r with r clipped to ±ε, and curvatures s, or 0 if clipped."""
        residual = target - decision - intercept
        part = np.clip(residual, -self.epsilon, self.epsilon)
        slope = weigh(weights, part)
        curvature = weigh(weights, (part == residual).astype(np.float64))
        return derivatives_of(float(slope @ (residual - 0.5 * part)), slope, curvature)

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the dual loss Σ s (q (y − b) − ½q²) at q = scale·r, with r clipped to ±ε.

        The intercept b cancels, because at the best b the sum of s q is zero.
        """
        apart = target - intercept
        part = scale * np.clip(apart - decision, -self.epsilon, self.epsilon)
        return float(weigh(weights, part) @ (apart - 0.5 * part))
