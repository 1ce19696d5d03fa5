"""The folds of a cross-validation: their solutions, what these predict, and what callbacks see of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.data.samples import Samples, cut
from schmp_estimators.linear.grids import Floats, Grid
from schmp_estimators.linear.opening import Problem
from schmp_estimators.linear.paths import Paths, solve_paths
from schmp_estimators.linear.programs.folds import Decide, HeldOut
from schmp_estimators.linear.programs.input import Label
from schmp_estimators.linear.programs.path import Path
from schmp_estimators.linear.targets import Targets, positives


class Given(NamedTuple):
    """Checked input of a fit, with the rows of weight zero."""

    X: Any
    y: NDArray[Any]
    #: (n,), or None if there are none
    weights: NDArray[np.float64] | None

    def rows(self, used: NDArray[np.bool_]) -> Samples:
        """Return the rows that are used; of an X on Dask the others are left out when it comes."""
        weights = np.empty(0) if self.weights is None else self.weights[used]
        if used.all() or is_dask(self.X):
            return Samples(self.X, self.y[used], weights, None if used.all() else used)
        return Samples(cut(self.X, used), self.y[used], weights, None)


class Common(NamedTuple):
    """What all folds have in common, for one target or all classes, and one L1 ratio."""

    problem: Problem
    asked: Any
    grid: Any
    targets: Targets
    folds: Sequence[tuple[Any, Any]]
    samples: Given
    #: numbers of the samples that count, and arguments of the scorer
    counted: NDArray[np.int64]
    scored: Mapping[str, Any]

    def of_target(self, number: int) -> Common:
        """Return the same for one of several targets."""
        if self.targets.n_targets == 1:
            return self
        y = self.samples.y[:, number]
        targets, samples = self.targets.of(number), self.samples._replace(y=y)
        return self._replace(problem=self.problem.of_target(number), targets=targets, samples=samples)


class Fold:
    """The fits of a fold, of each class that it has; the number after the last stands for all samples."""

    def __init__(self, given: Common, problem: Problem) -> None:
        self.given, self._problem, targets = given, problem, given.targets
        self.codes: Sequence[int] = ()
        #: number of the class of each fit, which is fitted against all others
        self.labels: Sequence[int] = ()
        self._jobs = targets.jobs
        if targets.classes is not None:
            self.codes = np.unique(targets.responses[problem.fitted]).astype(int).tolist()
        if targets.labels:
            self.labels = [self.codes[k] for k in positives(len(self.codes))]
            self._jobs = [Label(label) for label in self.labels]
        self.paths: Paths | None = None
        self._under_way: Path | None = None

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the samples held out."""
        return self.given.counted[self._problem.tested]

    def solve(self, grid: Grid, report: Callable[[], bool] | None = None) -> Paths:
        """Solve for all penalties of a grid; of one function `report` is called after each of them, if that is long."""

        def heard(path: Path) -> bool:
            self._under_way = path
            return report is not None and report()

        given = self.given
        of = self._problem, given.asked, grid, given.targets.unit, self._jobs, self.labels
        self.paths = solve_paths(*of, report=heard if report is not None and len(self._jobs) == 1 else None)
        return self.paths

    @cached_property
    def _solutions(self) -> tuple[Floats, Floats]:
        assert self.paths is not None
        return self.paths.solutions()

    def held_out(self, score: Any) -> Floats:
        """Return the mean scores, for each penalty, on the samples held out."""
        assert self.paths is not None
        functions, here = self.paths.functions(), self._problem.held_out()
        if here is None:
            sums, total = tree_sum(self._problem.do(HeldOut(functions, score, self._problem.target or 0)))
        else:
            rows, weights = here
            sums = score(functions.of(rows.columns[functions.columns]), rows.responses[0], weights)
            total = float(weights.sum()) if len(weights) else float(rows.columns.shape[1])
        found: Floats = sums / total
        return found

    def decisions(self) -> Floats:
        """Return what the functions are on the samples held out, shape (n_penalties, n_functions, n)."""
        assert self.paths is not None
        functions, here = self.paths.functions(), self._problem.held_out()
        if here is not None:
            return functions.of(here[0].columns[functions.columns])
        return np.concatenate([one for one in self._problem.do(Decide(functions)) if one is not None], axis=2)

    def attributes(self, number: int) -> dict[str, Any]:
        """Return the fitted attributes with one of the penalties."""
        given, path = self.given, self._under_way
        if self.paths is not None:
            coef, levels = (part[number] for part in self._solutions)
        else:
            assert path is not None
            coef = np.zeros((1, len(path.means)))
            coef[0, path.found[number].support] = path.found[number].coef
            levels = path.found[number].level - coef @ path.means
        return {f"{given.grid.name}_": float(given.grid.given[number]), **self.of_all_classes(coef, levels)}

    def of_all_classes(self, coef: Floats, levels: Floats) -> dict[str, Any]:
        """Return coefficients and intercepts for which classes that this fold has not are impossible."""
        classes, levels = self.given.targets.classes, levels + self.given.targets.shifts
        if classes is None:
            return {"coef_": coef[0], "intercept_": float(levels[0])}
        if len(self.codes) < len(classes) and self.labels:
            signs = np.array([[-1.0], [1.0]]) if len(self.codes) == 2 else np.ones((len(self.codes), 1))
            whole, intercept = np.zeros((len(classes), coef.shape[1])), np.full(len(classes), -np.inf)
            whole[list(self.codes)] = signs * coef
            intercept[list(self.codes)] = signs[:, 0] * levels
            coef, levels = whole, intercept
        return {"classes_": classes, "coef_": coef, "intercept_": levels}


class Penalties:
    """Tells callbacks of one penalty of a fold after the other, until one of them ends the path."""

    def __init__(self, task: Any, data: dict[str, Any], fold: Fold, count: int) -> None:
        self._task, self._data, self._fold, self._most = task, data, fold, count
        self.count, self._step = 0, self._begun()

    def _begun(self) -> Any:
        return self._task.subcontext(task_name="penalty").call_on_fit_task_begin(**self._data)

    def told(self) -> bool:
        """Tell of a penalty; returns whether the path ends."""
        attributes = partial(self._fold.attributes, self.count)
        self.count += 1
        stops = bool(self._step.call_on_fit_task_end(**self._data, reconstruction_attributes=attributes))
        if not stops and self.count < self._most:
            self._step = self._begun()
        return stops or self.count == self._most
