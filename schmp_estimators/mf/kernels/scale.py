"""Moments of ratings that are exact, so that they do not depend on the order of additions; and which are held out."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, mix

#: Ratings are rounded to whole multiples of a step: at most 2**STEP_BITS of them from the middle to either end.
STEP_BITS = 30
#: Weighted ratings whose sums 64 bits hold, as a power of two.
WEIGHED_AT_ONCE = 17
_LOW_BITS = 15
_MASK = (1 << _LOW_BITS) - 1


@kernel
def sum_steps(values, weights, middle, inverse_step):
    """Return exact sums over ``n = rint((value - middle) * inverse_step)``, each times its weight w.

    Parameters
    ----------
    values : (n,) float64
    weights : (n,) int64
        From 0 to 2**15; or nothing, where all are 1.
    middle, inverse_step : float
        Such that no n is beyond ±2**STEP_BITS.

    Returns
    -------
    tuple of int
        Σ w n; with n = a·2**15 + b, 0 ≤ b < 2**15: Σ w a², Σ w a·b, Σ w b².  None overflows for 2**32 ratings, or with
        weights for 2**`WEIGHED_AT_ONCE`.
    """
    total, high, mixed, low = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for position in range(values.size):
        steps = np.int64(np.rint((values[position] - middle) * inverse_step))
        weight = weights[position] if weights.size else 1
        a, b = steps >> _LOW_BITS, steps & _MASK
        total += weight * steps
        high += weight * (a * a)
        mixed += weight * (a * b)
        low += weight * (b * b)
    return total, high, mixed, low


@kernel
def sum_rows(ids, values, middle, inverse_step, n):
    """Return (n,) int64 the exact sums over the steps of the values of each id, as in `sum_steps`."""
    sums = np.zeros(n, np.int64)
    for position in range(ids.size):
        sums[ids[position]] += np.int64(np.rint((values[position] - middle) * inverse_step))
    return sums


def square_steps(high: int, mixed: int, low: int) -> int:
    """Return Σ w n², exactly, from what `sum_steps` has returned."""
    return (high << 2 * _LOW_BITS) + (mixed << _LOW_BITS + 1) + low


def sum_weighted_steps(values, weights, middle, inverse_step):
    """Return Σ w, Σ w n and Σ w n², exactly, for (n,) int64 weights from 0 to 2**STEP_BITS."""
    found = [int(weights.sum()), 0, 0]
    for start in range(0, values.size, 1 << WEIGHED_AT_ONCE):
        some = slice(start, start + (1 << WEIGHED_AT_ONCE))
        for bits, part in ((_LOW_BITS, weights[some] >> _LOW_BITS), (0, weights[some] & _MASK)):
            total, *squares = map(int, sum_steps(values[some], part, middle, inverse_step))
            found[1] += total << bits
            found[2] += square_steps(*squares) << bits
    return found


@kernel
def standardise(values, mean, unit, out):
    """Set `out` (float32, mutated) to ``(values - mean) / unit``, worked out in float64."""
    for position in range(values.size):
        out[position] = np.float32((values[position] - mean) / unit)


@kernel
def hash_range(users, items, key, threshold):
    """Describe the hashes of (key, user, item) of all ratings: those of `start.draw_mask`.

    Returns
    -------
    count : int
        How many are below `threshold`.
    least, greatest, total : uint64
        The total modulo 2**64, whatever the order of the ratings.
    """
    count, least, greatest, total = 0, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), np.uint64(0)
    for position in range(users.size):
        user_key = mix(key + GAMMA * np.uint64(users[position] + 1))
        found = mix(user_key + GAMMA * np.uint64(items[position] + 1))
        count += found < threshold
        least, greatest, total = min(least, found), max(greatest, found), total + found
    return count, least, greatest, total
