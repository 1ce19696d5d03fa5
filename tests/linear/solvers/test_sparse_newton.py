"""Sparse fits that depend on steps by conjugate gradients, also where these take long."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import logistic_gap
from oracles.rounds import by_rounds
from sklearn.linear_model import ElasticNet as Theirs

from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.programs import choose


@pytest.fixture(autouse=True)
def residual(monkeypatch):
    monkeypatch.setattr(choose, "prefer_residual", lambda size: True)
    by_rounds(monkeypatch)


@pytest.mark.covering
@pytest.mark.parametrize("l1_ratio", [1.0, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression(weighted, l1_ratio):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 60)) * (rng.random((120, 60)) < 0.4)
    X[:, 1:] += 0.95 * X[:, :-1]
    y = X @ rng.normal(size=60) + rng.normal(size=120)
    weights = rng.random(120) + 0.2 if weighted else None
    ours = PrioritizedLasso(0.02, l1_ratio=l1_ratio, tol=1e-13, n_shards=3)
    ours.fit(sp.csc_array(X), y, sample_weight=weights)
    theirs = Theirs(0.02, l1_ratio=l1_ratio, tol=1e-15, max_iter=100_000).fit(
        X, y, sample_weight=weights
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_small_penalty_on_separable_classes(fit_intercept):
    """Curvature is all but zero in most rows."""
    rng = np.random.default_rng(3)
    X = np.exp(rng.normal(size=(90, 200))) * (rng.random((90, 200)) < 0.15)
    sign = np.where(X @ rng.normal(size=200) > 0, 1.0, -1.0)
    C, tol = 1e3, 1e-9
    ours = SparseLogisticRegression(C, tol=tol, max_iter=300, fit_intercept=fit_intercept).fit(
        sp.csc_array(X), sign
    )
    assert logistic_gap(
        X, sign, ours.coef_[0], float(ours.intercept_[0]), C
    ) <= 1.01 * tol * C * 90 * np.log(2.0)


def nearly_separable():
    """Return sparse X and signs.

    Only two rows that are alike but for their sign keep their loss.
    """
    rng = np.random.default_rng(3)
    X = np.exp(rng.normal(size=(90, 200))) * (rng.random((90, 200)) < 0.15)
    sign = np.where(X @ rng.normal(size=200) > 0, 1.0, -1.0)
    X[1], sign[:2] = X[0], [1.0, -1.0]
    return X, sign


@pytest.mark.slow
def test_rows_that_are_all_but_certain_keep_their_curvature():
    """Their probabilities, of the size of the penalty, are what the gap at a large C depends on."""
    X, sign = nearly_separable()
    C, tol = 1e5, 1e-8
    ours = SparseLogisticRegression(C, tol=tol, fit_intercept=False).fit(sp.csc_array(X), sign)
    assert logistic_gap(X, sign, ours.coef_[0], 0.0, C) <= 1.01 * tol * C * 90 * np.log(2.0)
