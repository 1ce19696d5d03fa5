"""The minimax concave penalty."""

from typing import NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, PerColumn, at, read_only, weigh


class MCP(NamedTuple):
    """λ_j|b| − b²/2γ while b is at most γλ_j in size, and a constant beyond.

    C.-H. Zhang, "Nearly unbiased variable selection under minimax concave penalty", The Annals of Statistics 2010.  It
    is not convex, so there is no duality gap: a fit ends where no step of a single coefficient lowers the objective.
    `SparseGLM` takes γ beside the mean loss, where Zhang's is 3 on columns of variance one; solvers, which add up the
    loss over samples, take γ/n.
    """

    strengths: PerColumn
    gamma: float

    @property
    def positive(self) -> bool:
        """Coefficients have any sign."""
        return False

    @property
    def certified(self) -> bool:
        """There is no duality gap, and there are no Newton steps."""
        return False

    @property
    def ridges(self) -> float:
        """There are none."""
        return 0.0

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the minimiser: of a concave objective, the better end."""
        strength, size, curved = at(self.strengths, j), abs(aim), self.gamma * norm
        if size > strength * max(curved, np.sqrt(curved)):
            return aim / norm
        if curved > 1.0:
            return np.sign(aim) * max(size - strength, 0.0) / (norm - 1.0 / self.gamma)
        return 0.0

    def value(self, coef: Floats) -> float:
        """Return the sum over coefficients."""
        inner = np.minimum(np.abs(coef), self.gamma * self.strengths)
        return weigh(self.strengths, inner) - 0.5 * (inner * inner).sum() / self.gamma

    def tilt(self, coef: Floats) -> Floats:
        """Return −sign(b) times λ_j, or times the size of b divided by γ where that is less."""
        tilted: Floats = -np.sign(coef) * np.minimum(np.abs(coef) / self.gamma, self.strengths)
        return tilted

    def of_strength(self, strength: float, total: float) -> Self:
        """Return the penalty with λ times `strength` and the same γ for each unit of weight, `total` of them."""
        return self._replace(strengths=read_only(strength * self.strengths), gamma=self.gamma / total)

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(strengths=read_only(factor * self.strengths), gamma=self.gamma / factor)
