"""The problem on the candidates, solved on their Gram matrix: coordinate descent, extrapolation, Newton steps.

The problem is min ½‖t − X̃β‖² + P(β) over the candidates.  It is given by G = X̃ᵀX̃, the gradient q
= X̃ᵀr and ‖r‖², so neither the solution nor the duality gap needs a pass over the data.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import lapack

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.gram import gram_combine, gram_passes, gram_take
from schmp_estimators.linear.penalties.base import Penalty, gap_or_merit, sizes, take
from schmp_estimators.linear.programs.matrix import Floats, Indices

LARGEST_GRAM = (
    6000  # candidates: their matrix has 0.3 GB.  For more, descent on the residual is faster
)
MEMORY = 5  # extrapolate from this many passes
_MAX_ROUNDS = 50  # times that the active candidates are chosen anew
_MAX_SWEEPS = 60  # groups of passes on one choice
_POLISHED = 200  # largest support that is polished at the end
_SETTLED = (
    0.03  # part of the support that changes in a sweep, below which Newton steps are worth trying
)
_WORTHWHILE, _MOST_FUTILE = (
    0.9,
    2,
)  # a futile round leaves more than this part of the gap; the most in succession
_CROSSING = 0.02  # if a larger part of the candidates crosses zero in a Newton step, the step came too early


@dataclass
class GramProblem:
    """A set of candidates and the current point; `solve` changes the point."""

    #: (k, k)
    gram: np.ndarray
    #: (k,) X̃ᵀr at the current point
    gradient: Floats
    #: (k,)
    coef: Floats
    #: ‖r‖²
    energy: float
    penalty: Penalty
    #: order of passes over the candidates, with neighbouring columns next to each other; None:
    #: their own order
    order: Indices | None = None
    #: multiply–adds made
    work: float = 0.0

    def gap(self) -> float:
        """Return the duality gap on the candidates."""
        return gap_or_merit(
            self.penalty, self.coef, self.gradient, self.energy, np.diagonal(self.gram)
        )

    def active(self) -> Indices:
        """Return the candidates in the support, and those that violate their optimality condition."""
        active = (sizes(self.penalty, self.gradient) > self.penalty.strengths) | (self.coef != 0.0)
        return np.flatnonzero(active) if self.order is None else self.order[active[self.order]]

    def solve(self, target: float, newton: bool = True) -> None:
        """Change the point until the gap on the candidates is at most `target`."""
        stubborn, futile, before = False, 0, np.inf
        for _ in range(_MAX_ROUNDS):
            active = self.active()
            if not len(active):
                return
            part = _ActiveSet.of(self, active)
            part.descend(0.5 * target, newton or stubborn, stubborn)
            self.move(active, part.coef)
            self.work += part.work
            gap = self.gap()
            if gap <= target:
                return
            stubborn = part.worn_out
            futile = futile + 1 if stubborn and gap > _WORTHWHILE * before else 0
            if futile >= _MOST_FUTILE:
                return  # rounding is all that is left
            before = gap

    def move(self, chosen: Indices, coef: Floats) -> None:
        """Set some coefficients."""
        old, change = self.gradient[chosen], coef - self.coef[chosen]
        self.coef[chosen] = coef
        moved = np.flatnonzero(change)
        gram_combine(
            freeze(self.gram), freeze(chosen[moved]), freeze(-change[moved]), self.gradient
        )
        # ‖r − X̃Δ‖² = ‖r‖² − Δᵀ(q_old + q_new), exact also for a rounded Gram matrix that q follows
        self.energy -= float(change @ (old + self.gradient[chosen]))


@dataclass
class _ActiveSet(GramProblem):
    """The active candidates of a problem, with their part of its Gram matrix."""

    #: whether all passes were made without reaching the target
    worn_out: bool = False

    @classmethod
    def of(cls, problem: GramProblem, chosen: Indices) -> Self:
        """Return the chosen candidates of a problem."""
        gram, penalty = (
            gram_take(freeze(problem.gram), freeze(chosen)),
            take(problem.penalty, chosen),
        )
        return cls(gram, problem.gradient[chosen], problem.coef[chosen], problem.energy, penalty)

    def descend(self, target: float, newton: bool, stubborn: bool = False) -> None:
        """Make passes, and Newton steps once the support has settled, until the gap is `target`.

        If columns are nearly equal, coordinate descent takes long to choose among them.  A
        `stubborn` call makes Newton steps from the beginning, however many coordinates cross zero.
        """
        previous_gap, previous_support, second_order = (
            np.inf,
            None,
            stubborn and self.penalty.certified,
        )
        pause, waiting = 1, 0
        gram, penalty = freeze(self.gram), freeze(self.penalty)
        make_passes = compiled_for(penalty, gram_passes)
        newton &= penalty.certified
        for _ in range(_MAX_SWEEPS):
            old_coef, old_gradient = self.coef.copy(), self.gradient.copy()
            passes = MEMORY + 1 if second_order else 2 * MEMORY + 1
            make_passes(
                gram, self.gradient, self.coef, penalty, bool(penalty.positive), passes, MEMORY
            )
            self.work += passes * float(np.count_nonzero(self.coef)) * len(self.coef)
            if (
                second_order
                and self._newton_step(stubborn) > _CROSSING * len(self.coef)
                and not stubborn
            ):
                # too early: descend for twice as many sweeps as the last time
                second_order, pause = False, 2 * pause
                waiting = pause
            self.energy -= float((self.coef - old_coef) @ (old_gradient + self.gradient))
            gap = self.gap()
            if gap <= target:
                self._polish(gap)
                return
            support = self.coef != 0.0
            if waiting:
                waiting -= 1
            elif previous_support is not None and newton and not second_order:
                changed = np.count_nonzero(support != previous_support) / max(
                    1, int(np.count_nonzero(support))
                )
                second_order = bool(changed < _SETTLED and gap > 0.1 * previous_gap)
            previous_gap, previous_support = gap, support
        self.worn_out = True

    def _polish(self, gap: float) -> None:
        """Go to the exact minimiser on a small support, which does not depend on earlier steps."""
        if not 0 < np.count_nonzero(self.coef) <= _POLISHED or not self.penalty.certified:
            return
        coef, gradient, energy = self.coef.copy(), self.gradient.copy(), self.energy
        self._newton_step()
        self.energy -= float((self.coef - coef) @ (gradient + self.gradient))
        if not self.gap() <= gap:
            self.coef, self.gradient, self.energy = coef, gradient, energy

    def _newton_step(self, stubborn: bool = False) -> int:
        """Minimise over the support with fixed signs; returns how many coordinates were set to zero."""
        support = np.flatnonzero(self.coef)
        if not len(support):
            return 0
        self.work += len(support) ** 3 // 3
        old, penalty = self.coef[support], take(self.penalty, support)
        hessian = gram_take(freeze(self.gram), freeze(support))
        hessian.flat[:: len(support) + 1] += penalty.ridges
        most = len(support) if stubborn else len(support) // 6
        descent = self.gradient[support] - penalty.strengths * np.sign(old) - penalty.tilt(old)
        step, pinned = pinned_solution(hessian, descent, old, most)
        if step is None:
            return len(support)
        image = np.zeros(len(self.coef))
        gram_combine(freeze(self.gram), freeze(support), freeze(step), image)
        slope = float(step @ descent)
        curvature = float(step @ image[support]) + float(step @ (penalty.ridges * step))
        length = min(1.0, slope / curvature) if curvature > 0.0 else 0.0
        if length <= 0.0:
            return len(support)
        new = old + length * step
        if length == 1.0:
            new[pinned] = 0.0
        self.coef[support] = new
        self.gradient -= length * image
        return len(pinned)


def pinned_solution(
    hessian: Floats, gradient: Floats, coef: Floats, most: int, rounds: int = 6
) -> tuple[Floats | None, Indices]:
    """Return the Newton step that keeps the signs of `coef`, and the positions that it sets to zero, at most `most`.

    One Cholesky factor is enough: setting coordinates F to zero adds Lagrange multipliers, that is,
    one right-hand side for each.  The step is None if `hessian` (k, k), which is overwritten, is
    not positive definite.
    """
    count = len(coef)
    nothing = np.empty(0, np.int64)
    hessian.flat[:: count + 1] *= 1.0 + 1e-9
    factor, failed = lapack.dpotrf(hessian.T, lower=1, overwrite_a=1, clean=0)
    if failed:
        return None, nothing
    free_step = lapack.dpotrs(factor, gradient, lower=1)[0]
    step, pinned = free_step, nothing
    responses = np.empty((count, 0), order="F")
    for attempt in range(rounds + 1):
        crossing = (coef + step) * coef < 0.0
        crossing[pinned] = False
        new = np.flatnonzero(crossing)
        if not len(new):
            break
        pinned = np.concatenate([pinned, new])
        if (
            attempt == rounds or len(pinned) > most
        ):  # too many: cut the step off; descent continues from there
            step = step.copy()
            step[new] = -coef[new]
            break
        units = np.zeros((count, len(new)), order="F")
        units[new, np.arange(len(new))] = 1.0
        responses = np.hstack([responses, lapack.dpotrs(factor, units, lower=1, overwrite_b=1)[0]])
        multipliers = np.linalg.solve(responses[pinned], -coef[pinned] - free_step[pinned])
        step = free_step + responses @ multipliers
        step[pinned] = -coef[pinned]
    return step, pinned
