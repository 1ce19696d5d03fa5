"""Solutions for one penalty after the other, each from the one before, as a coroutine."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty, of_strength
from schmp_estimators.linear.programs.choose import make_model, make_program
from schmp_estimators.linear.programs.homotopy import ABOVE_ALL, OF_STEP, Points
from schmp_estimators.linear.programs.input import Extent
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.smooth_point import multiple_of

#: Steps after which the goal of a point of a path, beside the tolerance, is given up.
_MOST_STEPS = 20


class Asked(NamedTuple):
    """What a path, or each of its points, is asked for."""

    loss: Loss
    #: that of a strength of one
    penalty: Penalty
    fit_intercept: bool
    tol: float
    max_iter: int
    schedule: str = "resolve"


def _asking(steps: Steps) -> Steps:
    """Hand on the jobs of a program, and neither its reports nor what it saves."""
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = None if isinstance(step, Report | Save) else (yield step)


def is_saturated(loss: float, null: float, most: float) -> bool:
    """Return whether a part `most` below 1 of a loss is explained."""
    return most < 1.0 and loss <= (1.0 - most) * null


class Path:
    """A path, as far as it has come.

    Parameters
    ----------
    asked : Asked
    size : Extent
        That of X.
    n_partitions : int
        Number of partitions.
    ahead : callable
        Returns falling penalties for the smallest one whose solution is zero, and the weight of the rows.
    most : float, default=1.0
        Part of the loss with which it ends.
    """

    def __init__(
        self,
        asked: Asked,
        size: Extent,
        n_partitions: int,
        ahead: Callable[[float, float], Sequence[float]],
        most: float = 1.0,
    ) -> None:
        self.asked, self._ahead, self._most = asked, ahead, most
        self.model = make_model(asked, asked.loss, asked.penalty.scaled(ABOVE_ALL), size, n_partitions)
        self.model.per_column = 0.0
        self._program = make_program(asked, asked.loss, self.model, size)
        #: penalties, coefficients, the rest of solutions, see `Points`, and the smallest penalty whose solution is zero
        self.penalties: Sequence[float] = ()
        self.coefs = np.empty((0, 0))
        self.found = list[tuple[float, ...]]()
        self.largest = 0.0

    def __call__(self, state: None = None) -> Steps:
        """Return the steps; each solution is reported, and True as an answer ends them."""
        yield from _asking(self._program())
        model = self.model
        assert model.full_gradient is not None
        gradient = np.where(model.norms > 0.0, model.full_gradient - model.balance * model.means, 0.0)
        self.largest, null = multiple_of(self.asked.penalty, gradient), model.objective
        self.penalties = self._ahead(self.largest, model.total_weight)
        self.coefs = np.zeros((len(self.penalties), model.n_columns))
        for strength, coef in zip(self.penalties, self.coefs, strict=True):
            yield from self._go_to(strength)
            coef[:] = model.coef
            loss = model.objective - model.penalty.value(model.coef)
            if (yield Report({})) or is_saturated(loss, null, self._most):
                break

    @property
    def means(self) -> Floats:
        """What has been taken from each column."""
        return self.model.shifts if len(self.model.shifts) else np.zeros(self.model.n_columns)

    def points(self) -> Points:
        """Return the solutions."""
        fields, count = np.array(self.found).T, len(self.found)
        return Points(np.array(self.penalties[:count]), self.coefs[:count], *fields)

    def _go_to(self, strength: float) -> Steps:
        """Solve for a penalty, closer than to the tolerance where the solution before is near it."""
        model = self.model
        penalty = of_strength(self.asked.penalty, strength, model.total_weight)
        tolerance, max_iter, work = model.tolerance, model.max_iter, model.touched
        model.max_iter = min(max_iter, _MOST_STEPS)
        yield from _asking(self._program.restart(penalty, OF_STEP))
        model.tolerance, model.max_iter = tolerance, max_iter
        if not model.gap <= tolerance and max_iter > _MOST_STEPS:
            yield from _asking(self._program.restart(penalty))
        end = model.gap, model.objective, model.n_iter, model.touched - work, float(np.count_nonzero(model.coef))
        self.found.append((model.shifted_intercept, *end))
