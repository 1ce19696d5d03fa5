"""Descent on blocks of coefficients whose products are known: each is minimised exactly."""

import numpy as np

from schmp_estimators.core.jit import kernel, part
from schmp_estimators.linear.kernels.working_set import add

#: Newton steps on the length of a block, and its relative error at which they end.
_MOST_LENGTHS, _EXACT = 60, 1e-15


@part
def _length(aims, curvatures, strength, start, stop):
    """Return ‖w‖ of the minimiser of Σ ½a w² − c w + λ‖w‖, c being longer than λ > 0 and a > 0.

    With r = ‖w‖ each w is c r/(a r + λ), so that Σ c²/(a r + λ)² = 1.  The root of the reciprocal of its root is
    concave in r: Newton steps from zero never pass the solution.
    """
    length = 0.0
    for _ in range(_MOST_LENGTHS):
        square, slope = 0.0, 0.0
        for a in range(start, stop):
            below = curvatures[a] * length + strength
            part_of = (aims[a] / below) ** 2
            square += part_of
            slope += part_of * curvatures[a] / below
        root = np.sqrt(square)
        step = (root - 1.0) * square / slope
        length += step
        if not step > _EXACT * length:
            break
    return length


@part
def _minimise(aims, curvatures, strength, positive, start, stop):
    """Set the aims of a block to the coefficients that minimise it."""
    square = 0.0
    for a in range(start, stop):
        square += aims[a] * aims[a]
    if np.sqrt(square) <= strength or (positive and aims[start] < 0.0):
        for a in range(start, stop):
            aims[a] = 0.0
    elif stop == start + 1:
        aims[start] = (aims[start] - (strength if aims[start] > 0.0 else -strength)) / curvatures[start]
    else:
        length = _length(aims, curvatures, strength, start, stop)
        for a in range(start, stop):
            aims[a] *= length / (curvatures[a] * length + strength)


@kernel
def descend_blocks(gram, slopes, coef, starts, strengths, positive, passes, part_of_first):
    """Go through all blocks in turn to lower −qᵀΔ + ½ΔᵀHΔ + Σ_b λ_b‖w_b‖; returns how many passes were made.

    `gram` H (m, m), diagonal within a block, `slopes` q and `coef` w (m,), all float64, of which the last two are
    updated; ``starts[b]`` is where block b begins.  Passes end where one does less than `part_of_first` of what the
    first has done.  Blocks of zero curvature stay as they are.  m multiply–adds for each coefficient that moves.
    """
    count = coef.shape[0]
    aims, curvatures, first = np.empty(count), np.empty(count), 0.0
    for a in range(count):
        curvatures[a] = gram[a, a]
    for number in range(passes):
        done = 0.0
        for b in range(strengths.shape[0]):
            start, stop = starts[b], starts[b + 1]
            if not curvatures[start] > 0.0:
                continue
            for a in range(start, stop):
                aims[a] = slopes[a] + curvatures[a] * coef[a]
            _minimise(aims, curvatures, strengths[b], positive, start, stop)
            for a in range(start, stop):
                change = aims[a] - coef[a]
                if change != 0.0:
                    coef[a] = aims[a]
                    done += 0.5 * curvatures[a] * change * change
                    add(-change, gram[a], slopes, 0, count)
        first = done if number == 0 else first
        if not done > part_of_first * first:
            return number + 1
    return passes
