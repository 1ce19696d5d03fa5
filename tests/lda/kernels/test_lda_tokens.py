"""The layout of tokens and words, and sparse word rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lda_cases import make_shards, random_counts, token_words

from schmp_estimators.lda.blocks import TopicRows, no_rows
from schmp_estimators.lda.data.counts import canonical_counts, count_words
from schmp_estimators.lda.data.tokens import Plan, make_layout, make_shard, shard_offsets
from schmp_estimators.lda.data.topic_rows import (
    add_rows,
    counts_of_rows,
    cut_rows,
    order_rows,
    rows_of_counts,
    rows_of_lists,
    stack_rows,
)


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted))
def test_places_and_addresses(seed, cuts):
    counts = random_counts(seed)
    shards, layout = make_shards(counts, cuts)
    words = token_words(counts)
    documents = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    address = np.empty(len(words), int)
    address[np.argsort(words, kind="stable")] = np.arange(len(words))
    for shard, first, last in zip(shards, [0, *cuts], [*cuts, len(counts)], strict=True):
        mine = (documents >= first) & (documents < last)
        np.testing.assert_array_equal(np.diff(shard.doc_ptr), counts[first:last].sum(axis=1))
        assert shard.first_token == (documents < first).sum()
        assert sorted(shard.place) == list(range(mine.sum()))
        place = shard.place.astype(int)
        word = np.searchsorted(shard.word_ptr, place, side="right") - 1
        np.testing.assert_array_equal(layout.column[word], words[mine])
        rank = place - shard.word_ptr[word]
        np.testing.assert_array_equal(shard.word_first[word] + shard.word_rank[word] + rank, address[mine])
        np.testing.assert_array_equal(shard.word_total[word], counts.sum(axis=0)[words[mine]])


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 8))
def test_layout(totals, n_blocks):
    totals = np.array(totals)
    layout = make_layout(totals, n_blocks)
    assert sorted(layout.column) == list(range(len(totals)))
    assert len(layout.block_ptr) == n_blocks + 1
    assert layout.block_ptr[-1] == len(totals)
    loads = []
    for first, last in zip(layout.block_ptr[:-1], layout.block_ptr[1:], strict=True):
        block = totals[layout.column[first:last]]
        assert (np.diff(block) <= 0).all()
        loads.append(block.sum() + 4 * len(block))
    ideal = max(sum(loads) / n_blocks, totals.max() + 4)
    assert max(loads) <= 4 / 3 * ideal + 4


def test_a_shard_of_too_many_tokens_is_refused():
    counts = canonical_counts(np.full((1, 3), 2**31 - 1))
    words = count_words([counts], 3)
    layout = make_layout(words, 1)
    with pytest.raises(ValueError, match="raise n_shards"):
        make_shard([counts], Plan(words, layout, shard_offsets([words], layout)[0], no_rows(len(words))))


@pytest.mark.parametrize("n_topics", [1, 4, 100, 5000])
def test_sparse_rows(n_topics):
    rng = np.random.default_rng(n_topics)
    lengths = rng.poisson(rng.gamma(0.3, 30.0, 40))
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    topic = rng.integers(0, n_topics, (ptr[-1], 2)).astype(np.int16)
    dense = np.zeros((40, n_topics), np.int32)
    np.add.at(dense, (np.repeat(np.arange(40), lengths), topic[:, 0]), 1)
    rows = rows_of_lists(ptr, topic[:, 0], n_topics)
    assert_same_rows(rows, rows_of_counts(dense))
    assert_same_rows(rows, stack_rows([cut_rows(rows, 0, 13), cut_rows(rows, 13, 40)]))
    order = rng.permutation(40)
    assert_same_rows(order_rows(rows, order, n_topics), rows_of_counts(dense[order]))
    np.testing.assert_array_equal(add_rows(dense, rows), 2 * dense)


def assert_same_rows(rows, expected):
    assert isinstance(rows, TopicRows)
    for mine, other in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(mine, other)
        assert mine.dtype == other.dtype


@pytest.mark.parametrize("n_blocks", [1, 2, 5])
def test_rows_of_blocks_become_counts_by_column(n_blocks):
    rng = np.random.default_rng(n_blocks)
    dense = rng.poisson(0.5, (11, 7)).astype(np.int32) * (rng.random((11, 1)) < 0.8)
    layout = make_layout(dense.sum(axis=1), n_blocks)
    pieces = [rows_of_counts(dense[layout.column[a:b]]) for a, b in pairwise(layout.block_ptr)]
    found = counts_of_rows(pieces, layout, 7)
    np.testing.assert_array_equal(found.toarray(), dense.T)
    assert (found.data.dtype, found.has_sorted_indices) == (np.int32, True)
