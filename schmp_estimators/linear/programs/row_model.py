"""Second-order steps on some blocks of coefficients, with all rows in one place."""

from typing import Any

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import blocks as kernels
from schmp_estimators.linear.kernels.smooth import MOST_HALVINGS, RISE
from schmp_estimators.linear.kernels.sparse import Columns, sparse_gradient
from schmp_estimators.linear.losses.base import Seen
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.programs.joint_jobs import look
from schmp_estimators.linear.programs.layout import Chosen

#: Maximum number of steps on one choice of blocks, and the part of the first violation that they
#: leave; maximum number of passes on a model, and the part of the gain of its first pass at which
#: they end.
_MOST_STEPS, _LEFT, _PASSES, _PASS_LEFT = 8, 0.03, 200, 0.01


class RowModel:
    """A point of the problem on some blocks and F; `solve` changes `coef` (m,) and `levels` (K, f).

    Coefficient a is of column ``members[a]`` of `columns`, and of output ``outputs[a]``; `image`
    (K, n) is that of all penalised coefficients.
    """

    def __init__(
        self,
        loss: Any,
        penalty: Any,
        chosen: Chosen,
        members: Indices,
        outputs: Indices,
        coef: Floats,
        levels: Floats,
        columns: Columns,
        image: Floats,
        target: Floats,
        weights: Floats,
        extra: Floats,
    ) -> None:
        self.loss, self.penalty = loss, penalty
        self.coef, self.levels, self.columns, self.extra = coef, levels.copy(), columns, extra
        self._rows = target, weights
        self._decision = image + levels @ extra
        self._members = members, outputs
        self._given = freeze(members), freeze(outputs), freeze(chosen.starts)
        self._numbers = freeze(chosen.numbers)
        self.visited, self._damping = 0.0, 0.0

    def solve(self, floor: float, damping: float) -> None:
        """Make steps until blocks violate their condition by a part of the first, or `floor`."""
        self._damping = damping
        seen, goal = look(self.loss, self._decision, *self._rows, damping), -1.0
        violation = compiled_for(self.penalty, kernels.blocks_violation)
        for _ in range(_MOST_STEPS):
            slopes, bounds = self._slopes(seen), self._bounds(seen)
            given = freeze(slopes), freeze(self.coef), self._given[2], self._numbers
            left = violation(self.penalty, *given, freeze(bounds))
            if left <= goal:
                break
            goal = max(goal, floor, _LEFT * left)
            moved = self._moved(seen, slopes, bounds)
            if moved is None:
                break
            seen = moved

    def _slopes(self, seen: Seen) -> Floats:
        """Return the slope of each coefficient."""
        members, outputs = self._members
        found = np.empty(len(members))
        for k, slope in enumerate(seen.slope):
            here = np.flatnonzero(outputs == k)
            out = np.empty(len(here))
            sparse_gradient(self.columns, freeze(members[here]), freeze(slope), out)
            found[here] = out
        self.visited += len(found)
        return found

    def _bounds(self, seen: Seen) -> Floats:
        found = np.empty(len(self._numbers))
        curvature = freeze(seen.curvature), freeze(seen.shares)
        kernels.column_bounds(self.columns, *self._given, *curvature, found)
        return found

    def _moved(self, seen: Seen, slopes: Floats, bounds: Floats) -> Seen | None:
        """Make the step to the minimum of the model, halved until the objective falls."""
        coef, levels = self.coef.copy(), self.levels.copy()
        image, mean = np.zeros_like(seen.slope), np.zeros(seen.slope.shape[1])
        descend = compiled_for(self.penalty, kernels.descend_on_columns)
        self.visited += descend(
            self.penalty, self.columns, *self._given, self._numbers, freeze(bounds),
            freeze(slopes), coef, freeze(self.extra), freeze(seen.slope @ self.extra.T), levels,
            freeze(seen.curvature), freeze(seen.shares), image, mean, _PASSES, _PASS_LEFT,
        )  # fmt: skip
        change, shift = coef - self.coef, levels - self.levels
        before, length = seen.loss + self._value(self.coef), 1.0
        for _ in range(MOST_HALVINGS):
            decision, there = self._decision + length * image, self.coef + length * change
            found = look(self.loss, decision, *self._rows, self._damping)
            if found.loss + self._value(there) <= before * (1.0 + RISE):
                self.coef, self.levels = there, self.levels + length * shift
                self._decision = decision
                return found
            length *= 0.5
        return None

    def _value(self, coef: Floats) -> float:
        value = compiled_for(self.penalty, kernels.blocks_value)
        return float(value(self.penalty, freeze(coef), self._given[2], self._numbers))
