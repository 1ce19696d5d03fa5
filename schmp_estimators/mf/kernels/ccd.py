"""Coordinate descent for matrix factorisation, eight components at a time.

Shards compute parts of the sums that it needs.

Components are processed in *chunks* of `LANES`.  One round improves one chunk, of all users and
then of all items, with everything else fixed.  For a user, let r be the residuals without the
chunk, and h the chunks of the items it rated:

    products = Σ h hᵀ      numerators = Σ r h
    minimise  wᵀ(products + λ)w − 2 wᵀnumerators   by coordinate descent

For an item it is the same with sums over users, to which each shard of users gives a part.  Chunks
of one component would be CCD++ (Yu et al., ICDM 2012), and one chunk of all components the sweep of
a row of Lee et al. (NIPS 2014, supplement §2).  With chunks of eight an epoch has K / 8 rounds; the
objective falls a little further than with CCD++, and the epoch takes a quarter of the time.

The biases are a chunk too: a user's row is (b_u, 1, 0, …), an item's is (1, b_i, 0, …), and each
side changes its own.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import (
    LANES,
    ONE,
    PRODUCTS,
    ZERO,
    add_products,
    add_scaled,
    row_dot,
)
from schmp_estimators.mf.kernels.registers import (
    SUMS,
    TILE,
    copy_register,
    room_of_tile,
    solve_tile,
)


class UserRatings(NamedTuple):
    """The ratings of a shard of users, sorted by user, then by item."""

    indptr: np.ndarray  #: (n_users + 1,) int64, offsets of the users
    items: np.ndarray  #: (n_ratings,) integers
    values: np.ndarray  #: (n_ratings,) float32


@kernel
def solve_rows(sums, penalties, first, stop, positive, rows):
    """Improve a chunk of every row, given its sums.

    Parameters
    ----------
    sums : (n * SUMS, LANES) float32
        For each row the products, in the layout of `add_products`, then the numerators.
    penalties : (n,) float32
    first, stop : int
        Coordinates ``first … stop - 1`` may change.
    positive : bool
        Whether to keep them at or above zero.
    rows : (n, LANES) float32
        The chunk before; mutated.
    """
    room = room_of_tile()
    for start in range(0, rows.shape[0], TILE):
        size = min(TILE, rows.shape[0] - start)
        own = sums[start * SUMS : (start + size) * SUMS]
        solve_tile(own, start, size, penalties, first, stop, positive, rows, room)


@kernel
def improve_users(
    ratings, weights, residuals, before, now, items, penalties, pull, target, first, stop, positive,
    sums
):  # fmt: skip
    """Do one round for a shard of users.

    It improves their chunk, and computes the sums that the items need for theirs.

    Parameters
    ----------
    ratings : UserRatings
    weights : (n_ratings,) float32, or None
        Their weights; None if all are 1.
    residuals : (n_ratings,) float32
        Residuals without the chunk of the last round, on return without that of this round;
        mutated.
    before, now : (n_users, LANES) float32
        The users' chunk of the last round, and that of this round, which is mutated.
    items : (n_items, 2 * LANES) float32
        The items' chunk of the last round, negated, beside that of this round: one dot product
        corrects a residual for both.
    penalties : (n_users,) float32
    pull, target : (n_users, LANES) float32
        Influence of earlier ratings on the diagonal of the products and on the numerators; (0,
        LANES) for none.
    first, stop, positive
        As in `solve_rows`.
    sums : (n_items * SUMS, LANES) float32
        Overwritten with the sums over this shard.

    Notes
    -----
    About 14 instructions of 8 lanes per rating and round.  Lee et al., NIPS 2014, supplement §2.
    """
    room = room_of_tile()
    scaled = np.empty((1, LANES), np.float32)
    ends = np.empty((TILE, 2 * LANES), np.float32)
    own = np.empty((TILE * SUMS, LANES), np.float32)
    products = np.empty((PRODUCTS, LANES), np.float32)
    weight = ONE
    sums[:] = ZERO
    for start in range(0, now.shape[0], TILE):
        size = min(TILE, now.shape[0] - start)
        own[:] = ZERO
        for position in range(size):
            user = start + position
            copy_register(ends, 2 * position, before, user)
            copy_register(ends, 2 * position + 1, now, user)
            at = position * SUMS
            if pull.shape[0]:
                copy_register(own, at, pull, user)
                copy_register(own, at + PRODUCTS, target, user)
            for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
                item = np.intp(ratings.items[rating])
                residual = residuals[rating] + row_dot(ends, position, items, item)
                residuals[rating] = residual
                if weights is None:
                    add_products(own, at, items, 2 * item + 1)
                else:  # products of a row that is scaled by the root of the weight
                    weight = weights[rating]
                    scaled[:] = ZERO
                    add_scaled(scaled, 0, items, 2 * item + 1, np.sqrt(weight))
                    add_products(own, at, scaled, 0)
                add_scaled(own, at + PRODUCTS, items, 2 * item + 1, weight * residual)
        solve_tile(own, start, size, penalties, first, stop, positive, now, room)
        for user in range(start, start + size):
            products[:] = ZERO
            add_products(products, 0, now, user)
            for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
                at = np.intp(ratings.items[rating]) * SUMS
                if weights is not None:
                    weight = weights[rating]
                for register in range(PRODUCTS):
                    add_scaled(sums, at + register, products, register, weight)
                add_scaled(sums, at + PRODUCTS, now, user, weight * residuals[rating])


@kernel
def shift_residuals(ratings, residuals, before, now, items):
    """Update the residuals of held-out ratings as `improve_users` does those of the others."""
    ends = np.empty((1, 2 * LANES), np.float32)
    for rating in range(residuals.size):
        user = ratings.users[rating]
        copy_register(ends, 0, before, user)
        copy_register(ends, 1, now, user)
        residuals[rating] += row_dot(ends, 0, items, np.intp(ratings.items[rating]))


@kernel
def close_round(ratings, weights, residuals, user_chunk, item_chunk):
    """Include the last chunk in `residuals` again (mutated).

    The weighted sum of their squares is returned, in float64.
    """
    total = 0.0
    weight = ONE
    for user in range(user_chunk.shape[0]):
        for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
            residual = residuals[rating] - row_dot(
                user_chunk, user, item_chunk, np.intp(ratings.items[rating])
            )
            residuals[rating] = residual
            if weights is not None:
                weight = weights[rating]
            total += weight * (residual * residual)
    return total
