"""Paths and cross-validation of elastic nets, and with columns that are not penalised."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegressionCV,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 40)) + RNG.normal(size=(90, 1))
Y = X[:, :3].sum(axis=1) + 2.0 * X[:, 5] + RNG.normal(size=90) + 7.0
FACTORS = np.where(np.arange(40) == 5, 0.0, np.linspace(0.5, 2.0, 40))


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
