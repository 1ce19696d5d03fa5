"""Block coordinate descent for implicit feedback.

Missing pairs count as zeros, without being visited.

The objective of Hu, Koren & Volinsky (ICDM 2008), with confidences c and the weight u of missing
pairs, is

    Σ_seen c (r − ŵ)² + u Σ_missing ŵ² = Σ_seen [c (r − ŵ)² − u ŵ²] + u · tr(WᵀW HᵀH) ,    ŵ = w·h .

The last term, over all pairs, needs only the K × K matrices WᵀW and HᵀH.  As for ratings, one round
improves a chunk of eight components of all users, then of all items: these are the subspaces of
iALS++ (Rendle, Krichene, Zhang & Koren, 2021).  Let p be the prediction without the chunk, and d =
c − u.  The objective depends on a user's chunk x by

    xᵀ (d Σ h hᵀ + u G + λ) x − 2 xᵀ (Σ (c r − d p) h − u G_rest w_rest) ,    G = HᵀH ,

where the sums are over the chunks h of the items that the user has seen.
"""

import numpy as np

from schmp_estimators.core.jit import kernel, part
from schmp_estimators.core.lanes import LANES, ONE, PRODUCTS, ZERO, add_scaled, row_dot
from schmp_estimators.mf.kernels import registers
from schmp_estimators.mf.kernels.registers import (
    SUMS,
    TILE,
    copy_register,
    room_of_tile,
    solve_tile,
)

#: Number of rows whose products are added up in float32, before the sum is added to a total in
#: float64.
_RUN = 64


@kernel
def gram_rows(chunks, rows, first, step):
    """Return the products of all `chunks` of a matrix with one chunk.

    They are rows of its Gram matrix.

    Parameters
    ----------
    chunks : (m, n, LANES) float32
    rows : float32, C-contiguous
        Row i of the one chunk is register ``first + step * i``.
    first, step : int

    Returns
    -------
    (m * LANES, LANES) float64
        Entry (l, k) of block j is ``Σ_i chunks[j, i, l] * rows_i[k]``.
    """
    n = chunks.shape[1]
    out = np.zeros((chunks.shape[0] * LANES, LANES))
    for start in range(0, n, _RUN):
        size = min(_RUN, n - start)
        for chunk in range(chunks.shape[0]):
            left, right = chunk * n + start, first + step * start
            registers.add_outer(out, chunk * LANES, chunks, left, rows, right, step, size)
    return out


@part
def _add_rows(sums, rows, first, size, gram, ends, others, clicks, confidences, unobserved, left):
    """Add what all chunks, and the clicks, contribute to one chunk to its `sums`.

    The chunk is that of ``rows[:, first : first + size]``.
    """
    m = rows.shape[0]
    n = rows.shape[1]
    indptr, ids, values = clicks
    together = size - size % LANES
    for position in range(0, together, LANES):
        registers.subtract_some_combinations(
            sums, position * SUMS + PRODUCTS, SUMS, rows, first + position, n, gram, m
        )
    for position in range(together, size):
        registers.subtract_combination(
            sums, position * SUMS + PRODUCTS, SUMS, rows, first + position, n, gram, m
        )
    for position in range(size):
        at = position * SUMS
        begin = indptr[first + position]
        end = indptr[first + position + 1]
        registers.add_clicks(
            sums, at, ends, position, others, ids, values, confidences, unobserved, left, begin, end
        )


@kernel
def improve_clicks(
    clicks, confidences, unobserved, left, before, users, number, items, gram, diagonal, penalties,
    pull, target, stop, positive,
):  # fmt: skip
    """Improve a chunk of all users of a shard.

    Parameters
    ----------
    clicks : UserRatings
        The pairs that were seen, called clicks; values are targets.
    confidences : (n_clicks,) float32, or None
        Their confidences; None if all are 1.
    unobserved : float32
        The weight u of a missing pair.
    left : (n_clicks,) float32
        Negated predictions, without the chunk of the last round; on return without that of this
        round.  Mutated.
    before : (n_users, LANES) float32
        The users' chunk of the last round.
    users : (n_chunks, n_users, LANES) float32
        All chunks of the users; chunk `number` is mutated.
    number : int
    items : (n_items, 2 * LANES) float32
        The items' chunk of the last round, negated, beside that of this round.
    gram : (n_chunks * LANES, LANES) float32
        ``u * HᵀH_chunk``, with zeros in the block of the chunk itself.
    diagonal : (PRODUCTS, LANES) float32
        That block, in the layout of `add_products`.
    penalties : (n_users,) float32
    pull, target : (n_users, LANES) float32
        As in `ccd.improve_users`.
    stop : int
        Only coordinates below this one change.
    positive : bool
        Whether to keep them at or above zero.

    Notes
    -----
    About 30 instructions of 8 lanes per click, and 8 K multiply-adds per user.
    """
    now, n_users = users[number], users.shape[1]
    room = room_of_tile()
    nothing = np.zeros((1, LANES), np.float32)
    ends = np.empty((TILE, 2 * LANES), np.float32)
    own = np.empty((TILE * SUMS, LANES), np.float32)
    given = clicks, confidences, unobserved, left
    for start in range(0, n_users, TILE):
        size = min(TILE, n_users - start)
        for position in range(size):
            for register in range(PRODUCTS):
                copy_register(own, position * SUMS + register, diagonal, register)
            copy_register(own, position * SUMS + PRODUCTS, nothing, 0)
            if pull.shape[0]:
                add_scaled(own, position * SUMS, pull, start + position, ONE)
                copy_register(own, position * SUMS + PRODUCTS, target, start + position)
            copy_register(ends, 2 * position, before, start + position)
            copy_register(ends, 2 * position + 1, now, start + position)
        _add_rows(own, users, start, size, gram, ends, items, *given)
        solve_tile(own, start, size, penalties, 0, stop, positive, now, room)


@kernel
def gather_clicks(clicks, confidences, unobserved, left, ends, users, items, gram, sums):
    """Compute the sums over a shard that a chunk of the items needs.

    Parameters
    ----------
    clicks, confidences, unobserved, left
        As in `improve_clicks`, but by item: `clicks` has the users of each item.
    ends : (n_items, 2 * LANES) float32
        The items' chunk of the last round, negated, beside that of this round.
    users : (n_users, 2 * LANES) float32
        The same chunks of the users.
    items : (m, n_items, LANES) float32
        The chunks of the items that the shard stores.
    gram : (m * LANES, LANES) float32
        ``u * WᵀW_chunk`` for these, with zeros in the block of the chunk itself.
    sums : (n_items * SUMS, LANES) float32
        Overwritten with the sums over this shard.
    """
    sums[:] = ZERO
    given = clicks, confidences, unobserved, left
    _add_rows(sums, items, 0, items.shape[1], gram, ends, users, *given)


@kernel
def close_clicks(clicks, confidences, unobserved, left, user_chunk, item_chunk):
    """Include the last chunk in `left` again (mutated), and measure errors in float64.

    Returns
    -------
    squares, loss : float
        ``Σ (r − ŵ)²`` and ``Σ [c (r − ŵ)² − u ŵ²]`` over the pairs that were seen.
    """
    squares = 0.0
    loss = 0.0
    weight = np.float64(unobserved)
    confidence = 1.0
    for user in range(user_chunk.shape[0]):
        for click in range(clicks.indptr[user], clicks.indptr[user + 1]):
            prediction = left[click] - row_dot(
                user_chunk, user, item_chunk, np.intp(clicks.items[click])
            )
            left[click] = prediction
            if confidences is not None:
                confidence = np.float64(confidences[click])
            error = np.float64(clicks.values[click]) + prediction
            predicted = np.float64(prediction)
            squares += error * error
            loss += confidence * (error * error) - weight * (predicted * predicted)
    return squares, loss


@kernel
def pass_on(clicks, chunk, passed):
    """Add up, over the users of each item, the means of `chunk` over each user's items.

    Parameters
    ----------
    clicks : UserRatings
    chunk : (n_items, LANES) float32
    passed : (n_items, LANES) float32
        Mutated: the sums are added to it.
    """
    indptr, items, _ = clicks
    mean = np.empty((1, LANES), np.float32)
    for user in range(indptr.size - 1):
        start, stop = indptr[user], indptr[user + 1]
        mean[:] = ZERO
        share = np.float32(1 / max(stop - start, 1))
        for click in range(start, stop):
            add_scaled(mean, 0, chunk, np.intp(items[click]), share)
        for click in range(start, stop):
            add_scaled(passed, np.intp(items[click]), mean, 0, ONE)


@kernel
def centre_chunk(passed, counts, first, stop, spread, chunk):
    """Remove what is proportional to numbers of clicks from a turned chunk; scale the rest.

    The numbers are those of the items.

    Parameters
    ----------
    passed : (n_items, LANES) float32
        The result of `pass_on`.
    counts : (n_items,) int64
        Number of clicks of each item.
    first, stop : int
        Range of the coordinates that are used; those before `first` become proportional to the
        numbers of clicks.
    spread : float
        Root mean square of the coordinates afterwards.
    chunk : (n_items, LANES) float32
        Becomes the chunk; coordinates do not change if there is nothing to scale.
    """
    shares = np.zeros(LANES)
    total, lengths = 0.0, 0.0
    for item in range(counts.size):
        count = np.float64(counts[item])
        total += count
        lengths += count * count
        for lane in range(LANES):
            shares[lane] += np.float64(passed[item, lane])
    shares /= total
    squares = 0.0
    for item in range(counts.size):
        for lane in range(first, stop):
            rest = np.float64(passed[item, lane]) - counts[item] * shares[lane]
            squares += rest * rest
    scale = spread / np.sqrt(squares / (counts.size * (stop - first))) if squares > 0 else 0.0
    lead = spread / np.sqrt(lengths / counts.size)
    for item in range(counts.size):
        for lane in range(first):
            chunk[item, lane] = np.float32(lead * counts[item])
        if scale > 0:
            for lane in range(first, stop):
                chunk[item, lane] = np.float32(
                    scale * (np.float64(passed[item, lane]) - counts[item] * shares[lane])
                )
