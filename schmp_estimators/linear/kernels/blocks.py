"""Descent in blocks of coefficients on a second-order model: on its matrix or on columns.

Notation: slopes q, matrix H of the model, coefficients w, penalty P = Σ_b P_b(w_b).  Each step on a
block minimises an upper bound −q_bᵀΔ + ½L_b‖Δ‖² + P_b(w_b + Δ), where L_b is at least the largest
eigenvalue of the block of H.  A block of one coefficient is minimised exactly.

Of a penalty these kernels use ``block_prox(number, aims, norm, out)``, ``block_level(number,
slopes)``, ``block_value(number, coef)``, and for exact steps ``block_slope(number, coef, out)`` and
``block_curvature(number, coef, out)``.  A penalty on single coefficients has them from its `prox`,
its strengths and its ridges.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from schmp_estimators.core.jit import by_types, inlined, kernel, part
from schmp_estimators.linear.kernels.sparse import add_column
from schmp_estimators.linear.kernels.working_set import add
from schmp_estimators.linear.penalties.base import at, method_of, prox

#: Maximum number of steps on a block at a time, and the part of the gain of the first step at which
#: they end.
_STEPS, _ENOUGH = 20, 1e-3
#: Passes over nonzero blocks of compressed columns between two passes over all.
_BETWEEN = 4


def block_prox(penalty: Any, number: int, aims: Any, norm: float, out: Any) -> None:
    """Set `out` to the w that minimises ½·norm·‖w‖² − aimsᵀw + P_b(w); for kernels."""
    penalty.block_prox(number, aims, norm, out)


def block_level(penalty: Any, number: int, slopes: Any) -> float:
    """Return the smallest multiple of the penalty for which w_b = 0 is best; for kernels."""
    return float(penalty.block_level(number, slopes))


def block_value(penalty: Any, number: int, coef: Any) -> float:
    """Return P_b(w); for kernels."""
    return float(penalty.block_value(number, coef))


def block_slope(penalty: Any, number: int, coef: Any, out: Any) -> None:
    """Set `out` to the derivatives of P_b in coefficients that are not zero; for kernels."""
    penalty.block_slope(number, coef, out)


def block_curvature(penalty: Any, number: int, coef: Any, out: Any) -> None:
    """Add the second derivatives of P_b to `out`; for kernels."""
    penalty.block_curvature(number, coef, out)


def _prox_alone(penalty, number, aims, norm, out):
    out[0] = prox(penalty, number, aims[0], norm)


def _level_alone(penalty, number, slopes):
    size = slopes[0] if penalty.positive else abs(slopes[0])
    return max(size, 0.0) / at(penalty.strengths, number)


def _value_alone(penalty, number, coef):
    size = abs(coef[0])
    return at(penalty.strengths, number) * size + 0.5 * at(penalty.ridges, number) * size * size


def _slope_alone(penalty, number, coef, out):
    out[0] = at(penalty.strengths, number) * np.sign(coef[0]) + at(penalty.ridges, number) * coef[0]


def _curvature_alone(penalty, number, coef, out):
    out[0, 0] += at(penalty.ridges, number)


def _chosen_by_type(function: Any, alone: Callable[..., Any]) -> None:
    """Let kernels call a penalty's own method, or the one for single coefficients."""

    def choose(penalty, *_):
        return method_of(function.__name__, penalty) or alone

    by_types(function, strict=False)(choose)


for _function, _alone in (
    (block_prox, _prox_alone),
    (block_level, _level_alone),
    (block_value, _value_alone),
    (block_slope, _slope_alone),
    (block_curvature, _curvature_alone),
):
    _chosen_by_type(_function, _alone)


@kernel
def block_levels(penalty, slopes, starts, numbers, out):
    """Set out[b] = `block_level` of the slopes (m,) of each block."""
    for b in range(numbers.shape[0]):
        out[b] = block_level(penalty, numbers[b], slopes[starts[b] : starts[b + 1]])


@kernel
def blocks_value(penalty, coef, starts, numbers):
    """Return Σ_b P_b(w_b)."""
    total = 0.0
    for b in range(numbers.shape[0]):
        total += block_value(penalty, numbers[b], coef[starts[b] : starts[b + 1]])
    return total


@kernel
def blocks_violation(penalty, slopes, coef, starts, numbers, bounds):
    """Return the violation of the optimality conditions, in units of the objective.

    It is Σ_b L_b(‖Δ_b‖‖w_b‖ + ½‖Δ_b‖²) for the steps Δ_b of the single blocks, and the penalty
    times what slopes exceed it by: L_b Δ_b is how far the slopes of a step are from those of the
    penalty.
    """
    count = coef.shape[0]
    aims, new, total, excess, cost = np.empty(count), np.empty(count), 0.0, 0.0, 0.0
    for b in range(numbers.shape[0]):
        start, stop, bound = starts[b], starts[b + 1], bounds[b]
        if not bound > 0.0:
            continue
        for a in range(start, stop):
            aims[a] = slopes[a] + bound * coef[a]
        block_prox(penalty, numbers[b], aims[start:stop], bound, new[start:stop])
        moved, size = 0.0, 0.0
        for a in range(start, stop):
            moved += (new[a] - coef[a]) ** 2
            size += coef[a] * coef[a]
            aims[a] = bound * (new[a] - coef[a])
        total += bound * (np.sqrt(moved * size) + 0.5 * moved)
        excess = max(excess, block_level(penalty, numbers[b], aims[start:stop]))
        cost += block_value(penalty, numbers[b], coef[start:stop])
    return total + excess * cost


@kernel
def blocks_curvature(penalty, coef, starts, numbers, units, matrix):
    """Set `units` (m,) to the slopes of the penalty in nonzero blocks; add its curvature."""
    for b in range(numbers.shape[0]):
        start, stop = starts[b], starts[b + 1]
        block, nonzero = coef[start:stop], False
        for a in range(start, stop):
            units[a] = 0.0
            nonzero = nonzero or coef[a] != 0.0
        if nonzero:
            block_slope(penalty, numbers[b], block, units[start:stop])
            block_curvature(penalty, numbers[b], block, matrix[start:stop, start:stop])


@inlined
def _settle(penalty, number, gram, slopes, coef, start, stop, bound, room):
    """Minimise over a block, into `room[0]`; returns the gain of the first step."""
    new, local, aims, step = room[0], room[1], room[2], room[3]
    width, first = stop - start, 0.0
    for t in range(width):
        new[t], local[t] = coef[start + t], slopes[start + t]
    for number_of_step in range(1 if width == 1 else _STEPS):
        for t in range(width):
            aims[t] = local[t] + bound * new[t]
            step[t] = new[t]
        block_prox(penalty, number, aims[:width], bound, new[:width])
        moved = 0.0
        for t in range(width):
            step[t] = new[t] - step[t]
            moved += step[t] * step[t]
        gain = 0.5 * bound * moved
        if number_of_step == 0:
            first = gain
        if not gain > _ENOUGH * first:
            break
        for t in range(width):
            if step[t] != 0.0 and width > 1:
                row = gram[start + t]
                for u in range(width):
                    local[u] -= step[t] * row[start + u]
    return first


@kernel
def descend_blocks(penalty, gram, slopes, coef, starts, numbers, bounds, passes, part_of_first):
    """Make passes over all blocks to lower −qᵀΔ + ½ΔᵀHΔ + P(w + Δ); returns the number of passes.

    `gram` H (m, m), `slopes` q and `coef` w (m,), all float64; the last two are updated.
    ``starts[b]`` is the position of block b, ``numbers[b]`` its number in the penalty, and
    ``bounds[b]`` L_b.  Passes end when one gains at most `part_of_first` times the gain of the
    first.  Blocks of zero curvature do not change.  A coefficient that changes takes m
    multiply–adds.
    """
    count, first, widest = coef.shape[0], 0.0, 0
    for b in range(numbers.shape[0]):
        widest = max(widest, starts[b + 1] - starts[b])
    room = np.empty((4, widest))
    for number in range(passes):
        done = 0.0
        for b in range(numbers.shape[0]):
            start, stop = starts[b], starts[b + 1]
            if not bounds[b] > 0.0:
                continue
            gain = _settle(penalty, numbers[b], gram, slopes, coef, start, stop, bounds[b], room)
            if not gain > 0.0:
                continue
            done += gain
            for t in range(stop - start):
                change = room[0, t] - coef[start + t]
                coef[start + t] = room[0, t]
                if change != 0.0:
                    add(-change, gram[start + t], slopes, 0, count)
        first = done if number == 0 else first
        if not done > part_of_first * first:
            return number + 1
    return passes


# -- on compressed columns -------------------------------------------------------------------------


@part
def _slope_of(columns, column, weights, image, mean):
    """Return Σ a x (z − t) of one column, in the rows where it is not zero."""
    values, rows, starts = columns
    total = 0.0
    for index in range(np.uint64(starts[column]), np.uint64(starts[column + 1])):
        row = np.uint64(rows[index])
        total += values[index] * weights[row] * (image[row] - mean[row])
    return total


@part
def _move(columns, column, change, image, shares, mean, n_outputs):
    """Add change·x to the image of an output, and to the mean of all outputs."""
    values, rows, starts = columns
    add_column(values, rows, starts[column], starts[column + 1], change, image)
    if n_outputs > 1:
        for index in range(np.uint64(starts[column]), np.uint64(starts[column + 1])):
            row = np.uint64(rows[index])
            mean[row] += change * values[index] * shares[row]


@kernel
def column_bounds(columns, members, outputs, starts, weights, shares, bounds):
    """Set bounds[b] = L_b: exact for one coefficient, else the largest sum of a row of |H_b|."""
    n_outputs, n_rows = weights.shape
    values, rows, ends = columns
    dense = np.zeros(n_rows)
    for b in range(bounds.shape[0]):
        start, stop = starts[b], starts[b + 1]
        bounds[b] = 0.0
        for a in range(start, stop):
            column, output, own = members[a], outputs[a], 0.0
            for index in range(ends[column], ends[column + 1]):
                row = rows[index]
                share = shares[output, row] if n_outputs > 1 and stop == start + 1 else 0.0
                dense[row] = values[index] * weights[output, row]
                own += dense[row] * values[index] * (1.0 - share)
            for other in range(start, stop):
                if other != a and outputs[other] == output:
                    product = 0.0
                    for index in range(ends[members[other]], ends[members[other] + 1]):
                        product += values[index] * dense[rows[index]]
                    own += abs(product)
            for index in range(ends[column], ends[column + 1]):
                dense[rows[index]] = 0.0
            bounds[b] = max(bounds[b], own)


@part
def _settle_levels(extra, level_slopes, levels, weights, shares, image, mean):
    """Make a pass over F; returns the gain."""
    n_outputs, n_rows = weights.shape
    done = 0.0
    for k in range(n_outputs):
        for f in range(extra.shape[0]):
            slope, norm = level_slopes[k, f], 0.0
            for i in range(n_rows):
                weighed = weights[k, i] * extra[f, i]
                share = shares[k, i] if n_outputs > 1 else 0.0
                slope -= weighed * (image[k, i] - mean[i])
                norm += weighed * extra[f, i] * (1.0 - share)
            change = slope / norm if norm > 0.0 else 0.0
            levels[k, f] += change
            done += 0.5 * slope * change
            for i in range(n_rows):
                moved = change * extra[f, i]
                image[k, i] += moved
                if n_outputs > 1:
                    mean[i] += moved * shares[k, i]
    return done


@kernel
def descend_on_columns(
    penalty, columns, members, outputs, starts, numbers, bounds, slopes, coef,
    extra, level_slopes, levels, weights, shares, image, mean, passes, part_of_first,
):  # fmt: skip
    """Make passes over blocks of columns, and over F; returns the number of visits.

    The curvature of row i is diag(a_i) − a_i p_iᵀ over K outputs, with a `weights` (K, n) and p
    `shares` (K, n), or (0, n) for one output.  Coefficient a is of column ``members[a]`` and output
    ``outputs[a]``; `extra` (f, n) has the columns of F, which have no penalty, and coefficients
    `levels` (K, f).  `slopes` (m,) and `level_slopes` (K, f) are those at the start.  `image` z (K,
    n), zero at the start, becomes the change of decision values, `mean` (n,) Σ_k p_k z_k.  Only
    `coef`, `levels`, `image` and `mean` change.
    """
    n_outputs = weights.shape[0]
    widest, first, visited = 0, 0.0, 0
    for b in range(numbers.shape[0]):
        widest = max(widest, starts[b + 1] - starts[b])
    aims, new = np.empty(widest), np.empty(widest)
    for number in range(passes):
        whole, done = number % (_BETWEEN + 1) == 0, 0.0
        done += _settle_levels(extra, level_slopes, levels, weights, shares, image, mean)
        for b in range(numbers.shape[0]):
            start, stop, bound = starts[b], starts[b + 1], bounds[b]
            nonzero = whole
            for a in range(start, stop):
                nonzero = nonzero or coef[a] != 0.0
            if not bound > 0.0 or not nonzero:
                continue
            visited += stop - start
            for a in range(start, stop):
                k = outputs[a]
                slope = slopes[a] - _slope_of(columns, members[a], weights[k], image[k], mean)
                aims[a - start] = slope + bound * coef[a]
            width = stop - start
            block_prox(penalty, numbers[b], aims[:width], bound, new[:width])
            for a in range(start, stop):
                change = new[a - start] - coef[a]
                if change != 0.0:
                    k = outputs[a]
                    coef[a] = new[a - start]
                    done += 0.5 * bound * change * change
                    own = shares[k] if n_outputs > 1 else mean
                    _move(columns, members[a], change, image[k], own, mean, n_outputs)
        if whole:
            first = done if number == 0 else first
            if number > 0 and not done > part_of_first * first:
                break
    return visited
