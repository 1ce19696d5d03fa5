"""Fold-in: the topic proportions of documents under fixed topics, and how well they predict.

The proportions theta of a document maximise its likelihood times a Dirichlet(1 + alpha) prior, a concave problem.
Expectation-maximisation (Hofmann, UAI 1999, section 3, with a prior as in Asuncion et al., UAI 2009, section 2.3)
repeats, for the pseudo-counts ``weight_k = (L + sum of alpha) theta_k``::

    weight_k  <-  alpha_k + sum over the words w of  c_w weight_k phi_wk / sum_j weight_j phi_wj
    phi_wk     =  (n_wk + beta) inverse_k,   inverse_k = 1 / (n_k + V beta)

No step knows of other documents and none is random: a document's result does not depend on its neighbours.

A *full* step touches the sparse row of each word, and handles ``beta inverse_k`` for all words at once in O(K).  Most
topics soon have next to no tokens in a document.  Between full steps they are held still, and the others, which are
few, are iterated on a compact copy of their part of the rows.  A document is done when a full step changes little.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import copy_to, kernel
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.kernels.foldin_steps import active_steps, dot, full_step, gather_rows, select_topics

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
    #: (K,) document-topic prior of every topic, and their sum.
    alpha: NDArray[np.float64]
    alpha_sum: float
    beta: float
    #: (K,) proportions of a document without tokens.
    expected: NDArray[np.float64]


def topic_model(
    rows: TopicRows, topic_totals: NDArray[np.int64], alpha: float | NDArray[np.float64], beta: float
) -> TopicModel:
    """Return the model of word rows in the order of the columns and of the topic totals."""
    n_words = len(rows.ptr) - 1
    inverse = np.reciprocal(topic_totals + n_words * float(beta), dtype=np.float64)
    n_topics = len(inverse)
    if isinstance(alpha, np.ndarray):
        total = math.fsum(alpha)
        return TopicModel(rows, inverse, alpha, total, float(beta), alpha / total)
    same, expected = np.full(n_topics, float(alpha)), np.full(n_topics, 1.0 / n_topics)
    return TopicModel(rows, inverse, same, n_topics * float(alpha), float(beta), expected)


@kernel
def _fold(words, counts, model, theta, topic, tokens):
    """Write the proportions of a document to `theta` (K,) float64; return `topic` and `tokens`, scratch that grows."""
    n_words, n_topics = len(words), len(theta)
    length = 0.0
    for count in counts:
        length += count
    if length == 0.0:
        copy_to(model.expected, theta)
        return topic, tokens
    total = length + model.alpha_sum
    least = min(STILL, STILL_SHARE * length)
    share, gain = np.empty(n_topics), np.empty(n_topics)
    active, slot = np.empty(n_topics, np.int32), np.empty(n_topics, np.int32)
    held, ptr = np.empty(n_words), np.empty(n_words + 1, np.int64)
    theta[:] = total / n_topics
    for _ in range(FIRST_STEPS):
        full_step(words, counts, model, theta, share, gain)
    for _ in range(MAX_ROUNDS):
        n_active = select_topics(theta, model.alpha, least, active, slot)
        topic, tokens = gather_rows(words, model, theta, slot, share, held, ptr, topic, tokens)
        active_steps(
            counts,
            model,
            theta,
            active[:n_active],
            share,
            gain,
            held,
            ptr,
            topic,
            tokens,
            MAX_STEPS,
            TOLERANCE_INNER * total,
        )
        if full_step(words, counts, model, theta, share, gain) <= TOLERANCE * total:
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
        Mutated: rows `first` to `last` get proportions that sum to 1; those of empty documents are the prior's.

    Notes
    -----
    0.2 to 0.6 µs per token at K = 100, 0.8 to 3.2 at K = 1000 on three corpora of prose; O(K) per document beside.
    """
    topic, tokens = np.empty(0, np.int32), np.empty(0, np.float64)
    for doc in range(first, last):
        start, stop = indptr[doc], indptr[doc + 1]
        # Copies, of the types that `complete` has, too: `_fold` and all that it calls are compiled once.
        words, all_counts = np.empty(stop - start, indices.dtype), np.empty(stop - start)
        copy_to(indices[start:stop], words)
        copy_to(counts[start:stop], all_counts)
        topic, tokens = _fold(words, all_counts, model, theta[doc], topic, tokens)


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
    (row_ptr, row_topic, row_tokens), inverse, _, _, beta, _ = model
    n_topics = len(inverse)
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
            theta[k] *= inverse[k]
            common += theta[k]
        position = 0
        for i in range(start, stop):
            after = position + int(counts[i])
            scored = (after >> 1) - (position >> 1)
            position = after
            if scored > 0:
                w = indices[i]
                sparse = dot(row_topic, row_tokens, theta, row_ptr[w], row_ptr[w + 1])
                scores[doc] += scored * np.log(beta * common + sparse)
