"""The working set solved on its residual, for sparse columns: descent to find the support, Newton to finish.

The problem is min ½ Σ w_i r_i² + λ‖β‖₁ with r = t − (X − 1x̄ᵀ)β over the columns of the working set.  A round is one
pass over the set and a group of passes over its support; when the support settles, Newton steps by conjugate gradients
on the support follow, in which coordinates that would cross zero are pinned there and the others re-solved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from schmp_estimators.kernels.regression_newton import conjugate_gradient
from schmp_estimators.kernels.regression_sparse import (
    Columns,
    Quadratic,
    frozen,
    sparse_anderson_passes,
    sparse_combine,
    sparse_gradient,
    sparse_passes,
    take_columns,
)
from schmp_estimators.programs.regression_matrix import Floats, Indices

_MEMORY = 5  # extrapolate from this many passes
_PINNING_ROUNDS = 3
_COMPACT_BELOW = 0.7  # copy the support when it is a smaller part of the set than this


@dataclass
class Pace:
    """When to turn from first-order to second-order steps; carried from one working set to the next.

    Newton too early is the main waste: it waits until the support has settled and descent has slowed down, and backs
    off, for twice as many rounds each time, when too many coordinates cross zero.
    """

    #: passes over the support after the pass over the set
    passes: int = 11
    #: support changes per round, as a part of it, below which it counts as settled
    settled: float = 0.01
    #: coordinates crossing zero in a Newton step, as a part of the support, above which it came too early
    crossing: float = 0.05
    #: rounds after which the support counts as settled in any case
    patience: int = 8
    second_order: bool = False
    max_steps: int = 60
    accuracy: float = 0.03
    _back_off: int = field(default=1, repr=False)
    _waiting: int = field(default=0, repr=False)

    def after_newton(self, crossed: int, support: int) -> None:
        """Sharpen the next Newton step if no coordinate crossed zero, go back to descent if many did."""
        if crossed == 0:
            self.max_steps, self.accuracy = min(2 * self.max_steps, 300), 0.01
        if crossed > self.crossing * support:
            self._back_off = min(4, 2 * self._back_off)
            self._waiting = self._back_off
            self.second_order = False

    def ready(self) -> bool:
        """Return whether Newton may start now; counts a waiting round down if not."""
        if self._waiting > 0:
            self._waiting -= 1
            return False
        return True


@dataclass
class ResidualProblem:
    """A working set, and the point reached on it; `solve` moves the point."""

    columns: Columns
    quadratic: Quadratic
    #: (k,)
    coef: Floats
    #: (n,) w⊙r
    residual: Floats
    penalty: float
    positive: bool

    @property
    def weighted(self) -> bool:
        """Whether rows have weights other than one."""
        return len(self.quadratic.weights) > 0

    def gradient(self) -> Floats:
        """Return X̃ᵀ(w⊙r), shape (k,)."""
        out = np.empty(len(self.coef))
        sparse_gradient(self.columns, frozen(np.arange(len(out))), frozen(self.residual), out)
        return out

    def solve(self, merit: Callable[[Floats], float], goal: float, pace: Pace, may_finish: bool, rounds: int) -> None:
        """Move the point until merit(gradient) ≤ goal, or until only Newton would help and `may_finish` is False.

        `may_finish` tells whether the working set looks complete: while it does not, it is cheaper to ask for a better
        set than to finish on this one.
        """
        previous_merit, previous_support = np.inf, np.zeros(len(self.coef), bool)
        pace.second_order = pace.second_order and may_finish
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
            if not pace.second_order and settled and value > 0.3 * previous_merit and pace.ready():
                pace.second_order = True
                if not may_finish:
                    return
            previous_merit, previous_support = value, support

    def _work_on(self, support: Indices, pace: Pace) -> None:
        """Run a group of passes, and a Newton step if it is time, on the support alone."""
        if len(support) >= _COMPACT_BELOW * len(self.coef):
            self._group(pace)
            return
        part = ResidualProblem(
            frozen(Columns(*take_columns(self.columns, frozen(support)))),
            frozen(
                Quadratic(
                    self.quadratic.norms[support],
                    self.quadratic.means[support],
                    self.quadratic.sums[support],
                    self.quadratic.weights,
                )
            ),
            self.coef[support],
            self.residual,
            self.penalty,
            self.positive,
        )
        part._group(pace)
        self.coef[support] = part.coef

    def _group(self, pace: Pace) -> None:
        self._passes(3 if self.weighted and pace.second_order else pace.passes)
        if pace.second_order:
            size = int(np.count_nonzero(self.coef))
            if size:
                pace.after_newton(self._newton_step(pace), size)

    def _passes(self, passes: int) -> None:
        point = (self.columns, self.quadratic, self.coef, self.residual, self.penalty, self.positive, passes)
        if self.weighted or passes <= _MEMORY:
            sparse_passes(*point)
        else:
            sparse_anderson_passes(*point, _MEMORY)

    def _newton_step(self, pace: Pace) -> int:
        """Minimise over the support within the orthant of its signs; returns how many coordinates crossed zero."""
        support = np.flatnonzero(self.coef)
        old = self.coef[support]
        signs = np.sign(old)
        new, free = old.copy(), np.arange(len(support))
        moved = np.zeros_like(self.residual)
        crossed = 0
        for _ in range(_PINNING_ROUNDS + 1):
            step, image = self._free_step(support[free], signs[free], moved, pace)
            reached = new[free] + step
            crossing = reached * signs[free] < 0.0
            count = int(np.count_nonzero(crossing))
            crossed += count
            if count:
                image -= self._image(support[free][crossing], reached[crossing])
                reached[crossing] = 0.0
            new[free] = reached
            moved += image
            keep = ~crossing
            if not count or not keep.any() or count > pace.crossing * len(free):
                break
            free = free[keep]
        self._move_along(support, new - old, moved, signs)
        return crossed

    def _free_step(self, chosen: Indices, signs: Floats, moved: Floats, pace: Pace) -> tuple[Floats, Floats]:
        """Return the Newton step on `chosen` from the point that is `moved` away and its image X̃·step."""
        weights = self.quadratic.weights
        residual = self.residual - (weights * moved if self.weighted else moved)
        slope = np.empty(len(chosen))
        sparse_gradient(self.columns, frozen(chosen), frozen(residual), slope)
        slope -= self.penalty * signs
        step, image = np.empty(len(chosen)), np.empty_like(residual)
        conjugate_gradient(
            self.columns, self.quadratic, frozen(chosen), frozen(slope), pace.max_steps, pace.accuracy, step, image
        )
        return step, image

    def _image(self, chosen: Indices, factors: Floats) -> Floats:
        """Return (X − 1x̄ᵀ)·factors over `chosen`."""
        out = np.zeros_like(self.residual)
        sparse_combine(self.columns, frozen(chosen), frozen(factors), out)
        return out - float(self.quadratic.means[chosen] @ factors)

    def _move_along(self, support: Indices, step: Floats, moved: Floats, signs: Floats) -> None:
        """Make the best step on the segment, which stays in the orthant."""
        weighted_move = self.quadratic.weights * moved if self.weighted else moved
        slope = float(moved @ self.residual) - self.penalty * float(signs @ step)
        curvature = float(moved @ weighted_move)
        length = min(1.0, slope / curvature) if curvature > 0.0 else 0.0
        if length > 0.0:
            self.coef[support] += length * step
            self.residual -= length * weighted_move
