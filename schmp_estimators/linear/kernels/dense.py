"""Kernels on dense columns: gradients, sums, and descent on the residual.

Notation: columns x_j, coefficients β, residual r, penalty P (in the scaling of ½‖r‖² + P(β)).
Constant arrays are read-only (see `core.values.freeze`), so that each kernel has one signature.
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, kernel
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.penalties.base import prox

_HEIGHT = 64  # rows whose cache lines fit in the cache together
_WIDTH = 4096  # columns of one strip: their sums (32 KB) stay in the first-level cache
_FEW = 16  # if less than one in this many columns is chosen, only the chosen ones are read
_LENGTH = 2048  # rows of a piece of a sum of columns: 16 KB, which stay in that cache, too


@kernel
def column_gradient(columns, chosen, vector, out):
    """Set out[t] = x_jᵀ·vector for j = chosen[t].

    `columns` (p, n), one column of X per row, contiguous; any real dtype.  `chosen` (k,) int64,
    `vector` (n,) float64, `out` (k,) float64 is overwritten. 0.12 ns per int8 element, 0.25 per
    float64 element (the memory's speed).
    """
    for position in range(chosen.shape[0]):
        out[position] = dot(columns[chosen[position]], vector)


@kernel
def centre_columns(columns, weights, roots, total, scaled, means, squares):
    """Subtract their weighted means from `columns` (p, n), if the weight `total` is not zero.

    Means are computed from differences to the first row, which are exact if the mean is large
    relative to the spread.  `roots` are those of `weights` (n,), or (0,) if all are one.  `means`
    and `squares` (p,) are overwritten; the latter are the weighted sums of squares that remain.
    Columns that should be `scaled` are multiplied by the roots.
    """
    scaling = roots.shape[0] > 0
    own = np.empty_like(roots)
    for j in range(columns.shape[0]):
        column, means[j] = columns[j], 0.0
        heavy = own if scaling else column
        if total > 0.0:
            first = column[0]
            for i in range(column.shape[0]):
                column[i] -= first
            apart = dot(column, weights) / total
            for i in range(column.shape[0]):
                column[i] -= apart
            means[j] = first + apart
        for i in range(roots.shape[0]):
            heavy[i] = roots[i] * column[i]
        squares[j] = dot(heavy, heavy)
        if scaled and scaling:
            copy_to(heavy, column)


@kernel
def row_gradient(matrix, vector, out):
    """Set out = Xᵀ·vector for `matrix` X (n, p) stored by rows; any real dtype, `out` (p,) float64 is overwritten.

    It processes strips of columns, two rows at a time, so that the sums stay in a cache; rows are
    added in their order.
    """
    n_rows, n_columns = matrix.shape
    out[:] = 0.0
    for start in range(0, n_columns, _WIDTH):
        stop = min(start + _WIDTH, n_columns)
        sums = out[start:stop]
        for row in range(0, n_rows - 1, 2):
            first, second = matrix[row, start:stop], matrix[row + 1, start:stop]
            first_factor, second_factor = vector[row], vector[row + 1]
            for index in range(stop - start):
                sums[index] += first_factor * first[index] + second_factor * second[index]
        if n_rows % 2:
            last, factor = matrix[n_rows - 1, start:stop], vector[n_rows - 1]
            for index in range(stop - start):
                sums[index] += factor * last[index]


@kernel
def column_combine(columns, chosen, factors, out):
    """Set out = Σ_t factors[t]·x_j, j = chosen[t]; `columns` (p, n), one column of X per row, any real dtype.

    Four columns at a time are added to a piece of `out` (n,) float64 that stays in a cache.
    """
    count = chosen.shape[0]
    for start in range(0, out.shape[0], _LENGTH):
        piece = out[start : start + _LENGTH]
        piece[:] = 0.0
        for t in range(0, count - 3, 4):
            first, second = columns[chosen[t], start:], columns[chosen[t + 1], start:]
            third, fourth = columns[chosen[t + 2], start:], columns[chosen[t + 3], start:]
            a, b, c, d = factors[t], factors[t + 1], factors[t + 2], factors[t + 3]
            for i in range(piece.shape[0]):
                piece[i] += (a * first[i] + b * second[i]) + (c * third[i] + d * fourth[i])
        for t in range(count - count % 4, count):
            last, factor = columns[chosen[t], start:], factors[t]
            for i in range(piece.shape[0]):
                piece[i] += factor * last[i]


@kernel
def row_combine(matrix, chosen, factors, out):
    """Do the same as `column_combine` for `matrix` X (n, p) stored by rows; reads whole rows unless few are chosen."""
    n_rows, n_columns = matrix.shape
    if chosen.shape[0] * _FEW < n_columns:
        for row in range(n_rows):
            values, total = matrix[row], 0.0
            for t in range(chosen.shape[0]):
                total += factors[t] * values[chosen[t]]
            out[row] = total
        return
    every = np.zeros(n_columns)
    for t in range(chosen.shape[0]):
        every[chosen[t]] = factors[t]
    for row in range(n_rows):
        out[row] = dot(matrix[row], every)


@kernel
def column_moments(columns, weights, vector, sums, squares, products):
    """Set sums[j] = Σ_i w_i x_ij, squares[j] = Σ_i w_i x_ij² and products[j] = x_jᵀ·vector, in one pass over X.

    `columns` (p, n), `weights` (n,) or (0,) for w = 1, `vector` (n,) float64.
    """
    weighted, ones = np.empty(weights.shape[0]), np.ones(vector.shape[0])
    for j in range(columns.shape[0]):
        column = columns[j]
        products[j] = dot(column, vector)
        if weights.shape[0] > 0:
            for i in range(weighted.shape[0]):
                weighted[i] = weights[i] * column[i]
            sums[j] = dot(column, weights)
            squares[j] = dot(column, weighted)
        else:
            sums[j], squares[j] = dot(column, ones), dot(column, column)


@kernel
def row_moments(matrix, weights, vector, sums, squares, products):
    """Do the same as `column_moments` for a `matrix` (n, p) stored by rows."""
    n_rows, n_columns = matrix.shape
    sums[:] = 0.0
    squares[:] = 0.0
    products[:] = 0.0
    for start in range(0, n_columns, _WIDTH):
        stop = min(start + _WIDTH, n_columns)
        first, second, third = sums[start:stop], squares[start:stop], products[start:stop]
        for row in range(n_rows):
            values, weight = matrix[row, start:stop], weights[row] if weights.shape[0] > 0 else 1.0
            factor = vector[row]
            for index in range(stop - start):
                weighted = weight * values[index]
                first[index] += weighted
                second[index] += weighted * values[index]
                third[index] += factor * values[index]


@kernel
def column_passes(columns, norms, coef, residual, penalty, passes):
    """Run cyclic coordinate descent on ½‖r‖² + P(β); `coef` (k,) and `residual` (n,) are updated.

    `columns` (k, n) float64 by columns, `norms` (k,) their squared norms.  About 2·n multiply–adds
    for a coordinate that moves, n for one that does not.
    """
    for _ in range(passes):
        for j in range(columns.shape[0]):
            norm = norms[j]
            if norm <= 0.0:
                continue
            column = columns[j]
            old = coef[j]
            new = prox(penalty, j, dot(column, residual) + norm * old, norm)
            change = new - old
            if change != 0.0:
                coef[j] = new
                for i in range(residual.shape[0]):
                    residual[i] -= change * column[i]


@kernel
def proximal_steps(aims, norms, coef, penalty, change):
    """Set change[j] to the step from β_j to the minimiser of ½‖x_j‖²b² − aim_j b + P_j(b), or 0 if x_j is zero."""
    for j in range(coef.shape[0]):
        change[j] = prox(penalty, j, aims[j], norms[j]) - coef[j] if norms[j] > 0.0 else 0.0


@kernel
def row_columns(matrix, chosen, out):
    """Set out[t, i] = x_ij, j = chosen[t], for `matrix` X (n, p) stored by rows; `out` (k, n) float64.

    It processes some rows at a time, which stay in a cache.
    """
    for start in range(0, matrix.shape[0], _HEIGHT):
        stop = min(start + _HEIGHT, matrix.shape[0])
        for position in range(chosen.shape[0]):
            for row in range(start, stop):
                out[position, row] = matrix[row, chosen[position]]


@kernel
def replace(values, marker, fill, scale, by_rows, out):
    """Set `out` to scale·`values` (n, k), except for entries that are `marker`, which may be NaN.

    Entry (i, j) then becomes fill[j] if X is stored `by_rows`, otherwise fill[i].
    """
    is_nan = np.isnan(marker)
    for i in range(values.shape[0]):
        line, changed = values[i], out[i]
        for j in range(line.shape[0]):
            value, other = np.float64(line[j]), fill[j] if by_rows else fill[i]
            missing = (value == marker) | (is_nan & np.isnan(value))
            changed[j] = other if missing else scale * value
