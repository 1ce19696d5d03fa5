"""Kernels on sparse rows: products with H = X̃ᵀWX̃ in one pass over the stored values.

Notation as in `linear.kernels.sparse`: X̃ = X − 1x̄ᵀ, row weights w (empty for w = 1).
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import kernel


class Rows(NamedTuple):
    """Compressed sparse rows: row i holds values[starts[i]:starts[i+1]] in columns[starts[i]:starts[i+1]]."""

    #: (nnz,) float64 or float32
    values: np.ndarray
    #: (nnz,) int32
    columns: np.ndarray
    #: (n + 1,) int64
    starts: np.ndarray


@kernel
def rows_of(columns, n_rows):
    """Return values, columns and starts of the rows of compressed columns; about 3 ns per stored value."""
    values, rows, starts = columns
    new_starts = np.zeros(n_rows + 1, np.int64)
    for index in range(rows.shape[0]):
        new_starts[rows[index] + 1] += 1
    for i in range(n_rows):
        new_starts[i + 1] += new_starts[i]
    free = new_starts[:-1].copy()
    new_values, new_columns = np.empty_like(values), np.empty(values.shape[0], np.int32)
    for j in range(starts.shape[0] - 1):
        for index in range(starts[j], starts[j + 1]):
            target = free[rows[index]]
            free[rows[index]] = target + 1
            new_values[target], new_columns[target] = values[index], j
    return new_values, new_columns, new_starts


@kernel
def keep_columns(rows, places):
    """Return values, columns and starts of the columns j with places[j] ≥ 0, which become columns places[j]."""
    values, columns, starts = rows
    new_values, new_columns = np.empty_like(values), np.empty_like(columns)
    new_starts = np.zeros_like(starts)
    free = 0
    for i in range(starts.shape[0] - 1):
        for index in range(starts[i], starts[i + 1]):
            place = places[columns[index]]
            new_values[free], new_columns[free] = values[index], place
            free += place >= 0
        new_starts[i + 1] = free
    return new_values[:free], new_columns[:free], new_starts


@kernel
def row_product(rows, weights, change, shift, out):
    """Set out = XᵀW(X·change − shift), `out` (k,) float64; about 2.5 ns per stored value.

    A row's part in it is known as soon as the row has been read, so that values are read once, and no vector of the
    length of the rows is written.
    """
    values, columns, starts = rows
    weighted = weights.shape[0] > 0
    out[:] = 0.0
    for i in range(starts.shape[0] - 1):
        start, stop = starts[i], starts[i + 1]
        image = -shift
        for index in range(start, stop):
            image += values[index] * change[columns[index]]
        if weighted:
            image *= weights[i]
        for index in range(start, stop):
            out[columns[index]] += image * values[index]
