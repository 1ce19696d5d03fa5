"""The one outer loop of L1 programs, as a coroutine: certify the point, choose columns, solve for them."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps
from schmp_estimators.linear.penalties.base import Penalty, sizes
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.model import Model, least_with_this_solution

#: Part of the objective at zero below which gaps are rounding.
LEAST = 1e-12


#: Steps that end at a certified point, with the gradient over the columns in the scope.
ToPoint = Generator[Any, Any, Floats]


class Resolve(ABC):
    """A fit of `model` as a coroutine, begun with None, or with a state that it has saved.

    Each certificate is reported, and is a place where the fit may be left.
    """

    saves = dict

    def __init__(self, model: Model) -> None:
        self.model = model
        #: whether coefficients have been rounded to what will be returned, so that nothing may move them any more
        self.rounded = False

    @abstractmethod
    def begin(self) -> ToPoint:
        """Centre the problem, and go to the start."""

    @abstractmethod
    def begin_again(self, previous: Penalty) -> ToPoint:
        """Look at the present solution with another penalty than the `previous` one."""

    @abstractmethod
    def refresh(self) -> ToPoint:
        """Compute what the partitions hold anew from the present coefficients."""

    @abstractmethod
    def verify(self) -> ToPoint:
        """Look at the present point again, on all columns."""

    @abstractmethod
    def step(self, gradient: Floats) -> ToPoint:
        """Make an outer step."""

    def count(self) -> int:
        """Return the number of outer steps made."""
        return self.model.n_iter

    def exhausted(self) -> bool:
        """Return whether there is nothing left to try."""
        return self.model.exhausted

    def state(self) -> dict[str, Any]:
        """Return what is to be saved besides the model and its gradient."""
        return {}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Take the rest of a state in, on partitions that are as they were."""
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
        """Go on from the present solution with another penalty; columns the strong rule discards are left for later.

        `part`, of the gap that the solution before has now, is a goal beside the tolerance.  Tibshirani et al., "Strong
        rules for discarding predictors in lasso-type problems", JRSS-B 2012, sections 2 and 5.
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
        """Make outer steps from a certified point, until the gap is small enough or there is nothing left to try."""
        model = self.model
        stop = False if told else (yield from self._tell(gradient))
        while True:
            # what a fit does at its max_iter a longer one does not, and that is to go on from the state before
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
        """Report the certificate, and let the fit be left; returns whether it is to end."""
        model = self.model
        stop: bool = yield Report(model.history[-1])
        if kept and np.isfinite(model.objective) and np.isfinite(gradient).all():
            last = stop or (model.converged and not model.provisional) or self.exhausted()
            yield Save({"model": model.state(), "gradient": gradient, **self.state()}, last)
        return stop
