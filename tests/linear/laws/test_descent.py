"""Descent on the columns of a dense X with many rows: the same solutions as on Gram matrices, in any form of X."""

import numpy as np
import pytest

from schmp_estimators import PrioritizedLasso
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.descent import descent_pass
from schmp_estimators.linear.penalties.elastic_net import ElasticNet
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.programs import descent, smooth_jobs
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.jobs import RowPartition


@pytest.fixture
def many_rows(monkeypatch):
    """Let small problems take the way of large ones; returns X, y and what the descents have found."""
    monkeypatch.setattr(descent, "_MUCH", 1)
    monkeypatch.setattr(descent, "_EXPECTED", 0.5)
    monkeypatch.setattr(descent, "_PASS", 0.1)
    found, descend = [], descent.Descend.__call__

    def watched(job, rows):
        answer = descend(job, rows)
        found.append(answer[1])
        return answer

    monkeypatch.setattr(descent.Descend, "__call__", watched)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(301, 25)) + 0.2 * rng.normal(size=(301, 1)) + 3.0
    return X, X[:, :9] @ rng.normal(size=9) + rng.normal(size=301), found


def objective(X, y, weights, model, alpha, factors=1.0):
    """Return the objective, with weights that are rescaled to add up to n."""
    weights = weights * len(y) / weights.sum()
    residual = y - X @ model.coef_ - model.intercept_
    return weights @ residual**2 / (2 * len(y)) + alpha * (factors * np.abs(model.coef_)).sum()


FORMS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "neither": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float32": lambda X: np.asfortranarray(X, np.float32),
    "int8": lambda X: np.asfortranarray(np.rint(X), np.int8),
}


@pytest.mark.covering
@pytest.mark.parametrize(
    "form", [f if f in ("rows", "columns") else pytest.param(f, marks=pytest.mark.slow) for f in FORMS]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_descent_finds_the_solution_of_the_gram_matrix(many_rows, monkeypatch, form, weighted, intercept):
    X, y, found = many_rows
    X = FORMS[form](X if intercept else X - 3.0)
    weights = np.random.default_rng(1).uniform(0.1, 2.0, len(y)) if weighted else np.ones(len(y))
    given = {"sample_weight": weights} if weighted else {}
    model = PrioritizedLasso(0.02, tol=1e-9, fit_intercept=intercept).fit(X, y, **given)
    assert found and found[0].arrived
    monkeypatch.setattr(descent, "_MUCH", 1 << 40)
    other = PrioritizedLasso(0.02, tol=1e-9, fit_intercept=intercept).fit(X, y, **given)
    here, there = (objective(X.astype(float), y, weights, each, 0.02) for each in (model, other))
    assert here == pytest.approx(there, rel=1e-7 if form == "float32" else 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("order", "FC")
def test_units_do_not_matter(many_rows, scale, order):
    X, y, _ = many_rows
    units = np.where(np.arange(X.shape[1]) % 2, 1.0, scale)
    units[5] = 0.0
    factors = np.abs(units) * 1.0
    factors[5] = 1.0
    scaled = np.array(X * units, order=order)
    plain = np.array(X * (units != 0.0), order=order)
    want = PrioritizedLasso(0.02, tol=1e-10).fit(plain, y).coef_
    got = PrioritizedLasso(0.02, tol=1e-10, penalty_factors=factors).fit(scaled, y).coef_
    assert got * np.where(units, units, 1.0) == pytest.approx(want, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_positive_unpenalised_warm_and_exact(many_rows):
    X, y, found = many_rows
    X = np.asfortranarray(X)
    model = PrioritizedLasso(0.02, tol=1e-9, positive=True).fit(X, y)
    assert model.coef_.min() >= 0.0 and model.dual_gap_ <= 1e-9 * y.var()
    factors = np.ones(X.shape[1])
    factors[:2] = 0.0
    model = PrioritizedLasso(0.02, tol=1e-9, penalty_factors=factors).fit(X, y)
    residual = y - model.predict(X)
    assert np.abs((X - X.mean(axis=0))[:, :2].T @ residual).max() < 1e-5
    warm = PrioritizedLasso(0.05, tol=1e-9, warm_start=True).fit(X, y).set_params(alpha=0.02).fit(X, y)
    assert warm.coef_ == pytest.approx(PrioritizedLasso(0.02, tol=1e-9).fit(X, y).coef_, abs=1e-4)
    exact = PrioritizedLasso(1e-9, tol=1e-9).fit(X, X[:, 0])
    assert exact.coef_[0] == pytest.approx(1.0, abs=1e-4)
    assert len(found) >= 4


def test_slow_descent_is_left_for_the_gram_matrix(many_rows, monkeypatch):
    X, y, found = many_rows
    monkeypatch.setattr(descent, "_PASS", 1e4)
    monkeypatch.setattr(descent, "_EXPECTED", 1e-9)
    near = np.asfortranarray(X[:, :1] + 1e-3 * (X - X.mean(axis=0)))
    model = PrioritizedLasso(1e-4, tol=1e-9).fit(near, y)
    assert [one.arrived for one in found] == [False]
    assert model.dual_gap_ <= 1e-9 * y.var()


@pytest.mark.parametrize("penalty", [L1(3.0), ElasticNet(2.0, 1.5)])
@pytest.mark.parametrize("count", [4, 7])
def test_a_pass_moves_residual_and_coefficients_together(penalty, count):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, count)) + 5.0
    centred = X - X.mean(axis=0)
    y = rng.normal(size=50)
    y -= y.mean()
    coef, gradient, residual = np.zeros(count), np.zeros(count), y.copy()
    every, norms = np.arange(count), (centred**2).sum(axis=0)
    sizes = freeze(np.ones(count)), freeze(X.mean(axis=0)), freeze(norms)
    for _ in range(300):
        arguments = (coef, gradient, residual, freeze(penalty))
        descent_pass(freeze(np.ascontiguousarray(X.T)), freeze(every), freeze(every), *sizes, *arguments)
    assert residual == pytest.approx(y - centred @ coef, abs=1e-10)
    slope = centred.T @ residual - penalty.tilt(coef)
    assert gradient == pytest.approx(centred.T @ residual, abs=1e-8)
    assert slope[coef != 0] == pytest.approx(penalty.strengths * np.sign(coef[coef != 0]), abs=1e-8)
    assert (np.abs(slope[coef == 0]) <= penalty.strengths + 1e-8).all()


@pytest.mark.parametrize("order", "CF")
def test_pieces_of_rows_have_the_products_of_all(order):
    rng = np.random.default_rng(3)
    X, weights, means = np.array(rng.normal(size=(2500, 6)), order=order), rng.random(2500), rng.normal(size=6)
    [rows] = split_rows(X, np.zeros(2500), np.empty(0), 1)
    for columns in (np.arange(6), np.array([1, 4])):
        gram, sums = smooth_jobs._products_by_rows(rows.matrix, columns, means[columns], weights)
        taken = (X - means)[:, columns]
        assert gram == pytest.approx((taken * weights[:, None]).T @ taken)
        assert sums == pytest.approx(weights @ taken)


def test_derivatives_are_remembered_for_the_point_where_they_hold():
    class Counting:
        smoothness, certified, asked = 0.25, True, 0

        def derivatives(self, decision, target, weights, intercept):
            self.asked += 1
            return self.asked

    loss = Counting()
    rows = RowPartition(None, np.zeros(3), np.empty(0), np.zeros(3))
    rows, first = smooth_jobs.derive(loss, rows, 0.0)
    rows, again = smooth_jobs.derive(loss, rows, 0.0)
    assert (first, again) == (1, 1)
    for moved in (rows._replace(state=rows.state.copy()), rows._replace(target=rows.target.copy())):
        assert smooth_jobs.derive(loss, moved, 0.0)[1] > 1
    assert smooth_jobs.derive(loss, rows, 0.5)[1] == 4
