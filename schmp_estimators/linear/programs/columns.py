"""What a fit learns of columns: means that stand for missing values, and standard deviations."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, RowPartition, check_squares
from schmp_estimators.linear.programs.matrix import TOGETHER, Floats, Indices, Storage
from schmp_estimators.linear.programs.offsets import OFFSET, SPREAD
from schmp_estimators.linear.programs.stored import Dense


class Fill(NamedTuple):
    """Replace missing values of X."""

    values: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with these numbers."""
        return rows.filled(self.values), None


class Survey(NamedTuple):
    """Apply a function to all rows of a partition, and their weights, zero outside of the fold."""

    #: (n_groups,) how often rows of each group are fitted, see `folds`; None if all are, once
    counts: Indices | None
    #: (p,) what stands for missing values
    fill: Floats | None
    function: Callable[[Storage, Floats], Any]

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Any]:
        """Return what the function returns."""
        whole = rows if rows.whole is None else rows.whole
        weights = whole.weights if len(whole.weights) else np.ones(whole.matrix.n_rows)
        if self.counts is not None:
            weights = weights * self.counts[whole.beside[0].astype(np.int64)]
        return rows, self.function(whole.filled(self.fill).matrix, weights)


def known(matrix: Storage, weights: Floats) -> tuple[float, int, Floats]:
    """Return the weight and the number of rows, and what `Storage` has to say of known values."""
    return weights.sum(), len(weights), matrix.known_sums(weights)


def codes(matrix: Storage, weights: Floats) -> Floats:
    """Return whether a value is not from −1 to 2, or is −1, or is 2; zeros if X is not dense."""
    values = matrix.values if isinstance(matrix, Dense) else np.zeros(1)
    lowest, highest = values.min(initial=0), values.max(initial=0)
    return np.array([lowest < -1 or highest > 2, lowest == -1, highest == 2], np.float64)


def _moments(matrix: Storage, weights: Floats) -> tuple[Any, Floats, Floats]:
    sums, squares, _ = matrix.moments(weights, np.zeros_like(weights))
    return weights.sum(), sums, squares


def _apart(columns: Indices, centres: Floats, matrix: Storage, weights: Floats) -> Floats:
    """Return weights, sums and squares (3, k) of known values minus numbers near their means."""
    found = np.empty((3, len(columns)))
    for start in range(0, len(columns), TOGETHER):
        part = slice(start, start + TOGETHER)
        taken = matrix.take_dense(columns[part]) - centres[part, None]
        given = np.isfinite(taken), np.nan_to_num(taken), np.nan_to_num(taken) ** 2
        found[:, part] = np.stack(given) @ weights
    return found


def deviations(ask: Callable[..., Any], fill: Floats | None, eps: float) -> Floats:
    """Return the standard deviations of columns, 0 for columns that vary by no more than rounding.

    Parameters
    ----------
    ask : callable
        ``ask(function, fill)`` returns the sum of what a function finds, see `Survey`.
    fill : ndarray of shape (n_columns,) or None
        The means of known values.
    eps : float
        Relative distance of neighbouring numbers in X.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    total, sums, squares = ask(_moments, fill)
    check_squares(squares)
    means = sums / total
    found = squares - sums * means
    far = np.flatnonzero(found < OFFSET * squares)  # a difference of large numbers
    if len(far):
        unknown = None if fill is None else np.full_like(fill, np.nan)
        weight, apart, exact = ask(partial(_apart, far, means[far]), unknown)
        found[far] = exact - apart * apart / np.maximum(weight, SMALLEST_NORM)
    found[found <= (SPREAD * eps) ** 2 * squares] = 0.0
    return np.sqrt(found / total)
