"""Small corpora for tests of whole estimators, and what their users compare."""

import numpy as np
import pytest
from scipy import sparse

from schmp_estimators.lda.samplers import SAMPLERS, program_of

SMALL = np.random.default_rng(0).poisson(0.6, (23, 11))
NAMES = [f"word{i}" for i in range(11)]


#: Samplers that "auto" chooses; the kernels of others are long in compilation.
QUICK = ("warp", "frozen", "saber")


def samplers(quick=QUICK, wanted=lambda kind: True):
    """Mark a test of samplers, of which all but the quick ones are slow."""
    names = [name for name in SAMPLERS if wanted(program_of(name))]
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "sampler", [n if n in quick else pytest.param(n, marks=slow) for n in names]
    )


def planted(n_docs=200, n_topics=4, words_per_topic=10, length=60, seed=0):
    """Documents about one or two of a few topics that have most of their words for themselves.

    Returns
    -------
    X : (n_docs, n_words) int64
    topics : (n_topics, n_words) word proportions
    shares : (n_docs, n_topics) topic proportions
    """
    rng = np.random.default_rng(seed)
    topics = np.full((n_topics, n_topics * words_per_topic), 0.02)
    for k in range(n_topics):
        topics[k, k * words_per_topic : (k + 1) * words_per_topic] = rng.uniform(
            0.5, 1.5, words_per_topic
        )
    topics /= topics.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(n_topics, 0.15), n_docs)
    return np.array([rng.multinomial(length, share) for share in shares @ topics]), topics, shares


def assert_same_bits(one, other):
    """All that a fit leaves behind is equal, but for the time it took."""
    for name in ("indptr", "indices", "data"):
        parts = [getattr(fitted.topic_word_counts_, name) for fitted in (one, other)]
        np.testing.assert_array_equal(*parts, strict=True)
    assert one.topic_word_counts_.shape == other.topic_word_counts_.shape
    assert (one.n_iter_, one.n_features_in_) == (other.n_iter_, other.n_features_in_)
    assert without_seconds(one) == without_seconds(other)


def without_seconds(estimator):
    """Return the history without what two equal fits may differ in."""
    return [
        {name: record[name] for name in record if name != "seconds"}
        for record in estimator.history_
    ]


def column_sums(X):
    """Return how often each word is in X, by NumPy's arithmetic."""
    return np.asarray(X.sum(axis=0) if sparse.issparse(X) else np.sum(X, axis=0)).ravel()


def completion_perplexity(estimator, X):
    """Perplexity by document completion, from `components_` and `transform` of seen halves."""
    X = np.asarray(X)
    tokens = [np.repeat(np.arange(X.shape[1]), row) for row in X]
    seen = np.array([np.bincount(t[::2], minlength=X.shape[1]) for t in tokens])
    words = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    predicted = estimator.transform(seen) @ words
    scored = [(row, word) for row, t in enumerate(tokens) for word in t[1::2]]
    return np.exp(-np.mean([np.log(predicted[place]) for place in scored]))


def unigram_perplexity(train, test):
    """Perplexity of a model without topics."""
    share = (column_sums(train) + 1) / (column_sums(train) + 1).sum()
    return np.exp(-(column_sums(test) * np.log(share)).sum() / np.sum(test))
