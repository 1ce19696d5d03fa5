"""One pass over ratings: their numbers, sums and hashes, all of them exact, so that parts can be added in any order.

Ratings are rounded to steps, of at most `STEP_BITS` bits.  Each step is split in two parts, and the lower one has
`LOW_BITS` bits.  After `AT_ONCE` ratings sums are carried, so that 64 bits hold them.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.rng import GAMMA, mix

STEP_BITS, LOW_BITS, AT_ONCE = 30, 15, 1 << 17
#: Sums are carried in units of 2**CARRIED.
CARRIED = 32
_LOW_MASK, _CARRIED_MASK = (1 << LOW_BITS) - 1, (1 << CARRIED) - 1
_HALF = np.uint64(32)


class Tally(NamedTuple):
    """What is counted; rows of users come first, then those of items."""

    counts: (
        np.ndarray
    )  #: (2, n_users + n_items) int64, numbers of all ratings, and without held-out ones
    #: (n_users + n_items,) int64, sums of the steps; empty if not needed
    sums: np.ndarray
    #: (n_users + n_items,) float64, sums of the weights as float32; empty if there are none
    weights: np.ndarray
    #: (2,) uint64, sums of the hashes of all pairs, and of these times the bits of values and weights
    told: np.ndarray
    #: (2, 3, 5) int64, what is carried, and the rest, of the sums of 1 or of a weight's higher or lower part, times 1,
    #: the step, and the products of its parts: higher squared, higher times lower, lower squared
    moments: np.ndarray


@inlined
def _bits(value):
    """Return the bits of a value as float32, and above them those of its weight."""
    low = np.uint64(np.float32(value.real).view(np.uint32))
    return low | np.uint64(np.float32(value.imag).view(np.uint32)) << _HALF


@inlined
def _carry(moments):
    for part in range(moments.shape[1]):
        for k in range(moments.shape[2]):
            moments[0, part, k] += moments[1, part, k] >> CARRIED
            moments[1, part, k] &= _CARRIED_MASK


@inlined
def _add_step(moments, part, weight, step):
    high, low = step >> LOW_BITS, step & _LOW_MASK
    moments[1, part, 0] += weight
    moments[1, part, 1] += weight * step
    moments[1, part, 2] += weight * high * high
    moments[1, part, 3] += weight * high * low
    moments[1, part, 4] += weight * low * low


@kernel
def count_rows(piece, n_users, hold_out, grid, tally):
    """Add the ratings of a `UserRows` to a `Tally`, which is mutated; 8 ns per rating.

    `hold_out` and `grid` are those of `mf.data`.  Only counts of all ratings and hashes include held-out ones.
    """
    users, indptr, items, values = piece
    counts, sums, weights, told, moments = tally
    pairs, both = np.uint64(0), np.uint64(0)
    left = AT_ONCE
    for row in range(users.size):
        user = users[row]
        user_key = mix(GAMMA * np.uint64(user + 1))
        held_key = mix(hold_out.key + GAMMA * np.uint64(user + 1))
        for position in range(indptr[row], indptr[row + 1]):
            value = values[position]
            item = n_users + items[position]
            item_key = GAMMA * np.uint64(items[position] + 1)
            hashed = mix(user_key + item_key)
            pairs += hashed
            both += hashed * _bits(value)
            counts[0, user] += 1
            counts[0, item] += 1
            if mix(held_key + item_key) < hold_out.threshold:
                continue
            counts[1, user] += 1
            counts[1, item] += 1
            step = np.int64(np.rint((value.real - grid.middle) * grid.inverse_step))
            if sums.size:
                sums[user] += step
                sums[item] += step
            _add_step(moments, 0, 1, step)
            if weights.size:
                weight = np.int64(np.rint(value.imag * grid.inverse_weight))
                _add_step(moments, 1, weight >> LOW_BITS, step)
                _add_step(moments, 2, weight & _LOW_MASK, step)
                weights[user] += np.float64(np.float32(value.imag))
                weights[item] += np.float64(np.float32(value.imag))
            left -= 1
            if not left:
                _carry(moments)
                left = AT_ONCE
    _carry(moments)
    told[0] += pairs
    told[1] += both
