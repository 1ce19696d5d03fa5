"""Coordinate descent on a Gram matrix: the candidate set solved without touching the data.

Notation: G = X̃ᵀWX̃ of the candidates, q = X̃ᵀWr their gradient, coefficients β, penalty λ.  A step on β_j moves
q by −G_jΔ.  G may be float32: it only steers, since q and the certificate are refreshed from the data in float64.
"""

import numpy as np

from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.lanes import dot
from schmp_estimators.kernels.regression_dense import soft_threshold
from schmp_estimators.kernels.regression_sparse import anderson_weights


@kernel
def gram_take(gram, chosen):
    """Return the symmetric part gram[chosen, chosen] as a contiguous copy; `chosen` (k,) int64 ascending is fastest."""
    count = chosen.shape[0]
    taken = np.empty((count, count), gram.dtype)
    for row in range(count):
        source = gram[chosen[row]]
        for column in range(count):
            taken[row, column] = source[chosen[column]]
    return taken


@inlined
def _descend(gram, gradient, coef, penalty, positive):
    """Make one cyclic pass; only a coordinate that moves costs a row of G."""
    for j in range(coef.shape[0]):
        norm = gram[j, j]
        if norm <= 0.0:
            continue
        old = coef[j]
        new = soft_threshold(gradient[j] + norm * old, penalty, positive)
        if new == 0.0 and old == 0.0:
            continue
        new /= norm
        change = new - old
        if change != 0.0:
            coef[j] = new
            row = gram[j]
            for k in range(gradient.shape[0]):
                gradient[k] -= change * row[k]


@kernel
def gram_passes(gram, gradient, coef, penalty, positive, passes, memory):
    """Run coordinate descent on −qᵀΔ + ½ΔᵀGΔ + λ‖β‖₁ with Anderson extrapolation; mutates `gradient` q and `coef` β.

    `gram` (k, k) float64 or float32, `gradient`, `coef` (k,) float64.  q is linear in β, so the extrapolated q costs
    nothing; a point is kept only if the objective falls.  k multiply–adds per coordinate that moves.
    Bertrand and Massias, "Anderson acceleration of coordinate descent", AISTATS 2021, section 3.
    """
    count = coef.shape[0]
    coefs = np.empty((memory + 1, count))
    gradients = np.empty((memory + 1, count))
    changes = np.empty((memory, count))
    held = 0
    for _ in range(passes):
        coefs[held] = coef
        gradients[held] = gradient
        held += 1
        if held == memory + 1:
            held = 0
            for k in range(memory):
                changes[k] = coefs[k + 1] - coefs[k]
            mixture, exists = anderson_weights(changes)
            if exists:
                new_coef = np.zeros(count)
                new_gradient = np.zeros(count)
                for k in range(memory):
                    new_coef += mixture[k] * coefs[k + 1]
                    new_gradient += mixture[k] * gradients[k + 1]
                feasible = not positive or new_coef.min() >= 0.0
                moved = new_coef - coef
                slope = dot(moved, gradient + new_gradient)
                if feasible and penalty * (np.abs(new_coef).sum() - np.abs(coef).sum()) < 0.5 * slope:
                    coef[:] = new_coef
                    gradient[:] = new_gradient
        _descend(gram, gradient, coef, penalty, positive)
