"""Solutions for one penalty after the other: how functions that return a path let their input in, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.engine.dynamic import Steps, run_coroutine
from schmp_estimators.core.places.place import Place, begun_anew, choose_place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.by_blocks import by_class, fetched, of_classes
from schmp_estimators.linear.data.samples import read_samples
from schmp_estimators.linear.grids import Grid
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.programs.input import resolution
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.path import PathOptions, make_path
from schmp_estimators.linear.targets import Targets, classifies, find_targets

#: Part of the gap that the solution before has at a penalty, to which that at this penalty has to come.
_OF_STEP = 0.01


class Point(NamedTuple):
    """The solution for one penalty, and how its fit ended."""

    support: Indices
    #: of the support
    coef: Floats
    intercept: float
    gap: float
    tolerance: float
    total_weight: float
    n_iter: int
    fell_short: bool

    @classmethod
    def of(cls, model: Any) -> Point:
        """Return where a model is."""
        support = np.flatnonzero(model.coef)
        end = model.gap, model.tolerance, model.total_weight, model.n_iter, model.fell_short
        return cls(support, model.coef[support], model.intercept, *end)


class PathProgram:
    """All of a path as a program, which leaves its `points` behind; partitions do the job `before` first, if any."""

    def __init__(self, path: Any, grid: Grid, unit: float, before: Any, most: float) -> None:
        self.path, self.points, self.values = path, list[Point](), np.empty(0)
        self._grid, self._unit, self._before, self._most = grid, unit, before, most

    def __call__(self, state: None = None) -> Steps:
        """Return the steps."""
        if self._before is not None:
            yield self._before
        largest = yield from self.path.start()
        model = self.path.model
        total, null = model.total_weight, model.objective
        self.values = self._grid.values(largest, total, self._unit)
        for value in self.values.tolist():
            yield from self.path.go_to(self._grid.strength(value, total, self._unit))
            self.points.append(Point.of(model))
            if is_saturated(model.objective - model.penalty.value(model.coef), null, self._most):
                break


def is_saturated(loss: float, null: float, most: float) -> bool:
    """Return whether a part `most` below 1 of a loss is explained."""
    return most < 1.0 and loss <= (1.0 - most) * null


@dataclass
class Path:
    """A path that a function was asked for.

    Parameters
    ----------
    owner : str
        Name of the function, for messages.
    what : str
        What a fit is called in warnings.
    loss : Loss
    grid : Grid
    penalty : callable
        Returns the penalty of strength one for the columns of X; gets the estimator that knows of them.
    fit_intercept, max_iter, tol, class_weight
        As in estimators.
    max_explained : float
        Part of the deviance with which it ends.
    """

    owner: str
    what: str
    loss: Loss
    grid: Grid
    penalty: Callable[[Any], Any]
    fit_intercept: bool
    max_iter: int
    tol: float
    class_weight: Any = None
    max_explained: float = 1.0

    def __call__(self, X: Any, y: Any, sample_weight: Any) -> tuple[Floats, Floats, Floats, Floats]:
        """Follow it here, or of an X on Dask on its cluster; returns penalties, coefficients, intercepts and gaps."""
        chosen: AbstractContextManager[Place] = nullcontext(Place())
        if is_dask(X):
            chosen = choose_place(is_dask=True, label=self.owner)
        with chosen as place:
            return begun_anew(place, lambda: self._run(place, X, y, sample_weight))

    def _run(self, place: Place, X: Any, y: Any, sample_weight: Any) -> tuple[Floats, Floats, Floats, Floats]:
        owner = type(self.owner, (BaseEstimator,), {})()
        options = {} if classifies(self.loss) else {"y_numeric": True}
        samples = read_samples(owner, X, y, sample_weight, place=place, **options)
        targets = find_targets(self.loss, samples, self.class_weight, self.fit_intercept)
        if len(targets.labels) > 1 and targets.classes is not None:
            count, named = len(targets.classes), ", ".join(map(repr, targets.classes[:5].tolist()))
            raise ValueError(
                f"y holds {count} classes, {named}{', …' if count > 5 else ''} (of samples with positive weight); a "
                "path is that of two: give y == label for one class against all others"
            )
        opened = shared.open_rows(owner, samples, targets.responses, targets.weights, place, name="path")
        with opened as problem, one_blas_thread():
            penalty = self.penalty(owner)
            found = self._at_hand(problem, penalty, targets)
            return self._by_rounds(problem, penalty, targets) if found is None else found

    def _at_hand(self, problem: shared.Problem, penalty: Any, targets: Targets) -> Any:
        """Return the path of a problem that needs no rounds; None if it does."""
        solver = shared.find_solver(None, problem.extent, self.grid.count, self.loss, penalty)
        found: Any
        if solver == "blocks":
            loss = of_classes(self.loss, targets.classes)
            found = fetched(problem, self.fit_intercept, loss, penalty, targets.labels)
        else:
            found = shared.at_hand(problem, solver, self.loss, penalty, self.fit_intercept, targets.labels)
        if found is None:
            return None
        unit = targets.unit
        values, tolerance = self.grid.values(found.largest(0), found.total, unit), self.tol * found.square(0)
        strengths = np.array([self.grid.strength(value, found.total, unit) for value in values.tolist()])
        points = self._until_saturation(found, penalty, strengths, tolerance)
        values = values[: len(points.penalties)]
        if not found.at_hand and (points.gaps > tolerance).any():
            return None
        solutions = found.solutions(0, points, tolerance)
        if solver != "blocks":
            return self._told(values, solutions, points.coefs.T, found.intercepts(points), unit)
        rows = [by_class(*one) for one in zip(points.coefs, points.intercepts, strict=True)]
        coefs, levels = (np.stack(part, axis=-1) for part in zip(*rows, strict=True))
        coefs, levels = (coefs, levels) if len(coefs) > 1 else (coefs[0], levels[0] + targets.shifts)
        return self._told(values, solutions, coefs, levels, unit)

    def _until_saturation(self, found: Any, penalty: Any, strengths: Floats, tolerance: float) -> Any:
        """Return the solutions of a problem up to the first that explains enough."""
        if self.max_explained == 1.0:
            return found.path(0, strengths, tolerance, self.max_iter)
        first = np.maximum(found.largest(0), strengths[:1])  # where what is penalised is zero
        points = found.path(0, np.append(first, strengths), tolerance, self.max_iter)
        costs = [at * penalty.value(coef) for at, coef in zip(points.penalties, points.coefs, strict=True)]
        null, *losses = points.objectives - costs
        ends = [number for number, loss in enumerate(losses) if is_saturated(loss, null, self.max_explained)]
        last = ends[0] if ends else len(losses) - 1
        return type(points)(*(field[1 : last + 2] for field in points))

    def _by_rounds(self, problem: shared.Problem, penalty: Any, targets: Any) -> Any:
        size, unit = problem.extent, targets.unit
        options = PathOptions(penalty, self.tol, self.max_iter, self.fit_intercept)
        path = make_path(self.loss, options, size, problem.n_partitions, resolution(size.dtype), _OF_STEP)
        program = PathProgram(path, self.grid, unit, targets.jobs[0], self.max_explained)
        run_coroutine(program, problem.rounds)
        shared.tell_of(problem, program.path.model)
        points, coefs = program.points, np.zeros((len(program.points), size.n_columns))
        for row, point in zip(coefs, points, strict=True):
            row[point.support] = point.coef
        intercepts = np.array([one.intercept for one in points]) + targets.shifts
        return self._told(program.values[: len(points)], points, coefs.T, intercepts, unit)

    def _told(self, values: Floats, points: Sequence[Any], coefs: Floats, intercepts: Floats, unit: float) -> Any:
        """Return a path in the user's units; warns of fits that fell short."""
        for value, point in zip(values.tolist(), points, strict=True):
            shared.warn_unless_converged(point, self.max_iter, f"{self.what} at {self.grid.name}={value:.3g}")
        sums, totals = np.array([(point.gap, point.total_weight) for point in points]).T
        return values, coefs, intercepts, self.grid.in_units(sums, values, totals, unit)
