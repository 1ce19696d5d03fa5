"""What ends a fit: its duality gap, and steps that change nothing any more."""

from dataclasses import dataclass
from math import isclose

import numpy as np

from schmp_estimators.linear.programs.screening import Screening

#: Part of the objective at zero below which gaps are rounding errors.
LEAST = 1e-12
#: Part of the objective, at this point or at zero, by which a gap may be negative, because its sums are rounded.
ROUNDING = 1e-11
#: Number of steps that change the objective only by rounding, and this change relative to the objective, after which
#: the fit ends.
STALLED, LAST_BITS = 10, 1e-14
#: How often a point with a negative gap is computed again, and how often a fit goes on although no step has lowered the
#: objective.
_MOST_DOUBTS, _MOST_STEP_BACKS = 2, 2


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

        On a scope, `gap` is that of the problem on the scope, and gives no bound on the whole problem.
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
        """Whether the gap is small enough; a clearly negative gap means that the point must be computed again."""
        return -self._rounding <= self.gap <= self.tolerance

    @property
    def exhausted(self) -> bool:
        """Whether steps change nothing any more."""
        return self.stalled >= STALLED or self.step_backs > _MOST_STEP_BACKS

    def begin_again(self) -> None:
        """Forget the bound and the counts of another penalty."""
        self.best_dual, self.stalled, self.doubts, self.step_backs = -np.inf, 0, 0, 0

    def doubt(self) -> bool:
        """Return whether a negative gap requires that the point is computed again; if so, forget the bound."""
        if self.gap >= -self._rounding or self.doubts >= _MOST_DOUBTS:
            return False
        self.doubts += 1
        self.best_dual = -np.inf
        return True
