"""Sums of absolute values and squares."""

from typing import NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, PerColumn, at, read_only, weigh


class ElasticNet(NamedTuple):
    """Elastic-net penalty λ_j|b| + ½ρ_j b², with `strengths` λ and `ridges` ρ.

    The squares act like additional rows of X with entries √ρ_j, so the duality gap is that of an L1
    penalty.  H. Zou, T. Hastie, "Regularization and variable selection via the elastic net", JRSS-B
    2005, section 2.
    """

    strengths: PerColumn
    ridges: PerColumn
    positive: bool = False

    @property
    def certified(self) -> bool:
        """Whether there is a duality gap: True."""
        return True

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the minimiser that `Penalty.prox` defines.

        It is `aim`, soft-thresholded at λ_j, divided by `norm` + ρ_j.  If `positive`, a negative
        result is replaced by 0.
        """
        strength = at(self.strengths, j)
        if aim > strength:
            return (aim - strength) / (norm + at(self.ridges, j))
        if aim < -strength and not self.positive:
            return (aim + strength) / (norm + at(self.ridges, j))
        return 0.0

    def value(self, coef: Floats) -> float:
        """Return the penalty Σ_j λ_j|b_j| + ½ρ_j b_j²."""
        return weigh(self.strengths, np.abs(coef)) + 0.5 * weigh(self.ridges, coef * coef)

    def tilt(self, coef: Floats) -> Floats:
        """Return the derivatives ρ_j b_j."""
        return self.ridges * coef

    def of_columns(self, units: Floats) -> Self:
        """Return the penalty P(`units`·b) as a function of b."""
        ridges = read_only(units**2 * self.ridges) if np.any(self.ridges) else 0.0
        return self._replace(strengths=read_only(units * self.strengths), ridges=ridges)

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(
            strengths=read_only(factor * self.strengths), ridges=read_only(factor * self.ridges)
        )


def L1(strengths: PerColumn, positive: bool = False) -> ElasticNet:
    """Return the L1 penalty Σ_j λ_j|b_j| of coefficients b_j.

    R. Tibshirani, "Regression shrinkage and selection via the lasso", JRSS-B 1996.

    Parameters
    ----------
    strengths : float or ndarray of shape (n_features,)
        Strengths λ_j ≥ 0.
    positive : bool, default=False
        Whether coefficients are restricted to be ≥ 0.

    Returns
    -------
    ElasticNet
        The elastic net with ρ = 0.
    """
    return ElasticNet(strengths, 0.0, positive)
