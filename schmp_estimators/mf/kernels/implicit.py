"""Block coordinate descent for implicit feedback: pairs that are missing count as zeros, without being visited.

The objective of Hu, Koren & Volinsky (ICDM 2008), with confidences c and the weight u of the pairs that are missing,

    Σ_seen c (r − ŵ)² + u Σ_missing ŵ² = Σ_seen [c (r − ŵ)² − u ŵ²] + u · tr(WᵀW HᵀH) ,    ŵ = w·h ,

needs of all pairs together only the K × K matrices WᵀW and HᵀH.  As for ratings, one round improves a chunk of eight
components of all users, then of all items: the subspaces of iALS++ (Rendle, Krichene, Zhang & Koren, 2021).  With p
the prediction that leaves the chunk out, and d = c − u, a user's part of the objective in its chunk x is

    xᵀ (d Σ h hᵀ + u G + λ) x − 2 xᵀ (Σ (c r − d p) h − u G_rest w_rest) ,    G = HᵀH ,

where h runs over the chunk of the items that the user has seen.
"""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import LANES, PRODUCTS, row_dot
from schmp_estimators.mf.kernels.ccd import SUMS, TILE, solve_tile
from schmp_estimators.mf.kernels.registers import (
    SIDE_BY_SIDE,
    add_clicks,
    add_outer,
    add_weighted_clicks,
    subtract_combination,
    subtract_four_combinations,
)

_ZERO = np.float32(0)
#: Rows of a Gram matrix that are added up in float32, before the sum goes to float64.
_RUN = 64


@kernel
def gram_rows(chunks, rows, first, step, out):
    """Compute the products of all `chunks` of some matrix with one chunk: rows of its Gram matrix.

    Parameters
    ----------
    chunks : (m, n, LANES) float32
    rows : float32, C-contiguous
        Row i of the one chunk is register ``first + step * i``.
    first, step : int
    out : (m * LANES, LANES) float64
        Mutated: entry (l, k) of block j is ``Σ_i chunks[j, i, l] * rows_i[k]``.
    """
    n = chunks.shape[1]
    block = np.empty((LANES, LANES), np.float32)
    out[:] = 0.0
    for start in range(0, n, _RUN):
        size = min(_RUN, n - start)
        for chunk in range(chunks.shape[0]):
            block[:] = _ZERO
            add_outer(block, 0, chunks, chunk * n + start, rows, first + step * start, step, size)
            for lane in range(LANES):
                for other in range(LANES):
                    out[chunk * LANES + lane, other] += block[lane, other]


@inlined
def _sum_clicks(clicks, confidences, unobserved, left, ends, row, others, number, sums, at):
    """Add to the sums of a row what its clicks say, see `add_clicks`; mutates `left` and `sums`."""
    start, stop = clicks.indptr[number], clicks.indptr[number + 1]
    ids, values = clicks.items, clicks.values
    if confidences.size > 0:
        add_weighted_clicks(sums, at, ends, row, others, ids, values, confidences, unobserved, left, start, stop)
    else:
        add_clicks(sums, at, ends, row, others, ids, values, values, unobserved, left, start, stop)


@kernel
def improve_clicks(
    clicks, confidences, unobserved, left, before, users, number, items, gram, diagonal, penalties, stop, positive
):
    """Improve a chunk of all users of a shard.

    Parameters
    ----------
    clicks : UserRatings
        The pairs that were seen; values are targets.
    confidences : (n_clicks,) float32
        Their confidences, or nothing where all are 1.
    unobserved : float32
        The weight u of a pair that is missing.
    left : (n_clicks,) float32
        Predictions, negated, without the chunk of the last round; on return without the chunk of this one.  Mutated.
    before : (n_users, LANES) float32
        Last round's chunk of the users.
    users : (n_chunks, n_users, LANES) float32
        The users, of which chunk `number` is mutated.
    number : int
    items : (n_items, 2 * LANES) float32
        Last round's chunk of the items, negated, beside this round's.
    gram : (n_chunks * LANES, LANES) float32
        ``u * HᵀH_chunk``, with zeros in the block of the chunk itself.
    diagonal : (PRODUCTS, LANES) float32
        That block, as `add_products` lays it out.
    penalties : (n_users,) float32
    stop : int
        Coordinates below this one may move.
    positive : bool
        Keep them at or above zero.

    Notes
    -----
    About 30 instructions of 8 lanes per click, and 8 K multiply-adds per user.
    """
    now = users[number]
    n_chunks, n_users = users.shape[0], users.shape[1]
    turned, fresh = np.empty((SUMS * LANES, TILE), np.float32), np.empty(TILE, np.float32)
    chunk = np.empty((LANES, TILE), np.float32)
    ends, own = np.empty((TILE, 2 * LANES), np.float32), np.empty((TILE * SUMS, LANES), np.float32)
    for start in range(0, n_users, TILE):
        size = min(TILE, n_users - start)
        for position in range(size):
            for register in range(PRODUCTS):
                for lane in range(LANES):
                    own[position * SUMS + register, lane] = diagonal[register, lane]
            for lane in range(LANES):
                own[position * SUMS + PRODUCTS, lane] = _ZERO
                ends[position, lane] = before[start + position, lane]
                ends[position, LANES + lane] = now[start + position, lane]
        together = size - size % SIDE_BY_SIDE
        for position in range(0, together, SIDE_BY_SIDE):
            at = position * SUMS + PRODUCTS
            subtract_four_combinations(own, at, SUMS, users, start + position, n_users, gram, n_chunks)
        for position in range(together, size):
            at = position * SUMS + PRODUCTS
            subtract_combination(own, at, SUMS, users, start + position, n_users, gram, n_chunks)
        for position in range(size):
            user, at = start + position, position * SUMS
            _sum_clicks(clicks, confidences, unobserved, left, ends, position, items, user, own, at)
        solve_tile(own, start, size, penalties, 0, stop, positive, now, turned, chunk, fresh)


@kernel
def gather_clicks(clicks, confidences, unobserved, left, ends, users, items, gram, sums):
    """Sum up what a chunk of the items needs of a shard.

    Parameters
    ----------
    clicks, confidences, unobserved, left
        As in `improve_clicks`, but item by item: `clicks` has the users of each.
    ends : (n_items, 2 * LANES) float32
        Last round's chunk of the items beside this round's.
    users : (n_users, 2 * LANES) float32
        The same chunks of the users, the first one negated.
    items : (m, n_items, LANES) float32
        The chunks of the items that rest with the shard.
    gram : (m * LANES, LANES) float32
        ``u * WᵀW_chunk`` for these, with zeros in the block of the chunk itself.
    sums : (n_items * SUMS, LANES) float32
        Becomes the sums over this shard.
    """
    sums[:] = _ZERO
    m, n_items = items.shape[0], items.shape[1]
    together = n_items - n_items % SIDE_BY_SIDE
    for item in range(0, together, SIDE_BY_SIDE):
        subtract_four_combinations(sums, item * SUMS + PRODUCTS, SUMS, items, item, n_items, gram, m)
    for item in range(together, n_items):
        subtract_combination(sums, item * SUMS + PRODUCTS, SUMS, items, item, n_items, gram, m)
    for item in range(n_items):
        _sum_clicks(clicks, confidences, unobserved, left, ends, item, users, item, sums, item * SUMS)


@kernel
def close_clicks(clicks, confidences, unobserved, left, user_chunk, item_chunk):
    """Put the last chunk back into `left` (mutated), and measure errors in float64.

    Returns
    -------
    squares, loss : float
        ``Σ (r − ŵ)²`` and ``Σ [c (r − ŵ)² − u ŵ²]`` over the pairs that were seen.
    """
    squares, loss, weight, confidence = 0.0, 0.0, np.float64(unobserved), 1.0
    weighted = confidences.size > 0
    for user in range(user_chunk.shape[0]):
        for click in range(clicks.indptr[user], clicks.indptr[user + 1]):
            prediction = left[click] - row_dot(user_chunk, user, item_chunk, np.intp(clicks.items[click]))
            left[click] = prediction
            if weighted:
                confidence = np.float64(confidences[click])
            error, predicted = np.float64(clicks.values[click]) + prediction, np.float64(prediction)
            squares += error * error
            loss += confidence * (error * error) - weight * (predicted * predicted)
    return squares, loss
