"""The minimax concave penalty."""

from typing import NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, PerColumn, at, read_only, weigh


class MCP(NamedTuple):
    """Minimax concave penalty: λ_j|b| − b²/(2γ) for −γλ_j ≤ b ≤ γλ_j, and constant beyond.

    λ is given as `strengths`, and γ as `gamma`.

    C.-H. Zhang, "Nearly unbiased variable selection under minimax concave penalty", The Annals of
    Statistics 2010.  The penalty is not convex, so there is no duality gap.  A fit ends when
    updates of single coefficients hardly lower the objective.  In `SparseGLM`, γ refers to the mean
    loss; for the squared loss and columns of variance one, γ is that of Zhang.
    """

    strengths: PerColumn
    gamma: PerColumn

    @property
    def positive(self) -> bool:
        """Whether coefficients are restricted to be ≥ 0: False."""
        return False

    @property
    def certified(self) -> bool:
        """Whether there are a duality gap and Newton steps: False."""
        return False

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the minimiser as in `Penalty.prox`: 0 or `aim`/`norm` if γ·`norm` ≤ 1."""
        strength = at(self.strengths, j)
        size = abs(aim)
        curved = at(self.gamma, j) * norm
        if size > strength * max(curved, np.sqrt(curved)):
            return aim / norm
        if curved > 1.0:
            return np.sign(aim) * max(size - strength, 0.0) / (norm - 1.0 / at(self.gamma, j))
        return 0.0

    def value(self, coef: Floats) -> float:
        """Return the sum of the penalties of all coefficients."""
        inner = np.minimum(np.abs(coef), self.gamma * self.strengths)
        return weigh(self.strengths, inner) - 0.5 * (inner * inner / self.gamma).sum()

    def tilt(self, coef: Floats) -> Floats:
        """Return the derivatives −sign(b)·min(λ_j, abs(b)/γ) of the smooth part."""
        return -np.sign(coef) * np.minimum(np.abs(coef) / self.gamma, self.strengths)

    def of_strength(self, strength: float, total: float) -> Self:
        """Return the penalty with λ multiplied by `strength`, and γ divided by `total`.

        `total` is the sum of the sample weights, by which solvers multiply the mean loss.
        """
        return self._replace(
            strengths=read_only(strength * self.strengths), gamma=read_only(self.gamma / total)
        )

    def of_columns(self, units: Floats) -> Self:
        """Return the penalty P(`units`·b) as a function of b."""
        strengths = units * self.strengths
        gamma = self.gamma / units**2
        return self._replace(strengths=read_only(strengths), gamma=read_only(gamma))

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(
            strengths=read_only(factor * self.strengths), gamma=read_only(self.gamma / factor)
        )
