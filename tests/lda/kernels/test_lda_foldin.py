"""Fold-in: equality with dense matrices, and independence of a document from all others."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles import lda_foldin as oracle

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.kernels.foldin import topic_model
from schmp_estimators.lda.programs.foldin import completion_scores, proportions


def make(seed, n_docs=12, n_words=40, n_topics=6, alpha=0.1, beta=0.01, length=60, tol=1e-3):
    """A model with sparse rows and documents drawn from it; a word without a row, an empty document, one of a token."""
    rng = np.random.default_rng(seed)
    word_topic = rng.poisson(rng.gamma(0.2, 20.0, (n_words, n_topics)))
    word_topic[3] = 0
    phi = oracle.topics(word_topic, beta)
    counts = np.array(
        [rng.multinomial(rng.integers(0, length), phi @ rng.dirichlet(np.full(n_topics, 0.3))) for _ in range(n_docs)]
    )
    counts[0] = 0
    counts[1] = 0
    counts[1, 3] = 1
    sparse = sp.csr_array(word_topic)
    rows = TopicRows(sparse.indptr.astype(np.int64), sparse.indices.astype(np.int32), sparse.data.astype(np.int32))
    return counts, phi, freeze(topic_model(rows, word_topic.sum(0), alpha, beta, tol))


def fold(counts, model):
    return proportions(sp.csr_array(counts), model)


@pytest.mark.covering
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-8])
@pytest.mark.parametrize("alpha", [2.0, 0.1, 0.001, "uneven"])
@pytest.mark.parametrize("n_topics", [1, 2, 6, 40])
def test_is_as_near_the_maximum_as_is_asked(alpha, n_topics, tol):
    alpha = np.geomspace(1e-3, 1.0, n_topics) if alpha == "uneven" else alpha
    counts, phi, model = make(5, n_topics=n_topics, alpha=alpha, length=200, tol=tol)
    theta = fold(counts, model)
    assert theta.min() > 0
    np.testing.assert_allclose(theta.sum(1), 1.0, rtol=1e-14)
    assert abs(theta - oracle.maximum(counts, phi, alpha)).sum(1).max() <= tol
    np.testing.assert_allclose(theta[0], np.full(n_topics, alpha) / np.full(n_topics, alpha).sum(), rtol=1e-12)


def test_completion_scores_the_odd_tokens():
    counts, phi, model = make(9, n_docs=10, tol=1e-9)
    scores = completion_scores(canonical_counts(counts), model)
    expected = [oracle.completion(document, phi, 0.1) for document in counts]
    np.testing.assert_allclose(scores, [score for score, _ in expected], rtol=1e-7)
    assert [n for _, n in expected] == [int(length) // 2 for length in counts.sum(1)]
    assert scores[0] == scores[1] == 0.0
