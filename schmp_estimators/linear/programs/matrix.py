"""The rows of X in one partition, dense or sparse, with the same operations.

Operations use the centred and weighted columns √s⊙(x_j − x̄_j), or the columns of X; no method changes X.
"""

from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import dense, sparse
from schmp_estimators.linear.kernels.sparse import Columns

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Matrix(Protocol):
    """The operations of programs on the rows of X in a partition."""

    @property
    def n_rows(self) -> int:
        """Number of rows of this partition."""

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """Return x_jᵀ·vector for the columns in `scope`, ascending (all columns if None)."""

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """Return Σ_j factors_j x_j over `columns`, shape (n_rows,)."""

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Σ_i w_i x_ij, Σ_i w_i x_ij² and x_jᵀ·vector for all columns."""

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """Return the columns as a new array, one per row; of some `rows` if they are given."""

    def products(self, columns: Indices, known: int, weights: Floats) -> Floats:
        """Return Σ_i w_i x_ij x_ik for all `columns` j, and those k after the first `known` of them."""


#: Number of rows that are multiplied at a time, so that their copy fits in a cache.
PIECE = 1024


def dense_products(matrix: Matrix, columns: Indices, known: int, weights: Floats) -> Floats:
    """Return `Matrix.products`, some rows at a time."""
    out = np.zeros((len(columns), len(columns) - known))
    for start in range(0, matrix.n_rows, PIECE):
        here = np.arange(start, min(start + PIECE, matrix.n_rows))
        taken = matrix.take_dense(columns, here)
        out += taken @ (taken[known:] * weights[here]).T
    return out


def _all(n_columns: int) -> Indices:
    return freeze(np.arange(n_columns))


class Dense(NamedTuple):
    """Dense X of any real dtype: `values` (n, p) stored by rows, or (p, n) by columns, contiguous and read-only."""

    values: np.ndarray
    by_rows: bool

    @property
    def rows(self) -> np.ndarray:
        """X (n, p), as it is stored."""
        return self.values if self.by_rows else self.values.T

    @property
    def n_rows(self) -> int:
        """Number of rows of this partition."""
        return self.rows.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return self.rows.shape[1]

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """Return x_jᵀ·vector for the columns in `scope`, ascending (all columns if None)."""
        if self.by_rows and scope is not None and len(scope) < self.n_columns // 8:
            return self.take_dense(scope) @ vector
        if self.by_rows:
            out = np.empty(self.n_columns)
            dense.row_gradient(freeze(self.values), freeze(vector), out)
            return out if scope is None else out[scope]
        chosen = _all(self.n_columns) if scope is None else freeze(scope)
        out = np.empty(len(chosen))
        dense.column_gradient(freeze(self.values), chosen, freeze(vector), out)
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """Return Σ_j factors_j x_j over `columns`, shape (n_rows,)."""
        out, combine = (
            np.empty(self.n_rows),
            dense.row_combine if self.by_rows else dense.column_combine,
        )
        combine(freeze(self.values), freeze(columns), freeze(factors), out)
        return out

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Σ_i w_i x_ij, Σ_i w_i x_ij² and x_jᵀ·vector for all columns."""
        sums, squares, products = np.empty((3, self.n_columns))
        take = dense.row_moments if self.by_rows else dense.column_moments
        take(freeze(self.values), freeze(weights), freeze(vector), sums, squares, products)
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """Return the columns as a new array, one per row; of some `rows` if they are given."""
        if rows is not None:
            return self.rows[np.ix_(rows, columns)].T.astype(np.float64, copy=False)
        if not self.by_rows:
            return self.values.take(columns, axis=0).astype(np.float64, copy=False)
        out = np.empty((len(columns), self.n_rows))
        nothing = np.zeros(len(columns))
        dense.round_columns(
            freeze(self.values), freeze(columns), freeze(nothing), freeze(nothing + 1.0), out
        )
        return out

    def products(self, columns: Indices, known: int, weights: Floats) -> Floats:
        """Return Σ_i w_i x_ij x_ik for all `columns` j, and those k after the first `known` of them."""
        return dense_products(self, columns, known, weights)


class SparseByColumns(NamedTuple):
    """Sparse X in compressed columns, read-only, indices sorted."""

    columns: Columns
    n_rows: int

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.columns.starts) - 1

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """Return x_jᵀ·vector for the columns in `scope`, ascending (all columns if None)."""
        chosen = _all(self.n_columns) if scope is None else freeze(scope)
        out = np.empty(len(chosen))
        sparse.sparse_gradient(freeze(self.columns), chosen, freeze(vector), out)
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """Return Σ_j factors_j x_j over `columns`, shape (n_rows,)."""
        out = np.zeros(self.n_rows)
        sparse.sparse_combine(freeze(self.columns), freeze(columns), freeze(factors), out)
        return out

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Σ_i w_i x_ij, Σ_i w_i x_ij² and x_jᵀ·vector for all columns."""
        sums, squares, products = np.empty((3, self.n_columns))
        weights = weights if len(weights) else np.ones(self.n_rows)
        sparse.sparse_moments(
            freeze(self.columns), freeze(vector), freeze(weights), sums, squares, products
        )
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """Return the columns as a new array, one per row; of some `rows` if they are given."""
        values, places, starts = take_sparse(self, columns)
        out = np.zeros((len(columns), self.n_rows))
        out[np.repeat(np.arange(len(columns)), np.diff(starts)), places] = values
        return out if rows is None else out[:, rows]

    def products(self, columns: Indices, known: int, weights: Floats) -> Floats:
        """Return Σ_i w_i x_ij x_ik for all `columns` j, and those k after the first `known` of them."""
        taken = take_sparse(self, columns)
        whole = sp.csc_array(tuple(taken), shape=(self.n_rows, len(columns)))
        new = whole[:, known:]
        new.data = new.data * weights[new.indices]
        found: Floats = (whole.T @ new).toarray()
        return found


def take_sparse(matrix: Matrix, columns: Indices) -> Columns:
    """Return some columns in compressed form."""
    if isinstance(matrix, SparseByColumns):
        return freeze(Columns(*sparse.take_columns(freeze(matrix.columns), freeze(columns))))
    values = matrix.take_dense(columns)
    places, rows = np.nonzero(values)
    starts = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(values)))])
    return freeze(Columns(values[places, rows], rows.astype(np.int32), starts.astype(np.int64)))


def stack_columns(parts: list[Columns], row_offsets: list[int]) -> Columns:
    """Return compressed columns with the rows of all partitions, concatenated."""
    if len(parts) == 1:
        return freeze(parts[0])
    counts = [np.diff(part.starts) for part in parts]
    starts = np.concatenate([[0], np.cumsum(sum(counts))]).astype(np.int64)
    values = np.empty(starts[-1], parts[0].values.dtype)
    rows = np.empty(starts[-1], parts[0].rows.dtype)
    filled = starts[:-1].copy()
    for part, count, offset in zip(parts, counts, row_offsets, strict=True):
        place = np.repeat(filled - part.starts[:-1], count) + np.arange(len(part.values))
        values[place] = part.values
        rows[place] = part.rows + offset
        filled += count
    return freeze(Columns(values, rows, starts))
