"""Gibbs sampling of documents with word counts frozen for the sweep.

A token of word w in document d gets a new topic with probabilities::

    p(k)  proportional to  (n_dk + alpha_k) (n_wk + beta) / (n_k + V beta)

with the token itself taken out of all three counts.  The counts of the document are the present
ones.  Those of the word and the totals are of the beginning of the sweep, and were made into rows
``q_k = (n_wk + beta) / (n_k + V beta)`` by `take_rows`.  A token keeps the topic that it had then
until it gets its new one.  So only one weight differs from the product of the document's row and
the word's.

A draw is a chain of steps that wait for each other, and a processor could do several such chains at
a time.  Tokens of one document have to wait for each other, but documents do not depend on each
other within a sweep.  So `SLOTS` documents are sampled side by side, one token of each in turn.  A
processor looks some hundred instructions ahead, which is about one draw.  So each of the three
parts of a draw is done for all slots before the next part.  Random bits are addressed by the
token's position in document order.  Topics depend neither on slots nor on how documents are
divided.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import index, inlined, kernel, maker, part
from schmp_estimators.core.lanes import empty_rows, prefetch
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.typing import (
    AnySigned,
    Array,
    Floats,
    Floats32,
    Integers,
    Integers32,
    Unsigned32,
)
from schmp_estimators.lda.blocks import Prior
from schmp_estimators.lda.kernels.draw import (
    LANES,
    add_products,
    find_lane,
    find_topic,
    padded,
    select,
    uniform24,
)
from schmp_estimators.lda.kernels.priors import add_seeds, beta_of, make_row, where_given
from schmp_estimators.lda.kernels.rows import add_row

#: Documents sampled side by side: with four at K = 100 a token takes 55 ns, with six 50, with eight
#: 51.
SLOTS = 6
#: How many tokens ahead the word row of a token is fetched into the cache: with one a token takes
#: 53 ns.
_AHEAD = 2
#: Counts up to this can be computed from their float32 weights; beyond, one token is less than the
#: rounding.
_EXACT = 2.0**20
#: Beyond this, a count with its seeds loses no more than 1e-5 of itself by the rounding of a
#: weight.
_SMALL = 1.01
#: If all weights are smaller, they may have lost some or all of their bits.
_TINY = np.float32(1e-30)


def make_table(n_words: int, n_topics: int) -> Floats32:
    """Return an array for weights of words, (n_words, padded K), aligned to a cache line."""
    return empty_rows(n_words, padded(n_topics))


class Frozen(NamedTuple):
    """What tokens read and nobody changes in a sweep."""

    #: Weights of words, from `take_rows`, one row of padded K after the other.
    rows: Floats32
    #: (K,) document-topic prior.
    alpha: Floats
    #: (K,) ``n_k + V beta``, and the inverse of that with one token less.
    both: Floats
    less: Floats
    beta: float


def frozen_of(rows: Array, alpha: Array, total: Array, beta: float, beta_sum: Prior) -> Frozen:
    """Return what tokens read, given weights, priors and the tokens of topics.

    The tokens of earlier batches are included.

    `beta_sum` is the prior of all words together, with seeds one number for each topic.
    """
    both = np.asarray(total + beta_sum, np.float64)
    with np.errstate(divide="ignore"):  # of a topic without tokens, which no token reads
        less = np.asarray(1.0 / (total - 1 + beta_sum), np.float64)
    return Frozen(rows.reshape(-1), alpha, both, less, beta)


#: What there is of a document under way: its number `document`, -1 for none; in document order its
#: next token `at`, and the `end` of its tokens.  Of the token that is being sampled: its place
#: `own` in `Slots.topics`, its `old` topic, and where the `row` of its word begins; the `weight` of
#: its topic without it, and the document's part of that, `left`; its random number `uniform`; the
#: `total` of all weights; the `lane` of its new topic, and how far in the lane that is, `rest`.
SLOT = np.dtype(
    [
        *((name, "i8") for name in ("document", "at", "end", "own", "old", "row", "lane")),
        ("weight", "f8"),
        *((name, "f4") for name in ("left", "uniform", "rest", "total")),
    ]
)


class Slots(NamedTuple):
    """The documents under way, each with a row of its own in all arrays."""

    #: (SLOTS,) of `SLOT`.
    slot: NDArray[np.void]
    #: (SLOTS * longest,) topics of its tokens, at the end of the slot's part.
    topics: AnySigned
    #: (SLOTS * padded K,) tokens of each topic, and with alpha added.
    counts: Integers32
    weights: Floats32
    #: (SLOTS * (padded K + LANES),) what `add_products` keeps.
    sums: Floats32
    #: Padded K, and the room for topics of a document.
    width: int
    longest: int
    #: Of the shard, and the topics of its tokens, word-major.
    doc_ptr: Integers
    place: Unsigned32
    topic: AnySigned


def make_slots(lengths: Integers, n_topics: int, dtype: Any) -> tuple[Array, ...]:
    """Return `slot`, `topics` and `counts` of empty `Slots`, for documents of such lengths.

    They are made in Python, since a kernel that makes arrays takes longer to compile.  The kernel
    makes weights and sums itself, so that LLVM knows that no other array overlaps them: else a
    token takes a tenth more.
    """
    slot = np.zeros(SLOTS, SLOT)
    slot["document"] = -1
    topics = np.empty(SLOTS * int(lengths.max(initial=0)), dtype)
    return slot, topics, np.zeros(SLOTS * padded(n_topics), np.int32)


@maker
def _zeros_of_lines(size):
    """Return zeros that begin with a line of the cache."""
    whole = np.empty(size + LANES, np.float32)
    for i in range(len(whole)):  # `np.zeros` takes longer to compile
        whole[i] = 0.0
    start = (-(np.int64(whole.ctypes.data) >> 2)) & (LANES - 1)
    return whole[start : start + size]


@where_given(
    lambda seeds, row, topic, count, beta: (
        count - 1.0 if count > _EXACT else max(np.rint(count - beta) - 1.0, 0.0) + beta
    )
)
def _count_without(seeds, row, topic, count, beta):
    """Return a word's tokens in a topic and its prior, with one token taken out.

    `count` may be rounded.

    To look up seeds takes time, so only small counts are made exact.
    """
    if count > _SMALL:
        return count - 1.0
    prior = beta_of(seeds, row, topic, beta)
    return max(np.rint(count - prior) - 1.0, 0.0) + prior


@part
def _draw_small(counts, base, alpha, rows, row, own, own_weight, uniform):
    """Draw a topic in float64, where float32 weights may have become zero.

    The weights are added up one after the other.

    Parameters
    ----------
    counts : int32
        Those of the document's other tokens begin at `base`.
    alpha : (K,) float64
        Document-topic prior.
    rows : float32
        That of the word begins at `row`.
    own, own_weight : int and float
        The token's topic, and its weight.
    uniform : float32
        In [0, 1).

    Returns
    -------
    int
    """
    total = 0.0
    point = np.inf
    while True:
        for k in range(len(alpha)):
            weight = (
                own_weight
                if k == own
                else (counts[base + k] + alpha[k]) * np.float64(rows[row + k])
            )
            total += weight
            if point < weight:
                return k
            point -= weight
        if point < np.inf:
            return len(alpha) - 1
        point = np.float64(uniform) * total


@inlined
def _leave(number, n_topics, slots, totals):
    """Write the topics of a slot's document, and add them to `totals`."""
    slot, base = slots.slot[number], number * slots.width
    behind = (number + 1) * slots.longest - slot.end
    for i in range(slots.doc_ptr[slot.document], slot.end):
        slots.topic[index(slots.place[index(i)])] = slots.topics[index(behind + i)]
    for k in range(n_topics):
        totals[k] += slots.counts[base + k]
        slots.counts[base + k] = 0
    slot.document = -1


@inlined
def _enter(number, document, alpha, slots):
    """Give a slot, which has no counts, to a document."""
    start, end = slots.doc_ptr[document], slots.doc_ptr[document + 1]
    base = number * slots.width
    behind = (number + 1) * slots.longest - end
    for i in range(start, end):
        k = slots.topic[index(slots.place[index(i)])]
        slots.topics[index(behind + i)] = k
        slots.counts[index(base) + index(k)] += 1
    for k in range(len(alpha)):
        slots.weights[base + k] = np.float32(slots.counts[base + k] + alpha[k])
    slot = slots.slot[number]
    slot.document, slot.at, slot.end = document, start, end


@inlined
def _change_slots(following, last, alpha, slots, totals):
    """Give slots whose documents are done to those from `following` on.

    Return how many tokens of every document under way can be sampled now, 0 if there is none, and
    the document that follows.
    """
    n_steps = np.int64(0)
    for number in range(SLOTS):
        slot = slots.slot[number]
        if slot.document >= 0 and slot.at == slot.end:
            _leave(number, len(alpha), slots, totals)
        while slot.document < 0 and following < last:
            if slots.doc_ptr[following] < slots.doc_ptr[following + 1]:
                _enter(number, following, alpha, slots)
            following += 1
        if slot.document >= 0:
            left = slot.end - slot.at
            if n_steps == 0 or left < n_steps:
                n_steps = left
    return n_steps, following


@inlined
def _fetch(rows, row, width):
    """Fetch a row of a word into the cache."""
    for line in range(0, width, LANES):
        prefetch(rows, row + line)


@inlined
def _put(slot, base, new, alpha, slots):
    """Give the token of a slot, whose rows begin at `base`, its new topic."""
    slots.weights[index(base + slot.old)] = slot.left
    n = slots.counts[index(base + new)] + np.int32(1)
    slots.counts[index(base + new)] = n
    slots.weights[index(base + new)] = np.float32(n + alpha[index(new)])
    slots.topics[index(slot.own)] = new


@kernel
def take_rows(first, last, words, block, inverse, beta, rows, seeds):
    """Write rows of words of a block.

    Parameters
    ----------
    first, last : int
        Range of rows.
    words : (n_rows,) int64
        Word of each row: its number in the block.
    block : WordBlock
        Counts of the words, earlier batches included.
    inverse : (K,) float64
        ``1 / (n_k + V beta)``, earlier batches included; where words are seeded, with the seeds of
        each topic.
    beta : float
        Topic-word prior.
    rows : (n_rows, padded K) float32
        Mutated: ``(n_wk + beta) / (n_k + V beta)``, with seeds where there are, then zeros.
    seeds : SeedRows or None
        Of the words that have rows.

    Notes
    -----
    0.5 ns per token of a tail word in all shards, and 0.3 ns per entry of the rows.
    """
    row = make_row(seeds, len(inverse))
    for at in range(first, last):
        add_row(block, words[at], row)
        add_seeds(seeds, at, row)
        for k in range(len(row)):
            rows[at, k] = (row[k] + beta) * inverse[k]
            row[k] = 0
        for k in range(len(row), rows.shape[1]):
            rows[at, k] = 0.0


@kernel
def sample_documents(first, last, shard, word, topic, frozen, key, made, totals, seeds):
    """Sample the tokens of some documents of a shard.

    Parameters
    ----------
    first, last : int
        Range of documents.
    shard : TokenShard
        Any.
    word : (n_tokens,) uint32
        Row of each token's word, in document order.
    topic : (n_tokens,) uint8, int16 or int32
        Mutated: topics, word-major.
    frozen : Frozen
        From `frozen_of`.
    key : uint64
        Stream of this sweep.
    made : tuple of arrays
        From `make_slots` for these documents.
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
    rows, alpha = frozen.rows, frozen.alpha
    begun, topics, counts = made
    n_topics = len(alpha)
    width = len(counts) // SLOTS
    longest = len(topics) // SLOTS
    size = width + LANES
    weights, sums = _zeros_of_lines(SLOTS * width), _zeros_of_lines(SLOTS * size)
    slots = Slots(
        begun, topics, counts, weights, sums, width, longest, shard.doc_ptr, shard.place, topic
    )
    moved = 0
    following = first
    while True:
        n_steps, following = _change_slots(following, last, alpha, slots, totals)
        if n_steps == 0:
            return moved
        for _ in range(n_steps):
            for k in range(SLOTS):
                slot, base = slots.slot[k], k * width
                if slot.document < 0:  # in the end there are fewer documents than slots
                    continue
                i = slot.at
                slot.at = i + 1
                if i + _AHEAD < len(word):
                    _fetch(rows, np.int64(word[index(i + _AHEAD)]) * width, width)
                number = np.int64(word[index(i)])
                row = number * width
                own = index((k + 1) * longest - slot.end + i)
                old = np.int64(topics[own])
                n = counts[index(base + old)] - np.int32(1)
                counts[index(base + old)] = n
                left = n + alpha[index(old)]
                count = np.float64(rows[index(row + old)]) * frozen.both[index(old)]
                count = _count_without(seeds, number, old, count, frozen.beta)
                weight = left * (count * frozen.less[index(old)])
                slot.total = add_products(
                    weights, base, rows, row, width, old, np.float32(weight), sums, k * size
                )
                slot.own, slot.old, slot.row, slot.weight, slot.left = own, old, row, weight, left
                slot.uniform = uniform24(mix(key + np.uint64(shard.first_token + i) * GAMMA))
            for k in range(SLOTS):
                slot = slots.slot[k]
                if slot.document >= 0:
                    end = k * size + width
                    lane, rest = find_lane(sums, end, LANES, slot.uniform * slot.total)
                    # Rounding may lead beyond the lane: the rest is less than the sum of the lane,
                    # by one bit at least.
                    below = np.int32(sums[index(end - LANES + lane)].view(np.int32) - 1).view(
                        np.float32
                    )
                    slot.lane = lane
                    slot.rest = select(rest < below, rest, below)
            for k in range(SLOTS):
                slot, base = slots.slot[k], k * width
                if slot.document < 0:
                    continue
                new = find_topic(sums, k * size, width, slot.lane, slot.rest)
                old = slot.old
                if slot.total < _TINY or new >= n_topics:
                    new = _draw_small(
                        counts, base, alpha, rows, slot.row, old, slot.weight, slot.uniform
                    )
                _put(slot, base, new, alpha, slots)
                moved += new != old
