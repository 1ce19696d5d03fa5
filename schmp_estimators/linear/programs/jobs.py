"""The jobs of row partitions: each job is a value, and a pure function of the partition.

A job returns the partition with its new state and a partial result; partial results are summed over partitions.  The
columns are x̃_j = √s⊙(x_j − x̄_j) with row weights s and means x̄ over all partitions, which are zero without an
intercept.

With the squared loss the state of a partition is the residual.  With other losses it is u = Xβ; the loss and the
intercept b are fields of the jobs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import column_passes
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.losses.base import total_of, weigh
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage
from schmp_estimators.linear.programs.stored import SparseByColumns, join

#: Smallest squared norms for which products do not lose digits to underflow.
SMALLEST_NORM = float(np.finfo(float).tiny / np.finfo(float).eps)


class RowPartition(NamedTuple):
    """One row partition of a regression problem."""

    matrix: Storage
    #: (n_p,) response; after the start of the problem minus its weighted mean
    target: Floats
    #: (n_p,) positive row weights, or (0,) for weights of one
    weights: Floats
    #: (n_p,) residual y − Xβ − b of a linear model, decision values Xβ of a logistic one
    state: Floats
    #: dense candidate columns x̃ in the order in which they joined, each (k, n_p)
    gathered: tuple[Floats, ...] = ()
    #: numbers and means of the gathered columns, from which they can be gathered again
    members: tuple[tuple[Indices, Floats], ...] = ()
    #: (k, n_p) the targets, or the numbers of the classes
    responses: Floats = np.empty((0, 0))
    #: (p,) numbers that were subtracted from the columns of X, see `offsets`; (0,) if there are none
    shifts: Floats = np.empty(0)
    #: (f, n_p) the columns of F, see `joint_jobs`
    extra: Floats = np.empty((0, 0))
    #: (k, n_p) the fold group of each row, and its weight in scores, see `folds`
    beside: Floats = np.empty((0, 0))
    #: while a fold is fitted: the partition with all rows, and the job that selected the rows of the fold
    whole: Any = None
    fold: Any = None
    #: number of the first row among those of all partitions
    first: int = 0
    #: (p,) what stands for missing values of X, (0,) if there are none
    fill: Floats = np.empty(0)

    def filled(self, values: Floats | None) -> "RowPartition":
        """Return the partition with these numbers in place of missing values of X, if there are any."""
        if values is None or not len(values):
            return self
        return self._replace(matrix=self.matrix.filled(values), fill=values)

    def weigh(self, vector: Floats) -> Floats:
        """Return s⊙vector."""
        return weigh(self.weights, vector)

    def scaled(self, columns: Indices, means: Floats) -> Floats:
        """Return the columns x̃ as a new array (k, n_p)."""
        taken = self.matrix.take_dense(columns)
        if means.any():
            taken -= means[columns, None]
        if len(self.weights):
            taken *= np.sqrt(self.weights)
        return taken


class SumsError(ValueError):
    """Raised if sums over X are not finite, or underflow."""


class Sums(NamedTuple):
    """Partial result of `Moments`."""

    #: Σ s
    total: float
    #: Σ s y
    response: float
    #: Σ s x_j
    columns: Floats
    #: Σ s x_j²
    squares: Floats
    #: Σ s (y − m) x_j with the weighted mean m of the responses of this partition
    products: Floats

    def products_about(self, level: float) -> Floats:
        """Return Σ s (y − level) x_j; if `level` is near m, no digits are lost to large means."""
        mean = self.response / self.total if self.total else 0.0
        return self.products + (mean - level) * self.columns


def check_squares(squares: Floats) -> None:
    """Raise SumsError if sums of squares are not finite."""
    if not np.isfinite(squares.sum()):
        raise SumsError(
            "X holds NaN, infinity, or values whose squares overflow float64; scale its columns"
        )


class Moments(NamedTuple):
    """Sums that centre the problem, and its gradient at zero."""

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Sums]:
        """Return the sums, after one pass over the rows."""
        response = float(rows.weigh(rows.target).sum())
        total = total_of(rows.weights, rows.matrix.n_rows)
        weighed = rows.weigh(rows.target - (response / total if total else 0.0))
        return rows, Sums(total, response, *rows.matrix.moments(rows.weights, weighed))


class Slopes(NamedTuple):
    """Partial result of `Start` and `Advance`."""

    #: Σ s r²
    energy: float
    #: Σ s r, zero up to rounding if there is an intercept
    balance: float
    #: x_jᵀ(s⊙r) over the scope
    gradient: Floats


class Start(NamedTuple):
    """Centre the response, and compute the residual of given coefficients."""

    mean: float
    columns: Indices
    coef: Floats
    offset: float
    #: as in `Advance`
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Slopes, float]]:
        """Return the slopes, and Σ s y² of the centred response; the state becomes the residual."""
        target = rows.target - self.mean
        moved, slopes = Advance(self.columns, self.coef, self.offset, self.scope, True)(
            rows._replace(target=target)
        )
        return moved, (slopes, float(rows.weigh(target) @ target))


class Advance(NamedTuple):
    """Update the residual for a change of the coefficients, then compute the gradient."""

    columns: Indices
    change: Floats
    #: x̄ᵀΔ
    offset: float
    #: columns of the gradient, ascending; None for all
    scope: Indices | None
    #: whether to compute the residual from scratch; `change` then has the coefficients
    anew: bool = False

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Slopes]:
        """Return Σ s r², Σ s r and the gradient over the scope."""
        residual = rows.target if self.anew else rows.state
        if len(self.columns):
            residual = residual - rows.matrix.combine(self.columns, self.change) + self.offset
        weighed = rows.weigh(residual)
        gradient = rows.matrix.gradient(weighed, self.scope)
        return rows._replace(state=residual), Slopes(
            float(residual @ weighed), float(weighed.sum()), gradient
        )


class Explore(NamedTuple):
    """Make coordinate descent over columns outside the candidates; only if one partition has all rows."""

    columns: Indices
    means: Floats
    #: of these columns
    penalty: Penalty
    passes: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, float]]:
        """Return the coefficients of the explored columns and Σ s r²."""
        scaled = rows.scaled(self.columns, self.means)
        roots = np.sqrt(rows.weights) if len(rows.weights) else 1.0
        residual = rows.state * roots
        coef = np.zeros(len(self.columns))
        norms = np.einsum("ij,ij->i", scaled, scaled)
        descend = compiled_for(self.penalty, column_passes)
        descend(freeze(scaled), freeze(norms), coef, residual, freeze(self.penalty), self.passes)
        return rows._replace(state=residual / roots), (coef, float(residual @ residual))


class Extend(NamedTuple):
    """Add new candidates: compute their part of the Gram matrix, and the gradient of all candidates."""

    new: Indices
    means: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, Floats]]:
        """Return G[:, new], shape (k_old + k_new, k_new), and the gradient of all candidates."""
        if len(self.new):
            rows = rows._replace(
                gathered=(*rows.gathered, rows.scaled(self.new, self.means)),
                members=(*rows.members, (self.new, self.means[self.new])),
            )
        gathered = rows.gathered
        residual = weigh(np.sqrt(rows.weights), rows.state)
        gram = _products(gathered) if len(self.new) else np.empty((0, 0))
        return rows, (gram, np.concatenate([block @ residual for block in gathered]))


class Products(NamedTuple):
    """Compute the Gram matrix of all candidates again, in the same pieces as before, so that it has the same bits."""

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, ...]]:
        """Return for each group of candidates that joined together the same G[:, new] as `Extend`."""
        blocks = range(len(rows.gathered))
        return rows, tuple(_products(rows.gathered[: number + 1]) for number in blocks)


def _products(gathered: tuple[Floats, ...]) -> Floats:
    """Return the products of all candidates with those of the last group."""
    return np.concatenate([block @ gathered[-1].T for block in gathered])


class Gather(NamedTuple):
    """Gather the columns of a working set."""

    columns: Indices

    def __call__(
        self, rows: RowPartition
    ) -> tuple[RowPartition, tuple[Columns, Floats, Floats, Floats]]:
        """Return the columns of this partition, its state, y and s; partial results are concatenated, not summed."""
        return rows, (rows.matrix.compressed(self.columns), rows.state, rows.target, rows.weights)


def stacked(answers: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the concatenated results of `Gather`: columns, and arrays whose last axis has rows."""
    parts, *vectors = zip(*answers, strict=True)
    pairs = zip(parts, vectors[0], strict=True)
    whole: Any = join([SparseByColumns(part, one.shape[-1]) for part, one in pairs])
    return whole.columns, *(np.concatenate(one, axis=-1) for one in vectors)
