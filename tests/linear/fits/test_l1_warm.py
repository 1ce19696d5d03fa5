"""A warm start changes where a fit begins, never what it certifies."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.l1 import lasso_gap, logistic_gap

from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.logistic import SparseLogisticRegression

FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "sparse": sp.csc_array}
SHARDS = st.integers(1, 3)


def draw(seed, n_most=60):
    """Return X, two responses and two weights."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(12, n_most)), int(rng.integers(3, 80))
    X = rng.normal(size=(n, p)) + rng.normal()
    X[:, 1:] += rng.choice([0.0, 0.9]) * X[:, :-1]
    targets = [
        X @ (rng.normal(size=p) * (rng.random(p) < 0.3)) + 0.3 * rng.normal(size=n)
        for _ in range(2)
    ]
    targets[0] *= 10.0 ** rng.integers(-3, 7)
    return X, targets, [None, rng.random(n) + 0.1], rng


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000), before=SHARDS, now=SHARDS, positive=st.booleans())
def test_lasso_after_any_other(form, seed, before, now, positive):
    X, targets, weights, rng = draw(seed)
    order = rng.permutation(2)
    first, second = rng.choice([1e-3, 0.02, 0.1, 0.5], 2)
    ours = PrioritizedLasso(first, warm_start=True, n_shards=before, positive=positive, tol=1e-6)
    ours.fit(FORMS[form](X), targets[0], sample_weight=weights[order[0]])
    ours.set_params(alpha=second, n_shards=now, tol=1e-9)
    y, used = targets[1], weights[order[1]]
    ours.fit(FORMS[form](X), y, sample_weight=used)
    bound = ours.tol * np.average((y - np.average(y, weights=used)) ** 2, weights=used)
    gap = lasso_gap(X, y, ours.coef_, ours.intercept_, ours.alpha, used, positive)
    assert -1e-12 * np.mean(y**2) <= ours.dual_gap_ <= bound
    assert gap <= 1.01 * bound + 1e-12 * np.mean(y**2)


@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("n_shards", [1, 2])
@pytest.mark.parametrize("value", [1e9, -1e200, np.inf])
def test_a_start_worse_than_zero_leaves_nothing_behind(n_shards, value):
    X, (_, y), _, _ = draw(8)
    for make, target in (
        (PrioritizedLasso(0.02, tol=1e-10, warm_start=True, n_shards=n_shards), y),
        (
            SparseLogisticRegression(1.0, tol=1e-10, warm_start=True, n_shards=n_shards),
            y > np.quantile(y, 0.8),
        ),
    ):
        cold = make.fit(X + 3.0, target)
        assert (np.max(cold.fit(X + 3.0, target).n_iter_), len(cold.history_)) == (1, 1)
        expected, level = cold.coef_.copy(), np.copy(cold.intercept_)
        cold.coef_[..., :3] = value
        with np.errstate(invalid="ignore", over="ignore"):
            warm = cold.fit(X + 3.0, target)
        np.testing.assert_allclose(warm.coef_, expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(warm.intercept_, level, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), before=SHARDS, now=SHARDS)
def test_logistic_after_any_other(form, seed, before, now):
    X, targets, weights, rng = draw(seed)
    order = rng.permutation(2)
    signs = [
        np.where(y > np.quantile(y, part), 1.0, -1.0)
        for y, part in zip(targets, (0.85, 0.4), strict=True)
    ]
    first, second = rng.choice([0.05, 0.5, 5.0], 2)
    ours = SparseLogisticRegression(first, warm_start=True, n_shards=before)
    ours.fit(FORMS[form](X), signs[0], sample_weight=weights[order[0]])
    ours.set_params(C=second, n_shards=now, tol=1e-8)
    used = weights[order[1]]
    ours.fit(FORMS[form](X), signs[1], sample_weight=used)
    null = second * np.log(2) * (len(X) if used is None else used.sum())
    gap = logistic_gap(X, signs[1], ours.coef_[0], float(ours.intercept_[0]), second, used)
    assert -1e-10 * null <= ours.dual_gap_[0] <= 1e-8 * null
    assert gap <= 1.05e-8 * null
