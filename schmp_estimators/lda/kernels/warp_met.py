"""The word pass of the frozen-count sampler for words whose tokens have come from several shards."""

import numpy as np

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.warp import assign_word, sample_tokens, scales
from schmp_estimators.lda.kernels.warp_tables import MAX_SLOTS, SLACK, add_fixed, clear_row, fill_slots


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
