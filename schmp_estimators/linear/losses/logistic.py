"""The logistic loss of two classes."""

import math
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.exponential import fading, log_one_plus
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import Rounded
from schmp_estimators.linear.kernels.logistic import (
    ARRIVED,
    HARD,
    logistic_derivatives,
    logistic_entropy,
    logistic_steps,
)
from schmp_estimators.linear.kernels.sparse import Chosen
from schmp_estimators.linear.losses.base import Derivatives, Floats, Level, Steps
from schmp_estimators.linear.penalties.base import Penalty, compiled_for

#: Curvature of a row at least, as a part of its slope: a row that is surely on the wrong side has none of its own.
_CURVED = 0.01


class Logistic(NamedTuple):
    """ln(1 + e^{−y(u + b)}), y ∈ {−1, 1}."""

    @property
    def smoothness(self) -> float:
        """A quarter."""
        return 0.25

    @property
    def certified(self) -> bool:
        """There is a duality gap."""
        return True

    @property
    def classifies(self) -> bool:
        """It is one of two classes."""
        return True

    def row(self, target: float, decision: float) -> tuple[float, float, float]:
        """Return the loss, y p and p(1 − p) with p = σ(−yu)."""
        margin = target * decision
        small = fading(-abs(margin))
        wrong = (small if margin > 0.0 else 1.0) / (1.0 + small)
        curvature, least = small / ((1.0 + small) * (1.0 + small)), _CURVED * wrong
        value = log_one_plus(small) + (0.0 if margin > 0.0 else -margin)
        return value, target * wrong, curvature if curvature > least else least

    def conjugate(self, target: float, dual: float) -> float:
        """Return q ln q + (1 − q) ln(1 − q) at q = y·`dual`."""
        part = target * dual
        return part * math.log(part) + (1.0 - part) * math.log1p(-part) if 0.0 < part < 1.0 else 0.0

    def derivatives(self, decision: Floats, target: Floats, weights: Floats, intercept: float) -> Derivatives:
        """Return the loss, s y p and s p(1 − p) with p = σ(−y(u + b))."""
        slope, curvature = np.empty_like(decision), np.empty_like(decision)
        level = logistic_derivatives(freeze(decision), freeze(target), freeze(weights), intercept, slope, curvature)
        return Derivatives(Level(*level), slope, curvature)

    def dual(self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float) -> float:
        """Return the entropy −Σ s [q ln q + (1 − q) ln(1 − q)] at q = scale·p."""
        given = (freeze(decision), freeze(target), freeze(weights))
        return float(logistic_entropy(*given, intercept, scale))

    def at_zero(self, intercept: float) -> tuple[float, float, float]:
        """Return ln 2, ½ and −½ tanh(b/2)."""
        return np.log(2.0), 0.5, -0.5 * np.tanh(0.5 * intercept)

    def descend(
        self,
        columns: Chosen | Rounded,
        decision: Floats,
        target: Floats,
        weights: Floats,
        coef: Floats,
        penalty: Penalty,
        centred: bool,
        goal: float,
        part: float,
        most: int,
    ) -> Steps:
        """Make at most so many steps on sparse columns, or on rounded ones, which move `coef` and `decision`."""
        given = columns, freeze(target), freeze(weights), coef, decision, freeze(penalty)
        level, visited, gap, end = compiled_for(penalty, logistic_steps)(*given, centred, goal, part, most)
        return Steps(level, visited, gap, end == ARRIVED, end == HARD)
