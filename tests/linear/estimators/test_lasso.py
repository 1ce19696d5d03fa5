"""PrioritizedLasso against scikit-learn, the duality gap, and a slow oracle."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_descent, lasso_gap, lasso_objective
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, lasso_path
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from schmp_estimators.linear.lasso import PrioritizedLasso, prioritized_lasso_path
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.programs import choose


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
    ours = PrioritizedLasso(0.05, tol=1e-11, n_shards=n_shards, **options).fit(FORMS[form](X), y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-5)
    gap = lasso_gap(X, y, ours.coef_, ours.intercept_, 0.05, weights, positive)
    assert gap <= 1e-11 * np.sum((y - y.mean() * fit_intercept) ** 2) / 60 + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_random_problems_reach_their_gap(seed):
    rng = np.random.default_rng(seed)
    n, p = rng.integers(20, 200), rng.integers(20, 2000)
    density = rng.choice([0.05, 1.0])
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    X[:, 1:] += 0.8 * X[:, :-1]
    y = X[:, :10] @ rng.normal(size=10) + rng.normal(size=n)
    largest = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / n
    for part in (10, 100):
        for form in (np.asfortranarray, sp.csc_array):
            ours = PrioritizedLasso(largest / part, tol=1e-7).fit(form(X), y)
            gap = lasso_gap(X, y, ours.coef_, ours.intercept_, largest / part)
            assert gap <= 1.01e-7 * np.mean((y - y.mean()) ** 2) * 1.0 + 1e-13
            assert ours.dual_gap_ == pytest.approx(gap, abs=1e-9 * np.mean(y**2))


def test_oracle(problem):
    X, y, weights = problem
    X = X[:, :8]
    coef, intercept = lasso_descent(X, y, 0.1, weights, sweeps=500)
    ours = PrioritizedLasso(0.1, tol=1e-12).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-7)
    assert ours.intercept_ == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_schedules_of_the_papers(problem, schedule, n_shards):
    X, y, _ = problem
    ours = PrioritizedLasso(0.1, schedule=schedule, n_parallel=2, tol=1e-8, random_state=0, n_shards=n_shards).fit(X, y)
    reference = PrioritizedLasso(0.1, tol=1e-12).fit(X, y)
    objective = lasso_objective(X, y, ours.coef_, ours.intercept_, 0.1)
    assert objective <= lasso_objective(X, y, reference.coef_, reference.intercept_, 0.1) + 1e-7 * np.var(y)
    sparse = PrioritizedLasso(0.1, schedule=schedule, n_parallel=2, tol=1e-8, random_state=0).fit(sp.csc_array(X), y)
    np.testing.assert_allclose(sparse.coef_, reference.coef_, atol=1e-3)


@pytest.mark.slow
def test_shotgun_diverges_where_the_dependency_check_does_not():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1)) + 0.1 * rng.normal(size=(100, 60))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    with pytest.warns(ConvergenceWarning, match="n_parallel"):
        PrioritizedLasso(1e-3, schedule="random", n_parallel=30, random_state=0).fit(X, y)
    for depth in (1, 3):
        ours = PrioritizedLasso(
            1e-3, schedule="priority", n_parallel=30, pipeline_depth=depth, tol=1e-3, max_iter=2000, random_state=0
        ).fit(X, y)
        assert ours.dual_gap_ <= 1e-3 * np.var(y)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.float32, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (np.uint8, np.int64))]
)
def test_dtypes_and_integer_columns(problem, dtype):
    _, y, _ = problem
    counts = np.random.default_rng(5).integers(0, 3, (60, 80))
    expected = Lasso(0.05, tol=1e-12, max_iter=100_000).fit(counts.astype(float), y)
    for order in "CF":
        ours = PrioritizedLasso(0.05, tol=1e-11).fit(np.asarray(counts, dtype=dtype, order=order), y)
        np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
        assert ours.coef_.dtype == (np.float32 if dtype is np.float32 else np.float64)
        np.testing.assert_allclose(ours.predict(counts.astype(dtype)), expected.predict(counts), atol=1e-4)


def test_read_only_input(problem):
    X, y, weights = (array.copy() for array in problem)
    expected = PrioritizedLasso(0.1).fit(X, y, sample_weight=weights)
    for array in (X, y, weights):
        array.flags.writeable = False
    np.testing.assert_array_equal(PrioritizedLasso(0.1).fit(X, y, sample_weight=weights).coef_, expected.coef_)


def test_several_targets(problem):
    X, y, _ = problem
    both = np.column_stack([y, -2 * y + X[:, 5]])
    ours = PrioritizedLasso(0.1, tol=1e-11).fit(X, both)
    expected = Lasso(0.1, tol=1e-12, max_iter=100_000).fit(X, both)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), expected.predict(X), atol=1e-6)
    assert ours.dual_gap_.shape == ours.intercept_.shape == (2,)
    assert ours.sparse_coef_.shape == (2, 80)


def test_constant_duplicate_and_empty_columns(problem):
    X, y, _ = problem
    X = np.hstack([X[:, :5], X[:, :5], np.full((60, 1), 7.0), np.zeros((60, 1))])
    for form in (np.asfortranarray, sp.csc_array):
        ours = PrioritizedLasso(0.05, tol=1e-10).fit(form(X), y)
        assert ours.dual_gap_ <= 1e-10 * np.sum((y - y.mean()) ** 2) / 60
        assert not ours.coef_[10:].any()


def test_trivial_problems():
    one_row = PrioritizedLasso().fit([[1.0, 2.0]], [3.0])
    assert one_row.intercept_ == 3.0 and not one_row.coef_.any() and one_row.n_iter_ == 1
    with pytest.raises(ValueError, match="0 feature"):
        PrioritizedLasso().fit(np.empty((3, 0)), np.arange(3.0))
    constant = PrioritizedLasso().fit(np.eye(4), np.full(4, 2.0))
    assert constant.intercept_ == 2.0 and constant.dual_gap_ == 0.0
    zero = PrioritizedLasso(1e6).fit(np.random.default_rng(0).normal(size=(20, 5)), np.arange(20.0))
    assert not zero.coef_.any() and zero.intercept_ == pytest.approx(9.5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"alpha": 0.0}, "alpha"), ({"alpha": -1}, "alpha"), ({"schedule": "fast"}, "schedule"), ({"tol": -1}, "tol")],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        PrioritizedLasso(**parameters).fit(np.eye(3), np.arange(3.0))


@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.001), SparseLogisticRegression(100.0)])
def test_falling_short_warns_with_the_gap(problem, estimator):
    X, y, _ = problem
    with pytest.warns(ConvergenceWarning, match="duality gap of"):
        estimator.set_params(max_iter=1, tol=1e-12).fit(X, y > 0)


def test_warm_start_and_history(problem):
    X, y, _ = problem
    ours = PrioritizedLasso(0.05, warm_start=True, tol=1e-10).fit(X, y)
    first = ours.coef_
    gaps = [record["dual_gap"] for record in ours.history_]
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] == pytest.approx(ours.dual_gap_)
    assert {"seconds", "objective", "support", "samples"} <= set(ours.history_[0])
    again = ours.fit(X, y)
    assert again.n_iter_ == 1
    np.testing.assert_allclose(again.coef_, first, atol=1e-12)


@pytest.mark.parametrize("form", [np.asfortranarray, sp.csc_array])
def test_path(problem, form):
    X, y, _ = problem
    alphas, coefs, intercepts, gaps = prioritized_lasso_path(form(X), y, alphas=30, tol=1e-9)
    expected, expected_coefs, _ = lasso_path(X - X.mean(axis=0), y - y.mean(), alphas=30, tol=1e-11, max_iter=100_000)
    np.testing.assert_allclose(alphas, expected)
    np.testing.assert_allclose(coefs, expected_coefs, atol=1e-6)
    for column, alpha in enumerate(alphas):
        assert lasso_gap(X, y, coefs[:, column], intercepts[column], alpha) <= 1e-9 * np.sum((y - y.mean()) ** 2) / 60
    assert gaps.shape == (30,)


def test_inside_pipeline_and_search(problem):
    X, y, _ = problem
    pipeline = make_pipeline(StandardScaler(), PrioritizedLasso())
    search = GridSearchCV(pipeline, {"prioritizedlasso__alpha": [0.05, 0.5]}, cv=3).fit(X, y)
    assert search.best_params_["prioritizedlasso__alpha"] == 0.05


@pytest.mark.parametrize("estimator", [PrioritizedLasso(), SparseLogisticRegression()])
def test_squares_that_overflow_are_refused(estimator):
    X = np.random.default_rng(0).normal(size=(30, 4))
    X[3, 2] = 1e200
    with pytest.raises(ValueError, match="squares overflow float64; scale its columns"):
        estimator.fit(X, X[:, 0] > 0)


@pytest.mark.parametrize(
    "estimator",
    [
        PrioritizedLasso(0.05, n_shards=4),
        PrioritizedLasso(0.05, schedule="priority", n_parallel=2, random_state=3, n_shards=4, tol=1e-2),
        SparseLogisticRegression(n_shards=4),
    ],
    ids=["lasso", "priority", "logistic"],
)
@pytest.mark.parametrize("offset", [0.0, 2.0**24])
def test_bits_do_not_depend_on_threads(monkeypatch, problem, estimator, offset):
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)
    X, y, _ = problem
    fits = [estimator.set_params(n_jobs=jobs).fit(np.round(X, 1) + offset, y > 0).coef_.copy() for jobs in (1, 2, 4)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0], other)
