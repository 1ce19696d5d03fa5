"""Columns whose mean is large beside their spread.

What holds for the centred columns holds for them.

The columns are whole multiples of 1/64, so that adding offsets rounds nothing: oracles get the same
columns without.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_gap
from oracles.rounds import by_rounds
from sklearn.linear_model import Lasso

from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.offsets import shift

FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "sparse": sp.csc_array}
OFFSETS = [2.0**12, 2.0**20, 2.0**24, 2.0**30, 2.0**44]


def test_columns_far_from_zero_may_be_many(solved):
    """Ranges of columns are found some columns at a time."""
    rng = np.random.default_rng(0)
    X = np.round(64 * rng.normal(size=(90, 150))) / 64
    y = X[:, 70:73].sum(axis=1) + rng.normal(size=90)
    X[:, 140:] = 1.0  # constant columns
    ours = PrioritizedLasso(0.1, tol=1e-9).fit(X + 2.0**30, y)
    theirs = Lasso(0.1, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = np.round(64 * rng.normal(size=(120, 50))) / 64
    y = X[:, :6] @ np.array([2.0, -2.0, 1.0, 1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=120)
    return X - np.round(64 * X.mean(axis=0)) / 64, y, rng.random(120) + 0.1


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("offset", OFFSETS)
def test_lasso(problem, form, n_shards, offset):
    Z, y, weights = problem
    for every, sample_weight in ((1, None), (3, weights)):
        X = Z.copy()
        X[:, ::every] += offset * np.arange(1, 51)[::every] / 8
        ours = PrioritizedLasso(0.05, tol=1e-9, n_shards=n_shards).fit(
            FORMS[form](X), y, sample_weight=sample_weight
        )
        theirs = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(Z, y, sample_weight=sample_weight)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
        b = np.average(y - Z @ ours.coef_, weights=sample_weight)
        assert lasso_gap(Z, y, ours.coef_, b, 0.05, sample_weight) <= 1.1e-9 * np.var(y)
        # what is left is the rounding of an intercept as large as the offsets
        np.testing.assert_allclose(
            ours.predict(X), Z @ ours.coef_ + b, atol=1e-6 + 1e-14 * offset * 50
        )


def test_time_stamps_years_and_identifiers_in_one_table():
    rng = np.random.default_rng(3)
    stamps = 1_700_000_000 + rng.integers(0, 1000, 300)
    years, identifiers = 2000 + rng.integers(0, 25, 300), 10**15 + rng.integers(0, 40, 300)
    X = np.column_stack([stamps, years, identifiers, rng.integers(0, 2, 300)])
    Z = X - X[0]
    y = 0.002 * Z[:, 0] - 0.1 * Z[:, 1] + 0.05 * Z[:, 2] + Z[:, 3] + 0.1 * rng.normal(size=300)
    theirs = Lasso(0.01, tol=1e-12, max_iter=100_000).fit(Z - Z.mean(axis=0), y)
    for dtype in (np.int64, np.float64):
        ours = PrioritizedLasso(0.01, tol=1e-10).fit(X.astype(dtype), y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)


@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.05), SparseLogisticRegression(1.0)])
def test_a_column_that_is_nothing_but_rounding_is_named(problem, estimator):
    Z, y, _ = problem
    X = Z[:, :6].copy()
    X[:, 4] = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator.fit(X, y > 0).coef_[..., 4] == 0.0  # the same in all rows: nothing is lost
    X[7, 4] = np.nextafter(0.1, 1.0)
    with pytest.warns(
        UserWarning, match="Columns 4 of X vary by less than the rounding of their values"
    ):
        fitted = estimator.fit(X, y > 0)
    assert fitted.coef_[..., 4] == 0.0
    with pytest.warns(UserWarning, match="Columns 4 of X"):
        SparseLogisticRegression().fit(X, np.digitize(y, [-1.0, 1.0]))


def test_a_column_of_rounding_is_left_out_for_every_target(monkeypatch):
    """Beside a constant column, which each target finds anew."""
    by_rounds(monkeypatch)
    X, Y = np.random.default_rng(0).normal(size=(2, 40, 5))
    X[:, 1], X[:, 2] = 5.0, 1e15
    X[0, 2], Y[0, 1] = 1e15 + 0.125, 1e3
    with pytest.warns(UserWarning, match="Columns 2 of X"):
        fitted = PrioritizedLasso(1e-3).fit(X, Y)
    assert fitted.coef_[1, 0] != 0.0
    assert not fitted.coef_[:, 1:3].any()


def test_shifts_add_up(problem):
    """As those of all samples and of a fold do."""
    Z, y, weights = problem
    [rows] = split_rows(Z, y, weights, 1)
    twice = shift(shift(rows, np.arange(50.0)), np.full(50, 0.25))
    np.testing.assert_array_equal(twice.shifts, np.arange(50.0) + 0.25)
    taken = twice.matrix.take_dense(np.arange(50)).T
    np.testing.assert_array_equal(taken, Z - np.arange(50.0) - 0.25)
