"""The word pass of the frozen-count sampler where words are spread over several shards."""

import numpy as np

from schmp_estimators.core.jit import copy_to, kernel
from schmp_estimators.lda.blocks import HEAD, TopicRows
from schmp_estimators.lda.kernels.warp import assign_word, sample_word
from schmp_estimators.lda.kernels.warp_tables import MAX_SLOTS, SLACK, add_fixed, clear_row, fill_slots


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
