"""A storage with further columns beside it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage


class Beside(Storage):
    """The columns of a storage, and behind them those of another; values of both may be missing.

    Parameters
    ----------
    left, right : Storage
    names : sequence of str
        Names of all columns; empty if they have none.
    """

    dtype, ndim = np.dtype(np.float64), 2
    may_miss, names = True, ()

    def __init__(self, left: Storage, right: Storage, names: Any = ()) -> None:
        self.left, self.right, self.names = left, right, names

    def __getitem__(self, chosen: Any) -> Storage:
        some: Any = self.rows(np.arange(self.n_rows)[chosen])
        some.names = self.names
        return some

    def __len__(self) -> int:
        return self.n_rows

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return self.left.n_rows, self.left.n_columns + self.right.n_columns

    @property
    def n_floats(self) -> int:
        """See `Storage`."""
        return self.left.n_floats + self.right.n_floats

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return Beside(self.left.rows(chosen), self.right.rows(chosen))

    def known_sums(self, weights: Floats) -> Floats:
        """See `Storage`."""
        return np.hstack([self.left.known_sums(weights), self.right.known_sums(weights)])

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        left, right = np.split(values, [self.left.n_columns])
        return Beside(self.left.filled(left), self.right.filled(right))

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        if scope is None:
            return np.append(self.left.gradient(vector, None), self.right.gradient(vector, None))
        is_left, left, right = self._divided(scope)
        out = np.empty(len(scope))
        out[is_left] = self.left.gradient(vector, left)
        out[~is_left] = self.right.gradient(vector, right)
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        is_left, left, right = self._divided(columns)
        found = self.left.combine(left, factors[is_left])
        return found + self.right.combine(right, factors[~is_left])

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        both = self.left.moments(weights, vector), self.right.moments(weights, vector)
        sums, squares, products = map(np.append, *both)
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        is_left, left, right = self._divided(columns)
        out = np.empty((len(columns), self.n_rows if rows is None else len(rows)))
        out[is_left], out[~is_left] = (
            self.left.take_dense(left, rows),
            self.right.take_dense(right, rows),
        )
        return out

    def identity(self) -> Iterable[np.ndarray]:
        """See `Storage`."""
        yield from self.left.identity()
        yield from self.right.identity()

    def _divided(self, columns: Indices) -> tuple[np.ndarray, Indices, Indices]:
        """Return which columns are of the storage, and the numbers of both kinds."""
        is_left = columns < self.left.n_columns
        return is_left, columns[is_left], columns[~is_left] - self.left.n_columns
