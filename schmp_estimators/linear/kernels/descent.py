"""Coordinate descent on the residual of dense columns, four at a time, where they are or on rounded copies of them.

A pass reads each column once from memory: what four neighbours are worth to each other is found beside their gradient,
and they are solved together, which for columns that resemble their neighbours saves half of the passes.

Notation: columns x̃_j = length_j·(x_j − mean_j), coefficients β, residual r, penalty P (in the scaling of ½‖r‖² + P(β)).
"""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import products_of_four
from schmp_estimators.linear.penalties.base import at, prox

_SWEEPS = 3  # passes within four columns
_HEIGHT = 32  # rows whose lines are in a cache at once


@kernel
def descent_pass(columns, places, active, lengths, means, norms, coef, gradient, residual, penalty):
    """Make one pass of descent on ½‖r‖² + P(β) over the `active` columns, four at a time.

    `columns` (m, n) by columns, any real dtype; that of coefficient t is ``columns[places[t]]``.  `active` (a,) int64,
    four of the k coefficients at least; `lengths`, `means`, `norms` = ‖x̃_j‖², `coef` (k,) and `residual` (n,) float64,
    which adds up to what it did before.  `coef`, `residual` and `gradient`, x̃ᵀr as it was last seen, are updated.
    Returns by how much a pass moved a gradient, at most, as a part of its λ_j.
    """
    n_rows, count = residual.shape[0], active.shape[0]
    balance = residual.sum()
    slopes, changes, gram = np.empty(4), np.empty(4), np.empty((4, 4))
    reach = 0.0
    for start in range(0, count, 4):
        here = active[min(start, count - 4) : min(start, count - 4) + 4]
        first, second = columns[places[here[0]]], columns[places[here[1]]]
        third, fourth = columns[places[here[2]]], columns[places[here[3]]]
        products_of_four(first, second, third, fourth, residual, slopes, gram)
        for row in range(4):
            t = here[row]
            slopes[row] = lengths[t] * (slopes[row] - means[t] * balance)
            for column in range(4):
                other = here[column]
                centred = gram[row, column] - n_rows * means[t] * means[other]
                gram[row, column] = norms[t] if row == column else lengths[t] * lengths[other] * centred
            changes[row] = 0.0
        for _ in range(_SWEEPS):
            for row in range(4):
                t = here[row]
                norm, old = norms[t], coef[t]
                if norm <= 0.0:
                    continue
                new = prox(penalty, t, slopes[row] + norm * old, norm)
                change = new - old
                if change != 0.0:
                    coef[t] = new
                    changes[row] += change
                    for column in range(4):
                        slopes[column] -= change * gram[row, column]
        shift, moves = 0.0, False
        for row in range(4):
            t = here[row]
            gradient[t] = slopes[row]
            strength = at(penalty.strengths, t)
            if strength > 0.0:
                reach = max(reach, norms[t] * abs(changes[row]) / strength)
            moves |= changes[row] != 0.0
            changes[row] *= lengths[t]
            shift += changes[row] * means[t]
        if moves:
            a, b, c, d = changes[0], changes[1], changes[2], changes[3]
            for i in range(n_rows):
                residual[i] -= ((a * first[i] + b * second[i]) + (c * third[i] + d * fourth[i])) - shift
    return reach


@kernel
def round_rows(matrix, chosen, means, factors, roots, out):
    """Set out[t, i] = roots_i·(x_ij − means_t)·factors_t, j = chosen[t]; `matrix` (n, p) by rows, `out` (k, n) float32.

    `roots` is (n,), or (0,) for ones.
    """
    for start in range(0, matrix.shape[0], _HEIGHT):
        stop = min(start + _HEIGHT, matrix.shape[0])
        for position in range(chosen.shape[0]):
            j, mean, factor = chosen[position], means[position], factors[position]
            for row in range(start, stop):
                root = roots[row] if roots.shape[0] > 0 else 1.0
                out[position, row] = root * ((matrix[row, j] - mean) * factor)


@kernel
def round_columns(columns, chosen, means, factors, roots, out):
    """Do as `round_rows` for `columns` (p, n), one column of X per row."""
    for position in range(chosen.shape[0]):
        column, mean, factor = columns[chosen[position]], means[position], factors[position]
        for row in range(column.shape[0]):
            root = roots[row] if roots.shape[0] > 0 else 1.0
            out[position, row] = root * ((column[row] - mean) * factor)
