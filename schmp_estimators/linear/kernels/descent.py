"""Newton steps on few columns in one kernel, for sparse columns and for dense ones that are rounded.

The two differ in how sums are computed.  Notation: responses y, row weights s (empty for s = 1), decision values u + b.

Columns and changes are rounded, but points are not.  The gradient is exact at one point; elsewhere it is computed from
the difference of slopes.  Decision values are changed by the rounded steps.  So each new exact gradient gives about six
more digits, and any precision can be reached.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import by_types, copy_to, inlined, kernel, maker
from schmp_estimators.core.lanes import dot, row_dot, row_moments
from schmp_estimators.linear.kernels.smooth import FLAT, RISE, derive_rows
from schmp_estimators.linear.kernels.sparse import (
    Quadratic,
    add_column,
    column_sums,
    descend_shuffled,
    difference,
    movable,
)
from schmp_estimators.linear.penalties.base import prox, value

#: Reasons for the end of Newton steps.
ARRIVED, STOPPED, HARD = 0, 1, 2
#: Smallest curvature of a row: far smaller than a penalty, so that rows with nearly certain labels still matter.
LEAST_CURVATURE = 1e-12
#: Columns whose gradient exceeds this part of the limit are used in the following steps; factor by which the merit on
#: rounded columns may fall before all are checked again.
NEAR, _TRUSTED = 0.95, 0.01
FEW_PASSES = 20  # if descent needs more passes, it is slow
#: Passes of descent end when one gains less than this part of the first, because the curvature changes anyway.
PASS_LEFT = 0.1
#: A step is doubled if the slope of the objective at its end is more than this part of the first slope; longest and
#: shortest steps.  If classes are separated, the loss falls like an exponential, and a Newton step changes decision
#: values by about one.  If the slope is below a small part of the objective, it says nothing about a longer step.
_STEEP, _LONGEST, _SHORTEST, _WORTH = 0.1, 8.0, 0.2, 1e-6


#: Rows of `Rounded.scratch`: curvatures, differences of slopes from the exact ones, and changes of slopes by the model.
_CURVATURE, _TURN, _MOVED = 0, 1, 2
#: Smallest curvature of a row relative to the largest, so that float32 can represent it.
_LEAST = 1e-20


class Rounded(NamedTuple):
    """Dense centred columns x̃_j = length_j·x̂_j, for kernels that make Newton steps."""

    #: (k, width) float32 x̂_j; width is a multiple of `LANES`, with zeros after the last row
    values: np.ndarray
    #: (k,)
    lengths: np.ndarray
    #: (n,) slopes, and (k,) the gradient X̃ᵀ·slope there
    slope: np.ndarray
    gradient: np.ndarray
    #: (3, width) float32, zeros, and (1,) the unit of its slopes and curvatures
    scratch: np.ndarray
    unit: np.ndarray


def begin(columns, coef, slope, curvature, penalty, active):
    """Store the arrays from which sums over columns are computed, and raise curvatures that are too small.

    Returns whether the gradient is known without computing it, and then sets which columns are active; and whether
    every step uses all columns.
    """


def sums_of(columns, j, slope, curvature):
    """Return Σ w x, Σ w x² and xᵀ·slope of column j."""


def descend(columns, quadratic, coef, slope, push, residual, gradient, penalty):
    """Descend on the quadratic model at β = `coef`, with the intercept changed by `push`; as `descend_shuffled`."""


def image_of(columns, quadratic, change, shift, image):
    """Set image = X·change + shift, from the arrays that `descend` has changed."""


def _sparse_begin(block, coef, slope, curvature, penalty, active):
    return False, True


def _sparse_sums(block, j, slope, curvature):
    return column_sums(block.values, block.rows, block.starts[j], block.stops[j], curvature, slope)


def _sparse_descent(block, quadratic, coef, slope, push, residual, gradient, penalty):
    curvature = quadratic.weights
    for i in range(residual.shape[0]):
        residual[i] = slope[i] - push * curvature[i]
    return descend_shuffled(
        block, quadratic, coef, residual, gradient, penalty, FEW_PASSES, PASS_LEFT
    )


def _sparse_image(block, quadratic, change, shift, image):
    values, rows, starts, stops = block
    for i in range(image.shape[0]):
        image[i] = shift
    for j in range(change.shape[0]):
        if change[j] != 0.0:
            add_column(values, rows, starts[j], stops[j], change[j], image)


def _rounded_begin(columns, coef, slope, curvature, penalty, active):
    scratch, known, unit, same = columns.scratch, columns.slope, 0.0, True
    for i in range(slope.shape[0]):
        unit = max(unit, curvature[i])
    for i in range(slope.shape[0]):
        curvature[i] = max(curvature[i], _LEAST * unit)
        scratch[_CURVATURE, i] = curvature[i] / unit
        scratch[_TURN, i] = (slope[i] - known[i]) / unit
        same &= slope[i] == known[i]
    columns.unit[0] = unit
    for j in range(coef.shape[0] if same else 0):
        active[j] = coef[j] != 0.0 or prox(penalty, j, columns.gradient[j] / NEAR, 1.0) != 0.0
    return same, False


def _rounded_sums(columns, j, slope, curvature):
    length = columns.lengths[j]
    first, second, turn = row_moments(columns.values, j, columns.scratch, _CURVATURE, _TURN)
    factor = length * columns.unit[0]
    return factor * first, factor * length * second, columns.gradient[j] + factor * turn


def _rounded_descent(columns, quadratic, coef, slope, push, residual, gradient, penalty):
    """Descend in the order of columns, starting from no change."""
    values, lengths, scratch = columns.values, columns.lengths, columns.scratch
    norms, means, sums, _, _ = quadratic
    weights, moved, unit = scratch[_CURVATURE], scratch[_MOVED], columns.unit[0]
    for i in range(moved.shape[0]):
        moved[i] = 0.0
    order = np.empty(coef.shape[0], np.int64)
    count = movable(coef, gradient, norms, penalty, order)
    shift, goal, visited = 0.0, 0.0, 0
    for number in range(FEW_PASSES):
        visited += count
        gained = 0.0
        for place in range(count):
            j = order[place]
            norm, old = norms[j], coef[j]
            along = (
                gradient[j]
                - unit * lengths[j] * row_dot(values, j, scratch, _MOVED)
                + shift * sums[j]
            )
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
            goal = PASS_LEFT * gained
        if gained <= goal and (number > 0 or gained == 0.0):
            return number + 1, visited, True
        left = 0
        for place in range(count):
            if coef[order[place]] != 0.0:
                order[left] = order[place]
                left += 1
        count = left
    return FEW_PASSES, visited, False


def _rounded_image(columns, quadratic, change, shift, image):
    """Compute the image from the changes of the slopes."""
    moved, unit, curvature = columns.scratch[_MOVED], columns.unit[0], quadratic.weights
    for i in range(image.shape[0]):
        image[i] = unit * moved[i] / curvature[i] + shift


_OF_SPARSE = (_sparse_begin, _sparse_sums, _sparse_descent, _sparse_image)
_OF_ROUNDED = (_rounded_begin, _rounded_sums, _rounded_descent, _rounded_image)


def _kind(place: int) -> Callable[..., Any]:
    return lambda columns, *_: (_OF_ROUNDED if columns.instance_class is Rounded else _OF_SPARSE)[
        place
    ]


_STUBS: tuple[Callable[..., Any], ...] = (begin, sums_of, descend, image_of)
for _place, _stub in enumerate(_STUBS):
    by_types(_stub, copied=_stub is sums_of, strict=False)(_kind(_place))


@inlined
def _look(columns, slope, level, coef, penalty, everywhere, active, quadratic, gradient):
    """Set norms, means, sums and gradient of the active columns; returns an estimate of their duality gap.

    Let gradients exceed their λ by d_j; d_j is negative for a coefficient that should shrink.  The dual point must
    shrink by the part max d/λ, so the gap is ‖β‖₁·max d − Σ d_j|β_j|, except for squares of d.  `level` has Σ slope and
    Σ curvature, zeros without an intercept.  With `everywhere` all columns are computed, and those in the support or
    near it become active.
    """
    norms, means, sums, curvature, _ = quadratic
    total, weight = level
    lag, most, length = 0.0, 0.0, 0.0
    for j in range(coef.shape[0]):
        if not (everywhere or active[j]):
            continue
        first, second, along = sums_of(columns, j, slope, curvature)
        if weight > 0.0:
            sums[j], means[j] = first, first / weight
            second = max(second - first * means[j], FLAT * second)
            along -= total * means[j]
        norms[j], gradient[j], old = second, along, coef[j]
        if not second > 0.0:
            active[j] = False
            continue
        if everywhere:
            active[j] = old != 0.0 or prox(penalty, j, along / NEAR, second) != 0.0
        step = second * (prox(penalty, j, along + second * old, second) - old)
        outward = -step if old < 0.0 or (old == 0.0 and step < 0.0) else step
        lag -= outward * abs(old)
        most = max(most, outward)
        length += abs(old)
    return lag + most * length


@maker
def _search(
    loss,
    columns,
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
    """Make a step along a change of β and of decision values; it is halved, or doubled while the slope is steep.

    `best` is the objective, and `rise` the change of the penalty by the whole step.  Updates β, decision values, slope
    and curvature; returns the objective, Σ slope, and the length, or 0 if no step lowers the objective.
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
    """Make up to `most` proximal Newton steps on β and, if `centred`, the intercept, by descent on the residual.

    `columns` are the columns of X that may change, as `Chosen` or `Rounded`; `coef` (k,) and `decision` (n,), the
    values u + b, are updated.  Models are those of `shuffled_passes`.  Returns the change of the intercept, the number
    of visited columns, the last estimate of the gap on these columns, and the reason for the end.  ARRIVED: after at
    least one step the gap is at most `goal`, or at most `part` times the first gap.  STOPPED: after `most` steps.
    HARD: descent is slow, or the model predicts the objective badly.  The objective never rises.
    """
    count, n_rows = coef.shape[0], decision.shape[0]
    slope, curvature, residual, image = (
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows),
    )
    gradient, norms, means, sums = (
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
    )
    new, change, active = np.empty(count), np.empty(count), np.ones(count, np.bool_)
    quadratic = Quadratic(norms, means, sums, curvature, gradient[:0])
    best, total, _ = derive_rows(loss, decision, target, weights, 0.0, slope, curvature)
    best += value(penalty, coef)
    everywhere, trusted, gap, shifted, visited = True, np.inf, np.inf, 0.0, 0.0
    for number in range(most + 1):
        if number == most and goal <= 0.0:  # nothing is there to be reached
            break
        weight = 0.0
        for i in range(n_rows):
            curvature[i] = max(curvature[i], LEAST_CURVATURE)
        known, few = begin(columns, coef, slope, curvature, penalty, active)
        for i in range(n_rows):
            weight += curvature[i]
        level = (total, weight) if centred else (0.0, 0.0)
        push = total / weight if centred else 0.0
        if known:
            everywhere = False
        gap = _look(columns, slope, level, coef, penalty, everywhere, active, quadratic, gradient)
        if known:
            trusted = gap
        elif not everywhere and gap <= max(goal, _TRUSTED * trusted):
            everywhere = True
            gap = _look(
                columns, slope, level, coef, penalty, everywhere, active, quadratic, gradient
            )
        visited += count
        trusted = gap if everywhere else trusted
        if not number:
            goal = max(goal, part * gap)
        elif everywhere and gap <= goal:
            return shifted, visited, gap, ARRIVED
        if number == most:
            break
        copy_to(coef, new)
        _, went, arrived = descend(
            columns, quadratic, new, slope, push, residual, gradient, penalty
        )
        visited += went
        difference(new, coef, change)
        shift = push - dot(means, change)
        image_of(columns, quadratic, change, shift, image)
        rise = value(penalty, new) - value(penalty, coef)
        best, total, length = _search(
            loss,
            columns,
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
            return shifted, visited, gap, HARD
        everywhere = few
    return shifted, visited, gap, STOPPED
