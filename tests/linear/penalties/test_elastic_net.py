"""The elastic net with penalty factors against the solvers of others.

Problems are hostile, and there are laws that it keeps.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.elastic_net import logistic_net_least, logistic_net_objective, net_least, net_objective
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression

FORMS = (np.ascontiguousarray, np.asfortranarray, sp.csc_array, sp.csr_array)


def hostile_columns(rng, n, p, offsets, density):
    """Columns of different scales, maybe far from zero, copies of each other, or mostly zero."""
    X = rng.normal(size=(n, p)) * np.exp(rng.normal(size=p) * rng.choice([0.0, 2.0]))
    X += rng.choice(offsets) * rng.normal(size=p)
    if rng.random() < 0.3:
        X[:, p // 2] = X[:, 0]
    if rng.random() < 0.3:
        X *= rng.random(X.shape) < density
    return X


def hostile_factors(rng, p, alike, none):
    """All alike, of different sizes, or some of them zero as well."""
    kind, factors = rng.random(), np.ones(p)
    if kind > alike:
        factors = rng.choice([0.3, 1.0, 2.0, 5.0], p)
    if kind > 1.0 - none:
        factors[rng.choice(p, min(3, p - 1), replace=False)] = 0.0
    return factors if factors.any() else np.ones(p)


def hostile_weights(rng, n):
    weights = rng.integers(0, 4, n).astype(float) if rng.random() < 0.4 else np.ones(n)
    return weights if weights.sum() else np.ones(n)


def lanes(fast, every):
    """Give the seeds of the fast lane and of the slow one.

    Those of the fast lane come with the size of their problems.
    """
    few = [pytest.param(seed, 0.4, id=f"small {seed}") for seed in range(fast)]
    return few + [
        pytest.param(seed, 1.0, id=str(seed), marks=pytest.mark.slow) for seed in range(every)
    ]


@pytest.mark.parametrize(("seed", "size"), lanes(20, 200))
def test_lasso_on_hostile_problems_is_never_worse_and_its_gap_is_true(seed, size):
    rng = np.random.default_rng(seed)
    n, p = int(size * rng.integers(12, 120)), int(size * rng.integers(5, 200))
    assert_never_worse_and_true(rng, n, p, FORMS)


def assert_never_worse_and_true(rng, n, p, forms):
    """Fit the Lasso to a hostile problem.

    Its objective is the least there is, and its gap bounds the rest.
    """
    X = hostile_columns(rng, n, p, [0.0, 1.0, 1e3], 0.2)
    y = X[:, : min(3, p)].sum(axis=1) + rng.normal(size=n) + rng.choice([0.0, 1e4])
    weights = hostile_weights(rng, n)
    positive, fit_intercept = bool(rng.random() < 0.25), bool(rng.random() < 0.7)
    l1_ratio = float(rng.choice([1.0, 0.9, 0.5, 0.1, 0.001]))
    factors = hostile_factors(rng, p, 0.5, 0.0 if positive else 0.3)
    means = (
        (weights @ X / weights.sum(), weights @ y / weights.sum()) if fit_intercept else (0.0, 0.0)
    )
    centred, response = X - means[0], y - means[1]
    largest = np.abs(centred.T @ (weights * response)).max() / weights.sum() / l1_ratio
    ours = PrioritizedLasso(
        largest * float(rng.choice([0.5, 0.1, 0.01, 0.001])),
        l1_ratio=l1_ratio,
        penalty_factors=None if (factors == 1.0).all() else factors,
        fit_intercept=fit_intercept,
        positive=positive,
        tol=1e-12,
        n_shards=int(rng.choice([1, 1, 3])),
        max_iter=300,
        warm_start=True,
    )
    if rng.random() < 0.3:
        ours.coef_ = np.abs(rng.normal(size=p)) if positive else rng.normal(size=p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rounding may end it above 1e-12
        ours.fit(forms[rng.integers(len(forms))](X), y, sample_weight=weights)
    found = net_objective(X, y, ours.coef_, ours.intercept_, ours.alpha, l1_ratio, factors, weights)
    least = net_least(
        X, y, ours.alpha, l1_ratio, factors, weights, fit_intercept, positive, ours.coef_
    )
    at_zero = 0.5 * (weights @ response**2) / weights.sum()
    assert not positive or ours.coef_.min() >= 0.0
    assert found - least <= 1e-9 * least + 1e-15 * at_zero
    rounding = 1e-13 * at_zero + 1e-15 * np.abs(y).max() * np.sqrt(at_zero)  # of residuals
    assert found - least <= ours.dual_gap_ + rounding
    assert -1e-13 * at_zero <= ours.dual_gap_ <= 1e-9 * at_zero
    assert ours.history_[-1]["objective"] == pytest.approx(found, rel=1e-9, abs=rounding)


@pytest.mark.parametrize(("seed", "size"), lanes(20, 200))
def test_logistic_on_hostile_problems_is_never_worse_and_its_gap_is_true(seed, size):
    rng = np.random.default_rng(seed)
    n, p = 10 + int(size * rng.integers(10, 140)), int(size * rng.integers(5, 60))
    X = hostile_columns(rng, n, p, [0.0, 1.0, 50.0], 0.3)
    scores = (X[:, : min(3, p)] - X[:, : min(3, p)].mean(axis=0)).sum(axis=1)
    y = scores + 2.0 * rng.normal(size=n) > 0.5 * rng.normal()
    weights = hostile_weights(rng, n)
    y[:2], weights[:2] = [False, True], 1.0  # both classes are there
    fit_intercept, l1_ratio = (
        bool(rng.random() < 0.7),
        float(rng.choice([1.0, 0.9, 0.5, 0.1, 0.001])),
    )
    factors = hostile_factors(rng, p, 0.4, 0.4)
    ours = SparseLogisticRegression(
        float(rng.choice([0.01, 0.1, 1.0, 10.0])),
        l1_ratio=l1_ratio,
        penalty_factors=None if (factors == 1.0).all() else factors,
        fit_intercept=fit_intercept,
        tol=1e-10,
        n_shards=int(rng.choice([1, 3])),
        max_iter=200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours.fit(FORMS[rng.integers(4)](X), y, sample_weight=weights)
    sign, coef, intercept = np.where(y, 1.0, -1.0), ours.coef_[0], float(ours.intercept_[0])
    problem = ours.C, l1_ratio, factors, weights
    found = logistic_net_objective(X, sign, coef, intercept, *problem)
    least = logistic_net_least(X, sign, *problem, fit_intercept, coef, intercept)
    at_zero = ours.C * weights.sum() * np.log(2.0)
    assert found - least <= 1e-9 * max(least, 0.01 * at_zero)  # the least may be zero, and far away
    assert found - least <= ours.dual_gap_[0] + 1e-12 * at_zero
    assert -1e-12 * at_zero <= ours.dual_gap_[0] <= 1e-8 * at_zero
    said = ours.history_[-1]["objective"] * ours.C * weights.sum()
    assert said == pytest.approx(found, rel=1e-9, abs=1e-12 * at_zero)
