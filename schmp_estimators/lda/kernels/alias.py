"""Alias tables: a draw from n weights in constant time (built as by Vose, IEEE Trans. Software Eng. 17(9), 1991)."""

import numpy as np

from schmp_estimators.core.jit import inlined, part


@part
def build_alias(weights, share, other, work):
    """Make the table of some weights, not all of them zero.

    Parameters
    ----------
    weights : (n,) float64
        At least 0.
    share : (n,) float64
        Mutated: which part of a slot is its own.
    other : (n,) int32
        Mutated: whose the rest of it is.
    work : (at least n,) int32
        Mutated: for use here only.

    Returns
    -------
    float
        The sum of the weights.

    Notes
    -----
    5 ns per weight.
    """
    n, total = len(weights), 0.0
    for i in range(n):
        total += weights[i]
    scale = n / total
    n_small, top = 0, n  # small ones from the left end of `work`, large ones from the right
    for i in range(n):
        share[i], other[i] = weights[i] * scale, i
        if share[i] < 1.0:
            work[n_small] = i
            n_small += 1
        else:
            top -= 1
            work[top] = i
    while n_small > 0 and top < n:
        n_small -= 1
        small, large = work[n_small], work[top]
        other[small] = large
        share[large] -= 1.0 - share[small]
        if share[large] < 1.0:
            top += 1
            work[n_small] = large
            n_small += 1
    for i in range(n_small):  # what rounding has left over
        share[work[i]] = 1.0
    return total


@inlined
def draw_alias(share, other, start, n, uniform):
    """Return a slot of the table of n weights that begins at `start`, counted from there, given a number in [0, 1)."""
    y = uniform * n
    slot = min(np.int64(y), n - 1)
    return slot if y - slot < share[np.uint64(start + slot)] else np.int64(other[np.uint64(start + slot)])
