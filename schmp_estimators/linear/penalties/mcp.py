"""The minimax concave penalty."""

from typing import NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, PerColumn, at, read_only, weigh


class MCP(NamedTuple):
    """The penalty λ_j|b| − b²/2γ up to a size of b of γλ_j, and a constant beyond.

    C.-H. Zhang, "Nearly unbiased variable selection under minimax concave penalty", The Annals of
    Statistics 2010.  It is not convex, so there is no duality gap: a fit ends when no update of a
    single coefficient lowers the objective.  In `SparseGLM` γ refers to the mean loss; Zhang's γ is
    3 for columns of variance one.  Solvers add up the loss over samples, so they use γ/n.
    """

    strengths: PerColumn
    gamma: PerColumn

    @property
    def positive(self) -> bool:
        """Whether coefficients are restricted to be ≥ 0: no."""
        return False

    @property
    def certified(self) -> bool:
        """Whether there are a duality gap and Newton steps: no."""
        return False

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the minimiser; if the objective is concave, it is the better one of two ends."""
        strength = at(self.strengths, j)
        size = abs(aim)
        curved = at(self.gamma, j) * norm
        if size > strength * max(curved, np.sqrt(curved)):
            return aim / norm
        if curved > 1.0:
            return np.sign(aim) * max(size - strength, 0.0) / (norm - 1.0 / at(self.gamma, j))
        return 0.0

    def value(self, coef: Floats) -> float:
        """Return the sum over coefficients."""
        inner = np.minimum(np.abs(coef), self.gamma * self.strengths)
        return weigh(self.strengths, inner) - 0.5 * (inner * inner / self.gamma).sum()

    def tilt(self, coef: Floats) -> Floats:
        """Return −sign(b) times λ_j, or times the size of b divided by γ if that is smaller."""
        return -np.sign(coef) * np.minimum(np.abs(coef) / self.gamma, self.strengths)

    def of_strength(self, strength: float, total: float) -> Self:
        """Return the penalty with λ times `strength`, and γ divided by `total`.

        `total` is the weight of all samples.
        """
        return self._replace(
            strengths=read_only(strength * self.strengths), gamma=read_only(self.gamma / total)
        )

    def of_columns(self, units: Floats) -> Self:
        """See `Penalty`."""
        strengths = units * self.strengths
        gamma = self.gamma / units**2
        return self._replace(strengths=read_only(strengths), gamma=read_only(gamma))

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(
            strengths=read_only(factor * self.strengths), gamma=read_only(self.gamma / factor)
        )
