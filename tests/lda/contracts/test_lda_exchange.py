"""How words travel between shards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lda_cases import make_shards, random_counts
from scipy import sparse

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data.exchange import LARGEST_SHARE, ROW_BYTES, owned_lengths, words_at_home
from schmp_estimators.lda.data.tokens import make_layout
from schmp_estimators.lda.kernels.exchange import cut_tokens, merge_tokens
from schmp_estimators.lda.programs.seeds import word_seeds
from schmp_estimators.lda.programs.warp import WarpLDA


def zipf(n_words=3000, n_tokens=10**6):
    weights = 1.0 / np.arange(2, n_words + 2)
    return np.rint(n_tokens * weights / weights.sum()).astype(np.int64)


def bytes_of_a_word(n, n_shards, n_topics, *, home):
    """What a word costs, by hand: two proposals, topics of two bytes, as many tokens in every shard."""
    others = n_shards - 1
    if not home:
        return 2 * 6 * n * others / n_shards
    row = 4 * n_topics if n >= HEAD * n_topics else 2 * n
    return others * (min(4 * n_topics, 2 * n / n_shards) + row + ROW_BYTES)


@pytest.mark.parametrize("n_shards", [2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize("n_topics", [5, 100, 3000])
def test_each_word_travels_as_what_is_fewer_bytes(n_shards, n_topics):
    totals = zipf()
    layout = make_layout(totals, n_shards)
    home = words_at_home(totals, layout, n_topics, 2, 6, far=True)
    for block, n_home in enumerate(home):
        first, last = layout.block_ptr[block : block + 2]
        for at, n in enumerate(totals[layout.column[first:last]]):
            costs = [bytes_of_a_word(n, n_shards, n_topics, home=where) for where in (True, False)]
            too_much = n > LARGEST_SHARE * totals.sum() / n_shards
            assert (at < n_home) == (costs[0] <= costs[1] or too_much)


def test_rows_of_few_shards_travel_and_nothing_does_in_one_process():
    totals = zipf()
    for n_shards, share in ((2, 1.0), (3, 1.0), (8, 0.0)):
        layout = make_layout(totals, n_shards)
        home = words_at_home(totals, layout, 10**5, 2, 6, far=True)
        at_home = [totals[layout.column[b : b + n]].sum() for b, n in zip(layout.block_ptr, home, strict=False)]
        assert sum(at_home) / totals.sum() == pytest.approx(share, abs=0.15)
        assert words_at_home(totals, layout, 3000, 2, 6, far=False).sum() < 0.01 * len(totals)


def test_no_word_is_more_than_a_share_of_an_owners_work():
    totals = np.array([10**6, *[100] * 50], np.int64)
    layout = make_layout(totals, 4)
    home = words_at_home(totals, layout, 10**6, 4, 12, far=False)
    assert home[np.flatnonzero(layout.column[layout.block_ptr[:-1]] == 0)].tolist() == [1]
    assert home.sum() == 1


def test_seeded_words_and_lone_shards_stay_at_home():
    totals = zipf()
    program = WarpLDA(100, len(totals), 0.1, 0.01)
    assert program.words_at_home(totals, make_layout(totals, 1), far=True) is None
    assert program.words_at_home(totals, make_layout(totals, 9), far=True) is not None
    seeds = word_seeds(sparse.csc_array(([5.0], ([2], [0])), shape=(100, len(totals))), totals, None)
    seeded = WarpLDA(100, len(totals), 0.1, 0.01, seeds=seeds)
    assert seeded.words_at_home(totals, make_layout(totals, 9), far=True) is None


@given(seed=st.integers(0, 10**6), n_shards=st.integers(1, 5), width=st.integers(1, 4))
def test_tokens_are_merged_word_by_word_and_cut_apart_again(seed, n_shards, width):
    rng = np.random.default_rng(seed)
    lengths = rng.poisson(1.0, (7, n_shards)).astype(np.int32)
    tokens = [
        [[(word, shard, i)] * width for word in range(7) for i in range(lengths[word, shard])]
        for shard in range(n_shards)
    ]
    numbers = {key: at for at, key in enumerate(key for of_shard in tokens for token in of_shard for key in token[:1])}
    flat = np.array([numbers[key] for of_shard in tokens for token in of_shard for key in token], np.int16)
    begins = np.concatenate([[0], np.cumsum(lengths.sum(axis=0))])[:-1]
    merged = np.empty_like(flat)
    merge_tokens(freeze(lengths), begins.copy(), flat, width, merged)
    expected = [
        numbers[word, shard, i]
        for word in range(7)
        for shard in range(n_shards)
        for i in range(lengths[word, shard])
        for _ in range(width)
    ]
    np.testing.assert_array_equal(merged, expected)
    back = np.zeros_like(flat)
    cut_tokens(freeze(lengths), begins, merged, width, back)
    np.testing.assert_array_equal(back, flat)


def test_an_owner_knows_how_many_tokens_of_its_words_every_shard_has():
    counts = random_counts(3)
    shards, layout = make_shards(counts, [4, 9])
    by_shard = [counts[:4].sum(0), counts[4:9].sum(0), counts[9:].sum(0)]
    for number, shard in enumerate(shards):
        first, last = layout.block_ptr[number] + shard.home[number], layout.block_ptr[number + 1]
        expected = np.array([by_shard[p][layout.column[first:last]] for p in range(3)]).T
        np.testing.assert_array_equal(shard.lengths, expected.reshape(shard.lengths.shape))
        np.testing.assert_array_equal(owned_lengths(by_shard, layout, shard.home, number), shard.lengths)
