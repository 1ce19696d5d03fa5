"""Samplers keep the posterior of topics, by enumeration of all assignments.

The sampler of the user guide does, too.
"""

import numpy as np
import pytest
from lda_cases import CUTS, fit, make_shards, old_rows, random_counts
from oracles.lda_cells import GibbsOracle
from pages import example
from posterior import TINY, assert_keeps_the_posterior

from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.lda.samplers.hybrid import HybridLDA
from schmp_estimators.lda.samplers.light import LightLDA
from schmp_estimators.lda.samplers.light_document import LightDocumentLDA
from schmp_estimators.lda.samplers.light_word import LightWordLDA
from schmp_estimators.lda.samplers.sparse import SparseLDA

#: What the page on samplers shows.
Gibbs = example("plot_your_own_sampler").Gibbs

#: Kernels are compiled for these tests alone.
pytestmark = pytest.mark.slow

#: Of samplers that keep the posterior to the letter, a program, and what it has beside its
#: defaults.
SWEEPS = {
    "sparse": (SparseLDA, {}),
    "light, 1": (LightLDA, {"mh_steps": 1}),
    "light, 2": (LightLDA, {"mh_steps": 2}),
    "light-word, 16": (LightWordLDA, {"mh_steps": 16}),
    "light-document, 1": (LightDocumentLDA, {"mh_steps": 1}),
    "fplus": (FPlusLDA, {}),
    "hybrid": (HybridLDA, {"long_document": 1}),
    "hybrid, 3": (HybridLDA, {"long_document": 1, "mh_steps": "acceptance", "before": (5, 2)}),
    "gibbs": (Gibbs, {}),
}


@pytest.mark.parametrize("corpus", TINY)
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_keeps_the_posterior(sweep, corpus):
    program, options = SWEEPS[sweep]
    assert_keeps_the_posterior(program, corpus, 20_000, **options)


@pytest.mark.parametrize("cuts", CUTS[::3])
def test_the_sampler_of_the_user_guide_equals_its_oracle(cuts):
    counts, alphas = random_counts(5), np.array([0.1, 0.2, 0.7, 0.4])
    seeds, bounds, layout = (
        old_rows(2, counts, 4),
        [0, *cuts, len(counts)],
        make_shards(counts, cuts)[1],
    )
    result = fit(
        counts, 4, kind=Gibbs, cuts=cuts, seeds=seeds, doc_topic_prior=0.35, own_alphas=alphas
    )
    oracle = GibbsOracle(counts, 4, alphas, 0.1, 5, bounds, layout, seeds=seeds)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
