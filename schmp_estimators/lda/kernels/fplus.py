"""Exact collapsed Gibbs sampling, word by word (F+LDA: Yu et al., WWW 2015, section 3.2).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with probabilities::

    p(k)  proportional to  n_dk q_k + alpha_k q_k,      q_k = (n_wk + beta) / (n_k + V beta)

The first part has as many terms as the document has topics, which are kept in a list.  The second depends on the word
only; its sum is the root of an F+ tree, which is mended as counts change.  Its leaves are q, where alpha is the same
for all topics, else alpha_k q_k.  One random number picks a point in
the sum of both, the list first.  Its bits are addressed by the token's rank among the tokens of its word.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import copy_to, inlined, kernel, part
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.documents import move_total
from schmp_estimators.lda.kernels.leaves import fill_leaves, in_leaf_units, in_prior_units, make_leaves, put
from schmp_estimators.lda.kernels.lists import block_of, find_in_list, move_in_list, place_of, sum_list
from schmp_estimators.lda.kernels.word_priors import add_seeds, make_row

#: A hash has 53 bits that fit a float64 in [0, 1).
_SHIFT = np.uint64(11)
_SCALE = 2.0**-53
#: The tree is rebuilt for a word with more than K over this many tokens; for others, topic by topic is cheaper.
_FEW = 16
#: The lists of the document that comes so many tokens later are fetched into the cache: this gained 15 to 60 %.
_AHEAD = 8


class Weights(NamedTuple):
    """The weights of a word's topics, and what they are made of."""

    #: (K,) int32 counts of the word; float64, with its seeds, where words are seeded.
    row: NDArray[np.int32]
    #: (K,) counts of the topics, in the shard's copy.
    total: NDArray[np.int64]
    #: (K,) ``1 / (total + V beta)``, and the same with one token less.
    inverse: NDArray[np.float64]
    inverse_less: NDArray[np.float64]
    #: (K,) ``(row + beta) * inverse``.
    q: NDArray[np.float64]
    #: (K,) leaves of the F+ tree: q itself, or with an asymmetric prior the products of both.
    leaves: NDArray[np.float64]
    #: The tree.
    level_ptr: NDArray[np.int64]
    sums: NDArray[np.float64]
    beta: float
    #: A number, or one for each topic.
    beta_sum: float


@inlined
def _read_row(word, block, row):
    """Add the counts of a word, earlier batches included, to `row`; return whether a tail word has only a few."""
    tail, fixed = word - len(block.heads), block.fixed
    n = fixed.ptr[word + 1] - fixed.ptr[word]
    if tail < 0:
        copy_to(block.heads[word], row)
    else:
        n += block.tail_ptr[tail + 1] - block.tail_ptr[tail]
        for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
            row[np.uint32(block.tails[np.uint64(i)])] += 1
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        row[fixed.topic[i]] += fixed.tokens[i]
    return tail >= 0 and n * _FEW <= len(row)


@part
def _put_topics(topics, weights, smooth, leave, alpha):
    """Bring the weights of some topics up to the row, or clear both; return the new sum; 5 ns per topic."""
    row, inverse, q, leaves, level_ptr, sums, beta = (
        weights.row, weights.inverse, weights.q, weights.leaves, weights.level_ptr, weights.sums, weights.beta,
    )  # fmt: skip
    for topic in topics:
        k = np.uint64(topic)
        if row[k] != 0:
            if leave:
                row[k] = 0
            smooth = put(q, leaves, level_ptr, sums, smooth, k, (row[k] + beta) * inverse[k], alpha)
    return smooth


@inlined
def _put_row(word, block, weights, smooth, leave, alpha):
    """Bring the weights of a tail word's topics up to its row, or clear both; return the new sum."""
    tail, fixed = word - len(block.heads), block.fixed
    topics = block.tails[block.tail_ptr[tail] : block.tail_ptr[tail + 1]]
    smooth = _put_topics(topics, weights, smooth, leave, alpha)
    return _put_topics(fixed.topic[fixed.ptr[word] : fixed.ptr[word + 1]], weights, smooth, leave, alpha)


@part
def _build(weights, few, alpha):
    """Make the weights anew, from the row or, if the word has few counts, without it; return their sum; 1 ns each."""
    row, inverse, q, beta = weights.row, weights.inverse, weights.q, weights.beta
    for k in range(len(q)):
        q[k] = ((0 if few else row[k]) + beta) * inverse[k]
    fill_leaves(q, weights.leaves, alpha)
    return ftree.build(weights.leaves, weights.level_ptr, weights.sums)


@inlined
def _fetch_list(topics, tokens, start):
    """Have the start of a list fetched into the cache."""
    for line in range(2):
        prefetch(topics, start + 32 * line)
    for line in range(3):
        prefetch(tokens, start + 16 * line)


@inlined
def _sample_tokens(begin, end, topic, document, lists, weights, smooth, alpha, counter, parts, head, slots):
    """Sample tokens of one word; return the sum of the weights, and how many tokens moved.

    Tokens are those from `begin` to `end`; `topic` and `lists` are mutated, `weights` too.  So is the row of the
    block: `head` (K,) of a head word, or `slots`, the topics of the tokens of a tail word.  `counter` is the input of
    the hash for the first token, `parts` scratch.
    """
    # Names of their own: numba counts references whenever an array is taken out of a tuple.
    ptr, length, topics, tokens = lists
    row, total, inverse, inverse_less, q, leaves, level_ptr, sums, beta, beta_sum = weights
    moved, known, start, n, mass = 0, np.int64(-1), np.int64(0), np.int64(0), 0.0
    for i in range(begin, end):
        if i + _AHEAD < len(document):
            _fetch_list(topics, tokens, ptr[np.uint64(document[np.uint64(i + _AHEAD)])])
        d, old = np.uint64(document[np.uint64(i)]), np.uint64(topic[np.uint64(i)])
        if np.int64(d) != known:  # else the sums are up to date: a word often comes several times in a document
            known, start, n = np.int64(d), ptr[d], np.int64(length[d])
            mass = sum_list(topics, tokens, start, n, q, parts)
        old_at = place_of(topics, start, start + n - 1, old)
        block = block_of(old_at, start)
        before, smooth_before, mass_before, part_before = q[old], smooth, mass, parts[block]
        smooth = put(q, leaves, level_ptr, sums, smooth, old, (row[old] - 1 + beta) * inverse_less[old], alpha)
        change = (tokens[old_at] - 1) * q[old] - tokens[old_at] * before
        tokens[old_at] -= 1
        parts[block] += change
        mass += change
        point = np.float64(np.int64(mix(counter) >> _SHIFT)) * _SCALE * (mass + in_prior_units(smooth, alpha))
        counter += GAMMA
        if point < mass:
            new_at = find_in_list(topics, tokens, start, n, q, parts, point)
            new = np.uint64(topics[new_at])
        else:
            new = np.uint64(ftree.find(leaves, level_ptr, sums, in_leaf_units(point - mass, alpha)))
            new_at = place_of(topics, start, start + n, new)
        if new == old:
            tokens[old_at] += 1
            put(q, leaves, level_ptr, sums, smooth, old, before, alpha)
            smooth, mass, parts[block] = smooth_before, mass_before, part_before
            continue
        moved += 1
        topic[np.uint64(i)] = new
        row[old] -= 1
        row[new] += 1
        move_total(total, inverse, inverse_less, old, new, beta_sum)
        before = q[new]
        smooth = put(q, leaves, level_ptr, sums, smooth, new, (row[new] + beta) * inverse[new], alpha)
        grown, gain = move_in_list(topics, tokens, start, np.uint64(start + n), old_at, new_at, new, before, q, parts)
        n += grown
        length[d] = n
        mass += gain
        if len(head) > 0:
            head[old] -= 1
            head[new] += 1
        else:
            slots[np.uint64(i - begin)] = new
    return smooth, moved


@kernel
def sample_cell(first, last, shard, block, topic, document, lists, total, level_ptr, alpha, beta, beta_sum, key, seeds):
    """Sample the tokens of a shard whose words are in a block.

    Parameters
    ----------
    first, last : int
        Range of the block's words in the layout.
    shard : TokenShard
        Any.
    block : WordBlock
        Mutated: the rows of the words.
    topic : (n_tokens,) int16 or int32
        Mutated: topics, word-major.
    document : (n_tokens,) uint32
        Document of each token, word-major.
    lists : TopicLists
        Mutated.
    total : (K,) int64
        Mutated: the shard's copy of the topic totals.
    level_ptr : (n_levels + 1,) int64
        Of the tree, from `ftree.level_offsets`.
    alpha : float or (K,) float64
        Document-topic prior of all topics, or of each.
    beta : float
        Topic-word prior.
    beta_sum : float or (K,) float64
        V beta; where words are seeded, with the seeds of each topic.
    key : uint64
        Stream of this sweep.
    seeds : SeedRows or None
        Of all words.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    1.5 ns per topic of the document for the first of a word's tokens in it, and 50 ns per token beside.
    """
    n_topics, n_heads = len(total), len(block.heads)
    q = np.empty(n_topics)
    weights = Weights(
        make_row(seeds, n_topics),
        total,
        1.0 / (total + beta_sum),
        1.0 / (total - 1 + beta_sum),
        q,
        make_leaves(q, alpha),
        level_ptr,
        np.empty(level_ptr[-1]),
        beta,
        beta_sum,
    )
    longest = np.int64(0)
    for d in range(len(lists.length)):
        longest = max(longest, lists.ptr[d + 1] - lists.ptr[d])
    parts = np.empty((longest >> 3) + 1)
    smooth, is_base, moved = 0.0, False, 0
    for word in range(first, last):
        begin, end = shard.word_ptr[word], shard.word_ptr[word + 1]
        if begin == end:
            continue
        at, rank = word - first, shard.word_rank[word]
        few = _read_row(at, block, weights.row)
        if add_seeds(seeds, word, weights.row):
            few = False
        if not (few and is_base):
            smooth = _build(weights, few, alpha)
            is_base = few
        if few:
            smooth = _put_row(at, block, weights, smooth, False, alpha)
        head, slots = block.heads.reshape(-1)[:0], block.tails[:0]
        if at < n_heads:
            head = block.heads[at]
        else:
            slots = block.tails[block.tail_ptr[at - n_heads] + rank :]
        counter = key + np.uint64(shard.word_first[word] + rank) * GAMMA
        smooth, n_moved = _sample_tokens(
            begin, end, topic, document, lists, weights, smooth, alpha, counter, parts, head, slots
        )
        moved += n_moved
        if few:
            smooth = _put_row(at, block, weights, smooth, True, alpha)
        else:
            weights.row[:] = 0
    return moved
