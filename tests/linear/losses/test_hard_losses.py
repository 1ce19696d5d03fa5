"""Fits of hard problems: counts all but explained, errors all clipped, minima that are local."""

import numpy as np
import pytest

import schmp_estimators as se


def noisy(n_rows, n_columns, size, seed):
    """Return normal columns, and a function of the first ten of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, X[:, :10] @ (size * rng.normal(size=10)), rng


@pytest.mark.parametrize("alpha", [1e-4, 1e-5])
def test_counts_with_a_weak_penalty_take_few_steps(alpha):
    X, signal, rng = noisy(100, 100, 0.3, 0)
    fitted = se.SparseGLM("poisson", alpha=alpha, tol=1e-8).fit(X, rng.poisson(np.exp(signal)))
    assert fitted.n_iter_ < 30 and np.count_nonzero(fitted.coef_) > 50


@pytest.mark.parametrize("unit", [10.0, 1e4])
def test_errors_in_a_unit_far_from_epsilon(unit):
    """Few errors are below epsilon, so that a step sees few rows; a fit converges all the same."""
    X, signal, rng = noisy(100, 150, 1.0, 1)
    y = unit * (signal + rng.standard_t(2, size=100))
    fitted = se.SparseGLM("huber", alpha=0.05).fit(X, y)
    assert fitted.n_iter_ < 100 and np.count_nonzero(fitted.coef_)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("seed", [2, pytest.param(7, marks=SLOW), pytest.param(13, marks=SLOW)])
def test_larger_penalties_come_first_where_minima_are_local(seed):
    """A fit from zero is as good as the end of coordinate descent along falling penalties."""
    rng = np.random.default_rng(seed)
    n_rows, n_columns, gamma = 40, 80, 3.0
    X = rng.normal(size=(n_rows, n_columns))
    for j in range(1, n_columns):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(0.19) * X[:, j]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, ::20] @ np.array([2.0, -2.0, 2.0, -2.0]) + rng.normal(size=n_rows)
    y -= y.mean()
    largest = np.abs(X.T @ y).max() / n_rows

    def objective(coef, alpha):
        inner = np.minimum(np.abs(coef), gamma * alpha)
        loss = np.mean((y - X @ coef) ** 2) / 2
        return loss + np.sum(alpha * inner - inner**2 / (2 * gamma))

    coef = np.zeros(n_columns)
    for alpha in largest * 0.7 ** np.arange(1, 7):
        for _ in range(300):
            for j in range(n_columns):
                aim = X[:, j] @ (y - X @ coef) / n_rows + coef[j]
                shrunk = np.sign(aim) * max(abs(aim) - alpha, 0.0) / (1.0 - 1.0 / gamma)
                coef[j] = aim if abs(aim) > gamma * alpha else shrunk
    last = largest * 0.7**6
    fitted = se.SparseGLM(penalty="mcp", alpha=last, fit_intercept=False, tol=1e-10).fit(X, y)
    assert objective(fitted.coef_, last) <= 1.02 * objective(coef, last)


def test_the_gap_of_rounded_covariates_is_that_of_what_is_returned():
    """Columns without a penalty are rounded to float32 before the last gap, too."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 30))
    X[:, 0] = 2000 + 10 * rng.random(200)
    X[:, 1] *= 1e3
    X = X.astype(np.float32)
    y = np.where(X[:, 2] + 0.1 * (X[:, 0] - 2005) + rng.normal(size=200) > 0, 1.0, -1.0)
    factors = np.ones(30)
    factors[:2] = 0.0
    options = {"alpha": 0.02, "penalty_factors": factors}

    def objective(model):
        coef = model.coef_.ravel().astype(np.float64)
        decision = X.astype(np.float64) @ coef + model.intercept_
        return np.logaddexp(0.0, -y * decision).mean() + 0.02 * (factors * np.abs(coef)).sum()

    ours = se.SparseGLM("logistic", tol=1e-12, **options).fit(X, y)
    best = se.SparseGLM("logistic", tol=1e-13, **options).fit(X.astype(np.float64), y)
    assert ours.coef_.dtype == np.float32
    assert objective(ours) - objective(best) <= ours.dual_gap_[0] + 1e-14
    assert ours.history_[-1]["objective"] == pytest.approx(objective(ours), abs=1e-14)
