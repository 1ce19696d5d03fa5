"""Columns whose mean is large beside their spread: time stamps, years, identifiers.

Centring such a column by sums, Σ x² − n x̄², or afterwards, xᵀr − x̄ Σ r, cancels most digits.  So a reference near the
mean is taken from its values before anything is summed: differences of neighbours are exact.  Only these columns pay
for it, and only problems with an intercept have any.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, Moments, RowPartition, Sums, SumsError, check_squares
from schmp_estimators.linear.programs.matrix import (
    DenseByColumns,
    DenseByRows,
    Floats,
    Indices,
    Matrix,
    SparseByColumns,
)
from schmp_estimators.linear.programs.model import Model

#: Part of the squared norm that is left after centring, below which a column is looked at anew: mean/sd is 1000 there,
#: and a gradient has lost three digits.
_OFFSET = 1e-6
#: Spread in units of the distance of neighbouring numbers, below which a column is nothing but rounding.
SPREAD = 0.125
#: Elements of a block of columns that stays in the second-level cache.
_BLOCK = 1 << 16


class Shifted(NamedTuple):
    """Dense rows of X less a number for each column; those with zero are read as they are."""

    matrix: DenseByColumns | DenseByRows
    #: (p,)
    shifts: Floats

    @property
    def n_rows(self) -> int:
        """Number of rows of this partition."""
        return self.matrix.n_rows

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return self.matrix.n_columns

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """Return x_jᵀ·vector for the columns in `scope`, ascending (all columns if None)."""
        chosen = np.arange(self.n_columns) if scope is None else scope
        moved = np.flatnonzero(self.shifts[chosen])
        out = self.matrix.gradient(vector, scope) if len(moved) < len(chosen) else np.empty(len(chosen))
        for block, taken in _blocks(self, chosen[moved]):
            out[moved[block]] = taken @ vector
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """Return Σ_j factors_j x_j over `columns`, shape (n_rows,)."""
        return factors @ self.take_dense(columns)

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Σ_i w_i x_ij, Σ_i w_i x_ij² and x_jᵀ·vector for all columns."""
        sums, squares, products = self.matrix.moments(weights, vector)
        moved = np.flatnonzero(self.shifts)
        for block, taken in _blocks(self, moved):
            sums[moved[block]], squares[moved[block]] = _sums(taken, weights)
            products[moved[block]] = taken @ vector
        return sums, squares, products

    def take_dense(self, columns: Indices) -> Floats:
        """Return the columns as a new contiguous array, one column per row."""
        taken = self.matrix.take_dense(columns)
        taken -= self.shifts[columns, None]
        return taken


def shift(rows: RowPartition, shifts: Floats) -> RowPartition:
    """Return the partition with `shifts` (p,) taken from its columns, beside those taken before.

    Sparse columns that are shifted hold no implicit zeros.
    """
    both = rows.shifts + shifts if len(rows.shifts) else shifts
    return rows._replace(matrix=_moved(rows.matrix, shifts), shifts=both)


def _moved(matrix: Matrix, shifts: Floats) -> Matrix:
    match matrix:
        case SparseByColumns((values, indices, starts), n_rows):
            moved = values - np.repeat(shifts, np.diff(starts))
            return SparseByColumns(freeze(Columns(moved, indices, starts)), n_rows)
        case Shifted(inner, before):
            return Shifted(inner, before + shifts)
    return Shifted(matrix, shifts)  # type: ignore[arg-type]


def _complete(matrix: Matrix, columns: Indices) -> np.ndarray:
    """Return which columns have a value for each row, none of them an implicit zero."""
    match matrix:
        case SparseByColumns((_, _, starts), n_rows):
            return np.diff(starts)[columns] == n_rows
    return np.ones(len(columns), bool)


def _blocks(matrix: Matrix, columns: Indices) -> Iterator[tuple[slice, Floats]]:
    """Give the columns, a few at a time: where they are among `columns`, and their values (k, n)."""
    step = max(1, _BLOCK // max(1, matrix.n_rows))
    for start in range(0, len(columns), step):
        block = slice(start, start + step)
        yield block, matrix.take_dense(columns[block])


def _sums(taken: Floats, weights: Floats) -> tuple[Floats, Floats]:
    weighted = taken * weights if len(weights) else taken
    return weighted.sum(axis=1), np.einsum("ij,ij->i", weighted, taken)


class Spread(NamedTuple):
    """Partial result of `Probe`."""

    #: moments of the shifted columns, as `Sums` has them
    sums: Floats
    squares: Floats
    products: Floats
    #: smallest and largest value of each, less its shift
    lowest: Floats
    highest: Floats
    #: whether there are values for all rows, none of them an implicit zero
    complete: np.ndarray


class Probe(NamedTuple):
    """Look at columns less a number each; the partition stays as it is."""

    columns: Indices
    #: (k,)
    shifts: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Spread]:
        """Return what is known of the columns then."""
        response = float(rows.weigh(rows.target).sum())
        total = float(rows.weights.sum()) if len(rows.weights) else float(rows.matrix.n_rows)
        weighed = rows.weigh(rows.target - response / total)
        count = len(self.columns)
        sums, squares, products, lowest, highest = np.empty((5, count))
        found = Spread(sums, squares, products, lowest, highest, _complete(rows.matrix, self.columns))
        for block, values in _blocks(rows.matrix, self.columns):
            taken = values - self.shifts[block, None]
            found.sums[block], found.squares[block] = _sums(taken, rows.weights)
            found.products[block] = taken @ weighed
            found.lowest[block], found.highest[block] = taken.min(axis=1), taken.max(axis=1)
        return rows, found


class Recentre(NamedTuple):
    """Take a number from each column."""

    #: (p,)
    shifts: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with the columns shifted."""
        return shift(rows, self.shifts), None


def centre(model: Model) -> Generator[Any, Any, list[Sums]]:
    """Ask for the moments, and for what they make necessary; returns the sums of each partition."""
    sums: list[Sums] = yield Moments()
    check_squares(tree_sum(sums).squares)
    probe = _suspects(model, sums)
    if probe is None:
        return sums
    spreads: list[Spread] = yield probe
    moved = _settle(model, probe, spreads, sums)
    if not len(moved):
        return sums
    shifts = np.zeros(len(sums[0].columns))
    shifts[probe.columns[moved]] = probe.shifts[moved]
    model.shifts = shifts + model.shifts if len(model.shifts) else shifts
    model.level += float(shifts @ model.coef) if len(model.coef) else 0.0
    yield Recentre(shifts)
    return [_shifted(one, probe, spread, moved) for one, spread in zip(sums, spreads, strict=True)]


def check_small(model: Model, smoothness: float = 1.0) -> None:
    """Raise SumsError if a column that cannot move, as its squares underflow, might have to, or if no column can.

    Where the objective is no larger than at zero, no gradient is larger than √(2·smoothness·objective) times the norm.
    """
    most = np.sqrt(SMALLEST_NORM) * np.sqrt(2.0 * smoothness * model.null_objective) if model.norms.any() else np.inf
    lost = model.small[np.broadcast_to(model.penalty.strengths, model.n_columns)[model.small] < most]
    if len(lost):
        raise SumsError(
            f"column {lost[0]} of X holds values whose squares, times the weights of samples, underflow float64; "
            "multiply it by a power of ten, or all of X, and alpha or 1 / C with it"
        )


def _suspects(model: Model, sums: list[Sums]) -> Probe | None:
    """Return what to ask of columns with a large mean; None if there are none."""
    if not model.fit_intercept:
        return None
    whole = tree_sum(sums)
    means = whole.columns / whole.total
    found = np.flatnonzero(whole.squares - whole.columns * means < _OFFSET * whole.squares)
    return Probe(found, means[found]) if len(found) else None


def _settle(model: Model, probe: Probe, spreads: Sequence[Spread], sums: Sequence[Sums]) -> Indices:
    """Keep which columns are constant, and the norms of those that stay; returns which of those probed are to move."""
    seen = tree_sum([one[:2] for one in spreads])
    norms = seen[1] - seen[0] ** 2 / sum(one.total for one in sums)
    raw = tree_sum([one.squares[probe.columns] for one in sums])
    varied = np.max([one.highest for one in spreads], axis=0) > np.min([one.lowest for one in spreads], axis=0)
    constant = ~(norms > (SPREAD * model.eps) ** 2 * raw) & ((raw >= SMALLEST_NORM) | ~varied)
    complete = np.all([one.complete for one in spreads], axis=0)
    stays = ~constant & ~complete
    model.measured = probe.columns[stays], norms[stays]
    model.constant, model.dropped = probe.columns[constant], probe.columns[constant & varied]
    return np.flatnonzero(~constant & complete)


def _shifted(sums: Sums, probe: Probe, spread: Spread, moved: Indices) -> Sums:
    """Return the sums of a partition after its columns have moved."""
    parts = [whole.copy() for whole in (sums.columns, sums.squares, sums.products)]
    for whole, part in zip(parts, spread[:3], strict=True):
        whole[probe.columns[moved]] = part[moved]
    return Sums(sums.total, sums.response, *parts)
