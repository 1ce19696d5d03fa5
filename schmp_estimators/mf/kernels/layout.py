"""Storage order of ratings: the shard and block of each rating, and when it is visited there.

Users and items are assigned to shards and blocks in the order of falling weight, so that all of
them have nearly the same number of ratings.  They are renumbered in this order, so that factors are
read in storage order and the busiest rows share cache lines.  A block is cut into strips of items,
whose factors stay in the second cache while all users are visited.  Inside a strip the ratings of
some users take turns.  Consecutive steps then change different rows, so that the processor overlaps
them (91 against 47 million ratings per second at rank 40 without adaptive steps), and the rows of
these users stay in the first cache.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import LANES
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.typing import IntPair, Masks
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.mf.kernels.sgd import RatingBlock

#: Number of users whose ratings take turns, unless rows are long; more than eight gain nothing.
TILE = 8
#: If they would have more factors than this, a quarter of the first cache, fewer users take turns,
#: at least two.
_TILE_FACTORS = 1 << 11
#: Number of the factors of a strip of items: half of the second cache of the machine where this was
#: measured.
_STRIP_FACTORS = 1 << 16
#: The group of a row that is in no group.
NOWHERE = -1


class Placement(NamedTuple):
    """The group of every user (or item), and its row there."""

    group: np.ndarray  #: (n,) int32, or `NOWHERE`
    row: np.ndarray  #: (n,) int32
    members: tuple[np.ndarray, ...]  #: per group, int64 indices in the order of their rows


class UserRows(NamedTuple):
    """The ratings of some users, row by row."""

    users: np.ndarray  #: (n_rows,) int32, numbers of the users in the whole data, each once
    indptr: np.ndarray  #: (n_rows + 1,) int64, offsets of the rows
    items: np.ndarray  #: (n_ratings,) integers
    values: np.ndarray  #: (n_ratings,) float32, float64 or complex128


class CutRatings(NamedTuple):
    """Ratings block by block, in a few arrays for all blocks.

    They are few because each step of a rotation gets all of them.
    """

    ratings: RatingBlock
    offsets: np.ndarray  #: (n_blocks + 1,) int64

    def block(self, index: int) -> RatingBlock:
        """Return a view of the ratings of a block."""
        part = slice(*self.offsets[index : index + 2])
        return RatingBlock(*(array[part] for array in self.ratings))


def deal(counts: np.ndarray, n_groups: int, taking_part: Any = None) -> Placement:
    """Assign rows with `counts` ratings to `n_groups` groups, heaviest first.

    Groups take turns, there and back.

    Rows of equal weight keep their order, so the placement depends only on the arguments.  A row
    for which `taking_part`, (n,) bool, is False is in no group.
    """
    order = np.argsort(-counts, kind="stable")
    order = order if taking_part is None else order[taking_part[order]]
    places = np.arange(order.size)
    turn = places % (2 * n_groups)
    dealt_to = np.minimum(turn, 2 * n_groups - 1 - turn)
    group = np.full(counts.size, NOWHERE, np.int32)
    row = np.zeros(counts.size, np.int32)
    group[order] = dealt_to
    row[order] = places // n_groups
    return Placement(group, row, tuple(order[dealt_to == number] for number in range(n_groups)))


@kernel
def hash_pairs(users, items, key):
    """Return (n,) uint64 the hashes of (key, user, item); users and items may be any integers."""
    out = np.empty(users.size, np.uint64)
    for position in range(users.size):
        user_key = mix(key + GAMMA * np.uint64(users[position] + 1))
        out[position] = mix(user_key + GAMMA * np.uint64(items[position] + 1))
    return out


@inlined
def _copy(ratings, position, out, target):
    out.users[target] = ratings.users[position]
    out.items[target] = ratings.items[position]
    out.values[target] = ratings.values[position]


@kernel
def copy_rows(ratings, groups, rows, group, scale, ends, items, values, weights):
    """Copy the ratings of the users of a group to `items`, `values` and `weights`.

    If `weights` is empty, it stays so.

    `groups` and `rows` are those of a `Placement`.  The ratings of row r begin at ``ends[r]``, and
    it becomes the end.  Values are put in units of the scale, computed in float64.
    """
    mean, unit = scale
    for number in range(ratings.users.size):
        user = ratings.users[number]
        if groups[user] == group:
            for position in range(ratings.indptr[number], ratings.indptr[number + 1]):
                value = ratings.values[position]
                target = ends[rows[user]]
                items[target] = ratings.items[position]
                values[target] = (np.float64(value.real) - mean) / unit
                if weights.size:
                    weights[target] = value.imag
                ends[rows[user]] += 1


@kernel
def _cut_rows(ratings, strips, rows, ends, out):
    """Copy `ratings` to `out`, sorted by the strips of their items.

    Items get the numbers in `rows`.

    `ends` (n_strips + 2,) must be zeros; on return ``ends[:-1]`` are the offsets of the strips.
    """
    for item in ratings.items:
        ends[strips[item] + 2] += 1
    for strip in range(2, ends.size):
        ends[strip] += ends[strip - 1]
    for user in range(ratings.indptr.size - 1):
        for position in range(ratings.indptr[user], ratings.indptr[user + 1]):
            item = ratings.items[position]
            target = ends[strips[item] + 1]
            ends[strips[item] + 1] += 1
            out.users[target] = user
            out.items[target] = rows[item]
            out.values[target] = ratings.values[position]


@inlined
def _end_of_user(users, start, stop):
    """Return the first position after `start` with another user, or `stop`."""
    position = start
    while position < stop and users[position] == users[start]:
        position += 1
    return position


@kernel
def _take_turns(ratings, offsets, heads, tails, room):
    """Let some users of each strip alternate in `ratings`; mutates them.

    The ratings are sorted by strip and user.

    After the last rating of a user the next user takes over, so fewer users alternate only at the
    end of a strip.  The others are work space: `room` for the ratings of a strip; the length of
    `heads` and `tails` is the number of users that alternate.
    """
    tile = heads.size
    for strip in range(offsets.size - 1):
        first = offsets[strip]
        size = offsets[strip + 1] - first
        for position in range(size):
            _copy(ratings, first + position, room, position)
        unseen = 0
        n_heads = 0
        turn = 0
        while n_heads < tile and unseen < size:
            heads[n_heads], tails[n_heads] = unseen, _end_of_user(room.users, unseen, size)
            unseen = tails[n_heads]
            n_heads += 1
        for written in range(first, first + size):
            _copy(room, heads[turn], ratings, written)
            heads[turn] += 1
            if heads[turn] == tails[turn] and unseen < size:
                heads[turn], tails[turn] = unseen, _end_of_user(room.users, unseen, size)
                unseen = tails[turn]
            if heads[turn] < tails[turn]:
                turn += 1
            else:
                n_heads -= 1
                for later in range(turn, n_heads):
                    heads[later] = heads[later + 1]
                    tails[later] = tails[later + 1]
            turn = turn if turn < n_heads else 0


def rows_of(ratings: RatingBlock, n_users: int) -> UserRows:
    """Return the ratings of users ``0 … n_users - 1`` row by row.

    Those of a user keep their order.
    """
    users, items, values = ratings
    # SciPy transposes by counting: a row for each rating becomes a column
    by_user = sparse.csr_matrix(
        (values, users, np.arange(users.size + 1)), (users.size, n_users)
    ).tocsc()
    every = np.arange(n_users, dtype=np.int32)
    return UserRows(every, by_user.indptr.astype(np.int64), items[by_user.indices], by_user.data)


def sort_items(ratings: UserRows, n_items: int) -> tuple[UserRows, IntPair | None]:
    """Return ratings with ascending items in each row, and the first row and item found twice."""
    users, indptr, items, values = ratings
    # a matrix has indices of 32 bits wherever that is enough, an array has not
    given = sparse.csr_matrix((values, items, indptr), (users.size, n_items))
    if given.has_canonical_format:
        return ratings, None
    found = given.tocsc().tocsr()
    ratings = UserRows(users, indptr, found.indices, found.data)
    rows, items, _ = pairs_of(ratings._replace(users=np.arange(users.size)))
    twice = np.flatnonzero((rows[1:] == rows[:-1]) & (items[1:] == items[:-1]))
    return ratings, (int(rows[twice[0]]), int(items[twice[0]])) if twice.size else None


def rated(ratings: UserRows) -> UserRows:
    """Return ratings without the rows that have none."""
    users, indptr, *entries = ratings
    there = np.flatnonzero(np.diff(indptr))
    return UserRows(users[there], np.append(indptr[there], indptr[-1]), *entries)


def pairs_of(ratings: UserRows) -> RatingBlock:
    """Return ratings one by one."""
    users, indptr, items, values = ratings
    return RatingBlock(
        np.repeat(users, np.diff(indptr)), items.astype(np.int32, copy=False), values
    )


def select(ratings: UserRows, mask: Masks) -> UserRows:
    """Return the ratings for which the mask is true."""
    users, indptr, items, values = ratings
    return UserRows(users, offsets_of(mask)[indptr], items[mask], values[mask])


def narrow(size: int) -> Any:
    """Return the smallest dtype for numbers below `size` that kernels are compiled for."""
    return np.uint16 if size <= 1 << 16 else np.int32


def _empty(size: int, *kinds: Any) -> RatingBlock:
    """Return arrays in one piece of memory.

    The C library returns only large pieces to the system at once.
    """
    ends = np.cumsum([(size + size % 2) * np.dtype(kind).itemsize for kind in kinds])
    parts = np.split(np.empty(ends[-1], np.uint8), ends[:-1])
    return RatingBlock(*(part.view(kind)[:size] for part, kind in zip(parts, kinds, strict=True)))


def cut_blocks(ratings: UserRows, items: Placement, width: int = LANES) -> CutRatings:
    """Cut the ratings of users into item blocks, each in the order in which it will be visited.

    `width` is the length of a row of factors.  Items are renumbered by their rows in the block.  A
    rating takes 8 bytes, or 10 or 12 if there are more than 65,536 users, or items in a block.
    """
    n_rows = max(1, _STRIP_FACTORS // width)
    tile = min(max(2, _TILE_FACTORS // width), TILE)
    sizes = [members.size for members in items.members]
    first = offsets_of([max(1, -(-size // n_rows)) for size in sizes])
    strips = (first[items.group] + items.row // n_rows).astype(np.int32)
    kinds = narrow(ratings.indptr.size - 1), narrow(max(sizes)), ratings.values.dtype
    ends = np.zeros(first[-1] + 2, np.int64)
    cut = _empty(ratings.values.size, *kinds)
    _cut_rows(*freeze((ratings, strips, items.row)), ends, cut)
    room = _empty(np.diff(ends).max(), *kinds)
    _take_turns(cut, ends[:-1], *np.empty((2, tile), np.int64), room)
    return CutRatings(cut, ends[first])
