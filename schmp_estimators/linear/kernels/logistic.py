"""Kernels on the rows of a logistic model: loss, its derivatives, the dual objective, and Newton steps on few columns.

Newton steps are one kernel for sparse columns and for dense ones that are rounded: these differ in how sums are made.

Notation: labels y ∈ {−1, 1}, row weights s (empty for s = 1), decision values u + b, p = σ(−y(u + b)).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from schmp_estimators.core.exponential import fading, log_one_plus
from schmp_estimators.core.jit import by_types, copy_to, inlined, kernel, maker
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.dense import (
    Rounded,
    begin_rounded,
    descend_rounded,
    image_of_rounded,
    sums_of_rounded,
)
from schmp_estimators.linear.kernels.sparse import Quadratic, add_column, descend_shuffled, difference
from schmp_estimators.linear.penalties.base import prox, value

_ONE, _TWO = np.uint64(1), np.uint64(2)
#: How Newton steps have ended.
ARRIVED, STOPPED, HARD = 0, 1, 2
#: Curvature of a row at least: far smaller than a penalty, beside which rows that are all but certain still show.
LEAST_CURVATURE = 1e-12
#: Part of what it takes to violate its condition from which a column is looked at in the steps that follow, and by how
#: many times a merit on those of rounded columns may fall before all are looked at again.
NEAR, _TRUSTED = 0.95, 0.01
#: Part of the curvature of a column that centring leaves at least.
FLAT = 1e-12
FEW_PASSES = 20  # of descent, after which it is slow
#: Part of what the first pass of descent has done below which another one is not worth it: the curvature will differ.
PASS_LEFT = 0.1
#: Part of its first slope that the objective must have at the end of a step for a step of twice its length to be tried,
#: and the longest and shortest ones.  Where classes are apart the loss falls like an exponential, on which a step of
#: Newton's moves decision values by one.  Below a part of the objective its slope says nothing of a longer step.
_STEEP, _LONGEST, _SHORTEST, _WORTH = 0.1, 8.0, 0.2, 1e-6
#: Times as large as its curvature is what a row may have of a slope for decision values to be taken from its residual.
_ROUGH = 1e4


@maker
def _derive(decision, labels, weights, intercept, slope, curvature):
    """Do as `logistic_derivatives`, in loops that are vectorised, but for the sums."""
    n_rows = decision.shape[0]
    margin, losses = np.empty(n_rows), np.empty(n_rows)
    for i in range(n_rows):
        margin[i] = labels[i] * (decision[i] + intercept)
    for i in range(n_rows):
        losses[i] = fading(-abs(margin[i]))
    for i in range(n_rows):
        curvature[i] = losses[i] / ((1.0 + losses[i]) * (1.0 + losses[i]))
    for i in range(n_rows):
        slope[i] = labels[i] * ((losses[i] if margin[i] > 0.0 else 1.0) / (1.0 + losses[i]))
    for i in range(n_rows):
        losses[i] = log_one_plus(losses[i]) + (0.0 if margin[i] > 0.0 else -margin[i])
    if weights.shape[0] > 0:
        for i in range(n_rows):
            slope[i] *= weights[i]
            curvature[i] *= weights[i]
            losses[i] *= weights[i]
    loss, total_slope, total_curvature = 0.0, 0.0, 0.0
    for i in range(n_rows):
        loss += losses[i]
        total_slope += slope[i]
        total_curvature += curvature[i]
    return loss, total_slope, total_curvature


@kernel
def logistic_derivatives(decision, labels, weights, intercept, slope, curvature):
    """Set slope_i = s y p and curvature_i = s p (1 − p); return Σ s ln(1 + e^{−y(u+b)}), Σ slope and Σ curvature.

    All arrays (n,) float64; about 4 ns per row.
    """
    return _derive(decision, labels, weights, intercept, slope, curvature)


@kernel
def logistic_entropy(decision, labels, weights, intercept, scale):
    """Return −Σ s [q ln q + (1 − q) ln(1 − q)] at q = scale·p, the dual objective; about 25 ns per row."""
    total = 0.0
    weighted = weights.shape[0] > 0
    for i in range(decision.shape[0]):
        margin = labels[i] * (decision[i] + intercept)
        small = math.exp(-abs(margin))
        part = scale * (small if margin > 0.0 else 1.0) / (1.0 + small)
        if 0.0 < part < 1.0:
            weight = weights[i] if weighted else 1.0
            total -= weight * (part * math.log(part) + (1.0 - part) * math.log1p(-part))
    return total


def begin(columns, coef, slope, curvature, centred, penalty, active):
    """Take in what sums over columns are made of, and raise curvatures that are too small.

    Returns whether the gradient is known here without a look at the columns, and if so sets which are active.
    """


def are_few(columns):
    """Return whether all columns are looked at in each step."""


def sums_of(columns, j, slope, curvature):
    """Return Σ w x, Σ w x² and xᵀ·slope of column j."""


def descend(columns, quadratic, coef, slope, push, residual, gradient, penalty):
    """Descend on the quadratic model, β being at `coef`, the intercept moved by `push`; as `descend_shuffled`."""


def image_of(columns, quadratic, change, slope, residual, shift, image):
    """Set image = X·change + shift, from what `descend` has left."""


def _sparse_begin(block, coef, slope, curvature, centred, penalty, active):
    return False


def _sparse_few(block):
    return True


def _sparse_sums(block, j, slope, curvature):
    values, rows, starts, stops = block
    first, second, along = 0.0, 0.0, 0.0
    odd_first, odd_second, odd_along = 0.0, 0.0, 0.0  # hide the latency of additions, as in `column_dot`
    start, stop = np.uint64(starts[j]), np.uint64(stops[j])
    paired = start + (stop - start) // _TWO * _TWO
    for index in range(start, paired, _TWO):
        i, entry = np.uint64(rows[index]), values[index]
        weighted = entry * curvature[i]
        first += weighted
        second += weighted * entry
        along += entry * slope[i]
        i, entry = np.uint64(rows[index + _ONE]), values[index + _ONE]
        weighted = entry * curvature[i]
        odd_first += weighted
        odd_second += weighted * entry
        odd_along += entry * slope[i]
    if paired < stop:
        i, entry = np.uint64(rows[paired]), values[paired]
        weighted = entry * curvature[i]
        first += weighted
        second += weighted * entry
        along += entry * slope[i]
    return first + odd_first, second + odd_second, along + odd_along


def _sparse_descent(block, quadratic, coef, slope, push, residual, gradient, penalty):
    curvature = quadratic.weights
    for i in range(residual.shape[0]):
        residual[i] = slope[i] - push * curvature[i]
    return descend_shuffled(block, quadratic, coef, residual, gradient, penalty, FEW_PASSES, PASS_LEFT)


def _sparse_image(block, quadratic, change, slope, residual, shift, image):
    """Take it from the residual if there is one, where rounding allows it."""
    values, rows, starts, stops = block
    curvature, exact = quadratic.weights, True
    for i in range(image.shape[0]):
        image[i] = (slope[i] - residual[i]) / curvature[i]
        exact &= abs(slope[i]) + abs(residual[i]) <= _ROUGH * curvature[i]
    if not exact:
        for i in range(image.shape[0]):
            image[i] = shift
        for j in range(change.shape[0]):
            if change[j] != 0.0:
                add_column(values, rows, starts[j], stops[j], change[j], image)


def _rounded_begin(columns, coef, slope, curvature, centred, penalty, active):
    known = begin_rounded(columns, slope, curvature)
    if known:
        for j in range(coef.shape[0]):
            active[j] = coef[j] != 0.0 or prox(penalty, j, columns.gradient[j] / NEAR, 1.0) != 0.0
    return known


def _rounded_few(columns):
    return False


def _rounded_sums(columns, j, slope, curvature):
    return sums_of_rounded(columns, j)


def _rounded_descent(columns, quadratic, coef, slope, push, residual, gradient, penalty):
    return descend_rounded(columns, quadratic, coef, gradient, penalty, FEW_PASSES, PASS_LEFT)


def _rounded_image(columns, quadratic, change, slope, residual, shift, image):
    image_of_rounded(columns, quadratic.weights, shift, image)


_OF_SPARSE = (_sparse_begin, _sparse_sums, _sparse_descent, _sparse_image, _sparse_few)
_OF_ROUNDED = (_rounded_begin, _rounded_sums, _rounded_descent, _rounded_image, _rounded_few)


def _kind(place: int) -> Callable[..., Any]:
    return lambda columns, *_: (_OF_ROUNDED if columns.instance_class is Rounded else _OF_SPARSE)[place]


_STUBS: tuple[Callable[..., Any], ...] = (begin, sums_of, descend, image_of, are_few)
for _place, _stub in enumerate(_STUBS):
    by_types(_stub, copied=_stub is sums_of, strict=False)(_kind(_place))


@inlined
def _look(columns, slope, level, coef, penalty, everywhere, active, quadratic, gradient):
    """Set norms, means, sums and gradient of the active columns; returns their duality gap, about.

    With gradients that are d_j too large for their λ, d of a coefficient that is to shrink being negative, the dual
    point is to shrink by the part max d/λ, so that the gap is ‖β‖₁·max d − Σ d_j|β_j|, but for squares of d.
    `level` holds Σ slope and Σ curvature, zeros without an intercept.  With `everywhere` it looks at all columns, and
    makes those active that are in the support or near it.
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
def _search(columns, labels, weights, coef, decision, penalty, best, change, image, slope, curvature, rise):
    """Go along a change of β and its image in the decision values, by a step that is halved, or doubled while steep.

    `best` is the objective, `rise` what the penalty adds to it with the whole change.  Moves β, decision values, slope
    and curvature; returns the objective, Σ slope, and the length, 0 where no step was found.
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
        loss, tried_total, _ = _derive(moved, labels, weights, 0.0, tried_slope, tried_curvature)
        objective = loss + value(penalty, new)
        if objective <= best * (1.0 + 1e-13):
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
def logistic_steps(columns, labels, weights, coef, decision, penalty, centred, goal, part, most):
    """Make up to `most` proximal Newton steps on β and, if `centred`, the intercept, by descent on the residual.

    `columns` are those of X that may move, as `Chosen` or `Rounded`; `coef` (k,) and `decision` (n,), the values
    u + b, are updated.  Models are those of `shuffled_passes`.  Returns the change of the intercept, the number of
    columns visited, the gap on these columns, about, when last looked at, and how it ended: ARRIVED, after a step or
    more, where it is at most `goal` or the part `part` of the first, STOPPED after `most` steps, or HARD, where descent
    is slow or the model says little of the objective, which never rises.
    """
    count, n_rows = coef.shape[0], decision.shape[0]
    slope, curvature, residual, image = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows), np.empty(n_rows)
    gradient, norms, means, sums = np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count)
    new, change, active = np.empty(count), np.empty(count), np.ones(count, np.bool_)
    quadratic = Quadratic(norms, means, sums, curvature, gradient[:0])
    best, total, _ = _derive(decision, labels, weights, 0.0, slope, curvature)
    best += value(penalty, coef)
    everywhere, trusted, gap, shifted, visited = True, np.inf, np.inf, 0.0, 0.0
    for number in range(most + 1):
        if number == most and goal <= 0.0:  # nothing is there to be reached
            break
        weight = 0.0
        for i in range(n_rows):
            curvature[i] = max(curvature[i], LEAST_CURVATURE)
        known = begin(columns, coef, slope, curvature, centred, penalty, active)
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
            gap = _look(columns, slope, level, coef, penalty, everywhere, active, quadratic, gradient)
        visited += count
        trusted = gap if everywhere else trusted
        if not number:
            goal = max(goal, part * gap)
        elif everywhere and gap <= goal:
            return shifted, visited, gap, ARRIVED
        if number == most:
            break
        copy_to(coef, new)
        _, went, arrived = descend(columns, quadratic, new, slope, push, residual, gradient, penalty)
        visited += went
        difference(new, coef, change)
        shift = push - dot(means, change)
        image_of(columns, quadratic, change, slope, residual, shift, image)
        rise = value(penalty, new) - value(penalty, coef)
        best, total, length = _search(
            columns, labels, weights, coef, decision, penalty, best, change, image, slope, curvature, rise
        )
        shifted += length * shift
        if length == 0.0 or not arrived:
            return shifted, visited, gap, HARD
        everywhere = are_few(columns)
    return shifted, visited, gap, STOPPED
