"""The word pass of the frozen-count sampler (WarpLDA: Chen et al., VLDB 2016, sections 4 and 5).

A token of word w has a current topic s and a pending proposal t that was drawn from its document.  With the counts of
the word frozen at the start of the pass, and this token taken out of them::

    accept t with probability min(1, (n_wt + beta) (n_s + V beta) / ((n_ws + beta) (n_t + V beta)))
    then draw a new proposal from the word: q(k) proportional to n_wk + fixed_wk + beta

Random bits are addressed by the token's rank among the tokens of its word, so that the result depends neither on the
order of the tokens nor on how documents and words are divided.

A draw maps x in [0, n_w + fixed_w + K beta) to a topic: for a tail word slot x of the list of its tokens' topics, for a
head word the inverse distribution function of its row in topic order; from n_w on the same of the fixed row; then a
uniform topic.

Topics and pending proposals lie side by side in word-major order, ``1 + mh_steps`` to a token; kernels see them as one
flat array.  The number of proposals is the length of the tuple `steps`, which makes it a constant for the compiler.
Its numbers are floats where a row over all topics leaves the second cache: then what tokens need to know of their
topics is fetched some tokens ahead.
"""

import numpy as np
from numba import types

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import by_types, copy_to, inlined, kernel, part
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_ACCEPT, SCALE_PROPOSE, SHIFT_ACCEPT, mix
from schmp_estimators.lda.blocks import HEAD, TopicRows

#: What tells kernels at compile time how many proposals a token has, and whether to fetch ahead.
Steps = tuple[int, ...] | tuple[float, ...]
#: With more topics, 8 bytes each of a row and of totals leave the second cache.
NEAR = 1 << 17
#: How many tokens ahead a word pass, and a document pass, fetches what it needs then.
AHEAD = 8


def steps_for(n_topics: int, n_steps: int) -> Steps:
    """Return as many numbers as proposals: floats for so many topics that fetching ahead pays."""
    return (0,) * n_steps if n_topics <= NEAR else (0.0,) * n_steps


def fetch(tokens, base, last, row, inverse, steps):
    """Start to fetch what the token at `base` of `tokens` needs, if `steps` says so; at `last`, there are none."""
    raise NotImplementedError("for kernels")


@by_types(fetch, copied=True)
def _fetch(tokens, base, last, row, inverse, steps):
    if isinstance(steps.dtype, types.Integer):
        return lambda tokens, base, last, row, inverse, steps: None

    def far(tokens, base, last, row, inverse, steps):
        if base < last:
            for step in range(1 + len(steps)):
                topic = np.int64(tokens[base + np.uint64(step)])
                prefetch(row, topic)
                prefetch(inverse, topic)

    return far


@inlined
def uniform24(bits):
    """Return the upper 24 of 64 random bits as a float32 in [0, 1)."""
    return np.float32(np.int64(bits >> SHIFT_ACCEPT)) * SCALE_ACCEPT


@inlined
def at_most(value, last):
    """Return `value` as an integer, `last` if it is no less: a float beyond all integers must not be converted."""
    return np.int64(value) if value < np.float64(last) else np.int64(last)


@inlined
def scales(n, n_topics, beta):
    """Return what a random number is multiplied by to draw from n counts and the prior, and topics per unit of it."""
    return (np.float64(n) + n_topics * np.float64(beta)) * SCALE_PROPOSE, 1.0 / np.float64(beta)


@part
def assign_word(tokens, address, beta, key, n_topics, fixed_topic, fixed_ends, steps):
    """Draw topics and proposals of tokens that know nothing yet from what earlier batches say about their word.

    Parameters are those of `sample_word`; the distribution is ``fixed_wk + beta``; 10 ns per draw.
    """
    width = 1 + len(steps)
    n = fixed_ends[-1]
    scale, per_topic = scales(n, n_topics, beta)
    counter = key + address * np.uint64(width) * GAMMA
    for i in range(len(tokens)):
        y = np.float64(np.int64(mix(counter) & MASK_PROPOSE)) * scale
        counter += GAMMA
        if y < np.float64(n):
            tokens[i] = fixed_topic[np.searchsorted(fixed_ends, np.int64(y), side="right")]
        else:
            tokens[i] = at_most((y - np.float64(n)) * per_topic, n_topics - 1)


@inlined
def sample_tokens(
    tokens, first, last, counter, row, inverse, beta, scale, per_topic, slots, shift, ends, n, n_fixed, fixed_topic,
    fixed_ends, steps,
):  # fmt: skip
    """Sample those tokens of one word that are at `first` to `last` of `tokens`; the rest as in `sample_word`."""
    n_steps, n_topics = len(steps), len(row)
    one = np.float32(1.0)
    moved = 0
    base = first
    while base < last:
        fetch(tokens, base + np.uint64(AHEAD * (1 + n_steps)), last, row, inverse, steps)
        original = np.uint32(tokens[base])
        topic = original
        own = (np.float32(row[topic]) - one + beta) * inverse[topic]
        weight = own
        for step in range(n_steps):
            bits = mix(counter)
            counter += GAMMA
            at = base + np.uint64(1 + step)
            proposed = np.uint32(tokens[at])
            proposed_weight = (np.float32(row[proposed]) + beta) * inverse[proposed]
            if proposed == original:
                proposed_weight = own
            if uniform24(bits) * weight < proposed_weight:
                topic = proposed
                weight = proposed_weight
            y = np.float64(np.int64(bits & MASK_PROPOSE)) * scale
            if y < np.float64(n):
                x = np.int64(y)
                k = np.int64(slots[np.uint64(x >> shift)])
                if k < 0:
                    k = ~k
                    while ends[np.uint64(k)] <= x:
                        k += 1
            elif y < np.float64(n + n_fixed):
                k = np.int64(fixed_topic[np.searchsorted(fixed_ends, np.int64(y) - n, side="right")])
            else:
                k = at_most((y - np.float64(n + n_fixed)) * per_topic, n_topics - 1)
            tokens[at] = k
        tokens[base] = topic
        moved += topic != original
        base += np.uint64(1 + n_steps)
    return moved


@part
def sample_word(tokens, address, row, inverse, beta, key, slots, shift, ends, n, fixed_topic, fixed_ends, steps):
    """Sample tokens of one word: accept or reject their pending proposals, then draw new ones.

    Parameters
    ----------
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals of the tokens, in document order.
    address : uint64
        Canonical address of the first of them.
    row : (K,) int32
        Counts of the word, in all shards and earlier batches.
    inverse : (K,) float32
        ``1 / (n_k + V beta)``.
    beta : float32
        Topic-word prior.
    key : uint64
        Stream of this sweep's word pass.
    slots, shift, ends
        Draw table of the n tokens of the word in all shards: from `fill_slots`, or a list of topics with shift 0.
    n : int
        Number of them.
    fixed_topic, fixed_ends : (n_distinct,) int32 and int64
        Topics of the word's fixed row and their cumulative counts.
    steps : tuple
        As many numbers as proposals: integers, or floats to fetch ahead.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    4 ns per token with one proposal, 8 with two.
    """
    n_fixed = fixed_ends[-1] if len(fixed_ends) else 0
    scale, per_topic = scales(n + n_fixed, len(row), beta)
    counter = key + address * np.uint64(len(steps)) * GAMMA
    first, last = np.uint64(0), np.uint64(len(tokens))
    return sample_tokens(
        tokens, first, last, counter, row, inverse, beta, scale, per_topic, slots, shift, ends, n, n_fixed,
        fixed_topic, fixed_ends, steps,
    )  # fmt: skip


@kernel
def sample_words(first, last, shard, tokens, inverse, beta, key, fresh, steps):
    """Do the word pass for some words of a shard that has all documents: their rows are made on the spot.

    Parameters
    ----------
    first, last : int
        Range of words.
    shard : TokenShard
        With all documents.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals of the tokens of all words.
    inverse, beta, key, steps
        As in `sample_word`.
    fresh : bool
        Whether topics of words that have a fixed row are still to be drawn from it.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    O(K) memory; per word O(min(n, K)), for head words O(n + K).
    """
    n_topics, width, fixed = len(inverse), 1 + len(steps), shard.fixed
    row = np.zeros(n_topics, np.int32)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, tokens.dtype)
    ends = np.empty(n_topics, np.int64)
    ends_of_fixed = np.empty(n_topics, np.int64)
    moved = 0
    for word in range(first, last):
        start, n = shard.word_ptr[word], shard.word_ptr[word + 1] - shard.word_ptr[word]
        if n == 0:
            continue
        own = tokens[start * width : (start + n) * width]
        address = np.uint64(shard.word_first[word])
        fixed_topic = fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]]
        fixed_ends = ends_of_fixed[: len(fixed_topic)]
        if fresh and len(fixed_topic):
            add_fixed(fixed, word, row, fixed_ends)
            assign_word(own, address, beta, key, n_topics, fixed_topic, fixed_ends, steps)
            clear_row(row, slots, 0, fixed, word)
            continue
        shift = 0
        if n < HEAD * n_topics:
            for i in range(n):
                topic = own[np.uint64(i * width)]
                slots[np.uint64(i)] = topic
                row[np.uint32(topic)] += 1
        else:
            for i in range(n):
                row[np.uint32(own[np.uint64(i * width)])] += 1
            shift = fill_slots(row, MAX_SLOTS, slots, ends)
        add_fixed(fixed, word, row, fixed_ends)
        moved += sample_word(
            own, address, row, inverse, beta, key, slots, shift, ends, n, fixed_topic, fixed_ends, steps
        )
        clear_row(row, slots, n, fixed, word)
    return moved


#: Slots of a head word's draw table: few enough for a cache, enough to resolve most draws without a search.
MAX_SLOTS = 1 << 14
#: Entries that `_fill` may write beyond the end of what it fills: one vector.
SLACK = 16


@inlined
def _fill(slots, start, end, value):
    """Write `value` to the slots from `start` to `end`, a vector at a time to spare branches."""
    first = start
    while True:
        for i in range(SLACK):
            slots[np.uint64(first + i)] = value
        first += SLACK
        if first >= end:
            break


@part
def fill_slots(row, n_slots_max, slots, ends):
    """Make the draw table of a head word: the inverse distribution function of its row, coarsened by a power of two.

    Parameters
    ----------
    row : (K,) int32
        Counts.
    n_slots_max : int
        The table is coarsened until it has no more slots.
    slots : (n_slots_max + SLACK,) int16 or int32
        Mutated: slot ``x >> shift`` is the topic of x, or ``~k`` when a search from topic k has to find it.
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
        total += row[k]
        ends[k] = total
    shift = 0
    while total > np.int64(n_slots_max) << shift:
        shift += 1
    filled = np.int64(0)
    if shift == 0:
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
def add_fixed(fixed, word, row, fixed_ends):
    """Add a word's row of `fixed` to `row`, and write its cumulative counts to `fixed_ends`; 1 ns per entry."""
    total = np.int64(0)
    first = fixed.ptr[word]
    for i in range(first, fixed.ptr[word + 1]):
        row[fixed.topic[i]] += fixed.tokens[i]
        total += fixed.tokens[i]
        fixed_ends[i - first] = total


@part
def clear_row(row, topics, n, fixed, word):
    """Set `row` to zero again: only the entries of n topics and of a word's row of `fixed`, if they are few."""
    first, last = fixed.ptr[word], fixed.ptr[word + 1]
    if 8 * (n + last - first) > len(row):
        row[:] = 0
        return
    for i in range(n):
        row[np.uint32(topics[i])] = 0
    for i in range(first, last):
        row[fixed.topic[i]] = 0


@kernel
def sample_block(
    first, last, words, word_ptr, word_rank, word_first, word_total, tokens,
    heads, tail_ptr, tails, fixed_ptr, fixed_topics, fixed_tokens, inverse, beta, key, fresh, steps,
):  # fmt: skip
    """Do the word pass for some words of one shard, whose rows are those of a block or of several.

    Parameters
    ----------
    first, last : int
        Range within `words`.
    words : (n_words,) int32
        Numbers of the words in the shard, in the order of their rows.
    word_ptr, word_rank, word_first, word_total
        Of the `TokenShard`.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals of the shard's tokens.
    heads, tail_ptr, tails, fixed_ptr, fixed_topics, fixed_tokens
        Of the `WordBlock` and its `TopicRows`: rows of the words over all shards, and of earlier batches.
    inverse, beta, key, fresh, steps
        As in `lda_warp.sample_words`.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    O(K) memory; per word O(min(n, K)) for n tokens in all shards, O(K) for head words.  Arrays are told one by one, as
    there may be a call for each pair of shards: it takes 5 us, and 13 us where arrays come in tuples.
    """
    n_topics, width, n_heads = len(inverse), 1 + len(steps), len(heads)
    fixed = TopicRows(fixed_ptr, fixed_topics, fixed_tokens)
    row = np.zeros(n_topics, np.int32)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, tokens.dtype)
    ends = np.empty(n_topics, np.int64)
    ends_of_fixed = np.empty(n_topics, np.int64)
    moved = 0
    for word in range(first, last):
        number = words[word]
        start, end = word_ptr[number], word_ptr[number + 1]
        if start == end:
            continue
        own = tokens[start * width : end * width]
        address = np.uint64(word_first[number] + word_rank[number])
        fixed_topic = fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]]
        fixed_ends = ends_of_fixed[: len(fixed_topic)]
        if fresh and len(fixed_topic):
            add_fixed(fixed, word, row, fixed_ends)
            assign_word(own, address, beta, key, n_topics, fixed_topic, fixed_ends, steps)
            clear_row(row, slots, 0, fixed, word)
            continue
        n = word_total[number]
        shift = 0
        if word >= n_heads:
            tail = tail_ptr[word - n_heads]
            for i in range(n):
                topic = tails[np.uint64(tail + i)]
                slots[np.uint64(i)] = topic
                row[np.uint32(topic)] += 1
        else:
            copy_to(heads[word], row)
            # A table for few draws need not be fine.
            shift = fill_slots(row, min(MAX_SLOTS, 4 * (end - start)), slots, ends)
        add_fixed(fixed, word, row, fixed_ends)
        moved += sample_word(
            own, address, row, inverse, beta, key, slots, shift, ends, n, fixed_topic, fixed_ends, steps
        )  # fmt: skip
        clear_row(row, slots, n, fixed, word)
    return moved


@kernel
def sample_met(first, last, word_first, fixed, lengths, like, inverse, beta, key, fresh, steps):
    """Do the word pass for some words of which all tokens are here, in pieces, one from each shard that has some.

    Tokens stay where they came: a word is gone through piece by piece, as a shard that had all of it would.

    Parameters
    ----------
    first, last : int
        Range of words.
    word_first : (n_words,) int64
        Canonical addresses of the words' first tokens.
    fixed : TopicRows
        Rows of earlier batches.
    lengths : MetLengths
        Where the tokens of each word are, by their addresses: what is there is mutated, topics and proposals.
    like : array of int16 or int32
        Of the type of topics.
    inverse, beta, key, fresh, steps
        As in `lda_warp.sample_words`.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    As for `lda_warp.sample_words`, and 20 ns for each piece of a word.
    """
    n_topics, width, n_steps = len(inverse), 1 + len(steps), np.uint64(len(steps))
    row = np.zeros(n_topics, np.int32)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, like.dtype)
    ends = np.empty(n_topics, np.int64)
    ends_of_fixed = np.empty(n_topics, np.int64)
    moved = 0
    for word in range(first, last):
        begin, end = lengths.begin[lengths.ptr[word] :], lengths.ptr[word + 1] - lengths.ptr[word]
        size = lengths.n_tokens[lengths.ptr[word] :]
        n = np.int64(0)
        for piece in range(end):
            n += np.int64(size[piece])
        if n == 0:
            continue
        address = np.uint64(word_first[word])
        fixed_topic = fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]]
        fixed_ends = ends_of_fixed[: len(fixed_topic)]
        if fresh and len(fixed_topic):
            add_fixed(fixed, word, row, fixed_ends)
            for piece in range(end):
                tokens = array_at(begin[piece], np.int64(size[piece]) * width, like)
                assign_word(tokens, address, beta, key, n_topics, fixed_topic, fixed_ends, steps)
                address += np.uint64(size[piece])
            clear_row(row, slots, 0, fixed, word)
            continue
        shift = 0
        if n < HEAD * n_topics:
            slot = np.uint64(0)
            for piece in range(end):
                n_tokens = np.int64(size[piece])
                tokens = array_at(begin[piece], n_tokens * width, like)
                for i in range(n_tokens):
                    topic = tokens[np.uint64(i * width)]
                    slots[slot] = topic
                    slot += np.uint64(1)
                    row[np.uint32(topic)] += 1
        else:
            for piece in range(end):
                n_tokens = np.int64(size[piece])
                tokens = array_at(begin[piece], n_tokens * width, like)
                for i in range(n_tokens):
                    row[np.uint32(tokens[np.uint64(i * width)])] += 1
            shift = fill_slots(row, MAX_SLOTS, slots, ends)
        add_fixed(fixed, word, row, fixed_ends)
        n_fixed = fixed_ends[-1] if len(fixed_ends) else 0
        scale, per_topic = scales(n + n_fixed, n_topics, beta)
        counter = key + address * n_steps * GAMMA
        for piece in range(end):
            stop = np.int64(size[piece]) * width
            tokens = array_at(begin[piece], stop, like)
            moved += sample_tokens(
                tokens, np.uint64(0), np.uint64(stop), counter, row, inverse, beta, scale, per_topic, slots, shift,
                ends, n, n_fixed, fixed_topic, fixed_ends, steps,
            )  # fmt: skip
            counter += np.uint64(size[piece]) * n_steps * GAMMA
        clear_row(row, slots, n, fixed, word)
    return moved
