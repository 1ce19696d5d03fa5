"""A smooth loss with all columns in one place, solved by one call of a kernel: fits, and whole paths."""

from typing import Any

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.lanes import LANES, UNROLLED, at_line
from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.kernels.smooth import N_LEVELS, N_ROWS, SmoothColumns, SmoothRows
from schmp_estimators.linear.kernels.smooth_path import N_RECORDS, follow_smooth_path
from schmp_estimators.linear.losses.base import Rowwise
from schmp_estimators.linear.penalties.base import Penalty, sizes
from schmp_estimators.linear.programs.centred import Rows, are_flat, subtract_means
from schmp_estimators.linear.programs.homotopy import (
    ProblemAtHand,
    Shape,
    Wanted,
    first_room,
    make_room,
)
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.solution import ABOVE_ALL, Points

#: Number of rows that `dot` processes at a time.
_STRIDE = LANES * UNROLLED


class SmoothProblem(ProblemAtHand):
    """A smooth loss with all columns in one place.

    Parameters
    ----------
    rows : Rows
        Columns minus their `means`, responses and weights.
    means : ndarray of shape (p,)
        Zeros without an intercept.
    squares : ndarray of shape (p,)
        Weighted sums of squares of the columns.
    loss : Rowwise
    penalty : Penalty
        The penalty of strength one for all columns; it has a duality gap.
    fit_intercept : bool
    """

    def __init__(
        self,
        rows: Rows,
        means: Floats,
        squares: Floats,
        loss: Rowwise,
        penalty: Penalty,
        fit_intercept: bool,
    ) -> None:
        self.rows, self.means, self.loss, self.penalty = rows, means, loss, penalty
        self.total, self.shape = float(rows.weights.sum()), Shape.of(penalty, len(means))
        self._shape = (
            self.shape.factors,
            self.shape.ridges,
            squares,
            bool(fit_intercept),
            self.shape.positive,
        )
        #: for each target, the smallest λ for which all coefficients are zero, and the intercept
        #: there
        self._null: dict[int, tuple[float, float]] = {}

    def square(self, target: int) -> float:
        """Return the loss without coefficients."""
        if at_zero := declared(self.loss, "at_zero"):
            return self.total * float(at_zero(0.0)[0])
        return self.objective(target, 0.0, np.zeros(len(self.means)), 0.0)

    def largest(self, target: int) -> float:
        """Return the smallest λ for which all coefficients are zero."""
        return self._without(target)[0]

    def objective(self, target: int, penalty: float, coef: Floats, level: float) -> float:
        """Return the objective at some coefficients and the intercept of columns less their means."""
        decision = coef @ self.rows.columns if coef.any() else np.zeros(self.rows.columns.shape[1])
        value = self.loss.derivatives(
            decision, self.rows.responses[target], self.rows.weights, level
        ).level.loss
        return value + penalty * self.penalty.value(coef)

    def follow(self, target: int, wanted: Wanted) -> Points:
        """Return the wanted solutions."""
        if not wanted.start.any():
            wanted = wanted._replace(level=self._without(target)[1])
        return self._run(target, wanted)[0]

    def _without(self, target: int) -> tuple[float, float]:
        """Return the smallest λ for which all coefficients are zero, and the intercept there."""
        if target not in self._null:
            above, nothing, most = (
                np.array([[ABOVE_ALL], [0.0]]),
                np.zeros(len(self.means)),
                np.zeros(1, np.int64),
            )
            points, gradient = self._run(target, Wanted(above, np.inf, most, nothing))
            largest = max(0.0, float((sizes(self.penalty, gradient) / self.shape.factors).max()))
            self._null[target] = largest, float(points.levels[0])
        return self._null[target]

    def _run(self, target: int, wanted: Wanted) -> tuple[Points, Floats]:
        *given, start, level = wanted
        (n_columns, n_rows), count = self.rows.columns.shape, len(wanted.most)
        columns = SmoothColumns(
            self.rows.columns, self.rows.responses[target], self.rows.weights, *self._shape
        )
        asked = self.square(target), *given, start
        follow, size = (
            compiled_for(self.loss, follow_smooth_path),
            first_room(n_columns, n_rows, start),
        )
        while True:
            coefs, records, levels = (
                np.zeros((count, n_columns)),
                np.zeros((count, N_RECORDS)),
                np.zeros(N_LEVELS),
            )
            levels[0], room = level, make_room(size, n_columns)
            rows = SmoothRows._make([*np.empty((N_ROWS, n_rows)), np.empty((size, n_rows)), levels])
            if follow(self.loss, columns, room, rows, *asked, coefs, records) == count:
                break
            size = min(n_columns, 2 * size)
        *fields, levels = np.ascontiguousarray(records.T)
        return Points(wanted.asked[0], coefs, levels, *fields), room.gradient


def smooth_problem(
    rows: Rows, loss: Any, penalty: Penalty, fit_intercept: bool, eps: float
) -> SmoothProblem | None:
    """Return a problem with a smooth loss, or None if columns vary by little more than rounding, or underflow.

    The columns of `rows` are overwritten.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    _, means, squares, raw = subtract_means(rows, fit_intercept)
    if are_flat(rows.columns, squares, raw, eps):
        return None
    return SmoothProblem(_padded(rows), means, squares, loss, penalty, fit_intercept)


def _padded(rows: Rows) -> Rows:
    """Return the rows with their weights, padded by rows of weight zero to a multiple of the vector length."""
    n_columns, n_rows = rows.columns.shape
    missing = -n_rows % _STRIDE
    columns = at_line((n_columns, n_rows + missing))
    columns[:, :n_rows], columns[:, n_rows:] = rows.columns, 0.0
    weights = rows.weights if len(rows.weights) else np.ones(n_rows)
    responses = np.pad(rows.responses, ((0, 0), (0, missing)), mode="edge")
    return Rows(columns, responses, np.pad(weights, (0, missing)))
