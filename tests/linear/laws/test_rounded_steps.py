"""Newton steps of dense logistic fits by descent on rounded columns: the optimum, honest ends, certified fits."""

import numpy as np
import pytest
from scipy.special import expit

from schmp_estimators import SparseLogisticRegression
from schmp_estimators.linear.programs import choose
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
