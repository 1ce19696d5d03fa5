"""From validated arrays to row partitions."""

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from schmp_estimators.kernels.regression_sparse import Columns, frozen
from schmp_estimators.programs.regression_jobs import RowPartition
from schmp_estimators.programs.regression_matrix import DenseByColumns, DenseByRows, Floats, Matrix, SparseByColumns

#: A partition holds about this many stored values; smaller problems are one partition.
_VALUES_PER_PARTITION = 1 << 28

# nanoseconds per multiply–add, measured: filling a Gram matrix, descending on it, descending on sparse columns
_FILL, _DESCEND, _SPARSE = 0.05, 0.2, 2.0
_PASSES = 200
#: Entries of X up to which its columns may as well be dense.
_SMALL = 1 << 18


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of scipy."""
    return bool(sp.issparse(X))


def as_matrix(X: Any) -> Matrix:
    """Return X in the form that kernels read, without a copy where it has that form already.

    Dense X keeps its dtype: integers are converted on the fly.  Sparse X is brought to sorted float64 columns.
    """
    if is_sparse(X):
        columns = sp.csc_array(X, dtype=np.float64)
        if not columns.has_canonical_format:
            columns = columns.copy()  # the arrays may be those of X
            columns.sum_duplicates()
        largest = np.iinfo(np.int32).max
        index_type = np.int32 if columns.shape[0] <= largest else np.int64
        block = Columns(columns.data, columns.indices.astype(index_type, copy=False), columns.indptr.astype(np.int64))
        return SparseByColumns(frozen(block), columns.shape[0])
    if X.dtype == np.bool_:
        X = X.view(np.int8)
    elif X.dtype not in (np.float64, np.float32) and not np.issubdtype(X.dtype, np.integer):
        X = X.astype(np.float64)
    X = X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))
    if X.flags.f_contiguous:
        return DenseByColumns(frozen(X.T))
    return DenseByRows(frozen(np.ascontiguousarray(X)))


def default_partitions(X: Any) -> int:
    """Return the number of row partitions: a function of the data's size alone, so that bits do not depend on more."""
    stored = X.nnz if is_sparse(X) else X.size
    return int(min(X.shape[0], max(1, round(stored / _VALUES_PER_PARTITION))))


def split_rows(X: Any, target: Floats, weights: Floats, n_partitions: int) -> list[RowPartition]:
    """Cut X and what belongs to its rows into consecutive partitions; `weights` may be empty."""
    if n_partitions == 1:
        return [RowPartition(as_matrix(X), target, weights, np.zeros_like(target))]
    cuts = np.linspace(0, X.shape[0], n_partitions + 1).astype(np.int64)
    by_rows = X.tocsr() if is_sparse(X) else X
    parts = []
    for start, stop in pairwise(cuts):
        part = slice(start, stop)
        rows = by_rows[part]
        if not is_sparse(X) and X.flags.f_contiguous:
            rows = np.asfortranarray(rows)
        parts.append(RowPartition(as_matrix(rows), target[part], weights[part], np.zeros(stop - start)))
    return parts


def prefer_residual(X: Any) -> bool:
    """Return whether descent on sparse residuals is predicted to cost less than a Gram matrix of the candidates."""
    if not is_sparse(X) or X.shape[0] * X.shape[1] <= _SMALL:
        return False
    n_rows, n_columns = X.shape
    candidates = 2.0 * max(100, min(n_rows, n_columns) // 10)
    residual = _PASSES * _SPARSE * 2.0 * candidates * X.nnz / max(1, n_columns)
    gram = candidates * candidates * (_FILL * n_rows + _DESCEND * _PASSES)
    return residual < gram
