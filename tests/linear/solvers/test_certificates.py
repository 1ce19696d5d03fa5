"""A certificate holds.

The gap that a fit reports is checked by an oracle, where screening and halving are at work.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_gap, logistic_gap
from oracles.rounds import by_rounds
from sklearn.linear_model import Lasso

from schmp_estimators.linear.lasso import PrioritizedLasso, prioritized_lasso_path
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.programs import choose


def wide(seed):
    """More columns than rows, related to their neighbours and of different scales.

    So many are screened out.
    """
    rng = np.random.default_rng(seed)
    n, p, related = (
        int(rng.integers(8, 40)),
        int(rng.integers(20, 150)),
        rng.choice([0.0, 0.5, 0.9]),
    )
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = related * X[:, j - 1] + np.sqrt(1 - related**2) * X[:, j]
    X *= np.exp(rng.normal(size=p) * rng.choice([0.0, 1.0]))
    return X, X[:, :5] @ rng.normal(size=5) + rng.normal(size=n), rng


@pytest.mark.covering
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_lasso_gap_of_screened_problems(seed, positive):
    X, y, rng = wide(seed)
    weights = rng.random(len(y)) + 0.1 if seed % 3 == 0 else None
    variance = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    total = len(y) if weights is None else weights.sum()
    centred = (X - np.average(X, axis=0, weights=weights)) * (
        1.0 if weights is None else weights[:, None]
    )
    slopes = centred.T @ (y - np.average(y, weights=weights)) / total
    largest = slopes.max() if positive else np.abs(slopes).max()
    for part in (0.9, 0.6, 0.3):
        ours = PrioritizedLasso(largest * part, tol=1e-8, positive=positive, n_shards=1 + seed % 2)
        ours.fit(X, y, sample_weight=weights)
        gap = lasso_gap(X, y, ours.coef_, ours.intercept_, ours.alpha, weights, positive)
        assert gap <= 1.01e-8 * variance
        assert gap >= -1e-12 * variance and ours.dual_gap_ >= -1e-12 * variance


@pytest.mark.parametrize("seed", range(30))
def test_logistic_gap_of_screened_problems(seed):
    X, y, _ = wide(seed)
    sign = np.where(y > np.median(y), 1.0, -1.0)
    smallest = (
        2.0 / np.abs((X - X.mean(axis=0)).T @ sign).max()
    )  # at which about the first column enters
    for part in (1.2, 1.5, 2.0, 5.0):
        ours = SparseLogisticRegression(smallest * part, tol=1e-8).fit(X, sign)
        gap = logistic_gap(X, sign, ours.coef_[0], float(ours.intercept_[0]), ours.C)
        assert gap <= 1.01e-8 * ours.C * len(y) * np.log(2.0)
        assert ours.dual_gap_[0] >= -1e-10 * ours.C * len(y)


def test_where_the_strong_rule_is_wrong_the_column_is_found_again():
    """The third column's gradient grows faster than the penalty falls.

    The rule takes that for impossible.

    With the first two at work, it falls by 1.2 times what the penalty falls; from -0.45 at a
    penalty of 1 it reaches -0.768 at 0.735, where the rule discards what was below 0.47.
    """
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 3)))[0] * np.sqrt(12)
    first, second, rest = basis.T
    third = 0.6 * first + 0.6 * second + np.sqrt(1 - 2 * 0.6**2) * rest
    X = np.column_stack([first, second, third, -third[::-1] * 1e-3])
    y = first + second + (-0.45 - 1.2) / np.sqrt(1 - 2 * 0.6**2) * rest
    options = {"fit_intercept": False, "tol": 1e-12}
    _, coefs, _, _ = prioritized_lasso_path(X, y, alphas=[1.001, 0.735], **options)
    expected = Lasso(0.735, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(X, y).coef_
    assert np.abs(X.T @ y / 12 - [1, 1, -0.45, 0]).max() < 0.01
    assert expected[2] < -0.01
    np.testing.assert_allclose(coefs[:, 1], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [False, True], ids=["Gram", "residual"])
@pytest.mark.parametrize("seed", [1, 9, 14, 16])
def test_newton_steps_that_overshoot_are_halved(monkeypatch, seed, residual):
    """Heavy tails and a large C.

    Full steps would make the objective rise, in one of these problems without end.
    """
    monkeypatch.setattr(choose, "prefer_residual", lambda size: residual)
    by_rounds(monkeypatch)
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 60)), int(rng.integers(2, 30))
    X = rng.standard_t(2, size=(n, p)) * np.exp(2 * rng.normal(size=p))
    sign = np.where(X[:, 0] / np.abs(X[:, 0]).mean() + rng.normal(size=n) > 0, 1.0, -1.0)
    ours = SparseLogisticRegression(100.0, tol=1e-8, max_iter=200).fit(
        sp.csc_array(X) if residual else X, sign
    )
    assert logistic_gap(
        X, sign, ours.coef_[0], float(ours.intercept_[0]), 100.0
    ) <= 1.01e-8 * 100.0 * n * np.log(2.0)
    objectives = np.array([record["objective"] for record in ours.history_])
    assert (np.diff(objectives) <= 1e-12 * objectives[0]).all()


@pytest.mark.parametrize("C", [0.5, 5.0])
def test_weights_that_are_all_alike_multiply_the_loss(C):
    X, y, _ = wide(2)
    labels = y > np.median(y)
    for weight in (0.25, 3.0):
        ours = SparseLogisticRegression(C, tol=1e-12).fit(
            X, labels, sample_weight=np.full(len(y), weight)
        )
        alone = SparseLogisticRegression(C * weight, tol=1e-12).fit(X, labels)
        np.testing.assert_allclose(ours.coef_, alone.coef_, atol=1e-6 * np.abs(alone.coef_).max())
        sign = np.where(labels, 1.0, -1.0)
        weights = np.full(len(y), weight)
        gap = logistic_gap(X, sign, ours.coef_[0], float(ours.intercept_[0]), C, weights)
        assert gap <= 1.01e-12 * C * weights.sum()


def test_balanced_classes_are_balanced_by_weight():
    X, y, rng = wide(4)
    labels = (y > np.quantile(y, 0.7)).astype(int)
    for weights in (None, rng.random(len(y)) + 0.2):
        ours = SparseLogisticRegression(2.0, tol=1e-12, class_weight="balanced").fit(
            X, labels, sample_weight=weights
        )
        each = np.ones(len(y)) if weights is None else weights
        totals = np.bincount(labels, weights=each)
        both = each * (totals.sum() / (2 * totals))[labels]
        sign = np.where(labels == 1, 1.0, -1.0)
        gap = logistic_gap(X, sign, ours.coef_[0], float(ours.intercept_[0]), 2.0, both)
        assert gap <= 1.01e-12 * 2.0 * both.sum()


def sparse_problem(case):
    """Sparse X, y, and weights or None."""
    rng = np.random.default_rng(0)
    shape = {"wide": (200, 3000), "tall": (6000, 150)}.get(case, (900, 700))
    X = sp.random(*shape, density=0.02, format="csc", rng=rng).toarray()
    if case == "copies":
        X[:, 350:] = X[:, :350] * (1.0 + 0.01 * (rng.random((900, 350)) < 0.1))
        X[:, 100:110] = X[:, :10]
    if case == "offset":
        X[:, :40] += 1e4
    if case == "empty shard":
        X[:300, :] = 0.0
    if case == "scales":
        X *= np.exp(3.0 * rng.normal(size=shape[1]))
    weights = rng.random(shape[0]) + 0.05 if case == "weights" else np.ones(shape[0])
    y = X[:, :30] / np.maximum(X[:, :30].std(axis=0), 1e-9) @ rng.normal(size=30) + rng.normal(
        size=shape[0]
    )
    return X, y, weights


@pytest.mark.covering
@pytest.mark.parametrize(
    "case", ["wide", "tall", "copies", "offset", "empty shard", "scales", "weights"]
)
@pytest.mark.parametrize("part", [5, 100])
def test_certificate_of_sparse_shards_is_true(case, part):
    X, y, weights = sparse_problem(case)
    means, centre = np.average(X, axis=0, weights=weights), np.average(y, weights=weights)
    alpha = np.abs((X - means).T @ (weights * (y - centre))).max() / weights.sum() / part
    lasso = PrioritizedLasso(alpha, tol=1e-9, n_shards=3, positive=part == 5).fit(
        sp.csr_array(X), y, weights
    )
    level = lasso.intercept_ + means @ lasso.coef_  # the oracle must not lose its digits to offsets
    gap = lasso_gap(X - means, y, lasso.coef_, level, alpha, weights, lasso.positive)
    assert gap <= 1.1 * lasso.tol * np.average((y - centre) ** 2, weights=weights)
