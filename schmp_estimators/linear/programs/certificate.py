"""What ends a fit: its duality gap, and steps that change nothing; and which columns it looks at.

Full gradients take most of the time of a dense fit, so columns whose coefficients will probably
remain zero are skipped.  The other columns are the *scope*.  A solution on a scope must be verified
on all columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isclose

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.linear.programs.matrix import Indices

#: Part of the objective at zero below which gaps are rounding errors.
LEAST = 1e-12
#: Part of the objective, at this point or at zero, by which a gap may be negative, because its sums
#: are rounded.
ROUNDING = 1e-11
#: Number of steps that change the objective only by rounding, and this change relative to the
#: objective, after which the fit ends.
STALLED, LAST_BITS = 10, 1e-14
#: How often a point with a negative gap is computed again, and how often a fit goes on although no
#: step has lowered the objective.
_MOST_DOUBTS, _MOST_STEP_BACKS = 2, 2
FEW = 0.1  # violators per column of the support, below which a working set is nearly complete
NEAR = 0.85  # part of the penalty above which a gradient nearly violates
#: A column is likely if its gradient exceeds this part of the penalty, at first and in later steps;
#: part of all columns above which likely columns are too many to be useful.
_LIKELY, _FEW_LIKELY = (0.6, 0.7, 0.8), 0.35


@dataclass
class Screening:
    """The scope, which by default has all columns."""

    #: columns that are not skipped, ascending; None for all
    scope: Indices | None = None
    #: gap on the scope at which all columns are used again
    goal: float = 0.0
    #: best dual value on the scope, which is a bound only for the problem on that scope
    best_dual: float = -np.inf
    #: number of steps on the scope
    steps: int = 0

    def narrow(
        self, numbers: Indices, likely_at: Callable[[float], NDArray[np.bool_]], goal: float
    ) -> NDArray[np.bool_] | None:
        """Choose the likely columns as the scope if they are few, or narrow the scope.

        Likely are those that stay, and those whose gradient exceeds a part of the penalty; this
        part rises as the solution settles.  A new scope is left when its gap is at most `goal`.
        Returns which of the columns with these `numbers` remain, or None.
        """
        if self.scope is not None:
            self.steps += 1
        likely = likely_at(_LIKELY[min(self.steps, len(_LIKELY) - 1)])
        if self.scope is None:
            if np.count_nonzero(likely) > _FEW_LIKELY * len(likely):
                return None
            self.goal = goal
        self.scope = numbers[likely]
        return likely


@dataclass
class Certificate:
    """The objective and the duality gap at the present point."""

    #: largest gap at which the fit has converged
    tolerance: float
    #: whether gaps are bounds; otherwise they are estimates, see `penalties.base.merit`
    certified: bool = True
    #: objective at zero coefficients
    null_objective: float = 0.0
    objective: float = np.inf
    #: that of the problem on the scope, if there is one
    gap: float = np.inf
    best_dual: float = -np.inf
    #: number of consecutive steps in which nothing changed
    stalled: int = 0
    #: how often the point was computed from scratch because a bound contradicted it
    doubts: int = 0
    #: how often no step lowered the objective
    step_backs: int = 0

    def certify(self, objective: float, gap: float, screening: Screening) -> None:
        """Take the objective and the gap at the present point, with the best dual value so far.

        On a scope, `gap` is that of the problem on the scope, and gives no bound on the whole
        problem.
        """
        before = self.objective, self.gap
        bound = self if screening.scope is None else screening
        if not self.certified:  # earlier estimates are not bounds
            self.best_dual = screening.best_dual = -np.inf
        bound.best_dual = max(bound.best_dual, objective - gap)
        self.objective, self.gap = objective, objective - bound.best_dual
        finest = LAST_BITS * objective
        pairs = zip((self.objective, self.gap), before, strict=True)
        is_alike = all(isclose(new, old, rel_tol=0.0, abs_tol=finest) for new, old in pairs)
        self.stalled = self.stalled + 1 if is_alike else 0

    @property
    def certified_gap(self) -> float:
        """Gap of the whole problem."""
        return self.objective - self.best_dual

    @property
    def _rounding(self) -> float:
        """Size of a negative gap that rounding explains."""
        return ROUNDING * max(self.objective, self.null_objective)

    @property
    def converged(self) -> bool:
        """Whether the gap is small enough.

        A clearly negative gap means that the point must be computed again.  If it stays negative,
        its size is what rounding does to this problem, and must be small beside the tolerance.
        """
        least = 0.1 * self.tolerance if self.doubts >= _MOST_DOUBTS else self._rounding
        return -least <= self.gap <= self.tolerance

    @property
    def exhausted(self) -> bool:
        """Whether steps change nothing any more."""
        return self.stalled >= STALLED or self.step_backs > _MOST_STEP_BACKS

    def begin_again(self) -> None:
        """Forget the bound and the counts of another penalty."""
        self.best_dual, self.stalled, self.doubts, self.step_backs = -np.inf, 0, 0, 0

    def doubt(self) -> bool:
        """Return whether a negative gap requires that the point is computed again.

        If so, the bound is forgotten.
        """
        if self.gap >= -self._rounding or self.doubts >= _MOST_DOUBTS:
            return False
        self.doubts += 1
        self.best_dual = -np.inf
        return True
