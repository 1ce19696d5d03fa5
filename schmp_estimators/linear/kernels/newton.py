"""The Newton step on the support of a sparse weighted least-squares problem, by conjugate gradients.

Notation as in `linear.kernels.sparse`: X̃ = X − 1x̄ᵀ, row weights w, H = X̃ᵀWX̃ plus the ridges on
its diagonal.  Nearly dependent columns make H ill-conditioned.  They are found by their
correlations, and the preconditioner solves their blocks of H exactly.  STRADS drops candidates that
depend on each other (Lee et al., NIPS 2014, section 3.3); here they are kept, and solved together.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import inlined, kernel, maker
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.sparse import (
    add_column,
    add_weighted_column,
    column_dot,
    fold_shift,
)
from schmp_estimators.linear.penalties.base import prox


@inlined
def _precondition(remaining, diagonal, blocks, free, scaled):
    """Set scaled = M⁻¹·remaining over the free columns; returns remaining·scaled."""
    members, group_starts, _, factors = blocks
    for t in range(remaining.shape[0]):
        scaled[t] = remaining[t] / diagonal[t] if free[t] else 0.0
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
            add_column(values, rows, starts[j], starts[j + 1], factor, out)
    shift = dot(means, factors)
    if shift != 0.0:
        for i in range(out.shape[0]):
            out[i] -= shift


@kernel
def conjugate_gradient(columns, quadratic, blocks, free, gradient, max_steps, goal, step, moved):
    """Solve H·step = gradient over the free columns by preconditioned conjugate gradients from zero.

    `free` (k,) bool; `gradient` (k,); `step` (k,), zero where a column is not free, and `moved` =
    X̃·step (n,) are overwritten.  Stops when the preconditioned energy of the remaining gradient is
    at most `goal`; returns the number of steps.  A step costs two products with the columns, 4 ns
    per non-zero.
    """
    values, rows, starts = columns
    norms, means, _, weights, ridges = quadratic
    count, n_rows = norms.shape[0], moved.shape[0]
    remaining = np.empty(count)
    for t in range(count):
        remaining[t] = gradient[t] if free[t] else 0.0
    scaled = np.empty(count)
    image = np.empty(n_rows)
    diagonal = norms + ridges
    step[:] = 0.0
    moved[:] = 0.0
    energy = _precondition(remaining, diagonal, blocks, free, scaled)
    direction = scaled.copy()
    steps = 0
    while steps < max_steps and energy > goal:
        _multiply(columns, means, direction, image)
        curvature = dot(direction, ridges * direction)
        for i in range(n_rows):
            curvature += image[i] * image[i] * weights[i]
        if not curvature > 1e-300:
            break
        length = energy / curvature
        for i in range(n_rows):
            moved[i] += length * image[i]
            image[i] *= weights[i]
        for t in range(count):
            if free[t]:
                step[t] += length * direction[t]
                # image is balanced where columns are centred, so that it need not be multiplied by
                # centred columns
                along = column_dot(values, rows, starts[t], starts[t + 1], image)
                remaining[t] -= length * (along + ridges[t] * direction[t])
        new_energy = _precondition(remaining, diagonal, blocks, free, scaled)
        ratio = new_energy / energy
        energy = new_energy
        for t in range(count):
            direction[t] = scaled[t] + ratio * direction[t]
        steps += 1
    return steps


_LEADERS = 6
_REMEMBERED = 8
_SWEEPS = 1000


class Blocks(NamedTuple):
    """Groups of dependent columns: group b is members[starts[b]:starts[b+1]]."""

    #: columns of all groups, one group after the other
    members: np.ndarray
    #: (n_groups + 1,) int64
    starts: np.ndarray
    #: their blocks of H, one after the other, each by rows
    grams: np.ndarray
    #: Cholesky factors of these blocks plus the ridges, stored in the same way
    factors: np.ndarray


@inlined
def _root(parents, j):
    while parents[j] != j:
        j = parents[j]
    return j


@inlined
def _product(values, rows, weights, first, first_stop, second, second_stop):
    """Return Σ w·x·y of two columns, whose entries are values[first:first_stop] and values[second:second_stop]."""
    total = 0.0
    while first < first_stop and second < second_stop:
        if rows[first] == rows[second]:
            total += values[first] * values[second] * weights[rows[first]]
            first += 1
            second += 1
        elif rows[first] < rows[second]:
            first += 1
        else:
            second += 1
    return total


@inlined
def _largest_entries(values, rows, start, stop, leaders, heights):
    """Write the rows of the largest entries of a column to `leaders`, and -1 if there are too few."""
    leaders[:] = -1
    heights[:] = 0.0
    last = leaders.shape[0] - 1
    for index in range(start, stop):
        size = abs(values[index])
        if size > heights[last]:
            rank = last
            while rank > 0 and size > heights[rank - 1]:
                heights[rank], leaders[rank] = heights[rank - 1], leaders[rank - 1]
                rank -= 1
            heights[rank], leaders[rank] = size, rows[index]


@inlined
def _join(parents, sizes, one, other, largest):
    """Join the trees of two columns, unless the result would have more than `largest` columns."""
    one, other = _root(parents, one), _root(parents, other)
    if one != other and sizes[one] + sizes[other] <= largest:
        parents[other] = one
        sizes[one] += sizes[other]


@maker
def _members(parents, sizes):
    """Return the columns of trees with more than one column, tree after tree, and the start of each."""
    count = parents.shape[0]
    offsets = np.full(count, -1)
    starts = [0]
    for j in range(count):
        if parents[j] == j and sizes[j] > 1:
            offsets[j] = starts[-1]
            starts.append(starts[-1] + sizes[j])
    members = np.empty(starts[-1], np.int64)
    for j in range(count):
        root = _root(parents, j)
        if offsets[root] >= 0:
            members[offsets[root]] = j
            offsets[root] += 1
    return members, np.array(starts)


@inlined
def _vote(leaders, remembered, votes, voted):
    """Count in how many of the rows `leaders` each column is remembered; returns the number of counted columns."""
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
    return n_voted


@kernel
def dependent_groups(columns, quadratic, threshold, largest):
    """Return groups of at most `largest` columns that are linked by correlations above `threshold`.

    The result is their members, group after group, and the start of each group.  Columns are
    compared if three of their `_LEADERS` largest entries are in the same rows, with at most
    `_REMEMBERED` other columns between them.  This finds near-copies, and takes about 1 µs per
    column, however many entries rows have.
    """
    values, rows, starts = columns
    norms, means, _, weights, _ = quadratic
    total, n_rows = weights.sum(), weights.shape[0]
    count = starts.shape[0] - 1
    remembered = np.full((n_rows, _REMEMBERED), -1, np.int32)
    filled = np.zeros(n_rows, np.int64)
    leaders, heights = np.empty(_LEADERS, np.int64), np.empty(_LEADERS)
    votes = np.zeros(count, np.int8)  # so small that it stays in the cache
    voted = np.empty(_LEADERS * _REMEMBERED, np.int64)
    parents, sizes = np.arange(count), np.ones(count, np.int64)
    for j in range(count):
        _largest_entries(values, rows, starts[j], starts[j + 1], leaders, heights)
        n_voted = _vote(leaders, remembered, votes, voted)
        for k in voted[:n_voted]:
            if votes[k] >= min(3, starts[j + 1] - starts[j]):
                product = _product(
                    values, rows, weights, starts[j], starts[j + 1], starts[k], starts[k + 1]
                )
                covariance = product - total * means[j] * means[k]
                if covariance * covariance > threshold * threshold * norms[j] * norms[k]:
                    _join(parents, sizes, j, k, largest)
            votes[k] = 0
        for i in leaders:
            if i >= 0:
                remembered[i, filled[i] % _REMEMBERED] = j
                filled[i] += 1
    return _members(parents, sizes)


@kernel
def group_grams(columns, quadratic, members, group_starts):
    """Return the groups' blocks of H, one after the other."""
    values, rows, starts = columns
    norms, means, _, weights, _ = quadratic
    total, length = weights.sum(), 0
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
                product = _product(
                    values, rows, weights, starts[j], starts[j + 1], starts[k], starts[k + 1]
                )
                square[left, right] = product - total * means[j] * means[k]
                square[right, left] = square[left, right]
    return grams


@kernel
def factorise_groups(grams, group_starts, members, ridges):
    """Return the Cholesky factors of the groups' blocks, lower triangles, stored as `grams`.

    `ridges` (k,), by column, are added to the diagonals.  Diagonals are multiplied by 1 + 1e-9, so
    that exactly dependent columns have a factor, too.
    """
    factors = grams.copy()
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        size = group_starts[b + 1] - group_starts[b]
        square = factors[offset : offset + size * size].reshape((size, size))
        offset += size * size
        for left in range(size):
            square[left, left] += ridges[members[group_starts[b] + left]]
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


@inlined
def _descend_in_group(gram, gradient, coef, penalty, group):
    """Minimise over the columns `group`, whose block of H is `gram`; `gradient` and `coef` are updated."""
    for _ in range(_SWEEPS):
        moved = False
        for left in range(coef.shape[0]):
            norm, old = gram[left, left], coef[left]
            if norm <= 0.0:
                continue
            new = prox(penalty, group[left], gradient[left] + norm * old, norm)
            step = new - old
            if step != 0.0:
                moved |= abs(step) > 1e-9 * abs(new)
                coef[left] = new
                for right in range(coef.shape[0]):
                    gradient[right] -= step * gram[left, right]
        if not moved:
            break


@kernel
def group_pass(columns, quadratic, blocks, coef, residual, penalty):
    """Minimise ½ Σ w r² + P(β) over each group in turn; `coef` (k,) and `residual` v (n,) are updated.

    Within a group at most `_SWEEPS` passes are made on its block of H before the residual is
    updated.  This chooses among near-copies of a column, for which coordinate descent on the
    residual takes hundreds of passes.
    """
    values, rows, starts = columns
    _, means, sums, weights, _ = quadratic
    members, group_starts, grams, _ = blocks
    shift = 0.0
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        group = members[group_starts[b] : group_starts[b + 1]]
        size = group.shape[0]
        gradient, reached = np.empty(size), np.empty(size)
        for left in range(size):
            j = group[left]
            gradient[left] = (
                column_dot(values, rows, starts[j], starts[j + 1], residual) + shift * sums[j]
            )
            reached[left] = coef[j]
        gram = grams[offset : offset + size * size].reshape((size, size))
        offset += size * size
        _descend_in_group(gram, gradient, reached, penalty, group)
        for left in range(size):
            j = group[left]
            step = reached[left] - coef[j]
            coef[j] = reached[left]
            shift += step * means[j]
            add_weighted_column(values, rows, starts[j], starts[j + 1], -step, weights, residual)
    fold_shift(residual, shift, weights)
