"""Ratings as programs see them: cut into shards of users and blocks of items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.kernels.mf_ccd import UserRatings
from schmp_estimators.kernels.mf_layout import Placement, cut_shard, deal
from schmp_estimators.kernels.mf_sgd import RatingBlock

#: A block of a rotation has about this many ratings: large enough for the cost of a task, small enough that a million
#: ratings keep a few threads busy.
RATINGS_PER_BLOCK = 1 << 17
#: More shards than this need more steps of a rotation than any cluster in reach has workers.
MAX_SHARDS = 64


class Ratings(NamedTuple):
    """All ratings, as a CSR matrix with sorted columns and no duplicates."""

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    values: NDArray[np.float32]
    n_items: int


class RatingShard(NamedTuple):
    """The ratings of one shard of users, and what the item block with the same number starts from."""

    #: (n_users,) numbers of the users in the whole data.
    user_ids: NDArray[np.int64]
    #: (n_users,) ratings of each user.
    user_counts: NDArray[np.int64]
    #: (n_items of the block,) numbers of its items in the whole data.
    item_ids: NDArray[np.int64]
    #: (n_items of the block,) ratings of each of its items, in all shards.
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


class Placements(NamedTuple):
    """Where users and items are."""

    users: Placement
    items: Placement


def rotation_shards(n_ratings: int) -> int:
    """Return the number of shards, and of blocks, for a rotation: a function of the size of the data only."""
    return int(np.clip(np.ceil(np.sqrt(n_ratings / RATINGS_PER_BLOCK)), 1, MAX_SHARDS))


def summing_shards(n_ratings: int) -> int:
    """Return the number of shards for partial sums: a function of the size of the data only."""
    return int(np.clip(np.ceil(n_ratings / (2 * RATINGS_PER_BLOCK)), 1, 16))


def place(ratings: Ratings, n_shards: int) -> Placements:
    """Deal users to shards and items to blocks, so that each has nearly the same number of ratings."""
    item_counts = np.bincount(ratings.items, minlength=ratings.n_items)
    return Placements(deal(np.diff(ratings.indptr), n_shards), deal(item_counts, n_shards))


def cut_rotation_shard(train: Ratings, held_out: Ratings, placements: Placements, number: int) -> RatingShard:
    """Return shard `number` of ratings that are cut into blocks."""
    users, items = placements
    members, item_ids = users.members[number], items.members[number]
    return RatingShard(
        members,
        np.diff(train.indptr)[members],
        item_ids,
        np.bincount(train.items, minlength=train.n_items)[item_ids],
        cut_shard(members, *train[:3], items),
        cut_shard(members, *held_out[:3], items),
        number,
    )


def cut_sorted_shard(train: Ratings, held_out: Ratings, users: Placement, number: int) -> SortedShard:
    """Return shard `number` of ratings that stay sorted by user."""
    members = users.members[number]
    kept, tested = take_users(train, members), take_users(held_out, members)
    rows = np.repeat(np.arange(members.size, dtype=np.int32), np.diff(tested.indptr))
    return SortedShard(members, UserRatings(*kept[:3]), RatingBlock(rows, tested.items, tested.values))


def take_users(ratings: Ratings, users: NDArray[np.int64]) -> Ratings:
    """Return the ratings of some users, in their order."""
    counts = np.diff(ratings.indptr)[users]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    positions = np.arange(indptr[-1]) + np.repeat(ratings.indptr[users] - indptr[:-1], counts)
    return Ratings(indptr, ratings.items[positions], ratings.values[positions], ratings.n_items)


def no_ratings(n_users: int, n_items: int) -> Ratings:
    """Return no ratings by so many users."""
    return Ratings(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), n_items)
