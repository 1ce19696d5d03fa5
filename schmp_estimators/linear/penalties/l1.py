"""The sum of absolute values."""

from typing import NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, PerColumn, at, read_only, weigh


class L1(NamedTuple):
    """λ_j|b|.  R. Tibshirani, "Regression shrinkage and selection via the lasso", JRSS-B 1996."""

    strengths: PerColumn
    positive: bool = False

    @property
    def certified(self) -> bool:
        """There is a duality gap."""
        return True

    @property
    def ridges(self) -> float:
        """There are none."""
        return 0.0

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the soft threshold of `aim`, by `norm`."""
        strength = at(self.strengths, j)
        if aim > strength:
            return (aim - strength) / norm
        if aim < -strength and not self.positive:
            return (aim + strength) / norm
        return 0.0

    def value(self, coef: Floats) -> float:
        """Return Σ_j λ_j|b_j|."""
        return weigh(self.strengths, np.abs(coef))

    def tilt(self, coef: Floats) -> float:
        """Return zero: there is nothing beside λ_j|b|."""
        return 0.0

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(strengths=read_only(factor * self.strengths))
