"""Newton steps on few columns in one kernel, and descent on the residual in random orders.

Columns are sparse or dense.  Notation: responses y, row weights s (empty for s = 1), decision
values u + b.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import by_types, copy_to, inlined, kernel, maker
from schmp_estimators.core.lanes import dot, moments
from schmp_estimators.core.rng import below, mix
from schmp_estimators.linear.kernels.smooth import FLAT, RISE, derive_rows
from schmp_estimators.linear.kernels.sparse import (
    Quadratic,
    add_column,
    add_weighted_column,
    column_dot,
    column_sums,
    difference,
    fold_shift,
)
from schmp_estimators.linear.penalties.base import prox, value

#: Smallest curvature of a row: far smaller than a penalty, so that rows with nearly certain labels
#: still matter.
LEAST_CURVATURE = 1e-12
FEW_PASSES = 20  # if descent needs more passes, it is slow
#: Passes of descent end when one gains less than this part of the first, because the curvature
#: changes anyway.
PASS_LEFT = 0.1
#: A step is doubled if the slope of the objective at its end is more than this part of the first
#: slope; longest and shortest steps.  If classes are separated, the loss falls like an exponential,
#: and a Newton step changes decision values by about one.  If the slope is below a small part of
#: the objective, it says nothing about a longer step.
_STEEP, _LONGEST, _SHORTEST, _WORTH = 0.1, 8.0, 0.2, 1e-6
_HALF = np.uint64(32)


class Rounded(NamedTuple):
    """Dense columns x_j, rounded to length_j·x̂_j; few steps depend on digits that are lost."""

    #: (k, n) float32 x̂_j
    values: np.ndarray
    #: (k,) lengths, and what rounding takes from products with slopes near the present ones
    lengths: np.ndarray
    offsets: np.ndarray


def sums_of(columns, j, slope, curvature):
    """Return Σ w x, Σ w x² and xᵀ·slope of column j."""


def product_of(columns, j, slope):
    """Return xᵀ·slope of column j."""


def add_to(columns, j, factor, out):
    """Add factor·x of column j to `out` (n,)."""


def add_weighted(columns, j, factor, weights, out):
    """Add factor·w⊙x of column j to `out` (n,)."""


def _sparse_sums(columns, j, slope, curvature):
    values, rows, starts = columns
    return column_sums(values, rows, starts[j], starts[j + 1], curvature, slope)


def _sparse_product(columns, j, vector):
    values, rows, starts = columns
    return column_dot(values, rows, starts[j], starts[j + 1], vector)


def _add_sparse(columns, j, factor, out):
    values, rows, starts = columns
    add_column(values, rows, starts[j], starts[j + 1], factor, out)


def _add_sparse_weighted(columns, j, factor, weights, out):
    values, rows, starts = columns
    add_weighted_column(values, rows, starts[j], starts[j + 1], factor, weights, out)


def _rounded_sums(columns, j, slope, curvature):
    length = columns.lengths[j]
    first, second, along = moments(columns.values[j], curvature, slope)
    return length * first, length * length * second, columns.offsets[j] + length * along


def _rounded_product(columns, j, slope):
    return columns.offsets[j] + columns.lengths[j] * dot(columns.values[j], slope)


def _add_rounded(columns, j, factor, out):
    column, factor = columns.values[j], factor * columns.lengths[j]
    for i in range(out.shape[0]):
        out[i] += factor * column[i]


def _add_rounded_weighted(columns, j, factor, weights, out):
    column, factor = columns.values[j], factor * columns.lengths[j]
    for i in range(out.shape[0]):
        out[i] += factor * column[i] * weights[i]


def _chosen_by_type(function: Any, of_sparse: Any, of_rounded: Any) -> None:
    def choose(columns: Any, *_: Any) -> Callable[..., Any]:
        is_rounded = columns.instance_class is Rounded
        found: Callable[..., Any] = of_rounded if is_rounded else of_sparse
        return found

    by_types(function, copied=True, strict=False)(choose)


for _given in (
    (sums_of, _sparse_sums, _rounded_sums),
    (product_of, _sparse_product, _rounded_product),
    (add_to, _add_sparse, _add_rounded),
    (add_weighted, _add_sparse_weighted, _add_rounded_weighted),
):
    _chosen_by_type(*_given)


@inlined
def shuffle(order, count, key):
    """Shuffle the first `count` entries of `order`, by a key."""
    for last in range(count - 1, 0, -1):
        other = below(mix(key + np.uint64(last)), last + 1)
        order[last], order[other] = order[other], order[last]


@inlined
def movable(coef, gradient, norms, penalty, order):
    """Write the columns whose coefficients are not zero, or would not stay so, to `order`.

    Returns their number.
    """
    count = 0
    for j in range(coef.shape[0]):
        if norms[j] > 0.0 and (coef[j] != 0.0 or prox(penalty, j, gradient[j], norms[j]) != 0.0):
            order[count] = j
            count += 1
    return count


@maker
def _descend(columns, quadratic, coef, residual, gradient, penalty, most, part):
    """Do the same as `shuffled_passes`, within a kernel."""
    norms, means, sums, weights, _ = quadratic
    order = np.empty(coef.shape[0], np.int64)
    count = movable(coef, gradient, norms, penalty, order)
    shift, goal, visited = 0.0, 0.0, 0
    for number in range(most):
        visited += count
        shuffle(order, count, np.uint64(number) << _HALF)
        moved = 0.0
        for place in range(count):
            j = order[place]
            norm, old = norms[j], coef[j]
            along = product_of(columns, j, residual) + shift * sums[j]
            new = prox(penalty, j, along + norm * old, norm)
            change = new - old
            if change != 0.0:
                coef[j] = new
                moved += norm * change * change
                shift += change * means[j]
                add_weighted(columns, j, -change, weights, residual)
        if number == 0:
            goal = part * moved
        if moved <= goal and (number > 0 or moved == 0.0):
            fold_shift(residual, shift, weights)
            return number + 1, visited, True
        left = 0
        for place in range(count):
            if coef[order[place]] != 0.0:
                order[left] = order[place]
                left += 1
        count = left
    fold_shift(residual, shift, weights)
    return most, visited, False


@kernel
def shuffled_passes(columns, quadratic, coef, residual, gradient, penalty, most, part):
    """Descend in random orders; `coef` (k,) and `residual` v (n,) are updated.

    Only the support moves, and columns that a first step makes nonzero.  `columns` are
    `Columns` or `Rounded`, `gradient` (k,) is that at the start.  Every pass has another
    order, drawn with a fixed seed.  For columns with large correlations, such as counts, this takes
    a fifth of the passes of a fixed order.  Ends when a pass lowers the objective by at most `part`
    times the gain of the first, or after `most` passes.  Returns the number of passes, the number
    of visited columns, and whether it ended before `most`.
    """
    return _descend(columns, quadratic, coef, residual, gradient, penalty, most, part)


@inlined
def _look(columns, slope, level, coef, penalty, quadratic, gradient):
    """Set norms, means, sums and gradient of the columns; returns an estimate of their duality gap.

    Let gradients exceed their λ by d_j; d_j is negative for a coefficient that should shrink.  The
    dual point must shrink by the part max d/λ, so the gap is ‖β‖₁·max d − Σ d_j|β_j|, except for
    squares of d.  `level` has Σ slope and Σ curvature, zeros without an intercept.
    """
    norms, means, sums, curvature, _ = quadratic
    total, weight = level
    lag, most, length = 0.0, 0.0, 0.0
    for j in range(coef.shape[0]):
        first, second, along = sums_of(columns, j, slope, curvature)
        if weight > 0.0:
            sums[j], means[j] = first, first / weight
            second = max(second - first * means[j], FLAT * second)
            along -= total * means[j]
        norms[j], gradient[j], old = second, along, coef[j]
        if not second > 0.0:
            continue
        step = second * (prox(penalty, j, along + second * old, second) - old)
        outward = -step if old < 0.0 or (old == 0.0 and step < 0.0) else step
        lag -= outward * abs(old)
        most = max(most, outward)
        length += abs(old)
    return lag + most * length


@maker
def _search(
    loss,
    target,
    weights,
    coef,
    decision,
    penalty,
    best,
    change,
    image,
    slope,
    curvature,
    rise,
):
    """Make a step along a change of β and of decision values.

    The step is halved, or doubled while the slope is steep.  `best` is the objective, and `rise`
    the change of the penalty by the whole step.  Updates β, decision values, slope and curvature;
    returns the objective, Σ slope, and the length, or 0 if no step lowers the objective.
    """
    count, n_rows = coef.shape[0], decision.shape[0]
    new, moved = np.empty(count), np.empty(n_rows)
    begin, kept = decision.copy(), coef.copy()
    tried_slope, tried_curvature = np.empty(n_rows), np.empty(n_rows)
    total, made, length, steepest = 0.0, 0.0, 1.0, rise - dot(slope, image)
    while length > _SHORTEST:
        for j in range(count):
            new[j] = kept[j] + length * change[j]
        for i in range(n_rows):
            moved[i] = begin[i] + length * image[i]
        cost, tried_total, _ = derive_rows(
            loss, moved, target, weights, 0.0, tried_slope, tried_curvature
        )
        objective = cost + value(penalty, new)
        if objective <= best * (1.0 + RISE):
            best, total, made = objective, tried_total, length
            copy_to(new, coef)
            copy_to(moved, decision)
            copy_to(tried_slope, slope)
            copy_to(tried_curvature, curvature)
            left = rise - dot(slope, image)
            if length < 1.0 or length >= _LONGEST or left > min(_STEEP * steepest, -_WORTH * best):
                break
            length *= 2.0
        elif made > 0.0:
            break
        else:
            length *= 0.5
    return best, total, made


@kernel
def newton_steps(
    loss, columns, target, weights, coef, decision, penalty, centred, goal, part, most
):
    """Make up to `most` proximal Newton steps on β and, if `centred`, the intercept.

    The steps are computed by descent on the residual.  `columns` are the columns of X that may
    change, `Columns` or `Rounded`; `coef` (k,) and `decision` (n,), the values u + b, are updated.
    Models are those of `shuffled_passes`.  Returns the change of the intercept, the number of
    visited columns, the last estimate of the gap on these columns, and two reasons for the end:
    whether after at least one step the gap is at most `goal`, or `part` times the first gap; and
    whether steps are hard, because descent is slow, or the model predicts the objective badly.  The
    objective never rises.
    """
    count, n_rows = coef.shape[0], decision.shape[0]
    slope, curvature, residual = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows)
    gradient, means, sums, norms = (
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
    )
    new, change, image = np.empty(count), np.empty(count), np.empty(n_rows)
    quadratic = Quadratic(norms, means, sums, curvature, gradient[:0])
    best, total, _ = derive_rows(loss, decision, target, weights, 0.0, slope, curvature)
    best += value(penalty, coef)
    gap, shifted, visited = 0.0, 0.0, 0.0
    for number in range(most + 1):
        if number == most and goal <= 0.0:  # nothing is there to be reached
            break
        weight = 0.0
        for i in range(n_rows):
            curvature[i] = max(curvature[i], LEAST_CURVATURE)
            weight += curvature[i]
        level = (total, weight) if centred else (0.0, 0.0)
        push = total / weight if centred else 0.0
        gap = _look(columns, slope, level, coef, penalty, quadratic, gradient)
        visited += count
        if not number:
            goal = max(goal, part * gap)
        elif gap <= goal:
            return shifted, visited, gap, True, False
        if number == most:
            break
        copy_to(coef, new)
        for i in range(n_rows):
            residual[i] = slope[i] - push * curvature[i]
        _, went, arrived = _descend(
            columns, quadratic, new, residual, gradient, penalty, FEW_PASSES, PASS_LEFT
        )
        visited += went
        difference(new, coef, change)
        shift = push - dot(means, change)
        for i in range(n_rows):
            image[i] = shift
        for j in range(count):
            if change[j] != 0.0:
                add_to(columns, j, change[j], image)
        rise = value(penalty, new) - value(penalty, coef)
        best, total, length = _search(
            loss,
            target,
            weights,
            coef,
            decision,
            penalty,
            best,
            change,
            image,
            slope,
            curvature,
            rise,
        )
        shifted += length * shift
        if length == 0.0 or not arrived:
            return shifted, visited, gap, False, True
    return shifted, visited, gap, False, False
