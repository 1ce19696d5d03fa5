"""The word pass of the frozen-count sampler (WarpLDA: Chen et al., VLDB 2016, sections 4 and 5).

A token of word w has a current topic s and a pending proposal t that was drawn from its document.
With the counts of the word frozen at the start of the pass, and this token taken out of them::

    accept t with probability min(1, (n_wt + beta) (n_s + V beta) / ((n_ws + beta) (n_t + V beta)))
    then draw a new proposal from the word: q(k) proportional to n_wk + beta

With seeds a word has ``beta + s_wk`` in place of beta.

Random bits are addressed by the token's rank among the tokens of its word, so that the result
depends neither on the order of the tokens nor on how documents and words are divided.

A draw maps x in [0, n_w + K beta) to a topic: for a tail word slot x of the list of its tokens'
topics, for a head word the inverse distribution function of its row in topic order; from n_w on a
uniform topic, or from K beta more on one of the seeds.

The tokens of a word may lie in several pieces, one from each shard that has some.  The word's row
is made of them where they are all tokens of the word, and else taken from a block.

Topics and pending proposals lie side by side in word-major order, ``1 + mh_steps`` to a token;
kernels see them as one flat array.  The number of proposals is the length of the tuple `steps`,
which makes it a constant for the compiler.  Where a row over all topics leaves the second cache,
what tokens need to know of their topics is fetched some tokens ahead.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import copy_to, index, inlined, kernel, part
from schmp_estimators.core.lanes import prefetch
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix
from schmp_estimators.core.typing import AnyIntegers, Integers, Unsigned32
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.draw import uniform24
from schmp_estimators.lda.kernels.priors import (
    add_seeds,
    draw_of_prior,
    make_row,
    prior_mass,
    where_given,
)

#: With more topics, 8 bytes each of a row and of totals leave the second cache.
NEAR = 1 << 17
#: How many tokens ahead a word pass, and a document pass, fetches what it needs then.
AHEAD = 8
#: Slots of a head word's draw table: few enough for a cache, enough to resolve most draws without a
#: search.
MAX_SLOTS = 1 << 14
#: Entries that `_fill` may write beyond the end of what it fills: one vector.
SLACK = 16


@inlined
def fetch(tokens, base, last, width, row, inverse):
    """Start to fetch what the token at `base` of `tokens` needs of its topics.

    At `last`, there is no token.
    """
    if base < last:
        for at in range(width):
            topic = np.int64(tokens[base + index(at)])
            prefetch(row, topic)
            prefetch(inverse, topic)


class Pieces(NamedTuple):
    """Where the tokens of words are.

    Those that one shard has of a word lie together, one after the other.
    """

    #: (n_words + 1,) offsets of the words among the pieces; those of a word are in the order of the
    #: shards.
    ptr: Integers
    #: (n_pieces,) addresses of their first tokens.
    begin: Integers
    #: (n_pieces,) how many tokens they have.
    n_tokens: Unsigned32


@kernel
def join_pieces(pieces, out):
    """Write the tokens of pieces, a number each, to `out`, one piece after the other."""
    at = 0
    for piece in range(len(pieces.begin)):
        tokens = array_at(pieces.begin[piece], np.int64(pieces.n_tokens[piece]), out)
        for i in range(len(tokens)):
            out[at] = tokens[i]
            at += 1


@kernel
def find_pieces(word, n_tokens, shard_ptr, begins, size, ptr):
    """Return `Pieces.begin` and `Pieces.n_tokens` of some words' tokens in several shards.

    Parameters
    ----------
    word : (n_pieces,) int32
        The word of each piece, shard after shard.
    n_tokens : (n_pieces,) int64
        Tokens of each piece; those of a shard lie one after the other.
    shard_ptr : (n_shards + 1,) int64
        Offsets of the shards in both.
    begins : (n_shards,) int64
        Address of the first token of each shard.
    size : int
        Bytes of a token.
    ptr : (n_words + 1,) int64
        As in `Pieces`.
    """
    begin = np.empty(len(word), np.int64)
    length = np.empty(len(word), np.uint32)
    cursor = ptr.copy()
    for shard in range(len(begins)):
        address = begins[shard]
        for i in range(shard_ptr[shard], shard_ptr[shard + 1]):
            at = cursor[word[i]]
            begin[at], length[at] = address, n_tokens[i]
            cursor[word[i]] += 1
            address += size * n_tokens[i]
    return begin, length


def pieces_of(tokens: AnyIntegers, word_ptr: Integers) -> Pieces:
    """Return where the tokens of words are: one piece for each.

    Tokens are word-major, of shape (n_tokens, 1 + mh_steps).
    """
    begin = tokens.ctypes.data + word_ptr[:-1] * (tokens.shape[1] * tokens.itemsize)
    return Pieces(np.arange(len(word_ptr)), begin, np.diff(word_ptr).astype(np.uint32))


@inlined
def _fill(slots, start, end, value):
    """Write `value` to the slots from `start` to `end`, a vector at a time to spare branches."""
    first = start
    while True:
        for i in range(SLACK):
            slots[index(first + i)] = value
        first += SLACK
        if first >= end:
            break


@part
def fill_slots(row, n_slots_max, slots, ends):
    """Make the draw table of a head word.

    It is the inverse distribution function of its row, coarsened by a power of two.

    Parameters
    ----------
    row : (K,) int32 or float64
        Counts.
    n_slots_max : int
        The table is coarsened until it has no more slots.
    slots : (n_slots_max + SLACK,) int16 or int32
        Mutated: slot ``x >> shift`` is the topic of x, or ``~k`` when a search from topic k has to
        find it.
    ends : (K,) int64
        Mutated: cumulative counts.

    Returns
    -------
    int
        The shift.

    Notes
    -----
    1 ns per topic and 0.1 ns per slot.
    """
    total = np.int64(0)
    for k in range(len(row)):
        total += np.int64(row[k])
        ends[k] = total
    shift = 0
    while total > np.int64(n_slots_max) << shift:
        shift += 1
    filled = np.int64(0)
    if shift == 0:  # no slot has two owners
        for k in range(len(row)):
            _fill(slots, filled, ends[k], k)
            filled = ends[k]
        return shift
    for k in range(len(row)):
        end = ends[k]
        whole = end >> shift
        if whole > filled:
            _fill(slots, filled, whole, k)
            filled = whole
        if filled << shift < end:
            slots[filled] = ~k
            filled += 1
    return shift


@part
def clear_row(row, topics, n, is_seeded):
    """Set `row` to zero again: only the entries of n topics, if they are few."""
    if is_seeded or 8 * n > len(row):
        row[:] = 0
        return
    for i in range(n):
        row[np.uint32(topics[i])] = 0


def _row_of_pieces(block, word, n, begin, end, pieces, like, width, row, slots, ends):
    is_listed = n < HEAD * len(row)
    slot = index(0)
    for piece in range(begin, end):
        n_tokens = np.int64(pieces.n_tokens[index(piece)])
        tokens = array_at(pieces.begin[index(piece)], n_tokens * width, like)
        if is_listed:
            for i in range(n_tokens):
                topic = tokens[index(i * width)]
                slots[slot] = topic
                slot += index(1)
                row[np.uint32(topic)] += 1
        else:
            for i in range(n_tokens):
                row[np.uint32(tokens[index(i * width)])] += 1
    return n, 0 if is_listed else fill_slots(row, MAX_SLOTS, slots, ends)


@where_given(_row_of_pieces)
def take_row(block, word, n, begin, end, pieces, like, width, row, slots, ends):
    """Add the tokens of a word in all shards to `row`, and make its draw table.

    Parameters
    ----------
    block : WordBlock or None
        What has the word's row; None, if its tokens are all in the pieces.
    word : int
        Its number there.
    n : int
        Tokens in the pieces.
    begin, end, pieces, like, width
        Its pieces, and of what type and how long tokens are.
    row : (K,) int32 or float64
        Mutated.
    slots, ends
        Mutated: see `fill_slots`; `slots` may be a list of topics.

    Returns
    -------
    n : int
        Tokens of the word.
    shift : int
        What `fill_slots` returns; 0 of a list.
    """
    tail = word - len(block.heads)
    if tail >= 0:
        first, total = block.tail_ptr[tail], block.tail_ptr[tail + 1] - block.tail_ptr[tail]
        for i in range(total):
            topic = block.tails[index(first + i)]
            slots[index(i)] = topic
            row[np.uint32(topic)] += 1
        return total, 0
    copy_to(block.heads[word], row)
    shift = fill_slots(
        row, min(MAX_SLOTS, 4 * n), slots, ends
    )  # a table for few draws need not be fine
    return ends[len(ends) - 1], shift


@inlined
def _weigh(count, less, beta, is_seeded):
    """Return what a word weighs in a topic with so many of its tokens.

    Seeds are among the tokens, and `less` is taken out.
    """
    if is_seeded:
        return np.float32(count - less + np.float64(beta))
    return np.float32(count) - np.float32(less) + beta


@inlined
def _draw(y, slots, shift, ends, n, beta, per_topic, n_topics, seeds, word):
    """Return the topic at y, where the word's n tokens and its prior are lined up."""
    if y < np.float64(n):
        x = np.int64(y)
        k = np.int64(slots[index(x >> shift)])
        if k < 0:
            k = ~k
            while ends[index(k)] <= x:
                k += 1
        return k
    point = y - np.float64(n)
    return draw_of_prior(
        seeds, word, point, n_topics * np.float64(beta), point * per_topic, n_topics
    )


@kernel
def sample_words(first, last, pieces, address, block, seeds, types, inverse, beta, key, steps):
    """Do the word pass for tokens of some words.

    It accepts or rejects their pending proposals, then draws new ones.

    Parameters
    ----------
    first, last : int
        Range of words.
    pieces : Pieces
        Where the tokens are, by their addresses: what is there is mutated, topics and proposals.
        Those of a word are in document order.
    address : (n_words,) int64
        Canonical address of the first of these tokens of each word.
    block : WordBlock or None
        Rows of the words over all shards; None, if the tokens are all that there are of these
        words.
    seeds : SeedRows or None
        Of the words.
    types : tuple of two arrays
        They have the dtypes of tokens, and of the slots of draw tables, which are signed.
    inverse : (K,) float32
        ``1 / (n_k + V beta)``.
    beta : float32
        Topic-word prior.
    key : uint64
        Stream of this sweep's word pass.
    steps : tuple
        As many numbers as proposals.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    4 ns per token with one proposal, 8 with two, and 20 for each piece.  O(K) memory; per word
    O(min(n, K)) for n tokens in all shards, for head words O(n + K).
    """
    n_topics = len(inverse)
    n_steps = len(steps)
    width = 1 + len(steps)
    like = types[0]
    row = make_row(seeds, n_topics)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, types[1].dtype)
    ends = np.empty(n_topics, np.int64)
    per_topic = 1.0 / np.float64(beta)
    moved = 0
    for word in range(first, last):
        begin = pieces.ptr[word]
        end = pieces.ptr[word + 1]
        n_own = np.int64(0)
        for piece in range(begin, end):
            n_own += np.int64(pieces.n_tokens[index(piece)])
        if n_own == 0:
            continue
        n, shift = take_row(block, word, n_own, begin, end, pieces, like, width, row, slots, ends)
        is_seeded = add_seeds(seeds, word, row)
        mass = np.float64(n) + prior_mass(seeds, word, np.float64(beta), n_topics)
        scale = mass * SCALE_PROPOSE
        counter = key + np.uint64(address[word]) * np.uint64(n_steps) * GAMMA
        for piece in range(begin, end):
            stop = index(pieces.n_tokens[index(piece)]) * index(width)
            tokens = array_at(pieces.begin[index(piece)], np.int64(stop), like)
            base = index(0)
            while base < stop:
                if n_topics > NEAR:
                    fetch(tokens, base + index(AHEAD * width), stop, width, row, inverse)
                original = np.uint32(tokens[base])
                topic = original
                own = _weigh(row[topic], 1, beta, is_seeded) * inverse[topic]
                weight = own
                for step in range(n_steps):
                    bits = mix(counter)
                    counter += GAMMA
                    at = base + index(1 + step)
                    proposed = np.uint32(tokens[at])
                    proposed_weight = _weigh(row[proposed], 0, beta, is_seeded) * inverse[proposed]
                    if proposed == original:
                        proposed_weight = own
                    if uniform24(bits) * weight < proposed_weight:
                        topic = proposed
                        weight = proposed_weight
                    y = np.float64(np.int64(bits & MASK_PROPOSE)) * scale
                    tokens[at] = _draw(
                        y, slots, shift, ends, n, beta, per_topic, n_topics, seeds, word
                    )
                tokens[base] = topic
                moved += topic != original
                base += index(width)
        clear_row(row, slots, n, is_seeded)
    return moved
