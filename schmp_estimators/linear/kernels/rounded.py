"""Newton models on dense columns rounded to float32: half of the memory that a pass waits for.

What is rounded are columns and changes, never a point: gradients are known exactly at one point, and elsewhere from
how slopes differ from there; decision values move by what a model has moved.  So each time that the exact gradient is
taken anew the steps gain some six digits, to whatever precision is asked for.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import inlined, kernel, maker
from schmp_estimators.core.lanes import row_dot, row_moments
from schmp_estimators.linear.penalties.base import prox

_HEIGHT = 32  # rows whose lines are in a cache at once
#: Rows of `Rounded.scratch`: curvatures, slopes less those that are known, and what the model has moved of the slopes.
_CURVATURE, _TURN, _MOVED = 0, 1, 2
#: Part of the largest curvature of a row that one has at least, which float32 can hold.
_LEAST = 1e-20


class Rounded(NamedTuple):
    """Dense columns x̃_j = length_j·x̂_j, less their means, for kernels that make Newton steps."""

    #: (k, width) float32 x̂_j, width a multiple of `LANES`, zeros behind the last row
    values: np.ndarray
    #: (k,)
    lengths: np.ndarray
    #: (n,) slopes, and (k,) the gradient X̃ᵀ·slope there
    slope: np.ndarray
    gradient: np.ndarray
    #: (3, width) float32, zeros, and (1,) the unit of its slopes and curvatures
    scratch: np.ndarray
    unit: np.ndarray


@inlined
def begin_rounded(columns, slope, curvature):
    """Take slopes and curvatures in, of which `sums_of_rounded` makes those of columns; small curvatures are raised.

    Returns whether the slopes are those at which the gradient is known.
    """
    scratch, known, unit, same = columns.scratch, columns.slope, 0.0, True
    for i in range(slope.shape[0]):
        unit = max(unit, curvature[i])
    for i in range(slope.shape[0]):
        curvature[i] = max(curvature[i], _LEAST * unit)
        scratch[_CURVATURE, i] = curvature[i] / unit
        scratch[_TURN, i] = (slope[i] - known[i]) / unit
        same &= slope[i] == known[i]
    columns.unit[0] = unit
    return same


@inlined
def sums_of_rounded(columns, j):
    """Return Σ w x̃, Σ w x̃² and x̃ᵀ·slope of column j."""
    length = columns.lengths[j]
    first, second, turn = row_moments(columns.values, j, columns.scratch, _CURVATURE, _TURN)
    factor = length * columns.unit[0]
    return factor * first, factor * length * second, columns.gradient[j] + factor * turn


@maker
def descend_rounded(columns, quadratic, coef, gradient, penalty, most, part):
    """Do as `descend_shuffled`, in the order of columns, from a model that has moved nothing."""
    values, lengths, scratch = columns.values, columns.lengths, columns.scratch
    norms, means, sums, _, _ = quadratic
    weights, moved, unit = scratch[_CURVATURE], scratch[_MOVED], columns.unit[0]
    for i in range(moved.shape[0]):
        moved[i] = 0.0
    order = np.empty(coef.shape[0], np.int64)
    count = 0
    for j in range(coef.shape[0]):
        if norms[j] > 0.0 and (coef[j] != 0.0 or prox(penalty, j, gradient[j], norms[j]) != 0.0):
            order[count] = j
            count += 1
    shift, goal, visited = 0.0, 0.0, 0
    for number in range(most):
        visited += count
        gained = 0.0
        for place in range(count):
            j = order[place]
            norm, old = norms[j], coef[j]
            along = gradient[j] - unit * lengths[j] * row_dot(values, j, scratch, _MOVED) + shift * sums[j]
            new = prox(penalty, j, along + norm * old, norm)
            change = new - old
            if change != 0.0:
                coef[j] = new
                gained += norm * change * change
                shift += change * means[j]
                column, factor = values[j], np.float32(change * lengths[j])
                for i in range(column.shape[0]):
                    moved[i] += factor * (weights[i] * column[i])
        if number == 0:
            goal = part * gained
        if gained <= goal and (number > 0 or gained == 0.0):
            return number + 1, visited, True
        left = 0
        for place in range(count):
            if coef[order[place]] != 0.0:
                order[left] = order[place]
                left += 1
        count = left
    return most, visited, False


@inlined
def image_of_rounded(columns, curvature, shift, image):
    """Set image = X̃·change + shift, from what that has made of the slopes."""
    moved, unit = columns.scratch[_MOVED], columns.unit[0]
    for i in range(image.shape[0]):
        image[i] = unit * moved[i] / curvature[i] + shift


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
