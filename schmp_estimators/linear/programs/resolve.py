"""The outer loop of L1 programs, as a coroutine: compute the gap, choose columns, solve for them."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps
from schmp_estimators.linear.penalties.base import Penalty, sizes
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.model import Model, least_with_this_solution

#: Part of the objective at zero below which gaps are rounding errors.
LEAST = 1e-12


#: Steps that end at a point with a gap, and return the gradient over the columns in the scope.
ToPoint = Generator[Any, Any, Floats]


class Resolve(ABC):
    """A fit of `model` as a coroutine, started with None or with a saved state.

    Each gap is reported; after it the state may be saved.
    """

    saves = dict

    def __init__(self, model: Model) -> None:
        self.model = model
        #: whether coefficients have been rounded to the returned dtype, so that they may not change any more
        self.rounded = False

    @abstractmethod
    def begin(self) -> ToPoint:
        """Centre the problem, and evaluate the starting point."""

    @abstractmethod
    def begin_again(self, previous: Penalty) -> ToPoint:
        """Evaluate the present solution with a penalty other than the `previous` one."""

    @abstractmethod
    def refresh(self) -> ToPoint:
        """Compute the state of the partitions from scratch, for the present coefficients."""

    @abstractmethod
    def verify(self) -> ToPoint:
        """Evaluate the present point on all columns."""

    @abstractmethod
    def step(self, gradient: Floats) -> ToPoint:
        """Make an outer step."""

    def count(self) -> int:
        """Return the number of outer steps made."""
        return self.model.n_iter

    def exhausted(self) -> bool:
        """Return whether no further step is possible."""
        return self.model.exhausted

    def state(self) -> dict[str, Any]:
        """Return what must be saved in addition to the model and its gradient."""
        return {}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore this part of a state; the partitions have been restored."""
        yield from ()

    def __call__(self, state: Mapping[str, Any] | None = None) -> Steps:
        """Return the steps of a fit."""
        if state is None:
            yield from self.go_on_from((yield from self.begin()))
        else:
            self.model.restore(state["model"])
            yield from self.recover(state)
            yield from self.go_on_from(state["gradient"], told=True)

    def restart(self, penalty: Penalty, part: float | None = None) -> Steps:
        """Continue from the present solution with another penalty; the strong rule skips columns.

        The gap must also be at most `part` times the present solution's gap for the new penalty.  Tibshirani et al.,
        "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, sections 2 and 5.
        """
        model = self.model
        previous, model.penalty = model.penalty, penalty
        model.begin_again()
        gradient = yield from self.begin_again(previous)
        if part is not None:
            model.tolerance = min(model.tolerance, max(part * model.gap, LEAST * model.null_objective))
        found = sizes(penalty, gradient)
        before = least_with_this_solution(previous.strengths, found)
        strong = (found >= 2.0 * penalty.strengths - before) | model.stay()
        if np.max(before - penalty.strengths) > 0.0 and not strong.all():
            model.guess_scope(np.flatnonzero(strong), model.tolerance)
            gradient = gradient[model.scope]
        yield from self.go_on_from(gradient)

    def go_on_from(self, gradient: Floats, told: bool = False) -> Steps:
        """Make outer steps until the gap is small enough or no further step is possible."""
        model = self.model
        stop = False if told else (yield from self._tell(gradient))
        while True:
            # a longer fit would not end here, so it must continue from the state before these steps
            kept = model.n_iter < model.max_iter
            if not stop and model.must_verify():
                model.scope = None
                gradient = yield from self.verify()
            elif not stop and model.doubt():
                gradient = yield from self.refresh()
            elif self._ends(stop):
                break
            else:
                gradient = yield from self.step(gradient)
            stop = yield from self._tell(gradient, kept)
        if model.finish():
            self.rounded = True
            yield from self.refresh()
            yield Report(model.history[-1])

    def _ends(self, stop: bool) -> bool:
        if stop or self.model.converged:
            return True
        self.model.n_iter = self.count()
        return self.exhausted()

    def _tell(self, gradient: Floats, kept: bool = True) -> Generator[Any, Any, bool]:
        """Report the gap, and yield the state for a checkpoint; returns whether the fit should end."""
        model = self.model
        stop: bool = yield Report(model.history[-1])
        if kept and np.isfinite(model.objective) and np.isfinite(gradient).all():
            last = stop or (model.converged and not model.provisional) or self.exhausted()
            yield Save({"model": model.state(), "gradient": gradient, **self.state()}, last)
        return stop
