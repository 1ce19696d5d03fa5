"""A storage with a table of further columns beside it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage


class Beside(Storage):
    """The columns of a storage whose values may be missing, and behind them those of a table.

    Parameters
    ----------
    left : Storage
    table : ndarray of shape (n_rows, k)
        Floats, NaN where a value is missing.
    labels : sequence of str
        Names of the columns of the table; empty if columns have no names.
    """

    dtype, ndim = np.dtype(np.float64), 2
    may_miss = True

    def __init__(self, left: Storage, table: Floats, labels: Any) -> None:
        self.left, self.table, self.labels = left, freeze(table), labels

    def __len__(self) -> int:
        return self.n_rows

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return self.left.n_rows, self.left.n_columns + self.table.shape[1]

    @property
    def n_floats(self) -> int:
        """See `Storage`."""
        return self.left.n_floats + self.table.size

    @property
    def names(self) -> Any:
        """See `Storage`."""
        return [*self.left.names, *self.labels] if len(self.labels) else ()

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return Beside(self.left.rows(chosen), self.table[chosen], self.labels)

    def known_means(self, weights: Floats) -> Floats:
        """See `Storage`."""
        known = ~np.isnan(self.table)
        with np.errstate(invalid="ignore"):
            means = weights @ np.where(known, self.table, 0.0) / (weights @ known)
        return np.append(self.left.known_means(weights), means)

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        left, right = np.split(values, [self.left.n_columns])
        table = np.where(np.isnan(self.table), right, self.table)
        return Beside(self.left.filled(left), table, self.labels)

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        if scope is None:
            return np.append(self.left.gradient(vector, None), vector @ self.table)
        is_left, left, right = self._divided(scope)
        out = np.empty(len(scope))
        out[is_left] = self.left.gradient(vector, left)
        out[~is_left] = vector @ self.table[:, right]
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        is_left, left, right = self._divided(columns)
        found = self.left.combine(left, factors[is_left])
        return found + self.table[:, right] @ factors[~is_left]

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        by = weights if len(weights) else np.ones(self.n_rows)
        own = by @ self.table, by @ self.table**2, vector @ self.table
        sums, squares, products = map(np.append, self.left.moments(weights, vector), own)
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        is_left, left, right = self._divided(columns)
        table = self.table if rows is None else self.table[rows]
        out = np.empty((len(columns), len(table)))
        out[is_left] = self.left.take_dense(left, rows)
        out[~is_left] = table[:, right].T
        return out

    def identity(self) -> Iterable[np.ndarray]:
        """See `Storage`."""
        yield from self.left.identity()
        yield self.table

    def _divided(self, columns: Indices) -> tuple[np.ndarray, Indices, Indices]:
        """Return which columns are of the storage, and the numbers of both kinds."""
        is_left = columns < self.left.n_columns
        return is_left, columns[is_left], columns[~is_left] - self.left.n_columns
