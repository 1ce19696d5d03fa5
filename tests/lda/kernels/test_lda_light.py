"""The sampler with proposals of words and documents: its posterior by enumeration, its oracle, and its laws."""

from itertools import product

import numpy as np
import pytest
from by_document import (
    CUTS,
    assert_counts_are_conserved,
    assert_equals_oracle,
    assert_keeps_the_posterior,
    assert_restart_continues,
    each_case,
    fit,
    old_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import random_counts
from oracles.lda_by_document import LightOracle

from schmp_estimators.lda.kernels.light import sample_cell
from schmp_estimators.lda.programs import topics
from schmp_estimators.lda.programs.light import LightLDA


@pytest.mark.parametrize("mh_steps", [pytest.param(1, marks=pytest.mark.slow), 2])
@each_case(fast=["tails", "a head word with earlier counts"])
def test_a_sweep_keeps_the_posterior(case, n_samples, mh_steps):
    assert_keeps_the_posterior(LightLDA, sample_cell, (mh_steps,), case, n_samples)


@pytest.mark.parametrize(
    ("n_components", "cuts"), [*product([1, 3, 20, 300], CUTS), pytest.param(40_000, CUTS[2], marks=pytest.mark.slow)]
)
def test_equals_oracle(n_components, cuts):
    assert_equals_oracle(LightLDA, LightOracle, random_counts(n_components), n_components, cuts=cuts)


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 5, 60])
def test_equals_oracle_with_fixed_rows(n_components, cuts):
    counts = random_counts(3)
    assert_equals_oracle(
        LightLDA, LightOracle, counts, n_components, cuts=cuts, fixed=old_rows(4, counts, n_components)
    )


@pytest.mark.parametrize("mh_steps", [1, 4])
def test_equals_oracle_with_other_numbers_of_proposals(mh_steps):
    counts = random_counts(15, 30, 6, 6.0)
    assert_equals_oracle(LightLDA, LightOracle, counts, 20, cuts=(10, 20), mh_steps=mh_steps)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 4, 30, 3000]),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
)
def test_counts_are_conserved(seed, n_components, cuts):
    assert_counts_are_conserved(LightLDA, random_counts(seed), n_components, cuts)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 4, 30, 3000]),
    cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted),
    stop=st.integers(1, 4),
    with_fixed=st.booleans(),
)
def test_restart_continues_as_if_uninterrupted(seed, n_components, cuts, stop, with_fixed):
    assert_restart_continues(LightLDA, seed, n_components, cuts, stop, with_fixed)


@pytest.mark.slow  # a compilation of its own
def test_same_bits_in_16_and_32_bits(monkeypatch):
    counts = random_counts(14, 60, 30)
    narrow = fit(LightLDA, counts, 9, cuts=(20, 40))
    monkeypatch.setattr(topics, "topic_dtype", lambda n_components: np.int32)
    wide = fit(LightLDA, counts, 9, cuts=(20, 40))
    assert narrow.topics[0].dtype == np.int16
    assert wide.topics[0].dtype == np.int32
    np.testing.assert_array_equal(narrow.topics, wide.topics)


@pytest.mark.parametrize("priors", [(1e-30, 1e-30), (1e-30, 1e30), (1e30, 1e-30), (1e30, 1e30)])
def test_extreme_priors(priors):
    counts = random_counts(7)
    result = fit(LightLDA, counts, 5, doc_topic_prior=priors[0], topic_word_prior=priors[1])
    assert result.records[-1]["moved"] >= 0


@pytest.mark.parametrize("shape", [(1, 5), (3, 1), (4, 6)])
def test_corpora_with_little_in_them(shape):
    counts = np.zeros(shape, np.int32)
    assert fit(LightLDA, counts, 3).topics[-1].size == 0
    assert fit(LightLDA, counts, 3, cuts=(1,)).topics[-1].size == 0
    counts[0, 0] = 1
    assert fit(LightLDA, counts, 3).topics[-1].size == 1
