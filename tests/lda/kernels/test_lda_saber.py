"""Gibbs sampling with all counts frozen: its oracle, its lists and its law."""

from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pytest
from lda_cases import CUTS, make_shards, old_rows, random_counts
from lda_cases import fit as fit_any
from numba import njit
from oracles.lda_saber import SaberOracle, first_seen, sums_of_lanes
from oracles.lda_saber import find as find_slowly
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows, WordBlock
from schmp_estimators.lda.kernels.lists import LANES, add_listed, find_lane
from schmp_estimators.lda.kernels.saber import (
    DocumentLists,
    list_documents,
    make_lists,
    make_scratch,
    sample_words,
    smoothing,
)
from schmp_estimators.lda.samplers.saber import SaberLDA


@dataclass(frozen=True)
class Uneven(SaberLDA):
    """With a document prior of every topic."""

    uneven: tuple[float, ...] = ()

    def alphas(self, sweep, model=None):
        return np.maximum(self.uneven, self.hot_priors[0] if sweep < self.hot_sweeps else 0.0)


fit = partial(fit_any, kind=SaberLDA)


def assert_equal(result, oracle):
    before = list(oracle.topic)
    for topic, record in zip(result.topics, result.records, strict=True):
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["moved"] == np.count_nonzero(topic != before)
        before = topic


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_components", [1, 3, 8, 40, 300])
def test_equals_oracle(n_components, cuts):
    counts = random_counts(n_components)
    assert_equal(fit(counts, n_components, cuts=cuts), SaberOracle(counts, n_components, 0.3, 0.1, 5))


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("hot", [(2.0, 0.01), (0.01, 0.7)])
def test_equals_oracle_with_uneven_priors_and_a_hot_start(hot, cuts):
    counts, uneven = random_counts(8), tuple(np.geomspace(0.01, 3.0, 20).tolist())
    result = fit(counts, 20, cuts=cuts, n_sweeps=4, kind=Uneven, uneven=uneven, hot_priors=hot, hot_sweeps=2)
    assert_equal(result, SaberOracle(counts, 20, uneven, 0.1, 5, hot=hot, hot_sweeps=2))


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 60])
def test_equals_oracle_with_fixed_rows(n_components, cuts):
    counts = random_counts(3)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, cuts=cuts, fixed=fixed)
    assert_equal(result, SaberOracle(counts, n_components, 0.3, 0.1, 5, fixed))
    new = np.bincount(result.topics[-1], minlength=n_components)
    np.testing.assert_array_equal(result.model.topic_total, new + fixed.sum(axis=0))


@pytest.mark.parametrize("priors", [(1e-30, 1e-30), (1e-12, 1e-30), (1e30, 1e30), (1e30, 1e-30), (1e-30, 1e30)])
def test_equals_oracle_at_the_ends_of_the_priors(priors):
    counts = random_counts(9)
    result = fit(counts, 7, doc_topic_prior=priors[0], topic_word_prior=priors[1], evaluate_every=0)
    assert_equal(result, SaberOracle(counts, 7, *priors, 5))


def test_words_of_many_tokens_and_lists_of_many_blocks():
    """More tokens of a word than are sampled together, in documents with more topics than a block has."""
    counts = np.random.default_rng(0).poisson(2.0, (30, 6)).astype(np.int32)
    counts[3] = 40
    result = fit(counts, 200, cuts=(4,), doc_topic_prior=2.0)
    assert_equal(result, SaberOracle(counts, 200, 2.0, 0.1, 5))


def test_goes_on_from_topics_alone():
    counts = random_counts(2)
    whole = fit(counts, 12, n_sweeps=4, cuts=(6,))
    part = fit(counts, 12, n_sweeps=2, cuts=(6,))
    rest = fit(counts, 12, n_sweeps=4, cuts=(6,), saved=part.saved._replace(model=None), first=2)
    np.testing.assert_array_equal(whole.topics[2:], rest.topics)
    assert whole.records[2:] == rest.records


def test_weights_below_all_float32_are_told_apart():
    """A document and a word for each token: no count is left but those of the topics, about 200 tokens each."""
    result = fit(np.eye(1000, dtype=np.int32), 5, doc_topic_prior=1e-30, topic_word_prior=1e-30, n_sweeps=1)
    found = np.bincount(result.topics[-1], minlength=5)
    assert found.min() > 100
    assert found.max() < 400


@pytest.mark.parametrize("n_topics", [3, 40_000])
def test_lists_have_the_topics_of_documents(n_topics):
    counts = random_counts(6, 20, 15)
    (shard,), _ = make_shards(counts)
    rng = np.random.default_rng(0)
    topic = rng.choice(rng.integers(0, n_topics, 30), len(shard.place))
    topic = topic.astype(np.int16 if n_topics < 1 << 15 else np.int32)
    document, ptr, n_blocks, lists = made = make_lists(shard.doc_ptr, shard.place, n_topics)
    totals, scratch = np.zeros(n_topics, np.int64), np.zeros((2, n_topics), np.int32)
    list_documents(0, len(counts), shard.doc_ptr, shard.place, freeze(topic), *made[1:], *scratch, totals)
    np.testing.assert_array_equal(totals, np.bincount(topic, minlength=n_topics))
    for doc, (first, last) in enumerate(zip(shard.doc_ptr[:-1], shard.doc_ptr[1:], strict=True)):
        places = shard.place[first:last]
        assert (document[places] == doc).all()
        blocks = lists.reshape(-1, 2, LANES)[ptr[doc] : ptr[doc] + n_blocks[doc]]
        topics, tokens = blocks[:, 0].reshape(-1), blocks[:, 1].reshape(-1)
        expected = first_seen(topic[places].tolist())
        assert len(topics) - LANES < len(expected) <= len(topics)
        assert topics[: len(expected)].tolist() == expected
        assert tokens[: len(expected)].tolist() == [np.count_nonzero(topic[places] == k) for k in expected]
        assert not tokens[len(expected) :].any()


@njit
def draw_many(lists, n_blocks, weights, own, own_weight, uniforms, sums, out):
    total = add_listed(lists, 1, n_blocks, weights, own, own_weight, sums, 3)
    for i in range(len(uniforms)):
        lane, rest = find_lane(sums, 3, n_blocks, uniforms[i] * total)
        block = 0
        for b in range(n_blocks):
            block += sums[3 + b * LANES + lane] <= rest
        out[i] = min(block, n_blocks - 1) * LANES + lane
    return total


@pytest.mark.parametrize(("n", "dtype"), list(product([1, 8, 21], [np.int16, np.int32])))
def test_draws_from_a_list_have_the_chances_of_its_weights(n, dtype):
    rng = np.random.default_rng(n)
    topics, counts = rng.permutation(50)[:n], rng.integers(1, 9, n)
    weights, own = rng.gamma(0.5, 1.0, 50).astype(np.float32), topics[n // 2]
    blocks = np.zeros((-(-n // LANES), 2, LANES), dtype)
    for j in range(n):
        blocks[j // LANES, :, j % LANES] = topics[j], counts[j]
    lists = np.concatenate([np.full(2 * LANES, 7, dtype), blocks.reshape(-1)])  # behind the list of another document
    sums, out = np.zeros(100, np.float32), np.empty(100_000, np.int64)
    uniforms = rng.random(len(out)).astype(np.float32) * np.float32(1 - 2**-23)
    total = draw_many(lists, len(blocks), weights, int(own), np.float32(0.75), uniforms, sums, out)
    expected = (counts - (topics == own)) * np.where(topics == own, np.float32(0.75), weights[topics])
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)
    found, chances = np.bincount(out, minlength=n), expected / max(expected.sum(), 1e-30)
    if expected.any():
        assert (np.abs(found - len(out) * chances) <= 5 * np.sqrt(len(out) * chances) + 1)[:n].all()
    ends = sums_of_lanes(expected.astype(np.float32))
    assert [find_slowly(*ends, u * np.float32(total)) for u in uniforms[:200]] == out[:200].tolist()


@pytest.mark.parametrize("topic", range(4))
def test_a_topic_is_drawn_from_the_conditional_of_the_token_given_all_others(topic):
    """Equal documents, whose first tokens are one word with a given row.  Whatever the topic was, the law is one."""
    n, beta, n_words = 100_000, 0.25, 30
    alpha, total = np.array([0.4, 0.1, 1.3, 0.02]), np.array([40, 25, 3, 60])
    in_document, in_word = np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
    law = (in_document + alpha) * (in_word + beta) / (total + n_words * beta)
    law /= law.sum()
    others = np.repeat(np.arange(4), in_document)
    (shard,), _ = make_shards(np.ones((n, 1 + len(others)), np.int32))
    topics = np.empty(len(shard.place), np.int16)
    topics[shard.place] = np.tile(np.append(topic, others), (n, 1)).reshape(-1)
    document, *lists = make_lists(shard.doc_ptr, shard.place, 4)
    scratch = np.zeros((2, 4), np.int32)
    list_documents(0, n, shard.doc_ptr, shard.place, freeze(topics), *lists, *scratch, np.zeros(4, np.int64))
    row = in_word + np.eye(4, dtype=int)[topic]
    none = TopicRows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
    block = WordBlock(row[None].astype(np.int32), np.zeros(1, np.int64), np.zeros(0, np.int16), none)
    smooth = smoothing(total, n_words * beta, alpha, beta)
    key = stream_key(3, topic)
    of_words = shard.word_ptr, shard.word_total, shard.word_first, shard.word_rank
    given = 0, 1, 0, of_words, freeze(block), topics, freeze(DocumentLists(document, *lists)), freeze(smooth), key
    moved = sample_words(*given, *make_scratch(smooth, seeded=False), None)
    after = topics[shard.place].reshape(n, -1)
    assert moved == np.count_nonzero(after[:, 0] != topic)
    assert (after[:, 1:] == others).all()
    counts = np.bincount(after[:, 0], minlength=4)
    assert chi2.sf(((counts - n * law) ** 2 / (n * law)).sum(), 3) > 1e-4
