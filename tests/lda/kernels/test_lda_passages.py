"""Topics that begin with passages.

What is drawn and chosen, what tokens make of it, and what words weigh.
"""

from collections import Counter
from itertools import chain, pairwise

import dask.array as da
import numpy as np
import pytest
from lda_cases import make_shards, random_counts, token_words
from scipy.stats import chisquare

from schmp_estimators import DistributedLDA
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordTopics, words_of_places
from schmp_estimators.lda.data import passages
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.data.shards import topics_of_shard
from schmp_estimators.lda.kernels.tokens import (
    TOKEN,
    draw_known_topics,
    draw_passages,
    expect_topics,
)

KEY = stream_key(11)


def as_lists(lists, kind=WordTopics):
    """Return where lists begin, and what they have."""
    return kind(np.cumsum([0, *map(len, lists)]), np.array([*chain(*lists)], np.int32))


def draw(counts, rows, size, key=KEY):
    """Return passages of rows of a dense matrix, as lists of columns."""
    piece = canonical_counts(np.asarray(counts))
    rows = np.asarray(rows, np.int64)
    ptr = np.concatenate([[0], np.cumsum(np.minimum(np.sum(counts, axis=1)[rows], size))])
    words = np.full(ptr[-1], -1, np.int32)
    counted = piece.indptr, piece.indices, piece.data
    draw_passages(*freeze((*counted, rows, np.arange(len(rows)), key, ptr)), words)
    return [words[a:b].tolist() for a, b in pairwise(ptr)]


def chosen(lists, n_topics, n_words, n_choices=50, few=0, key=KEY):
    """Return the topics that each word is in, by passages."""
    some = as_lists(lists, passages.Passages)
    taken = passages.choose_passages(some, n_topics, n_words, few)
    topics, seen = passages.topics_of_words(some, taken, n_words, n_choices, key)
    return [
        row[:n].tolist() for row, n in zip(topics, np.minimum(seen, n_choices), strict=True)
    ], seen.tolist()


# Documents.


def test_numbers_are_drawn_fairly():
    firsts = np.zeros((3, 7), int)
    for key in range(1500):
        drawn = passages.draw_without_replacement(7, 3, stream_key(key))
        assert len(set(drawn)) == 3
        firsts[np.arange(3), drawn] += 1
    assert sorted(passages.draw_without_replacement(7, 7, stream_key(1))) == list(range(7))
    assert min(chisquare(row).pvalue for row in firsts) > 1e-3


def test_all_tokens_have_equal_chances_to_be_in_a_passage():
    """Ten tokens of four words; four of them are drawn, by 5,000 passages of the same document."""
    counts = np.array([[1, 2, 3, 4]])
    found = draw(counts, [0] * 5000, 4)
    drawn = np.bincount(np.concatenate(found), minlength=4)
    assert drawn.sum() == 20_000
    np.testing.assert_allclose(drawn, 2000 * counts[0], rtol=0.05)
    pairs = Counter(map(tuple, found))
    alike = pairs[(3, 3, 3, 3)] / 5000  # 1 in 210 draws of four out of ten
    assert 0.5 / 210 < alike < 2 / 210


# Topics.


def test_of_several_passages_the_newest_words_win():
    """Topic 1 may have words 0 and 1 again, or word 1 with word 2, which is new.

    Topic 2 gets word 3.
    """
    lists = [[0, 1, 1], [0, 1, 1], [0, 1], [1, 2], [3], [0, 1, 2]]
    assert chosen(lists, 3, 4)[0] == [[0], [0, 0, 1], [1], [2]]
    assert chosen(lists, 3, 4, few=1)[0] == [
        [0, 2],
        [0, 0, 1, 2],
        [1, 2],
        [],
    ]  # a passage of one word counts for less


def test_choices_are_a_fair_sample_of_the_topics_of_a_word():
    found = np.array(
        [chosen([[0]] * 20, 20, 1, n_choices=5, key=stream_key(seed))[0][0] for seed in range(400)]
    )
    assert found.shape == (400, 5)
    assert chisquare(np.bincount(found.ravel(), minlength=20)).pvalue > 1e-3


# Tokens.


def first_topics(counts, lists, n_topics, cuts=()):
    """Return the first topics of tokens in document order, if words begin in these topics.

    Each word has a list of topics.
    """
    shards, layout = make_shards(counts, cuts)
    topics = []
    for shard in shards:
        mine = np.bincount(layout.column, np.diff(shard.word_ptr), len(lists)).astype(np.int64)
        topics.append(np.full(len(shard.place), -1, np.int16))
        first = topics_of_shard(as_lists(lists), layout.column, mine)
        given = (
            shard.place,
            shard.doc_ptr,
            words_of_places(shard),
            *freeze(first),
            shard.first_token,
        )
        draw_known_topics(*given, KEY, n_topics, topics[-1])
    return np.concatenate(topics)


@pytest.mark.parametrize("cuts", [(4,), (1, 2, 9)])
def test_tokens_begin_in_the_topics_of_their_words(cuts):
    counts = random_counts(3, n_words=9, rate=3.0) * 9
    lists = [[w, w, 20 + w] for w in range(9)]
    found = first_topics(counts, lists, 100)
    words = token_words(counts)
    assert {(w, k) for w, k in zip(words, found, strict=True)} == {
        (w, k) for w in set(words) for k in lists[w]
    }
    np.testing.assert_array_equal(found, first_topics(counts, lists, 100, cuts))


def test_a_word_without_topics_asks_its_document():
    """Two documents of the unknown word 0 and one known word each.

    A third knows none, and draws from all topics.
    """
    counts = np.array([[500, 500, 0], [500, 0, 500], [1000, 0, 0]])
    found = first_topics(counts, [[], [3], [5]], 10)
    one, other, none = found[:1000], found[1000:2000], found[2000:]
    for own, topic in ((one, 3), (other, 5)):
        assert (
            np.mean(own == topic) > 0.97
        )  # seven draws miss the known half of the document once in 128 times
    assert chisquare(np.bincount(none, minlength=10)).pvalue > 1e-3


# Weights.

ALPHA = np.array([0.1, 0.3, 0.05, 0.2, 0.7, 0.1, 0.4], np.float32)


def some_lists(n_words, seed=0):
    """Return up to six of seven topics for each word, none twice; the last word remembers none."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(7)[: rng.integers(1, 7)].tolist() for _ in range(n_words - 1)] + [[]]


def expected_tokens(documents, phi):
    """Return the tokens of words in topics after two steps of EM, by whole arrays.

    p(word | topic) is given.
    """
    expected = np.zeros(phi.shape)
    for document in documents:
        proportions = ALPHA.astype(float)
        for _ in range(2):
            shares = phi * proportions
            sums = shares.sum(axis=1, keepdims=True)
            shares = (
                np.divide(shares, sums, where=sums > 0, out=np.zeros_like(shares))
                * document[:, None]
            )
            proportions = ALPHA + shares.sum(axis=0)
        expected += shares
    return expected


@pytest.mark.parametrize(("first", "step"), [(0, 1), (2, 3)])
def test_documents_expect_what_two_steps_of_em_give(first, step):
    counts, lists = random_counts(4, n_docs=30, n_words=12, rate=1.0), some_lists(12)
    weight = np.random.default_rng(1).random(sum(map(len, lists))).astype(np.float32) + np.float32(
        0.01
    )
    phi, entry = np.zeros((12, 7)), np.cumsum([0, *map(len, lists)])
    for word, topics in enumerate(lists):
        phi[word, topics] = weight[entry[word] : entry[word + 1]]
    expected = expected_tokens(counts[first::step], phi)
    piece, given = canonical_counts(counts), as_lists(lists)
    found = np.zeros(len(weight), np.int64)
    shared = freeze((given.ptr, given.topic, weight, ALPHA))
    scratch = tuple(np.empty((3, 12), np.float32))
    expect_topics(piece.indptr, piece.indices, piece.data, first, step, *shared, scratch, found)
    of_words = [expected[word, topics] for word, topics in enumerate(lists)]
    np.testing.assert_allclose(found / TOKEN, np.concatenate(of_words), rtol=1e-4, atol=1e-4)
    assert found.sum() > 0


@pytest.mark.parametrize("least", [passages.LEAST, 0.3])
def test_weighing_is_em_on_a_part_of_the_documents_that_drops_small_shares(least, monkeypatch):
    monkeypatch.setattr(passages, "LEAST", least)
    counts, lists = random_counts(7, n_docs=30, n_words=12, rate=0.5) * 5, some_lists(12)
    corpus, bounds = (
        open_corpus(da.from_array(counts, chunks=(8, 12)), DistributedLDA()),
        np.array([0, 11, 30]),
    )
    found = passages.weigh_topics(
        corpus, corpus.shards(bounds), bounds, as_lists(lists), ALPHA.astype(float), 0.1
    )
    share = np.zeros((12, 7))
    for word, topics in enumerate(lists):
        share[word, topics] = 1 / max(1, len(topics))
    for number in range(passages.ROUNDS):
        tokens = share * counts.sum(axis=0)[:, None]
        phi = np.where(share > 0, (tokens + 0.1) / (tokens.sum(axis=0) + 12 * 0.1), 0.0)
        expected = expected_tokens(counts[number % passages.PARTS :: passages.PARTS], phi)
        equal = (share > 0).sum(axis=1, keepdims=True)
        seen = expected.sum(axis=1, keepdims=True)
        share = np.divide(expected, seen, where=seen > 0, out=share)
        share[share < np.minimum(passages.LEAST, 0.5 / np.maximum(1, equal))] = 0.0
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
    times = np.array([np.bincount(found.topic[a:b], minlength=7) for a, b in pairwise(found.ptr)])
    np.testing.assert_array_equal(times > 0, share > 0)
    np.testing.assert_allclose(
        times, np.maximum(1, share * passages.SHARES) * (share > 0), atol=0.51
    )
    assert (share > 0).sum() < sum(map(len, lists))
