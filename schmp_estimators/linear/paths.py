"""Paths: solutions for falling penalties, for the functions that return paths and for folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.places.place import Place, retry
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear.contracts import is_joint
from schmp_estimators.linear.fit import warn_of_gap
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.penalties.choose import Floats, Grid, end_of
from schmp_estimators.linear.problem import Problem, open_problem, place_of
from schmp_estimators.linear.programs.choose import make_program
from schmp_estimators.linear.programs.folds import Deviances, Functions
from schmp_estimators.linear.programs.homotopy import ProblemAtHand
from schmp_estimators.linear.programs.resolve import Path, is_saturated
from schmp_estimators.linear.programs.solution import ABOVE_ALL, Points
from schmp_estimators.linear.samples import (
    Samples,
    check_length,
    check_responses,
    check_weights,
    here,
    read_samples,
    reading,
)
from schmp_estimators.linear.targets import Targets, by_class, find_targets, positives
from schmp_estimators.linear.texts import check_arguments


class Asked(NamedTuple):
    """The parameters of a path."""

    loss: Loss
    #: of strength one
    penalty: Penalty
    fit_intercept: bool
    tol: float
    max_iter: int
    schedule: str = "resolve"


class Paths(NamedTuple):
    """The solutions for falling penalties, of one target or of each class."""

    #: penalties in the user's units, also those that were not reached
    values: Floats
    points: list[Points]
    #: numbers that were subtracted from the columns, the sum of weights, and the tolerances of the
    #: gaps
    means: Floats
    total: float
    tolerances: list[float]

    def solutions(self) -> tuple[Floats, Floats]:
        """Return the coefficients (t, k, p) and intercepts (t, k)."""
        found = [by_class(one.coefs, one.levels - one.coefs @ self.means) for one in self.points]
        if len(found) == 1:
            return found[0]
        coefs, levels = zip(*found, strict=True)
        return np.concatenate(coefs, axis=1), np.concatenate(levels, axis=1)

    def arrays(self, shifts: Any, count: int) -> tuple[Floats, Floats]:
        """Return the coefficients and intercepts that users see, (p, count) and (count,), NaN after the end.

        `shifts` are those of `Targets`.  Several functions are a first dimension.
        """
        after = (0, count - self.reached)
        coefs, levels = self.solutions()
        if after[1]:
            coefs = np.pad(coefs, (after, (0, 0), (0, 0)), constant_values=np.nan)
            levels = np.pad(levels, (after, (0, 0)), constant_values=np.nan)
        found = np.moveaxis(coefs, 0, -1), (levels + shifts).T
        return found if len(found[0]) > 1 else (found[0][0], found[1][0])

    @property
    def reached(self) -> int:
        """Number of penalties that were reached."""
        return len(self.points[0].penalties)

    def at(self, chosen: slice) -> Paths:
        """Return some of the solutions."""
        return self._replace(
            points=[Points(*(field[chosen] for field in one)) for one in self.points]
        )

    def functions(self) -> Functions:
        """Return the linear functions of these solutions."""
        shape = self.reached, -1, len(self.means)
        coefs = np.concatenate([one.coefs.reshape(shape) for one in self.points], axis=1)
        levels = np.concatenate([one.levels.reshape(shape[:2]) for one in self.points], axis=1)
        columns = np.flatnonzero(coefs.any(axis=(0, 1)))
        return Functions(columns, self.means[columns], coefs[:, :, columns], levels)

    def warn(self, name: str, asked: Asked, what: str) -> None:
        """Warn of fits whose gap is above its tolerance; `name` is that of the parameter."""
        certified = asked.penalty.certified and asked.loss.certified
        for points, tolerance in zip(self.points, self.tolerances, strict=True):
            for number in np.flatnonzero(~(points.gaps <= tolerance)):
                where = f"{what[:1].upper()}{what[1:]} at {name}={self.values[number]:.3g}"
                warn_of_gap(
                    where,
                    asked,
                    asked.loss,
                    certified,
                    int(points.steps[number]),
                    points.gaps[number] / self.total,
                    tolerance / self.total,
                )


def solve_paths(
    problem: Problem, asked: Asked, grid: Grid, targets: Targets, most: float = 1.0
) -> Iterator[Paths]:
    """Yield the solutions for the penalties of a grid, of one target or of each class: more of them each time.

    By rounds the path of one target gets one penalty longer each time.  Otherwise all solutions
    come at once.

    Parameters
    ----------
    problem : Problem
    asked : Asked
    grid : Grid
    targets : Targets
    most : float, default=1.0
        Explained share of the loss at which paths end.
    """
    asked = asked._replace(penalty=problem.in_units(asked.penalty))
    _, found = problem.at_hand(grid.count, asked.loss, asked.penalty, targets.labels)
    if found is not None:
        numbers = range(len(targets.labels) or 1)
        largest = 0.0 if grid.given is not None else max(map(found.largest, numbers))
        values = grid.values(largest, found.total, targets.unit)
        strengths = grid.strength(values, found.total, targets.unit)
        tolerances = [asked.tol * found.square(number) for number in numbers]
        points = [
            _until_saturation(found, number, asked, strengths, tolerances[number], most)
            for number in numbers
        ]
        met = all((one.gaps <= goal).all() for one, goal in zip(points, tolerances, strict=True))
        if found.at_hand or met:
            yield Paths(values, points, found.means, found.total, tolerances)
            return
    yield from _by_rounds(problem, asked, grid, targets, most)


def _until_saturation(
    found: ProblemAtHand,
    target: int,
    asked: Asked,
    strengths: Floats,
    tolerance: float,
    most: float,
) -> Points:
    """Return the solutions of a problem in memory, up to the first that explains a share `most` of the loss."""
    if most == 1.0:
        return found.path(target, strengths, tolerance, asked.max_iter)
    first = np.maximum(found.largest(target), strengths[:1])  # all penalised coefficients are zero
    points = found.path(target, np.append(first, strengths), tolerance, asked.max_iter)
    costs = [
        at * asked.penalty.value(coef)
        for at, coef in zip(points.penalties, points.coefs, strict=True)
    ]
    null, *losses = points.objectives - costs
    ends = (number for number, loss in enumerate(losses, 2) if is_saturated(loss, null, most))
    end = next(ends, None)
    return Points(*(field[1:end] for field in points))


def _by_rounds(
    problem: Problem, asked: Asked, grid: Grid, targets: Targets, most: float
) -> Iterator[Paths]:
    jobs = targets.jobs
    unit = targets.unit
    done = list[Path]()
    largest = 0.0

    def ahead(found: float, total: float) -> Sequence[float]:
        found = largest or found
        return grid.strength(grid.values(found, total, unit), total, unit).tolist()

    def begun(job: Any, ahead: Callable[[float, float], Sequence[float]]) -> Path:
        if job is not None:
            problem.do(job)
        above = asked.penalty.scaled(ABOVE_ALL)
        given = asked, asked.loss, above, problem.extent, problem.n_partitions
        path = Path(make_program(*given), asked.penalty, ahead, most)
        if done:
            path.program.follow(done[-1].program)
        done.append(path)
        problem.run(path)
        problem.tell_of(path.program.design.dropped)
        return path

    def found(*paths: Path) -> Paths:
        total = paths[0].program.design.total_weight
        values = grid.values(largest or paths[0].largest, total, unit)
        tolerances = [path.program.certificate.tolerance for path in paths]
        points = [path.points() for path in paths]
        return Paths(values, points, paths[0].means, total, tolerances)

    if grid.given is None and len(jobs) > 1:
        largest = max(begun(job, lambda *_: ()).largest for job in jobs)
    for job in jobs:
        path = begun(job, ahead)
        while not path.ended:
            if len(jobs) == 1:
                yield found(path)
            problem.run(path)
    yield found(*done[-len(jobs) :])


def path_of(
    function: Callable[..., Any], kind: Any, given: Mapping[str, Any], grid: Grid | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the path for the arguments of a public function: penalties, coefficients, intercepts and gaps.

    Parameters
    ----------
    function : callable
        The public function.
    kind : type
        The estimator that chooses a penalty on this path.
    given : mapping
        The arguments of the function.  If X is on Dask, the path is computed on the cluster.
    grid : Grid, optional
        The penalties, if they are not those of the estimator.
    """
    check_arguments(function, given)
    parameters = {name: given[name] for name in kind._get_param_names() if name in given}
    model = _renamed(kind, function.__name__)(**parameters)
    model._validate_params()
    loss = model._loss()
    grid = grid or model._grid()
    grid.check(model.l1_ratio, signature(function).parameters["eps"].default)
    most = given["max_worse"]
    new_data = given["validation_data"]
    if (most is None) != (new_data is None) or (most and len(new_data) not in (2, 3)):
        raise ValueError(
            "max_worse needs validation_data=(X, y) or (X, y, sample_weight), which needs max_worse"
        )

    def run() -> tuple[Floats, Floats, Floats, Floats]:
        options = {**reading(loss), "multi_output": False, "place": place}
        samples = read_samples(model, given["X"], given["y"], given["sample_weight"], **options)
        targets = find_targets(model, samples)
        classes = targets.classes
        unit = targets.unit
        if classes is not None and len(targets.labels) > 1:
            count = len(classes)
            named = ", ".join(map(repr, classes[:5].tolist()))
            raise ValueError(
                f"y holds {count} classes, {named}{', …' if count > 5 else ''} (of samples with positive weight); a "
                "path is for two classes: pass y == label for one class against all others"
            )

        new = _new_data(model, new_data, classes, place) if most else None
        deviance = Deviances(loss, () if classes is None else positives(len(classes)))

        def cost(coef: Floats, levels: Floats) -> float:
            assert new is not None
            model.coef_ = coef
            model.intercept_ = levels + targets.shifts
            if problem.fill is not None:
                model.fill_values_ = problem.fill
            values = model._linear_values(new.X).T
            if is_joint(loss) and len(values) == 1:  # the difference of two classes
                values = np.vstack([np.zeros_like(values), values])
            return float(deviance(values[None], new.y, new.weights)[0])

        with open_problem(model, samples, targets, place, name="path") as problem:
            asked = model._asked(model.l1_ratio, classes)
            costs = list[float]()
            for found in solve_paths(problem, asked, grid, targets, given["max_explained"]):
                if most:
                    costs.extend(map(cost, *found.at(slice(len(costs), None)).solutions()))
                if (end := end_of(costs, most)) is not None:
                    break
            found = found.at(slice(end))
        found.warn(grid.name, asked, model._what)
        [points] = found.points
        values = found.values[: found.reached]
        coefs, levels = found.arrays(targets.shifts, found.reached)
        return values, coefs, levels, grid.in_units(points.gaps, values, found.total, unit)

    with place_of(given["X"], function.__name__) as place, one_blas_thread():
        return retry(place, run)


def _new_data(model: Any, given: Any, classes: Any, place: Place) -> Samples:
    """Return `validation_data`, checked before any work, with numbers of classes as y.

    `model` knows the features.
    """
    X, y, weights = (*given, None)[:3]
    try:
        y, weights = (here(one, "its y or its weights", place) for one in (y, weights))
        y = check_responses(model, y, **reading(model._loss()) | {"multi_output": False})
        weights = check_weights(weights, y)
        model.coef_ = np.zeros((1, model.n_features_in_))
        model.intercept_ = np.zeros(1)
        check_length(len(model._linear_values(X)), len(y))
        if classes is not None:
            if not (known := np.isin(y, classes)).all():
                raise ValueError(f"y holds {y[~known][0]!r}, which is no class of the fit")
            y = np.searchsorted(classes, y)
    except (TypeError, ValueError) as error:
        raise ValueError(f"validation_data: {error}") from None
    return Samples(X, y, weights)


@cache
def _renamed(kind: type, name: str) -> Any:
    """Return the class with another name, for messages."""
    return type(name, (kind,), {})
