"""How words travel between shards."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from schmp_estimators.lda.programs.warp import WarpLDA
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


def test_rows_of_few_shards_travel_and_nothing_does_in_one_process():
    totals = zipf()
    for n_shards, share in ((2, 1.0), (3, 1.0), (8, 0.0)):
        layout = make_layout(totals, n_shards)
        home = words_at_home(totals, layout, 30_000, 2, 6, far=True)
        at_home = [totals[layout.column[b : b + n]].sum() for b, n in zip(layout.block_ptr, home, strict=False)]
        assert sum(at_home) / totals.sum() == pytest.approx(share, abs=0.15)
        assert words_at_home(totals, layout, 3000, 2, 6, far=False).sum() < 0.01 * len(totals)


def test_lists_of_long_topics_do_not_travel():
    totals = zipf()
    layout = make_layout(totals, 2)
    for n_topics, all_of_them in ((30_000, True), (10**6, False)):
        home = WarpLDA(n_topics, len(totals), 0.1, 0.1, far=True).words_at_home(totals, layout)
        assert home.sum() == (len(totals) if all_of_them else 0)
    many = 1 << 16
    home = words_at_home(1_000 * totals, layout, many, 2, 6, far=True)  # but head words' rows do
    assert 0 < home.sum() < len(totals)
    assert (1_000 * totals[layout.column[: home[0]]] >= HEAD * many).all()


def test_no_word_is_more_than_a_share_of_an_owners_work():
    totals = np.array([10**6, *[100] * 50], np.int64)
    layout = make_layout(totals, 4)
    home = words_at_home(totals, layout, 10**6, 4, 12, far=False)
    assert home[np.flatnonzero(layout.column[layout.block_ptr[:-1]] == 0)].tolist() == [1]
    assert home.sum() == 1


def test_words_of_lone_shards_stay_at_home():
    totals = zipf()
    program = WarpLDA(100, len(totals), 0.1, 0.01)
    assert program.words_at_home(totals, make_layout(totals, 1)) is None
    assert program.words_at_home(totals, make_layout(totals, 9)) is not None


@given(seed=st.integers(0, 10**6), n_shards=st.integers(1, 5), width=st.integers(0, 3))
def test_tokens_of_words_are_found_where_they_have_come(seed, n_shards, width):
    """Each word has those of the first shard, of the second, and so on."""
    rng = np.random.default_rng(seed)
    lengths = rng.poisson(1.0, (7, n_shards))
    whose = np.concatenate([np.repeat(np.arange(7), n) for n in lengths.T])
    numbers = np.arange(len(whose), dtype=np.int16)
    ends = np.cumsum(lengths.sum(axis=0))[:-1]
    tokens = [np.repeat(one[:, None], width, axis=1) if width else one for one in np.split(numbers, ends)]
    given = [WarpPiece(None, one, np.flatnonzero(n), n[n > 0]) for one, n in zip(tokens, lengths.T, strict=True)]
    shard = SHARD._replace(word_total=lengths.sum(axis=1))
    found = MetWords.of(At(shard, None, -1, 0, n_shards), given)
    expected = numbers[np.argsort(whose, kind="stable")]
    starts = expected[np.cumsum(np.insert(found.pieces.n_tokens, 0, 0))[:-1].astype(int)]
    of_shards = np.searchsorted(ends, starts, side="right")
    addresses = [one.ctypes.data for one in tokens]
    at = [
        addresses[p] + 2 * max(1, width) * (n - [0, *ends][p]) for p, n in zip(of_shards, starts.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(found.pieces.begin, at)
    np.testing.assert_array_equal(np.diff(found.pieces.ptr), (lengths > 0).sum(axis=1))
    np.testing.assert_array_equal(found.pieces.n_tokens, lengths[lengths > 0])
    if not width:
        np.testing.assert_array_equal(found.together(), expected)


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
