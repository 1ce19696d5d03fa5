"""What samplers have in common that go document by document: the counts of a document, and moves of a token."""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel


@inlined
def list_document(topic, begin, end, n_dk, listed, slot):
    """Count and list the topics of the tokens from `begin` to `end`; return how many topics there are.

    `n_dk` (K,) was zero, `listed` gets the topics in the order of their first tokens, and `slot` where they are listed.
    """
    n_listed = 0
    for i in range(begin, end):
        k = np.uint64(topic[np.uint64(i)])
        if n_dk[k] == 0:
            slot[k] = n_listed
            listed[np.uint64(n_listed)] = k
            n_listed += 1
        n_dk[k] += 1
    return n_listed


@inlined
def move_in_document(n_dk, listed, slot, n_listed, old, new):
    """Move a token between topics of the document; return the new number of topics."""
    n_dk[old] -= 1
    n_dk[new] += 1
    if n_dk[new] == 1:
        slot[new] = n_listed
        listed[np.uint64(n_listed)] = new
        n_listed += 1
    if n_dk[old] == 0:
        n_listed -= 1
        last = listed[np.uint64(n_listed)]
        listed[np.uint64(slot[old])] = last
        slot[np.uint64(last)] = slot[old]
    return n_listed


@inlined
def move_total(total, inverse, inverse_less, old, new, beta_sum):
    """Move a token between topics in the totals; `inverse_less` is the inverse with one token less."""
    total[old] -= 1
    total[new] += 1
    inverse[old] = inverse_less[old]
    inverse_less[old] = 1.0 / (total[old] - 1 + beta_sum)
    inverse_less[new] = inverse[new]
    inverse[new] = 1.0 / (total[new] + beta_sum)


@kernel
def tail_shifts(cell, shard, block):
    """Return for each tail word of a block what has to be added to a token's place to get its slot in the tails."""
    n_heads, first = len(block.heads), shard.block_ptr[cell]
    shift = np.zeros(n_heads + len(block.tail_ptr) - 1, np.int64)
    for tail in range(len(block.tail_ptr) - 1):
        word = first + n_heads + tail
        shift[n_heads + tail] = block.tail_ptr[tail] + shard.word_rank[word] - shard.word_ptr[word]
    return shift


@inlined
def move_in_block(heads, tails, shift, word, place, old, new):
    """Move a token, given its place in word-major order, between topics of its word."""
    if word < len(heads):
        heads[word, old] -= 1
        heads[word, new] += 1
    else:
        tails[np.uint64(shift[np.uint64(word)] + place)] = new


@inlined
def without(total, part):
    """Return what is left of a sum of weights after one of them is taken away, and whether that may be rounding."""
    rest = total - part
    return rest, rest < 1e-9 * total
