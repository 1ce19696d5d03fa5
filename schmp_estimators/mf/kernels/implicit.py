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

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import (
    LANES,
    PRODUCTS,
    SIDE_BY_SIDE,
    add_outer,
    add_products,
    add_scaled,
    add_scaled_products,
    row_dot,
    subtract_combination,
    subtract_four_combinations,
)
from schmp_estimators.mf.kernels.ccd import SUMS, TILE, solve_tile

_ZERO, _ONE = np.float32(0), np.float32(1)
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


@kernel
def improve_clicks(
    ratings, confidences, unobserved, predictions, before, users, number, items, gram, diagonal, penalties, stop,
    positive,
):  # fmt: skip
    """Improve a chunk of all users of a shard.

    Parameters
    ----------
    ratings : UserRatings
        The pairs that were seen; values are targets.
    confidences : (n_ratings,) float32
        Their confidences, or nothing where all are 1.
    unobserved : float32
        The weight u of a pair that is missing.
    predictions : (n_ratings,) float32
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
    About 14 instructions of 8 lanes per pair, and 8 K multiply-adds per user.
    """
    now = users[number]
    n_chunks, n_users = users.shape[0], users.shape[1]
    turned, fresh = np.empty((SUMS * LANES, TILE), np.float32), np.empty(TILE, np.float32)
    chunk = np.empty((LANES, TILE), np.float32)
    ends, own = np.empty((TILE, 2 * LANES), np.float32), np.empty((TILE * SUMS, LANES), np.float32)
    weighted, extra = confidences.size > 0, _ONE - unobserved
    for start in range(0, n_users, TILE):
        size = min(TILE, n_users - start)
        for position in range(size):
            for register in range(PRODUCTS):
                for lane in range(LANES):
                    own[position * SUMS + register, lane] = diagonal[register, lane]
            for lane in range(LANES):
                own[position * SUMS + PRODUCTS, lane] = _ZERO
        together = size - size % SIDE_BY_SIDE
        for position in range(0, together, SIDE_BY_SIDE):
            at = position * SUMS + PRODUCTS
            subtract_four_combinations(own, at, SUMS, users, start + position, n_users, gram, n_chunks)
        for position in range(together, size):
            at = position * SUMS + PRODUCTS
            subtract_combination(own, at, SUMS, users, start + position, n_users, gram, n_chunks)
        for position in range(size):
            user = start + position
            for lane in range(LANES):
                ends[position, lane], ends[position, LANES + lane] = before[user, lane], now[user, lane]
            at = position * SUMS
            for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
                item = np.intp(ratings.items[rating])
                prediction = predictions[rating] + row_dot(ends, position, items, item)
                predictions[rating] = prediction
                pull = ratings.values[rating]
                if weighted:
                    extra = confidences[rating] - unobserved
                    pull *= confidences[rating]
                add_scaled_products(own, at, items, 2 * item + 1, extra)
                add_scaled(own, at + PRODUCTS, items, 2 * item + 1, pull + extra * prediction)
        solve_tile(own, start, size, penalties, 0, stop, positive, now, turned, chunk, fresh)


@kernel
def gather_clicks(ratings, confidences, unobserved, predictions, now, items, gram, sums):
    """Sum up what a chunk of the items needs of a shard.

    Parameters
    ----------
    ratings, confidences, unobserved, predictions
        As `improve_clicks` leaves them.
    now : (n_users, LANES) float32
        The chunk of the users.
    items : (m, n_items, LANES) float32
        The chunks of the items that rest with the shard.
    gram : (m * LANES, LANES) float32
        ``u * WᵀW_chunk`` for these, with zeros in the block of the chunk itself.
    sums : (n_items * SUMS, LANES) float32
        Becomes the sums over this shard.
    """
    sums[:] = _ZERO
    products = np.empty((PRODUCTS, LANES), np.float32)
    weighted, extra = confidences.size > 0, _ONE - unobserved
    m, n_items = items.shape[0], items.shape[1]
    together = n_items - n_items % SIDE_BY_SIDE
    for item in range(0, together, SIDE_BY_SIDE):
        subtract_four_combinations(sums, item * SUMS + PRODUCTS, SUMS, items, item, n_items, gram, m)
    for item in range(together, n_items):
        subtract_combination(sums, item * SUMS + PRODUCTS, SUMS, items, item, n_items, gram, m)
    for user in range(now.shape[0]):
        products[:] = _ZERO
        add_products(products, 0, now, user)
        for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
            at = np.intp(ratings.items[rating]) * SUMS
            pull = ratings.values[rating]
            if weighted:
                extra = confidences[rating] - unobserved
                pull *= confidences[rating]
            for register in range(PRODUCTS):
                add_scaled(sums, at + register, products, register, extra)
            add_scaled(sums, at + PRODUCTS, now, user, pull + extra * predictions[rating])


@kernel
def close_clicks(ratings, confidences, unobserved, predictions, user_chunk, item_chunk):
    """Put the last chunk back into `predictions` (mutated), and measure errors in float64.

    Returns
    -------
    squares, loss : float
        ``Σ (r − ŵ)²`` and ``Σ [c (r − ŵ)² − u ŵ²]`` over the pairs that were seen.
    """
    squares, loss, weight, confidence = 0.0, 0.0, np.float64(unobserved), 1.0
    weighted = confidences.size > 0
    for user in range(user_chunk.shape[0]):
        for rating in range(ratings.indptr[user], ratings.indptr[user + 1]):
            prediction = predictions[rating] - row_dot(user_chunk, user, item_chunk, np.intp(ratings.items[rating]))
            predictions[rating] = prediction
            if weighted:
                confidence = np.float64(confidences[rating])
            error, predicted = np.float64(ratings.values[rating]) + prediction, np.float64(prediction)
            squares += error * error
            loss += confidence * (error * error) - weight * (predicted * predicted)
    return squares, loss
