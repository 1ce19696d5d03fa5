"""The paths of the folds of a cross-validation, and what they make of the samples held out."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum, abreast
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.by_blocks import BlocksAtHand, by_class
from schmp_estimators.linear.folding import FoldedProblem
from schmp_estimators.linear.grids import Floats, Grid
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.programs.centred import Rows
from schmp_estimators.linear.programs.choose import is_quadratic
from schmp_estimators.linear.programs.folds import (
    Drop,
    Multiply,
    OfFold,
    PathErrors,
    Prediction,
    Training,
)
from schmp_estimators.linear.programs.homotopy import Points, Solution
from schmp_estimators.linear.programs.input import Label, is_sparse, resolution
from schmp_estimators.linear.programs.path import PathOptions, make_path
from schmp_estimators.linear.targets import FoldTargets, positives


class Folded(NamedTuple):
    """What all folds have in common."""

    problem: FoldedProblem
    loss: Loss
    options: PathOptions
    grid: Grid
    targets: FoldTargets
    #: what a fit is called in warnings, and how good it is on the samples held out
    what: str
    score: Callable[["Fold"], Steps]
    #: returns the problem of a fold, if it needs no rounds
    at_hand: Callable[[int, Sequence[int]], Any] = lambda *_: None


class Fold:
    """The fits of a fold, of each class that it has; the number after the last stands for all samples."""

    def __init__(self, given: Folded, number: int) -> None:
        problem = given.problem
        size, n_partitions = problem.shape(number)
        self.given, self.number, self.value = given, number, np.inf
        self.is_whole = number == len(problem.plan.folds)
        self.codes = tuple(np.unique(self._codes()).tolist())
        #: number of the class of each fit, which is fitted against all others
        self.labels: Sequence[int] = ()
        if given.targets.classes is not None:
            self.labels = [self.codes[k] for k in positives(len(self.codes))]
        shape = given.loss, given.options, size, n_partitions, resolution(problem.extent.dtype)
        count = max(1, len(self.labels))
        self.paths = [make_path(*shape, of=partial(_of_fit, number, position)) for position in range(count)]
        self._held_out: Any = None

    def _codes(self) -> np.ndarray:
        given = self.given
        if given.targets.classes is None:
            return np.empty(0)
        return given.targets.codes if self.is_whole else given.targets.codes[given.problem.plan.folds[self.number][0]]

    def start(self) -> Steps:
        """Get ready for the first penalty; returns the smallest λ whose solution is zero."""
        first, *others = self.paths
        if self.labels:
            yield OfFold(self.number, Training(Label(self.labels[0])))
        largest = [(yield from first.start())]
        if others:
            yield OfFold(self.number, Multiply(tuple(self.labels)))
            largest += yield from abreast([path.start(first) for path in others])
        return max(largest)

    def grid_of_all(self) -> Steps:
        """Return the penalties that fit these samples."""
        largest = yield from self.start()
        yield Drop(self.number)
        return self.given.grid.values(largest, self.total, self.given.targets.unit)

    @property
    def total(self) -> float:
        """Weight of the samples, as the fits have it."""
        return float(self.paths[0].model.total_weight)

    def go_to(self, value: float) -> Steps:
        """Fit with a penalty."""
        self.value, given = value, self.given
        strength = given.grid.strength(value, self.total, given.targets.unit)
        if len(self.paths) == 1:
            yield from self.paths[0].go_to(strength)
        else:
            yield from abreast([path.go_to(strength) for path in self.paths])
        for path in self.paths:
            shared.tell_of(given.problem, path.model)
            self._warn(path.model)

    def _warn(self, model: Any) -> None:
        given = self.given
        where = "" if self.is_whole else "A fold of "
        what = f"{where}{given.what} at {given.grid.name}={self.value:.3g}"
        shared.warn_unless_converged(model, given.options.max_iter, what)

    def held_out(self) -> Steps:
        """Return how good the present fit is on the samples held out."""
        return (yield from self.given.score(self))

    def functions(self) -> tuple[Prediction, ...]:
        """Return the decision functions."""
        found = []
        for model in (path.model for path in self.paths):
            columns = np.flatnonzero(model.coef)
            coef, shifts = model.coef[columns], model.shifts[columns] if len(model.shifts) else model.shifts
            level = model.level - float(model.means[columns] @ coef) if is_quadratic(self.given.loss) else model.level
            found.append(Prediction(columns, coef, shifts, level))
        return tuple(found)

    def solution(self) -> tuple[Floats, Floats]:
        """Return the coefficients and intercepts, one row of each."""
        models = [path.model for path in self.paths]
        levels = np.array([model.intercept for model in models]) + self.given.targets.shift
        return np.array([model.coef for model in models]), levels

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes as they are now."""
        return {f"{self.given.grid.name}_": self.value, **self.of_all_classes(*self.solution())}

    def of_all_classes(self, coef: Floats, levels: Floats) -> dict[str, Any]:
        """Return coefficients and intercepts for which classes that this fold has not are impossible."""
        classes = self.given.targets.classes
        if classes is None:
            return {"coef_": coef[0], "intercept_": float(levels[0])}
        if len(self.codes) < len(classes) and not self.given.targets.joint:
            signs = np.array([[-1.0], [1.0]]) if len(self.codes) == 2 else np.ones((len(self.codes), 1))
            whole, intercept = np.zeros((len(classes), coef.shape[1])), np.full(len(classes), -np.inf)
            whole[list(self.codes)] = signs * coef
            intercept[list(self.codes)] = signs[:, 0] * levels
            coef, levels = whole, intercept
        return {"classes_": classes, "coef_": coef, "intercept_": levels}

    def held_out_rows(self, X: Any, rows: np.ndarray) -> Any:
        """Return the samples held out, cut out once."""
        if self._held_out is None:
            self._held_out = X.tocsr()[rows] if is_sparse(X) else X[rows]
        return self._held_out


class FoldAtHand(Fold):
    """The paths of a fold in one call each, where that needs no rounds."""

    def __init__(self, given: Folded, number: int, values: Floats) -> None:
        super().__init__(given, number)
        self._values = values.tolist()
        self._found: Any = None
        #: of each fit, for each penalty, and the error on the samples held out, if it is known of all penalties
        self._solutions: list[list[Solution]] = []
        self._points: list[Points] = []
        self._errors: Floats | None = None

    def start(self) -> Steps:
        """Solve for all penalties, if that needs no rounds."""
        given, found = self.given, self.given.at_hand(self.number, self.labels)
        if found is not None:
            unit, of_blocks = given.targets.unit, isinstance(found, BlocksAtHand)
            strengths = np.array([given.grid.strength(value, found.total, unit) for value in self._values])
            for target in range(1 if of_blocks else len(self.paths)):
                tolerance = given.options.tolerance * found.square(target)
                self._points.append(found.path(target, strengths, tolerance, given.options.max_iter))
                self._solutions.append(found.solutions(target, self._points[-1], tolerance))
            if found.at_hand or not any(one.fell_short for solutions in self._solutions for one in solutions):
                self._found = found
                if of_blocks and not self.is_whole:
                    self._errors = found.deviances(self._points[0], self._test_rows())
                elif is_quadratic(given.loss) and not self.is_whole:
                    self._errors = yield from self._squared_errors()
                return None
            self._points, self._solutions = [], []
        return (yield from super().start())

    def all_solutions(self) -> Steps:
        """Return the coefficients (k, t, p) and intercepts (k, t) of k classes, or of one target, for each penalty."""
        yield from self.start()
        found = []
        for value in self._values:
            yield from self.go_to(value)
            found.append(self.solution())
        yield Drop(self.number)
        return tuple(np.stack(part, axis=1) for part in zip(*found, strict=True))

    def _squared_errors(self) -> Steps:
        [points], means, rows = self._points, self._found.means, self.given.problem.rows
        level = float(points.levels[0])
        if rows is None:
            errors, total = yield Sum(OfFold(self.number, PathErrors(points.coefs, means, level)))
            return errors / total
        columns, [response], weights = rows.part(self.given.problem.plan.folds[self.number][1])
        left = response - level - points.coefs @ (columns - means[:, None])
        return np.average(left**2, axis=1, weights=weights if len(weights) else None)

    def _test_rows(self) -> Rows:
        """Return the rows held out, as the loss has them."""
        given = self.given
        rows: Any = given.problem.rows
        rows = rows.part(given.problem.plan.folds[self.number][1])
        if given.targets.classes is None or given.targets.joint:
            return rows
        return rows._replace(responses=np.where(rows.responses[:1] == self.labels[0], 1.0, -1.0))

    @property
    def _present(self) -> int:
        return self._values.index(self.value)

    def go_to(self, value: float) -> Steps:
        """Take the solution for a penalty."""
        if self._found is None:
            yield from super().go_to(value)
            return
        self.value = value
        for solutions in self._solutions:
            self._warn(solutions[self._present])

    def held_out(self) -> Steps:
        """Return how good the present fit is on the samples held out."""
        if self._errors is not None:
            return self._errors[self._present]
        return (yield from super().held_out())

    def functions(self) -> tuple[Prediction, ...]:
        """Return the decision functions."""
        if self._found is None:
            return super().functions()
        found = []
        for points in self._points:
            coef, level = points.coefs[self._present], float(points.levels[self._present])
            columns = np.flatnonzero(coef)
            found.append(Prediction(columns, coef[columns], self._found.means[columns], level))
        return tuple(found)

    def solution(self) -> tuple[Floats, Floats]:
        """Return the coefficients and intercepts, one row of each."""
        if self._found is None:
            return super().solution()
        present = [solutions[self._present] for solutions in self._solutions]
        if isinstance(self._found, BlocksAtHand):
            coef, levels = by_class(present[0].coef.copy(), present[0].intercept)
            return coef, levels + self.given.targets.shift
        levels = np.array([one.intercept for one in present]) + self.given.targets.shift
        return np.array([one.coef for one in present]), levels


def _of_fit(number: int, position: int, job: Any) -> OfFold:
    return OfFold(number, Training(job, position))
