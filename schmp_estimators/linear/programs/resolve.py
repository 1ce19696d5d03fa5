"""The outer loop of L1 programs, as a coroutine: compute the gap, choose columns, solve for them.

A path is one loop after the other, for falling penalties.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps
from schmp_estimators.linear.penalties.base import Penalty, of_strength
from schmp_estimators.linear.programs.certificate import LEAST, Screening
from schmp_estimators.linear.programs.joint_point import JointPoint
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.solution import (
    OF_STEP,
    Points,
    Solution,
    record_of,
)

#: Ratio of two strengths on the way to a penalty that is not convex, and how much looser their
#: tolerance is.
_NEARER, _ON_THE_WAY = 0.7, 100.0
#: Maximum number of steps for one of them; and number of steps after which only the tolerance of a
#: path is required, not the additional goal of its gap.
_MOST_AT_FIRST = 20


class Resolve(JointPoint):
    """A fit as a coroutine, started with None or with a saved state.

    Each gap is reported; after it the state may be saved.  A subclass defines `step`.
    """

    def __init__(self, *given: Any, **start: Any) -> None:
        super().__init__(*given, **start)
        #: whether the fit has ended with a gap above the tolerance
        self.fell_short = False
        #: returns the penalty of a larger strength, if such ones are solved first
        self.approach: Callable[[float], Penalty] | None = None

    def step(self) -> Steps:
        """Make an outer step."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the number of outer steps made."""
        return self.work.n_iter

    def exhausted(self) -> bool:
        """Return whether no further step is possible."""
        return self.work.n_iter >= self.max_iter or self.certificate.exhausted

    def solution(self) -> Solution:
        """Return the present point."""
        (coef, intercept), certificate = self.described(), self.certificate
        figures = (
            certificate.objective,
            certificate.gap,
            certificate.tolerance,
            self.design.total_weight,
        )
        end = certificate.null_objective, self.work.n_iter, certificate.certified_gap
        return Solution(coef, intercept, *figures, *end, self.fell_short, certificate.certified)

    def record(self) -> dict[str, float]:
        """Return the record of the present point."""
        self.work.seconds = perf_counter() - self._started
        record = record_of(self.solution(), int(self.work.touched), self.work.seconds)
        return {**record, "scope": self.point.gradient.shape[-1]}

    def __call__(self, state: Mapping[str, Any] | None = None) -> Steps:
        """Return the steps of a fit."""
        if state is None:
            yield from self.begin()
            if self.approach is not None and not self.point.coef.any():
                yield from asking(self._come_near(self.approach))
            yield from self._go_on((yield from self._tell()))
        else:
            yield from self.recover(state)
            yield from self._go_on(False)

    def _come_near(self, approach: Callable[[float], Penalty]) -> Steps:
        """Solve for falling strengths, because a penalty that is not convex has several minima."""
        certificate, asked = self.certificate, (self.penalty, self.max_iter, self.dtype)
        tolerance, part = certificate.tolerance, self.largest(self.penalty)
        self.max_iter, self.dtype = min(self.max_iter, _MOST_AT_FIRST), np.float64
        while (part := _NEARER * part) > 1.0:
            certificate.tolerance = _ON_THE_WAY * tolerance
            yield from self.restart(approach(part))
        self.penalty, self.max_iter, self.dtype = asked
        certificate.tolerance, self.work.n_iter = tolerance, 0
        certificate.begin_again()
        self.screening = Screening()
        yield from self.verify()

    def restart(self, penalty: Penalty, part: float | None = None) -> Steps:
        """Continue from the present solution with another penalty; the strong rule skips columns.

        The gap must also be at most `part` times the present solution's gap for the new penalty.
        Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B
        2012, sections 2 and 5.
        """
        certificate, known = self.certificate, self.screening.scope is None
        previous, self.penalty = self.penalty, penalty
        self.screening, self.work.n_iter = Screening(), 0
        certificate.begin_again()
        self.check_small()
        yield from self.begin_again(previous, known)
        if part is not None:
            least = LEAST * certificate.null_objective
            certificate.tolerance = min(certificate.tolerance, max(part * certificate.gap, least))
        self.skip(previous)
        yield from self._go_on((yield from self._tell()))

    def _go_on(self, stop: bool) -> Steps:
        """Make outer steps until the gap is small enough or no further step is possible."""
        while True:
            # a longer fit would not end here, so it must continue from the state before these steps
            kept = self.work.n_iter < self.max_iter
            is_solved = (
                self.certificate.gap <= self.screening.goal or self.work.n_iter >= self.max_iter
            )
            if not stop and self.screening.scope is not None and is_solved:
                self.screening = Screening()
                yield from self.verify()
            elif not stop and self.certificate.doubt():
                self.screening = Screening()
                yield from self.refresh()
            elif self._ends(stop):
                break
            else:
                yield from self.step()
            stop = yield from self._tell(kept)
        if not stop and self.screening.scope is not None:  # no step on the scope changes anything
            self.screening = Screening()
            yield from self.verify()
            yield Report(self.record())
        self.fell_short = not self.certificate.converged
        if self.round():
            self.rounded, self.screening = True, Screening()
            yield from self.refresh()
            yield Report(self.record())

    def _ends(self, stop: bool) -> bool:
        if stop or self.certificate.converged:
            return True
        self.work.n_iter = self.count()
        return self.exhausted()

    def _tell(self, kept: bool = True) -> Generator[Any, Any, bool]:
        """Report the gap, and yield the state for a checkpoint; returns whether the fit should end."""
        stop: bool = yield Report(self.record())
        if (
            kept
            and np.isfinite(self.certificate.objective)
            and np.isfinite(self.point.gradient).all()
        ):
            is_solved = self.certificate.converged and self.screening.scope is None
            yield Save(self.state(), stop or is_solved or self.exhausted())
        return stop


def asking(steps: Steps) -> Steps:
    """Yield the jobs of a program, but neither its reports nor its states."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = None if isinstance(step, Report | Save) else (yield step)


def is_saturated(loss: float, null: float, most: float) -> bool:
    """Return whether a share `most` of the loss is explained; `most` = 1 is never reached."""
    return most < 1.0 and loss <= (1.0 - most) * null


class Path:
    """A path and the solutions found so far; each run adds the next one.

    Parameters
    ----------
    program : Resolve
        With a penalty `ABOVE_ALL`.
    unit : Penalty
        That of strength one.
    ahead : callable
        Returns falling penalties; its arguments are the smallest one whose solution is zero, and
        the weight of the rows.
    most : float, default=1.0
        Explained share of the loss at which the path ends.
    """

    def __init__(
        self,
        program: Resolve,
        unit: Penalty,
        ahead: Callable[[float, float], Sequence[float]],
        most: float = 1.0,
    ) -> None:
        self.program, self._unit, self._ahead, self._most = program, unit, ahead, most
        #: penalties, coefficients, other fields of `Points`, and the smallest penalty whose
        #: solution is zero
        self.penalties: Sequence[float] = ()
        self.coefs = np.empty((0, 0))
        self.found = list[tuple[Any, ...]]()
        self.largest = self._null = 0.0
        #: whether there is no further solution
        self.ended = False

    def __call__(self, state: None = None) -> Steps:
        """Return the steps to the next solution."""
        program, number = self.program, len(self.found)
        if not number:
            yield from asking(program())
            self._null = program.certificate.objective
            self.largest = program.largest(self._unit)
            self.penalties = self._ahead(self.largest, program.design.total_weight)
            self.coefs = np.zeros((len(self.penalties), *program.solution().coef.shape))
        if number < len(self.penalties):
            total = program.design.total_weight
            yield from self._go_to(of_strength(self._unit, self.penalties[number], total))
            self.coefs[number] = program.solution().coef
            loss = program.certificate.objective - program.cost()
            self.ended = is_saturated(loss, self._null, self._most)
        self.ended |= len(self.found) == len(self.penalties)

    @property
    def means(self) -> Floats:
        """The number that was subtracted from each column."""
        design = self.program.design
        return design.shifts if len(design.shifts) else np.zeros(design.n_columns)

    def points(self) -> Points:
        """Return the solutions."""
        fields = [np.array(field, np.float64) for field in zip(*self.found, strict=True)]
        count = len(self.found)
        return Points(np.array(self.penalties[:count]), self.coefs[:count], *fields)

    def _go_to(self, penalty: Penalty) -> Steps:
        """Solve for a penalty, with a smaller tolerance if the previous solution is close to the new one."""
        program, certificate = self.program, self.program.certificate
        tolerance, max_iter, before = certificate.tolerance, program.max_iter, program.work.touched
        program.max_iter = min(max_iter, _MOST_AT_FIRST)
        yield from asking(program.restart(penalty, OF_STEP))
        certificate.tolerance, program.max_iter = tolerance, max_iter
        if not certificate.gap <= tolerance and max_iter > _MOST_AT_FIRST:
            yield from asking(program.restart(penalty))
        work, support = program.work.touched - before, float(np.count_nonzero(program.point.coef))
        end = certificate.gap, certificate.objective, program.work.n_iter, work, support
        self.found.append((program.shifted_intercept, *end))
