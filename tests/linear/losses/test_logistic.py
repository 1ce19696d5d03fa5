"""SparseLogisticRegression against scikit-learn, the duality gap and the optimality conditions."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import logistic_gap, logistic_objective
from sklearn.linear_model import LogisticRegression

from schmp_estimators.core.schedules.dynamic import SCHEDULES
from schmp_estimators.linear.logistic import SparseLogisticRegression


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 60)) + 0.5
    y = np.where(X[:, 0] - X[:, 1] + rng.normal(size=120) > 0.3, "yes", "no")
    return X, y, rng.random(120) + 0.1


FORMS = {
    "by rows": np.ascontiguousarray,
    "by columns": np.asfortranarray,
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
}


@pytest.mark.covering
@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_certified_and_no_worse_than_scikit_learn(
    problem, form, fit_intercept, weighted, n_shards, C
):
    X, y, weights = problem
    weights = weights if weighted else None
    sign = np.where(y == "yes", 1.0, -1.0)
    ours = SparseLogisticRegression(C, fit_intercept=fit_intercept, tol=1e-9, n_shards=n_shards)
    ours.fit(FORMS[form](X), y, sample_weight=weights)
    coef, intercept = ours.coef_[0], float(ours.intercept_[0])
    null = C * np.log(2) * (120 if weights is None else weights.sum())
    assert logistic_gap(X, sign, coef, intercept, C, weights) <= 1.01e-9 * null
    theirs = LogisticRegression(
        C=C,
        l1_ratio=1,
        solver="saga",
        fit_intercept=fit_intercept,
        tol=1e-8,
        max_iter=100_000,
        random_state=0,
    ).fit(X, y, sample_weight=weights)
    assert (
        logistic_objective(X, sign, coef, intercept, C, weights)
        <= logistic_objective(
            X, sign, theirs.coef_[0], theirs.intercept_ * fit_intercept, C, weights
        )
        + 1.01e-9 * null
    )
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-3)


def test_large_sparse_problem_on_residuals():
    rng = np.random.default_rng(1)
    X = sp.random_array((2000, 4000), density=0.01, rng=np.random.default_rng(0), format="csc")
    sign = np.where(
        X[:, :200] @ rng.normal(size=200) + 0.2 * rng.normal(size=2000) > 0.1, 1.0, -1.0
    )
    dense, weights = X.toarray(), rng.random(2000) + 0.5
    C = 30 / np.abs(dense.T @ sign / 2).max()
    for n_shards, sample_weight, intercept in (
        (1, None, True),
        (3, None, True),
        (1, weights, False),
        (2, weights, True),
    ):
        ours = SparseLogisticRegression(C, tol=1e-7, n_shards=n_shards, fit_intercept=intercept)
        ours.fit(X, sign, sample_weight=sample_weight)
        null = C * np.log(2) * (2000 if sample_weight is None else sample_weight.sum())
        gap = logistic_gap(dense, sign, ours.coef_[0], float(ours.intercept_[0]), C, sample_weight)
        assert gap <= 1.01e-7 * null
        assert ours.dual_gap_[0] == pytest.approx(gap, abs=1e-8 * null)


@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
def test_schedules_of_the_papers(problem, schedule):
    X, y, _ = problem
    options = {"tol": 1e-4, "random_state": 0}
    reference = SparseLogisticRegression(0.1, tol=1e-10).fit(X, y)
    for form in (np.asfortranarray, sp.csc_array):
        for depth in (1, 2) if schedule == "priority" else (1,):
            ours = SparseLogisticRegression(
                0.1, schedule=SCHEDULES[schedule](2, pipeline_depth=depth), **options
            ).fit(form(X), y)
            assert ours.dual_gap_[0] <= 1e-4 * 0.1 * 120 * np.log(2)
            np.testing.assert_allclose(ours.predict_proba(X), reference.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("schedule", ["priority", "round_robin"])
def test_rounds_do_not_see_the_offset_of_columns(problem, schedule):
    X, y, _ = problem
    options = {"schedule": SCHEDULES[schedule](2), "tol": 1e-4, "random_state": 0}
    near, far = (
        SparseLogisticRegression(0.1, **options).fit(X + offset, y) for offset in (0.0, 20.0)
    )
    assert far.n_iter_ == near.n_iter_
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-8)
    np.testing.assert_allclose(far.predict_proba(X + 20.0), near.predict_proba(X), atol=1e-8)


def test_trivial_problems():
    with pytest.raises(ValueError, match="one class"):
        SparseLogisticRegression().fit([[1.0, 2.0]], [1])
    with pytest.raises(ValueError, match="0 feature"):
        SparseLogisticRegression().fit(np.empty((3, 0)), [0, 1, 1])
    two = SparseLogisticRegression(1e3, tol=1e-9).fit([[0.0], [1.0]], [0, 1])
    assert two.predict([[0.0], [1.0]]).tolist() == [0, 1]
