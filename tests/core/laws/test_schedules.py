"""What dynamic schedules promise: draws and correlations, against their laws and NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    PrioritySampler,
    RandomSampler,
    RoundRobin,
    independent_set,
)
from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.rounds import Round, ScheduledLasso, _correlations

NONE = np.empty(0, np.int64)


@pytest.mark.parametrize("told", ["refresh", "record"])
def test_draws_follow_the_squares_of_the_changes_mixed_with_a_tenth_of_uniform(told):
    changes = np.array([0.0, 0.5, -1.0, 2.0, 3.0])
    sampler = PrioritySampler(5, np.random.default_rng(0))
    if told == "refresh":
        sampler.refresh(changes)
    else:
        sampler.record(np.arange(5), changes)
    np.testing.assert_array_equal(sampler.priorities, changes**2)
    drawn = np.concatenate([sampler.draw(1, NONE) for _ in range(3_000)])
    expected = 0.9 * changes**2 / np.sum(changes**2) + 0.1 / 5
    assert chisquare(np.bincount(drawn, minlength=5), 3_000 * expected).pvalue > 1e-3


def test_conflicts_have_either_sign():
    apart = np.array([[1.0, -0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert independent_set(apart, 0.5, 3).tolist() == [0, 2]
    in_flight = np.array([[0.0, 0.1], [-0.9, 0.0], [0.2, 0.7]])  # with two that are under way: each may forbid
    assert independent_set(np.eye(3), 0.5, 3, in_flight).tolist() == [0]
    for most in (1, 2, 3):
        assert len(independent_set(np.eye(4), 0.5, most)) == most


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("n_partitions", [1, 3])
def test_correlations_are_those_of_weighted_columns_less_their_means(form, weighted, n_partitions):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 8)) + 3.0) * (rng.random((60, 8)) < 0.7)
    X[:, 7] = 2.0  # correlates with nothing
    weights = rng.random(60) + 0.1 if weighted else np.empty(0)
    check = Check(np.array([1, 4, 7]), np.array([0, 2, 6]))
    model = Model(penalty=L1(1.0), tolerance=1.0, max_iter=1)
    rows = split_rows(form(X), np.zeros(60), weights, n_partitions)
    job = Round(NONE, np.empty(0), 0.0, NONE, check, np.empty(0), None)
    products = sum(job(one)[1][2] for one in rows)
    moments = [one.matrix.moments(one.weights, np.zeros(one.matrix.n_rows)) for one in rows]
    total = weights.sum() if weighted else 60.0
    model.set_moments(total, sum(one[0] for one in moments), sum(one[1] for one in moments))
    both = [1, 4, 7, 0, 2, 6]
    expected = np.zeros((3, 6))
    known = [both.index(column) for column in both if column != 7]
    with np.errstate(invalid="ignore", divide="ignore"):
        full = np.corrcoef(X[:, both].T, rowvar=True) if not weighted else _weighted_correlation(X[:, both], weights)
    expected[np.ix_([0, 1], known)] = full[np.ix_([0, 1], known)]
    np.testing.assert_allclose(_correlations(model, check, products), expected, atol=1e-12)


def _weighted_correlation(X, weights):
    covariance = np.cov(X.T, aweights=weights)
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def test_columns_with_large_means_are_no_conflict(monkeypatch):
    """Uncentred, any two of these columns have a correlation of nearly one, and a round would have one parameter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 40)) + 30.0
    y = X @ rng.normal(size=40) + rng.normal(size=500)
    options = {"schedule": "priority", "n_parallel": 8, "random_state": 0, "tol": 1e-6, "max_iter": 2000}
    chosen = []

    def note(self, *arguments):
        job = begin(self, *arguments)
        chosen.extend([] if job is None else [len(job.columns)])
        return job

    begin = ScheduledLasso.schedule
    monkeypatch.setattr(ScheduledLasso, "schedule", note)
    PrioritizedLasso(0.1, max_correlation=0.2, **options).fit(X, y)
    assert np.mean(chosen[2:]) > 4


@given(seed=st.integers(0, 1000), threshold=st.floats(0.05, 0.9), most=st.integers(1, 20))
def test_independent_sets_are_independent_and_start_with_the_most_urgent(seed, threshold, most):
    rng = np.random.default_rng(seed)
    correlations = np.corrcoef(rng.normal(size=(20, 10)))
    chosen = independent_set(correlations, threshold, most)
    assert chosen[0] == 0 and len(chosen) <= most
    between = np.abs(correlations[np.ix_(chosen, chosen)] - np.eye(len(chosen)))
    assert between.max() <= threshold + 1e-12
    guarded = independent_set(correlations, threshold, most, correlations[:, :1])
    assert not len(guarded) or np.abs(correlations[guarded, 0]).max() <= threshold


@given(seed=st.integers(0, 1000), count=st.integers(1, 30))
def test_samplers_draw_distinct_parameters_that_are_not_excluded(seed, count):
    random, excluded = np.random.default_rng(seed), np.array([0, 5])
    for sampler in (PrioritySampler(30, random), RandomSampler(30, random), RoundRobin(30)):
        drawn = sampler.draw(count, excluded)
        assert len(set(drawn.tolist())) == len(drawn) <= count
        assert not set(drawn.tolist()) & {0, 5}


def test_priorities_are_followed_but_nobody_is_left_out():
    sampler = PrioritySampler(100, np.random.default_rng(0), uniform_part=0.1)
    changes = np.zeros(100)
    changes[7] = 1.0
    sampler.refresh(changes)
    drawn = [sampler.draw(10, np.empty(0, int)) for _ in range(500)]
    assert all(columns[0] == 7 for columns in drawn if 7 in columns)
    assert sum(7 in columns for columns in drawn) > 490
    assert len(set(np.concatenate(drawn).tolist())) == 100


def test_draws_come_in_their_own_order_so_that_no_column_has_an_advantage():
    none, random = np.empty(0, int), np.random.default_rng(0)
    first = {"random": RandomSampler(1000, random), "priority": PrioritySampler(1000, random, uniform_part=1.0)}
    for sampler in first.values():
        leaders = [int(sampler.draw(50, none)[0]) for _ in range(200)]
        assert 300 < np.mean(leaders) < 700
    turns = RoundRobin(5)
    assert turns.draw(4, none).tolist() == [0, 1, 2, 3]
    assert turns.draw(4, np.array([0])).tolist() == [4, 1, 2]
