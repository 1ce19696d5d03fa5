"""Ratings as programs use them: assigned to shards of users and blocks of items.

Ratings of any input come in *pieces*, in any order: numbers of users and items in the whole data, and values.  A shard
takes the ratings of its users from all pieces and sorts them, so it does not depend on the pieces.  Until then a rating
with a weight is one complex number, ``value + 1j * weight``, so that both are moved together.
"""

from itertools import pairwise
from math import log2, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.lanes import LANES
from schmp_estimators.core.typing import (
    Arguments,
    Array,
    Floats32,
    Integers,
    Integers32,
    IntPair,
    Masks,
    Named,
)
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.mf.data import scale as scales
from schmp_estimators.mf.data.scale import Grid, Moments, Scale
from schmp_estimators.mf.data.seen import DuplicateRatingError, Seen
from schmp_estimators.mf.kernels import layout
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.sgd import RatingBlock

#: Fewer ratings are not divided: they take 5 ms of work at rank 40.
UNDIVIDED = 200_000
#: About the number of ratings of a block of a rotation, whose work is large compared with the cost of a task.
RATINGS_PER_BLOCK = 400_000
#: Ratings per shard for partial sums: each shard needs memory for its sums, and sends them in every round.
RATINGS_PER_SUM = 1_000_000
#: The work on the sums of an item is that of three to four ratings: 5 % if a shard has this many ratings of the item.
RATINGS_OF_A_SUMMED_ITEM = 64
#: Up to this number, further shards for partial sums gain more than that costs.
SHARDS_FOR_SUMS = 8
#: Least number of items with ratings in a block from which items are drawn.
ITEMS_TO_DRAW_FROM = 8
#: More shards than these need more steps, or more memory for sums, than they gain.
MAX_SHARDS = 64
#: With two shards, two threads would wait for each other: 1.0 instead of 1.7 times as fast as one thread.
FEWEST_SHARDS = 4


class ByItem(NamedTuple):
    """The ratings of a shard a second time, sorted by item and user."""

    #: Offsets of the items, numbers of the users in the shard, and values.
    clicks: UserRatings
    confidences: Floats32 | None
    #: (n_ratings,) the position of each of them among the ratings that are sorted by user.
    order: Integers32


class RatingShard(NamedTuple):
    """The ratings of one shard of users: cut into blocks of items, or sorted by user and item."""

    #: (n_users,) numbers of the users in the whole data.
    user_ids: Integers
    #: (n_users,) number of ratings, without held-out ones; if ratings, but not clicks, have weights, the sum of these.
    user_counts: Array
    #: Numbers in the whole data of the items of the block with the number of the shard; or of all items, those with the
    #: most ratings first.
    item_ids: Integers
    #: For each of these items the same as `user_counts`, over all shards.
    item_counts: Array
    #: `CutRatings`, or `UserRatings`.
    train: Any
    #: Ratings that are only predicted: `CutRatings`, or a `RatingBlock`, complex if there are weights.
    held_out: Any
    #: Number of this shard, and how many there are.
    number: int
    n_shards: int
    #: (n_ratings,) weights of sorted ratings; None if all are 1.
    confidences: Floats32 | None = None
    #: Only for clicks.
    by_item: ByItem | None = None
    #: For each block the offsets of the users, and the items that each has taken, ascending; empty if not needed.
    taken: tuple[tuple[Integers, Integers32], ...] = ()


class HoldOut(NamedTuple):
    """The ratings that are only predicted: those whose hash under `key` is below `threshold`."""

    key: np.uint64
    threshold: np.uint64


#: Nothing is held out.
NOTHING = HoldOut(np.uint64(0), np.uint64(0))


class ShardPlan(NamedTuple):
    """All that a worker needs to make a shard, except the ratings."""

    users: layout.Placement
    items: layout.Placement
    item_counts: Array
    hold_out: HoldOut
    #: Whether the shard is cut into blocks, one for each group of items; otherwise the items are one group.
    blocks: bool
    #: Whether to return the items that each user has rated.
    keep_seen: bool
    #: Whether the ratings are also sorted by item, as clicks are.
    twice: bool = False
    #: Length of a row of factors, if blocks are visited rating by rating.
    width: int = LANES
    #: Whether to return the items of a block that each user has taken.
    draws: bool = False

    @property
    def item_ids(self) -> Integers:
        """Numbers of the items in the whole data, in the order of their rows in shards and in `Seen`."""
        return np.arange(self.items.group.size) if self.blocks else self.items.members[0]


class Counted(NamedTuple):
    """What is known of ratings before they are assigned to shards; only `occur` and `told` include held-out ratings."""

    #: (n_users + n_items,) whether a user or item has a rating at all.
    occur: Masks
    #: (n_users + n_items,) number of ratings of every user and every item.
    counts: Integers
    moments: Moments
    #: The moments with the weights of the ratings.
    weighted: Moments
    #: (n_users + n_items,) sums of their ratings, in steps of the moments; empty if not needed.
    sums: Integers
    #: (n_users + n_items,) sums of their weights; their numbers of ratings, if all weights are 1.
    confidences: Array
    #: Hashes of all pairs, and of all pairs with their values and confidences, modulo 2**64; they do not depend on the
    #: order of the ratings.
    told: IntPair


def rotating_shards(n_ratings: int) -> int:
    """Return the number of shards, and of blocks, for a rotation; it depends only on the size of the data."""
    return _between(n_ratings, sqrt(n_ratings / RATINGS_PER_BLOCK))


def summing_shards(n_ratings: int, n_items: int) -> int:
    """Return the number of shards for partial sums; it depends only on the size of the data."""
    most = max(SHARDS_FOR_SUMS, n_ratings / (RATINGS_OF_A_SUMMED_ITEM * n_items))
    return _between(n_ratings, min(n_ratings / RATINGS_PER_SUM, most))


def _between(n_ratings: int, number: float) -> int:
    """Return the power of two next to `number`, within limits: it divides evenly among workers, often as many."""
    if n_ratings < UNDIVIDED:
        return 1
    return min(max(FEWEST_SHARDS, 2 ** round(log2(max(number, 1.0)))), MAX_SHARDS)


def hash_pairs(ratings: RatingBlock, key: np.uint64) -> NDArray[np.uint64]:
    """Return a hash of each user and item under `key`."""
    hashes = np.empty(ratings.users.size, np.uint64)
    layout.hash_pairs(*freeze((ratings.users, ratings.items)), key, hashes)
    return hashes


def held_out_mask(ratings: RatingBlock, hold_out: HoldOut) -> Masks:
    """Return which ratings are only predicted; this depends only on the user and the item of a rating."""
    if not hold_out.threshold:
        return np.zeros(ratings.values.size, np.bool_)
    return hash_pairs(ratings, hold_out.key) < hold_out.threshold


def count_and_measure(
    ratings: RatingBlock,
    n_users: int,
    n_items: int,
    hold_out: HoldOut,
    grid: Grid,
    *,
    sums_rows: bool = False,
) -> Counted:
    """Count and measure some of the ratings; `sums_rows` says whether sums of users and items are needed."""
    shape = (n_users, n_items)
    told = _hash_of(ratings)
    counts = _totals(ratings, shape)
    occur = counts > 0
    if hold_out.threshold:
        ratings = chosen(ratings, ~held_out_mask(ratings, hold_out))
        counts = _totals(ratings, shape)
    sums = np.empty(0, np.int64)
    confidences = counts
    if sums_rows:
        rows = zip(ratings, shape, strict=False)
        sums = np.concatenate(
            [scales.sum_steps(ids, ratings.values, grid, size) for ids, size in rows]
        )
    if np.iscomplexobj(
        ratings.values
    ):  # float64 adds up float32 numbers of similar size without rounding
        confidences = _totals(ratings, shape, ratings.values.imag.astype(np.float32))
    return Counted(occur, counts, *scales.measure(ratings.values, grid), sums, confidences, told)


def chosen(ratings: RatingBlock, mask: Masks) -> RatingBlock:
    """Return the ratings for which the mask is true."""
    return RatingBlock(*(array[mask] for array in ratings))


def _totals(ratings: RatingBlock, shape: IntPair, weights: Any = None) -> Array:
    """Return (n_users + n_items,) the number of ratings of each user and item, or the sums of their weights."""
    return np.concatenate(
        [np.bincount(ids, weights, size) for ids, size in zip(ratings, shape, strict=False)]
    )


def _hash_of(ratings: RatingBlock) -> IntPair:
    """Return hashes of ratings, which are sums: over the pairs, and over the pairs times values and confidences."""
    values = ratings.values
    real, whole = (np.complex64, np.uint64) if np.iscomplexobj(values) else (np.float32, np.uint32)
    pairs = hash_pairs(ratings, np.uint64(0))
    return int(pairs.sum()), int(pairs @ values.astype(real).view(whole).astype(np.uint64))


def add_counted(parts: list[Counted]) -> Counted:
    """Add up what is known of parts of the ratings."""
    occur, counts, moments, weighted, sums, confidences, told = zip(*parts, strict=True)
    counts, sums, confidences = (np.sum(arrays, axis=0) for arrays in (counts, sums, confidences))
    first, second = (sum(hashes) % 2**64 for hashes in zip(*told, strict=True))
    both = scales.add_moments(list(moments)), scales.add_moments(list(weighted))
    return Counted(np.any(occur, axis=0), counts, *both, sums, confidences, (first, second))


def draw_hold_out(ratings: RatingBlock, hold_out: HoldOut) -> IntPair:
    """Return the smallest and the largest hash of some of the ratings."""
    found = hash_pairs(ratings, hold_out.key)
    return int(found.min(initial=np.uint64(2**64 - 1))), int(found.max(initial=np.uint64(0)))


def add_draws(parts: list[IntPair]) -> IntPair:
    """Return the smallest and the largest hash of all ratings."""
    least, greatest = zip(*parts, strict=True)
    return min(least), max(greatest)


def settle_hold_out(hold_out: HoldOut, drawn: IntPair) -> HoldOut:
    """Return a hold-out of at least one rating that leaves at least one to fit.

    If chance holds out none, it is the one with the smallest hash; if chance holds out all, the one with the largest
    hash is fitted.  This depends only on the ids and the key.

    Raises
    ------
    ValueError
        If there are fewer than two ratings.
    """
    least, greatest = drawn
    if least >= greatest:
        raise ValueError(
            "early_stopping=True holds out validation_fraction of the ratings, but there is one rating only; pass "
            "more, or set early_stopping=False"
        )
    return hold_out._replace(
        threshold=np.uint64(min(max(int(hold_out.threshold), least + 1), greatest))
    )


def split_ratings(
    ratings: RatingBlock,
    users: layout.Placement,
    n_items: int,
    scale: Scale = scales.AS_THEY_ARE,
    sent: bool = True,
) -> list[RatingBlock]:
    """Return the ratings of each shard's users, by their rows in the shard, in units of the scale.

    If they may be sent, numbers of users and items have 16 bits where that is enough.
    """
    ratings = scales.standardised(ratings, scale)
    offsets, dealt = layout.sort_by(users.group[ratings.users], len(users.members), ratings)
    dealt = dealt._replace(users=users.row[dealt.users])
    if sent:
        most = max(map(len, users.members))
        dealt = RatingBlock(_narrow(dealt.users, most), _narrow(dealt.items, n_items), dealt.values)
    return [layout.slice_ratings(dealt, *some) for some in pairwise(offsets.tolist())]


def _narrow(ids: Array, size: int) -> Array:
    """Return numbers below `size` as uint16 if that is enough, else as int32."""
    return ids.astype(np.uint16 if size <= 1 << 16 else np.int32, copy=False)


def make_shard(
    number: int, plan: ShardPlan, *pieces: RatingBlock
) -> tuple[RatingShard, Seen | None]:
    """Make a shard from its users' ratings in all pieces; return it, and all ratings of its users if they are kept.

    The pieces are those that `split_ratings` returns.

    Raises
    ------
    DuplicateRatingError
        If a user rated an item twice; the message names both.
    """
    members = plan.users.members[number]
    n_items = plan.items.group.size
    users, items, values = (
        map(np.concatenate, zip(*pieces, strict=True)) if len(pieces) > 1 else pieces[0]
    )
    # Without blocks, items are numbered by their rows; `cut_blocks` needs the items' own numbers.
    items = items.astype(np.int32, copy=False) if plan.blocks else plan.items.row[items]
    numbered = RatingBlock(users.astype(np.int32, copy=False), items, values)
    indptr, train = layout.sort_ratings(numbered, members.size, n_items)
    if (twice := layout.repeated(train.users, train.items)).size:
        user = members[train.users[twice[0]]]
        item = plan.item_ids[train.items[twice[0]]]
        raise DuplicateRatingError(int(user), int(item))
    narrow = _narrow(train.items, n_items)
    held_out = chosen(train, np.empty(0, np.intp))
    more = Named()
    seen = Seen(indptr, narrow) if plan.keep_seen else None
    if plan.hold_out.threshold:
        users, items = (
            ids.astype(np.int32) for ids in (members[train.users], plan.item_ids[train.items])
        )
        mask = held_out_mask(RatingBlock(users, items, train.values), plan.hold_out)
        narrow, train, held_out = narrow[~mask], chosen(train, ~mask), chosen(train, mask)
        indptr = np.searchsorted(train.users, np.arange(members.size + 1))
    parts: Any = train, held_out
    sizes = np.diff(indptr)
    item_ids = plan.item_ids
    if plan.blocks:
        item_ids = (
            plan.items.members[number]
            if number < len(plan.items.members)
            else np.empty(0, np.int64)
        )
        parts = [layout.cut_blocks(part, plan.items, plan.width) for part in parts]
        more["taken"] = _taken(parts[0], members.size, plan.items) if plan.draws else ()
    else:
        confidences = (
            np.ascontiguousarray(train.values.imag) if np.iscomplexobj(train.values) else None
        )
        more["confidences"] = confidences
        parts = UserRatings(indptr, narrow, np.ascontiguousarray(train.values.real)), held_out
        if plan.twice:
            more["by_item"] = sort_by_item(parts[0], train.users, confidences, n_items)
        elif confidences is not None:
            sizes = np.bincount(train.users, confidences, members.size)
    counts = plan.item_counts[item_ids]
    own, rest = parts
    return RatingShard(
        members, sizes, item_ids, counts, own, rest, number, len(plan.users.members), **more
    ), seen


def _taken(ratings: layout.CutRatings, n_users: int, items: layout.Placement) -> Arguments:
    """Return for each block the offsets of the users, and the items that each has in it, in ascending order."""
    blocks = zip(map(ratings.block, range(len(items.members))), items.members, strict=True)
    found = (layout.sort_ratings(block, n_users, members.size) for block, members in blocks)
    return tuple((offsets, one.items) for offsets, one in found)


def sort_by_item(
    ratings: UserRatings,
    users: Integers32,
    confidences: Floats32 | None,
    n_items: int,
) -> ByItem:
    """Sort ratings, which are sorted by user, by item; ratings of one item keep the order of the users."""
    order = np.argsort(ratings.items, kind="stable").astype(np.int32)
    indptr = offsets_of(np.bincount(ratings.items, minlength=n_items))
    weights = None if confidences is None else confidences[order]
    return ByItem(UserRatings(indptr, users[order], ratings.values[order]), weights, order)
