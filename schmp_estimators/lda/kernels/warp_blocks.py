"""The word pass of the frozen-count sampler where words are spread over several shards."""

import numpy as np

from schmp_estimators.core.jit import copy_to, kernel
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.warp import assign_word, sample_word
from schmp_estimators.lda.kernels.warp_tables import MAX_SLOTS, SLACK, add_fixed, clear_row, fill_slots


@kernel
def sample_block(first, last, begin, shard, tokens, block, inverse, beta, key, fresh, steps):
    """Do the word pass for some words of one block and one shard.

    Parameters
    ----------
    first, last : int
        Range of words within the block.
    begin : int
        Number of the block's first word in the layout.
    shard : TokenShard
        Any.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals of the shard's tokens of all words of the block.
    block : WordBlock
        Rows of the words over all shards, and of earlier batches.
    inverse, beta, key, fresh, steps
        As in `lda_warp.sample_words`.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    O(K) memory; per word O(min(n, K)) for n tokens in all shards, O(K) for head words.
    """
    n_topics, width, fixed, n_heads = len(inverse), 1 + len(steps), block.fixed, len(block.heads)
    row = np.zeros(n_topics, np.int32)
    slots = np.empty(max(MAX_SLOTS, HEAD * n_topics) + SLACK, tokens.dtype)
    ends = np.empty(n_topics, np.int64)
    ends_of_fixed = np.empty(n_topics, np.int64)
    offset = shard.word_ptr[begin]
    moved = 0
    for word in range(first, last):
        start, end = shard.word_ptr[begin + word] - offset, shard.word_ptr[begin + word + 1] - offset
        if start == end:
            continue
        own = tokens[start * width : end * width]
        address = np.uint64(shard.word_first[begin + word] + shard.word_rank[begin + word])
        fixed_topic = fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]]
        fixed_ends = ends_of_fixed[: len(fixed_topic)]
        if fresh and len(fixed_topic):
            add_fixed(fixed, word, row, fixed_ends)
            assign_word(own, address, beta, key, n_topics, fixed_topic, fixed_ends, steps)
            clear_row(row, slots, 0, fixed, word)
            continue
        n = shard.word_total[begin + word]
        shift = 0
        if word >= n_heads:
            tail = block.tail_ptr[word - n_heads]
            for i in range(n):
                topic = block.tails[np.uint64(tail + i)]
                slots[np.uint64(i)] = topic
                row[np.uint32(topic)] += 1
        else:
            copy_to(block.heads[word], row)
            # A table for few draws need not be fine.
            shift = fill_slots(row, min(MAX_SLOTS, 4 * (end - start)), slots, ends)
        add_fixed(fixed, word, row, fixed_ends)
        moved += sample_word(
            own, address, row, inverse, beta, key, slots, shift, ends, n, fixed_topic, fixed_ends, steps
        )  # fmt: skip
        clear_row(row, slots, n, fixed, word)
    return moved
