"""Steps on single coefficients of one output with all rows in one place.

Newton steps that change several coefficients between two looks at the rows: on a working set of
sparse columns, and by descent on few columns without a matrix.
"""

from collections.abc import Generator
from typing import Any

import numpy as np

from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.penalties.base import take
from schmp_estimators.linear.programs import joint_jobs as jobs
from schmp_estimators.linear.programs.constant import ConstantSteps, Solved
from schmp_estimators.linear.programs.design import NO_CHANGE
from schmp_estimators.linear.programs.input import SMALL
from schmp_estimators.linear.programs.jobs import stacked
from schmp_estimators.linear.programs.layout import Chosen
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.residual import Pace
from schmp_estimators.linear.programs.smooth_point import Descend, SmoothWorkingSet

#: Newton steps on a sparse working set, and the part of the merit to leave: with all violators, and
#: with some.
_ON_ALL, _ON_SOME = (8, 0.03), (2, 0.3)
#: Smallest number of columns of a dense X for which descent is faster, and largest number of their
#: entries, whose copy must fit in a cache.
_FEWEST, _MOST_ENTRIES = 100, 1 << 23
#: All columns of a scope are used if they are at most this many times those in the support or
#: violating their condition.
_ROOMY = 8
#: The part of the tolerance that descent leaves, or of the gap if there are other violators.
_OF_TOLERANCE, _OF_GAP = 0.7, 1e-2


class SingleSteps(ConstantSteps):
    """Steps that only single coefficients of one output allow."""

    def __init__(self, *given: Any, **start: Any) -> None:
        super().__init__(*given, **start)
        if not self._constant:
            self.pace = Pace(passes=8, settled=0.03, crossing=0.02)

    def _on_residual(self, chosen: Chosen, n_violators: int, complete: bool) -> Solved:
        """Make Newton steps on a working set of sparse columns."""
        if self._constant:
            return (yield from self._on_rows_alone(chosen, n_violators))
        point, places = self.point, chosen.places
        gathered = stacked((yield jobs.GatherRows(self.layout.order[places])))
        columns, image, target, weights, extra = gathered
        old, decision = point.coef[0, places], image[0] + point.level[0] @ extra
        given = self.loss, columns, decision, target, weights, old, self.design.fit_intercept
        problem = SmoothWorkingSet(*given, take(self._own, places), point.damping)
        many = n_violators > 0.05 * max(50, int(np.count_nonzero(point.coef)))
        most, left = _ON_ALL if complete else _ON_SOME
        problem.solve(self.pace, left, 0.02 * self.certificate.tolerance, not many, most)
        self.work.touched += problem.visited * self.design.n_rows
        point.damping = problem.damping
        return chosen, problem.coef - old, self._of_intercept(problem.level)

    # -- descent, if one partition has all rows ----------------------------------------------------

    def _may_descend(self) -> bool:
        possible = self.is_single and self.design.n_partitions == 1 and self.certificate.certified
        return (
            possible and declared(self.loss, "descend") is not None and not self.pace.second_order
        )

    def _suits_descent(self, count: int) -> bool:
        """Return whether descent may be tried on this number of columns of a dense X."""
        fits = count >= _FEWEST and count * self.design.n_rows <= _MOST_ENTRIES
        return fits and self.design.per_column == self.design.n_rows and self._may_descend()

    def _sparse_descent(self) -> Descend | None:
        """Return the job for steps on all columns of a small sparse X, or None."""
        design = self.design
        small = design.per_column * design.n_columns <= SMALL and not self.point.damping
        if not (self.sparse and small and self._may_descend()):
            return None
        every = self.layout.chosen(np.arange(len(self.layout.order)))
        return self._descent(every, _OF_TOLERANCE * self.certificate.tolerance)

    def _dense_descent(self, chosen: Chosen, complete: bool) -> Descend | None:
        """Return the job for steps on the `chosen` columns, or on all of the scope, or None.

        If `complete`, only chosen columns violate their condition.
        """
        scope, certificate = self.screening.scope, self.certificate
        roomy = scope is not None and len(scope) <= _ROOMY * len(chosen.places)
        if scope is not None and roomy and self._suits_descent(len(scope)):
            chosen = self.layout.chosen(scope)
        if not self._suits_descent(len(chosen.places)):
            return None
        goal = _OF_TOLERANCE * certificate.tolerance
        return self._descent(chosen, goal if complete else max(goal, _OF_GAP * certificate.gap))

    def _descent(self, chosen: Chosen, goal: float) -> Descend:
        point, design, places = self.point, self.design, chosen.places
        columns = self.layout.order[places]
        means = lengths = NO_CHANGE
        if not self.sparse:
            means = design.means[columns]
            lengths = np.sqrt(design.norms[columns] * (design.n_rows / design.total_weight))
            lengths[lengths == 0.0] = 1.0
        return Descend(
            self.loss,
            columns,
            means,
            lengths,
            point.coef[0, places],
            self._everywhere()[places],
            point.level,
            take(self._own, places),
            design.fit_intercept,
            goal,
            np.flatnonzero(design.norms[columns] == 0.0),
        )

    def _descend(self, descent: Descend) -> Generator[Any, Any, tuple[Floats, Floats, bool]]:
        """Make steps by descent; also returns whether they have arrived."""
        [(coef, found)] = yield descent
        self.work.touched += found.visited * self.design.n_rows
        arrived = found.arrived and descent.goal <= self.certificate.tolerance
        self.pace.second_order = found.hard
        return coef - descent.coef, self._of_intercept(found.level), arrived
