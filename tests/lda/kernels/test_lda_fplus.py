"""The exact sampler: its posterior by enumeration, its oracle, and its laws."""

from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import make_shards, random_counts, token_words
from numba import njit
from oracles.lda_fplus import FPlusOracle
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.topic_rows import order_rows, stack_rows
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.fplus import sample_cell
from schmp_estimators.lda.kernels.lists import order_lists
from schmp_estimators.lda.programs import sequential as program_module
from schmp_estimators.lda.programs import topics
from schmp_estimators.lda.programs.fplus import FPlusLDA

CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


def fit(counts, n_components, *, cuts=(), n_sweeps=3, fixed=None, saved=None, first=0, **parameters):
    """Fit; return the topics in document order after each sweep, records, and the last rows by column."""
    shards, layout = make_shards(counts, cuts, fixed)
    parameters = {"doc_topic_prior": 0.3, "topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1} | parameters
    program = FPlusLDA(n_components, counts.shape[1], **parameters)
    topics, records = [], []
    for record, last, kept in run_serial(program, shards, n_sweeps, saved, first):
        topics.append(np.concatenate(kept.shards))
        records.append(record)
        harvest = last
    rows = order_rows(stack_rows(harvest.blocks), np.argsort(layout.column), n_components)
    return SimpleNamespace(topics=topics, records=records, rows=rows, saved=kept, model=harvest.model)


def make_oracle(counts, n_components, cuts=(), fixed=None):
    bounds = [0, *cuts, len(counts)]
    return FPlusOracle(counts, n_components, 0.3, 0.1, 5, bounds, make_shards(counts, cuts)[1], fixed)


def old_rows(seed, counts, n_components):
    rng = np.random.default_rng(seed)
    return rng.poisson(3.0, (counts.shape[1], n_components)) * (rng.random((counts.shape[1], 1)) < 0.7)


def log_posterior(counts, topic, n_components, alpha, beta):
    """ln p(words, topics) up to a constant, from dense tables."""
    document = np.repeat(np.arange(len(counts)), counts.sum(1))
    by_document = np.zeros((len(counts), n_components))
    by_word = np.zeros((counts.shape[1], n_components))
    np.add.at(by_document, (document, topic), 1)
    np.add.at(by_word, (token_words(counts), topic), 1)
    return (
        gammaln(by_document + alpha).sum()
        + gammaln(by_word + beta).sum()
        - gammaln(by_word.sum(0) + counts.shape[1] * beta).sum()
    )


@njit
def long_chain(n_samples, thin, key, place, n_topics, arguments, lists, codes):
    """Count how often the topics, read as a number in document order, are found after every `thin` sweeps."""
    first, last, shard, block, topic, document, total, level_ptr, alpha, beta, beta_sum = arguments
    for sample in range(n_samples):
        for sweep in range(thin):
            order_lists(lists)
            stream = mix(key + np.uint64(sample * thin + sweep) * GAMMA)
            sample_cell(
                first, last, shard, block, topic, document, lists, total, level_ptr,
                alpha, beta, beta_sum, stream,
            )  # fmt: skip
        code = 0
        for at in place:
            code = code * n_topics + topic[at]
        codes[code] += 1


@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta"),
    [
        (2, [[2, 1], [0, 2], [1, 1]], 0.7, 0.4),  # tail words
        (2, [[3, 1], [3, 1]], 0.2, 0.3),  # a head word of six tokens
        pytest.param(3, [[1, 1, 0], [0, 2, 1], [1, 0, 0]], 0.3, 0.2, marks=pytest.mark.slow),
        pytest.param(3, [[6, 0]], 1.5, 0.5, marks=pytest.mark.slow),  # one document, one word, an unused word
        pytest.param(4, [[1, 2], [2, 0]], 0.05, 0.02, marks=pytest.mark.slow),
        (18, [[1, 0, 1]], 0.1, 0.3),  # a tree of two levels, mended topic by topic
        (2, [[2, 1], [0, 2], [1, 1]], (0.2, 1.5), 0.4),  # a prior for each topic
        pytest.param(18, [[1, 0, 1]], tuple(0.02 * (1 + np.arange(18))), 0.3, marks=pytest.mark.slow),
    ],
)
def test_long_run_visits_every_state_as_often_as_the_posterior_says(n_components, counts, alpha, beta):
    counts = np.array(counts, np.int32)
    n_tokens = int(counts.sum())
    alpha = np.array(alpha) if isinstance(alpha, tuple) else alpha
    states = np.array(list(product(range(n_components), repeat=n_tokens)))
    log_p = np.array([log_posterior(counts, state, n_components, alpha, beta) for state in states])
    expected = np.exp(log_p - log_p.max())
    expected /= expected.sum()

    (shard,), _ = make_shards(counts)
    program = FPlusLDA(n_components, counts.shape[1], float(np.mean(alpha)), beta)
    at = At(shard, None, -1, 0, 1, n_blocks=1)
    state, parts = program.init(at)
    block = program.combine(0, [parts[0]])
    block = block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed))
    n_samples, visits = 40_000, np.zeros(len(states), np.int64)
    arguments = (
        0, counts.shape[1], shard, block, state.topic, freeze(state.document), program.report(at, state).topic_total,
        freeze(ftree.level_offsets(n_components)), alpha, beta, counts.shape[1] * beta,
    )  # fmt: skip
    # At 20 sweeps apart, samples of these corpora are as good as independent.
    long_chain(n_samples, 20, np.uint64(99), freeze(shard.place), n_components, arguments, state.lists, visits)

    assert visits.sum() == n_samples
    # Pearson's statistic wants cells of five expected visits or more: the rarest states make one cell.
    rare = expected * n_samples < 5
    cells = np.append(expected[~rare], expected[rare].sum()), np.append(visits[~rare], visits[rare].sum())
    share, seen = (cell[cells[0] > 0] for cell in cells)
    statistic = ((seen - share * n_samples) ** 2 / (share * n_samples)).sum()
    assert 1e-4 < chi2.sf(statistic, len(share) - 1) < 1 - 1e-4


@pytest.mark.parametrize(("n_components", "cuts"), [*product([1, 3, 7, 20, 300], CUTS), (40_000, CUTS[2])])
def test_equals_oracle(n_components, cuts):
    counts = random_counts(n_components)
    result = fit(counts, n_components, cuts=cuts)
    oracle = make_oracle(counts, n_components, cuts)
    for topic, record in zip(result.topics, result.records, strict=True):
        before = np.array(oracle.topic)
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["s_error"] == pytest.approx(oracle.s_error, abs=1e-15)
        assert record["moved"] == (before != topic).sum()


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 5, 60, 600])
def test_equals_oracle_with_fixed_rows(n_components, cuts):
    counts = random_counts(3)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, cuts=cuts, fixed=fixed)
    oracle = make_oracle(counts, n_components, cuts, fixed)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
    _, by_word = oracle.tables()
    np.testing.assert_array_equal(result.model.topic_total, by_word.sum(0))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 4, 30, 33_000]),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
)
def test_counts_are_conserved_and_lists_are_right(seed, n_components, cuts):
    counts = random_counts(seed)
    result = fit(counts, n_components, cuts=cuts)
    table = np.zeros((counts.shape[1], n_components), int)
    np.add.at(table, (token_words(counts), result.topics[-1]), 1)
    dense = np.zeros_like(table)
    dense[np.repeat(np.arange(len(dense)), np.diff(result.rows.ptr)), result.rows.topic] = result.rows.tokens
    np.testing.assert_array_equal(dense, table)
    np.testing.assert_array_equal(result.model.topic_total, table.sum(axis=0))
    assert 0 <= result.records[-1]["s_error"] <= 2
    if not cuts:
        assert result.records[-1]["s_error"] == 0


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 4, 30, 33_000]),
    cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted),
    stop=st.integers(1, 4),
    with_fixed=st.booleans(),
)
def test_restart_continues_as_if_uninterrupted(seed, n_components, cuts, stop, with_fixed):
    counts = random_counts(seed)
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    common = {"cuts": cuts, "fixed": fixed}
    whole = fit(counts, n_components, n_sweeps=5, **common)
    part = fit(counts, n_components, n_sweeps=stop, **common)
    rest = fit(counts, n_components, n_sweeps=5, saved=part.saved, first=stop, **common)
    np.testing.assert_array_equal(whole.topics[stop:], rest.topics)
    assert whole.records[stop:] == rest.records


def test_same_bits_in_16_and_32_bits(monkeypatch):
    counts = random_counts(14, 60, 30)
    narrow = fit(counts, 9, cuts=(20, 40))
    monkeypatch.setattr(topics, "topic_dtype", lambda n_components: np.int32)
    wide = fit(counts, 9, cuts=(20, 40))
    assert narrow.topics[0].dtype == np.int16
    assert wide.topics[0].dtype == np.int32
    np.testing.assert_array_equal(narrow.topics, wide.topics)


def test_a_long_document_has_sorted_lists():
    counts = random_counts(15, 3, 40, 60.0)
    counts[1] = 9
    result = fit(counts, 200, n_sweeps=2)
    oracle = make_oracle(counts, 200)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())


@pytest.mark.parametrize("shape", [(1, 5), (3, 1), (4, 6)])
def test_corpora_with_little_in_them(shape):
    counts = np.zeros(shape, np.int32)
    assert fit(counts, 3).topics[-1].size == 0
    assert fit(counts, 3, cuts=(1,)).topics[-1].size == 0
    counts[0, 0] = 1
    assert fit(counts, 3).topics[-1].size == 1


def test_likelihood_rises_on_separable_text():
    counts = np.zeros((200, 20), np.int32)
    counts[:100, :10] = counts[100:, 10:] = 3
    records = fit(counts, 2, n_sweeps=30, topic_word_prior=0.01).records
    assert records[-1]["log_likelihood"] > records[0]["log_likelihood"] + 1000


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 5000]))
def test_tree_equals_cumulative_sums(seed, n_topics):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 1000, n_topics).astype(float)  # sums of whole numbers are exact
    level_ptr = ftree.level_offsets(n_topics)
    sums = np.empty(level_ptr[-1])
    assert ftree.build(weights, level_ptr, sums) == weights.sum()
    total = change_some(
        weights, level_ptr, sums, weights.sum(), rng.integers(0, n_topics, 20), rng.integers(0, 1000, 20)
    )
    ends = np.cumsum(weights)
    assert total == ends[-1]
    for point in rng.integers(0, max(1, int(total)), 20):
        if point < total:
            assert ftree.find(weights, level_ptr, sums, float(point)) == np.searchsorted(ends, point, side="right")
    assert ftree.find(weights, level_ptr, sums, total * 1.001 + 1) == n_topics - 1
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
