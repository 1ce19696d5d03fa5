"""Groups of columns, and several classes at once, are fitted where all of X is at hand, by blocks of coefficients."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear.penalties.group import Group
from schmp_estimators.linear.programs.blocks import BlockProblem, OneOutput, Points
from schmp_estimators.linear.programs.centred import Fetch, Rows, joined
from schmp_estimators.linear.programs.choose import is_small
from schmp_estimators.linear.programs.folds import FetchAll
from schmp_estimators.linear.programs.homotopy import Solution
from schmp_estimators.linear.programs.input import Extent, resolution
from schmp_estimators.linear.programs.matrix import Floats


def is_joint(loss: Any) -> bool:
    """Return whether a loss is one of all classes at once."""
    return hasattr(loss, "n_outputs")


def of_classes(loss: Any, classes: Any) -> Any:
    """Return a loss, of all classes at once with a decision value for each."""
    return replace(loss, n_outputs=len(classes)) if is_joint(loss) else loss


def has_blocks(loss: Any, penalty: Any) -> bool:
    """Return whether coefficients come in blocks."""
    return is_joint(loss) or isinstance(penalty, Group)


def check_size(size: Extent) -> None:
    """Raise ValueError if X is too large for this."""
    if not is_small(size):
        raise ValueError(
            f"X has {size.n_rows} rows and {size.n_columns} columns: groups and multinomial loss are for X of up to "
            '2^22 entries; give fewer columns or rows, penalty="l1", or loss="logistic"'
        )


class BlocksAtHand(BlockProblem):
    """Blocks, as fits, paths and folds ask for them."""

    at_hand = True

    @classmethod
    def of(cls, rows: Rows, fit_intercept: bool, loss: Any, penalty: Any, eps: float, labels: Sequence[int]) -> Any:
        """Return the problem of rows whose columns may be overwritten; `labels` are fitted against all others."""
        if len(labels):
            rows = rows._replace(responses=np.where(rows.responses[:1] == np.reshape(labels, (-1, 1)), 1.0, -1.0))
        with one_blas_thread():
            return cls(rows, fit_intercept, loss, penalty, eps)

    def square(self, target: int) -> float:
        """Return what tolerances are a part of."""
        return self.null(target) * (2.0 if getattr(self._loss, "constant_curvature", False) else 1.0)

    @property
    def _loss(self) -> Any:
        return self.loss.loss if isinstance(self.loss, OneOutput) else self.loss

    def solutions(self, target: int, points: Points, tolerance: float) -> list[Solution]:
        """Return the points one by one."""
        rest = (points.objectives.tolist(), points.gaps.tolist(), points.steps.tolist())
        return [
            Solution(coef, level, objective, gap, tolerance, self.total, self.null(target), int(steps), gap)
            for coef, level, objective, gap, steps in zip(points.coefs, points.intercepts, *rest, strict=True)
        ]

    def as_dtype(self, target: int, points: Points, tolerance: float, dtype: type) -> Solution:
        """Return the only point with coefficients as a dtype has them, and the gap that they have then."""
        [found], [before] = (
            self.solutions(target, one, tolerance) for one in (self.rounded(target, points, dtype), points)
        )
        return replace(found, gap=before.gap)

    def deviances(self, points: Points, rows: Rows) -> Floats:
        """Return twice the mean loss of other rows at each of the points."""
        found = []
        for coef, level in zip(points.coefs, points.intercepts, strict=True):
            decision = np.atleast_2d(coef) @ rows.columns + np.reshape(level, (-1, 1))
            found.append(2.0 * self.loss.look(decision, rows.responses[0], rows.weights).loss)
        total = float(rows.weights.sum()) if len(rows.weights) else rows.columns.shape[1]
        return np.array(found) / total


def by_class(coef: Any, level: Any) -> tuple[Floats, Floats]:
    """Return the coefficients and intercepts of all classes, (K, p) and (K,), as rows of decision functions.

    Of two classes there is one, the difference of both; of one output it stays as it is.
    """
    coef, level = np.atleast_2d(coef), np.atleast_1d(level)
    return (coef[1:] - coef[:1], level[1:] - level[:1]) if len(coef) == 2 else (coef, level)


def fetched(problem: Any, fit_intercept: bool, loss: Any, penalty: Any, labels: Sequence[int]) -> BlocksAtHand:
    """Return the problem of all rows."""
    check_size(problem.extent)
    rows, eps = joined(problem.do(Fetch())), resolution(problem.extent.dtype)
    return BlocksAtHand.of(rows, fit_intercept, loss, penalty, eps, labels)


def fetched_folds(
    problem: Any, fit_intercept: bool, loss: Any, penalty: Any, labels: Sequence[int]
) -> Callable[[int, Sequence[int]], BlocksAtHand]:
    """Return what returns the problem of a fold, or, after the last, of all rows."""
    check_size(problem.extent)
    [rows] = problem.run([_fetch])
    problem.rows, eps = rows, resolution(problem.extent.dtype)
    fits = [*(train for train, _ in problem.plan.folds), slice(None)]
    return lambda number, _: BlocksAtHand.of(rows.part(fits[number]).copy(), fit_intercept, loss, penalty, eps, labels)


def _fetch() -> Any:
    return joined((yield FetchAll()))
