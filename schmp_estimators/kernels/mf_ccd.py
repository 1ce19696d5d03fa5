"""Coordinate descent for matrix factorisation, eight components at a time, from sums that may be divided.

Components are taken in *chunks* of `LANES`.  One round improves one chunk, of all users and then of all items, with
everything else fixed.  For a user, with r the residual that leaves the chunk out and h the chunk of the items it rated,

    products = Σ h hᵀ      numerators = Σ r h      minimise  wᵀ(products + λ)w − 2 wᵀnumerators   by coordinate descent

and the same for an item, where the sums run over users, so that shards of users each give a partial sum.  Chunks of
one component would be CCD++ (Yu et al., ICDM 2012), all components in one chunk the sweep of a row of Lee et al.
(NIPS 2014, supplement §2).  Chunks of eight need K / 8 rounds per epoch, fall a little further per epoch than
CCD++, and an epoch takes a quarter of its time.

The biases are a chunk too: a user's row is (b_u, 1, 0, …), an item's is (1, b_i, 0, …), and each side moves its own.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.lanes import LANES, PRODUCTS, add_products, add_scaled, row_dot

#: Registers per row of sums: the products, then the numerators.
SUMS = PRODUCTS + 1
#: Passes over the coordinates of a chunk when it is solved; more did not lower the objective after an epoch by 1e-5.
PASSES = 2

_ZERO, _ONE = np.float32(0), np.float32(1)


class UserRatings(NamedTuple):
    """The ratings of a shard of users, sorted by user, then by item."""

    indptr: np.ndarray  #: (n_users + 1,) int64, offsets of the users
    items: np.ndarray  #: (n_ratings,) int32
    values: np.ndarray  #: (n_ratings,) float32


@inlined
def _solve_row(sums, at, row, penalty, first, stop, positive, out):
    """Improve coordinates ``first … stop - 1`` of ``out[row]`` on the sums that start at register `at`; mutates `out`.

    Coordinate descent: the objective never rises, whatever the sums are.
    """
    chunk = out[row]
    for _ in range(PASSES):
        for k in range(first, stop):
            numerator = sums[at + PRODUCTS, k]
            for distance in range(1, PRODUCTS - 1):
                numerator -= sums[at + distance, k] * chunk[(k + distance) % LANES]
                before = (k + LANES - distance) % LANES
                numerator -= sums[at + distance, before] * chunk[before]
            numerator -= sums[at + PRODUCTS - 1, k] * chunk[(k + PRODUCTS - 1) % LANES]
            denominator = sums[at, k] + penalty
            value = numerator / denominator if denominator > _ZERO else _ZERO
            chunk[k] = max(_ZERO, value) if positive else value


@kernel
def solve_rows(sums, penalties, first, stop, positive, rows):
    """Improve a chunk of every row from its sums.

    Parameters
    ----------
    sums : (n * SUMS, LANES) float32
        For each row the products, as `add_products` lays them out, then the numerators.
    penalties : (n,) float32
    first, stop : int
        Coordinates that may move.
    positive : bool
        Keep them at or above zero.
    rows : (n, LANES) float32
        The chunk before; mutated.
    """
    for row in range(rows.shape[0]):
        _solve_row(sums, row * SUMS, row, penalties[row], first, stop, positive, rows)


@kernel
def improve_users(ratings, residuals, user_rows, item_rows, item_chunk, penalties, first, stop, positive, chunk, sums):
    """One round for a shard of users: improve their chunk, and sum up what the items need for theirs.

    Parameters
    ----------
    ratings : UserRatings
    residuals : (n_ratings,) float32
        Residuals without the chunk of the last round, on return without the chunk of this one; mutated.
    user_rows, item_rows : (n_users or n_items, 2 * LANES) float32
        Last round's chunk, negated on one side, beside this round's before it is improved: one dot product puts the
        one back and takes the other out.
    item_chunk : (n_items, LANES) float32
        This round's chunk of the items.
    penalties : (n_users,) float32
    first, stop, positive
        As in `solve_rows`.
    chunk : (n_users, LANES) float32
        This round's chunk of the users; mutated.
    sums : (n_items * SUMS, LANES) float32
        Sums over this shard are added; mutated.

    Notes
    -----
    About 14 instructions of 8 lanes per rating and round.  Lee et al., NIPS 2014, supplement §2.
    """
    own = np.empty((SUMS, LANES), np.float32)
    products = np.empty((PRODUCTS, LANES), np.float32)
    for user in range(chunk.shape[0]):
        own[:] = _ZERO
        products[:] = _ZERO
        for position in range(ratings.indptr[user], ratings.indptr[user + 1]):
            item = ratings.items[position]
            residual = residuals[position] + row_dot(user_rows, user, item_rows, item)
            residuals[position] = residual
            add_products(own, 0, item_chunk, item)
            add_scaled(own, PRODUCTS, item_chunk, item, residual)
        _solve_row(own, 0, user, penalties[user], first, stop, positive, chunk)
        add_products(products, 0, chunk, user)
        for position in range(ratings.indptr[user], ratings.indptr[user + 1]):
            at = np.intp(ratings.items[position]) * SUMS
            for register in range(PRODUCTS):
                add_scaled(sums, at + register, products, register, _ONE)
            add_scaled(sums, at + PRODUCTS, chunk, user, residuals[position])


@kernel
def close_round(ratings, residuals, user_chunk, item_chunk):
    """Put the last chunk back into `residuals` (mutated) and return the sum of their squares, in float64."""
    total = 0.0
    for user in range(user_chunk.shape[0]):
        for position in range(ratings.indptr[user], ratings.indptr[user + 1]):
            residual = residuals[position] - row_dot(user_chunk, user, item_chunk, ratings.items[position])
            residuals[position] = residual
            total += residual * residual
    return total
