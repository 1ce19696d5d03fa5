"""Smooth losses solved in a kernel, against bounds in extended precision."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.penalties.base import read_only
from schmp_estimators.linear.penalties.choose import choose_penalty
from schmp_estimators.linear.programs.centred import Rows
from schmp_estimators.linear.programs.smooth_path import smooth_problem

LONG = np.longdouble


def margins(X, y, coef, level):
    """Return the margins of centred columns."""
    return y * (X.astype(LONG) @ coef.astype(LONG) + LONG(level))


def primal(X, y, s, coef, level, penalty, l1, factors):
    """Return the objective."""
    size = np.abs(coef.astype(LONG))
    return (s * np.logaddexp(LONG(0), -margins(X, y, coef, level))).sum() + penalty * (
        factors * (l1 * size + (1 - l1) / 2 * size**2)
    ).sum()


def lower_bound(X, y, s, coef, level, penalty, l1, factors, positive, fit_intercept):
    """Return the dual objective near a point."""
    level = LONG(level)
    for _ in range(50 if fit_intercept else 0):
        p = 1 / (1 + np.exp(margins(X, y, coef, level)))
        level += (s * y * p).sum() / (s * p * (1 - p)).sum()
    p = 1 / (1 + np.exp(margins(X, y, coef, level)))
    ridge = penalty * factors * (1 - l1)
    slopes = X.astype(LONG).T @ (s * y * p) - ridge * coef
    sizes = slopes if positive else np.abs(slopes)
    q = p / max(1, (sizes / (penalty * l1 * factors)).max())
    entropy = (q * np.log(np.where(q > 0, q, 1)) + (1 - q) * np.log1p(-np.where(q < 1, q, 0))) * s
    return -entropy.sum() - 0.5 * (ridge * (coef * (q / p).max()) ** 2).sum()


def some_problem(seed):
    """Return a random problem, hard in one way or another."""
    rng = np.random.default_rng(seed)
    n, p = [(60, 8), (40, 150), (150, 40), (25, 25)][seed % 4]
    X = rng.normal(size=(n, p))
    if rng.random() < 0.4:
        X[:, 1:] += 2 * X[:, :-1]
    X *= 10.0 ** rng.integers(-2, 3, p) if rng.random() < 0.3 else 1.0
    y = np.where(
        X[:, :3] @ rng.normal(size=3) / np.abs(X[:, :3]).max() + rng.choice([0.0, 0.3, 1.0]) * rng.normal(size=n)
        > rng.choice([0, 0.4]),
        1.0,
        -1.0,
    )
    y[0], y[1] = 1.0, -1.0
    s = rng.choice([0.1, 1.0, 30.0], n) if rng.random() < 0.4 else np.ones(n)
    positive = bool(rng.random() < 0.2)
    factors = rng.uniform(0.3, 3.0, p) if rng.random() < 0.5 else np.ones(p)
    return X, y, s, [1.0, 0.9, 0.3][seed % 3], factors, positive, bool(rng.random() < 0.8)


@pytest.mark.parametrize("seed", range(24))
def test_gaps_bound_what_is_left(seed):
    X, y, s, l1, factors, positive, fit_intercept = some_problem(seed)
    offset = 1e6 * np.abs(X).max() if seed % 5 == 0 and fit_intercept else 0.0
    rows = Rows(np.ascontiguousarray(X.T + offset), y[None], s if (s != 1).any() else np.empty(0))
    penalty = choose_penalty(1.0, l1, read_only(factors), positive)
    problem = smooth_problem(rows, Logistic(), penalty, fit_intercept, np.finfo(float).eps)
    seen = (X.T + offset).T - problem.means
    given = seen, y, s
    null, largest = problem.square(0), problem.largest(0)
    assert_allclose(null, np.log(2) * s.sum())
    penalties = np.geomspace(largest or 1.0, 1e-3 * (largest or 1.0), 8)
    paths = {tol: problem.path(0, penalties, tol * null, 1000) for tol in (1e-4, 1e-10)}
    assert not paths[1e-4].coefs[0].any()
    for t, strength in enumerate(penalties):
        best = paths[1e-10]
        assert best.gaps[t] <= 1e-10 * null
        shape = strength, l1, factors
        least = primal(*given, best.coefs[t], best.levels[t], *shape) - best.gaps[t]
        bound = lower_bound(*given, best.coefs[t], best.levels[t], *shape, positive, fit_intercept)
        assert bound >= least - 1e-9 * null
        least = max(least, bound)
        for points in (paths[1e-4], problem.fit(0, strength, 1e-4 * null, 1000, np.zeros(X.shape[1]))):
            place = t if len(points.gaps) > 1 else 0
            reached = primal(*given, points.coefs[place], points.levels[place], *shape)
            assert_allclose(float(reached), points.objectives[place], rtol=1e-11)
            assert points.gaps[place] <= 1e-4 * null
            assert float(reached - least) <= points.gaps[place] + 1e-12 * null
            assert not positive or (points.coefs >= 0.0).all()
