"""Newton models on few sparse columns by their products with each other, beside which passes of descent cost little.

A pass over the residual takes two accesses for each stored value; one over products of k columns takes k² additions
that follow each other in memory, a sixth of the time where a row has some 25 of 250 columns.  To make the products
takes as long as some ten passes over the residual.  They steer only: gradients are exact at each point, so that
products which were made at one point serve at the next, too, as long as curvatures have not changed much.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, maker
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Chosen, Columns, shuffle, take_columns
from schmp_estimators.linear.penalties.base import prox

_ONE, _HALF = np.uint64(1), np.uint64(32)
#: Pairs of values in a row, and of columns, for each stored value, up to which products are made.
_PAIRS, _SQUARE = 15, 3
#: Part of the curvature of a column that centring leaves at least.
FLAT = 1e-12
#: Part of all curvature that may change before products are made anew.
_STALE = 0.3
#: Passes after which descent is slow, and part of what the first has done below which another is not worth it.
_FEW_PASSES, _PASS_LEFT = 100, 0.01


class Multiplied(NamedTuple):
    """Sparse columns, and room for their products."""

    columns: Chosen
    #: (k, k) X̃ᵀWX̃, or (0, 0) where descent is to be on the residual
    products: np.ndarray
    #: (n,) W with which they were made, zeros at first
    weights: np.ndarray


def multiplied(columns: Columns, chosen: NDArray[np.int64], n_rows: int, steps: int) -> Multiplied:
    """Return some columns, with room for products if for so many steps these are cheap beside passes over them.

    The columns are copied in that case only.
    """
    values, rows, starts = columns
    first, last = starts[chosen], starts[chosen + 1]
    stored = int((last - first).sum())
    few = len(chosen) ** 2 <= _SQUARE * stored <= 2 * _SQUARE * _PAIRS * n_rows
    if steps == 1 or not few:
        return Multiplied(freeze(Chosen(values, rows, first, last)), np.empty((0, 0)), np.empty(0))
    values, rows, starts = freeze(Columns(*take_columns(columns, freeze(chosen))))
    copied, in_rows = Chosen(values, rows, starts[:-1], starts[1:]), np.bincount(rows, minlength=n_rows)
    size = len(chosen) if in_rows @ in_rows <= 2 * _PAIRS * stored else 0
    return Multiplied(copied, np.empty((size, size)), np.zeros(n_rows if size else 0))


@maker
def _rows_of(columns, n_rows):
    """Return values, column numbers and starts of the rows."""
    values, rows, starts, stops = columns
    row_starts = np.zeros(n_rows + 1, np.int64)
    for index in range(rows.shape[0]):
        row_starts[rows[index] + 1] += 1
    for i in range(n_rows):
        row_starts[i + 1] += row_starts[i]
    free = row_starts.copy()
    entries, numbers = np.empty(rows.shape[0]), np.empty(rows.shape[0], np.int32)
    for j in range(starts.shape[0]):
        for index in range(np.uint64(starts[j]), np.uint64(stops[j])):
            place = np.uint64(free[np.uint64(rows[index])])
            free[np.uint64(rows[index])] += 1
            entries[place], numbers[place] = values[index], j
    return entries, numbers, row_starts


@maker
def multiply(block, centred):
    """Make the products for the weights of the block, of columns less their weighted means if they are `centred`.

    1 ns for each pair of values in a row.
    """
    products, weights = block.products, block.weights
    count, n_rows = products.shape[0], weights.shape[0]
    sums = np.empty(count)
    entries, numbers, row_starts = _rows_of(block.columns, n_rows)
    for j in range(count):
        sums[j] = 0.0
        for k in range(count):
            products[j, k] = 0.0
    total = 0.0
    for i in range(n_rows):
        first, stop = np.uint64(row_starts[i]), np.uint64(row_starts[i + 1])
        total += weights[i]
        for left in range(first, stop):
            factor, j = weights[i] * entries[left], np.uint64(numbers[left])
            sums[j] += factor
            row = products[j]
            for right in range(first, left + _ONE):
                row[np.uint64(numbers[right])] += factor * entries[right]
    for j in range(count):
        if centred:
            norm = products[j, j]
            for k in range(j + 1):
                products[j, k] -= sums[j] * sums[k] / total
            products[j, j] = max(products[j, j], FLAT * norm)
        for k in range(j):
            products[k, j] = products[j, k]


@inlined
def have_changed(curvature, weights):
    """Return whether curvatures differ too much from the weights that products were made with."""
    changed, total = 0.0, 0.0
    for i in range(weights.shape[0]):
        changed += abs(curvature[i] - weights[i])
        total += curvature[i]
    return changed > _STALE * total


@maker
def descend_multiplied(block, norms, coef, gradient, penalty):
    """Do as `descend_shuffled` on the products of columns; those with a norm of zero are left alone."""
    products, count = block.products, 0
    order, present = np.empty(coef.shape[0], np.int64), gradient.copy()
    for j in range(coef.shape[0]):
        if norms[j] > 0.0 and products[j, j] > 0.0:
            order[count] = j
            count += 1
    goal = 0.0
    for number in range(_FEW_PASSES):
        shuffle(order, count, np.uint64(number) << _HALF)
        moved = 0.0
        for place in range(count):
            j = order[place]
            norm, old = products[j, j], coef[j]
            new = prox(penalty, j, present[j] + norm * old, norm)
            change = new - old
            if change != 0.0:
                coef[j] = new
                moved += norm * change * change
                row = products[j]
                for k in range(row.shape[0]):
                    present[k] -= change * row[k]
        if number == 0:
            goal = _PASS_LEFT * moved
        if moved <= goal and (number > 0 or moved == 0.0):
            return number + 1, True
    return _FEW_PASSES, False
