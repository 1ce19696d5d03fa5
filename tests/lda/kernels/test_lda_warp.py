"""The sampler "warp": tokens that travel, and the tables from which it draws."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import CUTS, fit, old_rows, random_counts
from oracles.lda_warp import WarpOracle

from schmp_estimators.lda.kernels.document_priors import topic_priors
from schmp_estimators.lda.programs.warp import WarpLDA


class Travelling(WarpLDA):
    """Its tokens leave the process and come back, each shard's to addresses of their own."""

    def split(self, at, state):
        return pickle.loads(pickle.dumps(super().split(at, state)))

    def sample_words(self, at, pieces):
        return pickle.loads(pickle.dumps(super().sample_words(at, pieces)))


@pytest.mark.parametrize(
    ("n_components", "cuts"), [(7, CUTS[2]), (7, CUTS[3]), pytest.param(140_000, (6, 9), marks=pytest.mark.slow)]
)
def test_tokens_that_travel_have_the_topics_of_the_oracle(n_components, cuts):
    """Words of a block stay at home, and others travel; a shard may have no tokens."""
    counts = random_counts(4)
    fixed = old_rows(4, counts, n_components)
    result = fit(counts, n_components, kind=Travelling, cuts=cuts, fixed=fixed)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, 2, 5, fixed)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())


@settings(max_examples=30)
@given(
    st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=40)
    | st.lists(st.sampled_from([1e-3, 0.1, 0.1, 3.0]), min_size=1)
)
def test_the_table_draws_every_topic_as_often_as_the_prior_says(alphas):
    alpha, total, own, other = topic_priors(np.array(alphas))
    n = len(alphas)
    np.testing.assert_allclose(total, alpha.sum(dtype=float))
    chance = own.astype(float)
    np.add.at(chance, other, 2.0**32 - own.astype(float))
    np.testing.assert_allclose(chance / (n * 2.0**32), alpha / total, atol=1e-9)
