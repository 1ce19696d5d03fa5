"""Ratings as programs use them: assigned to shards of users and blocks of items.

Ratings of any input come in *pieces*, in any order: rows of users, with their numbers in the whole
data.  A piece of a matrix in memory consists of views of its arrays, which may be memory-mapped.  A
shard copies the rows of its users from all pieces, and sorts those that are not sorted, so it does
not depend on the pieces.  Until then a rating with a weight is one complex number,
``value + 1j * weight``, so that both are moved together.
"""

from collections.abc import Sequence
from functools import partial
from math import log2, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.inputs.rows import Rows
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
from schmp_estimators.mf.data.scale import Grid, Scale
from schmp_estimators.mf.data.seen import DuplicateRatingError, Seen
from schmp_estimators.mf.kernels import layout
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.layout import UserRows
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.kernels.tally import Tally, count_rows

#: Fewer ratings are not divided: they take 5 ms of work at rank 40.
UNDIVIDED = 200_000
#: About the number of ratings of a block of a rotation, whose work is large compared with the cost
#: of a task.
RATINGS_PER_BLOCK = 400_000
#: Ratings per shard for partial sums: each shard needs memory for its sums, and sends them in every
#: round.
RATINGS_PER_SUM = 1_000_000
#: The work on the sums of an item is that of three to four ratings: 5 % if a shard has this many
#: ratings of the item.
RATINGS_OF_A_SUMMED_ITEM = 64
#: Up to this number, further shards for partial sums gain more than that costs.
SHARDS_FOR_SUMS = 8
#: Least number of items with ratings in a block from which items are drawn.
ITEMS_TO_DRAW_FROM = 8
#: More shards than these need more steps, or more memory for sums, than they gain.
MAX_SHARDS = 64
#: With two shards, two threads would wait for each other: 1.0 instead of 1.7 times as fast as one
#: thread.
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
    #: (n_users,) number of ratings, without held-out ones; if ratings, but not clicks, have
    #: weights, the sum of these.
    user_counts: Array
    #: Numbers in the whole data of the items of the block with the number of the shard; or of all
    #: items, those with the most ratings first.
    item_ids: Integers
    #: For each of these items the same as `user_counts`, over all shards.
    item_counts: Array
    #: `CutRatings`, or `UserRatings`.
    train: Any
    #: Ratings that are only predicted: `CutRatings`, or a `RatingBlock`, complex if there are
    #: weights.
    held_out: Any
    #: (n_ratings,) weights of sorted ratings; None if all are 1.
    confidences: Floats32 | None = None
    #: Only for clicks.
    by_item: ByItem | None = None
    #: For each block the offsets of the users, and the items that each has taken, ascending; empty
    #: if not needed.
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
    #: Whether the shard is cut into blocks, one for each group of items; otherwise the items are
    #: one group.
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
        """Numbers of the items in the whole data.

        They are in the order of the items' rows in shards and in `Seen`.
        """
        return np.arange(self.items.group.size) if self.blocks else self.items.members[0]


def usual_shards(n_ratings: int, n_items: int, gradients: bool) -> int:
    """Return the number of shards, for steps or for partial sums.

    It depends only on the size of the data.

    It is a power of two, which divides evenly among workers, often as many.
    """
    if n_ratings < UNDIVIDED:
        return 1
    number = sqrt(n_ratings / RATINGS_PER_BLOCK)
    if not gradients:
        most = max(SHARDS_FOR_SUMS, n_ratings / (RATINGS_OF_A_SUMMED_ITEM * n_items))
        number = min(n_ratings / RATINGS_PER_SUM, most)
    return min(max(FEWEST_SHARDS, 2 ** round(log2(max(number, 1.0)))), MAX_SHARDS)


def hash_pairs(pairs: RatingBlock, key: np.uint64) -> NDArray[np.uint64]:
    """Return a hash of each user and item under `key`."""
    hashes: NDArray[np.uint64] = layout.hash_pairs(*freeze(pairs[:2]), key)
    return hashes


def held_out_mask(ratings: RatingBlock, hold_out: HoldOut) -> Masks:
    """Return which ratings are only predicted.

    This depends only on the user and the item of a rating.
    """
    if not hold_out.threshold:
        return np.zeros(ratings.values.size, np.bool_)
    return hash_pairs(ratings, hold_out.key) < hold_out.threshold


def count_and_measure(
    shape: IntPair, hold_out: HoldOut, grid: Grid, sums_rows: bool, piece: UserRows
) -> Tally:
    """Count and measure some of the ratings.

    `sums_rows` says whether sums of users and items are needed.
    """
    size = sum(shape)
    tally = Tally(
        np.zeros((2, size), np.int64),
        np.zeros(size * sums_rows, np.int64),
        np.zeros(size * np.iscomplexobj(piece.values)),
        np.zeros(2, np.uint64),
        np.zeros((2, 8), np.int64),
    )
    count_rows(freeze(piece), shape[0], hold_out, grid, tally)
    return tally


def choose_hold_out(pieces: Rows, key: np.uint64, share: float) -> HoldOut:
    """Return a hold-out of a share of the ratings: of one at least, and of all but one at most.

    If chance holds out none, it is the one with the smallest hash; if chance holds out all, the one
    with the largest hash is fitted.  This depends only on the ids and the key.

    Raises
    ------
    ValueError
        If there are fewer than two ratings.
    """
    hashes = set(pieces.reduce(partial(_ends_of_piece, key), _ends, "mf-hold-out").tolist())
    if len(hashes) < 2:
        raise ValueError(
            "some ratings are held out, to be judged by what the others say, but there are fewer "
            "than two; pass more, or fit with early_stopping=False"
        )
    least, greatest = sorted(hashes)
    return HoldOut(key, np.uint64(min(max(int(share * 2.0**64), least + 1), greatest)))


def _ends_of_piece(key: np.uint64, ratings: UserRows) -> NDArray[np.uint64]:
    return _ends([hash_pairs(layout.pairs_of(ratings), key)])


def _ends(hashes: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Return the smallest and the largest hash, if there are any."""
    found = np.concatenate(hashes)
    return found[[found.argmin(), found.argmax()]] if found.size else found


def split_ratings(
    users: layout.Placement, n_items: int, scale: Scale, piece: UserRows
) -> list[UserRows]:
    """Return the ratings of each shard's users, in units of the scale."""
    numbers = range(len(users.members))
    return [layout.rated(ratings_of(p, users, n_items, scale, [piece])) for p in numbers]


def ratings_of(
    number: int, users: layout.Placement, n_items: int, scale: Scale, pieces: Sequence[UserRows]
) -> UserRows:
    """Return the ratings of a shard's users, in the order of its rows and in units of the scale."""
    members = users.members[number]
    sizes = np.zeros(members.size, np.int64)
    for piece in pieces:
        own = users.group[piece.users] == number
        sizes[users.row[piece.users[own]]] += np.diff(piece.indptr)[own]
    indptr = offsets_of(sizes)
    ends = indptr[:-1].copy()
    items = np.empty(indptr[-1], layout.narrow(n_items))
    weighted = any(np.iscomplexobj(piece.values) for piece in pieces)
    values = np.empty(indptr[-1], np.complex64 if weighted else np.float32)
    out = ends, items, values.real, values.imag if weighted else values[:0]
    for piece in pieces:
        layout.copy_rows(*freeze((piece, *users[:2])), number, scale, *out)
    return UserRows(members.astype(np.int32), indptr, items, values)


def make_shard(
    number: int, scale: Scale, plan: ShardPlan, *pieces: UserRows
) -> tuple[RatingShard, Seen | None]:
    """Make a shard from its users' ratings in all pieces, which are put in units of the scale.

    Return it, and all ratings of its users if they are kept.

    Raises
    ------
    DuplicateRatingError
        If a user rated an item twice; the message names both.
    """
    members = plan.users.members[number]
    n_items = plan.items.group.size
    train = ratings_of(number, plan.users, n_items, scale, pieces)
    # Without blocks, items are numbered by their rows; `cut_blocks` needs the items' own numbers.
    if not plan.blocks:
        train = train._replace(items=plan.items.row[train.items])
    train, twice = layout.sort_items(train, n_items)
    if twice:
        raise DuplicateRatingError(int(members[twice[0]]), int(plan.item_ids[twice[1]]))
    train = train._replace(items=train.items.astype(layout.narrow(n_items), copy=False))
    held_out = train._replace(
        indptr=0 * train.indptr, items=train.items[:0], values=train.values[:0]
    )
    more = Named()
    seen = Seen(*train[1:3]) if plan.keep_seen else None
    if plan.hold_out.threshold:
        named = layout.pairs_of(train._replace(items=plan.item_ids[train.items]))
        mask = held_out_mask(named, plan.hold_out)
        train, held_out = layout.select(train, ~mask), layout.select(train, mask)
    sizes = np.diff(train.indptr)
    item_ids = plan.item_ids
    parts: Any
    if plan.blocks:
        mine = plan.items.members[number : number + 1]
        item_ids = np.concatenate([*mine, np.empty(0, np.int64)])
        parts = [layout.cut_blocks(one, plan.items, plan.width) for one in (train, held_out)]
        more["taken"] = _taken(train, plan.items) if plan.draws else ()
    else:
        rows = np.arange(members.size, dtype=np.int32)
        values = train.values
        weights = np.ascontiguousarray(values.imag) if np.iscomplexobj(values) else None
        own = UserRatings(train.indptr, train.items, np.ascontiguousarray(values.real))
        parts = own, layout.pairs_of(held_out._replace(users=rows))
        more["confidences"] = weights
        if plan.twice:
            more["by_item"] = sort_by_item(own, weights, n_items)
        elif weights is not None:
            sizes = np.bincount(np.repeat(rows, sizes), weights, members.size)
    counts = plan.item_counts[item_ids]
    return RatingShard(members, sizes, item_ids, counts, *parts, **more), seen


def _taken(ratings: UserRows, items: layout.Placement) -> Arguments:
    """Return for each block the offsets of the users, and the items that each has in it.

    The items are in ascending order.
    """
    found = []
    for number, members in enumerate(items.members):
        mine = layout.select(ratings, items.group[ratings.items] == number)
        mine = mine._replace(items=items.row[mine.items])
        found.append(layout.sort_items(mine, members.size)[0][1:3])
    return tuple(found)


def sort_by_item(ratings: UserRatings, confidences: Floats32 | None, n_items: int) -> ByItem:
    """Sort ratings, which are sorted by user, by item.

    Ratings of one item keep the order of the users.
    """
    indptr, items, values = ratings
    places = np.arange(values.size, dtype=np.int32)
    found = sparse.csr_matrix((places, items, indptr), (indptr.size - 1, n_items)).tocsc()
    order = found.data
    weights = None if confidences is None else confidences[order]
    offsets = found.indptr.astype(np.int64)
    return ByItem(UserRatings(offsets, found.indices, values[order]), weights, order)
