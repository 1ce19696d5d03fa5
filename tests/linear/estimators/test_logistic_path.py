"""Paths of sparse logistic regression: each point is solved, as a fit of its own would be."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import logistic_gap
from sklearn.linear_model import LogisticRegression
from sklearn.svm import l1_min_c

from schmp_estimators import SparseLogisticRegression, sparse_logistic_path


@pytest.fixture(params=["tall", "wide", "offset"])
def problem(request):
    n, p = (40, 90) if request.param == "wide" else (120, 15)
    rng = np.random.default_rng(2)
    X = np.round(64 * rng.normal(size=(n, p))) / 64 + (2.0**20 if request.param == "offset" else 0.0)
    Z = X - X[0].round()
    return X, np.where(Z[:, :3].sum(axis=1) - Z[:, :3].sum(axis=1).mean() + rng.normal(size=n) > 0, "yes", "no")


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csc_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_points_are_fits(problem, form, fit_intercept):
    X, y = problem
    if not fit_intercept:  # without one a large mean counts
        X = X - X[0].round()
    Cs, coefs, levels, gaps = sparse_logistic_path(form(X), y, Cs=6, tol=1e-8, fit_intercept=fit_intercept)
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


def test_the_first_c_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 8))
    y = np.arange(50) % 2 == 0  # equal frequencies: the best intercept at zero is zero
    Cs, *_ = sparse_logistic_path(X - X.mean(axis=0), y, Cs=3)
    assert Cs[0] == pytest.approx(l1_min_c(X - X.mean(axis=0), y, loss="log", fit_intercept=False))


def test_weights_and_classes_weigh():
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(60, 5)), rng.random(60) < 0.3, rng.integers(0, 3, 60)
    twice = np.repeat(np.arange(60), weights)
    options = {"Cs": [0.3, 3.0], "tol": 1e-10, "class_weight": "balanced"}
    _, once, *_ = sparse_logistic_path(X, y, sample_weight=weights, **options)
    _, many, *_ = sparse_logistic_path(X[twice], y[twice], **options)
    np.testing.assert_allclose(once, many, atol=1e-5)
    theirs = LogisticRegression(
        C=3.0, l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000, class_weight="balanced", random_state=0
    ).fit(X[twice], y[twice])
    np.testing.assert_allclose(once[:, 1], theirs.coef_[0], atol=1e-4)
    doubled = sparse_logistic_path(X, y, sample_weight=np.full(60, 2.0), Cs=[0.3, 3.0])
    for one, other in zip(doubled[1:], sparse_logistic_path(X, y, Cs=[0.6, 6.0])[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    _, coefs, levels, gaps = sparse_logistic_path(X, y, Cs=[0.2, 20.0], tol=0.05)
    for number, C in enumerate([0.2, 20.0]):
        gap = logistic_gap(X, np.where(y, 1.0, -1.0), coefs[:, number], levels[number], C)
        assert gaps[number] == pytest.approx(gap, rel=0.5)


@pytest.mark.parametrize("tol", [1e-4, 0.3])
def test_neighbours_differ_whatever_the_tolerance(tol):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 20))
    y = X[:, 0] + rng.normal(size=80) > 0
    _, coefs, *_ = sparse_logistic_path(X, y, Cs=40, tol=tol)
    assert (np.abs(np.diff(coefs)).max(axis=0) > 0).all()


def test_where_every_solution_is_zero():
    X = np.zeros((6, 2))
    Cs, coefs, levels, _ = sparse_logistic_path(X, [0, 0, 1, 1, 1, 1], Cs=3)
    assert np.isfinite(Cs).all() and not coefs.any()
    np.testing.assert_allclose(levels, np.log(2.0))


def test_what_is_wrong_is_named():
    X = np.random.default_rng(0).normal(size=(9, 3))
    y = X[:, 0] > 0
    with pytest.raises(ValueError, match=r"y holds 3 classes, 0, 1, 2 .* pass y == label"):
        sparse_logistic_path(X, np.arange(9) % 3)
    with pytest.raises(ValueError, match="y holds one class only"):
        sparse_logistic_path(X, np.ones(9, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        sparse_logistic_path(X, X[:, 0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        sparse_logistic_path(np.where(X[3, 1] == X, np.nan, X), y)
