"""Paths and cross-validation of elastic nets, and with columns that are not penalised."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    prioritized_lasso_path,
    sparse_logistic_path,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 40)) + RNG.normal(size=(90, 1))
Y = X[:, :3].sum(axis=1) + 2.0 * X[:, 5] + RNG.normal(size=90) + 7.0
FACTORS = np.where(np.arange(40) == 5, 0.0, np.linspace(0.5, 2.0, 40))


@pytest.mark.slow
@pytest.mark.parametrize("l1_ratio", [pytest.param(1.0, marks=pytest.mark.slow), 0.6])
def test_points_of_a_path_are_single_fits(l1_ratio):
    shape = {"l1_ratio": l1_ratio, "penalty_factors": FACTORS}
    alphas, coefs, intercepts, _ = prioritized_lasso_path(X, Y, alphas=6, eps=0.02, tol=1e-10, **shape)
    # at first nothing but what is not penalised
    assert np.flatnonzero(np.abs(coefs[:, 0]) > 1e-9).tolist() == [5]
    for alpha, coef, intercept in zip(alphas, coefs.T, intercepts, strict=True):
        alone = PrioritizedLasso(alpha, tol=1e-10, **shape).fit(X, Y)
        np.testing.assert_allclose(coef, alone.coef_, atol=1e-5)
        assert intercept == pytest.approx(alone.intercept_, abs=1e-5)
    label = np.median(Y) < Y
    Cs, coefs, _, gaps = sparse_logistic_path(X, label, Cs=5, tol=1e-9, **shape)
    assert np.flatnonzero(np.abs(coefs[:, 0]) > 1e-6).tolist() == [5]
    for C, coef in zip(Cs, coefs.T, strict=True):
        alone = SparseLogisticRegression(C, tol=1e-9, **shape).fit(X, label)
        np.testing.assert_allclose(coef, alone.coef_[0], atol=1e-3)
    assert (gaps <= 1.01e-9 * Cs * len(Y) * np.log(2.0)).all()


def test_cross_validation_hands_the_penalty_on():
    shape = {"l1_ratio": 0.7, "penalty_factors": FACTORS}
    ours = PrioritizedLassoCV(alphas=5, eps=0.05, cv=3, tol=1e-8, **shape).fit(X, Y)
    final = PrioritizedLasso(ours.alpha_, tol=1e-8, **shape).fit(X, Y)
    np.testing.assert_array_equal(ours.coef_, final.coef_)
    train, test = next(KFold(3).split(X))
    first = PrioritizedLasso(ours.alphas_[2], tol=1e-8, **shape).fit(X[train], Y[train])
    assert ours.mse_path_[2, 0] == pytest.approx(np.mean((first.predict(X[test]) - Y[test]) ** 2), rel=1e-4)
    logistic = SparseLogisticRegressionCV(Cs=[0.05, 0.5], cv=3, **shape).fit(X, Y > 7.0)
    assert logistic.coef_[0, 5] != 0.0 and logistic.get_params()["l1_ratio"] == 0.7


def test_factors_of_another_length_are_refused():
    for make in (PrioritizedLassoCV, SparseLogisticRegressionCV):
        with pytest.raises(ValueError, match="penalty_factors must hold 40 numbers"):
            make(penalty_factors=np.ones(3)).fit(X, Y > 7.0)
    with pytest.raises(ValueError, match="penalty_factors must hold 40 numbers"):
        prioritized_lasso_path(X, Y, penalty_factors=np.ones(3))
    with pytest.raises(ValueError, match="'l1_ratio' parameter of sparse_logistic_path must be"):
        sparse_logistic_path(X, Y > 7.0, l1_ratio=2.0)
