"""What a fit learns of the columns of X: means that stand for missing values, and standard deviations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.programs.jobs import RowPartition, check_squares
from schmp_estimators.linear.programs.matrix import TOGETHER, Floats, Indices, quotients
from schmp_estimators.linear.programs.offsets import OFFSET, SPREAD


class Fitted(NamedTuple):
    """The rows of a fit or of a fold."""

    #: (n_groups,) how often rows of each group are fitted, see `folds`; (0,) if all are, once
    counts: Indices
    #: (n,) the weights of all rows; (0,) if those of partitions are meant
    weights: Floats

    def of(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return the partition with all its rows, and their weights."""
        whole = rows if rows.whole is None else rows.whole
        n_rows, weights = whole.matrix.n_rows, whole.weights
        if len(self.weights):
            weights = self.weights[whole.first : whole.first + n_rows]
        weights = weights if len(weights) else np.ones(n_rows)
        counts = self.counts[whole.beside[0].astype(np.int64)] if len(self.counts) else 1.0
        return whole, weights * counts


class Fill(NamedTuple):
    """Replace missing values of X."""

    values: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with these numbers."""
        return rows.filled(self.values), None


class Known(NamedTuple):
    """Add up known values."""

    fitted: Fitted

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return their weighted sums and weights, (2, p)."""
        whole, weights = self.fitted.of(rows)
        return rows, whole.matrix.known_sums(weights)


class Vary(NamedTuple):
    """Add up weights, values and their squares."""

    fitted: Fitted
    fill: Floats | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[float, Floats, Floats]]:
        """Return the weighted sums."""
        whole, weights = self.fitted.of(rows)
        moments = whole.filled(self.fill).matrix.moments(weights, np.zeros(len(weights)))
        return rows, (float(weights.sum()), *moments[:2])


class VaryAbout(NamedTuple):
    """Do the same for some columns minus numbers near their means, without missing values."""

    fitted: Fitted
    #: (p,) NaN, if values are missing
    fill: Floats | None
    columns: Indices
    centres: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return the weighted sums, (3, k)."""
        whole, weights = self.fitted.of(rows)
        matrix, found = whole.filled(self.fill).matrix, np.empty((3, len(self.columns)))
        for start in range(0, len(self.columns), TOGETHER):
            part = slice(start, start + TOGETHER)
            apart = matrix.take_dense(self.columns[part]) - self.centres[part, None]
            known = ~np.isnan(apart)
            apart[~known] = 0.0
            found[:, part] = known @ weights, apart @ weights, apart**2 @ weights
        return rows, found


def deviations(
    ask: Callable[[Any], Any], fitted: Fitted, fill: Floats | None, eps: float
) -> Floats:
    """Return the standard deviations of columns, 0 for columns that vary by no more than rounding.

    Parameters
    ----------
    ask : callable
        Applies a job to all partitions, and returns their answers.
    fitted : Fitted
    fill : ndarray of shape (n_columns,) or None
        The means of known values, which stand for missing ones.
    eps : float
        Relative distance of neighbouring numbers in X.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    total, sums, squares = tree_sum(ask(Vary(fitted, fill)))
    check_squares(squares)
    means = sums / total
    found = squares - sums * means
    far = np.flatnonzero(found < OFFSET * squares)  # a difference of large numbers
    if len(far):
        unknown = None if fill is None else np.full_like(fill, np.nan)
        known, apart, exact = tree_sum(ask(VaryAbout(fitted, unknown, far, means[far])))
        found[far] = exact - apart * quotients(apart, known, 0.0)
    found[found <= (SPREAD * eps) ** 2 * squares] = 0.0
    return np.sqrt(found / total)
