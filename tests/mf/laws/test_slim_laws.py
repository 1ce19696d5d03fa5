"""What columns of an item model must be: the minima that others find, and certified."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.linear_model import Lasso

from schmp_estimators import DistributedSLIM
from schmp_estimators.mf.data import clicks as arranged

N_USERS, N_ITEMS = 120, 40


def draw_clicks(seed=0, n_users=N_USERS, n_items=N_ITEMS, high=1):
    """Counts up to `high` of users with a few interests, on items of different popularity."""
    rng = np.random.default_rng(seed)
    interests = rng.integers(0, 4, n_users)[:, None] == rng.integers(0, 4, n_items)
    chances = np.minimum(0.9, (0.08 + 0.5 * interests) * rng.pareto(2.0, n_items))
    return (rng.random((n_users, n_items)) < chances) * rng.integers(
        1, high + 1, (n_users, n_items)
    )


CLICKS = draw_clicks().astype(float)
COUNTS = draw_clicks(1, high=5).astype(float)


def objective(X, j, w, l1, l2):
    return 0.5 * np.sum((X[:, j] - X @ w) ** 2) + l1 * w.sum() + 0.5 * l2 * w @ w


def best_column(X, j, l1, l2):
    others = X.copy()
    others[:, j] = 0
    if l2:  # a problem of least squares, with the squares completed
        together = np.vstack([others, np.sqrt(l2) * np.eye(X.shape[1])])
        return nnls(together, np.r_[X[:, j], np.full(X.shape[1], -l1 / np.sqrt(l2))])[0]
    lasso = Lasso(l1 / len(X), positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000)
    return lasso.fit(others, X[:, j]).coef_


# How many items are frequent: none, some, all.
@pytest.fixture(params=[0, 7, N_ITEMS])
def n_frequent(request, monkeypatch):
    def choose(clicks, l1, most):
        order = np.argsort(-np.diff(clicks.by_item.offsets), kind="stable")
        return np.sort(order[: request.param])

    monkeypatch.setattr(arranged, "_choose_frequent", choose)


@pytest.mark.parametrize("X", [CLICKS, COUNTS], ids=["clicks", "counts"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 3.0), (2.0, 5.0), (1.5, 0.0), (9.0, 0.02)])
def test_each_column_is_the_minimum_that_others_find(X, l1, l2, n_frequent):
    slim = DistributedSLIM(l1, l2, tol=1e-6, max_iter=100_000).fit(sp.csr_array(X))
    coefficients = slim.coef_.toarray().astype(float)
    for j in range(0, N_ITEMS, 3):
        expected = objective(X, j, best_column(X, j, l1, l2), l1, l2)
        found = objective(X, j, coefficients[:, j], l1, l2)
        rounding = 1e-6 * np.sum(X[:, j] ** 2)
        assert found - expected <= slim.dual_gap_[j] + rounding
        assert slim.dual_gap_[j] <= 1e-6 * 0.5 * np.sum(X[:, j] ** 2)
    assert (coefficients >= 0).all()
    assert not coefficients.diagonal().any()


@pytest.mark.parametrize("tol", [0.3, 1e-2])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 3.0), (2.0, 5.0), (1.5, 0.0), (1.5, 0.02)])
def test_the_gap_is_one_also_far_from_the_minimum(tol, l1, l2, n_frequent):
    slim = DistributedSLIM(l1, l2, tol=tol).fit(COUNTS)
    coefficients = slim.coef_.toarray().astype(float)
    for j in range(0, N_ITEMS, 3):
        least = objective(COUNTS, j, best_column(COUNTS, j, l1, l2), l1, l2)
        far = objective(COUNTS, j, coefficients[:, j], l1, l2) - least
        assert -1e-6 * np.sum(COUNTS[:, j] ** 2) <= far
        assert far <= slim.dual_gap_[j] + 1e-6 * np.sum(COUNTS[:, j] ** 2)


def test_items_with_few_common_users_have_no_coefficient():
    """And no other item is without one for this reason."""
    common = CLICKS.T @ CLICKS
    for l1 in (1.0, 2.5, 4.0):
        coefficients = DistributedSLIM(l1, 0.1, tol=1e-6).fit(CLICKS).coef_.toarray()
        assert not coefficients[common <= l1].any()
        best = np.array([best_column(CLICKS, j, l1, 0.1) for j in range(N_ITEMS)]).T
        np.testing.assert_array_equal(coefficients[best > 0.01] > 0, True)


def test_neighbours_are_those_that_help_most_and_the_gap_is_that_of_their_problem():
    l1, l2, most = 0.5, 2.0, 4
    slim = DistributedSLIM(l1, l2, max_neighbors=most, tol=1e-6).fit(COUNTS)
    common = COUNTS.T @ COUNTS
    gains = np.maximum(common - l1, 0) ** 2 / np.maximum(common.diagonal(), 1e-9)[:, None]
    np.fill_diagonal(gains, 0)
    for j in range(N_ITEMS):
        kept = np.argsort(-gains[:, j], kind="stable")[:most]
        found = slim.coef_[:, [j]].toarray().ravel().astype(float)
        assert set(np.flatnonzero(found)) <= set(kept)
        restricted = np.zeros_like(COUNTS)
        restricted[:, kept] = COUNTS[:, kept]
        restricted[:, j] = COUNTS[:, j]
        least = objective(COUNTS, j, best_column(restricted, j, l1, l2), l1, l2)
        rounding = 1e-6 * common[j, j]
        assert objective(COUNTS, j, found, l1, l2) - least <= slim.dual_gap_[j] + rounding


def test_of_equal_neighbours_the_first_are_kept():
    same = np.repeat(CLICKS[:, :1], 6, axis=1)
    found = DistributedSLIM(0.0, 1.0, max_neighbors=2).fit(same).coef_.toarray() > 0
    expected = np.zeros((6, 6), bool)
    for j in range(6):
        expected[[i for i in range(6) if i != j][:2], j] = True
    np.testing.assert_array_equal(found, expected)


def test_users_may_count_less_and_values_be_made_of_counts():
    lengths = np.maximum(np.count_nonzero(COUNTS, axis=1), 1)
    amounts = np.log1p(COUNTS)
    slim = DistributedSLIM(0.1, 1.0, user_weight=0.5, confidence=np.log1p, tol=1e-6).fit(COUNTS)
    weighed = amounts * lengths[:, None] ** -0.5
    for j in range(0, N_ITEMS, 7):
        found = slim.coef_[:, [j]].toarray().ravel().astype(float)
        least = objective(weighed, j, best_column(weighed, j, 0.1, 1.0), 0.1, 1.0)
        rounding = 1e-6 * np.sum(weighed[:, j] ** 2)
        assert objective(weighed, j, found, 0.1, 1.0) - least <= slim.dual_gap_[j] + rounding
    scores = slim.predict(COUNTS)
    np.testing.assert_allclose(scores, amounts @ slim.coef_.toarray(), rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units_of_values_do_not_matter(unit):
    """Sums of squares need more than float32, which the values have."""
    expected = DistributedSLIM(2.0, 5.0).fit(COUNTS)
    found = DistributedSLIM(2.0 * unit**2, 5.0 * unit**2).fit(COUNTS * unit)
    np.testing.assert_allclose(
        found.coef_.toarray(), expected.coef_.toarray(), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(found.dual_gap_ / unit**2, expected.dual_gap_, rtol=1e-2, atol=1e-6)
    far = DistributedSLIM(0.0, 5e50).fit(COUNTS * 1e25)
    assert np.isfinite(far.dual_gap_).all()


@pytest.mark.parametrize("n_more", [1, 30])
def test_more_clicks_are_fitted_as_if_they_had_been_there(n_more, n_frequent):
    first, more = COUNTS.copy(), np.zeros_like(COUNTS)
    first[:n_more, ::2] = 0
    more[:n_more, ::2] = COUNTS[:n_more, ::2]
    more[0, 1] = 2.0  # a pair that is known: its counts are added up
    slim = DistributedSLIM(1.0, 4.0, tol=1e-6).fit(first)
    before = slim.n_iter_.sum()
    slim.partial_fit(sp.csr_array(more * 1.0))
    every = DistributedSLIM(1.0, 4.0, tol=1e-6).fit(first + more)
    np.testing.assert_array_equal(slim.clicks_.toarray(), every.clicks_.toarray())
    np.testing.assert_allclose(slim.coef_.toarray(), every.coef_.toarray(), atol=2e-3)
    assert (slim.dual_gap_ <= 1e-6 * 0.5 * np.sum((first + more) ** 2, axis=0)).all()
    assert slim.n_iter_.sum() < before


def test_columns_that_stay_within_tol_are_not_solved_again():
    slim = DistributedSLIM(1.0, 4.0, tol=1e-2).fit(COUNTS)
    coefficients = slim.coef_.toarray()
    slim.partial_fit([[0, 0]], [4.0])
    stayed = slim.n_iter_ == 0
    assert N_ITEMS / 2 < np.count_nonzero(stayed) < N_ITEMS
    after = slim.coef_.toarray()
    np.testing.assert_array_equal(after[:, stayed], coefficients[:, stayed])
    assert (after != coefficients).any(axis=0)[~stayed].any()
    assert (slim.dual_gap_[stayed] > 0).any()


def test_the_table_is_chosen_by_its_work():
    """Few dense columns are solved by products, many sparse ones by clicks."""
    rng = np.random.default_rng(0)
    dense = sp.csr_array((rng.random((2000, 50)) < 0.4).astype(np.float32))
    rare = sp.random_array((3000, 2000), density=0.002, rng=0, format="csr", dtype=np.float32)
    rare.data[:] = 1
    for X, share in ((dense, 1.0), (rare, 0.0)):
        found = arranged.arrange(X, 0.0, 2000, lambda function, jobs: list(map(function, jobs)))
        assert found.products.shape == (X.shape[1], round(share * X.shape[1]))
        columns = np.flatnonzero(found.column >= 0)
        np.testing.assert_array_equal(found.products, (X.T @ X[:, columns]).toarray())
