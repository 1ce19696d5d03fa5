"""The best items for users, without a look at items whose vectors are too short."""

from typing import NamedTuple

import numpy as np
from numba import types

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import LANES, UNROLLED, emitted, pad_rows, padded_width, sum_of
from schmp_estimators.core.typing import Floats, Floats32, Integers, Masks
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.foldin import insert
from schmp_estimators.mf.kernels.registers import fold_eight

#: Items whose vectors stay in the first cache while users pass by.
_BLOCK = 8 * LANES
#: Products that are summed up at a time: their sums fill half of the registers.
_AT_A_TIME = 2


class Ranked(NamedTuple):
    """Vectors of items, the longest first."""

    vectors: Floats32  #: (n, width), n is a multiple of `_BLOCK`, with rows of zeros at the end
    heads: Floats32  #: (n, about width / 4) their first components
    tails: Floats32  #: (n,) the lengths of the others, see `tails_of`
    order: Integers  #: (n_items,) the numbers of the items
    lengths: Floats  #: (n_items,) Euclidean lengths of the vectors, with their biases
    with_bias: bool  #: whether any bias is not zero


def ranked(vectors: Floats32, bias: Floats32) -> Ranked:
    """Return vectors (n_items, n_components) by their lengths."""
    lengths = np.hypot(np.linalg.norm(vectors.astype(np.float64), axis=1), bias)
    order = np.argsort(-lengths, kind="stable")
    together = np.zeros((-(-len(vectors) // _BLOCK) * _BLOCK, vectors.shape[1]), np.float32)
    together[: order.size] = vectors[order]
    rows = pad_rows(together)
    head = padded_width(rows.shape[1] // 4)
    heads, tails = pad_rows(rows[:, :head]), tails_of(rows, head)
    return freeze(Ranked(rows, heads, tails, order, lengths[order], bool(bias.any())))


def tails_of(rows: Floats32, head: int) -> Floats32:
    """Return the lengths of rows without their first components, and a little more.

    The product of two results is at least that of the lengths and a bound on what rounding adds to products.
    """
    squares = rows.astype(np.float64) ** 2
    more = np.sqrt(2 * np.finfo(np.float32).eps * rows.shape[1] * squares.sum(axis=1))
    return (np.sqrt(squares[:, head:].sum(axis=1)) + more).astype(np.float32)


def biases_of(items: Ranked, bias: Floats32, may_be: Masks) -> Floats32:
    """Return biases as `top_items` takes them."""
    found = np.full(len(items.vectors), -np.inf, np.float32)
    found[: bias.size] = np.where(may_be, bias, -np.inf)[items.order]
    return freeze(found)


@emitted(lambda *kinds: types.boolean)
def _may_reach(code, rows, row, heads, item, bias, tails, tail, limit):
    """Return whether any of eight items may have a score of at least `limit`, as far as their heads say."""
    width, head = rows.shape[1], heads.shape[1]
    sums = code.totals(LANES)
    with code.loop(0, head, LANES) as at:
        left = rows.load(row * width + at)
        for n, total in enumerate(sums):
            total.add(left * heads.load((item + n) * head + at))
    most = fold_eight([total.value for total in sums]) + tails.load(item) * tail.spread()
    return (most + bias.load(item)).exceeds(limit.spread(), or_equals=True).any()


@emitted(lambda *kinds: types.boolean)
def _score_eight(code, scores, rows, row, others, item, bias, limit):
    """Set `scores` (LANES,) to the scores of a row and eight items; return whether any is at least `limit`."""
    width = rows.shape[1]
    products = []
    for first in range(0, LANES, _AT_A_TIME):
        sums = [code.totals(UNROLLED) for _ in range(_AT_A_TIME)]

        def visit(at, register, first=first, sums=sums):
            left = rows.load(row * width + at)
            for n, total in enumerate(sums):
                total[register].add(left * others.load((item + (first + n)) * width + at))

        code.over_row(width, UNROLLED, visit)
        products += map(sum_of, sums)
    found = fold_eight(products) + bias.load(item)
    scores.store(item - item, found)
    return found.exceeds(limit.spread(), or_equals=True).any()


@kernel
def top_items(rows, lengths, tails, items, bias, seen_ptr, seen_items, out_items, out_scores):
    """Find the items with the largest ``b_i + w_u·h_i`` for each user, except those in the user's list of seen items.

    Parameters
    ----------
    rows : (n, width) float32
        Vectors of users.
    lengths : (n,) float64
        No less than their Euclidean lengths, with a 1 in the vector if items have biases.
    tails : (n,) float32
        As of `tails_of`.
    items : Ranked
    bias : (len(items.vectors),) float32
        Biases in the order of the items; -inf if an item may not be found.
    seen_ptr : (n + 1,) int64
        Offsets of the users' lists in `seen_items`.
    seen_items : int32
        Ascending in each list.
    out_items, out_scores : (n, n_top) int64 and float32
        Mutated: best first, of equal scores the lower number first; -1 and -inf if no item is left.

    Notes
    -----
    No product is larger than that of both lengths, so a user is done when the next item is too short.  The same holds
    for the products of components that are left when the first ones have been multiplied: Teflioudi, Gemulla &
    Mykytiuk, "LEMP", SIGMOD 2015, sections 3 and 4.
    """
    vectors, heads, item_tails, order, item_lengths, _ = items
    last = out_items.shape[1] - 1
    scores = np.empty(LANES, np.float32)
    out_items[:] = -1
    out_scores[:] = -np.inf
    for block in range(0, order.size, _BLOCK):
        for user in range(rows.shape[0]):
            if lengths[user] * item_lengths[block] < out_scores[user, last]:
                continue
            for start in range(block, block + _BLOCK, LANES):
                limit = out_scores[user, last]
                if not _may_reach(rows, user, heads, start, bias, item_tails, tails[user], limit):
                    continue
                if not _score_eight(scores, rows, user, vectors, start, bias, limit):
                    continue
                best, values = out_items[user], out_scores[user]
                seen = seen_items[seen_ptr[user] : seen_ptr[user + 1]]
                for lane in range(LANES):
                    score = scores[lane]
                    if score < values[last] or not score > -np.inf:
                        continue
                    item = order[start + lane]
                    if score == values[last] and item > best[last]:
                        continue
                    place = np.searchsorted(seen, item)
                    if place == seen.size or seen[place] != item:
                        insert(score, item, values, best)
