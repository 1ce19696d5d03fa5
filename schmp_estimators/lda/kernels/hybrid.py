"""Gibbs sampling word by word, where long documents are left to Metropolis–Hastings (LDA*: Yu et al., VLDB 2017, §3.2).

A token of a short document is drawn from its conditional, as in `fplus`: that takes time for every topic of the
document.  A token of a long one makes proposals instead, by turns from its word and from its document, all counts being
live and without the token itself::

    from the word       q(k) proportional to (n_wk + beta) / (n_k + V beta)    accept by  n_dk + alpha_k
                        with alpha_k times that, where topics have an alpha each,  by  (n_dk + alpha_k) / alpha_k
    from the document   q(k) proportional to n_dk + alpha_k                    accept by  (n_wk + beta) / (n_k + V beta)

The first are drawn from the F+ tree, which is there anyhow, the second are the topic of a random other token of the
document, or a topic by the prior.  Both proposals and both answers are exact, so the conditional stays what it is.
Random bits are addressed by the token's rank among the tokens of its word, `MAX_STEPS` to a token.
"""

import numpy as np
from numba import types

from schmp_estimators.core.jit import by_types, inlined, kernel
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.document_priors import alpha_at
from schmp_estimators.lda.kernels.documents import move_total
from schmp_estimators.lda.kernels.fplus import Weights, _build, _put_row, _read_row, _sample_tokens
from schmp_estimators.lda.kernels.leaves import make_leaves, put
from schmp_estimators.lda.kernels.lists import move_in_list, place_of
from schmp_estimators.lda.kernels.warp import uniform24
from schmp_estimators.lda.kernels.word_priors import add_seeds, make_row

#: The most proposals for a token in a sweep.
MAX_STEPS = 8


def _answer(n, alpha, topic):
    """Return what a document with n tokens in a topic (uint64) answers where its word has proposed it."""
    raise NotImplementedError("for kernels")


@by_types(_answer, copied=True)
def _answer_by_type(n, alpha, topic):
    if isinstance(alpha, types.Float):
        return lambda n, alpha, topic: n + alpha
    return lambda n, alpha, topic: (n + alpha[topic]) / alpha[topic]


@inlined
def _tokens_in(topics, tokens, start, end, topic):
    """Return how many tokens a document has in a topic, given the places of its list."""
    at = place_of(topics, start, end, topic)
    return np.int64(tokens[at]) if at < np.uint64(end) else np.int64(0)


@inlined
def _propose(y, i, first, last, shard, topic, alpha_ends):
    """Return a topic of the document whose tokens are those from `first` to `last`, without token `i`, word-major.

    y lies between 0 and the number of its other tokens plus the sum of the prior; `alpha_ends` are cumulative sums of
    the prior.
    """
    others = last - first - 1
    if y < np.float64(others):
        at = np.int64(shard.place[np.uint64(first + np.int64(y))])
        if at == i:
            at = np.int64(shard.place[np.uint64(last - 1)])
        return np.uint64(topic[np.uint64(at)])
    y -= np.float64(others)
    low, high = 0, len(alpha_ends) - 1
    while low < high:
        middle = (low + high) >> 1
        if alpha_ends[middle] <= y:
            low = middle + 1
        else:
            high = middle
    return np.uint64(low)


@inlined
def _step_tokens(
    begin, end, shard, topic, document, lists, weights, smooth, alpha, alpha_ends, n_steps, counter, parts, head, slots
):
    """Let tokens of one word and of long documents answer proposals; as `_sample_tokens`.

    Return the sum of the word's weights, how many tokens moved, and how many proposals were accepted.
    """
    ptr, length, topics, tokens = lists
    row, total, inverse, inverse_less, q, leaves, level_ptr, sums, beta, beta_sum = weights
    moved, accepted = 0, 0
    for i in range(begin, end):
        d, old = np.uint64(document[np.uint64(i)]), np.uint64(topic[np.uint64(i)])
        start, n = ptr[d], np.int64(length[d])
        first, last = shard.doc_ptr[d], shard.doc_ptr[d + np.uint64(1)]
        old_at = place_of(topics, start, start + n - 1, old)
        before, smooth_before = q[old], smooth
        smooth = put(q, leaves, level_ptr, sums, smooth, old, (row[old] - 1 + beta) * inverse_less[old], alpha)
        tokens[old_at] -= 1
        new, new_count = old, np.int64(tokens[old_at])
        scale = (np.float64(last - first - 1) + alpha_ends[-1]) * SCALE_PROPOSE
        for step in range(n_steps):
            bits = mix(counter + np.uint64((i - begin) * MAX_STEPS + step) * GAMMA)
            x = np.float64(np.int64(bits & MASK_PROPOSE))
            if step & 1:
                proposed = _propose(x * scale, i, first, last, shard, topic, alpha_ends)
                accept = np.float64(uniform24(bits)) * q[new] < q[proposed]
                count = _tokens_in(topics, tokens, start, start + n, proposed) if accept else new_count
            else:
                proposed = np.uint64(ftree.find(leaves, level_ptr, sums, x * SCALE_PROPOSE * smooth))
                count = _tokens_in(topics, tokens, start, start + n, proposed)
                answer = _answer(count, alpha, proposed)
                accept = np.float64(uniform24(bits)) * _answer(new_count, alpha, new) < answer
            if accept:
                accepted += 1
                new, new_count = proposed, count
        if new == old:
            tokens[old_at] += 1
            put(q, leaves, level_ptr, sums, smooth, old, before, alpha)
            smooth = smooth_before
            continue
        moved += 1
        topic[np.uint64(i)] = new
        row[old] -= 1
        row[new] += 1
        move_total(total, inverse, inverse_less, old, new, beta_sum)
        before = q[new]
        smooth = put(q, leaves, level_ptr, sums, smooth, new, (row[new] + beta) * inverse[new], alpha)
        new_at = place_of(topics, start, start + n, new)
        grown, _ = move_in_list(topics, tokens, start, np.uint64(start + n), old_at, new_at, new, before, q, parts)
        length[d] = n + grown
        if len(head) > 0:
            head[old] -= 1
            head[new] += 1
        else:
            slots[np.uint64(i - begin)] = new
    return smooth, moved, accepted


@inlined
def _run_end(begin, end, document, doc_ptr, long_document):
    """Return whether a document of the tokens from `begin` on is long, and where the run of such documents ends."""
    is_long = False
    for i in range(begin, end):
        d = np.int64(document[np.uint64(i)])
        longer = doc_ptr[d + 1] - doc_ptr[d] > long_document
        if i == begin:
            is_long = longer
        elif longer != is_long:
            return is_long, i
    return is_long, end


@inlined
def _enter_word(at, word, block, weights, smooth, is_base, alpha, seeds):
    """Make the weights of a word; return their sum, and whether it has only a few counts."""
    few = _read_row(at, block, weights.row)
    if add_seeds(seeds, word, weights.row):
        few = False
    if not (few and is_base):
        smooth = _build(weights, few, alpha)
    if few:
        smooth = _put_row(at, block, weights, smooth, False, alpha)
    return smooth, few


@kernel
def sample_hybrid(
    first, last, shard, block, topic, document, lists, total, level_ptr, alpha, beta, beta_sum, key, step_key,
    long_document, n_steps, seeds,
):  # fmt: skip
    """Sample the tokens of a shard whose words are in a block.

    Parameters
    ----------
    first, last, shard, block, topic, document, lists, total, level_ptr, beta, beta_sum, key
        As in `fplus.sample_cell`.
    alpha : float or (K,) float64
        Document-topic prior of all topics, or of each.
    step_key : uint64
        Stream of the proposals of this sweep.
    long_document : int
        Documents with more tokens make proposals.
    n_steps : int
        Proposals for each of their tokens, at most `MAX_STEPS`.
    seeds : SeedRows or None
        Of all words.

    Returns
    -------
    moved, proposed, accepted : int
        Tokens whose topic changed, proposals made, and proposals accepted.
    """
    n_topics, n_heads, q = len(total), len(block.heads), np.empty(len(total))
    weights = Weights(
        make_row(seeds, n_topics), total, 1.0 / (total + beta_sum), 1.0 / (total - 1 + beta_sum),
        q, make_leaves(q, alpha), level_ptr, np.empty(level_ptr[-1]), beta, beta_sum,
    )  # fmt: skip
    longest = np.int64(0)
    for d in range(len(lists.length)):
        longest = max(longest, lists.ptr[d + 1] - lists.ptr[d])
    parts, alpha_ends, so_far = np.empty((longest >> 3) + 1), np.empty(n_topics), 0.0
    for k in range(n_topics):
        so_far += alpha_at(alpha, k)
        alpha_ends[k] = so_far
    smooth, is_base, moved, proposed, accepted = 0.0, False, 0, 0, 0
    for word in range(first, last):
        begin, end = shard.word_ptr[word], shard.word_ptr[word + 1]
        if begin == end:
            continue
        at, rank = word - first, shard.word_rank[word]
        smooth, few = _enter_word(at, word, block, weights, smooth, is_base, alpha, seeds)
        is_base = few
        head, slots = block.heads.reshape(-1)[:0], block.tails[:0]
        if at < n_heads:
            head = block.heads[at]
        else:
            slots = block.tails[block.tail_ptr[at - n_heads] + rank :]
        run = begin
        while run < end:
            is_long, stop = _run_end(run, end, document, shard.doc_ptr, long_document)
            address = np.uint64(shard.word_first[word] + rank + run - begin)
            rest = slots[run - begin :] if at >= n_heads else slots
            if is_long:
                smooth, n_moved, n_accepted = _step_tokens(
                    run, stop, shard, topic, document, lists, weights, smooth, alpha, alpha_ends, n_steps,
                    step_key + address * np.uint64(MAX_STEPS) * GAMMA, parts, head, rest,
                )  # fmt: skip
                proposed += n_steps * (stop - run)
                accepted += n_accepted
            else:
                smooth, n_moved = _sample_tokens(
                    run, stop, topic, document, lists, weights, smooth, alpha, key + address * GAMMA, parts, head,
                    rest,
                )  # fmt: skip
            moved += n_moved
            run = stop
        if few:
            smooth = _put_row(at, block, weights, smooth, True, alpha)
        else:
            weights.row[:] = 0
    return moved, proposed, accepted
