"""Columns of a path that nobody looks at: what is known of their gradients is a bound, whatever the data."""

import numpy as np
import pytest
from oracles.l1 import lasso_gap

from schmp_estimators import PrioritizedLassoCV
from schmp_estimators.linear.lasso_path import prioritized_lasso_path
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.programs import jobs, known
from schmp_estimators.linear.programs.known import Known
from schmp_estimators.linear.programs.model import Candidates, Model


class Case:
    """Columns, of which some are candidates, with their Gram matrix, and points that have coefficients among these."""

    def __init__(self, seed, scale=1.0, alike=0.0):
        self.rng = np.random.default_rng(seed)
        shared = self.rng.normal(size=(30, 1))
        self.X = scale * (alike * shared + self.rng.normal(size=(30, 200)) * 10.0 ** self.rng.uniform(-3, 1, 200))
        self.y = scale * self.rng.normal(size=30)
        self.columns = self.rng.permutation(200)[:12]

    def point(self, size=1.0):
        coef = np.zeros(200)
        coef[self.columns] = size * self.rng.normal(size=12) * (self.rng.random(12) < 0.7)
        return coef

    def gradient(self, coef):
        return self.X.T @ (self.y - self.X @ coef)

    def model(self, coef):
        residual, chosen = self.y - self.X @ coef, self.X[:, self.columns]
        candidates = Candidates()
        candidates.extend(self.columns, chosen.T @ chosen)
        return Model(
            L1(1.0), tolerance=1.0, max_iter=1, coef=coef, n_rows=30, norms=(self.X**2).sum(axis=0),
            energy=residual @ residual, candidates=candidates,
        )  # fmt: skip


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("alike", [0.0, 1e3])
@pytest.mark.parametrize("away", [0.0, 1e-9, 1e-3, 1.0])
def test_the_error_is_within_its_bound(scale, alike, away):
    """Points anywhere, and `away` from the line through the two that are known."""
    for seed in range(20):
        case = Case(seed, scale, alike)
        first, second = case.point(), case.point()
        coef = first + case.rng.normal() * (second - first) + away * case.point()
        both = Known()
        both.keep(second, case.gradient(second))
        both.keep(first, case.gradient(first))
        model = case.model(coef)
        near = both.near(model)
        error = np.abs(near.gradient - case.gradient(coef))
        assert (error <= near.error * np.sqrt(model.norms)).all()
        moved = np.linalg.norm(case.X @ (coef - first))
        assert near.error <= (1.0 + 1e-6) * moved + 1e-6 * np.sqrt(model.energy) + 1e-5 * moved
        if not away and not alike:
            assert near.error <= 1e-5 * (moved + np.sqrt(model.energy))  # on the line next to nothing is unknown


def test_nothing_is_known_without_points_or_outside_of_the_candidates():
    case = Case(0)
    one = Known()
    assert one.near(case.model(case.point())) is None
    outside = case.point()
    outside[np.setdiff1d(np.arange(200), case.columns)[0]] = 1.0
    one.keep(case.point(), np.zeros(200))
    assert one.near(case.model(outside)) is None
    one.keep(outside, np.zeros(200))
    assert one.near(case.model(case.point())) is None
    assert Known().near(Model(L1(1.0), tolerance=1.0, max_iter=1, coef=np.zeros(3))) is None


@pytest.fixture
def looks(monkeypatch):
    """Of each look at a point, on how many columns; None for all."""
    found, advance = [], jobs.Advance.__call__

    def watched(job, rows):
        found.append(None if job.scope is None else len(job.scope))
        return advance(job, rows)

    monkeypatch.setattr(jobs.Advance, "__call__", watched)
    return found


def wide(seed=0, n=60, p=3000):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.7 * rng.normal(size=(n, 1))
    return X, X[:, :8] @ rng.normal(size=8) + 0.5 * rng.normal(size=n)


@pytest.mark.parametrize(
    "given",
    [
        {},
        *[
            pytest.param(x, marks=pytest.mark.slow)
            for x in ({"positive": True}, {"l1_ratio": 0.7}, {"fit_intercept": False})
        ],
    ],
    ids=str,
)
def test_most_points_do_with_some_columns_and_are_what_they_are_with_all(given, looks, monkeypatch):
    X, y = wide()
    alphas, coefs, intercepts, gaps = prioritized_lasso_path(X, y, alphas=60, eps=0.05, tol=1e-6, **given)
    assert 2 <= looks.count(None) < 30
    assert max(gaps) <= 1e-6 * y.var()
    monkeypatch.setattr(known.Known, "near", lambda *_: None)
    looks.clear()
    _, every, levels, _ = prioritized_lasso_path(X, y, alphas=60, eps=0.05, tol=1e-6, **given)
    assert looks.count(None) >= 59
    assert coefs == pytest.approx(every, abs=2e-3) and intercepts == pytest.approx(levels, abs=2e-3)
    if "l1_ratio" not in given and "fit_intercept" not in given:
        for k in range(60):
            gap = lasso_gap(X, y, coefs[:, k], intercepts[k], alphas[k], positive="positive" in given)
            assert gap <= gaps[k] + 1e-9 * y.var()


@pytest.mark.slow
def test_weights_and_factors_and_held_out_errors(monkeypatch):
    X, y = wide(1)
    rng = np.random.default_rng(2)
    given = {"sample_weight": rng.uniform(0.1, 3.0, len(y)), "penalty_factors": rng.uniform(0.2, 2.0, X.shape[1])}
    few = prioritized_lasso_path(X, y, alphas=30, eps=0.1, tol=1e-8, **given)
    errors = PrioritizedLassoCV(alphas=20, eps=0.1, cv=3, tol=1e-8).fit(X, y).mse_path_
    monkeypatch.setattr(known.Known, "near", lambda *_: None)
    every = prioritized_lasso_path(X, y, alphas=30, eps=0.1, tol=1e-8, **given)
    assert few[1] == pytest.approx(every[1], abs=1e-4)
    assert errors == pytest.approx(PrioritizedLassoCV(alphas=20, eps=0.1, cv=3, tol=1e-8).fit(X, y).mse_path_, rel=1e-4)


def test_a_free_column_moves_unseen_so_all_columns_are_looked_at(looks):
    X, y = wide(3)
    factors = np.ones(X.shape[1])
    factors[5] = 0.0
    prioritized_lasso_path(X, y, alphas=20, eps=0.2, penalty_factors=factors)
    assert looks.count(None) >= 19


def test_products_that_cancel_are_no_bound():
    """Two columns that are all but the same, in place of each other, beside a residual that is far smaller."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        case, known_one, before, coef = Case(seed), Known(), np.zeros(200), np.zeros(200)
        case.X = rng.normal(size=(30, 200))
        case.X[:, 1] = case.X[:, 0] + 1e-9 * rng.normal(size=30)
        case.y, case.columns = 1e3 * case.X[:, 0] + 1e-6 * rng.normal(size=30), np.arange(12)
        before[0] = coef[1] = 1e3
        known_one.keep(before, case.gradient(before))
        model = case.model(coef)
        near = known_one.near(model)
        assert (np.abs(near.gradient - case.gradient(coef)) <= near.error * np.sqrt(model.norms)).all()


def test_all_columns_are_looked_at_where_some_in_doubt_violate_their_condition(looks, monkeypatch):
    X, y = wide(4)
    _, expected, *_ = prioritized_lasso_path(X, y, alphas=60, eps=0.05, tol=1e-6)
    guess = Model.guess_scope

    def of_the_support(model, columns, goal):
        support = columns[model.coef[columns] != 0.0]
        guess(model, support if len(support) else columns, goal)

    monkeypatch.setattr(Model, "guess_scope", of_the_support)
    looks.clear()
    _, coefs, *_ = prioritized_lasso_path(X, y, alphas=60, eps=0.05, tol=1e-6)
    grown = np.count_nonzero(np.diff((coefs != 0.0).sum(axis=0)) > 0)
    assert looks.count(None) >= grown > 20
    assert coefs == pytest.approx(expected, abs=2e-3)
