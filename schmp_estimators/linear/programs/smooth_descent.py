"""Newton steps of a loss whose curvature changes by descent on dense columns, where one partition holds all rows.

A Newton step by way of a Gram matrix of k columns takes n·k²/2 products, and one by descent some ten passes over n·k
values, so descent is faster as long as columns are not nearly dependent; and steps need not be as exact as a
Gram matrix makes them.
"""

from typing import NamedTuple, TypeGuard

import numpy as np

from schmp_estimators.core.lanes import empty_rows, zero_rows
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.rounded import Rounded, round_columns, round_rows
from schmp_estimators.linear.losses.base import Descends, Loss
from schmp_estimators.linear.penalties.base import Penalty, take
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import DenseByColumns, DenseByRows, Floats, Indices, Matrix, all_columns
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.smooth_jobs import derive
from schmp_estimators.linear.programs.smooth_point import Point, multiple_of, stages

#: Columns from which descent is faster, and the most of their entries: copies of more do not stay in a cache.
_FEWEST, _MOST_ENTRIES = 100, 1 << 23
#: Columns that are copied at a time where a partition is made of several.
_TOGETHER = 64
#: Columns of a guess for each that violates its condition or is in the support, up to which all of them are taken.
_ROOMY = 8
#: Stored values of a sparse X up to which its steps are made in a kernel.
SMALL = 1 << 18
#: The most steps on one choice of columns, the parts that they are to leave of the tolerance, and of the gap where
#: there are other violators, and what float32 leaves of a gap.
MOST_STEPS, OF_TOLERANCE, _OF_GAP, _OF_ROUNDING = 20, 0.7, 1e-2, 1e-6


class Descended(NamedTuple):
    """Partial result of `Descend`."""

    #: coefficients of its columns, and the intercept
    coef: Floats
    level: float
    #: columns gone through, and whether that was slow
    visited: float
    hard: bool
    #: whether they have come as far as they were to
    arrived: bool


class Descend(NamedTuple):
    """Make Newton steps on some columns; decision values stay as they are.  Only where one partition holds all rows."""

    loss: Descends
    #: with their means and lengths, coefficients and exact gradient
    columns: Indices
    means: Floats
    lengths: Floats
    coef: Floats
    gradient: Floats
    level: float
    penalty: Penalty
    fit_intercept: bool
    #: what to leave of the gap, and the most steps
    goal: float
    most: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Descended]:
        """Return what the steps have come to."""
        rows, found = derive(self.loss, rows, self.level)
        n_rows, coef = rows.matrix.n_rows, self.coef.copy()
        values = empty_rows(len(coef), n_rows)
        round_into(values, rows.matrix, self.columns, self.means, 1.0 / self.lengths, np.empty(0))
        given = freeze(values), freeze(self.lengths), freeze(found.slope), freeze(self.gradient)
        columns = Rounded(*given, zero_rows(3, n_rows), np.zeros(1))
        decision, level, visited = rows.state + self.level, self.level, 0.0
        highest = 0.0 if coef.any() else multiple_of(self.penalty, self.gradient)
        for penalty, goal, most in stages(self.penalty, highest, self.goal, self.most):
            end = self.loss.descend(
                columns, decision, rows.target, rows.weights, coef, penalty, self.fit_intercept, goal, 0.0, most
            )
            level += end.level
            visited += end.visited
        return rows, Descended(coef, level - float(self.means @ (coef - self.coef)), visited, end.hard, end.arrived)


def round_into(
    out: np.ndarray, matrix: Matrix, columns: Indices, means: Floats, factors: Floats, roots: Floats
) -> None:
    """Set the columns √s⊙(x_j − x̄_j), times the factors, as rows of `out` (k, n_p or more), float32."""
    chosen, constants = freeze(columns), (freeze(means), freeze(factors), freeze(roots))
    match matrix:
        case DenseByRows(values):
            round_rows(freeze(values), chosen, *constants, out)
        case DenseByColumns(values):
            round_columns(freeze(values), chosen, *constants, out)
        case _:
            for start in range(0, len(columns), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                taken = (matrix.take_dense(columns[part]) - means[part, None]) * factors[part, None]
                out[part, : matrix.n_rows] = taken * roots if len(roots) else taken


class DescendSparse(NamedTuple):
    """Make Newton steps on all columns of a sparse X, where they are; the partition stays as it is.

    Only where one partition holds all rows.
    """

    loss: Descends
    columns: Indices
    #: coefficients, and gradient where it is known
    coef: Floats
    gradient: Floats
    level: float
    penalty: Penalty
    fit_intercept: bool
    #: columns that do not join
    still: Indices
    #: as in `stages`
    highest: float
    goal: float
    most: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Descended]:
        """Return what the steps have come to."""
        point = Point(self.loss, all_columns(rows.matrix), rows.state, rows.target, rows.weights, self.coef.copy())
        point.level, point.fit_intercept, point.penalty = self.level, self.fit_intercept, self.penalty
        end = point.descend(self.loss, self.gradient, self.still, self.highest, self.goal, self.most)
        return rows, Descended(point.coef, point.level, point.visited, end.hard, end.gap <= self.goal)


def is_small(model: Model) -> bool:
    """Return whether X holds so little that what is around kernels would take most of the time."""
    return model.per_column * model.n_columns <= SMALL


def sparse_descent_of(model: Model, loss: Loss, gradient: Floats) -> DescendSparse | None:
    """Return the steps on all columns of a small sparse X, if they are to be made by descent.

    On a guessed scope, of a path, steps are on fewer columns.
    """
    fits = (
        model.n_partitions == 1
        and model.certified
        and not model.provisional
        and not model.pace.second_order
        and not model.damping
    )
    if not (fits and is_small(model) and isinstance(loss, Descends)):
        return None
    highest = 0.0 if model.coef.any() else multiple_of(model.penalty, gradient)
    everything, goal = np.arange(model.n_columns), OF_TOLERANCE * model.tolerance
    point = model.coef, gradient, model.level, model.penalty, model.fit_intercept, model.constant
    return DescendSparse(loss, everything, *point, highest, goal, MOST_STEPS)


def suits(loss: Loss, model: Model, count: int) -> TypeGuard[Descends]:
    """Return whether steps by descent on so many columns of dense X may be tried."""
    alone = model.n_partitions == 1 and model.per_column == model.n_rows
    fits = count >= _FEWEST and count * model.n_rows <= _MOST_ENTRIES
    return alone and fits and model.certified and isinstance(loss, Descends) and not model.pace.second_order


def descent_of(model: Model, loss: Loss, chosen: Indices, gradient: Floats, complete: bool) -> Descend | None:
    """Return the steps on columns in the scope, the `chosen` ones or all, if they are to be made by descent.

    `gradient` is that of the columns in the scope; no other than the chosen ones violates its condition if they are
    `complete`.
    """
    columns = model.scope_columns()
    if model.provisional and len(columns) <= _ROOMY * len(chosen) and suits(loss, model, len(columns)):
        chosen = columns
    if not suits(loss, model, len(chosen)):
        return None
    lengths = np.sqrt(model.norms[chosen] * (model.n_rows / model.total_weight))
    lengths[lengths == 0.0] = 1.0
    goal = max(OF_TOLERANCE * model.tolerance, (_OF_ROUNDING if complete else _OF_GAP) * model.gap)
    means, coef, penalty = model.means[chosen], model.coef[chosen], take(model.penalty, chosen)
    point = coef, gradient[np.searchsorted(columns, chosen)], model.level, penalty, model.fit_intercept
    return Descend(loss, chosen, means, lengths, *point, goal, MOST_STEPS)
