"""The fits of a fold, which may go on penalty by penalty, and their scores on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.losses.base import total_of
from schmp_estimators.linear.paths import Paths, solution_of, solve_paths
from schmp_estimators.linear.penalties.choose import Floats, Grid
from schmp_estimators.linear.problem import Problem
from schmp_estimators.linear.programs.choose import Path
from schmp_estimators.linear.programs.folds import Decide, Functions, HeldOut
from schmp_estimators.linear.programs.input import Label
from schmp_estimators.linear.samples import Samples, Targets, positives


class Common(NamedTuple):
    """What all folds have in common, for one target or all classes, and one L1 ratio."""

    problem: Problem
    asked: Any
    grid: Any
    targets: Targets
    folds: Sequence[tuple[Any, Any]]
    samples: Samples
    #: numbers of the samples with positive weight, and arguments of the scorer
    counted: NDArray[np.int64]
    scored: Mapping[str, Any]

    def of_target(self, number: int) -> Common:
        """Return the same for one of several targets."""
        if self.targets.n_targets == 1:
            return self
        y = self.samples.y[:, number]
        targets, samples = self.targets.of(number), self.samples._replace(y=y)
        return self._replace(
            problem=self.problem.of_target(number), targets=targets, samples=samples
        )


class Fold:
    """The fits of a fold, for each class in it.

    The number after that of the last fold stands for all samples.
    """

    def __init__(self, given: Common, problem: Problem) -> None:
        self.given, self._problem, self.targets = given, problem, given.targets
        self.codes: Sequence[int] = ()
        if self.targets.classes is not None:
            self.codes = np.unique(self.targets.responses[problem.fitted]).astype(int).tolist()
        if self.targets.labels:
            jobs = [Label(self.codes[k]) for k in positives(len(self.codes))]
            self.targets = self.targets._replace(jobs=jobs)
        #: the solutions, and how many of them have been scored
        self.paths: Paths | None = None
        self.scored = 0
        #: a path by rounds that may go on, and the state of its partitions
        self._under_way: Path | None = None
        self._saved: Any = None

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the samples held out."""
        return self.given.counted[self._problem.tested]

    def solve(
        self, grid: Grid, report: Callable[[], bool] | None = None, until: int | None = None
    ) -> Paths:
        """Solve for all penalties of a grid, or go on until so many of them are reached.

        If there is one function, and rounds, `report` is called after each penalty, and the path
        may pause.
        """

        def heard(path: Path) -> bool:
            self._under_way = path
            if report is not None and report():
                self._under_way = None
            return self._under_way is None or len(path.found) == until

        path = self._under_way
        if self.paths is None:
            told = heard if (report or until) and len(self.targets.jobs) == 1 else None
            given = self._problem, self.given.asked, grid, self.targets
            self.paths = solve_paths(*given, report=told)
        elif path is not None:
            self._problem.rounds.restore(self._saved)
            self._problem.run(path, lambda _: heard(path))
            self.paths = self.paths._replace(points=[path.points()])
        return self.paths

    def pause(self) -> None:
        """Save the state of a path by rounds, and let go of the rows."""
        if self._under_way is not None:
            self._saved = self._problem.rounds.save()
            self._problem.free()

    @cached_property
    def _held_out(self) -> Any:
        return self._problem.held_out()

    def _functions(self) -> Functions:
        """Return the solutions that have not been scored."""
        assert self.paths is not None
        return self.paths.at(slice(self.scored, None)).functions()

    def held_out(self, score: Any) -> Floats:
        """Return the mean scores, for each new penalty, on the samples held out."""
        functions, here = self._functions(), self._held_out
        if here is None:
            sums, total = tree_sum(
                self._problem.do(HeldOut(functions, score, self._problem.target or 0))
            )
        else:
            rows, weights = here
            sums = score(functions.of(rows.columns[functions.columns]), rows.responses[0], weights)
            total = total_of(weights, rows.columns.shape[1])
        found: Floats = sums / total
        return found

    def decisions(self) -> Floats:
        """Return the values of the new functions on the held-out samples.

        Their shape is (n_penalties, n_functions, n).
        """
        functions, here = self._functions(), self._held_out
        if here is not None:
            return functions.of(here[0].columns[functions.columns])
        return np.concatenate(
            [one for one in self._problem.do(Decide(functions)) if one is not None], axis=2
        )

    def attributes(self, number: int) -> dict[str, Any]:
        """Return the fitted attributes with one of the penalties."""
        given, path = self.given, self._under_way
        if path is None:
            assert self.paths is not None
            found = self.paths.at(slice(number, number + 1)).solutions()
            coef, levels = (part[0] for part in found)
        else:
            coef, levels = solution_of(path, number)
        fill = self._problem.fill
        return {
            f"{given.grid.name}_": float(given.grid.given[number]),
            **({} if fill is None else {"fill_values_": fill}),
            **self.of_all_classes(coef, levels),
        }

    def of_all_classes(self, coef: Floats, levels: Floats) -> dict[str, Any]:
        """Return coefficients and intercepts; classes missing in this fold are impossible."""
        classes, levels = self.targets.classes, levels + self.targets.shifts
        if classes is None:
            return {"coef_": coef[0], "intercept_": float(levels[0])}
        if len(self.codes) < len(classes) and self.targets.labels:
            signs = (
                np.array([[-1.0], [1.0]]) if len(self.codes) == 2 else np.ones((len(self.codes), 1))
            )
            whole, intercept = (
                np.zeros((len(classes), coef.shape[1])),
                np.full(len(classes), -np.inf),
            )
            whole[list(self.codes)] = signs * coef
            intercept[list(self.codes)] = signs[:, 0] * levels
            coef, levels = whole, intercept
        return {"classes_": classes, "coef_": coef, "intercept_": levels}


class Penalties:
    """Reports the penalties of a fold to callbacks, until a callback ends the path."""

    def __init__(self, task: Any, data: dict[str, Any], fold: Fold, count: int) -> None:
        self._task, self._data, self._fold, self._most = task, data, fold, count
        self.count, self._step = 0, self._begun()

    def _begun(self) -> Any:
        return self._task.subcontext(task_name="penalty").call_on_fit_task_begin(**self._data)

    def told(self) -> bool:
        """Report a penalty; returns whether the path ends."""
        attributes = partial(self._fold.attributes, self.count)
        self.count += 1
        stops = bool(
            self._step.call_on_fit_task_end(**self._data, reconstruction_attributes=attributes)
        )
        if not stops and self.count < self._most:
            self._step = self._begun()
        return stops or self.count == self._most
