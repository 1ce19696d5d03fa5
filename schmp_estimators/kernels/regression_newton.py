"""Conjugate gradients for the Newton step on the support of a sparse weighted least-squares problem.

Notation as in `regression_sparse`: X̃ = X − 1x̄ᵀ, row weights w (empty for w = 1), H = X̃ᵀWX̃.  Nearly dependent columns
are what makes H ill-conditioned: they are found by their correlations, as in the dependency check of STRADS, and their
blocks of H are solved exactly in the preconditioner.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.lanes import dot
from schmp_estimators.kernels.regression_dense import soft_threshold
from schmp_estimators.kernels.regression_sparse import _column_dot

_LEADERS = 6
_REMEMBERED = 8
_SWEEPS = 1000


class Blocks(NamedTuple):
    """Groups of dependent columns: group b is members[starts[b]:starts[b+1]]."""

    #: columns of all groups, one group after the other
    members: np.ndarray
    #: (n_groups + 1,) int64
    starts: np.ndarray
    #: their parts of H, one square after the other, each by rows
    grams: np.ndarray
    #: Cholesky factors of these, stored alike
    factors: np.ndarray


@inlined
def _root(parents, j):
    while parents[j] != j:
        j = parents[j]
    return j


@inlined
def _product(values, rows, weights, first, first_stop, second, second_stop):
    """Return Σ w·x·y of two columns, whose entries are values[first:first_stop] and values[second:second_stop]."""
    weighted = weights.shape[0] > 0
    total = 0.0
    while first < first_stop and second < second_stop:
        if rows[first] == rows[second]:
            part = values[first] * values[second]
            total += part * weights[rows[first]] if weighted else part
            first += 1
            second += 1
        elif rows[first] < rows[second]:
            first += 1
        else:
            second += 1
    return total


@inlined
def _largest_entries(values, rows, start, stop, leaders):
    """Write the rows of the largest entries of a column, the first of equals, to `leaders`; -1 where there is none."""
    for rank in range(leaders.shape[0]):
        best, place = 0.0, -1
        for index in range(start, stop):
            size = abs(values[index])
            if size > best:
                taken = False
                for before in range(rank):
                    taken |= leaders[before] == rows[index]
                if not taken:
                    best, place = size, index
        leaders[rank] = rows[place] if place >= 0 else -1


@kernel
def dependent_groups(columns, n_rows, quadratic, threshold, largest):
    """Return groups of at most `largest` columns that are linked by correlations above `threshold`.

    The result is their members, group after group, and where each group starts.  Columns are compared if three of their
    `_LEADERS` largest entries are in the same rows, and if not more than `_REMEMBERED` others came between: enough to
    find near-copies, in a time that does not depend on how full the rows are, about 1 µs per column.
    """
    values, rows, starts = columns
    norms, means, _, weights = quadratic
    total = weights.sum() if weights.shape[0] > 0 else float(n_rows)
    count = starts.shape[0] - 1
    remembered = np.full((n_rows, _REMEMBERED), -1, np.int32)
    filled = np.zeros(n_rows, np.int64)
    leaders = np.empty(_LEADERS, np.int64)
    votes = np.zeros(count, np.int64)
    voted = np.empty(_LEADERS * _REMEMBERED, np.int64)
    parents = np.arange(count)
    sizes = np.ones(count, np.int64)
    for j in range(count):
        _largest_entries(values, rows, starts[j], starts[j + 1], leaders)
        needed = min(3, starts[j + 1] - starts[j])
        n_voted = 0
        for i in leaders:
            if i < 0:
                break
            for k in remembered[i]:
                if k < 0:
                    break
                if votes[k] == 0:
                    voted[n_voted] = k
                    n_voted += 1
                votes[k] += 1
            remembered[i, filled[i] % _REMEMBERED] = j
            filled[i] += 1
        for k in voted[:n_voted]:
            if votes[k] >= needed:
                product = _product(values, rows, weights, starts[j], starts[j + 1], starts[k], starts[k + 1])
                covariance = product - total * means[j] * means[k]
                if covariance * covariance > threshold * threshold * norms[j] * norms[k]:
                    one, other = _root(parents, j), _root(parents, k)
                    if one != other and sizes[one] + sizes[other] <= largest:
                        parents[other] = one
                        sizes[one] += sizes[other]
            votes[k] = 0
    n_groups, n_members = 0, 0
    offsets = np.full(count, -1)
    for j in range(count):
        if parents[j] == j and sizes[j] > 1:
            n_groups += 1
    group_starts = np.zeros(n_groups + 1, np.int64)
    n_groups = 0
    for j in range(count):
        if parents[j] == j and sizes[j] > 1:
            offsets[j] = n_members
            n_members += sizes[j]
            n_groups += 1
            group_starts[n_groups] = n_members
    members = np.empty(n_members, np.int64)
    for j in range(count):
        root = _root(parents, j)
        if offsets[root] >= 0:
            members[offsets[root]] = j
            offsets[root] += 1
    return members, group_starts


@kernel
def group_grams(columns, quadratic, n_rows, members, group_starts):
    """Return the groups' parts of H, one square after the other."""
    values, rows, starts = columns
    norms, means, _, weights = quadratic
    weighted = weights.shape[0] > 0
    total = weights.sum() if weighted else float(n_rows)
    length = 0
    for b in range(group_starts.shape[0] - 1):
        length += (group_starts[b + 1] - group_starts[b]) ** 2
    grams = np.empty(length)
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        first, size = group_starts[b], group_starts[b + 1] - group_starts[b]
        square = grams[offset : offset + size * size].reshape((size, size))
        offset += size * size
        for left in range(size):
            j = members[first + left]
            square[left, left] = norms[j]
            for right in range(left):
                k = members[first + right]
                product = _product(values, rows, weights, starts[j], starts[j + 1], starts[k], starts[k + 1])
                square[left, right] = product - total * means[j] * means[k]
                square[right, left] = square[left, right]
    return grams


@kernel
def factorise_groups(grams, group_starts):
    """Return the Cholesky factors of the groups' squares, lower triangles, stored as `grams`.

    Diagonals are raised by 1e-9 of themselves, so that exactly dependent columns have a factor too.
    """
    factors = grams.copy()
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        size = group_starts[b + 1] - group_starts[b]
        square = factors[offset : offset + size * size].reshape((size, size))
        offset += size * size
        for left in range(size):
            norm = square[left, left]
            for right in range(left + 1):
                value = square[left, right]
                for inner in range(right):
                    value -= square[left, inner] * square[right, inner]
                if right < left:
                    square[left, right] = value / square[right, right]
                else:
                    square[left, left] = np.sqrt(max(value + 1e-9 * norm, 1e-10 * norm))
    return factors


@kernel
def group_pass(columns, quadratic, blocks, coef, residual, penalty, positive):
    """Minimise ½ Σ w r² + λ‖β‖₁ over each group in turn; `coef` (k,) and `residual` v (n,) are updated.

    Within a group coordinates descend on its part of H, at most `_SWEEPS` times, before the residual moves: near-copies
    of a column settle who of them stays, which takes coordinate descent on the residual hundreds of passes.
    """
    values, rows, starts = columns
    norms, means, sums, weights = quadratic
    members, group_starts, grams, _ = blocks
    weighted = weights.shape[0] > 0
    shift = 0.0
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        group = members[group_starts[b] : group_starts[b + 1]]
        size = group.shape[0]
        gradient, change = np.empty(size), np.zeros(size)
        for left in range(size):
            j = group[left]
            gradient[left] = _column_dot(values, rows, starts[j], starts[j + 1], residual) + shift * sums[j]
        for _ in range(_SWEEPS):
            moved = False
            for left in range(size):
                old = coef[group[left]] + change[left]
                norm = grams[offset + left * size + left]
                if norm <= 0.0:
                    continue
                new = soft_threshold(gradient[left] + norm * old, penalty, positive) / norm
                step = new - old
                if step != 0.0:
                    moved |= abs(step) > 1e-9 * abs(new)
                    change[left] = new - coef[group[left]]
                    for right in range(size):
                        gradient[right] -= step * grams[offset + left * size + right]
            if not moved:
                break
        offset += size * size
        for left in range(size):
            j, step = group[left], change[left]
            if step != 0.0:
                coef[j] += step
                shift += step * means[j]
                for index in range(starts[j], starts[j + 1]):
                    weight = weights[rows[index]] if weighted else 1.0
                    residual[rows[index]] -= step * values[index] * weight
    if shift != 0.0:
        for i in range(residual.shape[0]):
            residual[i] += shift * weights[i] if weighted else shift


@inlined
def _precondition(remaining, norms, blocks, free, scaled):
    """Set scaled = M⁻¹·remaining over the free columns; returns remaining·scaled."""
    members, group_starts, _, factors = blocks
    for t in range(remaining.shape[0]):
        scaled[t] = remaining[t] / norms[t] if free[t] else 0.0
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        first, size = group_starts[b], group_starts[b + 1] - group_starts[b]
        for left in range(size):
            value = remaining[members[first + left]] if free[members[first + left]] else 0.0
            for right in range(left):
                value -= factors[offset + left * size + right] * scaled[members[first + right]]
            scaled[members[first + left]] = value / factors[offset + left * size + left]
        for back in range(size):
            left = size - 1 - back
            value = scaled[members[first + left]]
            for below in range(left + 1, size):
                value -= factors[offset + below * size + left] * scaled[members[first + below]]
            scaled[members[first + left]] = value / factors[offset + left * size + left]
        for left in range(size):
            if not free[members[first + left]]:
                scaled[members[first + left]] = 0.0
        offset += size * size
    return dot(remaining, scaled)


@inlined
def _multiply(columns, means, factors, out):
    """Set out = X̃·factors."""
    values, rows, starts = columns
    out[:] = 0.0
    for j in range(factors.shape[0]):
        factor = factors[j]
        if factor != 0.0:
            for index in range(starts[j], starts[j + 1]):
                out[rows[index]] += factor * values[index]
    shift = dot(means, factors)
    if shift != 0.0:
        for i in range(out.shape[0]):
            out[i] -= shift


@kernel
def conjugate_gradient(columns, quadratic, blocks, free, gradient, max_steps, goal, step, moved):
    """Solve H·step = gradient over the free columns by preconditioned conjugate gradients from zero.

    `free` (k,) bool; `gradient` (k,); `step` (k,), zero where a column is not free, and `moved` = X̃·step (n,) are
    overwritten.  Stops when the preconditioned energy of what remains is at most `goal`; returns the number of steps.
    A step costs two products with the columns, 4 ns per non-zero.
    """
    values, rows, starts = columns
    norms, means, _, weights = quadratic
    weighted = weights.shape[0] > 0
    count, n_rows = norms.shape[0], moved.shape[0]
    remaining = np.empty(count)
    for t in range(count):
        remaining[t] = gradient[t] if free[t] else 0.0
    scaled = np.empty(count)
    image = np.empty(n_rows)
    step[:] = 0.0
    moved[:] = 0.0
    energy = _precondition(remaining, norms, blocks, free, scaled)
    direction = scaled.copy()
    steps = 0
    while steps < max_steps and energy > goal:
        _multiply(columns, means, direction, image)
        curvature = 0.0
        if weighted:
            for i in range(n_rows):
                curvature += image[i] * image[i] * weights[i]
        else:
            curvature = dot(image, image)
        if not curvature > 1e-300:
            break
        length = energy / curvature
        for i in range(n_rows):
            moved[i] += length * image[i]
            if weighted:
                image[i] *= weights[i]
        for t in range(count):
            if free[t]:
                step[t] += length * direction[t]
                # image is balanced where columns are centred, so that it need not be multiplied by centred columns
                remaining[t] -= length * _column_dot(values, rows, starts[t], starts[t + 1], image)
        new_energy = _precondition(remaining, norms, blocks, free, scaled)
        ratio = new_energy / energy
        energy = new_energy
        for t in range(count):
            direction[t] = scaled[t] + ratio * direction[t]
        steps += 1
    return steps
