"""Storage order of ratings: which shard and block a rating is in, and when it is visited there.

Users and items are dealt to shards and blocks heaviest first, so that all of them hold nearly the same number of
ratings, and are renumbered in that order, so that factors are walked in storage order and the busiest rows share cache
lines.  Inside a block the ratings of `TILE` users take turns: consecutive steps then move different rows, so that the
processor overlaps them (91 against 47 million ratings per second at rank 40 without adaptive steps).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from schmp_estimators.kernels._jit import kernel
from schmp_estimators.kernels.mf_sgd import RatingBlock

#: Users whose ratings take turns; more than eight gain nothing.
TILE = 8


class Placement(NamedTuple):
    """Where every user (or item) is: the group that owns it and its row there."""

    group: np.ndarray  #: (n,) int32
    row: np.ndarray  #: (n,) int32
    members: tuple[np.ndarray, ...]  #: per group, int64 indices in the order of their rows


def deal(counts: np.ndarray, n_groups: int) -> Placement:
    """Deal rows with `counts` ratings each to `n_groups` groups, heaviest first, there and back like cards.

    Rows of equal weight keep their order: the placement is a function of `counts` and `n_groups` only.
    """
    order = np.argsort(-counts, kind="stable")
    turn = np.arange(counts.size) % (2 * n_groups)
    dealt_to = np.minimum(turn, 2 * n_groups - 1 - turn)
    members = tuple(order[dealt_to == group] for group in range(n_groups))
    group, row = np.empty(counts.size, np.int32), np.empty(counts.size, np.int32)
    for number, rows in enumerate(members):
        group[rows] = number
        row[rows] = np.arange(rows.size, dtype=np.int32)
    return Placement(group, row, members)


@kernel
def _count_cells(users, indptr, indices, block_of_item, n_blocks):
    """Return (n_blocks,) int64: ratings of `users` (rows of the CSR matrix) on each item block."""
    counts = np.zeros(n_blocks, np.int64)
    for user in users:
        for position in range(indptr[user], indptr[user + 1]):
            counts[block_of_item[indices[position]]] += 1
    return counts


@kernel
def _split_by_block(users, indptr, indices, data, block_of_item, row_of_item, starts, out):
    """Write the ratings of `users`, grouped by item block, to `out` (a RatingBlock); the order of users is kept."""
    free = starts.copy()
    for row in range(users.size):
        for position in range(indptr[users[row]], indptr[users[row] + 1]):
            item = indices[position]
            target = free[block_of_item[item]]
            free[block_of_item[item]] += 1
            out.users[target] = row
            out.items[target] = row_of_item[item]
            out.values[target] = data[position]


@kernel
def _take_turns(ratings, tile, out):
    """Copy `ratings`, sorted by user, to `out` so that the ratings of each `tile` users alternate."""
    heads, tails = np.empty(tile, np.int64), np.empty(tile, np.int64)
    size, start, written = ratings.users.size, 0, 0
    while start < size:
        limit = (ratings.users[start] // tile + 1) * tile
        n_heads = 0
        while start < size and ratings.users[start] < limit:
            heads[n_heads], user = start, ratings.users[start]
            while start < size and ratings.users[start] == user:
                start += 1
            tails[n_heads] = start
            n_heads += 1
        while written < start:
            for turn in range(n_heads):
                if heads[turn] < tails[turn]:
                    out.users[written] = ratings.users[heads[turn]]
                    out.items[written] = ratings.items[heads[turn]]
                    out.values[written] = ratings.values[heads[turn]]
                    heads[turn] += 1
                    written += 1


def empty_ratings(size: int) -> RatingBlock:
    """Return an uninitialised block of `size` ratings."""
    return RatingBlock(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.float32))


def slice_ratings(ratings: RatingBlock, start: int, stop: int) -> RatingBlock:
    """Return a view of the ratings from `start` to `stop`."""
    return RatingBlock(*(array[start:stop] for array in ratings))


def cut_shard(
    users: np.ndarray, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, items: Placement
) -> tuple[RatingBlock, ...]:
    """Cut the ratings of `users` into one block per item block, in the order in which they will be visited.

    Parameters
    ----------
    users : (n,) int64
        Rows of the CSR matrix that the shard owns, in the order of their rows there.
    indptr, indices, data : arrays of a CSR matrix (n_users, n_items) with sorted indices
    items : Placement
        Block and row of every item.

    Returns
    -------
    tuple of RatingBlock
        Item block b at position b; 12 bytes per rating, twice that while the shard is cut.
    """
    n_blocks = len(items.members)
    starts = np.concatenate([[0], np.cumsum(_count_cells(users, indptr, indices, items.group, n_blocks))])
    by_user, by_turn = empty_ratings(starts[-1]), empty_ratings(starts[-1])
    _split_by_block(users, indptr, indices, data, items.group, items.row, starts, by_user)
    blocks = []
    for start, stop in pairwise(starts):
        blocks.append(slice_ratings(by_turn, start, stop))
        _take_turns(slice_ratings(by_user, start, stop), TILE, blocks[-1])
    return tuple(blocks)
