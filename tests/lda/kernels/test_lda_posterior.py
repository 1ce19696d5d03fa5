"""Samplers keep the posterior of topics, by enumeration of all assignments; and the sampler of the user guide."""

import numpy as np
import pytest
from gibbs import GibbsLDA
from lda_cases import CUTS, fit, make_shards, old_rows, random_counts
from numba import njit
from oracles.lda_cells import GibbsOracle
from posterior import TINY, assert_keeps_the_posterior, assert_long_run_has_the_posterior, with_key

from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.samplers.fplus import FPlusLDA, sample_fplus
from schmp_estimators.lda.samplers.hybrid import HybridLDA, Proposing, sample_hybrid
from schmp_estimators.lda.samplers.light import LightDocumentLDA, LightLDA, LightWordLDA
from schmp_estimators.lda.samplers.sparse import SparseLDA

#: Kernels are compiled for these tests alone.
pytestmark = pytest.mark.slow

#: Of samplers that go document by document, a program, and what it has beside its defaults.
SWEEPS = {
    "sparse": (SparseLDA, {}),
    "light, 1": (LightLDA, {"mh_steps": 1}),
    "light, 2": (LightLDA, {"mh_steps": 2}),
    "light-word, 16": (LightWordLDA, {"mh_steps": 16}),
    "light-document, 1": (LightDocumentLDA, {"mh_steps": 1}),
    # What the page on programs shows.
    "gibbs": (GibbsLDA, {}),
}


@pytest.mark.parametrize("corpus", TINY)
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_keeps_the_posterior(sweep, corpus):
    program, options = SWEEPS[sweep]
    assert_keeps_the_posterior(program, corpus, 100_000, **options)


@njit
def sweep_exactly(cell, key):
    sample_fplus(with_key(cell, key, cell.extra))


@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta"),
    [
        (2, [[2, 1], [0, 2], [1, 1]], (0.2, 1.5), 0.4),  # tail words
        (2, [[3, 1], [3, 1]], 0.2, 0.3),  # a head word of six tokens
        (3, [[6, 0]], 1.5, 0.5),  # one document, one word, an unused word
        (18, [[1, 0, 1]], tuple(0.02 * (1 + np.arange(18))), 0.3),  # a tree of two levels, mended topic by topic
    ],
)
def test_a_long_run_of_exact_sampling_has_the_posterior(n_components, counts, alpha, beta):
    alphas = np.array(alpha) if isinstance(alpha, tuple) else None
    program = FPlusLDA(n_components, len(counts[0]), float(np.mean(alpha)), beta, own_alphas=alphas)
    assert_long_run_has_the_posterior(program, sweep_exactly, np.array(counts, np.int32), n_samples=20_000)


@njit
def sweep_with_proposals(cell, key):
    level_ptr, long_document, n_steps, _, ends = cell.extra
    sample_hybrid(with_key(cell, key, Proposing(level_ptr, long_document, n_steps, mix(key + GAMMA), ends)))


@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta", "long_document", "n_steps"),
    [
        (3, [[2, 1], [0, 1], [1, 1]], 0.7, 0.4, 2, 2),  # a long document and two short ones
        (2, [[3, 1], [3, 1]], 0.2, 0.3, 0, 3),  # a head word
    ],
)
def test_a_long_run_of_proposals_has_the_posterior(n_components, counts, alpha, beta, long_document, n_steps):
    program = HybridLDA(n_components, len(counts[0]), alpha, beta, long_document=long_document, mh_steps=n_steps)
    assert_long_run_has_the_posterior(program, sweep_with_proposals, np.array(counts, np.int32), thin=25)


@pytest.mark.parametrize("cuts", CUTS[::3])
def test_the_sampler_of_the_user_guide_equals_its_oracle(cuts):
    counts, alphas = random_counts(5), np.array([0.1, 0.2, 0.7, 0.4])
    fixed, bounds, layout = old_rows(2, counts, 4), [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    result = fit(counts, 4, kind=GibbsLDA, cuts=cuts, fixed=fixed, doc_topic_prior=0.35, own_alphas=alphas)
    oracle = GibbsOracle(counts, 4, alphas, 0.1, 5, bounds, layout, fixed=fixed)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
