"""The scale of X and of y.

A power of two changes no bit, and what underflows is refused, never certified.
"""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import schmp_estimators as se
from schmp_estimators.core.schedules.dynamic import SCHEDULES

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 30))
X[:, 20:] += 2.0 * X[:, :10]  # some columns are related
Y = 3.0 * X[:, 0] - X[:, 5] + rng.normal(size=60)
FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray, "sparse": sp.csc_array}
SCHEDULED = [{"schedule": kind(4), "random_state": 0} for kind in SCHEDULES.values()]
OPTIONS = [
    {},
    {"penalty_factors": np.arange(30) % 3},
    {"n_shards": 2},
    {"fit_intercept": False},
    *SCHEDULED,
]


@pytest.mark.covering
@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: str(next(iter(options.values()), "plain"))[:11]
)
@pytest.mark.parametrize("form", FORMS)
def test_a_power_of_two_changes_no_bit_of_a_lasso(form, options):
    given, tol = FORMS[form](X), 0.05 if "schedule" in options else 1e-6
    plain = se.PrioritizedLasso(0.0625, tol=tol, **options).fit(given, Y)
    for exponent in (-460, 300):
        unit = 2.0**exponent
        ours = se.PrioritizedLasso(0.0625 * unit, tol=tol, **options).fit(given * unit, Y)
        np.testing.assert_array_equal(ours.coef_ * unit, plain.coef_)
        assert ours.dual_gap_ == plain.dual_gap_
        ours = se.PrioritizedLasso(0.0625 * unit, tol=tol, **options).fit(given, Y * unit)
        np.testing.assert_array_equal(ours.coef_ / unit, plain.coef_)


TINY = 1e-170
CLASSES = Y > 0
USES = {
    **{
        f"lasso, {next(iter(options.values()), 'plain')}"[:20]: lambda X, y, z, options=options: (
            se.PrioritizedLasso(0.05 * TINY, **options).fit(X, y)
        )
        for options in OPTIONS
    },
    "elastic net": lambda X, y, z: se.PrioritizedLasso(0.05 * TINY, l1_ratio=0.5).fit(X, y),
    "logistic": lambda X, y, z: se.SparseLogisticRegression(1.0 / TINY).fit(X, z),
    "logistic, random": lambda X, y, z: se.SparseLogisticRegression(1.0 / TINY, **SCHEDULED[1]).fit(
        X, z
    ),
    "lasso path": lambda X, y, z: se.prioritized_lasso_path(X, y, alphas=3),
    "logistic path": lambda X, y, z: se.sparse_logistic_path(X, z, Cs=[1.0 / TINY]),
    "lasso CV": lambda X, y, z: se.PrioritizedLassoCV(alphas=[0.05 * TINY]).fit(X, y),
    "logistic CV": lambda X, y, z: se.SparseLogisticRegressionCV(Cs=3).fit(X, z),
    "any loss": lambda X, y, z: se.SparseGLM(alpha=TINY).fit(X, y),
    "any loss, logistic": lambda X, y, z: se.SparseGLM("logistic", alpha=TINY).fit(X, z),
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
        with pytest.raises(
            ValueError,
            match=r"column \d+ of X holds values whose squares.* underflow.*power of ten",
        ):
            USES[use](given, Y, CLASSES)


@pytest.mark.parametrize("use", [use for use in USES if "logistic" not in use])
def test_responses_whose_squares_underflow_are_refused(use):
    with pytest.raises(
        ValueError, match=r"y holds values up to .* whose squares underflow float64; multiply y by"
    ):
        USES[use](X, Y * 1e-160, CLASSES)
    with pytest.raises(ValueError, match="squares underflow"):
        se.PrioritizedLasso().fit(X, np.column_stack([Y, Y * 1e-160]))
    for constant in (0.0, 1e-200):
        found = se.PrioritizedLasso().fit(X, np.full(60, constant)).intercept_
        assert found == pytest.approx(constant, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_tiny_column_is_left_out_unless_its_penalty_is_tiny_too(n_shards):
    """Beside columns of the usual size, where its squares are lost but those of others are not."""
    given, factors = X.copy(), np.ones(30)
    given[:, 3] *= TINY
    options = {"n_shards": n_shards, "penalty_factors": factors, "tol": 1e-8}
    plain = se.PrioritizedLasso(0.05, **options).fit(given, Y)
    rest = se.PrioritizedLasso(0.05, n_shards=n_shards, tol=1e-8).fit(np.delete(X, 3, axis=1), Y)
    assert plain.coef_[3] == 0.0
    np.testing.assert_allclose(np.delete(plain.coef_, 3), rest.coef_, atol=1e-6)
    factors[3] = TINY
    with pytest.raises(ValueError, match=r"column 3 of X holds values whose squares"):
        se.PrioritizedLasso(0.05, **options).fit(given, Y)
