"""The scale of X and of y: a power of two changes no bit, and what underflows is refused, never certified."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseGLM,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    prioritized_lasso_path,
    sparse_logistic_path,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 30))
X[:, 20:] += 2.0 * X[:, :10]  # some columns are related
Y = 3.0 * X[:, 0] - X[:, 5] + rng.normal(size=60)
FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "sparse": sp.csc_array}
SCHEDULES = [{"schedule": name, "n_parallel": 4, "random_state": 0} for name in ("priority", "random", "round_robin")]
OPTIONS = [{}, {"penalty_factors": np.arange(30) % 3}, {"n_shards": 2}, {"fit_intercept": False}, *SCHEDULES]


@pytest.mark.covering
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: str(next(iter(options.values()), "plain"))[:11])
@pytest.mark.parametrize("form", FORMS)
def test_a_power_of_two_changes_no_bit_of_a_lasso(form, options):
    given, tol = FORMS[form](X), 0.05 if "schedule" in options else 1e-6
    plain = PrioritizedLasso(0.0625, tol=tol, **options).fit(given, Y)
    for exponent in (-460, 300):
        unit = 2.0**exponent
        ours = PrioritizedLasso(0.0625 * unit, tol=tol, **options).fit(given * unit, Y)
        np.testing.assert_array_equal(ours.coef_ * unit, plain.coef_)
        assert ours.dual_gap_ == plain.dual_gap_
        ours = PrioritizedLasso(0.0625 * unit, tol=tol, **options).fit(given, Y * unit)
        np.testing.assert_array_equal(ours.coef_ / unit, plain.coef_)


TINY = 1e-170
CLASSES = Y > 0
USES = {
    **{
        f"lasso, {next(iter(options.values()), 'plain')}"[:20]: lambda X, y, z, options=options: PrioritizedLasso(
            0.05 * TINY, **options
        ).fit(X, y)
        for options in OPTIONS
    },
    "elastic net": lambda X, y, z: PrioritizedLasso(0.05 * TINY, l1_ratio=0.5).fit(X, y),
    "logistic": lambda X, y, z: SparseLogisticRegression(1.0 / TINY).fit(X, z),
    "logistic, random": lambda X, y, z: SparseLogisticRegression(1.0 / TINY, **SCHEDULES[1]).fit(X, z),
    "lasso path": lambda X, y, z: prioritized_lasso_path(X, y, alphas=3),
    "logistic path": lambda X, y, z: sparse_logistic_path(X, z, Cs=[1.0 / TINY]),
    "lasso CV": lambda X, y, z: PrioritizedLassoCV(alphas=[0.05 * TINY]).fit(X, y),
    "logistic CV": lambda X, y, z: SparseLogisticRegressionCV(Cs=3).fit(X, z),
    "any loss": lambda X, y, z: SparseGLM(alpha=TINY).fit(X, y),
    "any loss, logistic": lambda X, y, z: SparseGLM("logistic", alpha=TINY).fit(X, z),
}


@pytest.mark.parametrize("use", USES)
def test_columns_whose_squares_underflow_are_refused(use):
    signs = np.where(np.arange(60)[:, None] % 2, 1.0, -1.0) * np.ones(30)  # which add up to zero
    for given in (
        X * TINY,
        sp.csr_array(X * TINY),
        da.from_array(X * TINY, chunks=(25, 30)),
        signs * TINY,
        np.where(np.arange(30) < 2, 0.0, X * TINY),
        (1.0 + 1e-3 * X) * 1e-161,
    ):
        with pytest.raises(ValueError, match=r"column \d+ of X holds values whose squares.* underflow.*power of ten"):
            USES[use](given, Y, CLASSES)


@pytest.mark.parametrize("use", [use for use in USES if "logistic" not in use])
def test_responses_whose_squares_underflow_are_refused(use):
    with pytest.raises(ValueError, match=r"y holds values up to .* whose squares underflow float64; multiply y by"):
        USES[use](X, Y * 1e-160, CLASSES)
    with pytest.raises(ValueError, match="squares underflow"):
        PrioritizedLasso().fit(X, np.column_stack([Y, Y * 1e-160]))
    for constant in (0.0, 1e-200):
        assert PrioritizedLasso().fit(X, np.full(60, constant)).intercept_ == pytest.approx(constant, rel=1e-12, abs=0)


@pytest.mark.parametrize("form", FORMS)
def test_a_tiny_column_beside_others_is_left_out_where_that_is_right(form):
    """Its coefficient is zero for any penalty above its gradient; where it would not be, there is no certificate."""
    mixed = X * np.where(np.arange(30) == 3, TINY, 1.0)
    ours = PrioritizedLasso(0.05, tol=1e-10).fit(FORMS[form](mixed), Y)
    theirs = Lasso(0.05, tol=1e-10, max_iter=100_000).fit(np.delete(mixed, 3, axis=1), Y)
    np.testing.assert_allclose(np.delete(ours.coef_, 3), theirs.coef_, atol=1e-6)
    assert ours.coef_[3] == 0.0 and 0.0 <= ours.dual_gap_ <= 1e-10 * np.var(Y)
    assert SparseLogisticRegression().fit(FORMS[form](mixed), CLASSES).coef_[0, 3] == 0.0
    for factor in (0.0, TINY):
        factors = np.where(np.arange(30) == 3, factor, 1.0)
        for estimator, y in ((PrioritizedLasso, Y), (SparseLogisticRegression, CLASSES)):
            with pytest.raises(ValueError, match="column 3 of X holds values whose squares"):
                estimator(penalty_factors=factors).fit(FORMS[form](mixed), y)
    for path, penalties in (
        (prioritized_lasso_path, {"alphas": [0.1, TINY]}),
        (sparse_logistic_path, {"Cs": [1 / TINY]}),
    ):
        with pytest.raises(ValueError, match="column 3 of X holds values whose squares"):
            path(FORMS[form](mixed), CLASSES, **penalties)
    empty = X * np.where(np.arange(30) == 3, 0.0, 1.0)
    assert PrioritizedLasso(0.05, penalty_factors=factors).fit(FORMS[form](empty), Y).coef_[3] == 0.0


def test_the_priority_schedule_knows_correlations_at_any_scale():
    """Columns that are all but copies of each other, of which no two may be updated together."""
    related = np.repeat(X[:, :8], 4, axis=1) + 0.05 * np.random.default_rng(0).normal(size=(60, 32))
    for unit in (2.0**-330, 2.0**270):
        options = {"schedule": "priority", "n_parallel": 16, "random_state": 0, "tol": 1e-2}
        fitted = PrioritizedLasso(0.0625 * unit, **options).fit(related * unit, Y)
        assert fitted.dual_gap_ <= 1e-2 * np.var(Y)
