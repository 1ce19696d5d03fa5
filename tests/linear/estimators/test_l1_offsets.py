"""Columns whose mean is large beside their spread: what holds for the centred columns holds for them.

The columns are whole multiples of 1/64, so that adding offsets rounds nothing: oracles get the same columns without.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_gap, lasso_objective, logistic_gap, logistic_objective
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.linear_model import Lasso

from schmp_estimators.linear.lasso import PrioritizedLasso, PrioritizedLassoCV
from schmp_estimators.linear.logistic import SparseLogisticRegression, SparseLogisticRegressionCV
from schmp_estimators.linear.programs import choose, jobs
from schmp_estimators.linear.programs.jobs import Shift

FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "sparse": sp.csc_array}
OFFSETS = [2.0**12, 2.0**20, 2.0**24, 2.0**30, 2.0**44]


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = np.round(64 * rng.normal(size=(120, 50))) / 64
    y = X[:, :6] @ np.array([2.0, -2.0, 1.0, 1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=120)
    return X - np.round(64 * X.mean(axis=0)) / 64, y, rng.random(120) + 0.1


def best_intercept(X, sign, coef, weights):
    """Return the intercept that is best for given coefficients."""
    values = X @ coef
    reach = 50 + np.abs(values).max()
    return brentq(lambda b: (weights * sign * expit(-sign * (values + b))).sum(), -reach, reach, xtol=1e-14)


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("offset", OFFSETS)
def test_lasso(problem, form, n_shards, offset):
    Z, y, weights = problem
    for every, sample_weight in ((1, None), (3, weights)):
        X = Z.copy()
        X[:, ::every] += offset * np.arange(1, 51)[::every] / 8
        ours = PrioritizedLasso(0.05, tol=1e-9, n_shards=n_shards).fit(FORMS[form](X), y, sample_weight=sample_weight)
        theirs = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(Z, y, sample_weight=sample_weight)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
        b = np.average(y - Z @ ours.coef_, weights=sample_weight)
        assert lasso_gap(Z, y, ours.coef_, b, 0.05, sample_weight) <= 1.1e-9 * np.var(y)
        # what is left is the rounding of an intercept as large as the offsets
        np.testing.assert_allclose(ours.predict(X), Z @ ours.coef_ + b, atol=1e-6 + 1e-14 * offset * 50)


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("offset", OFFSETS)
def test_logistic(problem, form, n_shards, offset):
    Z, y, weights = problem
    sign = np.where(y > 0.5, 1.0, -1.0)
    X = Z + offset * np.arange(1, 51) / 8
    ours = SparseLogisticRegression(0.5, tol=1e-9, n_shards=n_shards).fit(FORMS[form](X), sign, sample_weight=weights)
    coef = ours.coef_[0]
    b = best_intercept(Z, sign, coef, weights)
    null = 0.5 * weights.sum() * np.log(2)
    assert 0.0 <= ours.dual_gap_[0] <= 1e-9 * null
    assert logistic_gap(Z, sign, coef, b, 0.5, weights) <= 1.1e-9 * null
    np.testing.assert_allclose(ours.decision_function(X), Z @ coef + b, atol=1e-5 + 1e-14 * offset * 50)


def test_tight_tolerance_does_not_drive_a_logistic_fit_apart():
    rng = np.random.default_rng(0)
    Z = np.round(64 * rng.normal(size=(300, 400))) / 64
    sign = np.where(Z[:, :20].sum(axis=1) + 2 * rng.normal(size=300) > 0, 1.0, -1.0)
    for offset in (2.0**17, 2.0**20):
        ours = SparseLogisticRegression(0.1, tol=1e-9).fit(Z + offset, sign)
        plain = SparseLogisticRegression(0.1, tol=1e-9).fit(Z, sign)
        objectives = [record["objective"] for record in ours.history_]
        assert (np.diff(objectives) <= 1e-14 * objectives[0]).all()
        np.testing.assert_allclose(ours.coef_, plain.coef_, atol=1e-5)


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("most_at_hand", [0, 1 << 22])
def test_folds(monkeypatch, problem, form, most_at_hand):
    """Each fold shifts columns by its own means, and predicts what it holds out from shifted columns."""
    monkeypatch.setattr(choose, "_MOST_AT_HAND", most_at_hand)
    Z, y, weights = problem
    X = FORMS[form](Z + 2.0**30 * np.arange(1, 51) / 8)
    lasso = PrioritizedLassoCV(alphas=[0.5, 0.05], cv=3, tol=1e-10)
    near = lasso.fit(Z, y, sample_weight=weights).mse_path_.copy()
    np.testing.assert_allclose(lasso.fit(X, y, sample_weight=weights).mse_path_, near, rtol=1e-6)
    logistic = SparseLogisticRegressionCV(Cs=[0.5], cv=3, scoring="neg_log_loss", tol=1e-9)
    near = logistic.fit(Z, y > 0.5).scores_.copy()
    np.testing.assert_allclose(logistic.fit(X, y > 0.5).scores_, near, rtol=1e-6)


def test_several_targets_and_classes(problem):
    Z, y, _ = problem
    both = np.column_stack([y, np.roll(y, 7)])
    ours = PrioritizedLasso(0.05, tol=1e-10).fit(Z + 2.0**24, both)
    np.testing.assert_allclose(ours.coef_, Lasso(0.05, tol=1e-12, max_iter=100_000).fit(Z, both).coef_, atol=1e-6)
    expected = Z @ ours.coef_.T + both.mean(axis=0) - Z.mean(axis=0) @ ours.coef_.T
    np.testing.assert_allclose(ours.predict(Z + 2.0**24), expected, atol=1e-6)
    codes = np.digitize(y, [-1.0, 1.0])
    far = SparseLogisticRegression(0.5, tol=1e-9, warm_start=True).fit(Z + 2.0**24, codes)
    near = SparseLogisticRegression(0.5, tol=1e-9).fit(Z, codes)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-5)
    np.testing.assert_allclose(far.decision_function(Z + 2.0**24), near.decision_function(Z), atol=1e-4)
    assert far.fit(Z + 2.0**24, codes).n_iter_.tolist() == [1, 1, 1]
    np.testing.assert_allclose(far.decision_function(Z + 2.0**24), near.decision_function(Z), atol=1e-4)


@pytest.mark.parametrize("schedule", ["priority", "round_robin"])
def test_schedules_of_the_papers(problem, schedule):
    Z, y, _ = problem
    options = {"schedule": schedule, "n_parallel": 2, "tol": 1e-6, "random_state": 0}
    ours = PrioritizedLasso(0.1, **options).fit(Z + 2.0**24, y)
    best = Lasso(0.1, tol=1e-12).fit(Z, y)
    b = (y - Z @ ours.coef_).mean()
    least = lasso_objective(Z, y, best.coef_, best.intercept_, 0.1)
    assert lasso_objective(Z, y, ours.coef_, b, 0.1) <= least + 1e-6 * y.var()
    sign = np.where(y > 0, 1.0, -1.0)
    ours = SparseLogisticRegression(0.1, **options | {"tol": 1e-4}).fit(Z + 2.0**24, sign)
    best = SparseLogisticRegression(0.1, tol=1e-9).fit(Z, sign)
    found = logistic_objective(Z, sign, ours.coef_[0], best_intercept(Z, sign, ours.coef_[0], np.ones(120)), 0.1)
    assert found <= logistic_objective(Z, sign, best.coef_[0], best.intercept_[0], 0.1) + 1e-4 * 12 * np.log(2)


@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.05), SparseLogisticRegression(1.0)])
def test_a_column_that_is_nothing_but_rounding_is_named(problem, estimator):
    Z, y, _ = problem
    X = Z[:, :6].copy()
    X[:, 4] = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator.fit(X, y > 0).coef_[..., 4] == 0.0  # the same in all rows: nothing is lost
    X[7, 4] = np.nextafter(0.1, 1.0)
    with pytest.warns(UserWarning, match="Columns 4 of X vary by less than the rounding of their values"):
        fitted = estimator.fit(X, y > 0)
    assert fitted.coef_[..., 4] == 0.0
    with pytest.warns(UserWarning, match="Columns 4 of X"):
        SparseLogisticRegression().fit(X, np.digitize(y, [-1.0, 1.0]))


@pytest.fixture
def rounds(monkeypatch):
    """No columns are at hand."""
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)
    monkeypatch.setattr(choose, "_ROWS", 1 << 30)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.05, tol=1e-9), SparseLogisticRegression(0.5, tol=1e-9)])
def test_columns_by_rounds(rounds, problem, estimator, form):
    """Constant ones stay at zero, which nobody is warned of; offsets change nothing else."""
    Z, y, weights = problem
    target = y if isinstance(estimator, PrioritizedLasso) else y > 0.5
    X = Z + 2.0**30
    X[:, 7:9] = 3.1e18, 0.0
    kept = np.delete(np.arange(50), [7, 8])
    ours = estimator.set_params(n_shards=3).fit(FORMS[form](X), target, sample_weight=weights)
    assert ours.solver_ == "rounds" and not np.atleast_2d(ours.coef_)[:, 7:9].any()
    found = np.atleast_2d(ours.coef_)[:, kept]
    expected = estimator.fit(Z[:, kept], target, sample_weight=weights)
    np.testing.assert_allclose(found, np.atleast_2d(expected.coef_), atol=1e-5)


@pytest.mark.parametrize("tiny", [1e-8, 1e-13])
def test_a_sparse_column_whose_only_zero_has_next_to_no_weight(rounds, problem, tiny):
    """Its mean is large beside its spread, but there is a zero that is not stored."""
    Z, y, weights = problem
    X, weights = Z[:, :6].copy(), weights.copy()
    X[:, 5], X[9, 5] = 1.0, 0.0
    weights[9] = tiny
    y = y.copy()
    y[9] += 1.0 / tiny
    ours = PrioritizedLasso(0.002, tol=1e-12).fit(sp.csc_array(X), y, sample_weight=weights)
    assert ours.solver_ == "rounds"
    dense = PrioritizedLasso(0.002, tol=1e-12).fit(X, y, sample_weight=weights)
    assert abs(ours.coef_[5]) > 0.1 / tiny
    np.testing.assert_allclose(ours.coef_, dense.coef_, rtol=1e-5, atol=1e-6)


def test_a_warm_logistic_start_knows_of_the_shifts(rounds, problem):
    """Without them the search for the intercept would begin a billion away."""
    Z, y, _ = problem
    codes = np.digitize(y, [-1.0, 1.0])
    for target, n_classes in ((codes > 0, 1), (codes, 3)):
        ours = SparseLogisticRegression(0.5, tol=1e-9, warm_start=True).fit(Z + 2.0**30, target)
        looks = []

        class Counted(Shift):
            def __call__(self, rows):
                looks.append(self.intercept)  # noqa: B023
                return super().__call__(rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jobs, "Shift", Counted)
            ours.fit(Z + 2.0**30, target)
        assert len(looks) <= 5 * n_classes and np.abs(looks).max() < 1e3
