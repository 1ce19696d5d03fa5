"""The tokens of a shard as samplers visit them that go document by document: block after block."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, below, mix


class Visits(NamedTuple):
    """The tokens of each block of words in document order."""

    #: (n_blocks, n_docs + 1) offsets of the documents in each block, in the arrays below.
    ptr: NDArray[np.int64]
    #: (n_tokens,) number of the token in document order.
    token: NDArray[np.uint32]
    #: (n_tokens,) number of its word in the block.
    word: NDArray[np.int32]


def no_visits(n_tokens: int, n_docs: int, n_blocks: int) -> Visits:
    """Return the arrays that `order_visits` fills."""
    ptr = np.zeros((n_blocks, n_docs + 1), np.int64)
    return Visits(ptr, np.empty(n_tokens, np.uint32), np.empty(n_tokens, np.int32))


@kernel
def order_visits(shard, visits):
    """Fill `visits` with the tokens of a TokenShard, divided by the blocks of their words; 5 ns per token."""
    ptr, token, word = visits
    n_blocks, n_docs = len(shard.block_ptr) - 1, len(shard.doc_ptr) - 1
    # Words are ordered by block, so the block of a token follows from its place in word-major order.
    word_at = np.empty(len(token), np.int32)
    block_at = np.empty(len(token), np.int32)
    for block in range(n_blocks):
        first = shard.block_ptr[block]
        for w in range(first, shard.block_ptr[block + 1]):
            for place in range(shard.word_ptr[w], shard.word_ptr[w + 1]):
                word_at[place] = w - first
                block_at[place] = block
    for d in range(n_docs):
        for i in range(shard.doc_ptr[d], shard.doc_ptr[d + 1]):
            ptr[block_at[np.uint64(shard.place[i])], d + 1] += 1
    end = 0
    for block in range(n_blocks):
        ptr[block, 0] = end
        for d in range(n_docs):
            end += ptr[block, d + 1]
            ptr[block, d + 1] = end
    cursor = ptr[:, 0].copy()
    for i in range(len(token)):
        place = np.uint64(shard.place[i])
        at = cursor[block_at[place]]
        cursor[block_at[place]] = at + 1
        token[at] = i
        word[at] = word_at[place]


@kernel
def draw_uniform_topics(first_token, key, n_topics, out):
    """Write a uniform topic for every token of a shard, in document order; the first one has address `first_token`."""
    for i in range(len(out)):
        bits = mix(key + (np.uint64(first_token) + np.uint64(i)) * GAMMA)
        out[i] = np.int64(below(bits, n_topics))


@kernel
def count_topics(topic, totals):
    """Add the tokens' topics to `totals` (K,) int64; 1 ns each."""
    for k in topic:
        totals[np.uint32(k)] += 1


@kernel
def write_by_word(place, topic, out):
    """Copy topics from document to word-major order; 2 ns each.

    Parameters
    ----------
    place : (n_tokens,) uint32
        Places of the tokens in word-major order.
    topic : (n_tokens,) int16 or int32
        Topics in document order.
    out : (n_tokens,) int16 or int32
        Mutated.
    """
    for i in range(len(place)):
        out[np.uint64(place[i])] = topic[i]
