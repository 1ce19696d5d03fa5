"""The Newton step on the support of a sparse weighted least-squares problem: conjugate gradients, or the whole matrix.

Notation as in `linear.kernels.sparse`: X̃ = X − 1x̄ᵀ, row weights w (empty for w = 1), H = X̃ᵀWX̃ plus the ridges on its
diagonal.  Nearly dependent columns are what makes H ill-conditioned: the preconditioner solves their blocks of H
exactly, see `linear.kernels.groups`.
"""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.sparse import add_column, column_dot


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

    `free` (k,) bool; `gradient` (k,); `step` (k,), zero where a column is not free, and `moved` = X̃·step (n,) are
    overwritten.  Stops when the preconditioned energy of what remains is at most `goal`; returns the number of steps.
    A step costs two products with the columns, 4 ns per non-zero.
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
                # image is balanced where columns are centred, so that it need not be multiplied by centred columns
                along = column_dot(values, rows, starts[t], starts[t + 1], image)
                remaining[t] -= length * (along + ridges[t] * direction[t])
        new_energy = _precondition(remaining, diagonal, blocks, free, scaled)
        ratio = new_energy / energy
        energy = new_energy
        for t in range(count):
            direction[t] = scaled[t] + ratio * direction[t]
        steps += 1
    return steps


@kernel
def weighted_gram(columns, quadratic, n_rows):
    """Return X̃ᵀWX̃ (k, k) of all columns, of which only the part right of the diagonal, and that itself, is written.

    The matrix grows row by row, each of which stays in the first-level cache: 1 ns for each pair of entries in a row.
    """
    values, rows, starts = columns
    norms, means, sums, weights, _ = quadratic
    count = norms.shape[0]
    row_starts = np.zeros(n_rows + 1, np.int64)
    for index in range(starts[0], starts[count]):
        row_starts[rows[index] + 1] += 1
    for i in range(n_rows):
        row_starts[i + 1] += row_starts[i]
    free = row_starts[:-1].copy()
    members, factors = np.empty(row_starts[n_rows], np.int32), np.empty(row_starts[n_rows])
    for j in range(count):
        for index in range(starts[j], starts[j + 1]):
            i = rows[index]
            members[free[i]], factors[free[i]] = j, values[index]
            free[i] += 1
    weighted = weights.shape[0] > 0
    first = row_starts[:-1].copy()
    gram = np.empty((count, count))
    for j in range(count):
        products = gram[j]
        products[j:] = 0.0
        for index in range(starts[j], starts[j + 1]):
            i = rows[index]
            factor = values[index] * weights[i] if weighted else values[index]
            for place in range(np.uint64(first[i]), np.uint64(row_starts[i + 1])):
                products[np.uint64(members[place])] += factor * factors[place]
            first[i] += 1
        for k in range(j, count):
            products[k] -= sums[j] * means[k]
        products[j] = norms[j]
    return gram
