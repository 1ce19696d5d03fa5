"""Columns that are not penalised.

Covariates that depend on each other, are far from zero, too many, or separate.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.elastic_net import (
    logistic_net_least,
    logistic_net_objective,
    net_least,
    net_objective,
    without,
)

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.core.schedules.dynamic import SCHEDULES
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.input import extent, prefer_residual, split_rows
from schmp_estimators.linear.programs.jobs import Sums
from schmp_estimators.linear.programs.offsets import find_span

RNG = np.random.default_rng(0)
N, P = 120, 40
G = RNG.normal(size=(N, P))
YEAR = RNG.integers(1990, 2021, N).astype(float)
STAMP = 1.6e9 + RNG.integers(0, 10**6, N)
AGE, OTHER = RNG.normal(size=(2, N))
Y = G[:, :3].sum(axis=1) + AGE + OTHER + 0.1 * (YEAR - 2005) + RNG.normal(size=N)

COVARIATES = {
    "two": np.column_stack([AGE, OTHER]),
    "a copy": np.column_stack([AGE, AGE]),
    "sums": np.column_stack([AGE, OTHER, AGE + OTHER, -AGE]),
    "powers of a year": np.column_stack([YEAR, YEAR**2, YEAR**3]),
    "time stamps": np.column_stack([STAMP, YEAR]),
    "nearly a copy": np.column_stack([AGE, AGE + 1e-6 * OTHER]),
    "scales": np.column_stack([1e-8 * AGE, 1e8 * OTHER]),
    "a constant": np.column_stack([np.full(N, 3.0), AGE]),
    "constants": np.column_stack([np.full(N, 3.0), np.zeros(N)]),
    "one of each": (YEAR[:, None] == np.unique(YEAR)).astype(float),
    "half of the rows": RNG.normal(size=(N, N // 2)),
}
FORMS = {
    "rows": (np.asarray, 1),
    "columns, 3 shards": (np.asfortranarray, 3),
    "sparse": (sp.csc_array, 1),
}
LANES = [
    "columns, 3 shards",
    *(pytest.param(form, marks=pytest.mark.slow) for form in ("rows", "sparse")),
]


def with_covariates(covariates):
    return np.column_stack([covariates, G]), np.concatenate(
        [np.zeros(covariates.shape[1]), np.ones(P)]
    )


@pytest.fixture(params=COVARIATES)
def covariates(request):
    return COVARIATES[request.param]


@pytest.mark.covering
@pytest.mark.usefixtures("solved")
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("form", LANES)
def test_lasso_with_covariates(covariates, form, fit_intercept):
    X, factors = with_covariates(covariates)
    make, n_shards = FORMS[form]
    ours = PrioritizedLasso(
        0.05,
        l1_ratio=0.9,
        penalty_factors=factors,
        fit_intercept=fit_intercept,
        tol=1e-9,
        n_shards=n_shards,
    ).fit(make(X), Y)
    weights = np.ones(N)
    found = net_objective(X, Y, ours.coef_, ours.intercept_, 0.05, 0.9, factors, weights)
    least = net_least(X, Y, 0.05, 0.9, factors, weights, fit_intercept, False, ours.coef_)
    assert abs(found - least) <= 1.01e-9 * np.sum(Y**2) / N
    assert found - least <= ours.dual_gap_ + 1e-9 * np.var(
        Y
    )  # coefficients of a million take six digits
    assert ours.dual_gap_ >= -1e-13 and ours.n_iter_ < 60


@pytest.mark.covering
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("form", LANES)
def test_logistic_with_covariates(covariates, form, fit_intercept):
    """The oracle is given a basis of the covariates: no solver on their columns gets far."""
    labels = Y > 0
    X, factors = with_covariates(covariates)
    make, n_shards = FORMS[form]
    ours = SparseLogisticRegression(
        0.3, penalty_factors=factors, fit_intercept=fit_intercept, tol=1e-8, n_shards=n_shards
    ).fit(make(X), labels)
    centre = np.ones((N, 1)) if fit_intercept else np.zeros((N, 1))
    centred = without(centre, covariates)
    varied = centred[:, np.linalg.norm(centred, axis=0) > 1e-9 * np.linalg.norm(covariates, axis=0)]
    left, values, _ = np.linalg.svd(varied / np.linalg.norm(varied, axis=0), full_matrices=False)
    basis = left[:, values > 1e-12] * np.sqrt(N)
    sign, weights = np.where(labels, 1.0, -1.0), np.ones(N)
    known = np.concatenate([np.zeros(basis.shape[1]), np.ones(P)])
    start = np.zeros(basis.shape[1] + P)
    least = logistic_net_least(
        np.column_stack([basis, G]), sign, 0.3, 1.0, known, weights, fit_intercept, start, 0.0
    )
    found = logistic_net_objective(
        X, sign, ours.coef_[0], ours.intercept_[0], 0.3, 1.0, factors, weights
    )
    at_zero = 0.3 * N * np.log(2.0)
    assert abs(found - least) <= 2e-8 * at_zero
    assert found - least <= ours.dual_gap_[0] + 1e-9 * at_zero


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("pipeline_depth", [1, 3])
@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
def test_every_schedule_certifies_what_it_returns(schedule, pipeline_depth, form):
    """Columns without penalty move with each certificate, which the rounds have to know."""
    X, factors = with_covariates(COVARIATES["two"])
    X, factors = X[:, :14] + 1.0, factors[:14] * np.linspace(0.5, 2.0, 14)
    options = {
        "schedule": SCHEDULES[schedule](2, pipeline_depth=pipeline_depth),
        "random_state": 0,
    }
    options |= {"l1_ratio": 0.7, "penalty_factors": factors, "n_shards": 3}
    weights = np.ones(N)
    ours = PrioritizedLasso(0.1, tol=1e-8, **options).fit(form(X), Y)
    found = net_objective(X, Y, ours.coef_, ours.intercept_, 0.1, 0.7, factors, weights)
    least = net_least(X, Y, 0.1, 0.7, factors, weights, True, False, ours.coef_)
    assert found - least <= ours.dual_gap_ + 1e-14 and ours.dual_gap_ <= 1e-8 * np.var(Y)
    assert ours.history_[-1]["objective"] == pytest.approx(found, rel=1e-12)
    fitted = SparseLogisticRegression(0.2, tol=1e-7, **options).fit(form(X), Y > 0)
    sign, problem = np.where(Y > 0, 1.0, -1.0), (0.2, 0.7, factors, weights)
    found = logistic_net_objective(X, sign, fitted.coef_[0], fitted.intercept_[0], *problem)
    least = logistic_net_least(
        X, sign, *problem, True, fitted.coef_[0], float(fitted.intercept_[0])
    )
    assert found - least <= fitted.dual_gap_[0] + 1e-12 and fitted.dual_gap_[
        0
    ] <= 1e-7 * 0.2 * N * np.log(2)
    assert fitted.history_[-1]["objective"] * 0.2 * N == pytest.approx(found, rel=1e-12)


@pytest.mark.usefixtures("solved")
def test_the_gap_of_rounded_coefficients_of_covariates_is_true():
    """Rounded coefficients of t and t² miss the best fit by far more than on other columns."""
    years = YEAR.astype(np.float32)
    X = np.column_stack([years, years**2, G.astype(np.float32)])
    factors = np.concatenate([np.zeros(2), np.ones(P)])
    ours = PrioritizedLasso(0.05, penalty_factors=factors, tol=1e-6).fit(X, Y)
    exact = X.astype(float)
    found = net_objective(
        exact, Y, ours.coef_.astype(float), ours.intercept_, 0.05, 1.0, factors, np.ones(N)
    )
    assert ours.history_[-1]["objective"] == pytest.approx(found, rel=1e-11)


@pytest.mark.slow  # which kernels are compiled for anew
@pytest.mark.parametrize(
    ("l1_ratio", "weighted"), [(0.5, True), (1.0, False), (1.0, True), (0.5, False)]
)
def test_large_sparse_problems_on_their_residuals(l1_ratio, weighted):
    rng = np.random.default_rng(1)
    X = sp.random_array((400, 700), density=0.03, rng=rng, format="csc")
    y = X[:, :50] @ rng.normal(size=50) + 0.1 * rng.normal(size=400)
    weights = rng.random(400) + 0.5 if weighted else np.ones(400)
    factors = rng.choice([0.5, 1.0, 2.0], 700)
    factors[[0, 3, 600]] = 0.0
    dense = X.toarray()
    assert prefer_residual(extent(X))
    for n_shards in (1, 3):
        ours = PrioritizedLasso(
            1e-4, l1_ratio=l1_ratio, penalty_factors=factors, tol=1e-9, n_shards=n_shards
        )
        ours.fit(X, y, sample_weight=weights)
        found = net_objective(
            dense, y, ours.coef_, ours.intercept_, 1e-4, l1_ratio, factors, weights
        )
        least = net_least(dense, y, 1e-4, l1_ratio, factors, weights, True, False, ours.coef_)
        assert found - least <= ours.dual_gap_ + 1e-14 <= 1.01e-9 * np.var(y) * 1.2 + 1e-14
        assert 10 < np.count_nonzero(ours.coef_) < 650
        labels = y > 0
        fitted = SparseLogisticRegression(
            20.0, l1_ratio=l1_ratio, penalty_factors=factors, tol=1e-8, n_shards=n_shards
        )
        fitted.fit(X, labels, sample_weight=weights)
        problem = np.where(labels, 1.0, -1.0), fitted.coef_[0], float(fitted.intercept_[0])
        settings = (20.0, l1_ratio, factors, weights)
        found = logistic_net_objective(dense, *problem, *settings)
        at_zero = 20.0 * weights.sum() * np.log(2)
        assert fitted.dual_gap_[0] <= 1e-8 * at_zero
        gram = SparseLogisticRegression(20.0, l1_ratio=l1_ratio, penalty_factors=factors, tol=1e-8)
        gram.fit(dense, labels, sample_weight=weights)
        other = logistic_net_objective(
            dense, problem[0], gram.coef_[0], float(gram.intercept_[0]), *settings
        )
        assert abs(found - other) <= 1e-8 * at_zero


@pytest.mark.parametrize("weighted", [False, True])
def test_directions_of_covariates_are_orthonormal(weighted):
    """Also of powers of a year, whose products show three of them at a time."""
    rng = np.random.default_rng(0)
    year = rng.uniform(1990.0, 2020.0, 200)
    X = np.column_stack([(year - 1980.0) ** power for power in range(1, 11)])
    weights = rng.random(200) + 0.05 if weighted else np.empty(0)
    used = weights if weighted else np.ones(200)
    [rows] = split_rows(X, np.zeros((1, 200)), weights, 1)
    design = Design(200)
    design.set_moments(Sums(used.sum(), 0.0, used @ X, used @ X**2, 0.0))
    steps, answer = find_span(design, np.arange(10)), None
    while True:
        try:
            answer = [steps.send(answer)(rows)[1]]
        except StopIteration as end:
            span = end.value
            break
    directions = span.basis.T @ (X - design.means).T
    assert len(directions) == 10
    np.testing.assert_allclose((directions * used) @ directions.T, np.eye(10), atol=1e-7)
