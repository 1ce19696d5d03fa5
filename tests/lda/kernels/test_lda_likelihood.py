"""The joint log-likelihood, against a direct computation over dense count tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from schmp_estimators.lda.blocks import TopicRows, no_rows
from schmp_estimators.lda.kernels import likelihood as ll


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


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.int16, np.int32])
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


def test_rows_sparse_dense_and_fixed_agree():
    rng = np.random.default_rng(4)
    table = rng.poisson(0.5, (20, 7)) * rng.integers(1, 3000, (20, 7))
    row, topic = np.nonzero(table)
    rows = TopicRows(offsets(row, 20), topic.astype(np.int32), table[row, topic].astype(np.int32))
    expected = ll.count_histogram(table)
    assert expected.total == table.sum()
    assert len(expected.overflow) == (table >= ll.LIMIT).sum() > 0
    as_tokens = np.repeat(topic, table[row, topic]).astype(np.int16)
    word_ptr = np.concatenate([[0], np.cumsum(table.sum(1))]).astype(np.int64)
    half = table // 2
    row2, topic2 = np.nonzero(half)
    fixed = TopicRows(offsets(row2, 20), topic2.astype(np.int32), half[row2, topic2].astype(np.int32))
    rest = table - half
    rest_ptr = np.concatenate([[0], np.cumsum(rest.sum(1))]).astype(np.int64)
    rest_tokens = np.repeat(topic, rest[row, topic]).astype(np.int16)
    for histogram in (
        ll.count_histogram(rows.tokens),
        ll.word_histogram(word_ptr, as_tokens, 7, no_rows(20)),
        ll.word_histogram(rest_ptr, rest_tokens, 7, fixed),
        ll.word_histogram(np.zeros(21, np.int64), rest_tokens[:0], 7, rows),
        ll.topic_counts(word_ptr, np.arange(len(as_tokens), dtype=np.uint32), as_tokens, 7).histogram,
    ):
        np.testing.assert_array_equal(histogram.dense, expected.dense)
        np.testing.assert_array_equal(histogram.overflow, expected.overflow)


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


def test_a_large_count_overflows_and_an_empty_corpus_is_certain():
    topic = np.zeros(3 * ll.LIMIT + 5, np.int16)
    place = np.arange(len(topic), dtype=np.uint32)
    counts = ll.topic_counts(np.array([0, ll.LIMIT, len(topic)]), place, topic, 1)
    histogram = counts.histogram
    assert histogram.overflow.tolist() == [ll.LIMIT, 2 * ll.LIMIT + 5]
    assert histogram.dense.sum() == 0
    assert ll.document_log_likelihood(counts, ll.merge([histogram]), 0.5, 1) == 0.0
    empty = ll.topic_counts(np.array([0, 0, 0]), place[:0], topic[:0], 5)
    assert ll.document_log_likelihood(empty, ll.merge([]), 0.1, 5) == 0.0
    assert ll.word_log_likelihood(empty.histogram, np.zeros(5, np.int64), 0.1, 9) == 0.0
