"""What topic programs share between their shards, and what follows from the size of a corpus or from its history."""

import inspect
import math
import re
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from corpora import SMALL
from lda_cases import fit, random_counts

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.data import partition
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.samplers import SAMPLERS

N_TOPICS, N_WORDS = 4, 9


@pytest.mark.parametrize("cuts", [(), (5,), (3, 8)])
@pytest.mark.parametrize("with_earlier", [False, True])
def test_shared_totals_are_those_of_all_tokens_and_of_earlier_batches(cuts, with_earlier):
    counts = random_counts(1)
    earlier = np.random.default_rng(0).integers(0, 5, (N_WORDS, N_TOPICS)) if with_earlier else None
    found = fit(counts, N_TOPICS, cuts=cuts, fixed=earlier)
    expected = np.bincount(found.topics[-1], minlength=N_TOPICS)
    if earlier is not None:
        expected = expected + earlier.sum(axis=0)
    np.testing.assert_array_equal(found.model.topic_total, expected)


def test_after_a_tempered_start_denominators_have_the_prior_asked_for():
    start = {"hot_priors": (1.5, 1.0)} | ({"hot_sweeps": 30} if hasattr(WarpLDA, "hot_sweeps") else {})
    for n_sweeps, prior in ((3, 1.0), (32, 0.1)):
        found = fit(random_counts(2), N_TOPICS, n_sweeps=n_sweeps, evaluate_every=0, **start)
        expected = 1.0 / (found.model.topic_total + N_WORDS * np.float64(np.float32(prior)))
        program = WarpLDA(N_TOPICS, N_WORDS, 0.3, 0.1, **start)
        inverse = program._inverse(SimpleNamespace(sweep=n_sweeps, model=found.model))
        np.testing.assert_array_equal(inverse, expected.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_shards_of_the_exact_sampler_follow_from_the_corpus_alone(monkeypatch, n_jobs):
    monkeypatch.setattr(partition, "TOKENS_PER_CELL", 10)
    suitable = math.isqrt(int(SMALL.sum()) // 10)
    assert 2 <= suitable <= min(SMALL.shape)
    options = {"n_components": 3, "max_iter": 2, "random_state": 0, "n_jobs": n_jobs}
    assert DistributedLDA(sampler="fplus", **options).fit(SMALL).n_shards_ == suitable
    assert DistributedLDA(sampler="warp", **options).fit(SMALL).n_shards_ == 1


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e9])
def test_a_fit_has_converged_when_the_last_two_evaluations_hardly_differ(size):
    estimator = DistributedLDA(tol=0.01, doc_topic_prior=0.1, topic_word_prior=0.1)
    priors = {"doc_topic_prior": 0.1, "topic_word_prior": 0.1}
    for values, converged in (
        ([-3.0], False),
        ([-3.0, -2.0], False),
        ([-2.01, -2.0], True),
        ([-2.0, -2.01], True),
        ([-3.0, -2.01, -2.0], True),
        ([-2.01, -2.0, -1.0], False),
        ([-2.04, -2.0], False),
    ):
        estimator.history_ = [{"log_likelihood": value * size, **priors} for value in values]
        assert estimator._has_converged() == converged
        estimator.history_.append({"moved": 1, **priors})  # not evaluated: nothing new is known
        assert not estimator._has_converged()
    estimator.set_params(tol=0.0).history_ = [{"log_likelihood": -2.0, **priors}] * 2
    assert not estimator._has_converged()


@pytest.mark.parametrize("program", SAMPLERS.values())
def test_programs_say_what_all_their_parameters_are(program):
    _, _, parameters = inspect.getdoc(program).partition("Parameters\n----------\n")
    assert {field.name for field in fields(program)} <= set(re.findall(r"\w+", parameters))
