"""Fold-in: the topic proportions of documents under fixed topics, and how well they predict.

The proportions theta of a document maximise its likelihood times a Dirichlet(1 + alpha) prior, a concave problem.
Expectation-maximisation (Hofmann, UAI 1999, section 3, with a prior as in Asuncion et al., UAI 2009, section 2.3)
repeats, for the pseudo-counts ``weight_k = (L + K alpha) theta_k``::

    weight_k  <-  alpha + sum over the words w of  c_w weight_k phi_wk / sum_j weight_j phi_wj
    phi_wk     =  (n_wk + beta) inverse_k,   inverse_k = 1 / (n_k + V beta)

No step knows of other documents and none is random: a document's result does not depend on its neighbours.

A *full* step touches the sparse row of each word, and handles ``beta inverse_k`` for all words at once in O(K).  Most
topics soon have next to no tokens in a document.  Between full steps they are held still, and the others, which are
few, are iterated on a compact copy of their part of the rows.  A document is done when a full step changes little.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.data.blocks import TopicRows
from schmp_estimators.kernels._jit import inlined, kernel

#: Full steps before topics are held still: their order of size settles in the first two.
FIRST_STEPS = 2
#: Topics with fewer tokens are held still; in short documents, less than this share of the tokens.
STILL, STILL_SHARE = 0.1, 0.002
#: Change of theta (sum of absolute values) at which the steps between two full steps end.
TOLERANCE_INNER = 1e-3
#: Change of theta in a full step at which a document is done.
TOLERANCE = 1e-2
#: Limits that only odd documents meet.
MAX_STEPS, MAX_ROUNDS = 100, 20


class TopicModel(NamedTuple):
    """Fixed topics, with the priors under which documents are folded in."""

    #: Counts by column number.
    rows: TopicRows
    #: (K,) ``1 / (n_k + V beta)``.
    inverse: NDArray[np.float64]
    alpha: float
    beta: float


def topic_model(rows: TopicRows, topic_totals: NDArray[np.int64], alpha: float, beta: float) -> TopicModel:
    """Return the model of word rows in the order of the columns and of the topic totals."""
    n_words = len(rows.ptr) - 1
    inverse = np.reciprocal(topic_totals + n_words * float(beta), dtype=np.float64)
    return TopicModel(rows, inverse, float(alpha), float(beta))


@inlined
def _dot(topic, tokens, values, first, last):
    """Return the sum of ``tokens[i] * values[topic[i]]``, in four lanes, so that the additions overlap."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = last - (last - first) % 4
    for i in range(first, whole, 4):
        j = np.uint64(i)
        a += tokens[j] * values[np.uint32(topic[j])]
        b += tokens[j + np.uint64(1)] * values[np.uint32(topic[j + np.uint64(1)])]
        c += tokens[j + np.uint64(2)] * values[np.uint32(topic[j + np.uint64(2)])]
        d += tokens[j + np.uint64(3)] * values[np.uint32(topic[j + np.uint64(3)])]
    for i in range(whole, last):
        a += tokens[np.uint64(i)] * values[np.uint32(topic[np.uint64(i)])]
    return (a + b) + (c + d)


@inlined
def _add(topic, tokens, factor, sums, first, last):
    """Add ``factor * tokens[i]`` to ``sums[topic[i]]``."""
    for i in range(first, last):
        j = np.uint64(i)
        sums[np.uint32(topic[j])] += factor * tokens[j]


@kernel
def _full_step(words, counts, model, weight, share, gain):
    """Do one step for all topics, and return the sum of the absolute changes of `weight`.

    `words` (n,) and `counts` (n,) are the document, `weight` (K,) float64 is mutated, `share` and `gain` (K,) float64
    are scratch.  0.6 ns per entry of the words' rows, 1 ns per topic.
    """
    n_topics, rows = len(weight), model.rows
    common = 0.0
    for k in range(n_topics):
        share[k] = weight[k] * model.inverse[k]
        common += share[k]
        gain[k] = 0.0
    common *= model.beta
    ratios = 0.0
    for i in range(len(words)):
        first, last = rows.ptr[words[i]], rows.ptr[words[i] + 1]
        ratio = counts[i] / (common + _dot(rows.topic, rows.tokens, share, first, last))
        ratios += ratio
        _add(rows.topic, rows.tokens, ratio, gain, first, last)
    ratios *= model.beta
    change = 0.0
    for k in range(n_topics):
        new = model.alpha + share[k] * (gain[k] + ratios)
        change += abs(new - weight[k])
        weight[k] = new
    return change


@inlined
def _select(weight, threshold, active, slot):
    """List the topics of at least `threshold` in `active`, number them in `slot` (K,), and return how many they are."""
    n_active = 0
    for k in range(len(weight)):
        slot[k] = -1
        if weight[k] >= threshold:
            slot[k] = n_active
            active[n_active] = k
            n_active += 1
    return n_active


@kernel
def _gather(words, model, weight, slot, share, held, ptr, topic, tokens):
    """Copy the entries of active topics from the rows of the words, and sum up what the others contribute.

    Parameters
    ----------
    words, model, weight
        The document, the topics and the pseudo-counts.
    slot : (K,) int32
        Numbers of the active topics, -1 for the others.
    share : (K,) float64
        Scratch.
    held : (n,) float64
        Mutated: ``sum of weight_k phi_wk`` over the topics that are not active.
    ptr, topic, tokens : (n + 1,) int64, int32, float64
        Mutated: the compact rows; the last two are replaced if they are too short.

    Returns
    -------
    topic, tokens

    Notes
    -----
    2 ns per entry of the rows.
    """
    rows = model.rows
    common = 0.0
    for k in range(len(weight)):
        share[k] = weight[k] * model.inverse[k]
        if slot[k] < 0:
            common += share[k]
    common *= model.beta
    n_entries = 0
    for i in range(len(words)):
        first, last = rows.ptr[words[i]], rows.ptr[words[i] + 1]
        if n_entries + last - first > len(topic):
            topic = np.concatenate((topic, np.empty(len(topic) + last - first, np.int32)))
            tokens = np.concatenate((tokens, np.empty(len(tokens) + last - first, np.float64)))
        sparse = 0.0
        ptr[i] = n_entries
        for j in range(first, last):
            at = slot[rows.topic[j]]
            topic[n_entries] = at
            tokens[n_entries] = rows.tokens[j]
            n_entries += at >= 0
            if at < 0:
                sparse += rows.tokens[j] * share[rows.topic[j]]
        held[i] = common + sparse
    ptr[len(words)] = n_entries
    return topic, tokens


@kernel
def _active_steps(counts, model, weight, active, share, gain, held, ptr, topic, tokens, tolerance):
    """Repeat the step for the active topics until `weight` changes by less than `tolerance`.

    `active` (n_active,) int32 are the topics of the compact rows ``ptr, topic, tokens``; `share` and `gain` (K,) are
    scratch; `weight` (K,) is mutated.  0.8 ns per entry and step.
    """
    for _ in range(MAX_STEPS):
        common = 0.0
        for a in range(len(active)):
            share[a] = weight[active[a]] * model.inverse[active[a]]
            common += share[a]
            gain[a] = 0.0
        common *= model.beta
        ratios = 0.0
        for i in range(len(counts)):
            ratio = counts[i] / (held[i] + common + _dot(topic, tokens, share, ptr[i], ptr[i + 1]))
            ratios += ratio
            _add(topic, tokens, ratio, gain, ptr[i], ptr[i + 1])
        ratios *= model.beta
        change = 0.0
        for a in range(len(active)):
            new = model.alpha + share[a] * (gain[a] + ratios)
            change += abs(new - weight[active[a]])
            weight[active[a]] = new
        if change <= tolerance:
            break


@kernel
def _fold(words, counts, model, theta, topic, tokens):
    """Write the proportions of a document to `theta` (K,) float64; return `topic` and `tokens`, scratch that grows."""
    n_words, n_topics = len(words), len(theta)
    length = 0.0
    for count in counts:
        length += count
    if length == 0.0:
        theta[:] = 1.0 / n_topics
        return topic, tokens
    total = length + n_topics * model.alpha
    threshold = model.alpha + min(STILL, STILL_SHARE * length)
    share, gain = np.empty(n_topics), np.empty(n_topics)
    active, slot = np.empty(n_topics, np.int32), np.empty(n_topics, np.int32)
    held, ptr = np.empty(n_words), np.empty(n_words + 1, np.int64)
    theta[:] = total / n_topics
    for _ in range(FIRST_STEPS):
        _full_step(words, counts, model, theta, share, gain)
    for _ in range(MAX_ROUNDS):
        n_active = _select(theta, threshold, active, slot)
        topic, tokens = _gather(words, model, theta, slot, share, held, ptr, topic, tokens)
        _active_steps(
            counts, model, theta, active[:n_active], share, gain, held, ptr, topic, tokens, TOLERANCE_INNER * total
        )
        if _full_step(words, counts, model, theta, share, gain) <= TOLERANCE * total:
            break
    total = 0.0
    for k in range(n_topics):
        total += theta[k]
    theta /= total
    return topic, tokens


@kernel
def fold_in(first, last, indptr, indices, counts, model, theta):
    """Find the topic proportions of documents.

    Parameters
    ----------
    first, last : int
        Range of documents; ranges may be done by different threads.
    indptr, indices, counts
        Documents as CSR rows: int32 or int64 offsets and columns, counts of any numeric dtype.
    model : TopicModel
        The topics.
    theta : (n_docs, K) float64
        Mutated: rows `first` to `last` get proportions that sum to 1; those of empty documents are uniform.

    Notes
    -----
    About 10 steps over the rows of the words: 0.5 to 1 µs per token at K = 100, 1.5 to 3.5 at K = 1000, and O(K) per
    document.
    """
    topic, tokens = np.empty(0, np.int32), np.empty(0, np.float64)
    for doc in range(first, last):
        start, stop = indptr[doc], indptr[doc + 1]
        topic, tokens = _fold(indices[start:stop], counts[start:stop], model, theta[doc], topic, tokens)


@kernel
def complete(first, last, indptr, indices, counts, model, scores):
    """Predict one half of each document from the other (document completion: Wallach et al., ICML 2009, section 5.1).

    A document's tokens are numbered in canonical order: by column.  Those with even numbers are folded in, the others
    are scored, so a document with fewer than two tokens scores 0.

    Parameters
    ----------
    first, last, indptr, indices, counts, model
        As in `fold_in`; the counts must be whole numbers.
    scores : (n_docs,) float64
        Mutated: log-likelihood of the scored half, ``L // 2`` tokens of a document of L.

    Notes
    -----
    Costs what `fold_in` of half the tokens costs.
    """
    n_topics, rows = len(model.inverse), model.rows
    theta = np.empty(n_topics)
    topic, tokens = np.empty(0, np.int32), np.empty(0, np.float64)
    for doc in range(first, last):
        start, stop = indptr[doc], indptr[doc + 1]
        words, seen = np.empty(stop - start, indices.dtype), np.empty(stop - start)
        position, n = 0, 0
        for i in range(start, stop):
            after = position + int(counts[i])
            words[n] = indices[i]
            seen[n] = ((after + 1) >> 1) - ((position + 1) >> 1)
            n += seen[n] > 0
            position = after
        scores[doc] = 0.0
        if position < 2:
            continue
        topic, tokens = _fold(words[:n], seen[:n], model, theta, topic, tokens)
        common = 0.0
        for k in range(n_topics):
            theta[k] *= model.inverse[k]
            common += theta[k]
        position = 0
        for i in range(start, stop):
            after = position + int(counts[i])
            scored = (after >> 1) - (position >> 1)
            position = after
            if scored > 0:
                w = indices[i]
                sparse = _dot(rows.topic, rows.tokens, theta, rows.ptr[w], rows.ptr[w + 1])
                scores[doc] += scored * np.log(model.beta * common + sparse)
