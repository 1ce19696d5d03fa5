"""PrioritizedLasso against scikit-learn, the duality gap, and a slow oracle."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_gap, lasso_objective
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from schmp_estimators import schmp
from schmp_estimators.core.schedules.dynamic import SCHEDULES
from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.logistic import SparseLogisticRegression


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 80)) + 1
    return X, X[:, 0] * 3 - X[:, 1] * 2 + 0.3 * rng.normal(size=60) + 5, rng.random(60)


FORMS = {
    "by rows": np.ascontiguousarray,
    "by columns": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
}


@pytest.mark.covering
@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_same_as_scikit_learn(problem, form, positive, fit_intercept, weighted, n_shards):
    X, y, weights = problem
    options = {"fit_intercept": fit_intercept, "positive": positive}
    weights = weights if weighted else None
    expected = Lasso(0.05, tol=1e-12, max_iter=100_000, **options).fit(X, y, sample_weight=weights)
    ours = PrioritizedLasso(0.05, tol=1e-11, n_shards=n_shards, **options).fit(
        FORMS[form](X), y, sample_weight=weights
    )
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-5)
    gap = lasso_gap(X, y, ours.coef_, ours.intercept_, 0.05, weights, positive)
    assert gap <= 1e-11 * np.sum((y - y.mean() * fit_intercept) ** 2) / 60 + 1e-12


@pytest.mark.usefixtures("solved")
def test_weights_in_one_partition(problem):
    X, y, weights = problem
    expected = Lasso(0.01, tol=1e-12, max_iter=100_000).fit(X, y, sample_weight=weights)
    ours = PrioritizedLasso(0.01, tol=1e-11).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    assert lasso_gap(X, y, ours.coef_, ours.intercept_, 0.01, weights) <= 1e-10 * np.var(y)
    assert ours.n_iter_ <= 12


@pytest.mark.covering
@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_schedules_of_the_papers(problem, schedule, n_shards):
    X, y, _ = problem
    ours = PrioritizedLasso(
        0.1, schedule=SCHEDULES[schedule](2), tol=1e-8, random_state=0, n_shards=n_shards
    ).fit(X, y)
    reference = PrioritizedLasso(0.1, tol=1e-12).fit(X, y)
    objective = lasso_objective(X, y, ours.coef_, ours.intercept_, 0.1)
    assert objective <= lasso_objective(
        X, y, reference.coef_, reference.intercept_, 0.1
    ) + 1e-7 * np.var(y)
    sparse = PrioritizedLasso(0.1, schedule=SCHEDULES[schedule](2), tol=1e-8, random_state=0).fit(
        sp.csc_array(X), y
    )
    np.testing.assert_allclose(sparse.coef_, reference.coef_, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "order"),
    [(np.int8, "F"), (np.float32, "C"), pytest.param(np.int64, "C", marks=pytest.mark.slow)],
)
def test_dtypes_and_integer_columns(problem, dtype, order):
    _, y, _ = problem
    counts = np.random.default_rng(5).integers(0, 3, (60, 80))
    expected = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(counts.astype(float), y)
    ours = PrioritizedLasso(0.05, tol=1e-11).fit(np.asarray(counts, dtype=dtype, order=order), y)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    assert ours.coef_.dtype == (np.float32 if dtype is np.float32 else np.float64)
    np.testing.assert_allclose(
        ours.predict(counts.astype(dtype)), expected.predict(counts), atol=1e-4
    )


def test_trivial_problems():
    one_row = PrioritizedLasso().fit([[1.0, 2.0]], [3.0])
    assert one_row.intercept_ == 3.0 and not one_row.coef_.any() and one_row.n_iter_ == 1
    with pytest.raises(ValueError, match="0 feature"):
        PrioritizedLasso().fit(np.empty((3, 0)), np.arange(3.0))
    constant = PrioritizedLasso().fit(np.eye(4), np.full(4, 2.0))
    assert constant.intercept_ == 2.0 and constant.dual_gap_ == 0.0
    zero = PrioritizedLasso(1e6).fit(np.random.default_rng(0).normal(size=(20, 5)), np.arange(20.0))
    assert not zero.coef_.any() and zero.intercept_ == pytest.approx(9.5)


@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.001), SparseLogisticRegression(100.0)])
def test_falling_short_warns_with_the_gap(problem, estimator):
    X, y, _ = problem
    with pytest.warns(ConvergenceWarning, match="duality gap of"):
        estimator.set_params(max_iter=1, tol=1e-12).fit(X, y > 0)


@pytest.mark.parametrize("estimator", [PrioritizedLasso(), SparseLogisticRegression()])
def test_squares_that_overflow_are_refused(estimator):
    X = np.random.default_rng(0).normal(size=(30, 4))
    X[3, 2] = 1e200
    with pytest.raises(ValueError, match="squares overflow float64; scale its columns"):
        estimator.fit(X, X[:, 0] > 0)


@pytest.mark.slow
def test_shotgun_diverges_where_the_dependency_check_does_not():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1)) + 0.1 * rng.normal(size=(100, 60))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    with pytest.warns(ConvergenceWarning, match="n_parallel"):
        PrioritizedLasso(1e-3, schedule=schmp.Random(30), random_state=0).fit(X, y)
    for depth in (1, 3):
        ours = PrioritizedLasso(
            1e-3,
            schedule=schmp.Priority(30, pipeline_depth=depth),
            tol=1e-3,
            max_iter=2000,
            random_state=0,
        ).fit(X, y)
        assert ours.dual_gap_ <= 1e-3 * np.var(y)
