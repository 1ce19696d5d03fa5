"""Documents as numbers.

Counts are sound, shards are even, and words travel at the least cost.
"""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data import shards
from schmp_estimators.lda.data.corpus import narrow
from schmp_estimators.lda.data.counts import Counts, canonical_counts, count_words
from schmp_estimators.lda.data.shards import (
    TOKENS_OF_EXCHANGE,
    TOKENS_PER_CELL,
    cut_documents,
    default_shards,
    make_layout,
)
from schmp_estimators.lda.data.topic_rows import WordPart, combine_parts


def assert_canonical(counts: Counts, expected):
    rows, columns = np.nonzero(expected)
    np.testing.assert_array_equal(counts.indices, columns)
    np.testing.assert_array_equal(counts.data, expected[rows, columns])
    np.testing.assert_array_equal(np.diff(counts.indptr), np.count_nonzero(expected, axis=1))
    assert counts.n_features == expected.shape[1]
    assert [array.dtype for array in counts[:3]] == [np.int64, np.int32, np.int32]
    assert not any(array.flags.writeable for array in counts[:3])


def test_narrow_integers_do_not_overflow_when_summed():
    matrix = sparse.csr_array((2, 3), dtype=np.uint8)
    matrix.indptr, matrix.indices = np.array([0, 2, 2]), np.array([1, 1])
    matrix.data = np.array([200, 100], np.uint8)
    assert_canonical(canonical_counts(matrix), np.array([[0, 300, 0], [0, 0, 0]]))


def test_wide_dense_columns_first_input_is_read_in_groups(monkeypatch):
    monkeypatch.setattr("schmp_estimators.lda.data.counts._DENSE_GROUP", 100)
    expected = np.random.default_rng(0).poisson(0.5, (20, 6))
    assert_canonical(canonical_counts(np.asfortranarray(expected)), expected)
    expected[17, 2] = -1
    with pytest.raises(ValueError, match=r"X\[17, 2\] is -1"):
        canonical_counts(np.asfortranarray(expected))


def test_too_many_columns_for_an_index_are_refused():
    with pytest.raises(ValueError, match=r"2147483648 columns.*hash"):
        canonical_counts(sparse.csr_array((1, 2**31), dtype=np.int64))


def test_stored_zeros_are_left_out_and_the_rest_keeps_its_values():
    matrix = sparse.csr_array(
        (np.array([3, 0, 5, 0, 7]), np.array([0, 1, 2, 0, 2]), np.array([0, 3, 5])), shape=(2, 3)
    )
    counts = canonical_counts(matrix)
    assert (counts.indptr.tolist(), counts.indices.tolist(), counts.data.tolist()) == (
        [0, 2, 3],
        [0, 2, 2],
        [3, 5, 7],
    )


lengths_of_documents = st.lists(st.integers(0, 50), max_size=30).map(
    lambda values: np.array(values, np.int64)
)


@given(lengths_of_documents, st.integers(1, 40))
def test_shards_are_consecutive_complete_and_about_equal(lengths, n_shards):
    bounds = cut_documents(lengths, n_shards)
    assert bounds.dtype == np.int64
    assert bounds.shape == (n_shards + 1,)
    assert bounds[0] == 0
    assert bounds[-1] == lengths.size
    assert (np.diff(bounds) >= 0).all()
    before = np.concatenate([[0], np.cumsum(lengths)])
    assert (
        np.abs(np.diff(before[bounds]) - before[-1] / n_shards) <= max(lengths, default=0) + 1
    ).all()
    goals = before[-1] * np.arange(1, n_shards) // n_shards
    nearest = np.abs(before[:, None] - goals).min(axis=0)
    np.testing.assert_array_equal(np.abs(before[bounds[1:-1]] - goals), nearest)


@pytest.mark.parametrize(
    ("n_tokens", "n_docs", "n_features", "rotating"),
    [
        (0, 1, 1, 1),
        (TOKENS_PER_CELL * 4 - 1, 10**6, 10**5, 1),
        (TOKENS_PER_CELL * 4, 10**6, 10**5, 2),
        (TOKENS_PER_CELL * 64, 10**6, 10**5, 8),
        (TOKENS_PER_CELL * 64, 3, 10**5, 3),
        (TOKENS_PER_CELL * 64, 10**6, 5, 5),
    ],
)
def test_number_of_shards_follows_from_the_size_of_the_data(n_tokens, n_docs, n_features, rotating):
    assert default_shards(n_tokens, n_docs, n_features, invariant=False) == rotating


@pytest.mark.parametrize("n_tokens", [10**5, 10**6, 3 * 10**6, 3 * 10**7, 10**10])
def test_a_sweep_is_about_as_short_as_with_the_best_number_of_shards(n_tokens):
    n = np.arange(1, 2000)
    costs = n_tokens / n + n * TOKENS_OF_EXCHANGE
    chosen = default_shards(n_tokens, 10**9, 10**9, invariant=True)
    assert costs[chosen - 1] < 1.1 * costs.min()
    assert chosen <= 1 + n[costs.argmin()]


def test_a_shard_of_too_many_tokens_is_refused():
    counts = canonical_counts(np.full((1, 3), 2**31 - 1))
    words = count_words([counts], 3)
    layout = make_layout(words, 1)
    plan = shards.Plan(0, layout, words, np.array([3]), 0)
    with pytest.raises(ValueError, match="raise n_shards"):
        shards.make_shard([counts], np.zeros(3, np.int64), words, plan)


def test_a_word_may_have_more_tokens_than_a_32_bit_number_holds():
    dense = np.full((1, 3), 2**29, np.int32)
    part = WordPart(np.array([3 * 2**29], np.int32), np.zeros(0, np.uint8), dense)
    block = combine_parts(freeze([part, part]), 3)
    np.testing.assert_array_equal(block.heads, 2 * dense)
    assert block.tail_ptr.tolist() == [0]


@pytest.mark.parametrize("most", [9, 10])
def test_a_shard_has_fewer_tokens_than_numbers_for_them(most, monkeypatch):
    monkeypatch.setattr(shards, "MAX_TOKENS", most)
    pieces = [canonical_counts(np.full((1, 3), 3))]
    given = pieces, np.arange(3, dtype=np.int32), np.full(3, 3)
    if most == 9:
        with pytest.raises(ValueError, match=r"a shard has 9 tokens; .* fewer than 9"):
            shards.lay_out(*given)
    else:
        assert len(shards.lay_out(*given)[1]) == 9


def bytes_of_a_word(n, n_shards, n_topics, *, local):
    """What a word costs, by hand.

    Two proposals, topics and counts of two bytes, as many tokens in every shard.
    """
    others = n_shards - 1
    if not local:
        return 2 * 6 * n * others / n_shards
    if n < HEAD * n_topics:
        return others * (2 * n / n_shards + 2 * n + shards.ROW_BYTES)
    return others * (2 * 2 * n_topics + shards.ROW_BYTES + shards.WORK_BYTES * n_topics)


@pytest.mark.parametrize("n_shards", [2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize("n_topics", [5, 100, 3000])
def test_as_many_words_have_rows_that_travel_as_cost_least(n_shards, n_topics):
    weights = 1.0 / np.arange(2, 3002)
    totals = np.rint(10**6 * weights / weights.sum()).astype(np.int64)
    layout = make_layout(totals, n_shards)
    counts = shards.count_local_words(totals, layout, n_topics, 2, 6, far=True)
    for block, n_local in enumerate(counts):
        first, last = layout.block_ptr[block : block + 2]
        n = totals[layout.column[first:last]]  # heaviest first
        given = n_shards, n_topics
        costs = np.array(
            [[bytes_of_a_word(one, *given, local=local) for one in n] for local in (True, False)]
        )
        of_first = [costs[0, :k].sum() + costs[1, k:].sum() for k in range(len(n) + 1)]
        too_heavy = np.count_nonzero(n > shards.LARGEST_SHARE * totals.sum() / n_shards)
        assert n_local >= too_heavy
        assert of_first[n_local] == pytest.approx(min(of_first[too_heavy:]), rel=1e-9)


def test_what_a_shard_holds_follows_its_tokens_and_not_the_vocabulary():
    n_words, n_shards, n_topics = 200_000, 50, 100
    counts = sparse.random_array((60, n_words), density=0.0005, format="csr", rng=0, dtype=np.int32)
    counts.data[:] = 1
    pieces, total = [canonical_counts(counts[:12])], counts.sum(axis=0).astype(np.int64)
    layout = make_layout(total, n_shards)
    local = shards.count_local_words(total, layout, n_topics, 2, 6, far=True)
    before = np.zeros(int(local.sum()), np.int64)
    own = count_words(pieces, n_words)[shards.local_columns(layout, local)]
    plan = shards.Plan(0, layout, narrow(total), local, 0)
    shards.make_shard(pieces, before, own, plan)  # compiles
    tracemalloc.start()
    try:
        shard = shards.make_shard(pieces, before, own, plan)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    n_present = len(pieces[0].data) + int(layout.block_ptr[1]) + int(local.sum())
    assert len(shard.word_ptr) - 1 <= n_present < n_words // 20
    assert shard.block_ptr[1] == layout.block_ptr[1]  # of its own block it has all words
    assert held < 60 * n_present + 20_000
    assert (
        peak < 13 * n_words
    )  # and while it is made there are eight bytes for a word at most, and some bits
