"""A smooth loss solved in one call of a kernel where all columns are at hand: fits, and whole paths."""

from typing import Any

import numpy as np

from schmp_estimators.core.lanes import LANES, UNROLLED
from schmp_estimators.linear.kernels.smooth import RowRoom, SmoothColumns
from schmp_estimators.linear.kernels.smooth_path import follow_smooth_path
from schmp_estimators.linear.losses.base import Rowwise
from schmp_estimators.linear.penalties.base import Penalty, compiled_for, has_free, sizes
from schmp_estimators.linear.programs.centred import Rows, are_flat, span_of, take_means
from schmp_estimators.linear.programs.homotopy import Points, ProblemAtHand, Shape, first_room, make_room
from schmp_estimators.linear.programs.matrix import Floats

#: A penalty above which every solution is zero.
_ABOVE_ALL = 1e200
#: Rows that `dot` takes at a time.
_STRIDE = LANES * UNROLLED
#: Length of what directions leave of a column, in units of its rounding, below which it is nothing else.
_REAL = 8.0


class SmoothProblem(ProblemAtHand):
    """Columns and targets at hand, ready to be solved for.

    Parameters
    ----------
    rows : Rows
        Columns less their `means`; responses that the loss knows how to compare with predictions, and weights.
    means : ndarray of shape (p,)
        Zeros without an intercept.
    loss : Rowwise
    penalty : Penalty
        That of strength one; it has a duality gap.
    fit_intercept : bool
    eps : float
        Relative distance of neighbouring numbers in X.
    """

    def __init__(
        self, rows: Rows, means: Floats, loss: Rowwise, penalty: Penalty, fit_intercept: bool, eps: float
    ) -> None:
        self.rows, self.means, self.loss, self.penalty = rows, means, loss, penalty
        self.total, self.shape = float(rows.weights.sum()), Shape.of(penalty, len(means))
        self._values, self._free = rows.columns, np.tile(rows.weights > 0.0, (int(fit_intercept), 1)).astype(np.float64)
        self._fit_intercept = bool(fit_intercept)
        self._chosen, self._basis, self._spanned = np.empty(0, np.int64), np.empty((0, 0)), np.zeros(len(means), bool)
        if has_free(penalty):
            self._take_away(penalty.strengths == 0.0, eps)
        self._squares = np.einsum("i,ji,ji->j", rows.weights, self._values, self._values)
        #: of each target, what the gradient and the coefficients along directions are where all others are zero
        self._null: dict[int, tuple[Floats, Floats]] = {}

    def square(self, target: int) -> float:
        """Return the loss without coefficients."""
        n_rows = self.rows.columns.shape[1]
        return self.loss.derivatives(np.zeros(n_rows), *self._given(target), 0.0).level.loss

    def largest(self, target: int) -> float:
        """Return the smallest λ for which all penalised coefficients are zero."""
        gradient, _ = self._without(target)
        return max(0.0, float((sizes(self.penalty, gradient) / self.shape.factors).max()))

    def objective(self, target: int, penalty: float, coef: Floats, level: float) -> float:
        """Return the objective at some coefficients and the intercept of columns less their means."""
        decision = coef @ self.rows.columns
        value = self.loss.derivatives(decision, *self._given(target), level).level.loss
        return value + penalty * self.penalty.value(coef)

    def follow(
        self,
        target: int,
        penalties: Floats,
        goals: Floats,
        part_of_step: float,
        most: np.ndarray,
        start: Floats,
        level: float,
    ) -> Points:
        """Solve for falling λ, columns without a penalty along with the intercept."""
        first = np.zeros(len(self._free))
        start = np.where(self._spanned, 0.0, start)
        if not start.any():
            first = self._without(target)[1]
        elif self._fit_intercept:
            first[0] = level
        points, levels, _ = self._run(target, penalties, goals, part_of_step, most, start, first)
        points.coefs[:, self._chosen] = levels[:, int(self._fit_intercept) :] @ self._basis.T
        return points

    def _take_away(self, free: np.ndarray, eps: float) -> None:
        """Let directions of the `free` columns be those along which there is no penalty."""
        columns = self.rows.columns
        n_rows = columns.shape[1]
        lengths = np.sqrt(np.einsum("ij,ij->i", columns, columns))
        raw = np.sqrt(lengths**2 + n_rows * self.means**2)
        self._chosen = np.flatnonzero(free & (lengths > 0.0))
        vectors, basis = span_of(columns[self._chosen], lengths[self._chosen], raw[self._chosen], eps)
        left = columns - (columns @ vectors.T) @ vectors
        self._spanned = free | (np.sqrt(np.einsum("ij,ij->i", left, left)) <= _REAL * eps * raw)
        self._values = np.where(self._spanned[:, None], 0.0, columns)
        # as long as the intercept's
        self._free = np.concatenate([self._free, np.sqrt(n_rows) * vectors])
        self._basis = np.sqrt(n_rows) * basis

    def _given(self, target: int) -> tuple[Floats, Floats]:
        return self.rows.responses[target], self.rows.weights

    def _without(self, target: int) -> tuple[Floats, Floats]:
        """Return the gradient without penalised coefficients, and the others."""
        if target not in self._null:
            start, first = np.zeros(len(self.means)), np.zeros(len(self._free))
            above, goal, most = np.array([_ABOVE_ALL]), np.zeros(1), np.ones(1, np.int64)
            _, levels, gradient = self._run(target, above, goal, np.inf, most, start, first)
            self._null[target] = gradient, levels[0]
        return self._null[target]

    def _run(
        self,
        target: int,
        penalties: Floats,
        goals: Floats,
        part_of_step: float,
        most: np.ndarray,
        start: Floats,
        first: Floats,
    ) -> tuple[Points, Floats, Floats]:
        n_columns, n_rows = self.rows.columns.shape
        given = self._free, *self._given(target), self.shape.factors, self.shape.ridges, self._squares
        columns = SmoothColumns(self._values, *given)
        asked = self.square(target), self.shape.positive, penalties, goals, part_of_step, most
        size, follow = first_room(n_columns, n_rows, start), compiled_for(self.loss, follow_smooth_path)
        while True:
            coefs, records = np.zeros((len(penalties), n_columns)), np.zeros((len(penalties), 5))
            levels, room = np.zeros((len(penalties), len(first))), make_room(size, n_columns, 0)
            places = room, _row_room(size, n_rows, first), start, coefs, levels, records
            if follow(self.loss, columns, *asked, *places) == len(penalties):
                break
            size = min(n_columns, 2 * size)
        gaps, objectives, *rest = np.ascontiguousarray(records.T)
        level = levels[:, 0].copy() if self._fit_intercept else np.zeros(len(penalties))
        return Points(penalties, coefs, level, gaps, objectives, *rest), levels, room.gradient


def smooth_problem(rows: Rows, loss: Any, penalty: Penalty, fit_intercept: bool, eps: float) -> SmoothProblem | None:
    """Return a problem with a smooth loss, or None if columns vary by little more than rounding, or underflow.

    The columns of `rows` are overwritten.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total, means = take_means(rows, fit_intercept)
        padded = _padded(rows)
        squares = np.einsum("i,ji,ji->j", padded.weights, padded.columns, padded.columns)
        raw = squares + total * means**2
    if are_flat(rows.columns, squares, raw, eps):
        return None
    return SmoothProblem(padded, means, loss, penalty, fit_intercept, eps)


def _padded(rows: Rows) -> Rows:
    """Return the rows with their weights, and rows without weight below, so that registers hold all of a column."""
    n_columns, n_rows = rows.columns.shape
    missing = -n_rows % _STRIDE
    columns = np.empty((n_columns, n_rows + missing))
    columns[:, :n_rows], columns[:, n_rows:] = rows.columns, 0.0
    weights = rows.weights if len(rows.weights) else np.ones(n_rows)
    responses = np.pad(rows.responses, ((0, 0), (0, missing)), mode="edge")
    return Rows(columns, responses, np.pad(weights, (0, missing)))


def _row_room(size: int, n_rows: int, level: Floats) -> RowRoom:
    """Return room for rows and a working set of so many columns, at coefficients of directions."""
    count = len(level)
    vectors = [np.empty(n_rows) for _ in range(8)]
    of_columns = [np.empty((size, n_rows)), np.empty((count, n_rows))]
    of_directions = [level.copy(), np.empty(count), np.empty(count), np.empty((count, count))]
    return RowRoom(*vectors, *of_columns, *of_directions)
