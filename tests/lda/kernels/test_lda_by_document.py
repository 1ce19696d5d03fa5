"""Samplers that go document by document: a sweep keeps the posterior, by enumeration."""

import pytest
from posterior import TINY, assert_keeps_the_posterior

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels import aliased, ftree, light, sparse
from schmp_estimators.lda.programs.aliased import AliasLDA
from schmp_estimators.lda.programs.light import LightLDA
from schmp_estimators.lda.programs.sparse import SparseLDA

#: A program, its kernel, and what that takes beside what all take, given the number of topics.
SWEEPS = {
    "sparse": (SparseLDA, sparse.sample_cell, lambda n_components: (freeze(ftree.level_offsets(n_components)),)),
    "light, 1": (LightLDA, light.sample_cell, lambda n_components: (1,)),
    "light, 2": (LightLDA, light.sample_cell, lambda n_components: (2,)),
    # With new tables for every token, and that only: its kernel takes 5 s to compile.
    "alias, 1": (AliasLDA, aliased.sample_cell, lambda n_components: (1, 2 * n_components, 1)),
    "alias, 2": (AliasLDA, aliased.sample_cell, lambda n_components: (2, 2 * n_components, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("n_samples", [20_000, 100_000])
@pytest.mark.parametrize("corpus", TINY)
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_keeps_the_posterior(sweep, corpus, n_samples):
    program, kernel, extra = SWEEPS[sweep]
    assert_keeps_the_posterior(program, kernel, extra, corpus, n_samples)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", TINY)
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_keeps_the_posterior_of_seeded_words(sweep, corpus):
    program, kernel, extra = SWEEPS[sweep]
    assert_keeps_the_posterior(program, kernel, extra, corpus, 100_000, has_seeds=True)
