"""The frozen-count sampler against its oracle, and its laws."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import fit, random_counts, token_words
from oracles.lda_warp import WarpOracle, topic_in_order

from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows
from schmp_estimators.lda.kernels.warp_tables import SLACK, fill_slots
from schmp_estimators.lda.programs import topics
from schmp_estimators.lda.programs import warp as program_module

CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


def old_rows(seed, counts, n_components):
    rng = np.random.default_rng(seed)
    rows = rng.poisson(3.0, (counts.shape[1], n_components))
    rows[rng.random(len(rows)) < 0.3] = 0
    return rows


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize(
    ("n_components", "mh_steps"),
    [
        pytest.param(K, steps, marks=[pytest.mark.slow] if K > 2**15 and steps != 2 else [])
        for K in (1, 3, 7, 200, 40_000)
        for steps in (1, 2, 4)
    ],
)
def test_equals_oracle(n_components, mh_steps, cuts):
    counts = random_counts(n_components, rate=1.5 if n_components < 1000 else 0.3)
    result = fit(counts, n_components, cuts=cuts, mh_steps=mh_steps)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, mh_steps, 5)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("hot", [(2.0, 0.01), (0.01, 0.7), (2.0, 0.7)])
def test_equals_oracle_from_a_hot_start(hot, cuts):
    counts, start = random_counts(8), {"hot_priors": hot, "hot_sweeps": 2}
    result = fit(counts, 7, cuts=cuts, n_sweeps=4, **start)
    oracle = WarpOracle(counts, 7, 0.3, 0.1, 2, 5, hot=hot, hot_sweeps=2)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
    for stop in (1, 2, 3):
        saved = fit(counts, 7, cuts=cuts, n_sweeps=stop, **start).saved
        rest = fit(counts, 7, cuts=cuts, n_sweeps=4, **start, saved=saved, first=stop)
        np.testing.assert_array_equal(result.topics[stop:], rest.topics)


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 5, 60])
def test_equals_oracle_with_fixed_rows(n_components, cuts):
    counts = random_counts(3)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, cuts=cuts, mh_steps=2, fixed=fixed)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, 2, 5, fixed)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
    new = np.bincount(result.topics[-1], minlength=n_components)
    np.testing.assert_array_equal(result.model.topic_total, new + fixed.sum(axis=0))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 4, 30, 33_000]),
    mh_steps=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
    with_fixed=st.booleans(),
)
def test_same_bits_for_any_shards(seed, n_components, mh_steps, cuts, with_fixed):
    counts = random_counts(seed)
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    one = fit(counts, n_components, mh_steps=mh_steps, fixed=fixed)
    many = fit(counts, n_components, mh_steps=mh_steps, fixed=fixed, cuts=cuts)
    np.testing.assert_array_equal(one.topics, many.topics)
    assert one.records == many.records
    for mine, other in zip(one.rows, many.rows, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("cuts", CUTS)
def test_counts_are_conserved(cuts):
    counts = random_counts(11)
    result = fit(counts, 6, cuts=cuts)
    table = np.zeros((counts.shape[1], 6), int)
    np.add.at(table, (token_words(counts), result.topics[-1]), 1)
    dense = np.zeros_like(table)
    dense[np.repeat(np.arange(len(dense)), np.diff(result.rows.ptr)), result.rows.topic] = result.rows.tokens
    np.testing.assert_array_equal(dense, table)
    np.testing.assert_array_equal(result.model.topic_total, table.sum(axis=0))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("with_fixed", [False, True])
def test_restart_continues_as_if_uninterrupted(cuts, with_fixed):
    counts = random_counts(12)
    fixed = old_rows(1, counts, 4) if with_fixed else None
    whole = fit(counts, 4, cuts=cuts, n_sweeps=5, mh_steps=3, fixed=fixed)
    half = fit(counts, 4, cuts=cuts, n_sweeps=2, mh_steps=3, fixed=fixed)
    rest = fit(counts, 4, cuts=cuts, n_sweeps=5, mh_steps=3, fixed=fixed, saved=half.saved, first=2)
    np.testing.assert_array_equal(whole.topics[2:], rest.topics)
    assert whole.records[2:] == rest.records


@pytest.mark.parametrize("cuts", CUTS[:3])
def test_same_bits_for_any_jobs_and_threads(cuts, monkeypatch):
    counts = random_counts(13, 300, 40, 0.3)
    one = fit(counts, 5, cuts=cuts)
    monkeypatch.setattr(program_module, "MIN_JOB", 50)
    jobs = fit(counts, 5, cuts=cuts)
    with ThreadPoolExecutor(3) as pool:
        threads = fit(
            counts, 5, cuts=cuts, engine=partial(run_serial, each=lambda function, jobs: list(pool.map(function, jobs)))
        )
    for other in (jobs, threads):
        np.testing.assert_array_equal(one.topics, other.topics)
        assert one.records == other.records


def test_same_bits_in_16_and_32_bits(monkeypatch):
    counts = random_counts(14, 60, 30)
    narrow = fit(counts, 9, cuts=(20, 40))
    monkeypatch.setattr(topics, "topic_dtype", lambda n_components: np.int32)
    wide = fit(counts, 9, cuts=(20, 40))
    assert narrow.topics[0].dtype == np.int16
    assert wide.topics[0].dtype == np.int32
    np.testing.assert_array_equal(narrow.topics, wide.topics)


@pytest.mark.parametrize("shape", [(1, 5), (3, 1), (4, 6)])
def test_corpora_with_little_in_them(shape):
    counts = np.zeros(shape, np.int32)
    assert fit(counts, 3).topics[-1].size == 0
    assert fit(counts, 3, cuts=(1,)).topics[-1].size == 0
    counts[0, 0] = 1
    assert fit(counts, 3).topics[-1].size == 1
    np.testing.assert_array_equal(fit(counts, 3).topics, fit(counts, 3, cuts=(0, 1)).topics)


def test_likelihood_rises_on_separable_text():
    counts = np.zeros((200, 20), np.int32)
    counts[:100, :10] = counts[100:, 10:] = 3
    records = fit(counts, 2, n_sweeps=30, topic_word_prior=0.01).records
    assert records[-1]["log_likelihood"] > records[0]["log_likelihood"] + 1000


@pytest.mark.parametrize("limit", [1, 3, 8, 64, 1000])
def test_draw_table_is_the_inverse_distribution_function(limit):
    rng = np.random.default_rng(limit)
    for _ in range(50):
        row = rng.poisson(rng.gamma(0.3, 8.0, rng.integers(1, 40))).astype(np.int32)
        slots = np.empty(limit + SLACK, np.int16)
        ends = np.empty(len(row), np.int64)
        shift = fill_slots(row, limit, slots, ends)
        assert row.sum() <= limit << shift
        for x in range(row.sum()):
            k = int(slots[x >> shift])
            if k < 0:
                k = ~k
                while ends[k] <= x:
                    k += 1
            assert k == topic_in_order(row, x)


@pytest.mark.parametrize("n_topics", [2, 5])
def test_packed_rows_add_up(n_topics):
    rng = np.random.default_rng(n_topics)
    lengths = rng.poisson(rng.gamma(0.5, 12.0, (3, 30)))
    lengths = np.ascontiguousarray(lengths[:, np.argsort(-lengths.sum(axis=0), kind="stable")])
    topics = [rng.integers(0, n_topics, n.sum()).astype(np.int16) for n in lengths]
    total = lengths.sum(axis=0)
    n_heads = np.count_nonzero(total >= 2 * n_topics)
    heads, tails = np.zeros((n_heads, n_topics), np.int32), np.empty(total[n_heads:].sum(), np.int16)
    cursor = np.concatenate([[0], np.cumsum(total[n_heads:])])[:-1].astype(np.int64)
    pointers = [np.concatenate([[0], np.cumsum(n)]) for n in lengths]
    for pointer, topic in zip(pointers, topics, strict=True):
        unpack_rows(*pack_rows(pointer, topic, n_topics), heads, tails, cursor)
    expected = [
        np.concatenate([topic[p[w] : p[w + 1]] for p, topic in zip(pointers, topics, strict=True)]) for w in range(30)
    ]
    for w in range(n_heads):
        np.testing.assert_array_equal(heads[w], np.bincount(expected[w], minlength=n_topics))
    np.testing.assert_array_equal(tails, np.concatenate([np.empty(0, np.int16), *expected[n_heads:]]))
