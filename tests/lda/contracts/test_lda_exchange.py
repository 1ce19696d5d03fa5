"""How words travel between shards."""

import tracemalloc

import numpy as np
import pytest
from lda_cases import make_shards, random_counts
from scipy import sparse

from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import HEAD, no_rows
from schmp_estimators.lda.data.corpus import narrow
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.data.met_shards import (
    LARGEST_SHARE,
    ROW_BYTES,
    WORK_BYTES,
    MetPlan,
    make_met_shard,
    words_at_home,
)
from schmp_estimators.lda.data.tokens import make_layout
from schmp_estimators.lda.programs.warp_values import MetWords, WarpPiece


def zipf(n_words=3000, n_tokens=10**6):
    weights = 1.0 / np.arange(2, n_words + 2)
    return np.rint(n_tokens * weights / weights.sum()).astype(np.int64)


def bytes_of_a_word(n, n_shards, n_topics, *, home):
    """What a word costs, by hand: two proposals, topics and counts of two bytes, as many tokens in every shard."""
    others = n_shards - 1
    if not home:
        return 2 * 6 * n * others / n_shards
    if n < HEAD * n_topics:
        return others * (2 * n / n_shards + 2 * n + ROW_BYTES)
    return others * (2 * 2 * n_topics + ROW_BYTES + WORK_BYTES * n_topics)


@pytest.mark.parametrize("n_shards", [2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize("n_topics", [5, 100, 3000])
def test_as_many_words_have_rows_that_travel_as_cost_least(n_shards, n_topics):
    totals = zipf()
    layout = make_layout(totals, n_shards)
    home = words_at_home(totals, layout, n_topics, 2, 6, far=True)
    for block, n_home in enumerate(home):
        first, last = layout.block_ptr[block : block + 2]
        n = totals[layout.column[first:last]]  # heaviest first
        costs = np.array([[bytes_of_a_word(one, n_shards, n_topics, home=home) for one in n] for home in (True, False)])
        of_first = [costs[0, :k].sum() + costs[1, k:].sum() for k in range(len(n) + 1)]
        too_heavy = np.count_nonzero(n > LARGEST_SHARE * totals.sum() / n_shards)
        assert n_home >= too_heavy
        assert of_first[n_home] == pytest.approx(min(of_first[too_heavy:]), rel=1e-9)


#: A shard that owns seven words, of which none stays at home.
SHARD = make_shards(np.ones((1, 7), np.int32))[0][0]._replace(home=np.array([0]))


def test_tokens_that_are_others_than_before_are_refused():
    piece = WarpPiece(None, np.zeros((2, 2), np.int16), np.array([3]), np.array([2]))
    shard = SHARD._replace(word_total=np.array([0, 0, 1, 1, 0, 0, 0]))
    with pytest.raises(ValueError, match="X has changed"):
        MetWords.of(At(shard, None, -1, 0, 1), [piece])


@pytest.mark.parametrize("cuts", [[4, 9], [0, 2, 2, 5, 11]])
def test_a_shard_knows_the_words_that_it_has_to_do_with(cuts):
    counts = random_counts(3, n_words=40, rate=0.3)
    shards, layout = make_shards(counts, cuts, exchanged=True)
    everything, _ = make_shards(counts, cuts)
    n_met = 0
    for shard, full in zip(shards, everything, strict=True):
        begin, end = layout.block_ptr[shard.number : shard.number + 2]
        at_home = np.concatenate(
            [np.arange(first, first + n) for first, n in zip(layout.block_ptr, shard.home, strict=False)]
        )
        has = np.flatnonzero(np.diff(full.word_ptr))
        met = np.union1d(np.union1d(has, at_home), np.arange(begin, end)).astype(int)
        n_met += len(met)
        np.testing.assert_array_equal(shard.block_ptr, np.searchsorted(met, layout.block_ptr))
        np.testing.assert_array_equal(np.diff(shard.word_ptr), np.diff(full.word_ptr)[met])
        np.testing.assert_array_equal(shard.word_first, full.word_first[met])
        np.testing.assert_array_equal(shard.word_total, full.word_total[met])
        np.testing.assert_array_equal(shard.word_rank, np.where(np.isin(met, at_home), full.word_rank[met], 0))
        word, known = (np.repeat(np.arange(len(one.word_ptr) - 1), np.diff(one.word_ptr)) for one in (full, shard))
        np.testing.assert_array_equal(met[known][shard.place], word[full.place])
        assert (shard.first_token, shard.number) == (full.first_token, full.number)
        np.testing.assert_array_equal(shard.doc_ptr, full.doc_ptr)
    assert n_met < len(shards) * counts.shape[1]


def test_what_a_shard_holds_follows_its_tokens_and_not_the_vocabulary():
    n_words, n_shards, n_topics = 200_000, 50, 100
    counts = sparse.random_array((60, n_words), density=0.0005, format="csr", rng=0, dtype=np.int32)
    counts.data[:] = 1
    pieces, total = [canonical_counts(counts[:12])], counts.sum(axis=0).astype(np.int64)
    layout = make_layout(total, n_shards)
    home = words_at_home(total, layout, n_topics, 2, 6, far=True)
    before = np.zeros(int(home.sum()), np.int64)
    plan = MetPlan(0, layout, narrow(total), home, 0, no_rows(int(layout.block_ptr[1])))
    make_met_shard(pieces, before, plan)  # compiles
    tracemalloc.start()
    try:
        shard = make_met_shard(pieces, before, plan)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    n_met = len(pieces[0].data) + int(layout.block_ptr[1]) + int(home.sum())
    assert len(shard.word_ptr) - 1 <= n_met < n_words // 20
    assert held < 60 * n_met + 20_000
    assert peak < 13 * n_words  # and while it is made there are eight bytes for a word at most, and some bits
