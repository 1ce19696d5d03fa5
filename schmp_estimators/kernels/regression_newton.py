"""Conjugate gradients for the Newton step on the support of a sparse weighted least-squares problem.

Notation as in `regression_sparse`: X̃ = X − 1x̄ᵀ, row weights w (empty for w = 1).
"""

import numpy as np

from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.lanes import dot
from schmp_estimators.kernels.regression_sparse import _column_dot


@inlined
def _multiply_centred(columns, means, chosen, factors, out):
    """Set out = X̃·factors over the chosen columns."""
    values, rows, starts = columns
    out[:] = 0.0
    shift = 0.0
    for position in range(chosen.shape[0]):
        j = chosen[position]
        factor = factors[position]
        shift += factor * means[j]
        for index in range(starts[j], starts[j + 1]):
            out[rows[index]] += factor * values[index]
    if shift != 0.0:
        for i in range(out.shape[0]):
            out[i] -= shift


@kernel
def conjugate_gradient(columns, quadratic, chosen, gradient, max_steps, tolerance, step, moved):
    """Solve X̃ᵀWX̃·step = gradient over the chosen columns by Jacobi-preconditioned conjugate gradients from zero.

    `chosen` (m,) int64, `gradient` (m,); `step` (m,) and `moved` = X̃·step (n,) are overwritten.  Stops when the
    preconditioned residual has fallen by the factor `tolerance`; returns the number of steps.  A step costs two
    products with the chosen columns.
    """
    values, rows, starts = columns
    norms, means, _, weights = quadratic
    weighted = weights.shape[0] > 0
    count = chosen.shape[0]
    remaining = gradient.copy()
    scaled = np.empty(count)
    direction = np.empty(count)
    image = np.empty(moved.shape[0])
    pulled = np.empty(moved.shape[0])
    step[:] = 0.0
    moved[:] = 0.0
    for t in range(count):
        scaled[t] = remaining[t] / norms[chosen[t]]
        direction[t] = scaled[t]
    energy = dot(remaining, scaled)
    goal = tolerance * tolerance * energy
    steps = 0
    while steps < max_steps and energy > goal:
        _multiply_centred(columns, means, chosen, direction, image)
        for i in range(image.shape[0]):
            pulled[i] = image[i] * weights[i] if weighted else image[i]
        curvature = dot(image, pulled)
        if not curvature > 1e-300:
            break
        length = energy / curvature
        for i in range(image.shape[0]):
            moved[i] += length * image[i]
        for t in range(count):
            j = chosen[t]
            step[t] += length * direction[t]
            remaining[t] -= length * _column_dot(values, rows, starts[j], starts[j + 1], pulled)
            scaled[t] = remaining[t] / norms[j]
        new_energy = dot(remaining, scaled)
        ratio = new_energy / energy
        energy = new_energy
        for t in range(count):
            direction[t] = scaled[t] + ratio * direction[t]
        steps += 1
    return steps
