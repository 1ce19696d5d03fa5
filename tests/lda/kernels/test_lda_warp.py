"""The sampler with frozen counts against its oracle, and its tables."""

import pickle

import numpy as np
import pytest
from lda_cases import CUTS, fit, old_rows, random_counts
from oracles.lda_warp import WarpOracle, topic_in_order

from schmp_estimators.core.jit import kernel_of_this_process
from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows
from schmp_estimators.lda.kernels.warp import SLACK, fill_slots
from schmp_estimators.lda.programs.warp import WarpLDA


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize(
    ("n_components", "mh_steps"),
    [
        pytest.param(K, steps, marks=[pytest.mark.slow] if steps > 2 or K > 2**15 else [])
        for K in (1, 3, 7, 200, 40_000, 140_000)
        for steps in (1, 2, 4)
    ],
)
def test_equals_oracle(n_components, mh_steps, cuts):
    counts = random_counts(n_components, rate=1.5 if n_components < 1000 else 0.3)
    result = fit(counts, n_components, cuts=cuts, mh_steps=mh_steps)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, mh_steps, 5)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())


class Travelling(WarpLDA):
    """Its tokens leave the process and come back, each shard's to addresses of their own."""

    def split(self, at, state):
        return pickle.loads(pickle.dumps(super().split(at, state)))

    def sample_words(self, at, pieces):
        return pickle.loads(pickle.dumps(super().sample_words(at, pieces)))


@pytest.mark.parametrize(
    ("kind", "n_components", "mh_steps", "cuts"),
    [
        (WarpLDA, 7, 2, CUTS[2]),  # words of a block stay at home, and others travel
        *((kind, 7, 2, CUTS[3]) for kind in (WarpLDA, Travelling)),  # with a shard without tokens
        *(pytest.param(WarpLDA, K, 1, CUTS[1], marks=pytest.mark.slow) for K in (200, 40_000)),
        pytest.param(Travelling, 140_000, 2, CUTS[1] + (9,), marks=pytest.mark.slow),
    ],
)
def test_equals_oracle_of_few_shards_and_where_tokens_travel(kind, n_components, mh_steps, cuts):
    counts = random_counts(4)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, kind=kind, cuts=cuts, mh_steps=mh_steps, fixed=fixed)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, mh_steps, 5, fixed)
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


@pytest.mark.parametrize("limit", [1, 3, 8, 64, 1000])
def test_draw_table_is_the_inverse_distribution_function(limit):
    rng = np.random.default_rng(limit)
    for _ in range(50):
        row = rng.poisson(rng.gamma(0.3, 8.0, rng.integers(1, 40))).astype(np.int32)
        slots = np.empty(limit + SLACK, np.int16)
        ends = np.empty(len(row), np.int64)
        shift = kernel_of_this_process(fill_slots)(row, limit, slots, ends)
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
        begins, n_words = np.zeros(1, np.int64), np.array([len(pointer) - 1])
        unpack_rows(*pack_rows(pointer, begins, n_words, topic, n_topics)[:3], heads, tails, cursor)
    expected = [
        np.concatenate([topic[p[w] : p[w + 1]] for p, topic in zip(pointers, topics, strict=True)]) for w in range(30)
    ]
    for w in range(n_heads):
        np.testing.assert_array_equal(heads[w], np.bincount(expected[w], minlength=n_topics))
    np.testing.assert_array_equal(tails, np.concatenate([np.empty(0, np.int16), *expected[n_heads:]]))
