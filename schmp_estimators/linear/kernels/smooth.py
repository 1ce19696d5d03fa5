"""The rows of a smooth loss: its derivatives, steps along what is not penalised, and the quadratic model of a step.

Notation as in `kernels.smooth_path`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import by_types, copy_to, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.working_set import add, solve
from schmp_estimators.linear.penalties.base import method_of

#: Rows of a matrix that are multiplied together: so many stay in a cache.
_BLOCK = 8
#: Change of the curvatures, as a part of their sum, from which a step takes the present ones.
_CHANGED = 0.1
#: Newton steps on the directions that are not penalised, and halvings of a step.
_MOST_SETTLING, MOST_HALVINGS = 50, 30
#: Part of the diagonal of a matrix that is added to it, as rows of a direction may have next to no curvature, and part
#: of its length that a direction has apart from others, if it is more than rounding.
_LIFT, _APART = 1e-13, 1e-8
#: Part by which the objective may rise: that is rounding.
RISE = 1e-13
#: Part of the squared length of a column that weights leave at least.
_FLAT = 1e-12


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


class SmoothColumns(NamedTuple):
    """Columns at hand, and what belongs to rows, all arrays float64."""

    #: (p, n) X, and (k, n) Z
    values: np.ndarray
    free: np.ndarray
    #: (n,) y and s
    target: np.ndarray
    weights: np.ndarray
    #: (p,) f > 0, ρ ≥ 0, and Σ s x²
    factors: np.ndarray
    ridges: np.ndarray
    squares: np.ndarray


class RowRoom(NamedTuple):
    """Room for what belongs to rows."""

    #: (n,) u, s·ℓ, θ and w
    decision: np.ndarray
    values: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    #: (n,) weights of the quadratic model, and their roots
    lagged: np.ndarray
    roots: np.ndarray
    #: (n,) Xd + Zc of a step, and u before it
    image: np.ndarray
    kept: np.ndarray
    #: (m, n) √w⊙x less its projection, and (k, n) √w⊙Z, orthonormal
    scaled: np.ndarray
    frame: np.ndarray
    #: (k,) c, its change and its slope, and (k, k)
    level: np.ndarray
    moves: np.ndarray
    right: np.ndarray
    matrix: np.ndarray


@part
def derive(loss, columns, rows):
    """Set slopes and curvatures at the decision values; returns the loss."""
    total, decision = 0.0, rows.decision
    for i in range(decision.shape[0]):
        value, slope, curvature = row(loss, columns.target[i], decision[i])
        weight = columns.weights[i]
        rows.values[i], rows.slope[i], rows.curvature[i] = weight * value, weight * slope, weight * curvature
        total += rows.values[i]
    return total


@part
def rest_of(loss, columns, rows, scale):
    """Return Σ s(ℓ + ℓ* + κθu/s), which κ = 1 makes zero."""
    total = 0.0
    for i in range(rows.decision.shape[0]):
        weight, part_of_slope = columns.weights[i], scale * rows.slope[i]
        if weight > 0.0:
            dual = conjugate(loss, columns.target[i], part_of_slope / weight)
            total += rows.values[i] + weight * dual + part_of_slope * rows.decision[i]
    return total if total > 0.0 else 0.0


@part
def free_step(columns, rows, weights):
    """Set the moves along Z to those that the model with these weights has from the slopes in `right`."""
    free, matrix, moves = columns.free, rows.matrix, rows.moves
    count = free.shape[0]
    for a in range(count):
        moves[a] = rows.right[a]
        for b in range(a, count):
            total = 0.0
            for i in range(free.shape[1]):
                total += weights[i] * free[a, i] * free[b, i]
            matrix[a, b] = total
        matrix[a, a] += _LIFT * matrix[a, a]
    return solve(matrix, moves, count)


@part
def settle(loss, columns, rows, value, goal):
    """Make Newton steps along Z until its slopes are at most `goal`; returns the loss."""
    free, decision, kept = columns.free, rows.decision, rows.kept
    count = free.shape[0]
    for _ in range(_MOST_SETTLING):
        left = 0.0
        for a in range(count):
            rows.right[a] = dot(free[a], rows.slope)
            left = max(left, abs(rows.right[a]))
        if left <= goal or not free_step(columns, rows, rows.curvature):
            break
        copy_to(decision, kept)
        length, before = 1.0, value
        for _ in range(MOST_HALVINGS):
            for i in range(decision.shape[0]):
                decision[i] = kept[i]
            for a in range(count):
                add(length * rows.moves[a], free[a], decision, 0, decision.shape[0])
            value = derive(loss, columns, rows)
            if value <= before * (1.0 + RISE):
                break
            length *= 0.5
        for a in range(count):
            rows.level[a] += length * rows.moves[a]
        if not value < before:
            break
    return value


@part
def scale_column(columns, room, rows, a):
    """Set √w⊙x of member a less its projection."""
    values, scaled = columns.values[room.members[a]], rows.scaled[a]
    for i in range(values.shape[0]):
        scaled[i] = rows.roots[i] * values[i]
    for b in range(rows.frame.shape[0]):
        add(-dot(rows.frame[b], scaled), rows.frame[b], scaled, 0, scaled.shape[0])


@part
def multiply_columns(columns, room, rows, first, last):
    """Set the products of some members with those before them, and with each other."""
    matrix, scaled = room.matrix, rows.scaled
    for start in range(first, last, _BLOCK):
        stop = min(start + _BLOCK, last)
        for b in range(stop):
            for a in range(max(start, b), stop):
                product = dot(scaled[a], scaled[b])
                matrix[a, b] = product
                matrix[b, a] = product
    for a in range(first, last):
        matrix[a, a] = max(matrix[a, a], _FLAT * columns.squares[room.members[a]])


@part
def refresh_model(columns, room, rows, count):
    """Let the model have the present curvatures."""
    frame = rows.frame
    for i in range(rows.roots.shape[0]):
        rows.lagged[i] = rows.curvature[i]
        rows.roots[i] = np.sqrt(rows.curvature[i])
    for a in range(frame.shape[0]):
        for i in range(rows.roots.shape[0]):
            frame[a, i] = rows.roots[i] * columns.free[a, i]
        whole = np.sqrt(dot(frame[a], frame[a]))
        for _ in range(2):
            for b in range(a):
                add(-dot(frame[b], frame[a]), frame[b], frame[a], 0, rows.roots.shape[0])
        length = np.sqrt(dot(frame[a], frame[a]))
        for i in range(rows.roots.shape[0]):
            frame[a, i] = frame[a, i] / length if length > _APART * whole else 0.0
    for a in range(count):
        scale_column(columns, room, rows, a)
    multiply_columns(columns, room, rows, 0, count)


@part
def is_stale(rows):
    """Return whether the curvatures of the model are others than those of the point."""
    apart, total = 0.0, 0.0
    for i in range(rows.lagged.shape[0]):
        apart += abs(rows.curvature[i] - rows.lagged[i])
        total += rows.lagged[i]
    return apart > _CHANGED * total


@part
def slopes_square(rows):
    """Return Σ θ²/w."""
    total = 0.0
    for i in range(rows.slope.shape[0]):
        if rows.slope[i] != 0.0:
            total += rows.slope[i] * rows.slope[i] / rows.curvature[i]
    return total
