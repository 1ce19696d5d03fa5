"""What dynamic schedules promise: draws, guards and correlations, against enumeration and NumPy."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators.core.engine.dynamic import run_coroutine
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    DynamicRegressionSchedule,
    PrioritySampler,
    independent_set,
)
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.rounds import Round, ScheduledLasso, _correlations, schedule_maker

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
    drawn = np.concatenate([sampler.draw(1, NONE) for _ in range(10_000)])
    expected = 0.9 * changes**2 / np.sum(changes**2) + 0.1 / 5
    assert chisquare(np.bincount(drawn, minlength=5), 10_000 * expected).pvalue > 1e-3


def test_the_most_urgent_of_a_draw_comes_first():
    sampler = PrioritySampler(6, np.random.default_rng(0), uniform_part=1.0)
    sampler.refresh(np.array([3.0, 1.0, 2.0, 5.0, 0.0, 4.0]))
    for _ in range(20):
        drawn = sampler.draw(6, NONE)
        assert (np.diff(sampler.priorities[drawn]) <= 0).all()


def test_conflicts_have_either_sign():
    apart = np.array([[1.0, -0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert independent_set(apart, 0.5, 3).tolist() == [0, 2]
    in_flight = np.array([[0.0, 0.1], [-0.9, 0.0], [0.2, 0.7]])  # with two that are under way: each may forbid
    assert independent_set(np.eye(3), 0.5, 3, in_flight).tolist() == [0]
    for most in (1, 2, 3):
        assert len(independent_set(np.eye(4), 0.5, most)) == most


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5])
def test_a_rotation_hands_each_block_to_the_shard_before(n_shards):
    order = schedule_rotation(n_shards)
    for now, then in pairwise(order):
        for shard, block in enumerate(now):
            assert then[(shard - 1) % n_shards] == block


class InTurn:
    """Draws what comes next in a list, less what is excluded; notes what was."""

    def __init__(self, numbers):
        self.numbers, self.excluded = list(numbers), []

    def draw(self, count, excluded):
        self.excluded.append(set(excluded.tolist()))
        left = [number for number in self.numbers if number not in self.excluded[-1]][:count]
        self.numbers = [number for number in self.numbers if number not in left] + left
        return np.array(left, np.int64)

    def put_back(self, parameters):
        pass


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rounds_in_flight_are_guarded_against_each_other(depth):
    """Every pair 2i, 2i + 1 of columns is correlated: no two of a pair may be under way at a time."""
    correlation = np.kron(np.eye(6), np.array([[1.0, -0.8], [-0.8, 1.0]]))
    schedule = DynamicRegressionSchedule(InTurn(range(12)), 2, 0.5, pipeline_depth=depth)
    under_way, checks, n_chosen = [], [], 0
    for _ in range(30):
        while len(under_way) < depth:
            chosen, check = schedule.next_round()
            flying = np.concatenate([NONE, *under_way]).tolist()
            assert not set(check.candidates.tolist()) & {*flying, *chosen.tolist()}
            assert set(flying) | set(chosen.tolist()) <= set(check.others.tolist())
            pairs = [column // 2 for column in (*flying, *chosen.tolist())]
            assert len(set(pairs)) == len(pairs)
            under_way.append(chosen)
            checks.append(check)
            n_chosen += len(chosen)
        check = checks.pop(0)
        schedule.answer(check, correlation[np.ix_(check.candidates, np.concatenate([check.candidates, check.others]))])
        under_way.pop(0)
    assert n_chosen >= 20


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


def test_a_largest_correlation_of_one_means_no_check():
    for value, checked in ((None, True), (0.3, True), (1.0, False)):
        assert (schedule_maker("priority", 2, value, 0)(10).max_correlation is not None) == checked
    assert schedule_maker("random", 2, None, 0)(10).max_correlation is None


def test_a_fit_that_diverges_ends_at_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 1)) + 0.01 * rng.normal(size=(50, 40))
    with pytest.warns(ConvergenceWarning):
        fitted = PrioritizedLasso(1e-4, schedule="random", n_parallel=40, max_iter=10_000, random_state=0).fit(
            X, X[:, 0]
        )
    assert len(fitted.history_) < 10
    assert np.isfinite(fitted.coef_).all()


def test_after_a_round_priorities_are_the_squares_of_the_changes_just_made():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 30))
    y = X @ np.arange(1.0, 31.0)
    model = Model(L1(0.1 * 60), tolerance=1e-3, max_iter=100, n_rows=60)
    program = ScheduledLasso(model, schedule_maker("priority", 3, None, 0))
    end, n_seen = program.aggregate, 0

    def check(model, job, partials):
        nonlocal n_seen
        before = model.coef.copy()
        end(model, job, partials)
        change = model.coef - before
        np.testing.assert_allclose(program.rounds.schedule.sampler.priorities[job.columns], change[job.columns] ** 2)
        n_seen += np.count_nonzero(change)

    program.aggregate = check
    run_coroutine(program, Rounds(Place(), split_rows(X, y, np.empty(0), 1)))
    assert n_seen > 30
