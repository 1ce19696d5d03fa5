"""Coordinate descent on a Gram matrix: the problem on candidates, solved without access to X.

Notation: G = X̃ᵀWX̃ of the candidates, q = X̃ᵀWr their gradient, coefficients β, penalty P. A step
Δ on β_j changes q by −G_jΔ.
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.sparse import (
    add_multiple,
    allowed,
    anderson_weights,
    difference,
)
from schmp_estimators.linear.penalties.base import prox, value

_WIDTH = 16  # coordinates of a block
_SWEEPS = 3  # passes within a block


@kernel
def gram_take(gram, chosen):
    """Return a copy of gram[chosen, chosen]; `chosen` (k,) int64 is fastest in ascending order."""
    count = chosen.shape[0]
    taken = np.empty((count, count))
    for row in range(count):
        source = gram[chosen[row]]
        for column in range(count):
            taken[row, column] = source[chosen[column]]
    return taken


@kernel
def gram_combine(gram, chosen, factors, out):
    """Add Σ_t factors[t]·gram[chosen[t]] to `out` (k,)."""
    for position in range(chosen.shape[0]):
        row, factor = gram[chosen[position]], factors[position]
        for k in range(out.shape[0]):
            out[k] += factor * row[k]


@inlined
def _subtract_two(first, second, one, other, out):
    """Subtract one·first + other·second from `out`; two rows at a time halve the memory traffic of `out`."""
    for k in range(out.shape[0]):
        out[k] -= one * first[k] + other * second[k]


@inlined
def _subtract(row, factor, out):
    for k in range(out.shape[0]):
        out[k] -= factor * row[k]


@inlined
def _descend_in_block(block, gradient, coef, penalty, first):
    """Make `_SWEEPS` passes over the coordinates of the block that begins at `first`; returns whether any was tried."""
    tried = False
    for _ in range(_SWEEPS):
        for j in range(coef.shape[0]):
            norm = block[j, j]
            old = coef[j]
            new = prox(penalty, first + j, gradient[j] + norm * old, norm)
            if norm <= 0.0 or (new == 0.0 and old == 0.0):
                continue
            tried = True
            change = new - old
            coef[j] += change
            _subtract(block[j], change, gradient)
        if not tried:
            break
    return tried


@inlined
def _descend(gram, gradient, coef, penalty, block, changes, rows):
    """Make one cyclic pass over blocks of neighbouring columns; only a coordinate that changes needs a row of G.

    Neighbouring columns are often correlated.  `_SWEEPS` passes within a block, which stays in the
    first-level cache, cost little relative to the rows, and save half of the passes over all
    columns.
    """
    count = coef.shape[0]
    for start in range(0, count, _WIDTH):
        stop = min(start + _WIDTH, count)
        for j in range(start, stop):
            changes[j - start] = -coef[j]
            for k in range(start, stop):
                block[j - start, k - start] = gram[j, k]
        here = block[: stop - start, : stop - start]
        if not _descend_in_block(here, gradient[start:stop], coef[start:stop], penalty, start):
            continue
        moved = 0
        for j in range(start, stop):
            change = coef[j] + changes[j - start]
            if change != 0.0:
                changes[moved], rows[moved] = change, j
                moved += 1
        for first, last in ((0, start), (stop, count)):
            others = gradient[first:last]
            for t in range(0, moved - 1, 2):
                _subtract_two(
                    gram[rows[t], first:last],
                    gram[rows[t + 1], first:last],
                    changes[t],
                    changes[t + 1],
                    others,
                )
            if moved % 2:
                _subtract(gram[rows[moved - 1], first:last], changes[moved - 1], others)


@kernel
def gram_passes(gram, gradient, coef, penalty, positive, passes, memory):
    """Run block coordinate descent on −qᵀΔ + ½ΔᵀGΔ + P(β) with Anderson extrapolation; changes `gradient` and `coef`.

    `gram` (k, k), `gradient` q, `coef` β (k,), all float64. q is linear in β, so the extrapolated q
    costs nothing; a point is kept only if the objective falls.  A coordinate that changes takes k
    multiply–adds.  Bertrand and Massias, "Anderson acceleration of coordinate descent", AISTATS
    2021, section 3.
    """
    count = coef.shape[0]
    coefs = np.empty((memory + 1, count))
    gradients = np.empty((memory + 1, count))
    changes = np.empty((memory, count))
    block, moves, rows = np.empty((_WIDTH, _WIDTH)), np.empty(_WIDTH), np.empty(_WIDTH, np.int64)
    held = 0
    for _ in range(passes):
        copy_to(coef, coefs[held])
        copy_to(gradient, gradients[held])
        held += 1
        if held == memory + 1:
            held = 0
            for k in range(memory):
                difference(coefs[k + 1], coefs[k], changes[k])
            mixture, exists = anderson_weights(changes)
            if exists:
                new_coef = np.zeros(count)
                new_gradient = np.zeros(count)
                for k in range(memory):
                    add_multiple(mixture[k], coefs[k + 1], new_coef)
                    add_multiple(mixture[k], gradients[k + 1], new_gradient)
                moved = new_coef - coef
                slope = dot(moved, gradient + new_gradient)
                if (
                    allowed(positive, new_coef)
                    and value(penalty, new_coef) - value(penalty, coef) < 0.5 * slope
                ):
                    copy_to(new_coef, coef)
                    copy_to(new_gradient, gradient)
        _descend(gram, gradient, coef, penalty, block, moves, rows)
