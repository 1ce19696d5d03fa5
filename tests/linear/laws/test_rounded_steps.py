"""Newton steps of dense logistic fits by descent on rounded columns: the optimum, honest ends, certified fits."""

import numpy as np
import pytest
from scipy.special import expit, xlogy

from schmp_estimators import SparseLogisticRegression
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.input import as_matrix
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.smooth_point import Descend

N_ROWS, N_COLUMNS = 250, 320


@pytest.fixture(autouse=True)
def by_rounds(monkeypatch):
    """Let small problems go by rounds, too, where the steps are that are tested."""
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)


@pytest.fixture(scope="module")
def data():
    """Return columns with means, of different sizes, and labels that depend on some of them."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(N_ROWS, N_COLUMNS)) + rng.normal(size=N_COLUMNS)) * np.exp(rng.normal(size=N_COLUMNS))
    score = (X[:, :25] - X[:, :25].mean(axis=0)) @ (rng.normal(size=25) / X[:, :25].std(axis=0))
    return X, np.where(score + rng.normal(size=N_ROWS) > 0.0, 1, 0)


def descend(X, y, coef, level, *, weights, centred, goal=1e-3):
    """Return what steps from a point come to, and how many columns they visit."""
    labels = np.where(y == 1, 1.0, -1.0)
    means = np.average(X, axis=0, weights=weights) if centred else np.zeros(X.shape[1])
    slope = weights * labels * expit(-labels * (X @ coef + level))
    gradient = (X - means).T @ slope
    lengths, columns = np.sqrt(((X - means) ** 2).sum(axis=0)), np.arange(X.shape[1])
    rows = RowPartition(as_matrix(X), labels, weights, X @ coef)
    point = coef, gradient, level, L1(1.5), centred
    found, end = Descend(Logistic(), columns, means, lengths, *point, goal)(rows)[1]
    return found, end


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("start", [0.0, 0.05])
def test_steps_arrive_at_an_optimal_point(data, start, centred):
    X, y = data[0][:, :60], data[1]
    X = X if centred else X - X.mean(axis=0)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, N_ROWS)
    coef = start * np.random.default_rng(2).normal(size=60) / X.std(axis=0)
    labels = np.where(y == 1, 1.0, -1.0)
    level = -float(X.mean(axis=0) @ coef)
    if centred:  # the intercept of the start is the best one, as it is after each certificate
        for _ in range(50):
            wrong = expit(-labels * (X @ coef + level))
            level += (weights * labels * wrong).sum() / (weights * wrong * (1.0 - wrong)).sum()
    found, end = descend(X, y, coef, level if centred else 0.0, weights=weights, centred=centred)
    assert end.arrived
    assert not end.hard
    decision = X @ found + end.level
    wrong = expit(-labels * decision)
    point = wrong * min(1.0, 1.5 / np.abs((X - X.mean(axis=0)).T @ (weights * labels * wrong)).max())
    dual = -(weights * (xlogy(point, point) + xlogy(1.0 - point, 1.0 - point))).sum()
    primal = weights @ np.logaddexp(0.0, -labels * decision) + 1.5 * np.abs(found).sum()
    assert 0.0 <= primal - dual <= 2e-3
    assert 5 < np.count_nonzero(found) < 60
    assert end.visited < 6000
    if centred:
        assert abs((weights * labels * wrong).sum()) < 1e-4
        assert end.level != level


def watched(monkeypatch):
    """Return what all descents come to from now on."""
    ends, call = [], Descend.__call__

    def watch(self, rows):
        rows, end = call(self, rows)
        ends.append(end[1])
        return rows, end

    monkeypatch.setattr(Descend, "__call__", watch)
    return ends


def assert_optimal(fit, X, y, weights, scale):
    """Check the optimality conditions of `fit`, to a part of the penalty."""
    coef = fit.coef_.ravel().astype(float)
    slope = weights * np.where(y == 1, 1.0, -1.0) * expit(-np.where(y == 1, 1.0, -1.0) * (X @ coef + fit.intercept_))
    gradient, support = scale * (X.T @ slope), coef != 0.0
    assert 10 < np.count_nonzero(support) < N_COLUMNS
    np.testing.assert_allclose(gradient[support], np.sign(coef[support]), atol=1e-3)
    assert np.abs(gradient).max() <= 1.0 + 1e-3
    if fit.fit_intercept:
        assert abs(slope.sum()) < 1e-6


@pytest.mark.parametrize("intercept", [False, True])
def test_fits_are_optimal(monkeypatch, data, intercept):
    X, y = data
    X = X if intercept else np.asfortranarray(X - X.mean(axis=0))  # by rows, and by columns
    weights = np.random.default_rng(1).uniform(0.2, 2.0, N_ROWS)
    ends = watched(monkeypatch)
    fit = SparseLogisticRegression(C=0.3, fit_intercept=intercept, tol=1e-10).fit(X, y, sample_weight=weights)
    assert any(end.arrived for end in ends)
    assert 0.0 <= fit.dual_gap_[0] <= 1e-10 * 0.3 * weights.sum() * np.log(2)
    assert_optimal(fit, X, y, weights, 0.3)


@pytest.mark.parametrize("scale", [1e-5, 1e40])
def test_units_of_columns_and_weights_do_not_matter(monkeypatch, data, scale):
    X, y = data[0] - data[0].mean(axis=0), data[1]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, N_ROWS)
    ends = watched(monkeypatch)
    fit = SparseLogisticRegression(C=0.3, fit_intercept=False, tol=1e-10).fit(X, y, sample_weight=weights)
    plain = len(ends)
    other = SparseLogisticRegression(C=0.3 / scale, fit_intercept=False, tol=1e-10)
    other.fit(X / scale, y, sample_weight=weights * scale * scale)
    assert any(end.arrived for end in ends[plain:])
    np.testing.assert_allclose(other.coef_ / scale, fit.coef_, rtol=1e-4, atol=1e-5)


def test_columns_that_depend_on_each_other_are_left_to_other_steps(monkeypatch, data):
    X, y = data
    rng = np.random.default_rng(2)
    X = np.repeat(X[:, :10], 32, axis=1) * (1.0 + 1e-3 * rng.normal(size=(N_ROWS, N_COLUMNS)))
    ends = watched(monkeypatch)
    fit = SparseLogisticRegression(C=10.0, tol=1e-8).fit(X, y)
    assert any(end.hard or not end.arrived for end in ends)
    assert fit.dual_gap_[0] <= 1e-8 * 10.0 * N_ROWS * np.log(2)
