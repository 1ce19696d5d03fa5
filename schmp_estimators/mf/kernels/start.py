"""First values of factors, addressed by what they belong to, and the error of given factors."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import row_dot
from schmp_estimators.core.rng import GAMMA, mix

_DRAWN_BITS = np.uint64(40)
_UNIT = np.float32(2.0**-23)
_ONE = np.float32(1)


@kernel
def draw_factors(ids, first, n_components, key, centre, spread, out):
    """Fill ``out[r, k]`` with ``centre + spread * u``, u uniform on [−1, 1), a hash of (key, ids[r], first + k) only.

    Parameters
    ----------
    ids : (n,) int64
        Numbers of the users or items in the whole data.
    first, n_components : int
        The first component, and the number of columns to fill.
    key : uint64
        From `rng.stream_key`.
    centre, spread : float32
    out : (n, width) float32
        Mutated.
    """
    for row in range(ids.size):
        row_key = mix(key + GAMMA * np.uint64(ids[row] + 1))
        for k in range(n_components):
            bits = mix(row_key + GAMMA * np.uint64(first + k + 1)) >> _DRAWN_BITS
            out[row, k] = centre + spread * (np.float32(bits) * _UNIT - _ONE)


@kernel
def draw_mask(users, items, key, threshold, out):
    """Set ``out[r]`` where a hash of (key, user, item) is below `threshold` (uint64); `out` is (n,) bool, mutated."""
    for position in range(out.size):
        user_key = mix(key + GAMMA * np.uint64(users[position] + 1))
        out[position] = mix(user_key + GAMMA * np.uint64(items[position] + 1)) < threshold


@kernel
def squared_error(ratings, user_factors, item_factors, user_bias, item_bias, mean):
    """Return the sum of squared errors over `ratings`, in float64.

    Parameters
    ----------
    ratings : RatingBlock
    user_factors, item_factors : (n_users or n_items, width) float32, padded to the same width
    user_bias, item_bias : (n_users,), (n_items,) float32
    mean : float32
    """
    total = 0.0
    for position in range(ratings.values.size):
        user, item = ratings.users[position], ratings.items[position]
        product = row_dot(user_factors, user, item_factors, item)
        error = np.float64(ratings.values[position] - mean - user_bias[user] - item_bias[item] - product)
        total += error * error
    return total
