"""The document pass of the frozen-count sampler.

A token's proposals were drawn from its word.  The document is nobody else's, so its counts are
live: proposals are accepted or rejected by the counts of all other tokens as they are now::

    accept t with probability min(1, r),
    r = (n_dt + alpha_t) (n_s + V beta) / ((n_ds + alpha_s) (n_t + V beta))

Then new proposals are drawn from the finished document, q(k) proportional to n_dk + alpha_k: a
random token's topic with probability L_d / (L_d + sum of alpha), else one drawn from alpha.  They
depend only on the topics at the end of the pass and on random bits addressed by the token's
position in document order.  So a saved run need not keep them.  A pass whose proposals are the
topics themselves moves no token, and draws them again.
"""

import numpy as np

from schmp_estimators.core.jit import index, inlined, kernel, part
from schmp_estimators.core.lanes import prefetch
from schmp_estimators.core.rng import GAMMA
from schmp_estimators.lda.kernels.draw import select
from schmp_estimators.lda.kernels.priors import alpha_at, draw_slots, values_of
from schmp_estimators.lda.kernels.warp import AHEAD, NEAR, fetch

#: Tokens of a document for which random numbers are made at a time.
CHUNK = 64
#: Up to so many topics the weights of all topics are kept: beyond, they would only take room in the
#: cache.
MAX_KEPT = 1 << 14


@inlined
def _weigh(n, alpha, topic, inverse):
    """Return the weight of a topic that n tokens of a document have."""
    return (np.float32(n) + alpha_at(alpha, topic)) * inverse[topic]


@part
def _propose(own, topics, draws, tokens, steps):
    """Write the n topics of a document, and new proposals, to its tokens in word-major order.

    The proposals are drawn from the topics.

    Parameters
    ----------
    own : (n,) uint32
        Places of the document's tokens.
    topics : (at least n,) uint8, int16 or int32
        Their topics.
    draws : (at least n * mh_steps,) int32
        From `draw_slots`.
    tokens : (n_tokens * (1 + mh_steps),) uint8, int16 or int32
        Mutated.
    steps : tuple
        As many numbers as proposals.

    Notes
    -----
    3 ns per token.
    """
    n_steps = len(steps)
    for i in range(len(own)):
        base = np.uint64(own[np.uint64(i)]) * np.uint64(1 + n_steps)
        tokens[base] = topics[index(i)]
        for step in range(n_steps):
            draw = np.int64(draws[index(i * n_steps + step)])
            topic = np.int64(topics[index(max(~draw, 0))])
            tokens[base + index(1 + step)] = select(draw < 0, topic, draw)


@inlined
def _decide(original, own_weight, pending, at, uniforms, u, row, alpha, inverse, weights, steps):
    """Return the topic of a token after its proposals, which follow place `at` of `pending`."""
    topic, weight = original, own_weight
    for step in range(len(steps)):
        proposed = np.uint32(pending[index(at + 1 + step)])
        if len(weights):
            proposed_weight = weights[proposed]
        else:
            proposed_weight = _weigh(row[proposed], alpha, proposed, inverse)
        proposed_weight = select(proposed == original, own_weight, proposed_weight)
        accepted = uniforms[index(u + step)] * weight < proposed_weight
        topic = select(accepted, proposed, topic)
        weight = select(accepted, proposed_weight, weight)
    return topic


@inlined
def _gather(own, tokens, width, alpha, inverse, pending, row, weights):
    """Copy topics and proposals of a document's tokens to `pending`, and count its topics.

    Counts and weights are renewed as a whole where a document has many tokens, else entry by entry.
    """
    for i in range(len(own)):
        base = index(own[index(i)]) * index(width)
        for j in range(width):
            pending[index(i * width + j)] = tokens[base + index(j)]
        row[np.uint32(tokens[base])] += 1
    if 4 * len(own) > len(row):
        for k in range(len(weights)):
            weights[k] = _weigh(row[k], alpha, k, inverse)
    elif len(weights):
        for i in range(len(own)):
            topic = np.uint32(pending[index(i * width)])
            weights[topic] = _weigh(row[topic], alpha, topic, inverse)


@inlined
def _clear(n, topics, alpha, inverse, totals, row, weights):
    """Add the topics of a document's n tokens to `totals`.

    `row` and `weights` become those of an empty document.
    """
    if 4 * n > len(row):
        for k in range(len(row)):
            totals[k] += row[k]
            row[k] = 0
        for k in range(len(weights)):
            weights[k] = _weigh(0, alpha, k, inverse)
    else:
        for i in range(n):
            topic = np.uint32(topics[index(i)])
            totals[topic] += 1
            row[topic] = 0
            if len(weights):
                weights[topic] = _weigh(0, alpha, topic, inverse)


@kernel
def sample_documents(first, last, totals, shard, tokens, inverse, alpha, key, steps):
    """Do the document pass for some documents of a shard.

    Parameters
    ----------
    first, last : int
        Range of documents.
    totals : (K,) int64
        Mutated: the tokens' new topics are added.
    shard : TokenShard
        Any.
    tokens : (n_tokens * (1 + mh_steps),) uint8, int16 or int32
        Mutated: topics and proposals.
    inverse : (K,) float32
        ``1 / (n_k + V beta)``.
    alpha : float32 or TopicPriors
        Document-topic prior.
    key : uint64
        Stream of this sweep's document pass.
    steps : tuple
        As many numbers as proposals.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    14 ns per token with one proposal, 21 with two.  The two visits to a random place of `tokens`
    are loops of their own, so that many are under way at a time, and what the next document reads
    is fetched into the cache meanwhile.  Random numbers are made many at a time as well, those of a
    token's acceptance and of its next proposal from one hash.  Acceptance is a coin toss, and a
    processor that has to guess it loses more than all the arithmetic takes.  So there is a branch
    only for a token that moves: then `row` and `weights` change, and a proposal costs a single
    look-up.
    """
    n_steps = len(steps)
    width = 1 + len(steps)
    n_topics = len(inverse)
    prior = values_of(alpha)
    longest = 0
    for doc in range(first, last):
        longest = max(longest, shard.doc_ptr[doc + 1] - shard.doc_ptr[doc])
    row = np.zeros(n_topics, np.int32)
    weights = np.empty(n_topics if n_topics <= MAX_KEPT else 0, np.float32)
    for k in range(len(weights)):
        weights[k] = _weigh(0, prior, k, inverse)
    pending = np.empty(longest * width, tokens.dtype)
    topics = np.empty(longest, tokens.dtype)
    uniforms = np.empty(CHUNK * n_steps, np.float32)
    draws = np.empty(longest * n_steps, np.int32)
    place = shard.place
    end = shard.doc_ptr[last]
    moved = 0
    for doc in range(first, last):
        start = shard.doc_ptr[doc]
        n = shard.doc_ptr[doc + 1] - shard.doc_ptr[doc]
        own = place[start : start + n]
        _gather(own, tokens, width, prior, inverse, pending, row, weights)
        origin = key + np.uint64(shard.first_token + start) * np.uint64(n_steps) * GAMMA
        for begin in range(0, n, CHUNK):
            size = min(CHUNK, n - begin)
            counter = origin + np.uint64(begin * n_steps) * GAMMA
            draw_slots(
                alpha, size * n_steps, counter, n, n_topics, uniforms, draws[begin * n_steps :]
            )
            for i in range(size):
                coming = start + n + begin + i
                if coming < end:
                    prefetch(tokens, np.int64(place[index(coming)]) * width)
                at = (begin + i) * width
                if n_topics > NEAR:
                    fetch(pending, index(at + AHEAD * width), index(n * width), width, row, inverse)
                original = np.uint32(pending[index(at)])
                own_weight = _weigh(row[original] - np.int32(1), prior, original, inverse)
                topic = _decide(
                    original,
                    own_weight,
                    pending,
                    at,
                    uniforms,
                    i * n_steps,
                    row,
                    prior,
                    inverse,
                    weights,
                    steps,
                )
                topics[index(begin + i)] = topic
                if topic != original:
                    row[original] -= 1
                    row[topic] += 1
                    if len(weights):
                        weights[original] = own_weight
                        weights[topic] = _weigh(row[topic], prior, topic, inverse)
                    moved += 1
        _clear(n, topics, prior, inverse, totals, row, weights)
        _propose(own, topics, draws, tokens, steps)
    return moved
