"""The paths of the folds of a cross-validation, and what they make of the samples held out."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum, abreast
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.folding import FoldedProblem
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.programs.folds import (
    Drop,
    Multiply,
    OfFold,
    PathErrors,
    Prediction,
    SquaredErrors,
    Training,
)
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, Solution
from schmp_estimators.linear.programs.input import Label, is_sparse, prefer_residual, resolution
from schmp_estimators.linear.programs.path import LassoPath, LogisticPath, PathOptions


class LassoFold(LassoPath):
    """The path of a fold, and its errors on the samples held out; the number after the last stands for all samples."""

    def __init__(self, problem: FoldedProblem, options: PathOptions, number: int) -> None:
        size, n_partitions = problem.shape(number)
        self._problem, self._number, self._alpha = problem, number, np.inf
        super().__init__(
            options,
            prefer_residual(size),
            lambda job: OfFold(number, Training(job)),
            n_partitions=n_partitions,
            n_rows=size.n_rows,
            eps=resolution(problem.extent.dtype),
        )

    def largest(self) -> Steps:
        """Return the smallest alpha whose solution is zero."""
        found = yield from self.start()
        yield Drop(self._number)
        return found

    def go_to(self, alpha: float) -> Steps:
        """Fit with a penalty."""
        self._alpha = alpha
        yield from super().go_to(alpha)
        shared.tell_of(self._problem, self.model)
        shared.warn_unless_converged(self.model, self.options.max_iter, f"A fold of the Lasso at alpha={alpha:.3g}")

    def held_out(self) -> Steps:
        """Return the mean squared error."""
        model = self.model
        columns = np.flatnonzero(model.coef)
        coef, shifts = model.coef[columns], model.shifts[columns] if len(model.shifts) else model.shifts
        level = model.level - float(model.means[columns] @ coef)
        errors, total = yield Sum(OfFold(self._number, SquaredErrors(Prediction(columns, coef, shifts, level))))
        return errors / total

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes as they are now."""
        return {"alpha_": self._alpha, "coef_": self.model.coef.copy(), "intercept_": self.model.intercept}


class FoldAtHand(LassoFold):
    """The path of a fold in one call, where that needs no rounds."""

    def __init__(
        self,
        problem: FoldedProblem,
        options: PathOptions,
        number: int,
        found: Callable[[int], HomotopyProblem | None],
        alphas: np.ndarray,
    ) -> None:
        super().__init__(problem, options, number)
        self._found, self._alphas = found, alphas
        self._points: dict[float, tuple[Solution, float]] | None = None

    def start(self) -> Steps:
        """Solve for all penalties, if that needs no rounds."""
        found, alphas = self._found(self._number), self._alphas
        if found is not None:
            tolerance = self.options.tolerance * found.square(0)
            points = found.path(0, alphas * found.total, tolerance, self.options.max_iter)
            if found.at_hand or (points.gaps <= tolerance).all():
                errors = yield from self._errors(found, points.coefs)
                solutions = zip(found.solutions(0, points, tolerance), errors.tolist(), strict=True)
                self._points = dict(zip(alphas.tolist(), solutions, strict=True))
                return
        yield from super().start()

    def _errors(self, found: HomotopyProblem, coefs: np.ndarray) -> Steps:
        data, rows = found.whole, self._problem.rows
        if rows is None:
            job = PathErrors(coefs, data.means, float(data.levels[0]))
            errors, total = yield Sum(OfFold(self._number, job))
            return errors / total
        columns, [response], weights = rows.part(self._problem.plan.folds[self._number][1])
        left = response - data.levels[0] - coefs @ (columns - data.means[:, None])
        return np.average(left**2, axis=1, weights=weights if len(weights) else None)

    def go_to(self, alpha: float) -> Steps:
        """Take the solution for a penalty."""
        if self._points is None:
            yield from super().go_to(alpha)
            return
        self._alpha, what = alpha, f"A fold of the Lasso at alpha={alpha:.3g}"
        shared.warn_unless_converged(self._points[alpha][0], self.options.max_iter, what)

    def held_out(self) -> Steps:
        """Return the mean squared error."""
        return (yield from super().held_out()) if self._points is None else self._points[self._alpha][1]

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes as they are now."""
        if self._points is None:
            return super().attributes()
        solution = self._points[self._alpha][0]
        return {"alpha_": self._alpha, "coef_": solution.coef.copy(), "intercept_": solution.intercept}


class LogisticFold:
    """The paths of a fold, of each class that it has, and their scores on the samples held out."""

    def __init__(
        self,
        problem: FoldedProblem,
        options: PathOptions,
        number: int,
        found: np.ndarray,
        classes: np.ndarray,
        unit: float,
        score: Callable[["LogisticFold"], Steps],
    ) -> None:
        size, n_partitions = problem.shape(number)
        self._problem, self._options, self._classes, self._unit, self._score = problem, options, classes, unit, score
        self.codes, self._C, self._held_out = tuple(found.tolist()), np.inf, None
        self._positives = self.codes if len(found) > 2 else self.codes[1:]
        self._number = number
        self._paths = [
            LogisticPath(
                options,
                prefer_residual(size),
                partial(_of_fit, number, position),
                n_partitions=n_partitions,
                n_rows=size.n_rows,
                eps=resolution(problem.extent.dtype),
            )
            for position in range(len(self._positives))
        ]

    def start(self) -> Steps:
        """Get ready for the first penalty."""
        first, *others = self._paths
        yield OfFold(self._number, Training(Label(self._positives[0])))
        yield from first.start()
        if others:
            yield OfFold(self._number, Multiply(self._positives))
            yield from abreast([path.start(first) for path in others])

    def go_to(self, C: float) -> Steps:
        """Fit with a penalty."""
        self._C = C
        yield from abreast([path.go_to(C * self._unit) for path in self._paths])
        for path in self._paths:
            shared.tell_of(self._problem, path.model)
            shared.warn_unless_converged(path.model, self._options.max_iter, "A fold of logistic regression")

    def held_out(self) -> Steps:
        """Return the score."""
        return (yield from self._score(self))

    def functions(self) -> tuple[Prediction, ...]:
        """Return the decision functions."""
        found = []
        for path in self._paths:
            model = path.model
            columns = np.flatnonzero(model.coef)
            shifts = model.shifts[columns] if len(model.shifts) else model.shifts
            found.append(Prediction(columns, model.coef[columns], shifts, model.level))
        return tuple(found)

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes as they are now."""
        models = [path.model for path in self._paths]
        coef, intercept = self._of_all_classes(np.array([m.coef for m in models]), [m.intercept for m in models])
        return {"C_": self._C, "classes_": self._classes, "coef_": coef, "intercept_": intercept}

    def _of_all_classes(self, coef: np.ndarray, levels: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and intercepts for which classes that this fold has not are impossible."""
        count, levels = len(self._classes), np.array(levels)
        if len(self.codes) == count:
            return coef, levels
        signs = np.array([[-1.0], [1.0]]) if len(self.codes) == 2 else np.ones((len(self.codes), 1))
        whole, intercept = np.zeros((count, coef.shape[1])), np.full(count, -np.inf)
        whole[list(self.codes)] = signs * coef
        intercept[list(self.codes)] = signs[:, 0] * levels
        return whole, intercept

    def fitted(self) -> SparseLogisticRegression:
        """Return the present fit."""
        return _model_of(self.attributes())

    def on_decisions(self) -> SparseLogisticRegression:
        """Return a model that predicts from the values of `functions` what the present fit does from samples."""
        count = len(self._paths)
        coef, intercept = self._of_all_classes(np.eye(count), np.zeros(count))
        return _model_of({"classes_": self._classes, "coef_": coef, "intercept_": intercept})

    def held_out_rows(self, X: Any, rows: np.ndarray) -> Any:
        """Return the samples held out, cut out once."""
        if self._held_out is None:
            self._held_out = X.tocsr()[rows] if is_sparse(X) else X[rows]
        return self._held_out


def _of_fit(number: int, position: int, job: Any) -> OfFold:
    return OfFold(number, Training(job, position))


def _model_of(attributes: dict[str, Any]) -> SparseLogisticRegression:
    model = SparseLogisticRegression()
    model.__dict__.update(attributes, n_features_in_=attributes["coef_"].shape[1])
    return model
