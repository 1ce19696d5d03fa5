"""The fits of a fold, which may go on penalty by penalty, and their scores on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.typing import Named
from schmp_estimators.linear.losses.base import total_of
from schmp_estimators.linear.paths import Paths, solve_paths
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.problem import Problem
from schmp_estimators.linear.programs.folds import Decide, Functions, HeldOut
from schmp_estimators.linear.programs.input import Label
from schmp_estimators.linear.samples import Samples
from schmp_estimators.linear.targets import Targets, positives


class Common(NamedTuple):
    """What all folds have in common, for one target or all classes, and one L1 ratio."""

    problem: Problem
    asked: Any
    grid: Any
    targets: Targets
    folds: Sequence[tuple[Any, Any]]
    samples: Samples
    #: numbers of the samples with positive weight, and arguments of the scorer
    counted: Indices
    scored: Mapping[str, Any]

    def of_target(self, number: int) -> Common:
        """Return the same for one of several targets."""
        if self.targets.n_targets == 1:
            return self
        y = self.samples.y[:, number]
        targets = self.targets.of(number)
        samples = self.samples._replace(y=y)
        return self._replace(
            problem=self.problem.of_target(number), targets=targets, samples=samples
        )


class Fold:
    """The fits of a fold, for each class in it.

    The number after that of the last fold stands for all samples.  Each penalty is reported as a
    part of `task`, if there is one; `data` are what callbacks get.
    """

    def __init__(self, given: Common, number: int, task: Any = None, **data: Any) -> None:
        self.given = given
        self._problem = given.problem.fold(number)
        targets = given.targets
        self.codes = list[int]()
        if targets.classes is not None:
            self.codes = np.unique(targets.responses[self._problem.fitted]).astype(int).tolist()
        if targets.labels:
            jobs = [Label(self.codes[k]) for k in positives(len(self.codes))]
            targets = targets._replace(jobs=jobs)
        self.targets = targets
        #: the solutions, and how many of them have been scored
        self.paths: Any = None
        self.scored = 0
        #: yields more solutions, of a path by rounds from the saved state of its partitions
        self._ahead = solve_paths(self._problem, given.asked, given.grid, targets)
        self._saved: Any = None
        self._task = task
        self._data = data
        #: number of penalties reported, and the task of the next one
        self._told = 0
        self._step = self._next_step()

    @property
    def rows(self) -> Indices:
        """Numbers of the samples held out."""
        return self.given.counted[self._problem.tested]

    def solve(self, until: int | None = None) -> Paths:
        """Solve for all penalties, or for so many at least, or until a callback ends the path."""
        if self._saved is not None:
            self._problem.rounds.restore(self._saved)
            self._saved = None
        while self.paths is None or not self.paths.reached >= (until or np.inf):
            found = next(self._ahead, None)
            if found is None:
                break
            self.paths = found
            if self._task is not None and self._ends_at(found.reached):
                self.paths = found.at(slice(self._told))
                self._ahead = iter(())
        return self.paths

    def _next_step(self) -> Any:
        if self._task is not None and self._told < self.given.grid.count:
            step = self._task.subcontext(task_name="penalty")
            return step.call_on_fit_task_begin(**self._data)
        return None

    def _ends_at(self, reached: int) -> bool:
        """Report penalties up to a number; returns whether a callback ends the path."""
        stops = False
        while self._told < reached and not stops:
            attributes = partial(self.attributes, self._told)
            stops = self._step.call_on_fit_task_end(
                **self._data, reconstruction_attributes=attributes
            )
            self._told += 1
            if not stops:
                self._step = self._next_step()
        return bool(stops)

    def pause(self) -> None:
        """Save the state of a path by rounds that may go on, and let go of the rows."""
        if self.paths.reached < len(self.paths.values):
            self._saved = self._problem.rounds.save()
            self._problem.free()

    @cached_property
    def _held_out(self) -> Any:
        return self._problem.held_out()

    def _functions(self) -> Functions:
        """Return the solutions that have not been scored."""
        return self.paths.at(slice(self.scored, None)).functions()

    def held_out(self, score: Any) -> Floats:
        """Return the mean scores, for each new penalty, on the samples held out."""
        functions = self._functions()
        here = self._held_out
        if here is None:
            sums, total = tree_sum(
                self._problem.do(HeldOut(functions, score, self._problem.target or 0))
            )
        else:
            rows, weights = here
            sums = score(functions.of(rows.columns[functions.columns]), rows.responses[0], weights)
            total = total_of(weights, rows.columns.shape[1])
        return sums / total

    def decisions(self) -> Floats:
        """Return the values of the new functions on the held-out samples.

        Their shape is (n_penalties, n_functions, n).
        """
        functions = self._functions()
        here = self._held_out
        if here is not None:
            return functions.of(here[0].columns[functions.columns])
        return np.concatenate(
            [one for one in self._problem.do(Decide(functions)) if one is not None], axis=2
        )

    def attributes(self, number: int) -> Named:
        """Return the fitted attributes with one of the penalties."""
        coefs, levels = self.paths.at(slice(number, number + 1)).solutions()
        fill = self._problem.fill
        return {
            f"{self.given.grid.name}_": float(self.paths.values[number]),
            **({} if fill is None else {"fill_values_": fill}),
            **self.of_all_classes(coefs[0], levels[0]),
        }

    def of_all_classes(self, coef: Floats, levels: Floats) -> Named:
        """Return coefficients and intercepts; classes missing in this fold are impossible."""
        classes = self.targets.classes
        levels = levels + self.targets.shifts
        if classes is None:
            return {"coef_": coef[0], "intercept_": float(levels[0])}
        if len(self.codes) < len(classes) and self.targets.labels:
            signs = np.array([-1.0, 1.0] if len(self.codes) == 2 else [1.0] * len(self.codes))
            fitted = (signs[:, None] * coef, signs * levels)
            levels = np.full(len(classes), -np.inf)
            coef = np.zeros((len(classes), coef.shape[1]))
            coef[self.codes], levels[self.codes] = fitted
        return {"classes_": classes, "coef_": coef, "intercept_": levels}
