"""Newton steps of small sparse logistic fits in one kernel: optimal points, honest ends, the fits of the other way."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.elastic_net import logistic_net_least, logistic_net_objective
from scipy.special import expit

from schmp_estimators import SparseLogisticRegression
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Chosen
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.input import as_matrix

#: X has to have more entries than this for its fits to take their way through sparse columns.
N_ROWS, N_COLUMNS = 300, 900


@pytest.fixture(autouse=True)
def by_rounds(monkeypatch):
    """Let small problems go by rounds, too, where the steps are that are tested."""
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)


@pytest.fixture(scope="module")
def counts():
    """Return counts of few words, and labels, −1 and 1, which depend on some of them."""
    rng = np.random.default_rng(0)
    often = rng.gamma(0.5, 0.05, N_COLUMNS)
    often[:60] = rng.gamma(2.0, 0.2, 60)
    X = rng.poisson(often, (N_ROWS, N_COLUMNS)).astype(float)
    score = X[:, :40] @ rng.normal(size=40)
    return X, np.where(score + rng.normal(size=N_ROWS) > np.median(score), 1.0, -1.0)


def steps(X, y, penalty, *, weights=(), centred=False, goal=1e-8, most=60, coef=None, level=0.0, part=0.0):
    """Return coefficients, intercept, u + b, and how it ended."""
    coef = np.zeros(X.shape[1]) if coef is None else coef.copy()
    decision = X @ coef + level
    values, rows, starts = as_matrix(sp.csc_array(X)).columns
    columns = freeze(Chosen(values, rows, starts[:-1], starts[1:]))
    end = Logistic().descend(columns, decision, y, np.array(weights), coef, penalty, centred, goal, part, most)
    return coef, level + end.level, decision, end


def objective(X, y, weights, strength, coef, level):
    return weights @ np.logaddexp(0.0, -y * (X @ coef + level)) + strength * np.abs(coef).sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_steps_arrive_at_an_optimal_point(counts, centred, weighted):
    X, y = counts[0][:, :60], counts[1]
    weights = np.random.default_rng(1).uniform(0.2, 2.0, N_ROWS) if weighted else np.ones(N_ROWS)
    coef, level, decision, end = steps(X, y, L1(0.7), weights=weights if weighted else (), centred=centred)
    assert end.arrived
    assert not end.hard
    assert (level != 0.0) == centred
    np.testing.assert_allclose(decision, X @ coef + level, atol=1e-10)
    slope = weights * y * expit(-y * decision)
    gradient, support = X.T @ slope, coef != 0.0
    assert 5 < np.count_nonzero(support) < 60
    np.testing.assert_allclose(gradient[support], 0.7 * np.sign(coef[support]), atol=1e-6)
    assert np.abs(gradient).max() <= 0.7 + 1e-6
    if centred:
        assert abs(slope.sum()) < 1e-6


def test_columns_that_depend_on_each_other_are_hard(counts):
    X, y = counts
    rng = np.random.default_rng(3)
    same = np.repeat(X[:, :1] + 1.0, 20, axis=1) + 1e-2 * rng.random((N_ROWS, 20))
    coef, level, _, end = steps(same, y, L1(1e-6), goal=1e-12)
    assert end.hard
    assert not end.arrived
    assert objective(same, y, np.ones(N_ROWS), 1e-6, coef, level) < N_ROWS * np.log(2)


def test_columns_that_vary_by_less_than_rounding_do_not_join(counts):
    X, y = counts[0].copy(), counts[1]
    X[:, -1] = 1e15
    X[0, -1] += 0.125
    with pytest.warns(UserWarning, match="Columns 899 of X vary by less than the rounding"):
        fit = SparseLogisticRegression(3.0, tol=1e-6).fit(sp.csc_array(X), y)
    assert fit.coef_[0, -1] == 0.0
    assert fit.dual_gap_[0] <= 1e-6 * 3.0 * N_ROWS * np.log(2)


@pytest.mark.parametrize("options", [{}, {"l1_ratio": 0.5}, {"fit_intercept": False}])
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_fits_by_these_steps_are_optimal(monkeypatch, counts, C, options):
    """Columns 0 to 29 depend on each other, which at a large C other steps have to finish."""
    X, y, calls, descend = counts[0].copy(), counts[1], [], Logistic.descend
    X[:, :30] = np.repeat(X[:, :3], 10, axis=1) * (1.0 + 1e-2 * np.random.default_rng(3).random((N_ROWS, 30)))
    monkeypatch.setattr(Logistic, "descend", lambda *given: calls.append(descend(*given)) or calls[-1])
    fit = SparseLogisticRegression(C, tol=1e-9, **options).fit(sp.csc_array(X), y)
    assert calls
    weights, start, factors = np.ones(N_ROWS), fit.coef_[0], np.ones(N_COLUMNS)
    given = X, y, C, options.get("l1_ratio", 1.0), factors, weights
    least = logistic_net_least(*given, fit.fit_intercept, start, float(fit.intercept_[0]))
    found = logistic_net_objective(X, y, start, float(fit.intercept_[0]), *given[2:])
    assert found - least <= fit.dual_gap_[0] + 1e-12 * C * N_ROWS
    assert 0.0 <= fit.dual_gap_[0] <= 1e-9 * C * N_ROWS * np.log(2)
