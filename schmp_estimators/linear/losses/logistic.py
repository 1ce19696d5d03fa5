"""The logistic loss."""

import math
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.descent import Rounded, newton_steps
from schmp_estimators.linear.kernels.smooth import fading, log_one_plus, row_derivatives, row_dual
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.losses.base import Derivatives, Floats, Level, Steps
from schmp_estimators.linear.penalties.base import Penalty


class Logistic(NamedTuple):
    """The logistic loss ln(1 + e^{−y(u + b)}) of labels y ∈ {−1, 1}."""

    @property
    def smoothness(self) -> float:
        """The upper bound ¼ on ℓ''."""
        return 0.25

    @property
    def certified(self) -> bool:
        """Whether there is a duality gap: True."""
        return True

    @property
    def classifies(self) -> bool:
        """Whether the loss is for classes: True."""
        return True

    def row(self, target: float, decision: float) -> tuple[float, float, float]:
        """Return ℓ(y, u), −ℓ' = y p and ℓ'' = p(1 − p), with p = 1/(1 + e^{yu})."""
        margin = target * decision
        small = fading(-abs(margin))
        wrong = (small if margin > 0.0 else 1.0) / (1.0 + small)
        value = log_one_plus(small) + (0.0 if margin > 0.0 else -margin)
        return value, target * wrong, small / ((1.0 + small) * (1.0 + small))

    def conjugate(self, target: float, dual: float) -> float:
        """Return q ln q + (1 − q) ln(1 − q) at q = y·`dual`."""
        part = target * dual
        return part * math.log(part) + (1.0 - part) * math.log1p(-part) if 0.0 < part < 1.0 else 0.0

    def derivatives(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float
    ) -> Derivatives:
        """Return the loss, slopes s y p and curvatures s p(1 − p), p = 1/(1 + e^{y(u + b)})."""
        slope = np.empty_like(decision)
        curvature = np.empty_like(decision)
        given = map(freeze, (decision, target, weights))
        level = row_derivatives(self, *given, intercept, slope, curvature)
        return Derivatives(Level(*level), slope, curvature)

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the dual loss −Σ s [q ln q + (1 − q) ln(1 − q)] at q = scale·p.

        `derivatives` explains p.
        """
        return float(row_dual(self, *map(freeze, (decision, target, weights)), intercept, scale))

    def at_zero(self, intercept: float) -> tuple[float, float, float]:
        """Return ℓ at u = b = 0, and a and c, for which −ℓ' = a·y + c at u = 0."""
        return math.log(2.0), 0.5, -0.5 * math.tanh(0.5 * intercept)

    def descend(
        self,
        columns: Columns | Rounded,
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
        """Make at most `most` Newton steps on sparse or rounded columns.

        The steps change `coef` and `decision`, which is u + b, and with `centred` also b.  They end
        when the possible decrease of the objective is at most `goal`, or at most `part` times its
        first value.  The objective never rises.
        """
        given = columns, freeze(target), freeze(weights), coef, decision, freeze(penalty)
        descend = compiled_for(penalty, newton_steps)
        return Steps(*descend(self, *given, centred, goal, part, most))
