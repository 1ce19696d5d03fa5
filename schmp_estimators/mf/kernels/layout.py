"""Storage order of ratings: which shard and block a rating is in, and when it is visited there.

Users and items are dealt to shards and blocks heaviest first, so that all of them hold nearly the same number of
ratings, and are renumbered in that order, so that factors are walked in storage order and the busiest rows share cache
lines.  A block is cut into strips of items, whose factors stay in the second cache while all users go by.  Inside a
strip the ratings of some users take turns: consecutive steps then move different rows, so that the processor overlaps
them (91 against 47 million ratings per second at rank 40 without adaptive steps), and those of the users stay in the
nearest cache.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import LANES
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.sgd import RatingBlock

#: Users whose ratings take turns, unless rows are long; more than eight gain nothing.
TILE = 8
#: Fewer take turns, at least two, whose factors would take more bytes: a quarter of the nearest cache.
_TILE_BYTES = 1 << 13
#: Factors of a strip of items: half of the second cache of the machine where it was measured.
_STRIP_BYTES = 1 << 18
#: Bytes of a factor.
_FACTOR = 4
#: The group of a row that is in none.
NOWHERE = -1


class Placement(NamedTuple):
    """Where every user (or item) is: the group that owns it and its row there."""

    group: np.ndarray  #: (n,) int32, or `NOWHERE`
    row: np.ndarray  #: (n,) int32
    members: tuple[np.ndarray, ...]  #: per group, int64 indices in the order of their rows


class CutRatings(NamedTuple):
    """Ratings block by block.  A few arrays, however many blocks: a cell of a rotation sees them all."""

    ratings: RatingBlock
    offsets: np.ndarray  #: (n_blocks + 1,) int64

    def block(self, index: int) -> RatingBlock:
        """Return a view of the ratings of a block."""
        return slice_ratings(self.ratings, self.offsets[index], self.offsets[index + 1])


def deal(counts: np.ndarray, n_groups: int, taking_part: Any = None) -> Placement:
    """Deal rows with `counts` ratings each to `n_groups` groups, heaviest first, there and back like cards.

    Rows of equal weight keep their order: the placement is a function of the arguments only.  Where `taking_part`,
    (n,) bool, is false, a row is in no group.
    """
    order = np.argsort(-counts, kind="stable")
    order = order if taking_part is None else order[taking_part[order]]
    turn = np.arange(order.size) % (2 * n_groups)
    dealt_to = np.minimum(turn, 2 * n_groups - 1 - turn)
    members = tuple([order[dealt_to == group] for group in range(n_groups)])
    group, row = np.full(counts.size, NOWHERE, np.int32), np.zeros(counts.size, np.int32)
    for number, rows in enumerate(members):
        group[rows] = number
        row[rows] = np.arange(rows.size, dtype=np.int32)
    return Placement(group, row, members)


@kernel
def hash_pairs(users, items, key):
    """Return (n,) uint64 hashes of (key, user, item): of pairs of numbers from 0 on, or of any integers."""
    out = np.empty(users.size, np.uint64)
    for position in range(users.size):
        user_key = mix(key + GAMMA * np.uint64(users[position] + 1))
        out[position] = mix(user_key + GAMMA * np.uint64(items[position] + 1))
    return out


@kernel
def hash_ratings(users, items, values):
    """Return sums of hashes, modulo 2**64: of all (user, item), and of all (user, item, value); all are integers."""
    pairs = ratings = np.uint64(0)
    for position in range(users.size):
        pair = mix(mix(GAMMA * np.uint64(users[position] + 1)) + GAMMA * np.uint64(items[position] + 1))
        pairs += pair
        ratings += mix(pair + GAMMA * np.uint64(values[position]))
    return pairs, ratings


@kernel
def _scatter(keys, ends, ratings, out):
    """Copy `ratings` to `out`, sorted by ``keys`` (n,) int32; 10 ns per rating.

    Of `ends`, zeros at first, the last but one number becomes the end of the last key, and so on.
    """
    for key in keys:
        ends[key + 2] += 1
    for key in range(2, ends.size):
        ends[key] += ends[key - 1]
    for position in range(keys.size):
        target = ends[keys[position] + 1]
        ends[keys[position] + 1] += 1
        out.users[target] = ratings.users[position]
        out.items[target] = ratings.items[position]
        out.values[target] = ratings.values[position]


@inlined
def _end_of_user(users, start, stop):
    """Return the first position after `start` with another user, or `stop`."""
    position = start
    while position < stop and users[position] == users[start]:
        position += 1
    return position


@kernel
def _take_turns(ratings, offsets, heads, tails, out):
    """Copy `ratings`, sorted by strip and user, to `out` so that those of some users of a strip alternate.

    Where a user has no more the next one takes over, so that fewer alternate only where a strip ends.  `heads` and
    `tails`, whose length says how many alternate, are room to work in.
    """
    tile = heads.size
    for strip in range(offsets.size - 1):
        written, unseen, stop, n_heads, turn = offsets[strip], offsets[strip], offsets[strip + 1], 0, 0
        while n_heads < tile and unseen < stop:
            heads[n_heads], tails[n_heads] = unseen, _end_of_user(ratings.users, unseen, stop)
            unseen, n_heads = tails[n_heads], n_heads + 1
        while written < stop:
            out.users[written] = ratings.users[heads[turn]]
            out.items[written] = ratings.items[heads[turn]]
            out.values[written] = ratings.values[heads[turn]]
            written, heads[turn] = written + 1, heads[turn] + 1
            if heads[turn] == tails[turn] and unseen < stop:
                heads[turn], tails[turn] = unseen, _end_of_user(ratings.users, unseen, stop)
                unseen = tails[turn]
            if heads[turn] < tails[turn]:
                turn += 1
            else:
                n_heads -= 1
                for later in range(turn, n_heads):
                    heads[later], tails[later] = heads[later + 1], tails[later + 1]
            turn = turn if turn < n_heads else 0


def repeated(users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.intp]:
    """Return the positions, of pairs that are sorted, whose pair is that of the position before."""
    return 1 + np.flatnonzero((users[1:] == users[:-1]) & (items[1:] == items[:-1]))


def empty_ratings(size: int, dtype: Any = np.float32) -> RatingBlock:
    """Return an uninitialised block of `size` ratings of some dtype."""
    return RatingBlock(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, dtype))


def slice_ratings(ratings: RatingBlock, start: int, stop: int) -> RatingBlock:
    """Return a view of the ratings from `start` to `stop`."""
    return RatingBlock(ratings.users[start:stop], ratings.items[start:stop], ratings.values[start:stop])


def sort_by(keys: NDArray[np.int32], n_keys: int, ratings: RatingBlock) -> tuple[NDArray[np.int64], RatingBlock]:
    """Return (n_keys + 1,) offsets of keys, and ratings sorted by these; those with equal keys keep their order."""
    ends, out = np.zeros(n_keys + 2, np.int64), empty_ratings(keys.size, ratings.values.dtype)
    keys, ratings = freeze((keys, ratings))
    _scatter(keys, ends, ratings, out)
    return ends[:-1], out


def sort_ratings(ratings: RatingBlock, n_users: int, n_items: int) -> tuple[NDArray[np.int64], RatingBlock]:
    """Return offsets of the users, and the ratings sorted by user, then by item."""
    _, by_item = sort_by(ratings.items, n_items, ratings)
    return sort_by(by_item.users, n_users, by_item)


def cut_blocks(ratings: RatingBlock, items: Placement, width: int = LANES) -> CutRatings:
    """Cut ratings that are sorted by user into item blocks, each in the order in which it will be visited.

    `width` is the length of a row of factors.  Items are renumbered to their rows in the block.  12 bytes per rating,
    three times that on the way.
    """
    n_rows, tile = (max(least, size // (_FACTOR * width)) for least, size in ((1, _STRIP_BYTES), (2, _TILE_BYTES)))
    n_strips = [max(1, -(-members.size // n_rows)) for members in items.members]
    first = np.concatenate([[0], np.cumsum(n_strips)])
    if not ratings.values.size:
        return CutRatings(ratings, np.zeros(first.size, np.int64))
    strips = (first[items.group] + items.row // n_rows).astype(np.int32)
    offsets, by_strip = sort_by(strips[ratings.items], int(first[-1]), ratings)
    by_strip.items[:] = items.row[by_strip.items]
    by_turn, room = empty_ratings(ratings.values.size), np.empty((2, min(tile, TILE)), np.int64)
    _take_turns(by_strip, offsets, *room, by_turn)
    return CutRatings(by_turn, offsets[first])
