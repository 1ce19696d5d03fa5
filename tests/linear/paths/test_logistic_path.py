"""Paths of sparse logistic regression: each point is solved, as a fit of its own would be."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import logistic_gap

from schmp_estimators import SparseLogisticRegression, sparse_logistic_path


@pytest.fixture(params=["tall", "wide", "offset"])
def problem(request):
    n, p = (40, 90) if request.param == "wide" else (120, 15)
    rng = np.random.default_rng(2)
    X = np.round(64 * rng.normal(size=(n, p))) / 64 + (
        2.0**20 if request.param == "offset" else 0.0
    )
    Z = X - X[0].round()
    return X, np.where(
        Z[:, :3].sum(axis=1) - Z[:, :3].sum(axis=1).mean() + rng.normal(size=n) > 0, "yes", "no"
    )


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csc_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_points_are_fits(problem, form, fit_intercept):
    X, y = problem
    if not fit_intercept:  # without one a large mean counts
        X = X - X[0].round()
    Cs, coefs, levels, gaps = sparse_logistic_path(
        form(X), y, Cs=6, tol=1e-8, fit_intercept=fit_intercept
    )
    assert not coefs[:, 0].any() and coefs[:, 1].any() and (np.diff(Cs) > 0).all()
    assert Cs[-1] == pytest.approx(100 * Cs[0])
    sign = np.where(y == "yes", 1.0, -1.0)
    near = X - X[0].round() if fit_intercept else X  # the same problem, for the oracle
    for C, coef, level, gap in zip(Cs, coefs.T, levels, gaps, strict=True):
        alone = SparseLogisticRegression(C, tol=1e-10, fit_intercept=fit_intercept).fit(X, y)
        np.testing.assert_allclose(coef, alone.coef_[0], atol=2e-4 * max(1.0, np.abs(coef).max()))
        whole = C * len(y) * np.log(2)
        moved = level + float(X[0].round() @ coef) if fit_intercept else level
        assert logistic_gap(near, sign, coef, moved, C) <= 1.5e-8 * whole + 1e-11
        assert gap <= 1e-8 * whole


def test_what_is_wrong_is_named():
    X = np.random.default_rng(0).normal(size=(9, 3))
    y = X[:, 0] > 0
    with pytest.raises(ValueError, match=r"y holds 3 classes, 0, 1, 2 .* pass y == label"):
        sparse_logistic_path(X, np.arange(9) % 3)
    with pytest.raises(ValueError, match=r"y holds one class only, \d"):
        sparse_logistic_path(X, np.ones(9, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        sparse_logistic_path(X, X[:, 0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sparse_logistic_path(np.where(X[3, 1] == X, np.nan, X), y)
