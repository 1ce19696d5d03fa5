"""The rows of a smooth loss: its derivatives, steps along a line, and the quadratic model of a step.

Notation as in `kernels.smooth_path`.  The exponential and the logarithm of the logistic loss are
polynomials, so that the compiler can vectorise loops over rows.  They take 1 and 2 ns per row, the
C functions 5 and 10 ns.  Sums are not reordered, and polynomials have the same bits with every
instruction set.  Both are exact to 2 units of the last place.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import by_types, copy_to, inlined, kernel, maker, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.working_set import AIM, COEF, EARLIER, larger, penalty_of
from schmp_estimators.linear.penalties.base import method_of

#: Number of rows of a matrix that are multiplied at a time, so that they stay in a cache.
_BLOCK = 8
#: Relative change of the sum of curvatures from which a step uses the present ones.
_CHANGED = 0.1
#: Maximum numbers of Newton steps on the intercept, and of halvings of a step.
_MOST_SETTLING, MOST_HALVINGS = 50, 40
#: Smallest curvature of a row relative to its slope, because a row that is clearly on the wrong
#: side has none.
_CURVED = 0.01
#: Relative rise of the objective that counts as rounding.
RISE = 1e-13
#: Smallest part of the squared norm of a column that remains after weighting.
FLAT = 1e-12
#: Rows of the arrays in `SmoothRows`, and positions in `SmoothRows.level`.
N_ROWS, N_LEVELS = 8, 2
LEVEL, SHARE = range(N_LEVELS)


class SmoothColumns(NamedTuple):
    """Columns, responses, and a penalty of strength one; all arrays float64, columns padded for `dot`."""

    #: (p, n) X, (n,) y and s
    values: np.ndarray
    target: np.ndarray
    weights: np.ndarray
    #: (p,) f > 0, ρ ≥ 0, and Σ s x²
    factors: np.ndarray
    ridges: np.ndarray
    squares: np.ndarray
    #: whether there is an intercept, and whether coefficients are ≥ 0
    fit_intercept: bool
    positive: bool


class SmoothRows(NamedTuple):
    """Arrays over rows."""

    #: (n,) u, s·ℓ, θ and w
    decision: np.ndarray
    values: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    #: (n,) weights of the quadratic model, and their roots
    lagged: np.ndarray
    roots: np.ndarray
    #: (n,) change of u by a step, and u before it
    image: np.ndarray
    kept: np.ndarray
    #: (m, n) √w⊙(x − x̄)
    scaled: np.ndarray
    #: (N_LEVELS,) b, and 1/Σw of the model, which is zero without an intercept
    level: np.ndarray


def row(loss: Any, target: float, decision: float) -> tuple[float, float, float]:
    """Return `losses.base.Rowwise.row`; for kernels, where a named tuple has no methods."""
    found: tuple[float, float, float] = loss.row(target, decision)
    return found


def conjugate(loss: Any, target: float, dual: float) -> float:
    """Return `losses.base.Rowwise.conjugate`; for kernels."""
    return float(loss.conjugate(target, dual))


@by_types(row, copied=True, strict=False)
def _row(loss: Any, target: Any, decision: Any) -> Callable[..., Any] | None:
    return method_of("row", loss)


@by_types(conjugate, copied=True, strict=False)
def _conjugate(loss: Any, target: Any, dual: Any) -> Callable[..., Any] | None:
    return method_of("conjugate", loss)


@part
def total_of(values):
    """Return the sum."""
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@part
def derive(loss, columns, rows):
    """Set slopes and curvatures at the decision values; returns the loss."""
    target, weights, decision = columns.target, columns.weights, rows.decision
    values, slopes, curvatures = rows.values, rows.slope, rows.curvature
    for i in range(decision.shape[0]):
        value, slope, curvature = row(loss, target[i], decision[i])
        weight, least = weights[i], _CURVED * abs(slope)
        curvature = curvature if curvature > least else least
        values[i], slopes[i], curvatures[i] = weight * value, weight * slope, weight * curvature
    return total_of(values)


@maker
def derive_rows(loss, decision, target, weights, intercept, slope, curvature):
    """Set slopes and curvatures at u + b, times weights, if there are any; returns the loss and the sums of both."""
    n_rows = decision.shape[0]
    values = np.empty(n_rows)
    for i in range(n_rows):
        value, along, curved = row(loss, target[i], decision[i] + intercept)
        values[i], slope[i], curvature[i] = value, along, curved
    if weights.shape[0] > 0:
        for i in range(n_rows):
            weight = weights[i]
            values[i], slope[i], curvature[i] = (
                weight * values[i],
                weight * slope[i],
                weight * curvature[i],
            )
    return total_of(values), total_of(slope), total_of(curvature)


@kernel
def row_derivatives(loss, decision, target, weights, intercept, slope, curvature):
    """Do the same as `derive_rows`; all arrays (n,) float64, about 4 ns per row with the logistic loss."""
    return derive_rows(loss, decision, target, weights, intercept, slope, curvature)


@kernel
def row_dual(loss, decision, target, weights, intercept, scale):
    """Return −Σ s ℓ*(y, −θ/s) at θ = scale·slope, the dual objective."""
    total = 0.0
    for i in range(decision.shape[0]):
        _, slope, _ = row(loss, target[i], decision[i] + intercept)
        weight = weights[i] if weights.shape[0] > 0 else 1.0
        total -= weight * conjugate(loss, target[i], scale * slope)
    return total


@part
def rest_of(loss, columns, rows, scale):
    """Return Σ s(ℓ + ℓ* + κθu/s), which κ = 1 makes zero."""
    target, weights, decision, values, slopes = (
        columns.target, columns.weights, rows.decision, rows.values, rows.slope,
    )  # fmt: skip
    total = 0.0
    for i in range(decision.shape[0]):
        weight, part_of_slope = weights[i], scale * slopes[i]
        if weight > 0.0:
            dual = conjugate(loss, target[i], part_of_slope / weight)
            total += values[i] + weight * dual + part_of_slope * decision[i]
    return total if total > 0.0 else 0.0


@part
def go_along(loss, columns, room, rows, penalty, best, push, count):
    """Make a step in the decision values, or a part of it, so that loss plus penalty does not rise.

    The step is from EARLIER coefficients of `count` members to AIM; `push` is the step of the
    intercept.  Returns loss plus penalty, and the part of the step that was made, or zero.
    """
    decision, image, kept, vectors = rows.decision, rows.image, rows.kept, room.vectors
    coef, earlier, aims = vectors[COEF], vectors[EARLIER], vectors[AIM]
    copy_to(decision, kept)
    length, value, halvings = 1.0, best, 0
    while True:
        for i in range(decision.shape[0]):
            decision[i] = kept[i] + length * image[i]
        for a in range(count):
            coef[a] = earlier[a] + length * (aims[a] - earlier[a])
        value = derive(loss, columns, rows) + penalty_of(vectors, penalty, count)
        if value <= best * (1.0 + RISE) or length == 0.0:
            break
        halvings += 1
        length *= 0.5
        if halvings == MOST_HALVINGS:
            length = 0.0
            copy_to(earlier, aims)
            for i in range(image.shape[0]):
                image[i] = 0.0
    rows.level[LEVEL] += length * push
    return value, length


@part
def settle(loss, columns, room, rows, value, goal):
    """Make Newton steps on the intercept until its slope is at most `goal`; returns the loss."""
    image = rows.image
    for _ in range(_MOST_SETTLING):
        slope, curvature, before = total_of(rows.slope), total_of(rows.curvature), value
        if not (abs(slope) > goal and curvature > 0.0):
            break
        for i in range(image.shape[0]):
            image[i] = slope / curvature
        value, _ = go_along(loss, columns, room, rows, 0.0, value, slope / curvature, 0)
        if not value < before:
            break
    return value


@part
def multiply_columns(columns, room, rows, first, last):
    """Scale the columns of some members, and compute their products with earlier members and with each other."""
    matrix, scaled, roots, members = room.matrix, rows.scaled, rows.roots, room.members
    for a in range(first, last):
        values, column = columns.values[members[a]], scaled[a]
        mean = dot(values, rows.lagged) * rows.level[SHARE]
        for i in range(column.shape[0]):
            column[i] = roots[i] * (values[i] - mean)
    for start in range(first, last, _BLOCK):
        stop = start + _BLOCK if start + _BLOCK < last else last
        for b in range(stop):
            for a in range(start if start > b else b, stop):
                product = dot(scaled[a], scaled[b])
                matrix[a, b] = product
                matrix[b, a] = product
    for a in range(first, last):
        matrix[a, a] = larger(matrix[a, a], FLAT * columns.squares[members[a]])


@part
def refresh_model(columns, room, rows, count):
    """Update the model to the present curvatures."""
    roots, curvature = rows.roots, rows.curvature
    copy_to(curvature, rows.lagged)
    for i in range(roots.shape[0]):
        roots[i] = np.sqrt(curvature[i])
    rows.level[SHARE] = 1.0 / total_of(curvature) if columns.fit_intercept else 0.0
    multiply_columns(columns, room, rows, 0, count)


@part
def look_at_slopes(rows):
    """Return Σ θ²/w, and whether the curvatures of the model differ from those of the point."""
    slope, curvature, lagged, square, apart, total = (
        rows.slope,
        rows.curvature,
        rows.lagged,
        0.0,
        0.0,
        0.0,
    )
    for i in range(slope.shape[0]):
        if slope[i] != 0.0:
            square += slope[i] * slope[i] / curvature[i]
        apart += abs(curvature[i] - lagged[i])
        total += lagged[i]
    return square, apart > _CHANGED * total


#: Below this x, e^x is not a normal number, and e^−708 is used instead.
_LEAST = -708.0
#: If this is added to a number below 2⁵¹, the sum is rounded, and its last bits are those of an
#: integer.
_ROUNDER = 6755399441055744.0
#: 1/ln 2, and ln 2 in two parts, the first with zeros at its end.
_INVERSE, _HIGH, _LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
_BIAS, _MANTISSA = np.int64(1023), np.int64(52)


@inlined
def fading(x):
    """Return e^x for x ≤ 0: 2^k e^r with |r| ≤ ½ ln 2, e^r by its series."""
    x = _LEAST if x < _LEAST else x  # NaN stays
    rounded = x * _INVERSE + _ROUNDER
    k = rounded - _ROUNDER
    r = (x - k * _HIGH) - k * _LOW
    series = 1 / 479001600 + r * (1 / 6227020800)
    series = 1 / 3628800 + r * (1 / 39916800 + r * series)
    series = 1 / 40320 + r * (1 / 362880 + r * series)
    series = 1 / 720 + r * (1 / 5040 + r * series)
    series = 1 / 24 + r * (1 / 120 + r * series)
    series = 1 / 2 + r * (1 / 6 + r * series)
    power = np.int64((np.float64(rounded).view(np.int64) + _BIAS) << _MANTISSA).view(np.float64)
    return (1.0 + (r + r * r * series)) * power


@inlined
def log_one_plus(x):
    """Return ln(1 + x) for 0 ≤ x ≤ 1: twice the series of artanh at t = x/(2 + x) ≤ ⅓."""
    t = x / (2.0 + x)
    square = t * t
    series = 1 / 33 + square * (1 / 35)
    series = 1 / 29 + square * (1 / 31 + square * series)
    series = 1 / 25 + square * (1 / 27 + square * series)
    series = 1 / 21 + square * (1 / 23 + square * series)
    series = 1 / 17 + square * (1 / 19 + square * series)
    series = 1 / 13 + square * (1 / 15 + square * series)
    series = 1 / 9 + square * (1 / 11 + square * series)
    series = 1 / 5 + square * (1 / 7 + square * series)
    series = 1 / 3 + square * series
    return 2.0 * (t + t * square * series)
