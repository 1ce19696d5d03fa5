"""The joint log-likelihood, against a direct computation over dense count tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import CUTS, fit, old_rows, random_counts, token_words
from scipy import sparse
from scipy.special import gammaln

from schmp_estimators.lda.blocks import no_rows
from schmp_estimators.lda.kernels import likelihood as ll
from schmp_estimators.lda.programs.seeds import word_seeds


def dense_log_likelihood(table, prior):
    """One row after the other: lnΓ(Σ) − lnΓ(Σ + n) + Σ lnΓ(n_i + prior) − lnΓ(prior)."""
    value = 0.0
    for row in table:
        total = prior * len(row)
        value += gammaln(total) - gammaln(total + row.sum())
        value += sum(gammaln(count + prior) - gammaln(prior) for count in row)
    return value


def random_corpus(rng, n_docs, n_words, n_topics, length):
    """Tokens in document order: document, word, topic; place in word-major order."""
    doc = np.repeat(np.arange(n_docs), rng.integers(0, length, n_docs))
    word = rng.integers(0, n_words, len(doc))
    word = word[np.lexsort((word, doc))]
    place = np.empty(len(doc), np.uint32)
    place[np.argsort(word, kind="stable")] = np.arange(len(doc))
    return doc, word, place, rng.integers(0, n_topics, len(doc))


def offsets(owner, n):
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]).astype(np.int64)


def table_of(row, topic, shape):
    table = np.zeros(shape, np.int64)
    np.add.at(table, (row, topic), 1)
    return table


@pytest.mark.parametrize("dtype", [np.int16, pytest.param(np.int32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strided", [False, True])
def test_both_parts_equal_the_dense_computation(dtype, strided):
    rng = np.random.default_rng(3)
    n_docs, n_words, n_topics = 40, 30, 6
    doc, word, place, z = random_corpus(rng, n_docs, n_words, n_topics, 60)
    packed = np.full((len(z), 2), -1, dtype)
    packed[place, 0] = z
    topic = packed[:, 0] if strided else packed[:, 0].copy()
    topic.flags.writeable = False

    by_doc, by_word = table_of(doc, z, (n_docs, n_topics)), table_of(word, z, (n_words, n_topics))
    doc_ptr = offsets(doc, n_docs)
    documents = ll.topic_counts(doc_ptr, place, topic, n_topics)
    words = ll.word_histogram(offsets(word, n_words), topic, n_topics, no_rows())
    assert documents.histogram.total == words.total == len(z)

    lengths = ll.count_histogram(np.diff(doc_ptr))
    value = ll.document_log_likelihood(documents, lengths, 0.1, n_topics)
    assert value == pytest.approx(dense_log_likelihood(by_doc, 0.1), rel=1e-12)
    value = ll.word_log_likelihood(words, by_word.sum(0), 0.01, n_words)
    assert value == pytest.approx(dense_log_likelihood(by_word.T, 0.01), rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 25), max_size=5), st.floats(1e-3, 10), st.randoms())
def test_any_division_gives_the_same_bits(seed, cuts, prior, order):
    rng = np.random.default_rng(seed)
    n_docs, n_words, n_topics = 25, 12, 4
    doc, _word, place, z = random_corpus(rng, n_docs, n_words, n_topics, 30)
    topic = np.empty(len(z), np.int16)
    topic[place] = z
    doc_ptr = offsets(doc, n_docs)

    def value(bounds):
        parts = []
        for start, stop in bounds:
            counts = ll.topic_counts(doc_ptr[start : stop + 1], place, topic, n_topics)
            parts.append((counts, ll.count_histogram(np.diff(doc_ptr[start : stop + 1]))))
        order.shuffle(parts)
        documents, lengths = zip(*parts, strict=True)
        given = ll.merge_counts(list(documents)), ll.merge(list(lengths))
        return [ll.document_log_likelihood(*given, alpha, n_topics) for alpha in (prior, np.full(n_topics, prior))]

    bounds = [0, *sorted(cuts), n_docs]
    assert value(list(itertools.pairwise(bounds))) == value([(0, n_docs)])


@pytest.mark.parametrize("cuts", CUTS[::3])
def test_fits_record_the_likelihood_of_dense_tables(cuts):
    """With a prior for each topic, seeds of half of the words, and counts of earlier batches."""
    counts, rng, alphas = random_counts(6), np.random.default_rng(0), np.geomspace(0.02, 2.0, 5)
    fixed = old_rows(1, counts, 5)
    seeds = rng.gamma(1.0, 5.0, fixed.shape) * (rng.random(fixed.shape) < 0.3)
    options = {
        "fixed": fixed,
        "seeds": word_seeds(sparse.csc_array(seeds.T), counts.sum(0).astype(np.int64), sparse.csc_array(fixed.T)),
        "doc_topic_prior": float(alphas.mean()),
        "own_alphas": alphas,
    }
    result = fit(counts, 5, cuts=cuts, **options)
    by_document = table_of(np.repeat(np.arange(len(counts)), counts.sum(1)), result.topics[-1], (len(counts), 5))
    by_word, beta = fixed + table_of(token_words(counts), result.topics[-1], fixed.shape), 0.1 + seeds
    for name, table, prior in (("document", by_document, alphas[None]), ("word", by_word.T, beta.T)):
        sums = np.broadcast_to(prior, table.shape).sum(1)
        expected = (gammaln(table + prior) - gammaln(prior)).sum()
        expected += (gammaln(sums) - gammaln(table.sum(1) + sums)).sum()
        assert result.records[-1][f"{name}_log_likelihood"] == pytest.approx(expected, rel=1e-11)
    assert result.records == fit(counts, 5, **options).records
