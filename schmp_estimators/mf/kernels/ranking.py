"""The best items for users; of most items, only the first components are looked at."""

from typing import NamedTuple

import numpy as np
from numba import types

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import LANES, emitted, pad_rows, padded_width, row_dot, zero_rows
from schmp_estimators.core.typing import Floats32
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.foldin import insert
from schmp_estimators.mf.kernels.registers import fold_eight

#: Items whose heads stay in the first cache while users pass by.
_BLOCK = 8 * LANES


class Vectors(NamedTuple):
    """Vectors of users or items."""

    rows: Floats32  #: (n, width); n is a multiple of `LANES`, the last rows are zeros
    heads: Floats32  #: (n, about width / 4) the first components
    #: (n,) lengths of the others, and a little more: a product of two is at least that of the
    #: lengths and a bound on what rounding adds to the product of two rows.
    tails: Floats32


def as_vectors(given: Floats32) -> Vectors:
    """Return vectors, given their components (n, n_components)."""
    rows = zero_rows(padded_width(len(given)), given.shape[1])
    rows[: len(given), : given.shape[1]] = given
    width = rows.shape[1]
    head = padded_width(width // 4)
    whole, rest = (
        np.sqrt(np.einsum("nk,nk->n", part, part, dtype=np.float64))
        for part in (rows, rows[:, head:])
    )
    tails = rest + np.sqrt(2 * np.finfo(np.float32).eps * width) * whole
    return freeze(Vectors(rows, pad_rows(rows[:, :head]), tails.astype(np.float32)))


@emitted(lambda *kinds: types.boolean)
def _are_below(code, most, mine, row, tail, heads, tails, bias, item, limit):
    """Set `most` (LANES,) to bounds on the scores of eight items.

    Returns whether all are below `limit`.
    """
    head = heads.shape[1]
    sums = code.totals(LANES)
    with code.loop(0, head, LANES) as at:
        left = mine.load(row * head + at)
        for n, total in enumerate(sums):
            total.add(left * heads.load((item + n) * head + at))
    products = fold_eight([total.value for total in sums])
    bounds = products + tails.load(item) * tail.spread() + bias.load(item)
    most.store(item - item, bounds)
    return limit.spread().exceeds(bounds).all()


@kernel
def top_items(users, items, order, bias, seen_ptr, seen_items, out_items, out_scores):
    """Find the items with the largest ``b_i + w_u·h_i`` for each user.

    Those in the user's list of seen items are left out.

    Parameters
    ----------
    users, items : Vectors
    order : (n_items,) int64
        Their numbers: the sooner the best are found, the fewer others are read.
    bias : float32
        As long as `items`; -inf if an item may not be found.
    seen_ptr : (n + 1,) int64
        Offsets of the users' lists in `seen_items`.
    seen_items : int32
        Ascending in each list.
    out_items, out_scores : (n, n_top) int64 and float32
        Mutated: best first, of equal scores the lower number first; -1 and -inf if no item is left.

    Notes
    -----
    A product is at most that of the heads plus that of the lengths of the tails.  If this is too
    little, the rest of an item is not read: Teflioudi, Gemulla & Mykytiuk, "LEMP", SIGMOD 2015,
    section 4.
    """
    mine, my_heads, my_tails = users
    rows, heads, tails = items
    last = out_items.shape[1] - 1
    most = np.empty(LANES, np.float32)
    out_items[:] = -1
    out_scores[:] = -np.inf
    for block in range(0, bias.size, _BLOCK):
        for user in range(out_items.shape[0]):
            tail = my_tails[user]
            for start in range(block, min(block + _BLOCK, bias.size), LANES):
                limit = out_scores[user, last]
                if _are_below(most, my_heads, user, tail, heads, tails, bias, start, limit):
                    continue
                best, scores = out_items[user], out_scores[user]
                seen = seen_items[seen_ptr[user] : seen_ptr[user + 1]]
                for lane in range(min(LANES, order.size - start)):
                    if most[lane] < scores[last]:
                        continue
                    item = order[start + lane]
                    at = start + lane
                    score = bias[at] + row_dot(mine, user, rows, at)
                    if score > scores[last] or (score == scores[last] and item < best[last]):
                        place = np.searchsorted(seen, item)
                        if place == seen.size or seen[place] != item:
                            insert(score, item, scores, best)
