"""Fits, paths and cross-validation that need no rounds.

Their certificates by brute force, and scikit-learn.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.rounds import by_rounds
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from schmp_estimators import PrioritizedLasso, prioritized_lasso_path
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs import constant, joint
from schmp_estimators.linear.programs.choose import choose_solver, is_small
from schmp_estimators.linear.programs.constant import ConstantSteps
from schmp_estimators.linear.programs.gram import GramProblem
from schmp_estimators.linear.programs.input import Extent
from schmp_estimators.linear.programs.resolve import Path
from schmp_estimators.linear.programs.stored import Dense

FORMS = [np.ascontiguousarray, np.asfortranarray, sp.csc_array]


def exact_gap(X, y, weights, coef, alpha, l1_ratio, factors, positive):
    """Return the gap over the objective at zero, of columns that are centred in higher precision.

    All are penalised.
    """
    X, y, weights = (np.asarray(one, np.longdouble) for one in (X, y, weights))
    weights = weights / weights.sum()
    X, y = X - weights @ X, y - weights @ y
    strengths, ridges = alpha * l1_ratio * factors, alpha * (1.0 - l1_ratio) * factors
    left = y - X @ coef
    slopes = X.T @ (weights * left) - ridges * coef
    scale = 1.0 / max(1.0, ((slopes if positive else np.abs(slopes)) / strengths).max())
    square = weights @ left**2 + ridges @ coef**2
    gap = 0.5 * (1.0 - scale) ** 2 * square + strengths @ np.abs(coef) - scale * coef @ slopes
    return float(gap / (0.5 * weights @ y**2))


def problem(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(15, 150)), int(rng.integers(2, 120))
    X = rng.normal(size=(n, p))
    X[:, 1:] += rng.choice([0.0, 0.9]) * X[:, :-1]
    if seed % 3 == 0:
        X[:, -1] = X[:, 0]
    X = X * 10.0 ** rng.integers(-3, 4, p) + rng.choice([0.0, 1e5])
    y = X[:, : min(5, p)] @ rng.normal(size=min(5, p)) / np.abs(X).max() + 0.01 * rng.normal(size=n)
    return X, y, (rng.random(n) + 0.1 if seed % 2 else np.ones(n)), rng


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        pytest.param(*(seed, seed >= 20), marks=[pytest.mark.slow] * (seed % 20 > 9))
        for seed in range(40)
    ],
)
def test_every_certificate_is_true(monkeypatch, rounds, seed):
    by_rounds(monkeypatch, value=rounds)
    X, y, weights, rng = problem(seed)
    positive, l1_ratio = seed % 5 == 4, [1.0, 0.9, 0.3][seed % 3]
    factors = rng.uniform(0.3, 3.0, X.shape[1]) if seed % 4 == 1 else np.ones(X.shape[1])
    shape = {"l1_ratio": l1_ratio, "penalty_factors": factors, "positive": positive}
    alphas, coefs, _, gaps = prioritized_lasso_path(
        FORMS[seed % 3](X), y, alphas=12, eps=1e-4, tol=1e-7, sample_weight=weights, **shape
    )
    bound = 1e-9 + 2e-7
    null = 0.5 * np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    assert (gaps <= 2e-7 * null * 1.001).all()
    for alpha, coef in zip(alphas, coefs.T, strict=True):
        assert exact_gap(X, y, weights, coef, alpha, l1_ratio, factors, positive) <= bound
    ours = PrioritizedLasso(alphas[-1], tol=1e-7, **shape).fit(
        FORMS[seed % 3](X), y, sample_weight=weights
    )
    assert exact_gap(X, y, weights, ours.coef_, alphas[-1], l1_ratio, factors, positive) <= bound


@pytest.mark.parametrize(
    ("shape", "n_fits", "expected"),
    [
        ((500, 30), 1, "gram"),
        ((2000, 200), 1, "columns"),
        ((2000, 200), 100, "gram"),
        ((100, 1000), 100, "columns"),
        ((100_000, 100), 1, "gram"),
        ((100_000, 2000), 1, "rounds"),
        ((1000, 50_000), 100, "rounds"),
    ],
)
def test_the_solver_follows_from_the_shape(shape, n_fits, expected):
    size = Extent(*shape, shape[0] * shape[1], False, np.dtype(float))
    alike, free = L1(1.0), L1(np.array([0.0, 1.0]))
    assert choose_solver(PrioritizedLasso(), size, n_fits, alike, Squared()) == expected
    of_free, of_logistic = (expected, "newton") if is_small(size) else ("rounds", "rounds")
    assert choose_solver(PrioritizedLasso(), size, n_fits, free, Squared()) == of_free
    assert choose_solver(None, size, n_fits, alike, Logistic()) == of_logistic
    assert choose_solver(None, size, n_fits, free, Logistic()) == "rounds"
    assert (
        choose_solver(PrioritizedLasso(checkpoint="here.npz"), size, n_fits, alike, Squared())
        == "rounds"
    )
    assert (
        choose_solver(PrioritizedLasso(schedule="random"), size, n_fits, alike, Squared())
        == "scheduled"
    )


@pytest.mark.parametrize(("seed", "positive"), [(0, False), (1, True)])
def test_a_path_by_rounds_reads_the_columns_that_earlier_gradients_leave_in_doubt(
    monkeypatch, seed, positive
):
    by_rounds(monkeypatch)
    read, gradient = [], Dense.gradient

    def counted(self, vector, scope):
        read.append(self.n_columns if scope is None else len(scope))
        return gradient(self, vector, scope)

    bounds, bounded = ConstantSteps._bounds, []

    def noted(self):
        bounded.append((self.point.coef[0].copy(), bounds(self)))
        return bounded[-1][1] if bounded[-1][1] is None else bounded[-1][1].copy()

    scopes, go_to = [], Path._go_to

    def ended(self, penalty):
        yield from go_to(self, penalty)
        scopes.append(self.program.screening.scope)

    monkeypatch.setattr(Path, "_go_to", ended)
    monkeypatch.setattr(Dense, "gradient", counted)
    monkeypatch.setattr(ConstantSteps, "_bounds", noted)
    rng = np.random.default_rng(seed)
    X, weights = rng.normal(size=(80, 600)) + 3.0, rng.random(80) + 0.1
    y = X[:, :12] @ rng.normal(size=12) + rng.normal(size=80)
    given = {"alphas": 60, "eps": 0.02, "tol": 1e-7, "sample_weight": weights, "positive": positive}
    alphas, coefs, _, _ = prioritized_lasso_path(X, y, **given)
    for alpha, coef in zip(alphas, coefs.T, strict=True):
        assert exact_gap(X, y, weights, coef, alpha, 1.0, np.ones(600), positive) <= 2.02e-7
    assert sum(read) < 0.5 * 60 * 600
    assert scopes == [None] * 60  # no point is that of a part of the columns
    centred, left = X - np.average(X, axis=0, weights=weights), y - np.average(y, weights=weights)
    known = [(coef, bound) for coef, bound in bounded if bound is not None]
    assert len(known) > 40
    for coef, bound in known:
        slopes = (weights * (left - centred @ coef)) @ centred
        assert (slopes <= bound).all() if positive else (np.abs(slopes) <= np.abs(bound)).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_steps_that_change_nothing_end_on_all_columns(monkeypatch):
    """No gap is zero, so a path stops at rounding.

    On likely columns alone it would see no other.
    """
    by_rounds(monkeypatch)
    scopes, go_to = [], Path._go_to

    def ended(self, penalty):
        yield from go_to(self, penalty)
        scopes.append(self.program.screening.scope)

    monkeypatch.setattr(Path, "_go_to", ended)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 200)) + rng.normal(size=(60, 1))
    y = X[:, :10] @ rng.normal(size=10) + rng.normal(size=60)
    prioritized_lasso_path(X, y, alphas=10, eps=0.02, tol=0.0)
    assert len(scopes) == 10 and all(scope is None for scope in scopes)


def test_no_more_columns_are_kept_than_a_matrix_may_have(monkeypatch):
    by_rounds(monkeypatch)
    monkeypatch.setattr(constant, "LARGEST_GRAM", 150)
    on_kept, counts = ConstantSteps._on_kept, []

    def counted(self, chosen):
        found = yield from on_kept(self, chosen)
        counts.append(len(self.kept))
        return found

    monkeypatch.setattr(ConstantSteps, "_on_kept", counted)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300))
    y = X[:, :10] @ rng.normal(size=10) + rng.normal(size=60)
    alphas, coefs, _, _ = prioritized_lasso_path(X, y, alphas=20, eps=0.01, tol=1e-8)
    for alpha, coef in zip(alphas, coefs.T, strict=True):
        assert exact_gap(X, y, np.ones(60), coef, alpha, 1.0, np.ones(300), False) <= 2.02e-8
    assert 50 < max(counts) <= 150 and (np.diff(counts) < 0).any()


def test_a_certificate_adds_what_the_rounding_of_products_may_hide():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        alphas, coefs, _, gaps = prioritized_lasso_path(
            X, y, fit_intercept=False, alphas=6, eps=1e-9, tol=1e-15
        )
    X, y = X.astype(np.longdouble), y.astype(np.longdouble)
    for alpha, coef, gap in zip(alphas, coefs.T, gaps, strict=True):
        left = y - X @ coef
        slopes = X.T @ left / len(y)
        scale = 1.0 / max(1.0, np.abs(slopes).max() / alpha)
        exact = (
            0.5 * (1.0 - scale) ** 2 * np.mean(left**2)
            + alpha * np.abs(coef).sum()
            - scale * coef @ slopes
        )
        assert exact <= 1.1 * gap + 1e-17 * np.mean(y**2)


def test_a_weak_penalty_on_correlated_columns_does_not_go_coefficient_by_coefficient():
    """Exact steps on a large support would cost half as much again.

    One coefficient after the other would cut them off.
    """
    rng = np.random.default_rng(1)
    X = rng.normal(size=(260, 500))
    for j in range(500):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1.0 - 0.95**2) * X[:, j] if j % 25 else X[:, j]
    y = X[:, ::10] @ rng.normal(size=50)
    y = y + y.std() * rng.normal(size=260)
    alpha = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / 260 / 300
    ours = PrioritizedLasso(alpha, tol=1e-6).fit(X, y)
    assert exact_gap(X, y, np.ones(260), ours.coef_, alpha, 1.0, np.ones(500), False) <= 2.02e-6
    assert np.count_nonzero(ours.coef_) > 200 and ours.history_[-1]["samples"] < 1.6e8


@pytest.mark.parametrize(("part", "most"), [(100, 5e6), (1000, 1.5e7)])
def test_a_weak_penalty_is_reached_by_way_of_others(part, most):
    """Near interpolation each penalty changes most of the support.

    Straight to the last takes 2 to 6 times the work.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 300))
    y = X[:, :5].sum(axis=1) + rng.normal(size=80)
    largest = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / 80
    fitted = PrioritizedLasso(largest / part).fit(X, y)
    assert fitted.solver_ == "columns" and fitted.history_[-1]["samples"] < most
    assert (
        exact_gap(X, y, np.ones(80), fitted.coef_, fitted.alpha, 1.0, np.ones(300), False) <= 2e-4
    )


@pytest.mark.parametrize(
    ("shape", "solver"),
    [((700, 1500), "columns"), ((701, 1500), "rounds"), ((1500, 100), "columns")],
)
def test_large_supports_are_solved_by_rounds(shape, solver):
    size = Extent(*shape, shape[0] * shape[1], False, np.dtype(np.float64))
    assert choose_solver(None, size, 1, L1(1.0), Squared()) == solver


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_models_have_the_true_slopes_of_kept_columns(monkeypatch, fit_intercept):
    """Also of those that the strong rule would skip.

    The gradient of others is only bounded.
    """
    by_rounds(monkeypatch)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 600)) + rng.normal(size=(80, 1))
    y = X[:, :30] @ rng.normal(size=30) + rng.normal(size=80)
    centred, on_kept = X - fit_intercept * X.mean(axis=0), ConstantSteps._on_kept
    solve, running, apart = GramProblem.solve, [], []

    def noted(self, chosen):
        running[:] = [self]
        return (yield from on_kept(self, chosen))

    def compared(problem, target, newton):
        [program] = running
        columns, coef = program.kept.columns, program.point.coef[0].copy()
        coef[columns] = problem.coef
        residual = y - fit_intercept * y.mean() - centred @ coef
        apart.append(np.abs(problem.gradient - residual @ centred[:, columns]).max(initial=0.0))
        solve(problem, target, newton)

    monkeypatch.setattr(ConstantSteps, "_on_kept", noted)
    monkeypatch.setattr(GramProblem, "solve", compared)
    prioritized_lasso_path(X, y, alphas=30, eps=0.01, tol=1e-8, fit_intercept=fit_intercept)
    assert len(apart) > 25 and max(apart) <= 1e-8 * np.linalg.norm(y)


@pytest.mark.parametrize("most", [25, pytest.param(3, marks=pytest.mark.slow), 60])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_few_products_are_kept_at_a_time(monkeypatch, most, n_shards):
    by_rounds(monkeypatch)
    monkeypatch.setattr(constant, "LARGEST_GRAM", most)
    monkeypatch.setattr(joint, "LARGEST_GRAM", most)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 200)) + rng.normal(size=(80, 1))
    y = X[:, :30] @ rng.normal(size=30) + rng.normal(size=80)
    found = PrioritizedLasso(0.05, tol=1e-12, n_shards=n_shards).fit(X, y)
    theirs = Lasso(0.05, tol=1e-14, max_iter=1_000_000).fit(X, y)
    assert np.count_nonzero(found.coef_) > 25
    np.testing.assert_allclose(found.coef_, theirs.coef_, atol=1e-6)
