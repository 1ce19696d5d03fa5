"""Ratings as programs see them: dealt to shards of users and blocks of items.

Whatever the input was, its ratings come in *pieces*, in any order: numbers of users and items in the whole data, and
values.  A shard takes its users' ratings from all pieces and sorts them, so that it does not depend on the pieces.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.kernels.mf_ccd import UserRatings
from schmp_estimators.kernels.mf_layout import (
    Placement,
    count_groups,
    count_ids,
    cut_blocks,
    empty_ratings,
    first_duplicate,
    select_group,
    sort_ratings,
)
from schmp_estimators.kernels.mf_sgd import RatingBlock
from schmp_estimators.kernels.mf_start import draw_mask

#: Fewer ratings are not worth dividing: 5 ms of work at rank 40.
UNDIVIDED = 200_000
#: A block of a rotation has about this many ratings, large beside the cost of a task; but there are four shards at
#: least, as two threads on two shards would wait for each other (1.0 instead of 1.7 times as fast as one thread).
RATINGS_PER_BLOCK, FEWEST_ROTATING = 400_000, 4
#: Beyond so many ratings a shard for partial sums costs less than it gains.
RATINGS_PER_SUM = 250_000
#: More shards than these need more steps, or more memory for sums, than they gain.
MAX_ROTATING, MAX_SUMMING = 64, 16


class RatingShard(NamedTuple):
    """The ratings of one shard of users, and what the item block with the same number starts from."""

    #: (n_users,) numbers of the users in the whole data.
    user_ids: NDArray[np.int64]
    #: (n_users,) ratings of each user, without held-out ones.
    user_counts: NDArray[np.int64]
    #: (n_items of the block,) numbers of its items in the whole data.
    item_ids: NDArray[np.int64]
    #: (n_items of the block,) ratings of each of its items in all shards, without held-out ones.
    item_counts: NDArray[np.int64]
    #: The ratings, block by block.
    train: tuple[RatingBlock, ...]
    #: Ratings that are only predicted, block by block.
    held_out: tuple[RatingBlock, ...]
    #: Number of this shard, and of the item block that it starts.
    number: int


class SortedShard(NamedTuple):
    """The ratings of one shard of users, sorted by user and item; items keep their numbers."""

    #: (n_users,) numbers of the users in the whole data.
    user_ids: NDArray[np.int64]
    train: UserRatings
    #: Ratings that are only predicted.
    held_out: RatingBlock


class HoldOut(NamedTuple):
    """Which ratings are only predicted: those whose hash under `key` is below `threshold`."""

    key: np.uint64
    threshold: np.uint64


class ShardPlan(NamedTuple):
    """What a worker needs beside the ratings to make a shard."""

    users: Placement
    items: Placement
    item_counts: NDArray[np.int64]
    hold_out: HoldOut
    #: Whether the shard is cut into blocks.
    rotating: bool
    #: Whether to say which items each user has rated.
    keep_seen: bool


class Sums(NamedTuple):
    """Exact enough to be added in any grouping of shards: sums over the users of one shard, in their order."""

    size: int
    total: float
    squares: float


class Seen(NamedTuple):
    """Which items each user has rated, held-out ones included, ascending."""

    indptr: NDArray[np.int64]
    items: NDArray[Any]  #: uint16 where that is enough, else int32


class SeenItems(NamedTuple):
    """Which items each user has rated, shard by shard."""

    parts: tuple[Seen, ...]
    users: Placement

    def of(self, user: int) -> NDArray[Any]:
        """Return the items that `user` has rated; none, if the user is not known."""
        if user >= self.users.group.size:
            return np.empty(0, np.int32)
        indptr, items = self.parts[self.users.group[user]]
        row = self.users.row[user]
        return items[indptr[row] : indptr[row + 1]]


class MadeShard(NamedTuple):
    """A shard, and what else is known when it has been made."""

    sums: Sums
    shard: RatingShard | SortedShard
    seen: Seen | None


class DuplicateRatingError(ValueError):
    """A user rated an item twice."""


def rotating_shards(n_ratings: int) -> int:
    """Return the number of shards, and of blocks, for a rotation: a function of the size of the data only."""
    if n_ratings < UNDIVIDED:
        return 1
    return max(FEWEST_ROTATING, _power_of_two(sqrt(n_ratings / RATINGS_PER_BLOCK), MAX_ROTATING))


def summing_shards(n_ratings: int) -> int:
    """Return the number of shards for partial sums: a function of the size of the data only."""
    return _power_of_two(n_ratings / RATINGS_PER_SUM, MAX_SUMMING)


def _power_of_two(number: float, limit: int) -> int:
    """Return the power of two next to `number`: it divides among workers, of which there are often as many."""
    return min(2 ** max(0, round(log2(max(number, 1.0)))), limit)


def held_out_mask(ratings: RatingBlock, hold_out: HoldOut) -> NDArray[np.bool_]:
    """Return which ratings are only predicted; whether one is depends on its user and item only."""
    mask = np.zeros(ratings.values.size, np.bool_)
    if hold_out.threshold:
        draw_mask(ratings.users, ratings.items, *hold_out, mask)
    return mask


def count_ratings(ratings: RatingBlock, n_users: int, n_items: int, hold_out: HoldOut) -> NDArray[np.int64]:
    """Return (n_users + n_items,) the ratings of every user and every item, without held-out ones."""
    if hold_out.threshold:
        kept = ~held_out_mask(ratings, hold_out)
        ratings = ratings._replace(users=ratings.users[kept], items=ratings.items[kept])
    return np.concatenate([count_ids(ratings.users, n_users), count_ids(ratings.items, n_items)])


def split_ratings(ratings: RatingBlock, users: Placement) -> list[RatingBlock]:
    """Return the ratings of each shard's users."""
    if len(users.members) == 1:
        return [ratings]
    sizes = count_groups(ratings.users, users.group, len(users.members))
    parts = [empty_ratings(size) for size in sizes]
    for number, part in enumerate(parts):  # arrays of their own, so that each can be let go before the next is used
        select_group(ratings, users.group, number, part)
    return parts


def make_shard(number: int, plan: ShardPlan, pieces: list[RatingBlock]) -> MadeShard:
    """Make a shard of its users' ratings from all pieces, and empty the list of them, to hold no rating twice.

    Raises
    ------
    DuplicateRatingError
        If a user rated an item twice; the message names both.
    """
    members, n_items = plan.users.members[number], plan.items.group.size
    ratings = pieces[0] if len(pieces) == 1 else RatingBlock(*map(np.concatenate, zip(*pieces, strict=True)))
    pieces.clear()
    mask = held_out_mask(ratings, plan.hold_out)
    ratings = ratings._replace(users=plan.users.row[ratings.users])
    indptr, everything = sort_ratings(ratings, members.size, n_items)
    twice = first_duplicate(indptr, everything.items)
    if twice >= 0:
        user, item = members[everything.users[twice]], everything.items[twice]
        raise DuplicateRatingError(
            f"user {user} rated item {item} more than once; keep one rating of each pair, for example the mean "
            "(pandas: frame.groupby(['user', 'item']).mean())"
        )
    narrow = np.uint16 if n_items <= 1 << 16 else np.int32
    seen = Seen(indptr, everything.items.astype(narrow)) if plan.keep_seen else None
    train, held_out = everything, empty_ratings(0)
    if plan.hold_out.threshold:
        parts = [RatingBlock(*(array[chosen] for array in ratings)) for chosen in (~mask, mask)]
        (indptr, train), (_, held_out) = (sort_ratings(part, members.size, n_items) for part in parts)
    del ratings, everything
    wide = train.values.astype(np.float64)
    sums = Sums(wide.size, float(wide.sum()), float((wide * wide).sum()))
    if not plan.rotating:
        return MadeShard(sums, SortedShard(members, UserRatings(indptr, train.items, train.values), held_out), seen)
    item_ids = plan.items.members[number]
    counts = np.diff(indptr), item_ids, plan.item_counts[item_ids]
    blocks = cut_blocks(train, plan.items), cut_blocks(held_out, plan.items)
    return MadeShard(sums, RatingShard(members, *counts, *blocks, number), seen)
