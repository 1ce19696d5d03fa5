"""The document pass of the frozen-count sampler, and the state at which it starts.

A token's proposals were drawn from its word.  The document is nobody else's, so its counts are live: a token is taken
out, its proposals are accepted or rejected by the counts of all the others, and it is put back::

    accept t with probability min(1, (n_dt + alpha) (n_s + V beta) / ((n_ds + alpha) (n_t + V beta)))

Then new proposals are drawn from the finished document, q(k) proportional to n_dk + alpha: a random token's topic with
probability L_d / (L_d + K alpha), else a uniform topic.  They depend on the topics at the end of the pass and on random
bits addressed by the token's position in document order, on nothing else, so a saved run need not keep them.
"""

import numpy as np

from schmp_estimators.kernels._jit import kernel
from schmp_estimators.kernels.lda_warp import uniform24
from schmp_estimators.kernels.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix


@kernel
def _propose(own, topics, alpha, n_topics, counter, tokens, steps):
    """Write the n topics of a document, and new proposals drawn from them, to its tokens in word-major order.

    Parameters
    ----------
    own : (n,) uint32
        Places of the document's tokens.
    topics : (at least n,) int16 or int32
        Their topics.
    alpha : float32
        Document-topic prior.
    n_topics : int
        Number of topics.
    counter : uint64
        Input of the hash for the first draw.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated.
    steps : tuple
        As many integers as proposals.

    Notes
    -----
    5 ns per token, most of it for the scattered writes.
    """
    n, n_steps = len(own), len(steps)
    per_topic = 1.0 / np.float64(alpha)
    scale = (np.float64(n) + n_topics * np.float64(alpha)) * SCALE_PROPOSE
    for i in range(n):
        base = np.uint64(own[np.uint64(i)]) * np.uint64(1 + n_steps)
        tokens[base] = topics[np.uint64(i)]
        for step in range(n_steps):
            y = np.float64(np.int64(mix(counter) & MASK_PROPOSE)) * scale
            counter += GAMMA
            x = np.int64(y)
            if x < n:
                k = np.int64(topics[np.uint64(x)])
            else:
                k = min(np.int64((y - np.float64(n)) * per_topic), n_topics - 1)
            tokens[base + np.uint64(1 + step)] = k


@kernel
def sample_documents(first, last, shard, tokens, inverse, alpha, key, totals, steps):
    """Do the document pass for some documents of a shard.

    Parameters
    ----------
    first, last : int
        Range of documents.
    shard : TokenShard
        Any.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals.
    inverse : (K,) float32
        ``1 / (n_k + V beta)``.
    alpha : float32
        Document-topic prior.
    key : uint64
        Stream of this sweep's document pass.
    totals : (K,) int64
        Mutated: the tokens' new topics are added.
    steps : tuple
        As many integers as proposals.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    14 ns per token with one proposal, most of it for two visits to a random place of `tokens`; these are gathered and
    scattered in loops of their own, so that many are under way at a time.
    """
    n_steps, width, n_topics = len(steps), 1 + len(steps), len(inverse)
    longest = 0
    for doc in range(first, last):
        longest = max(longest, shard.doc_ptr[doc + 1] - shard.doc_ptr[doc])
    row = np.zeros(n_topics, np.int32)
    pending = np.empty(longest * width, tokens.dtype)
    topics = np.empty(longest, tokens.dtype)
    moved = 0
    for doc in range(first, last):
        start, n = shard.doc_ptr[doc], shard.doc_ptr[doc + 1] - shard.doc_ptr[doc]
        own = shard.place[start : start + n]
        for i in range(n):
            base = np.uint64(own[np.uint64(i)]) * np.uint64(width)
            for j in range(width):
                pending[np.uint64(i * width + j)] = tokens[base + np.uint64(j)]
            row[np.uint32(tokens[base])] += 1
        origin = key + np.uint64(shard.first_token + start) * np.uint64(n_steps) * GAMMA
        counter = origin
        for i in range(n):
            original = np.uint32(pending[np.uint64(i * width)])
            topic = original
            row[topic] -= 1
            weight = (np.float32(row[topic]) + alpha) * inverse[topic]
            for step in range(n_steps):
                bits = mix(counter)
                counter += GAMMA
                proposed = np.uint32(pending[np.uint64(i * width + 1 + step)])
                proposed_weight = (np.float32(row[proposed]) + alpha) * inverse[proposed]
                if uniform24(bits) * weight < proposed_weight:
                    topic = proposed
                    weight = proposed_weight
            row[topic] += 1
            topics[np.uint64(i)] = topic
            moved += topic != original
        for i in range(n):
            topic = np.uint32(topics[np.uint64(i)])
            row[topic] = 0
            totals[topic] += 1
        _propose(own, topics, alpha, n_topics, origin, tokens, steps)
    return moved


@kernel
def start_documents(first, last, shard, saved, tokens, alpha, key, origin, totals, steps):
    """Set the topics of some documents, and draw the proposals that a document pass would have left.

    Parameters
    ----------
    first, last : int
        Range of documents.
    shard : TokenShard
        Any.
    saved : (n_tokens,) int16 or int32
        Topics in document order; of length 0 to draw them uniformly.
    tokens : (n_tokens * (1 + mh_steps),) int16 or int32
        Mutated: topics and proposals.
    alpha : float32
        Document-topic prior.
    key : uint64
        Stream of the last sweep's document pass.
    origin : uint64
        Stream of the first topics.
    totals : (K,) int64
        Mutated: the tokens' topics are added.
    steps : tuple
        As many integers as proposals.

    Notes
    -----
    9 ns per token.
    """
    n_topics = len(totals)
    longest = 0
    for doc in range(first, last):
        longest = max(longest, shard.doc_ptr[doc + 1] - shard.doc_ptr[doc])
    topics = np.empty(longest, tokens.dtype)
    for doc in range(first, last):
        start, n = shard.doc_ptr[doc], shard.doc_ptr[doc + 1] - shard.doc_ptr[doc]
        address = np.uint64(shard.first_token + start)
        for i in range(n):
            if len(saved):
                topics[i] = saved[start + i]
            else:
                bits = mix(origin + (address + np.uint64(i)) * GAMMA)
                topics[i] = np.int64((bits >> np.uint64(32)) * np.uint64(n_topics) >> np.uint64(32))
            totals[topics[i]] += 1
        counter = key + address * np.uint64(len(steps)) * GAMMA
        _propose(shard.place[start : start + n], topics, alpha, n_topics, counter, tokens, steps)


@kernel
def read_topics(place, topic, out):
    """Copy topics from word-major to document order.

    Parameters
    ----------
    place : (n_tokens,) uint32
        Places of the tokens.
    topic : (n_tokens,) int16 or int32
        Topics in word-major order, perhaps a strided view.
    out : (n_tokens,) int16 or int32
        Mutated.

    Notes
    -----
    3 ns per token.
    """
    for i in range(len(place)):
        out[i] = topic[place[i]]
