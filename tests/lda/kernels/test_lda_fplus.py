"""The exact sampler: its posterior by enumeration, its tree, and how stale its totals are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from posterior import assert_long_run_has_the_posterior, with_key

from schmp_estimators.core.jit import kernel_of_this_process
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.samplers import sequential as program_module
from schmp_estimators.lda.samplers.fplus import FPlusLDA, sample_fplus

build, find = kernel_of_this_process(ftree.build), kernel_of_this_process(ftree.find)


@njit
def sweep(cell, key):
    sample_fplus(with_key(cell, key, cell.extra))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta"),
    [
        (2, [[2, 1], [0, 2], [1, 1]], 0.7, 0.4),  # tail words
        (2, [[3, 1], [3, 1]], 0.2, 0.3),  # a head word of six tokens
        pytest.param(3, [[1, 1, 0], [0, 2, 1], [1, 0, 0]], 0.3, 0.2, marks=pytest.mark.slow),
        pytest.param(3, [[6, 0]], 1.5, 0.5, marks=pytest.mark.slow),  # one document, one word, an unused word
        pytest.param(4, [[1, 2], [2, 0]], 0.05, 0.02, marks=pytest.mark.slow),
        pytest.param(18, [[1, 0, 1]], 0.1, 0.3, marks=pytest.mark.slow),  # a tree of two levels, mended topic by topic
        pytest.param(2, [[2, 1], [0, 2], [1, 1]], (0.2, 1.5), 0.4, marks=pytest.mark.slow),  # a prior for each topic
        pytest.param(18, [[1, 0, 1]], tuple(0.02 * (1 + np.arange(18))), 0.3, marks=pytest.mark.slow),
    ],
)
def test_long_run_visits_every_state_as_often_as_the_posterior_says(n_components, counts, alpha, beta):
    alphas = np.array(alpha) if isinstance(alpha, tuple) else None
    program = FPlusLDA(n_components, len(counts[0]), float(np.mean(alpha)), beta, own_alphas=alphas)
    assert_long_run_has_the_posterior(program, sweep, np.array(counts, np.int32), n_samples=20_000)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 5000]))
def test_tree_equals_cumulative_sums(seed, n_topics):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 1000, n_topics).astype(float)  # sums of whole numbers are exact
    level_ptr = ftree.level_offsets(n_topics)
    sums = np.empty(level_ptr[-1])
    assert build(weights, level_ptr, sums) == weights.sum()
    total = change_some(
        weights, level_ptr, sums, weights.sum(), rng.integers(0, n_topics, 20), rng.integers(0, 1000, 20)
    )
    ends = np.cumsum(weights)
    assert total == ends[-1]
    for point in rng.integers(0, max(1, int(total)), 20):
        if point < total:
            assert find(weights, level_ptr, sums, float(point)) == np.searchsorted(ends, point, side="right")
    assert find(weights, level_ptr, sums, total * 1.001 + 1) == n_topics - 1
    assert [len(range(*pair)) for pair in pairwise(level_ptr)] == level_sizes(n_topics)


@njit
def change_some(weights, level_ptr, sums, total, topics, values):
    for topic, value in zip(topics, values):  # noqa: B905 (numba knows no strict)
        total = ftree.put(weights, level_ptr, sums, total, np.uint64(topic), float(value))
    return total


def level_sizes(n_topics):
    sizes = []
    while n_topics > 16:
        n_topics = -(-n_topics // 16)
        sizes.append(n_topics)
    return sizes


def test_s_error_is_the_mean_over_shards_and_tokens():
    """Three shards with 21 tokens; by hand, from what each of them does not know of the others' changes."""
    program = FPlusLDA(2, 5, 0.3, 0.1)
    reports = [program_module.SweepReport(np.array([3 + p, 3 - p]), 6 + 2 * (p > 0) - p // 2) for p in range(3)]
    model = program.aggregate(None, reports)
    assert (model.n_tokens, model.s_error, model.s_error_now) == (21, 0.0, 0.0)
    changes = [np.array([2, -2]), np.array([-1, 1]), np.array([0, 0])]
    # In all (1, -1) has changed.  The first shard is off by |-1| + |1|, the second by |2| + |-2|, the third by 1 + 1.
    model = program.aggregate(model, [program_module.Step(change, 3) for change in changes])
    assert model.s_error_now == pytest.approx((2 + 4 + 2) / (3 * 21))
    calm = program.aggregate(model, [program_module.Step(np.array([0, 0]), 0)] * 3)
    assert calm.s_error_now == model.s_error_now  # the worst step of the sweep
    assert program.aggregate(calm, reports).s_error == model.s_error_now
