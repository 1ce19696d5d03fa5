"""The problem on a working set of sparse columns, solved on the residual by descent and Newton steps.

The problem is min ½ Σ w_i r_i² + P(β) with r = t − (X − 1x̄ᵀ)β over the columns of the working set.
A round is one pass over the set, and a group of passes over its support.  When the support has
settled, Newton steps by conjugate gradients follow; coordinates that would cross zero are set to
zero, and the others are solved again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import newton
from schmp_estimators.linear.kernels.descent import FEW_PASSES, shuffled_passes
from schmp_estimators.linear.kernels.newton import Blocks
from schmp_estimators.linear.kernels.sparse import (
    Columns,
    Quadratic,
    sparse_combine,
    sparse_gradient,
    sparse_passes,
    take_columns,
)
from schmp_estimators.linear.penalties.base import (
    Penalty,
    differ,
    read_only,
    take,
    weigh,
)
from schmp_estimators.linear.programs.gram import MEMORY
from schmp_estimators.linear.programs.matrix import Floats, Indices

_PINNING_ROUNDS = 3
_COMPACT_BELOW = 0.7  # the support is copied if it is a smaller part of the set than this


_DEPENDENT = 0.5  # correlation above which columns are solved together in the preconditioner
_LARGEST_GROUP = 16


@dataclass
class NewtonSystem:
    """The matrix X̃ᵀWX̃ of a set of columns plus the squared part of their penalty, ready for solving."""

    columns: Columns
    quadratic: Quadratic
    blocks: Blocks

    @classmethod
    def of(cls, columns: Columns, quadratic: Quadratic, n_rows: int) -> "NewtonSystem":
        """Return the system of all `columns`, with blocks of nearly dependent columns."""
        weights, ridges = quadratic.weights, quadratic.ridges
        weights = weights if len(weights) else np.ones(n_rows)
        ridges = ridges if len(ridges) else np.zeros(len(quadratic.norms))
        quadratic = freeze(quadratic._replace(weights=weights, ridges=ridges))
        members, starts = newton.dependent_groups(columns, quadratic, _DEPENDENT, _LARGEST_GROUP)
        members, starts = freeze(members), freeze(starts)
        grams = newton.group_grams(columns, quadratic, members, starts)
        factors = newton.factorise_groups(freeze(grams), starts, members, quadratic.ridges)
        return cls(columns, quadratic, freeze(Blocks(members, starts, grams, factors)))

    def settle_groups(self, coef: Floats, residual: Floats, penalty: Penalty) -> None:
        """Solve each group of dependent columns separately; updates `coef` and `residual`."""
        newton.group_pass(
            self.columns, self.quadratic, self.blocks, coef, residual, freeze(penalty)
        )

    def solve(
        self, gradient: Floats, free: np.ndarray, max_steps: int, goal: float
    ) -> tuple[Floats, Floats, int]:
        """Return the step over the free columns, zero elsewhere, X̃·step, and the number of CG steps."""
        step, image = np.empty(len(gradient)), np.empty(len(self.quadratic.weights))
        steps = newton.conjugate_gradient(
            self.columns,
            self.quadratic,
            self.blocks,
            freeze(free),
            freeze(gradient),
            max_steps,
            goal,
            step,
            image,
        )
        return step, image, int(steps)


@dataclass
class Pace:
    """The rule for changing from descent to Newton steps; it is kept from one working set to the next.

    Newton steps that are made too early waste most time.  So they begin when the support has
    settled and descent has slowed down, and descent returns when too many coordinates cross zero.
    """

    #: number of passes over the support after the pass over the set
    passes: int = 11
    #: relative change of the support per round, below which it counts as settled
    settled: float = 0.03
    #: part of the support that crosses zero in a Newton step, above which the step came too early
    crossing: float = 0.05
    #: number of rounds after which the support counts as settled in any case
    patience: int = 8
    second_order: bool = False
    max_steps: int = 60
    accuracy: float = 0.3

    def relax(self) -> None:
        """Start with rough Newton steps again, because the solution for another penalty is far away."""
        self.max_steps, self.accuracy = 60, 0.3

    def after_newton(self, crossed: int, support: int) -> None:
        """Make the next Newton step more precise if no coordinate crossed zero; return to descent if many did."""
        if crossed <= 0.002 * support:
            self.max_steps, self.accuracy = (
                min(2 * self.max_steps, 300),
                max(0.01, 0.3 * self.accuracy),
            )
        self.second_order = self.second_order and bool(crossed <= self.crossing * support)


def ridges_of(penalty: Penalty, count: int) -> Floats:
    """Return the squared part of a penalty for `Quadratic`."""
    ridges = penalty.ridges if penalty.certified else 0.0
    some = np.any(ridges) if differ(ridges) else ridges
    return read_only(np.broadcast_to(ridges, count) if some else np.empty(0))


@dataclass
class ResidualProblem:
    """A working set and the current point; `solve` changes the point."""

    columns: Columns
    quadratic: Quadratic
    #: (k,)
    coef: Floats
    #: (n,) w⊙r
    residual: Floats
    penalty: Penalty
    #: number of columns visited by passes, gradients and products
    visited: float = 0.0

    @property
    def weighted(self) -> bool:
        """Whether rows have weights other than one."""
        return len(self.quadratic.weights) > 0

    def gradient(self) -> Floats:
        """Return X̃ᵀ(w⊙r), shape (k,)."""
        out = np.empty(len(self.coef))
        self.visited += len(out)
        sparse_gradient(self.columns, freeze(np.arange(len(out))), freeze(self.residual), out)
        return out

    def descend(self, gradient: Floats, part: float) -> bool:
        """Descend from a point with this gradient and weighted rows, until a pass gains much less than the first.

        Returns whether this took only a few passes.
        """
        point = (
            self.columns,
            self.quadratic,
            self.coef,
            self.residual,
            freeze(gradient),
            freeze(self.penalty),
        )
        _, visited, arrived = compiled_for(self.penalty, shuffled_passes)(*point, FEW_PASSES, part)
        self.visited += visited
        return bool(arrived)

    def solve(
        self,
        merit: Callable[[Floats], float],
        goal: float,
        pace: Pace,
        may_finish: bool,
        rounds: int,
    ) -> None:
        """Change the point until merit(gradient) ≤ goal, or unless `may_finish` until only Newton steps would help.

        `may_finish` says whether the working set seems complete.  If it does not, it is cheaper to
        ask for a better set than to finish on this one.
        """
        previous_merit, previous_support = np.inf, np.zeros(len(self.coef), bool)
        pace.second_order = pace.second_order and may_finish and self.penalty.certified
        for number in range(rounds):
            self._passes(1)
            support = self.coef != 0.0
            size = int(np.count_nonzero(support))
            if size:
                self._work_on(np.flatnonzero(support), pace)
            value = merit(self.gradient())
            if value <= goal:
                return
            changed = np.count_nonzero(support != previous_support) / max(1, size)
            settled = (number > 0 and changed < pace.settled) or number >= pace.patience
            slow = self.penalty.certified and value > 0.3 * previous_merit
            if not pace.second_order and settled and slow:
                pace.second_order = True
                if not may_finish:
                    return
            previous_merit, previous_support = value, support

    def _work_on(self, support: Indices, pace: Pace) -> None:
        """Make a group of passes over the support, and a Newton step if the rule says so."""
        if len(support) >= (1.0 if pace.second_order else _COMPACT_BELOW) * len(self.coef):
            self._group(pace)
            return
        part = self.of(support)
        part._group(pace)
        self.coef[support] = part.coef
        self.visited += part.visited

    def of(self, chosen: Indices) -> "ResidualProblem":
        """Return the problem on the chosen columns, with the same residual array."""
        quadratic = self.quadratic
        constants = Quadratic(
            quadratic.norms[chosen],
            quadratic.means[chosen],
            quadratic.sums[chosen],
            quadratic.weights,
            quadratic.ridges[chosen] if len(quadratic.ridges) else quadratic.ridges,
        )
        columns = freeze(Columns(*take_columns(self.columns, freeze(chosen))))
        return ResidualProblem(
            columns, freeze(constants), self.coef[chosen], self.residual, take(self.penalty, chosen)
        )

    def _group(self, pace: Pace) -> None:
        if not pace.second_order:
            self._passes(pace.passes)
            return
        system = NewtonSystem.of(self.columns, self.quadratic, len(self.residual))
        for _ in range(3):
            self._passes(1)
            system.settle_groups(self.coef, self.residual, self.penalty)
        support = np.flatnonzero(self.coef)
        if not len(support):
            return
        pace.after_newton(self._newton_step(system, pace), len(support))

    def _passes(self, passes: int) -> None:
        memory = 0 if self.weighted or passes <= MEMORY else MEMORY
        self.visited += passes * len(self.coef)
        point = self.columns, self.quadratic, self.coef, self.residual, freeze(self.penalty)
        compiled_for(self.penalty, sparse_passes)(
            *point, bool(self.penalty.positive), passes, memory
        )

    def _newton_step(self, system: NewtonSystem, pace: Pace) -> int:
        """Minimise over the support with fixed signs; returns how many coordinates would have crossed zero."""
        signs = np.sign(self.coef)
        free = self.coef != 0.0
        new, moved = self.coef.copy(), np.zeros_like(self.residual)
        crossed, goal = 0, None
        for _ in range(_PINNING_ROUNDS + 1):
            slope = self._slope(signs, moved, new)
            if (
                goal is None
            ):  # solving again after pinning, nothing finer is worth reaching than the first time
                diagonal = (self.quadratic.norms + self.penalty.ridges)[free]
                goal = pace.accuracy**2 * float(slope[free] @ (slope[free] / diagonal))
            step, image, steps = system.solve(slope, free, pace.max_steps, goal)
            self.visited += (2 * steps + 1) * len(slope)
            new += step
            moved += image
            crossing = free & (new * signs < 0.0)
            count = int(np.count_nonzero(crossing))
            if not count:
                break
            crossed += count
            moved -= self._image(np.flatnonzero(crossing), new[crossing])
            new[crossing] = 0.0
            if count > pace.crossing * np.count_nonzero(free) or count == np.count_nonzero(free):
                break
            free &= ~crossing
        self._move_along(new - self.coef, moved, signs)
        return crossed

    def _slope(self, signs: Floats, moved: Floats, coef: Floats) -> Floats:
        """Return the steepest descent of the objective with fixed signs, at the point `coef`."""
        residual = self.residual - (self.quadratic.weights * moved if self.weighted else moved)
        slope = np.empty(len(signs))
        sparse_gradient(self.columns, freeze(np.arange(len(signs))), freeze(residual), slope)
        return slope - self.penalty.strengths * signs - self.penalty.tilt(coef)

    def _image(self, chosen: Indices, factors: Floats) -> Floats:
        """Return (X − 1x̄ᵀ)·factors over `chosen`."""
        out = np.zeros_like(self.residual)
        sparse_combine(self.columns, freeze(chosen), freeze(factors), out)
        return out - float(self.quadratic.means[chosen] @ factors)

    def _move_along(self, step: Floats, moved: Floats, signs: Floats) -> None:
        """Make the best step on the segment, which keeps the signs."""
        weighted_move = self.quadratic.weights * moved if self.weighted else moved
        penalty = self.penalty
        slope = float(moved @ self.residual) - weigh(penalty.strengths, signs * step)
        slope -= float(np.sum(penalty.tilt(self.coef) * step))
        curvature = float(moved @ weighted_move) + float(step @ (penalty.ridges * step))
        length = min(1.0, slope / curvature) if curvature > 0.0 else 0.0
        if length > 0.0:
            self.coef += length * step
            self.residual -= length * weighted_move
