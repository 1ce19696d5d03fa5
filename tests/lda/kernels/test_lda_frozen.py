"""Frozen-count Gibbs sampling: its oracle, its law, and how its work may be divided."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import make_shards, random_counts, token_words
from numba import njit
from oracles.lda_frozen import FrozenOracle
from oracles.lda_frozen import draw as draw_slowly
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.topic_rows import order_rows, stack_rows
from schmp_estimators.lda.kernels.draw import LANES, draw, padded
from schmp_estimators.lda.kernels.frozen import Frozen, sample_documents
from schmp_estimators.lda.programs import frozen as program_module
from schmp_estimators.lda.programs import topics
from schmp_estimators.lda.programs.frozen import FrozenLDA

CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


@dataclass(frozen=True)
class Uneven(FrozenLDA):
    """With a document prior of every topic."""

    uneven: tuple[float, ...] = ()

    def alphas(self, sweep, model=None):
        return np.maximum(self.uneven, self.hot_priors[0] if sweep < self.hot_sweeps else 0.0)


def fit(counts, n_components, *, cuts=(), n_sweeps=3, fixed=None, saved=None, first=0, engine=run_serial, **parameters):
    """Fit; return the topics in document order after each sweep, records, and the last rows by column."""
    shards, layout = make_shards(counts, cuts, fixed)
    parameters = {"doc_topic_prior": 0.3, "topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1} | parameters
    program = (Uneven if "uneven" in parameters else FrozenLDA)(n_components, counts.shape[1], **parameters)
    topics, records = [], []
    for record, last, kept in engine(program, shards, n_sweeps, saved, first):
        topics.append(np.concatenate(kept.shards))
        records.append(record)
        harvest = last
    rows = order_rows(stack_rows(harvest.blocks or harvest.shards), np.argsort(layout.column), n_components)
    return SimpleNamespace(topics=topics, records=records, rows=rows, saved=kept, model=harvest.model)


def old_rows(seed, counts, n_components):
    rng = np.random.default_rng(seed)
    return rng.poisson(3.0, (counts.shape[1], n_components)) * (rng.random((counts.shape[1], 1)) < 0.7)


def assert_equal(result, oracle):
    before = list(oracle.topic)
    for topic, record in zip(result.topics, result.records, strict=True):
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["moved"] == np.count_nonzero(topic != before)
        before = topic


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [1, 3, 16, 17, 40, 100, 300])
def test_equals_oracle(n_components, cuts):
    counts = random_counts(n_components)
    assert_equal(fit(counts, n_components, cuts=cuts), FrozenOracle(counts, n_components, 0.3, 0.1, 5))


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("hot", [(2.0, 0.01), (0.01, 0.7)])
def test_equals_oracle_with_uneven_priors_and_a_hot_start(hot, cuts):
    counts, uneven = random_counts(8), tuple(np.geomspace(0.01, 3.0, 20).tolist())
    result = fit(counts, 20, cuts=cuts, n_sweeps=4, uneven=uneven, hot_priors=hot, hot_sweeps=2)
    assert_equal(result, FrozenOracle(counts, 20, uneven, 0.1, 5, hot=hot, hot_sweeps=2))


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 60])
def test_equals_oracle_with_fixed_rows(n_components, cuts):
    counts = random_counts(3)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, cuts=cuts, fixed=fixed)
    assert_equal(result, FrozenOracle(counts, n_components, 0.3, 0.1, 5, fixed))
    new = np.bincount(result.topics[-1], minlength=n_components)
    np.testing.assert_array_equal(result.model.topic_total, new + fixed.sum(axis=0))


@pytest.mark.parametrize("priors", [(1e-30, 1e-30), (1e-12, 1e-30), (1e30, 1e30), (1e30, 1e-30), (1e-30, 1e30)])
def test_equals_oracle_at_the_ends_of_the_priors(priors):
    counts = random_counts(9)
    result = fit(counts, 7, doc_topic_prior=priors[0], topic_word_prior=priors[1], evaluate_every=0)
    assert_equal(result, FrozenOracle(counts, 7, *priors, 5))


@pytest.mark.parametrize("n_components", [5, 16])
def test_weights_below_all_float32_are_told_apart(n_components):
    """A document and a word for each token: no count is left but those of the topics, about 1,000 / K tokens each."""
    result = fit(np.eye(1000, dtype=np.int32), n_components, doc_topic_prior=1e-30, topic_word_prior=1e-30, n_sweeps=1)
    found = np.bincount(result.topics[-1], minlength=n_components)
    assert found.min() > 500 / n_components
    assert found.max() < 2000 / n_components


@njit
def draw_many(left, right, own, own_weight, uniforms, out):
    ends = np.empty(len(left) + LANES, np.float32)
    for i in range(len(uniforms)):
        out[i], _ = draw(left, 0, right, 0, len(left), own, own_weight, uniforms[i], ends)


@pytest.mark.parametrize("n_topics", [1, 5, 16, 33, 100, 1000])
def test_draws_have_the_chances_of_the_weights(n_topics):
    """The inverse distribution function, topics in the order of their lanes; and the oracle's topics."""
    rng, n, width = np.random.default_rng(n_topics), 200_000, padded(n_topics)
    left, right = np.zeros((2, width), np.float32)
    left[:n_topics], right[:n_topics] = rng.gamma(0.3, 1.0, n_topics) + 1e-3, rng.gamma(0.3, 1.0, n_topics) + 1e-3
    own = n_topics // 2
    weights = (left * right).astype(float)[:n_topics]
    weights[own] = 0.75
    uniforms, found = rng.random(n).astype(np.float32) * np.float32(1 - 2**-23), np.empty(n, np.int64)
    draw_many(left, right, own, np.float32(0.75), uniforms, found)
    expected = n * weights / weights.sum()
    counts = np.bincount(found, minlength=n_topics)
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()
    narrow = (left * right)[:n_topics]
    narrow[own] = 0.75
    assert [draw_slowly(narrow, u) for u in uniforms[:300]] == found[:300].tolist()
    last = np.empty(1, np.int64)
    draw_many(left, right, own, np.float32(0.75), np.full(1, 1 - 2**-24, np.float32), last)
    assert weights[last[0]] > 0


@pytest.mark.parametrize("topic", range(4))
def test_a_topic_is_drawn_from_the_conditional_of_the_token_given_all_others(topic):
    """Equal documents; their first tokens see all others as they were.  Whatever the topic was, the law is one."""
    n, beta, n_words = 100_000, 0.25, 30
    alpha, total = np.array([0.4, 0.1, 1.3, 0.02]), np.array([40, 25, 3, 60])
    in_document, in_word = np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
    law = (in_document + alpha) * (in_word + beta) / (total + n_words * beta)
    law /= law.sum()
    others = np.repeat(np.arange(4), in_document)
    (shard,), _ = make_shards(np.ones((n, 1 + len(others)), np.int32))
    own = np.eye(4, dtype=int)[topic]
    rows = np.zeros((1 + len(others), LANES), np.float32)
    rows[0, :4] = (in_word + own + beta) / (total + own + n_words * beta)
    rows[1:, :4] = 0.1
    in_order = np.tile(np.append(topic, others), (n, 1)).astype(np.int16)
    topics = np.empty(in_order.size, np.int16)
    topics[shard.place] = in_order.reshape(-1)
    word, totals = np.tile(np.arange(1 + len(others), dtype=np.uint32), n), np.zeros(4, np.int64)
    frozen = freeze(Frozen(rows, alpha, total + own, beta, n_words * beta))
    sample_documents(0, n, shard, freeze(word), topics, frozen, stream_key(2, topic), totals)
    np.testing.assert_array_equal(totals, np.bincount(topics, minlength=4))
    counts = np.bincount(topics[shard.place].reshape(n, -1)[:, 0], minlength=4)
    assert chi2.sf(((counts - n * law) ** 2 / (n * law)).sum(), 3) > 1e-4


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 16, 30, 200]),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
    with_fixed=st.booleans(),
)
def test_same_bits_for_any_shards(seed, n_components, cuts, with_fixed):
    counts = random_counts(seed)
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    one = fit(counts, n_components, fixed=fixed)
    many = fit(counts, n_components, fixed=fixed, cuts=cuts)
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
    whole = fit(counts, 4, cuts=cuts, n_sweeps=5, fixed=fixed)
    half = fit(counts, 4, cuts=cuts, n_sweeps=2, fixed=fixed)
    rest = fit(counts, 4, cuts=cuts, n_sweeps=5, fixed=fixed, saved=half.saved, first=2)
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


@pytest.mark.slow
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
