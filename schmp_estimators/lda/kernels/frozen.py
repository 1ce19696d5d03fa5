"""Gibbs sampling of documents with word counts frozen for the sweep.

A token of word w in document d gets a new topic with probabilities::

    p(k)  proportional to  (n_dk + alpha_k) (n_wk + beta) / (n_k + V beta)

with the token itself taken out of all three counts.  Those of the document are live; those of the word and the totals
are of the beginning of the sweep, and lie ready as rows ``q_k = (n_wk + beta) / (n_k + V beta)`` (`take_rows`).  A
token's topic is what it was at that time until it gets its new one, so only one weight differs from the product of the
document's row and the word's.

A draw is a chain of dependent steps, each waiting for the one before, and a processor could do several at a time.
Tokens of one document have to wait for each other, but documents know nothing of each other within a sweep: so `SEATS`
documents are sampled side by side, one token of each in turn.  A processor looks some hundred instructions ahead, which
is about one draw.  So each of its three parts is done for all seats before the next one: then the steps that wait for
nothing are near each other.  Random bits are addressed by the token's position in document order.  Topics depend
neither on seats nor on how documents are divided.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel, maker
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.kernels.document_priors import alpha_at
from schmp_estimators.lda.kernels.draw import LANES, add_products, find_lane, find_topic
from schmp_estimators.lda.kernels.rows import add_row
from schmp_estimators.lda.kernels.warp import uniform24
from schmp_estimators.lda.kernels.warp_documents import longest_document
from schmp_estimators.lda.kernels.word_priors import add_seeds, beta_of, make_row

#: Documents sampled side by side: with four at K = 100 a token takes 55 ns, with six 50, with eight 51.
SEATS = 6
#: The word row of the token that comes so many tokens later is fetched into the cache: with one it takes 53 ns.
_AHEAD = 2
#: A float32 weight tells the count that it was made of up to here; beyond, one token more or less is below rounding.
_EXACT = 2.0**20
#: Where all weights are smaller, they may have lost bits, or all of them.
_TINY = np.float32(1e-30)


class Frozen(NamedTuple):
    """What tokens read and nobody changes in a sweep."""

    #: (n_rows, padded K) weights of the words, from `take_rows`.
    rows: NDArray[np.float32]
    #: (K,) document-topic prior.
    alpha: NDArray[np.float64]
    #: (K,) counts of each topic, earlier batches included.
    total: NDArray[np.int64]
    beta: float
    #: V beta: a number, or one for each topic, with its seeds.
    beta_sum: float | NDArray[np.float64]


#: What there is of a document under way, and of its token that is being sampled.
SEAT = np.dtype(
    [
        #: Number of the document, -1 for none; its next token, and the end of its tokens, in document order.
        ("document", np.int64),
        ("at", np.int64),
        ("end", np.int64),
        #: Of the token: its place in `Seats.topics`, its topic, and where the row of its word begins.
        ("own", np.int64),
        ("old", np.int64),
        ("row", np.int64),
        #: Lane of the new topic.
        ("lane", np.int64),
        #: Weight of its topic without the token, and the document's part of that.
        ("weight", np.float64),
        ("left", np.float32),
        ("uniform", np.float32),
        #: How far in the lane the new topic is, and the sum of all weights.
        ("rest", np.float32),
        ("total", np.float32),
    ]
)


class Seats(NamedTuple):
    """The documents under way, each with a row of its own in all arrays."""

    #: (SEATS,) of `SEAT`.
    seat: NDArray[np.void]
    #: (SEATS * longest,) topics of its tokens, at the end of the seat's part.
    topics: NDArray[np.signedinteger]
    #: (SEATS * padded K,) tokens of each topic, and with alpha added.
    counts: NDArray[np.int32]
    weights: NDArray[np.float32]


@inlined
def _weight_without(q, beta, total_and_prior, inverse_less):
    """Return a word's weight in the topic of one of its tokens with that token taken out, given the weight with it."""
    count = np.float64(q) * total_and_prior
    count = count - 1.0 if count > _EXACT else max(np.rint(count - beta) - 1.0, 0.0) + beta
    return count * inverse_less


@maker
def _draw_small(counts, alpha, row, own, own_weight, uniform):
    """Draw a topic where float32 does not tell the weights from zero: one after the other, in float64.

    Parameters
    ----------
    counts : (at least K,) int32
        Of the document's other tokens.
    alpha : (K,) float64
        Document-topic prior.
    row : (padded K,) float32
        Of the word.
    own, own_weight : int and float
        The token's topic, and its weight.
    uniform : float32
        In [0, 1).

    Returns
    -------
    int
    """
    weights = np.empty(len(alpha))
    total = 0.0
    for k in range(len(alpha)):
        weights[k] = own_weight if k == own else (counts[k] + alpha[k]) * np.float64(row[k])
        total += weights[k]
    point, k = np.float64(uniform) * total, 0
    while k < len(alpha) - 1 and point >= weights[k]:
        point -= weights[k]
        k += 1
    return k


@maker
def _aligned(size):
    """Return zeros that begin with a line of the cache."""
    whole = np.zeros(size + LANES, np.float32)
    start = (-(np.int64(whole.ctypes.data) >> 2)) & (LANES - 1)
    return whole[start : start + size]


@inlined
def _leave(number, shard, topic, n_topics, width, longest, seats, totals):
    """Write the topics of a seat's document, and add them to `totals`."""
    seat, base = seats.seat[number], number * width
    behind = (number + 1) * longest - seat.end
    for i in range(shard.doc_ptr[seat.document], seat.end):
        topic[np.uint64(shard.place[np.uint64(i)])] = seats.topics[np.uint64(behind + i)]
    for k in range(n_topics):
        totals[k] += seats.counts[base + k]
        seats.counts[base + k] = 0
    seat.document = -1


@inlined
def _enter(number, document, shard, topic, alpha, width, longest, seats):
    """Give a seat, which has no counts, to a document."""
    start, end, base = shard.doc_ptr[document], shard.doc_ptr[document + 1], number * width
    behind = (number + 1) * longest - end
    for i in range(start, end):
        k = topic[np.uint64(shard.place[np.uint64(i)])]
        seats.topics[np.uint64(behind + i)] = k
        seats.counts[np.uint64(base) + np.uint64(k)] += 1
    for k in range(len(alpha)):
        seats.weights[base + k] = np.float32(seats.counts[base + k] + alpha[k])
    seat = seats.seat[number]
    seat.document, seat.at, seat.end = document, start, end


@inlined
def _change_seats(following, last, shard, topic, alpha, width, longest, seats, totals):
    """Give seats whose documents are done to those from `following` on.

    Return how many tokens of every document under way can be sampled now, 0 if there is none, and the document that
    follows.
    """
    n_steps = np.int64(0)
    for number in range(SEATS):
        seat = seats.seat[number]
        if seat.document >= 0 and seat.at == seat.end:
            _leave(number, shard, topic, len(alpha), width, longest, seats, totals)
        while seat.document < 0 and following < last:
            if shard.doc_ptr[following] < shard.doc_ptr[following + 1]:
                _enter(number, following, shard, topic, alpha, width, longest, seats)
            following += 1
        if seat.document >= 0:
            left = seat.end - seat.at
            n_steps = min(n_steps, left) if n_steps else left
    return n_steps, following


@inlined
def _fetch(rows, row, width):
    """Fetch a row of a word into the cache."""
    for line in range(0, width, LANES):
        prefetch(rows, row + line)


@inlined
def _put(seat, base, new, alpha, seats):
    """Give the token of a seat, whose rows begin at `base`, its new topic."""
    seats.weights[np.uint64(base + seat.old)] = seat.left
    n = seats.counts[np.uint64(base + new)] + np.int32(1)
    seats.counts[np.uint64(base + new)] = n
    seats.weights[np.uint64(base + new)] = np.float32(n + alpha[np.uint64(new)])
    seats.topics[np.uint64(seat.own)] = new


@kernel
def take_rows(first, last, words, block, total, beta, beta_sum, rows, seeds):
    """Write rows of words of a block.

    Parameters
    ----------
    first, last : int
        Range of rows.
    words : (n_rows,) int64
        Word of each row: its number in the block.
    block : WordBlock
        Counts of the words, earlier batches included.
    total : (K,) int64
        Counts of the topics, earlier batches included.
    beta : float
        Topic-word prior.
    beta_sum : float or (K,) float64
        V beta; where words are seeded, with the seeds of each topic.
    rows : (n_rows, padded K) float32
        Mutated: ``(n_wk + beta) / (n_k + V beta)``, with seeds where there are, then zeros.
    seeds : SeedRows or None
        Of the words that have rows.

    Notes
    -----
    0.5 ns per token of a tail word in all shards, and 0.3 ns per entry of the rows.
    """
    row, inverse = make_row(seeds, len(total)), np.empty(len(total))
    for k in range(len(total)):
        inverse[k] = 1.0 / (total[k] + alpha_at(beta_sum, k))
    for at in range(first, last):
        add_row(block, words[at], row)
        add_seeds(seeds, at, row)
        for k in range(len(row)):
            rows[at, k] = (row[k] + beta) * inverse[k]
            row[k] = 0
        for k in range(len(row), rows.shape[1]):
            rows[at, k] = 0.0


@kernel
def sample_documents(first, last, shard, word, topic, frozen, key, totals, seeds):
    """Sample the tokens of some documents of a shard.

    Parameters
    ----------
    first, last : int
        Range of documents.
    shard : TokenShard
        Any.
    word : (n_tokens,) uint32
        Row of each token's word, in document order.
    topic : (n_tokens,) int16 or int32
        Mutated: topics, word-major.
    frozen : Frozen
        Any.
    key : uint64
        Stream of this sweep.
    totals : (K,) int64
        Mutated: the tokens' new topics are added.
    seeds : SeedRows or None
        Of the words that have rows.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    31 ns per token at K = 16, 38 at 48, 50 at 100, 75 at 200.
    """
    alpha, beta, n_topics, width = frozen.alpha, frozen.beta, len(frozen.alpha), frozen.rows.shape[1]
    rows, longest = frozen.rows.reshape(-1), longest_document(first, last, shard.doc_ptr)
    total_and_prior = frozen.total + frozen.beta_sum
    inverse_less = 1.0 / (frozen.total - 1 + frozen.beta_sum)
    size = width + 2 * LANES
    sums, numbers = _aligned(SEATS * size), np.arange(width, dtype=np.int32)
    topics, counts = np.empty(SEATS * longest, topic.dtype), np.zeros(SEATS * width, np.int32)
    weights = _aligned(SEATS * width)
    seats = Seats(np.zeros(SEATS, SEAT), topics, counts, weights)
    for k in range(SEATS):
        seats.seat[k].document = -1
    moved, following = 0, first
    while True:
        n_steps, following = _change_seats(following, last, shard, topic, alpha, width, longest, seats, totals)
        if n_steps == 0:
            return moved
        for _ in range(n_steps):
            for k in range(SEATS):
                seat, base = seats.seat[k], k * width
                if seat.document < 0:  # in the end there are fewer documents than seats
                    continue
                i = seat.at
                seat.at = i + 1
                if i + _AHEAD < len(word):
                    _fetch(rows, np.int64(word[np.uint64(i + _AHEAD)]) * width, width)
                number = np.int64(word[np.uint64(i)])
                row = number * width
                own = np.uint64((k + 1) * longest - seat.end + i)
                old = np.int64(topics[own])
                n = counts[np.uint64(base + old)] - np.int32(1)
                counts[np.uint64(base + old)] = n
                left = n + alpha[np.uint64(old)]
                own_beta = beta_of(seeds, number, old, beta)
                q = _weight_without(
                    rows[np.uint64(row + old)], own_beta, total_and_prior[np.uint64(old)], inverse_less[np.uint64(old)]
                )
                weight = left * q
                add_products(weights, base, rows, row, width, old, np.float32(weight), numbers, sums, k * size)
                seat.own, seat.old, seat.row, seat.weight, seat.left = own, old, row, weight, left
                seat.uniform = uniform24(mix(key + np.uint64(shard.first_token + i) * GAMMA))
            for k in range(SEATS):
                seat = seats.seat[k]
                if seat.document >= 0:
                    seat.lane, seat.rest, seat.total = find_lane(sums, k * size, width, seat.uniform)
            for k in range(SEATS):
                seat, base = seats.seat[k], k * width
                if seat.document < 0:
                    continue
                new, old = find_topic(sums, k * size, width, seat.lane, seat.rest), seat.old
                if seat.total < _TINY or new >= n_topics:
                    new = _draw_small(
                        counts[base : base + width], alpha, rows[seat.row : seat.row + width], old, seat.weight,
                        seat.uniform,
                    )  # fmt: skip
                _put(seat, base, new, alpha, seats)
                moved += new != old
