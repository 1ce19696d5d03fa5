"""Solutions for one penalty after the other, each from the one before, as coroutines."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Report, Save, Steps, Sum
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty, of_strength, sizes
from schmp_estimators.linear.programs.choose import is_quadratic
from schmp_estimators.linear.programs.input import Extent, prefer_residual
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic
from schmp_estimators.linear.programs.smooth import ResolveSmooth, SmoothModel

#: A penalty above which every solution is zero.
_ABOVE_ALL = 1e200
#: A point of a path counts when its gap is at most this part of the gap that the point before has at its penalty: the
#: tolerance alone may be met by the point before, whose coefficients would then stand for several penalties.
_OF_STEP = 0.01
#: Part of the objective at zero below which gaps are rounding, and steps after which such a goal is given up.
_ROUNDING, _MOST_STEPS = 1e-12, 20


def as_it_is(job: Any) -> Any:
    """Return the job."""
    return job


def asking(steps: Steps, of: Callable[[Any], Any] = as_it_is) -> Steps:
    """Hand on the jobs of a program, each as `of` makes it, and neither its reports nor what it saves.

    Answers that are None, of partitions without rows, are left out.
    """
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value
        match step:
            case Report() | Save():
                answer = None
            case Sum(job):
                answer = yield Sum(of(job))
            case _:
                answer = [one for one in (yield of(step)) if one is not None]


class PathOptions(NamedTuple):
    """What the fits of a path have in common."""

    #: that of a strength of one
    penalty: Penalty
    tolerance: float
    max_iter: int
    fit_intercept: bool

    def model(self, kind: type[Model], **data: Any) -> Any:
        """Return a model above all penalties."""
        return kind(
            self.penalty.scaled(_ABOVE_ALL),
            tolerance=self.tolerance,
            max_iter=self.max_iter,
            fit_intercept=self.fit_intercept,
            **data,
        )


def largest_ratio(penalty: Penalty, gradient: Floats) -> float:
    """Return how many times the penalty it takes for all coefficients with one to be zero."""
    strengths = np.broadcast_to(penalty.strengths, gradient.shape)
    ratios = np.divide(sizes(penalty, gradient), strengths, out=np.zeros_like(gradient), where=strengths > 0.0)
    return float(ratios.max())


class LassoPath:
    """The Lasso along a path.

    Parameters
    ----------
    options : PathOptions
    sparse : bool
        Solve candidates on their residual; see `prefer_residual`.
    of : callable, optional
        What to make of the jobs of the fits.
    **data
        Fields of the model that tell of the data.
    """

    def __init__(self, options: PathOptions, sparse: bool, of: Callable[[Any], Any] = as_it_is, **data: Any) -> None:
        self.options, self._of = options, of
        self.model: Model = options.model(Model, **data)
        self._program = ResolveQuadratic(self.model, sparse)
        self._before = 0.0

    def start(self) -> Steps:
        """Solve above all penalties; returns the smallest one whose solution is that."""
        yield from asking(self._program(), self._of)
        assert self.model.full_gradient is not None
        largest = largest_ratio(self.options.penalty, self.model.full_gradient)
        self._before = largest / self.model.total_weight * self.model.total_weight
        return largest

    def go_to(self, strength: float) -> Steps:
        """Solve for a penalty, closer than to the tolerance if the solution before meets that as it is.

        The solution at λ' has the residual λ'θ with a dual point θ that stays feasible, so that its gap at λ < λ' is
        ½(1 − λ/λ')²‖r‖².
        """
        model, before = self.model, self._before
        tolerance, max_iter = model.tolerance, model.max_iter
        step = 0.5 * max(0.0, 1.0 - strength / before) ** 2 * model.energy if before > 0.0 else 0.0
        if step > 0.0:
            goal = max(_OF_STEP * step, _ROUNDING * model.null_objective)
            model.tolerance, model.max_iter = min(tolerance, goal), min(max_iter, _MOST_STEPS)
        restart = partial(self._program.restart, of_strength(self.options.penalty, strength, model.total_weight))
        yield from asking(restart(), self._of)
        model.tolerance, model.max_iter = tolerance, max_iter
        if not model.gap <= tolerance and step > 0.0 and max_iter > _MOST_STEPS:
            yield from asking(restart(), self._of)
        self._before = min(before, strength)


class SmoothPath:
    """Any loss, such as that of one class against all others, along a path.

    Parameters
    ----------
    options : PathOptions
    sparse : bool
        Solve working sets on their residual; see `prefer_residual`.
    of : callable, optional
        What to make of the jobs of the fits.
    part : float, optional
        Part of the gap that the solution before has at a penalty, to which that at this penalty has to come.
    loss : Loss
    **data
        Fields of the model that tell of the data.
    """

    def __init__(
        self,
        options: PathOptions,
        sparse: bool,
        of: Callable[[Any], Any] = as_it_is,
        part: float | None = None,
        *,
        loss: Loss,
        **data: Any,
    ) -> None:
        self.options, self._of, self._part = options, of, part
        self.model: SmoothModel = options.model(SmoothModel, **data)
        self._program = ResolveSmooth(self.model, loss, sparse)

    def start(self, other: "SmoothPath | None" = None) -> Steps:
        """Solve above all penalties, `other` having been first; returns the smallest one whose solution is that."""
        if other is not None:
            self.model.follow(other.model)
        yield from asking(self._program(), self._of)
        model = self.model
        assert model.full_gradient is not None
        gradient = np.where(model.norms > 0.0, model.full_gradient - model.balance * model.means, 0.0)
        return largest_ratio(self.options.penalty, gradient)

    def go_to(self, strength: float) -> Steps:
        """Solve for a penalty."""
        model, part = self.model, self._part
        penalty = of_strength(self.options.penalty, strength, model.total_weight)
        tolerance, max_iter = model.tolerance, model.max_iter
        if part is not None:
            model.max_iter = min(max_iter, _MOST_STEPS)
        yield from asking(self._program.restart(penalty, part), self._of)
        model.tolerance, model.max_iter = tolerance, max_iter
        if part is not None and not model.gap <= tolerance and max_iter > _MOST_STEPS:
            yield from asking(self._program.restart(penalty), self._of)


def make_path(
    loss: Loss,
    options: PathOptions,
    size: Extent,
    n_partitions: int,
    eps: float,
    part: float | None = None,
    **given: Any,
) -> Any:
    """Return the path of a loss; see `SmoothPath`, which knows what `part` is."""
    data: dict[str, Any] = {"n_partitions": n_partitions, "n_rows": size.n_rows, "eps": eps, **given}
    sparse = prefer_residual(size)
    if is_quadratic(loss):
        return LassoPath(options, sparse, **data)
    return SmoothPath(options, sparse, part=part, loss=loss, **data)
