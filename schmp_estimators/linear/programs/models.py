"""Second-order models of steps on some blocks of coefficients, given the matrix or all rows."""

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.kernels import blocks as kernels
from schmp_estimators.linear.kernels.descent import PASS_LEFT
from schmp_estimators.linear.kernels.smooth import MOST_HALVINGS, RISE
from schmp_estimators.linear.kernels.sparse import Columns, sparse_gradient
from schmp_estimators.linear.kernels.working_set import (
    COEF,
    FACTOR,
    LIFT,
    NOTHING,
    RIDGE,
    SLOPE,
    solve_model,
)
from schmp_estimators.linear.losses.base import Seen
from schmp_estimators.linear.penalties.base import Floats, Indices, merit, take
from schmp_estimators.linear.programs.homotopy import make_room
from schmp_estimators.linear.programs.joint_jobs import look
from schmp_estimators.linear.programs.layout import Chosen

#: Passes of descent on a model between two exact steps, and number of exact steps.
_PASSES, _MOST_ROUNDS = 20, 50
#: A model of single coefficients is solved to this part of its gap.
_PART_OF_GAP = 0.01
#: Maximum number of steps on one choice of blocks, and the part of the first violation that they
#: leave; maximum number of passes on a model, and the part of the gain of its first pass at which
#: they end.
_MOST_STEPS, _LEFT, _ON_ROWS, _PASS_LEFT = 8, 0.03, 200, 0.01


class BlockModel:
    """−qᵀΔ + ½ΔᵀHΔ + P(w + Δ) on some blocks, begun at w.

    Parameters
    ----------
    penalty : Penalty
        For kernels.
    chosen : Chosen
    gram : ndarray of shape (m, m)
        H.
    slopes, coef : ndarray of shape (m,)
        q and w; they are updated.
    """

    def __init__(
        self, penalty: Any, chosen: Chosen, gram: Floats, slopes: Floats, coef: Floats
    ) -> None:
        self.penalty, self.chosen, self.gram = penalty, chosen, gram
        self.slopes, self.coef = slopes, coef
        starts = chosen.starts
        self.narrow = np.repeat(np.diff(starts) == 1, np.diff(starts))
        self._numbers = freeze(starts), freeze(chosen.numbers)
        if declared(penalty, "in_blocks"):
            curved = declared(penalty, "block_slope") and declared(penalty, "block_curvature")
            self._second_order = curved is not None
        else:
            self._second_order = penalty.certified
        self.bounds = np.diagonal(gram).copy() if self.narrow.all() else _bounds(gram, starts)

    def solve(self, goal: float, energy: float | None = None) -> float:
        """Solve until descent could gain about `goal` at most; returns multiply–adds.

        `energy` is the sum of squares of the slopes of rows, divided by their curvatures, if known.
        """
        alone = self._second_order and not declared(self.penalty, "in_blocks")
        if alone and energy is not None:
            return self._solve_alone(goal, energy)
        work = 0.0
        descend = compiled_for(self.penalty, kernels.descend_blocks)
        gram, bounds = freeze(self.gram), freeze(self.bounds)
        for _ in range(_MOST_ROUNDS):
            point = gram, self.slopes, self.coef
            passes = descend(self.penalty, *point, *self._numbers, bounds, _PASSES, PASS_LEFT)
            work += passes * float(self.gram.size)
            left = violation_of(self.penalty, self.slopes, self.coef, *self._numbers, bounds)
            if left <= goal:
                break
            if not self._second_order:
                continue
            if not self._exact_step():
                break
            work += float(np.count_nonzero(self.coef)) ** 3 / 3.0
        return work

    def _solve_alone(self, goal: float, energy: float) -> float:
        """Solve for single coefficients."""
        count = len(self.coef)
        room, own = make_room(count, 0), take(self.penalty, self._numbers[1])
        room.matrix[:] = self.gram
        room.vectors[COEF], room.vectors[SLOPE] = self.coef, self.slopes - own.ridges * self.coef
        room.vectors[FACTOR], room.vectors[RIDGE] = own.strengths, own.ridges
        square = energy + float(np.sum(own.ridges * self.coef * self.coef))
        work: float = solve_model(room, square, goal, _PART_OF_GAP, count, bool(own.positive))
        self.coef[:] = room.vectors[COEF]
        return work

    def _exact_step(self) -> bool:
        """Make a Newton step on the nonzero coefficients, or a part of it.

        Returns whether this lowers the model.
        """
        support = np.flatnonzero(self.coef)
        if not len(support):
            return True
        units, matrix = np.empty(len(self.coef)), self.gram.copy()
        matrix[np.diag_indices(len(matrix))] *= 1.0 + LIFT
        add = compiled_for(self.penalty, kernels.blocks_curvature)
        add(self.penalty, freeze(self.coef), *self._numbers, units, matrix)
        old, narrow = self.coef[support], self.narrow[support]
        try:
            factor = cho_factor(matrix[np.ix_(support, support)], check_finite=False)
        except LinAlgError:
            return False
        step = cho_solve(factor, (self.slopes - units)[support], check_finite=False)
        crossing = narrow & (step * old < 0.0) & (np.abs(step) > np.abs(old))
        first = float((old[crossing] / -step[crossing]).min(initial=1.0))
        for part in (1.0, first, 0.5 * first, 0.1 * first):
            new = old + part * step
            new[narrow & (new * old <= NOTHING * old * old)] = 0.0
            slopes, coef = self.slopes - (new - old) @ self.gram[support], self.coef.copy()
            coef[support] = new
            given = self.penalty, self.chosen
            fall = 0.5 * float((new - old) @ (self.slopes + slopes)[support])
            if fall - (value_of(*given, coef) - value_of(*given, self.coef)) > 0.0:
                self.slopes[:], self.coef[:] = slopes, coef
                return True
        return False


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
        self._chosen, self._numbers = chosen, freeze(chosen.numbers)
        self.visited, self._damping = 0.0, 0.0

    def solve(self, floor: float, damping: float) -> None:
        """Make steps until blocks violate their condition by a part of the first, or `floor`."""
        self._damping = damping
        seen, goal = look(self.loss, self._decision, *self._rows, damping), -1.0
        for _ in range(_MOST_STEPS):
            slopes, bounds = self._slopes(seen), self._bounds(seen)
            given = self._chosen.starts, self._chosen.numbers, bounds
            left = violation_of(self.penalty, slopes, self.coef, *given)
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
            freeze(seen.curvature), freeze(seen.shares), image, mean, _ON_ROWS, _PASS_LEFT,
        )  # fmt: skip
        change, shift = coef - self.coef, levels - self.levels
        given = self.penalty, self._chosen
        before, length = seen.loss + value_of(*given, self.coef), 1.0
        for _ in range(MOST_HALVINGS):
            decision, there = self._decision + length * image, self.coef + length * change
            found = look(self.loss, decision, *self._rows, self._damping)
            if found.loss + value_of(*given, there) <= before * (1.0 + RISE):
                self.coef, self.levels = there, self.levels + length * shift
                self._decision = decision
                return found
            length *= 0.5
        return None


def value_of(penalty: Any, chosen: Chosen, coef: Floats) -> float:
    """Return the penalty of coefficients in some blocks."""
    value = compiled_for(penalty, kernels.blocks_value)
    return float(value(penalty, freeze(coef), freeze(chosen.starts), freeze(chosen.numbers)))


def violation_of(
    penalty: Any, slopes: Floats, coef: Floats, starts: Indices, numbers: Indices, bounds: Floats
) -> float:
    """Return the violation of the conditions in some blocks, in units of the objective."""
    if not (penalty.certified or declared(penalty, "in_blocks")):
        return merit(take(penalty, numbers), coef, slopes, bounds)
    violation = compiled_for(penalty, kernels.blocks_violation)
    given = freeze(slopes), freeze(coef), freeze(starts), freeze(numbers), freeze(bounds)
    return float(violation(penalty, *given))


def _bounds(gram: Floats, starts: Indices) -> Floats:
    """Return for each block an upper bound of the largest eigenvalue: the largest sum of a row."""
    found = np.empty(len(starts) - 1)
    for b, (start, stop) in enumerate(pairwise(starts)):
        found[b] = np.abs(gram[start:stop, start:stop]).sum(axis=1).max()
    return found
