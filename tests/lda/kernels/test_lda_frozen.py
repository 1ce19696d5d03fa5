"""Frozen-count Gibbs sampling: its oracle and its law."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from lda_cases import CUTS, make_shards, old_rows, random_counts
from lda_cases import fit as fit_any
from numba import njit
from oracles.lda_frozen import FrozenOracle
from oracles.lda_frozen import draw as draw_slowly
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.draw import LANES, add_products, find_lane, find_topic, padded
from schmp_estimators.lda.kernels.frozen import frozen_of, make_seats, sample_documents
from schmp_estimators.lda.samplers.frozen import FrozenLDA


@dataclass(frozen=True)
class Uneven(FrozenLDA):
    """With a document prior of every topic."""

    uneven: tuple[float, ...] = ()

    def alphas(self, sweep, model=None):
        return np.maximum(self.uneven, self.hot_priors[0] if sweep < self.hot_sweeps else 0.0)


fit = partial(fit_any, kind=FrozenLDA)


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
    result = fit(counts, 20, cuts=cuts, n_sweeps=4, kind=Uneven, uneven=uneven, hot_priors=hot, hot_sweeps=2)
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
    width = len(left)
    sums, numbers = np.empty(width + LANES, np.float32), np.arange(width).astype(np.int32)
    for i in range(len(uniforms)):
        add_products(left, 0, right, 0, width, own, own_weight, numbers, sums, 0)
        lane, rest, _ = find_lane(sums, 0, width, uniforms[i])
        out[i] = find_topic(sums, 0, width, lane, rest)


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
    frozen = freeze(frozen_of(rows, alpha, total + own, beta, n_words * beta))
    seats = make_seats(np.diff(shard.doc_ptr), 4, topics.dtype)
    given = 0, n, shard.doc_ptr, shard.place, shard.first_token, freeze(word), topics, frozen
    sample_documents(*given, stream_key(2, topic), seats, totals, None)
    np.testing.assert_array_equal(totals, np.bincount(topics, minlength=4))
    counts = np.bincount(topics[shard.place].reshape(n, -1)[:, 0], minlength=4)
    assert chi2.sf(((counts - n * law) ** 2 / (n * law)).sum(), 3) > 1e-4
