"""The forms in which arrays are stored: dense by rows or by columns, and compressed columns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.typing import Array
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import dense, sparse
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage, pieces_of


def _all(n_columns: int) -> Indices:
    return freeze(np.arange(n_columns))


class _Dense(NamedTuple):
    values: Array
    by_rows: bool


class Dense(_Dense, Storage):
    """Dense X of any real dtype.

    `values` is (n, p) if stored by rows, or (p, n) by columns, contiguous and read-only.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        n_rows, n_columns = self.to_array().shape
        return n_rows, n_columns

    @property
    def dtype(self) -> Any:
        """See `Storage`."""
        return self.values.dtype

    def rows(self, chosen: Indices) -> Storage:
        """Return some rows; consecutive rows in C order are not copied."""
        X = self.to_array()
        together = len(chosen) > 0 and bool((np.diff(chosen) == 1).all())
        part = X[chosen[0] : chosen[-1] + 1] if together else X[chosen]
        return as_matrix(part if self.by_rows else np.asfortranarray(part))

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
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
        """See `Storage`."""
        out = np.empty(self.n_rows)
        combine = dense.row_combine if self.by_rows else dense.column_combine
        combine(freeze(self.values), freeze(columns), freeze(factors), out)
        return out

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        sums, squares, products = np.empty((3, self.n_columns))
        take = dense.row_moments if self.by_rows else dense.column_moments
        take(freeze(self.values), freeze(weights), freeze(vector), sums, squares, products)
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        if rows is not None:
            return self.to_array()[np.ix_(rows, columns)].T.astype(np.float64, copy=False)
        if not self.by_rows:
            return self.values.take(columns, axis=0).astype(np.float64, copy=False)
        out = np.empty((len(columns), self.n_rows))
        dense.row_columns(freeze(self.values), freeze(columns), out)
        return out

    def pieces(self, columns: Indices) -> Iterator[tuple[slice, Array]]:
        """See `Storage`."""
        whole = np.array_equal(columns, _all(self.n_columns))
        found = pieces_of(self.to_array())
        return found if whole else ((here, taken[:, columns]) for here, taken in found)

    def to_array(self) -> Array:
        """See `Storage`."""
        return self.values if self.by_rows else self.values.T

    def identity(self) -> Iterable[Array]:
        """See `Storage`."""
        return self.values, np.array(self.by_rows)


class _SparseByColumns(NamedTuple):
    columns: Columns
    n_rows: int
    #: (nnz,) bool, which stored values are missing; None if there can be none
    missing: Any = None


class SparseByColumns(_SparseByColumns, Storage):
    """Sparse X in compressed columns, read-only, indices sorted."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return self.n_rows, len(self.columns.starts) - 1

    @property
    def dtype(self) -> Any:
        """See `Storage`."""
        return self.columns.values.dtype

    @property
    def is_sparse(self) -> bool:
        """See `Storage`."""
        return True

    @property
    def stored(self) -> int:
        """See `Storage`."""
        return len(self.columns.values)

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return as_matrix(self._csc()[chosen])

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        chosen = _all(self.n_columns) if scope is None else freeze(scope)
        out = np.empty(len(chosen))
        sparse.sparse_gradient(freeze(self.columns), chosen, freeze(vector), out)
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        out = np.zeros(self.n_rows)
        sparse.sparse_combine(freeze(self.columns), freeze(columns), freeze(factors), out)
        return out

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        sums, squares, products = np.empty((3, self.n_columns))
        weights = weights if len(weights) else np.ones(self.n_rows)
        sparse.sparse_moments(
            freeze(self.columns), freeze(vector), freeze(weights), sums, squares, products
        )
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        values, places, starts = self.compressed(columns)
        out = np.zeros((len(columns), self.n_rows))
        out[np.repeat(np.arange(len(columns)), np.diff(starts)), places] = values
        return out if rows is None else out[:, rows]

    def products(self, columns: Indices, known: int, weights: Floats) -> Floats:
        """See `Storage`."""
        whole = sp.csc_array(tuple(self.compressed(columns)), shape=(self.n_rows, len(columns)))
        new = whole[:, known:]
        new.data = new.data * weights[new.indices]
        return (whole.T @ new).toarray()

    def compressed(self, columns: Indices) -> Columns:
        """See `Storage`."""
        if np.array_equal(columns, _all(self.n_columns)):
            return self.columns
        return freeze(Columns(*sparse.take_columns(freeze(self.columns), freeze(columns))))

    def pieces(self, columns: Indices) -> Iterator[tuple[slice, Array]]:
        """See `Storage`."""
        return pieces_of(self.take_dense(columns).T)

    def complete(self, columns: Indices) -> Array:
        """See `Storage`."""
        return np.diff(self.columns.starts)[columns] == self.n_rows

    def shifted(self, shifts: Floats) -> Storage:
        """See `Storage`; columns that are shifted have no implicit zeros."""
        values, indices, starts = self.columns
        moved = Columns(values - np.repeat(shifts, np.diff(starts)), indices, starts)
        return SparseByColumns(freeze(moved), self.n_rows)

    def to_array(self) -> Array:
        """See `Storage`."""
        return self._csc().toarray()

    def identity(self) -> Iterable[Array]:
        """See `Storage`."""
        return self.columns

    def _csc(self) -> sp.csc_array:
        return sp.csc_array(tuple(self.columns), shape=self.shape)


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of scipy."""
    return bool(sp.issparse(X))


def as_matrix(X: Any) -> Storage:
    """Return X in the form that kernels read, without a copy if it already has this form.

    A `Storage` is returned itself.  A dense X keeps its dtype: integers are converted on the fly.
    A sparse X becomes CSC in float64 with sorted indices.  Arrays at an unaligned address, as after
    deserialisation, are copied: NumPy would copy all of them to take a few columns.
    """
    if isinstance(X, Storage):
        return X
    if is_sparse(X):
        columns = sp.csc_array(X, dtype=np.float64)
        if not columns.has_canonical_format:
            columns = columns.copy()  # the arrays may be those of X
            columns.sum_duplicates()
        largest = np.iinfo(np.int32).max
        index_type = np.int32 if columns.shape[0] <= largest else np.int64
        block = Columns(
            columns.data,
            columns.indices.astype(index_type, copy=False),
            columns.indptr.astype(np.int64),
        )
        return SparseByColumns(freeze(block), columns.shape[0])
    if not X.flags.aligned:
        X = X.copy(order="K")
    if X.dtype == np.bool_:
        X = X.view(np.int8)
    elif X.dtype not in (np.float64, np.float32) and not np.issubdtype(X.dtype, np.integer):
        X = X.astype(np.float64)
    X = X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))
    if (
        X.flags.f_contiguous and not X.flags.c_contiguous
    ):  # one row or column is both, or neither after a journey
        return Dense(freeze(X.T), False)
    return Dense(freeze(np.ascontiguousarray(X)), True)


def join(parts: Sequence[Storage]) -> Storage:
    """Return the rows of all parts as one storage."""
    if len(parts) == 1:
        return parts[0]
    if any(part.is_sparse for part in parts):
        columns = [np.arange(part.n_columns) for part in parts]
        blocks = [
            sp.csc_array(tuple(part.compressed(chosen)), shape=part.shape)
            for part, chosen in zip(parts, columns, strict=True)
        ]
        return as_matrix(sp.vstack(blocks, format="csc"))
    arrays = [part.to_array() for part in parts]
    by_columns = not any(array.flags.c_contiguous for array in arrays)
    X = np.concatenate(arrays)
    return as_matrix(np.asfortranarray(X) if by_columns else X)
