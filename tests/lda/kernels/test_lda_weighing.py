"""Words weigh the topics in whose passages they are: what documents expect, and where that is asked."""

from itertools import chain

import numpy as np
import pytest
from lda_cases import random_counts

from schmp_estimators import DistributedLDA
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordTopics
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.data.passages import weigh_topics
from schmp_estimators.lda.kernels.passages import TOKEN, expect_topics

ALPHA = np.array([0.1, 0.3, 0.05, 0.2, 0.7, 0.1, 0.4], np.float32)


def as_lists(lists):
    return WordTopics(
        np.concatenate([[0], np.cumsum([len(one) for one in lists])]), np.array([*chain(*lists)], np.int32)
    )


def some_lists(n_words, seed=0):
    """Return up to six of seven topics for each word, none twice; the last word remembers none."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(7)[: rng.integers(1, 7)].tolist() for _ in range(n_words - 1)] + [[]]


def weighed(counts, lists, cuts=(), alpha=ALPHA, beta=0.01):
    """Return the topics of each word, as often as they are repeated."""
    corpus = open_corpus(counts, DistributedLDA())
    bounds = np.array([0, *cuts, len(counts)])
    found = weigh_topics(corpus, corpus.shards(bounds), bounds, as_lists(lists), alpha.astype(float), beta)
    corpus.close()
    return [found.topic[a:b].tolist() for a, b in zip(found.ptr[:-1], found.ptr[1:], strict=True)]


@pytest.mark.parametrize(("first", "step"), [(0, 1), (2, 3)])
def test_documents_expect_what_two_steps_of_em_give(first, step):
    """Document proportions are those of uniform ones first, by whole arrays in double precision."""
    counts, lists = random_counts(4, n_docs=30, n_words=12, rate=1.0), some_lists(12)
    weight = np.random.default_rng(1).random(sum(map(len, lists))).astype(np.float32) + np.float32(0.01)
    phi, entry = np.zeros((12, 7)), np.cumsum([0, *map(len, lists)])
    for word, topics in enumerate(lists):
        phi[word, topics] = weight[entry[word] : entry[word + 1]]
    expected = np.zeros((12, 7))
    for document in counts[first::step]:
        proportions = ALPHA.astype(float)
        for _ in range(2):
            shares = phi * proportions
            sums = shares.sum(axis=1, keepdims=True)
            shares = np.divide(shares, sums, where=sums > 0, out=np.zeros_like(shares)) * document[:, None]
            proportions = ALPHA + shares.sum(axis=0)
        expected += shares
    piece, given = canonical_counts(counts), as_lists(lists)
    found = np.zeros(len(weight), np.int64)
    shared = freeze((given.ptr, given.topic, weight, ALPHA))
    scratch = tuple(np.empty((3, 12), np.float32))
    expect_topics(piece.indptr, piece.indices, piece.data, first, step, *shared, scratch, found)
    of_words = [expected[word, topics] for word, topics in enumerate(lists)]
    np.testing.assert_allclose(found / TOKEN, np.concatenate(of_words), rtol=1e-4, atol=1e-4)
    assert found.sum() > 0


@pytest.mark.parametrize("cuts", [(31,), (1, 2, 40)])
def test_weights_do_not_depend_on_the_division(cuts):
    counts, lists = random_counts(6, n_docs=60, n_words=40), some_lists(40)
    assert weighed(counts, lists) == weighed(counts, lists, cuts)


# Fits.


@pytest.mark.parametrize(("sampler", "is_asked"), [("saber", True), ("warp", False)])
def test_words_weigh_where_the_sampler_says_so(sampler, is_asked, monkeypatch):
    asked = []

    def weigh(corpus, documents, bounds, found, alphas, beta):
        asked.append((np.diff(found.ptr).tolist(), alphas.tolist(), beta))
        return weigh_topics(corpus, documents, bounds, found, alphas, beta)

    monkeypatch.setattr("schmp_estimators.lda.fit.weigh_topics", weigh)
    priors = {"doc_topic_prior": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "topic_word_prior": 0.02}
    X = np.full((60, 2), 40)  # six passages have 480 tokens, of which words remember a hundred topics
    DistributedLDA(6, sampler=sampler, init="documents", max_iter=1, random_state=2, **priors).fit(X)
    assert asked == ([([100, 100], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.02)] if is_asked else [])
    asked.clear()
    learned = {"doc_topic_prior": "learn", "max_iter": 1, "random_state": 2}
    DistributedLDA(6, sampler=sampler, init="documents", **learned).fit(X)
    assert asked == []
