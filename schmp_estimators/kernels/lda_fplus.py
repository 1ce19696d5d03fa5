"""Exact collapsed Gibbs sampling, word by word (F+LDA: Yu et al., WWW 2015, section 3.2).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with probabilities::

    p(k)  proportional to  n_dk q_k + alpha q_k,      q_k = (n_wk + beta) / (n_k + V beta)

The first part has as many terms as the document has topics, which are kept in a list.  The second depends on the word
only; its sum is the root of an F+ tree over q, which is mended as counts change.  One random number picks a point in the
sum of both, the list first.  Its bits are addressed by the token's rank among the tokens of its word.
"""

import numpy as np

from schmp_estimators.kernels import ftree
from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.rng import GAMMA, mix

#: A hash has 53 bits that fit a float64 in [0, 1).
_SHIFT = np.uint64(11)
_SCALE = 2.0**-53
#: The tree is rebuilt for a word with more than K over this many tokens; for others, topic by topic is cheaper.
_FEW = 16


@inlined
def _sum_list(listed, tokens, start, n, q, ends):
    """Return the sum of ``tokens * q[listed]`` over a list; `ends` gets the sums up to every fourth entry."""
    total = 0.0
    at = np.uint64(start)
    for block in range(n >> 2):
        a, b, c, d = at, at + np.uint64(1), at + np.uint64(2), at + np.uint64(3)
        total += (tokens[a] * q[np.uint32(listed[a])] + tokens[b] * q[np.uint32(listed[b])]) + (
            tokens[c] * q[np.uint32(listed[c])] + tokens[d] * q[np.uint32(listed[d])]
        )
        ends[np.uint64(block)] = total
        at += np.uint64(4)
    for _ in range(n & 3):
        total += tokens[at] * q[np.uint32(listed[at])]
        at += np.uint64(1)
    return total


@inlined
def _find_in_list(listed, tokens, start, n, q, ends, point):
    """Return the place of the list's entry in which `point` lies."""
    block = 0
    while block < n >> 2 and point >= ends[np.uint64(block)]:
        block += 1
    if block > 0:
        point -= ends[np.uint64(block - 1)]
    first = min(block << 2, n - 1)
    at, last = np.uint64(start + first), np.uint64(start + min(first + 3, n - 1))
    while at < last:
        point -= tokens[at] * q[np.uint32(listed[at])]
        if point < 0.0:
            break
        at += np.uint64(1)
    return at


@inlined
def _place_of(listed, first, last, topic):
    """Return the place of a topic between two places of `listed`, or the last one."""
    at = np.uint64(first)
    while at < np.uint64(last) and np.uint32(listed[at]) != topic:
        at += np.uint64(1)
    return at


@inlined
def _add_rows(word, block, row):
    """Add the counts of a word, earlier batches included, to `row` (K,) int32, and return their number."""
    n_heads, fixed = len(block.heads), block.fixed
    n = fixed.ptr[word + 1] - fixed.ptr[word]
    if word < n_heads:
        row[:] = block.heads[word]
        n += len(row) * _FEW
    else:
        first, last = block.tail_ptr[word - n_heads], block.tail_ptr[word - n_heads + 1]
        n += last - first
        for i in range(first, last):
            row[np.uint32(block.tails[np.uint64(i)])] += 1
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        row[fixed.topic[i]] += fixed.tokens[i]
    return n


@inlined
def _put_row(word, block, row, leave, inverse, beta, q, level_ptr, sums, total):
    """Bring the weights of a tail word's topics to their counts, or clear the row and its weights; return the total."""
    tail, fixed = word - len(block.heads), block.fixed
    for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
        k = np.uint64(block.tails[np.uint64(i)])
        if row[k] != 0:
            if leave:
                row[k] = 0
            total = ftree.put(q, level_ptr, sums, total, k, (row[k] + beta) * inverse[k])
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        k = np.uint64(fixed.topic[i])
        if row[k] != 0:
            if leave:
                row[k] = 0
            total = ftree.put(q, level_ptr, sums, total, k, (row[k] + beta) * inverse[k])
    return total


@kernel
def sample_cell(
    first, last, shard, block, topic, document, ptr, length, listed, tokens, total, level_ptr, alpha, beta, beta_sum, key
):
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
    document, ptr, length, listed, tokens
        Of `lda_lists.list_topics`; the last three are mutated.
    total : (K,) int64
        Mutated: the shard's copy of the topic totals.
    level_ptr : (n_levels + 1,) int64
        Of the tree, from `ftree.level_offsets`.
    alpha, beta, beta_sum : float
        Priors, and V beta.
    key : uint64
        Stream of this sweep.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    1.5 ns per topic of the document, and 60 to 80 ns per token beside.
    """
    n_topics, n_heads = len(total), len(block.heads)
    inverse, inverse_less, q = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for k in range(n_topics):
        inverse[k] = 1.0 / (total[k] + beta_sum)
        inverse_less[k] = 1.0 / (total[k] - 1 + beta_sum)
    row, sums = np.zeros(n_topics, np.int32), np.empty(level_ptr[-1])
    longest = 0
    for d in range(len(length)):
        longest = max(longest, ptr[d + 1] - ptr[d])
    ends = np.empty((longest >> 2) + 1)
    smooth, is_base, moved = 0.0, False, 0
    for word in range(first, last):
        begin, end = shard.word_ptr[word], shard.word_ptr[word + 1]
        if begin == end:
            continue
        at = word - first
        few = _add_rows(at, block, row) * _FEW <= n_topics
        if not (few and is_base):
            for k in range(n_topics):
                q[k] = ((0 if few else row[k]) + beta) * inverse[k]
            smooth = ftree.build(q, level_ptr, sums)
            is_base = few
        if few:
            smooth = _put_row(at, block, row, False, inverse, beta, q, level_ptr, sums, smooth)
        slot = block.tail_ptr[at - n_heads] + shard.word_rank[word] - begin if at >= n_heads else 0
        counter = key + np.uint64(shard.word_first[word] + shard.word_rank[word]) * GAMMA
        for i in range(begin, end):
            d = np.uint64(document[np.uint64(i)])
            start, n = ptr[d], np.int64(length[d])
            old = np.uint64(topic[np.uint64(i)])
            old_at = _place_of(listed, start, start + n - 1, old)
            tokens[old_at] -= 1
            before, before_smooth = q[old], smooth
            smooth = ftree.put(q, level_ptr, sums, smooth, old, (row[old] - 1 + beta) * inverse_less[old])
            mass = _sum_list(listed, tokens, start, n, q, ends)
            point = np.float64(np.int64(mix(counter) >> _SHIFT)) * _SCALE * (mass + alpha * smooth)
            counter += GAMMA
            if point < mass:
                new_at = _find_in_list(listed, tokens, start, n, q, ends, point)
                new = np.uint64(listed[new_at])
            else:
                new = np.uint64(ftree.find(q, level_ptr, sums, (point - mass) / alpha))
                new_at = old_at if new == old else _place_of(listed, start, start + n, new)
            if new == old:
                tokens[old_at] += 1
                ftree.put(q, level_ptr, sums, smooth, old, before)
                smooth = before_smooth
                continue
            moved += 1
            topic[np.uint64(i)] = new
            if at < n_heads:
                block.heads[at, old] -= 1
                block.heads[at, new] += 1
            else:
                block.tails[np.uint64(slot + i)] = new
            row[old] -= 1
            row[new] += 1
            total[old] -= 1
            total[new] += 1
            inverse[old] = inverse_less[old]
            inverse_less[old] = 1.0 / (total[old] - 1 + beta_sum)
            inverse_less[new] = inverse[new]
            inverse[new] = 1.0 / (total[new] + beta_sum)
            smooth = ftree.put(q, level_ptr, sums, smooth, new, (row[new] + beta) * inverse[new])
            end_of_list = np.uint64(start + n)
            if new_at == end_of_list:
                if tokens[old_at] == 0:
                    new_at = old_at
                else:
                    length[d] += 1
                listed[new_at] = new
                tokens[new_at] = 1
            else:
                tokens[new_at] += 1
                if tokens[old_at] == 0:
                    end_of_list -= np.uint64(1)
                    listed[old_at] = listed[end_of_list]
                    tokens[old_at] = tokens[end_of_list]
                    length[d] -= 1
        if few:
            smooth = _put_row(at, block, row, True, inverse, beta, q, level_ptr, sums, smooth)
        else:
            row[:] = 0
    return moved
