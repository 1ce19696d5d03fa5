"""Descent on the residual over the columns of a dense X with many more rows than columns, as long as it pays.

Where columns are nearly independent, which columns of many rows tend to be, a few passes settle the coefficients, and
each costs as much as some ten products of a column with others.  So what has to be predicted is how many passes are
left: from how much smaller the changes become.  If the Gram matrix of the columns would take less, they are left to it.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.descent import descent_pass, round_columns, round_rows
from schmp_estimators.linear.penalties.base import Penalty, compiled_for, sizes, take
from schmp_estimators.linear.programs.jobs import Advance, RowPartition, Slopes
from schmp_estimators.linear.programs.matrix import DenseByColumns, DenseByRows, Floats, Indices, Matrix
from schmp_estimators.linear.programs.model import NO_COLUMNS, Model

#: Rows for each column, and entries of X, from which columns may be nearly independent, and passes slow enough.
_ROWS, _MUCH = 2, 1 << 20
#: Passes that are expected, before there is anything to go by, and what one costs in products of a column with another:
#: half of what the clock says, as extrapolation makes fewer of them than changes let expect.
_EXPECTED, _PASS = 16.0, 5.0
#: Passes over all columns, passes until their number is predicted, and passes at most.
_WHOLE, _TRIED, _MOST = 3, 9, 200
_MEMORY = 5  # passes from which they are extrapolated
#: Part of the penalty above which the gradient of a zero may yet become too large.
_NEAR = 0.8
#: Part of the columns that are in the support or violators, from which all of them are taken.
_MOST_OF = 0.5
#: Part of the gap that is left by passes over columns of which many may be missing.
_ROUGH = 0.05
#: Squared norms beyond which products of columns are not to be relied upon.
_SMALLEST, _LARGEST = 1e-250, 1e250
#: Columns that are copied at a time where a partition is made of several.
_TOGETHER = 64


class Descent(NamedTuple):
    """Partial result of `Descend`."""

    #: coefficients of its columns
    coef: Floats
    slopes: Slopes
    #: passes over a column, on average, and whether it has come as far as it was to
    passes: float
    arrived: bool


class Descend(NamedTuple):
    """Descend over columns on the residual, as long as that is predicted to pay, then take the gradient.

    Only where one partition holds all rows.
    """

    #: ascending
    columns: Indices
    #: of all columns
    means: Floats
    #: of these columns
    norms: Floats
    coef: Floats
    penalty: Penalty
    #: gap, as far as passes can tell
    goal: float
    #: candidates, whose Gram matrix is known
    known: int
    #: as in `Advance`
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Descent]:
        """Return the coefficients and the slopes at them; the state becomes their residual."""
        coef, means, matrix = self.coef.copy(), self.means[self.columns], rows.matrix
        moved = NO_COLUMNS
        if isinstance(matrix, DenseByColumns) and not len(rows.weights):
            rows = rows._replace(state=rows.state.copy())
            laid_out = matrix.values, self.columns, np.ones(len(coef)), means, rows.state
            visited, arrived = self._descend(*laid_out, coef)
        else:
            # half the memory, and what is rounded is only the way to the coefficients
            lengths, roots = np.sqrt(self.norms), np.sqrt(rows.weights)
            rounded = np.empty((len(coef), matrix.n_rows), np.float32)
            round_into(rounded, matrix, self.columns, means, 1.0 / lengths, roots)
            residual = rows.state * roots if len(roots) else rows.state.copy()
            visited, arrived = self._descend(
                rounded, np.arange(len(coef)), lengths, np.zeros(len(coef)), residual, coef
            )
            moved = np.flatnonzero(coef - self.coef)
        columns, change = self.columns[moved], (coef - self.coef)[moved]
        advance = Advance(columns, change, float(self.means[columns] @ change), self.scope)
        rows, slopes = advance(rows)
        return rows, Descent(coef, slopes, visited / len(coef), arrived)

    def _descend(
        self, values: np.ndarray, places: Indices, lengths: Floats, means: Floats, residual: Floats, coef: Floats
    ) -> tuple[float, bool]:
        """Make passes, which move `coef` and `residual`; returns the columns visited, and whether that was enough."""
        penalty = self.penalty
        gradient, trail = np.zeros(len(coef)), _Trail(np.sqrt(self.norms))
        make_pass = compiled_for(penalty, descent_pass)
        constant = freeze(values), freeze(places)
        sizes_of = freeze(lengths), freeze(means), freeze(self.norms)
        every = active = np.arange(len(coef))
        reached: list[float] = []
        visited, whole = 0.0, _WHOLE
        for number in range(1, _MOST + 1):
            reach = make_pass(*constant, freeze(active), *sizes_of, coef, gradient, residual, freeze(penalty))
            visited += len(active)
            reached.append(reach)
            # a gradient that is too large by a part of its λ leaves about that part of the penalty as a gap, and what
            # a pass has moved it by the next one does again, but for the rate at which changes become smaller
            since = min(_MEMORY, number - 1)
            rate = min(1.0, (reach / reached[-1 - since]) ** (1.0 / since)) if since and reach > 0.0 else 1.0
            gap = rate * reach * penalty.value(coef)
            if not np.isfinite(gap):
                return visited, False
            if gap <= self.goal:
                others = np.setdiff1d(every, active)
                if len(others) < 4:
                    return visited, True
                before = np.count_nonzero(coef)
                make_pass(*constant, freeze(others), *sizes_of, coef, gradient, residual, freeze(penalty))
                visited += len(others)
                if np.count_nonzero(coef) == before:
                    return visited, True
            elif number >= _TRIED:
                left = np.log(gap / self.goal) / -np.log(rate) if rate < 1.0 else np.inf
                count = float(np.count_nonzero(coef))
                if left * len(active) > count * (self.known + count) / _PASS:
                    return visited, False
            if number >= _WHOLE:
                trail.extrapolate(coef, residual, penalty)
                active = np.flatnonzero((coef != 0.0) | (sizes(penalty, gradient) >= _NEAR * penalty.strengths))
                if number + 1 == 2 * whole:
                    whole = 2 * whole
                    active = every
                if len(active) < 4:
                    active = every
        return visited, False


class _Trail:
    """The last points of a descent, from which it is extrapolated.

    Bertrand and Massias, "Anderson acceleration of coordinate descent", AISTATS 2021, section 3.
    """

    def __init__(self, units: Floats) -> None:
        #: by which coefficients are comparable
        self.units = units
        self.points: list[tuple[Floats, Floats]] = []

    def extrapolate(self, coef: Floats, residual: Floats, penalty: Penalty) -> None:
        """Take a point in, and now and then go on from a mixture of the last ones, if the objective is lower there."""
        self.points.append((coef.copy(), residual.copy()))
        if len(self.points) <= _MEMORY:
            return
        coefs, residuals = (np.array(each) for each in zip(*self.points, strict=True))
        self.points.clear()
        changes = np.diff(coefs, axis=0) * self.units
        products = changes @ changes.T
        trace = float(np.trace(products))
        if not 0.0 < trace < np.inf:
            return
        products.flat[:: _MEMORY + 1] += 1e-11 * trace
        mixture = np.linalg.solve(products, np.full(_MEMORY, trace))
        mixture /= mixture.sum()
        new_coef, new_residual = mixture @ coefs[1:], mixture @ residuals[1:]
        lower = 0.5 * (residual @ residual - new_residual @ new_residual) > penalty.value(new_coef) - penalty.value(
            coef
        )
        if lower and not (penalty.positive and (new_coef < 0.0).any()):
            coef[:], residual[:] = new_coef, new_residual


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


def descent_of(model: Model, gradient: Floats) -> Descend | None:
    """Return the descent over the support and all violators, if it may take less than their Gram matrix.

    `gradient` is that of the columns in the scope.
    """
    dense = model.per_column == model.n_rows
    tall = model.n_rows >= _ROWS * model.n_columns and model.n_rows * model.n_columns >= _MUCH
    if not (dense and tall and model.n_partitions == 1 and model.certified):
        return None
    columns = model.scope_columns()
    support = model.stay()
    worst, n_violators = model.violators(gradient, ~support, len(columns))
    chosen = np.sort(np.concatenate([np.flatnonzero(support), worst]))
    if len(chosen) >= _MOST_OF * len(columns):
        chosen = np.arange(len(columns))
    chosen = chosen[model.norms[columns[chosen]] > 0.0]
    known = len(model.candidates)
    new = n_violators + len(np.setdiff1d(np.flatnonzero(model.coef), model.candidates.columns))
    budget = new * (known + new) / max(1.0, _PASS * len(chosen))
    norms = model.norms[columns[chosen]]
    if budget < _EXPECTED or not (norms.min() >= _SMALLEST and norms.max() <= _LARGEST):
        return None
    complete = n_violators <= 0.1 * len(chosen) or len(chosen) >= _MOST_OF * len(columns)
    goal = 0.5 * (model.scope_goal if model.provisional else model.tolerance)
    goal = goal if complete else max(goal, _ROUGH * model.gap)
    chosen = columns[chosen]
    penalty = take(model.penalty, chosen)
    return Descend(chosen, model.means, norms, model.coef[chosen], penalty, goal, known, model.scope)
