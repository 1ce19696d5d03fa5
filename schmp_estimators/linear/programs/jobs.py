"""Row partitions, and their sums.  Each job is a value, and a pure function of the partition.

A job returns the partition with its new state and a partial result; partial results are summed over
partitions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.losses.base import total_of, weigh
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage
from schmp_estimators.linear.programs.stored import SparseByColumns, join

#: Smallest squared norms for which products do not lose digits to underflow.
SMALLEST_NORM = float(np.finfo(float).tiny / np.finfo(float).eps)


class RowPartition(NamedTuple):
    """One row partition of a regression problem."""

    matrix: Storage
    #: (n_p,) response; after the start of the problem perhaps minus its weighted mean
    target: Floats
    #: (n_p,) positive row weights, or (0,) for weights of one
    weights: Floats
    #: (K, n_p) image of the coefficients
    state: Floats
    #: columns that are kept, as `scaled_columns`: (k, n_p) for each group that joined
    gathered: tuple[Floats, ...] = ()
    #: their numbers and means, from which they can be gathered again
    members: tuple[tuple[Indices, Floats], ...] = ()
    #: (k, n_p) the targets, or the numbers of the classes
    responses: Floats = np.empty((0, 0))
    #: (p,) numbers that were subtracted from the columns of X, see `offsets`; (0,) if there are
    #: none
    shifts: Floats = np.empty(0)
    #: (f, n_p) the columns of F, see `joint_jobs`
    extra: Floats = np.empty((0, 0))
    #: (k, n_p) the fold group of each row, and its weight in scores, see `folds`
    beside: Floats = np.empty((0, 0))
    #: while a fold is fitted: the partition with all rows, and the job that selected the rows of
    #: the fold
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


def scaled_columns(rows: RowPartition, columns: Indices, means: Floats) -> Floats:
    """Return √s⊙(x_j − mean_j) of some columns as a new array (k, n_p); nothing without means."""
    if not len(means):
        return np.empty((0, rows.matrix.n_rows))
    taken = rows.matrix.take_dense(columns)
    if means.any():
        taken -= means[:, None]
    if len(rows.weights):
        taken *= np.sqrt(rows.weights)
    return taken


def stacked(answers: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the concatenated results of `GatherRows`: columns, and arrays whose last axis has rows."""
    parts, *vectors = zip(*answers, strict=True)
    pairs = zip(parts, vectors[0], strict=True)
    whole: Any = join([SparseByColumns(part, one.shape[-1]) for part, one in pairs])
    return whole.columns, *(np.concatenate(one, axis=-1) for one in vectors)
