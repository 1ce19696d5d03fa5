"""Short documents sampled exactly, long ones by proposals: the posterior by enumeration, the oracle, the laws."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import make_shards, random_counts, token_words
from numba import njit
from oracles.lda_hybrid import HybridOracle
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.hybrid import sample_hybrid
from schmp_estimators.lda.kernels.lists import order_lists
from schmp_estimators.lda.programs.fplus import FPlusLDA
from schmp_estimators.lda.programs.hybrid import HybridLDA, steps_after

CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


def fit(counts, n_components, *, cuts=(), n_sweeps=3, fixed=None, saved=None, first=0, kind=HybridLDA, **parameters):
    """Fit; return the topics in document order after each sweep, and records."""
    shards, _ = make_shards(counts, cuts, fixed)
    parameters = {"doc_topic_prior": 0.3, "topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1} | parameters
    runs = [*run_serial(kind(n_components, counts.shape[1], **parameters), shards, n_sweeps, saved, first)]
    topics = [np.concatenate(kept.shards) for _, _, kept in runs]
    return SimpleNamespace(topics=topics, records=[run[0] for run in runs], saved=runs[-1][2], model=runs[-1][1].model)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(("n_components", "long_document"), [(3, 0), (20, 8), (20, 19), (300, 8)])
def test_equals_oracle(n_components, long_document, cuts):
    counts = random_counts(3)
    assert (counts.sum(1) <= 8).any() and (counts.sum(1) > 19).any()
    fixed = np.random.default_rng(1).poisson(2.0, (counts.shape[1], n_components)) if n_components == 3 else None
    result = fit(counts, n_components, cuts=cuts, fixed=fixed, long_document=long_document)
    bounds, layout = [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    oracle = HybridOracle(counts, n_components, 0.3, 0.1, 5, bounds, layout, fixed, long_document=long_document)
    for topic, record in zip(result.topics, result.records, strict=True):
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["acceptance"] == oracle.acceptance < 1
        assert record["s_error"] == pytest.approx(oracle.s_error, abs=1e-15)


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize(("n_components", "long_document"), [(7, 10**6), (7, 7)])
def test_is_exact_sampling_where_all_is_short(n_components, long_document, cuts):
    """No document has more tokens, or there are no more topics than that."""
    counts = random_counts(2)
    exact = fit(counts, n_components, cuts=cuts, kind=FPlusLDA)
    hybrid = fit(counts, n_components, cuts=cuts, long_document=long_document)
    np.testing.assert_array_equal(exact.topics, hybrid.topics)
    assert [record.pop("acceptance") for record in hybrid.records] == [1.0] * 3
    assert exact.records == hybrid.records


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted),
    stop=st.integers(1, 4),
    long_document=st.integers(0, 20),
)
def test_restart_continues_as_if_uninterrupted(seed, cuts, stop, long_document):
    """Also without the model, which a checkpoint has not: the records say how many proposals come next."""
    counts, common = random_counts(seed), {"cuts": cuts, "long_document": long_document}
    whole, part = fit(counts, 30, n_sweeps=5, **common), fit(counts, 30, n_sweeps=stop, **common)
    before = HybridLDA(30, counts.shape[1], 0.3, 0.1).resumed(part.records).accepted_before
    for saved in (part.saved, part.saved._replace(model=None)):
        rest = fit(counts, 30, n_sweeps=5, saved=saved, first=stop, accepted_before=before, **common)
        np.testing.assert_array_equal(whole.topics[stop:], rest.topics)
    assert HybridLDA(30, 5, 0.3, 0.1).resumed([]) == HybridLDA(30, 5, 0.3, 0.1)


@pytest.mark.parametrize(
    ("acceptance", "steps"), [(1.0, 2), (0.51, 2), (0.5, 2), (0.49, 3), (0.3, 4), (0.126, 8), (0.01, 8), (0.0, 8)]
)
def test_as_many_proposals_as_one_of_them_needs_to_be_accepted(acceptance, steps):
    assert steps_after(acceptance) == steps


def log_posterior(counts, topic, n_components, alpha, beta):
    """ln p(words, topics) up to a constant, from dense tables."""
    by_document, by_word = np.zeros((len(counts), n_components)), np.zeros((counts.shape[1], n_components))
    np.add.at(by_document, (np.repeat(np.arange(len(counts)), counts.sum(1)), topic), 1)
    np.add.at(by_word, (token_words(counts), topic), 1)
    topics = gammaln(by_word.sum(0) + counts.shape[1] * beta).sum()
    return (gammaln(by_document + alpha)).sum() + gammaln(by_word + beta).sum() - topics


@njit
def long_chain(n_samples, thin, key, place, n_topics, arguments, lists, long_document, n_steps, codes):
    """Count how often the topics, read as a number in document order, are found after every `thin` sweeps."""
    first, last, shard, block, topic, document, total, level_ptr, alpha, beta, beta_sum = arguments
    for sample in range(n_samples):
        for sweep in range(thin):
            order_lists(lists)
            stream = mix(key + np.uint64(sample * thin + sweep) * GAMMA)
            sample_hybrid(
                first, last, shard, block, topic, document, lists, total, level_ptr,
                alpha, beta, beta_sum, stream, mix(stream + GAMMA), long_document, n_steps,
            )  # fmt: skip
        code = 0
        for at in place:
            code = code * n_topics + topic[at]
        codes[code] += 1


@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta", "long_document", "n_steps"),
    [
        (2, [[2, 1], [0, 2], [1, 1]], 0.7, 0.4, 2, 2),  # a long document and two short ones
        (3, [[1, 1, 0], [0, 2, 1]], 0.3, 0.2, 0, 3),
        pytest.param(2, [[3, 1], [3, 1]], 0.2, 0.3, 0, 2, marks=pytest.mark.slow),  # a head word
        pytest.param(18, [[1, 0, 1]], 0.1, 0.3, 0, 4, marks=pytest.mark.slow),  # a tree of two levels
    ],
)
def test_long_run_visits_every_state_as_often_as_the_posterior_says(
    n_components, counts, alpha, beta, long_document, n_steps
):
    counts = np.array(counts, np.int32)
    states = np.array(list(product(range(n_components), repeat=int(counts.sum()))))
    log_p = np.array([log_posterior(counts, state, n_components, alpha, beta) for state in states])
    expected = np.exp(log_p - log_p.max())
    expected /= expected.sum()
    (shard,), _ = make_shards(counts)
    program = HybridLDA(n_components, counts.shape[1], alpha, beta)
    at = At(shard, None, -1, 0, 1, n_blocks=1)
    state, parts = program.init(at)
    block = program.combine(0, [parts[0]])
    block = block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed))
    arguments = (
        0, counts.shape[1], shard, block, state.topic, freeze(state.document), program.report(at, state).topic_total,
        freeze(ftree.level_offsets(n_components)), freeze(np.full(n_components, alpha)), beta, counts.shape[1] * beta,
    )  # fmt: skip
    n_samples, visits = 40_000, np.zeros(len(states), np.int64)
    long_chain(
        n_samples, 25, np.uint64(98), freeze(shard.place), n_components, arguments, state.lists, long_document,
        n_steps, visits,
    )  # fmt: skip
    rare = expected * n_samples < 5
    cells = np.append(expected[~rare], expected[rare].sum()), np.append(visits[~rare], visits[rare].sum())
    share, seen = (cell[cells[0] > 0] for cell in cells)
    statistic = ((seen - share * n_samples) ** 2 / (share * n_samples)).sum()
    assert 1e-4 < chi2.sf(statistic, len(share) - 1) < 1 - 1e-4
