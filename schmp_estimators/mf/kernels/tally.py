"""One pass over ratings: their numbers, sums and hashes.

All of them are exact, so that parts can be added in any order.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.rng import GAMMA, mix

#: Ratings and weights are rounded to steps: at most 2**STEP_BITS of them from the middle to either
#: end.
STEP_BITS = 30
#: A sum has two parts: multiples of 2**CARRIED, and the rest.
CARRIED = 32
_STEP_MASK, _REST = (1 << STEP_BITS) - 1, (1 << CARRIED) - 1
_HALF = np.uint64(32)


class Tally(NamedTuple):
    """What is counted; users come first, then items."""

    counts: (
        np.ndarray
    )  #: (2, n_users + n_items) int64, numbers of all ratings, and without held-out ones
    sums: np.ndarray  #: (n_users + n_items,) int64, sums of the steps; empty if not needed
    #: (n_users + n_items,) float64, sums of the weights as float32; empty if there are none
    weights: np.ndarray
    #: (2,) uint64, sums of the hashes of pairs, and of these times the bits of values and weights
    told: np.ndarray
    #: (2, 8) int64, both parts of the sums of 1, of the step, and of the higher and lower bits of
    #: its square; then the same with weights
    moments: np.ndarray


@inlined
def _bits(value):
    """Return the bits of a value as float32, and above them those of its weight."""
    low = np.uint64(np.float32(value.real).view(np.uint32))
    return low | np.uint64(np.float32(value.imag).view(np.uint32)) << _HALF


@inlined
def _add(sums, at, number):
    """Add a number of at most 62 bits."""
    rest = sums[1, at] + number
    sums[0, at] += rest >> CARRIED
    sums[1, at] = rest & _REST


@inlined
def _add_step(sums, at, weight, step):
    square = step * step
    _add(sums, at, weight)
    _add(sums, at + 1, weight * step)
    _add(sums, at + 2, weight * (square >> STEP_BITS))
    _add(sums, at + 3, weight * (square & _STEP_MASK))


@kernel
def count_rows(piece, n_users, hold_out, grid, tally):
    """Add the ratings of `UserRows` to a `Tally`, which is mutated; 10 ns per rating.

    `hold_out` and `grid` are those of `mf.data`.  Only counts of all ratings and hashes include
    held-out ones.
    """
    counts, sums, weights, told, moments = tally
    for row in range(piece.users.size):
        user = np.int64(piece.users[row])
        address = GAMMA * np.uint64(user + 1)
        user_key = mix(address)
        held_key = mix(hold_out.key + address)
        for position in range(piece.indptr[row], piece.indptr[row + 1]):
            value = piece.values[position]
            item = np.int64(n_users + piece.items[position])
            address = GAMMA * np.uint64(piece.items[position] + 1)
            pair = mix(user_key + address)
            told[0] += pair
            told[1] += pair * _bits(value)
            is_held = mix(held_key + address) < hold_out.threshold
            step = np.int64(np.rint((value.real - grid.middle) * grid.inverse_step))
            for side in (user, item):
                counts[0, side] += 1
                if is_held:
                    continue
                counts[1, side] += 1
                if sums.size:
                    sums[side] += step
                if weights.size:
                    weights[side] += np.float64(np.float32(value.imag))
            if is_held:
                continue
            _add_step(moments, 0, 1, step)
            if weights.size:
                weight = np.int64(np.rint(value.imag * grid.inverse_weight))
                _add_step(moments, 4, weight, step)
