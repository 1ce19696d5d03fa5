"""Every certificate is a bound.

That of each step, that of the point returned, and none where there is none.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import lasso_gap, lasso_objective, logistic_objective
from oracles.rounds import by_rounds
from sklearn.linear_model import Lasso

from schmp_estimators.core.engine.dynamic import run_coroutine
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.place import Place
from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.logistic import SparseLogisticRegression
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs import input as parts
from schmp_estimators.linear.programs.certificate import Certificate, Screening
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.jobs import Sums
from schmp_estimators.linear.programs.joint import ResolveJoint
from schmp_estimators.linear.programs.joint_jobs import DualValue, Looked


def correlated(seed, n=80, p=300):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.9 * X[:, j - 1] + 0.44 * X[:, j]
    causes = X[:, :: max(1, p // 20)]
    return X, causes @ rng.normal(size=causes.shape[1]) + 0.5 * rng.normal(size=n)


def run(program, X, y):
    """Run a program, and return the objective of each record."""
    records = []
    run_coroutine(
        program, Rounds(Place(), parts.split_rows(X, y, np.empty(0), 1)), report=records.append
    )
    return [record["objective"] for record in records]


class Guessing(ResolveJoint):
    """Remembers each record.

    Looks at half of the columns, and not at the likely ones, three times.
    """

    guesses = 0

    def __init__(self, *given, **start):
        super().__init__(*given, **start)
        self.seen = []

    def record(self):
        found = super().record()
        self.seen.append((self.point.coef[0].copy(), found, self.screening.scope is not None))
        return found

    def _narrow(self, cells, levels, support):
        if self.screening.scope is not None or self.guesses == 3:
            return slice(None)
        self.guesses += 1
        half = np.random.default_rng(self.guesses).random(len(cells)) < 0.5
        half |= support | self._is_kept()
        goal = max(self.certificate.tolerance, 0.02 * self.certificate.gap)
        self.screening = Screening(cells[half], goal)
        self.point.gradient = self.point.gradient[:, half]
        return half


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", [5, 30])
def test_every_record_bounds_the_whole_problem_also_on_a_guessed_scope(seed, part):
    X, y = correlated(seed)
    Z, t = X - X.mean(axis=0), y - y.mean()
    alpha = np.abs(Z.T @ t).max() / len(y) / part
    best = Lasso(alpha, tol=1e-12, max_iter=100_000).fit(Z, t)
    least = lasso_objective(Z, t, best.coef_, 0.0, alpha)
    given = L1(alpha * len(y)), Design(len(y)), 1e-9, 100
    program = Guessing(*given, loss=Squared(), n_columns=X.shape[1])
    run(program, X, y)
    assert any(provisional for _, _, provisional in program.seen)
    previous = np.inf
    for coef, record, _ in program.seen:
        excess = lasso_objective(Z, t, coef, 0.0, alpha) - least
        assert record["dual_gap"] >= excess - 1e-12 and record["dual_gap"] <= previous + 1e-12
        previous = record["dual_gap"]
    assert program.certificate.converged and program.screening.scope is None


@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.02), SparseLogisticRegression(2.0)])
@pytest.mark.parametrize("form", [np.ascontiguousarray, sp.csc_array])
def test_gap_of_float32_coefficients_is_that_of_the_rounded_ones(estimator, form):
    X, y = correlated(1, 60, 100)
    X = X.astype(np.float32)
    wide, target = (
        X.astype(np.float64),
        y if isinstance(estimator, PrioritizedLasso) else np.where(y > 0, 1.0, -1.0),
    )
    fitted = estimator.set_params(tol=1e-12).fit(form(X), target)
    assert fitted.coef_.dtype == np.float32
    coef, level = fitted.coef_.ravel().astype(np.float64), float(np.ravel(fitted.intercept_)[0])
    if isinstance(estimator, PrioritizedLasso):
        best = Lasso(0.02, tol=1e-14, max_iter=1_000_000).fit(wide, y)
        least = lasso_objective(wide, y, best.coef_, best.intercept_, 0.02)
        excess = lasso_objective(wide, y, coef, level, 0.02) - least
    else:
        best = SparseLogisticRegression(2.0, tol=1e-13).fit(wide, target)
        least = (
            logistic_objective(wide, target, best.coef_[0], best.intercept_[0], 2.0)
            - best.dual_gap_[0]
        )
        excess = logistic_objective(wide, target, coef, level, 2.0) - least
    assert excess <= np.max(fitted.dual_gap_) + 1e-13 * 60
    scale = 1.0 if isinstance(estimator, PrioritizedLasso) else 2.0 * 60
    assert fitted.history_[-1]["objective"] * scale == pytest.approx(least + excess, rel=1e-13)


def test_a_gap_below_zero_is_no_convergence():
    """A bound that is too high neither ends a fit as converged nor stays.

    A wrong bound would be like this.
    """
    X, y = correlated(2)

    class Wrong(Certificate):
        count = 0

        def certify(self, *given):
            super().certify(*given)
            self.count += 1
            if self.count == self.wrong_at:
                self.best_dual, self.gap = 2.0 * self.objective, -self.objective

    for wrong_at in (1, 2, 3):
        given = L1(0.05 * len(y)), Design(len(y)), 1e-8, 100
        program = ResolveJoint(*given, loss=Squared(), n_columns=X.shape[1])
        program.certificate = certificate = Wrong(1e-8)
        certificate.wrong_at = wrong_at
        run(program, X, y)
        assert not program.fell_short and 0.0 <= certificate.gap + 1e-12 <= certificate.tolerance
        solution = program.solution()
        assert lasso_gap(X, y, solution.coef, solution.intercept, 0.05) <= 1.1e-8 * np.var(y)
    assert not Certificate(1.0, objective=1.0, gap=-1e-6).converged
    # sums that were large at zero are rounded as large ones
    assert Certificate(1.0, objective=1e-9, gap=-1e-13, null_objective=1.0).converged


def certified_at(slope, level=0.0):
    """Return a logistic fit without coefficients.

    Its dual objective is that of its point but for this slope.
    """
    X, _ = correlated(3, 40, 10)
    program = ResolveJoint(L1(1.0), Design(40), 1.0, 5, loss=Logistic(), n_columns=10)
    program.design.set_moments(Sums(40.0, 0.0, X.sum(axis=0), (X**2).sum(axis=0), 0.0))
    program.certificate.null_objective = null = 40 * np.log(2.0)
    program.point.coef, program.point.gradient = np.zeros((2, 1, 10))
    program.point.level = np.full((1, 1), level)
    program._looked = Looked(null, np.full((1, 1), slope), np.ones((1, 1)), 40.0, 40.0)
    steps = program._certify(null)
    assert isinstance(next(steps).job, DualValue)
    with pytest.raises(StopIteration):
        steps.send(null)
    return program


def test_nothing_is_certified_while_the_intercept_is_unsettled():
    program = certified_at(1.0)
    assert not program.certificate.converged and program.record()["dual_gap"] == np.inf


@pytest.mark.parametrize("level", [0.0, -7.0])
def test_the_gap_has_what_is_left_of_the_slope_of_the_intercept(level):
    """A slope times the way to zero, and once more as far."""
    gap = certified_at(1e-8, level).certificate.gap
    assert gap == pytest.approx(2e-8 * max(1.0, abs(level)), rel=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
def test_each_record_of_a_logistic_fit_has_a_bound(monkeypatch, form):
    """The best intercept belongs to each certificate.

    It is looked for until it is found, however far away it is.
    """
    by_rounds(monkeypatch)
    X, response = correlated(5, 120, 40)
    y = response > np.quantile(response, 0.97)
    fitted = SparseLogisticRegression(0.5).fit(form(X), y)
    assert len(fitted.history_) > 3
    assert np.isfinite([record["dual_gap"] for record in fitted.history_]).all()


def test_only_consecutive_steps_that_change_nothing_end_a_fit():
    certificate = Certificate(1e-9)
    for objective in np.repeat([3.0, 2.0, 1.0], 10):
        certificate.certify(objective, 0.5, Screening())
        assert not certificate.exhausted
    certificate.certify(1.0, 0.5, Screening())
    assert certificate.exhausted


def test_steps_that_cannot_lower_the_objective_leave_the_best_point():
    """A direction that is uphill, whatever its length."""
    X, y = correlated(4, 60, 30)
    sign = np.where(y > 0, 1.0, -1.0)

    class Uphill(ResolveJoint):
        def _on_matrix(self, chosen):
            chosen, change, levels = yield from super()._on_matrix(chosen)
            if self.work.n_iter < 3:
                return chosen, change, levels
            uphill = 1e6 * np.sign(self.point.coef[0, chosen.places]) + 1e3
            return chosen, uphill, levels

    program = Uphill(L1(1.0), Design(60), 1e-12, 100, loss=Logistic(), n_columns=30)
    objectives, solution = run(program, X, sign), program.solution()
    assert solution.fell_short and solution.n_iter < 10
    assert objectives[-1] <= min(objectives) * (1 + 1e-11)
    found = logistic_objective(X, sign, solution.coef, solution.intercept, 1.0) / 60
    assert found == pytest.approx(objectives[-1], rel=1e-12)


@pytest.mark.parametrize("value", [1e160, 1e307])
def test_responses_whose_squares_overflow_are_refused(value):
    X, y = correlated(0, 30, 10)
    ours = PrioritizedLasso(0.1).fit(X, y)
    coef = ours.coef_.copy()
    with pytest.raises(
        ValueError, match=r"y holds values up to .* whose squares overflow float64; divide y"
    ):
        ours.fit(X, y / np.abs(y).max() * value)
    np.testing.assert_array_equal(ours.coef_, coef)
    with pytest.raises(ValueError, match="sample weights up to"):
        ours.fit(X, y, sample_weight=1e307 * np.linspace(0.5, 1.0, 30))


def test_covariates_that_are_rounded_do_not_move_with_the_intercept():
    X, y = correlated(6, 60, 12)
    X[:, 3] += 2.0 * (y > 0)
    labels, strengths = np.where(y > 0, 1.0, -1.0), np.where(np.arange(12) < 3, 0.0, 2.0)
    given = L1(strengths), Design(60), 1e-9, 100
    program = ResolveJoint(*given, loss=Logistic(), n_columns=12, dtype=np.float32)
    run(program, X, labels)
    coef = program.solution().coef
    assert program.rounded and coef[:3].all()
    np.testing.assert_allclose(coef, coef.astype(np.float32), rtol=1e-12)
