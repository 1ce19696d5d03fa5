"""The outer loop of L1 programs, as a coroutine: compute the gap, choose columns, solve for them."""

from collections.abc import Callable, Generator, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.programs.certificate import LEAST
from schmp_estimators.linear.programs.homotopy import Solution, record_of
from schmp_estimators.linear.programs.joint_point import JointPoint
from schmp_estimators.linear.programs.screening import Screening

#: Ratio of two strengths on the way to a penalty that is not convex, how much looser their tolerance
#: is, and their maximum number of steps.
_NEARER, _ON_THE_WAY, _MOST_ON_THE_WAY = 0.7, 100.0, 20


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
        self.max_iter, self.dtype = min(self.max_iter, _MOST_ON_THE_WAY), np.float64
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

        The gap must also be at most `part` times the present solution's gap for the new penalty.  Tibshirani et al.,
        "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, sections 2 and 5.
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
