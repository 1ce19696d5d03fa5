"""The topics of all tokens of a block's words, one slot each: a random slot is a draw from the row as it is now."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import copy_to, maker, part


class TokenSlots(NamedTuple):
    """Lists of topics; slot ``r`` of a word is its token of rank ``r`` in document order, but see `fill_slots`."""

    #: (n_words + 1,) offsets of the lists.
    ptr: NDArray[np.int64]
    #: (n_words,) what has to be added to a token's place in word-major order to get its slot.
    shift: NDArray[np.int64]
    #: Topics, int16 or int32.
    topic: NDArray[np.signedinteger]
    #: Cumulative counts of the block's fixed rows.
    fixed_ends: NDArray[np.int64]


@maker
def fill_slots(cell, shard, block, visits, topic):
    """Return the TokenSlots of a block, as a shard sees it.

    Parameters
    ----------
    cell : int
        Number of the block.
    shard : TokenShard
        Any.
    block : WordBlock
        Its tail words have such lists already.  Of a head word the shard knows only its own tokens one by one; those of
        other shards, which do not change meanwhile, fill the slots that are left, in topic order.
    visits : Visits
        The shard's tokens.
    topic : (n_tokens,) int16 or int32
        Topics in document order.

    Notes
    -----
    1 ns per token of the block, 3 ns for one of a head word.
    """
    n_heads, n_words, first = len(block.heads), len(block.fixed.ptr) - 1, shard.block_ptr[cell]
    ptr, shift = np.zeros(n_words + 1, np.int64), np.empty(n_words, np.int64)
    for word in range(n_words):
        ptr[word + 1] = ptr[word] + shard.word_total[first + word]
        shift[word] = ptr[word] + shard.word_rank[first + word] - shard.word_ptr[first + word]
    slots = np.empty(ptr[n_words], topic.dtype)
    copy_to(block.tails, slots[ptr[n_heads] :])
    if n_heads > 0:
        rest = block.heads.copy()
        for visit in range(visits.ptr[cell, 0], visits.ptr[cell, -1]):
            word = visits.word[visit]
            if word < n_heads:
                token = visits.token[visit]
                k = topic[token]
                slots[shift[word] + np.int64(shard.place[token])] = k
                rest[word, k] -= 1
        for word in range(n_heads):
            own = shard.word_ptr[first + word] + shift[word]
            own_end = shard.word_ptr[first + word + 1] + shift[word]
            at = ptr[word]
            for k in range(rest.shape[1]):
                for _ in range(rest[word, k]):
                    if at == own:
                        at = own_end
                    slots[at] = k
                    at += 1
    ends, total = np.empty(len(block.fixed.tokens), np.int64), np.int64(0)
    for word in range(n_words):
        total = np.int64(0)
        for i in range(block.fixed.ptr[word], block.fixed.ptr[word + 1]):
            total += block.fixed.tokens[i]
            ends[i] = total
    return TokenSlots(ptr, shift, slots, ends)


@part
def write_back(slots, block):
    """Make the rows of a WordBlock those of its lists; 1 ns per token."""
    n_heads = len(block.heads)
    copy_to(slots.topic[slots.ptr[n_heads] :], block.tails)
    block.heads[:] = 0
    for word in range(n_heads):
        for i in range(slots.ptr[word], slots.ptr[word + 1]):
            block.heads[word, np.uint32(slots.topic[np.uint64(i)])] += 1
