"""Blocks of dependent columns where only products with H = X̃ᵀWX̃ are at hand: preconditioner and proximal step."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.linear.kernels.groups import _descend_in_group, _join, _members
from schmp_estimators.linear.kernels.newton import _precondition
from schmp_estimators.linear.penalties.base import prox


@kernel
def precondition(remaining, norms, blocks, free, scaled):
    """Set scaled = M⁻¹·remaining over the `free` (k,) columns, zero elsewhere; returns remaining·scaled.

    M is the diagonal `norms` of H, with the parts of H that belong to groups of dependent columns.
    """
    return _precondition(remaining, norms, blocks, free, scaled)


@kernel
def block_targets(gradient, norms, blocks, coef, penalty, targets):
    """Set `targets` (k,) to the coefficients that each column, or each group of columns, would have by itself.

    These minimise −q·δ + ½δᵀMδ + P(β + δ) with q = `gradient` (k,), β = `coef` (k,) and M as in `precondition`.
    """
    members, group_starts, grams, _ = blocks
    for j in range(coef.shape[0]):
        targets[j] = coef[j]
        if norms[j] > 0.0:
            targets[j] = prox(penalty, j, gradient[j] + norms[j] * coef[j], norms[j])
    offset = 0
    for b in range(group_starts.shape[0] - 1):
        group = members[group_starts[b] : group_starts[b + 1]]
        size = group.shape[0]
        slopes, reached = np.empty(size), np.empty(size)
        for left in range(size):
            slopes[left], reached[left] = gradient[group[left]], coef[group[left]]
        gram = grams[offset : offset + size * size].reshape((size, size))
        offset += size * size
        _descend_in_group(gram, slopes, reached, penalty, group)
        for left in range(size):
            targets[group[left]] = reached[left]


@kernel
def unite_groups(members, starts, count, largest):
    """Return groups, members and starts, of `count` columns that hold together what any of the given groups does.

    The given ones may overlap; columns are ascending in each group, and groups in their first columns.
    """
    parents, sizes = np.arange(count), np.ones(count, np.int64)
    for b in range(starts.shape[0] - 1):
        for index in range(starts[b], starts[b + 1] - 1):
            _join(parents, sizes, members[index], members[index + 1], largest)
    return _members(parents, sizes)


@kernel
def restrict_groups(blocks, place):
    """Return the blocks of those columns whose `place` (k,) is not negative, under that number, without factors."""
    members, starts, grams, _ = blocks
    new_members, new_grams = np.empty_like(members), np.empty_like(grams)
    new_starts = np.zeros(starts.shape[0], np.int64)
    n_groups, offset, length = 0, 0, 0
    for b in range(starts.shape[0] - 1):
        first, size = starts[b], starts[b + 1] - starts[b]
        begun = new_starts[n_groups]
        stop = begun
        for left in range(size):
            if place[members[first + left]] >= 0:
                new_members[stop] = place[members[first + left]]
                stop += 1
        if stop - begun > 1:
            for left in range(size):
                for right in range(size):
                    if place[members[first + left]] >= 0 and place[members[first + right]] >= 0:
                        new_grams[length] = grams[offset + left * size + right]
                        length += 1
            n_groups += 1
            new_starts[n_groups] = stop
        offset += size * size
    return new_members[: new_starts[n_groups]], new_starts[: n_groups + 1], new_grams[:length]


@kernel
def centre_groups(members, starts, norms, means, total, grams):
    """Make `grams`, Σ w·x·y of the columns of each group, those of centred columns, with `norms` on the diagonals."""
    offset = 0
    for b in range(starts.shape[0] - 1):
        first, size = starts[b], starts[b + 1] - starts[b]
        for left in range(size):
            for right in range(size):
                j, k = members[first + left], members[first + right]
                grams[offset + left * size + right] -= total * means[j] * means[k]
            grams[offset + left * size + left] = norms[members[first + left]]
        offset += size * size
