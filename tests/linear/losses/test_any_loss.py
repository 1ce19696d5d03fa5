"""A loss of one's own, as in the gallery, is that of another library.

And what losses cannot take.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from pages import example
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from schmp_estimators import SparseGLM, schmp
from schmp_estimators.penalised import L1, Huber, Poisson

SquaredHinge = example("plot_your_own_loss").SquaredHinge
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 150)) + RNG.normal(size=(80, 1))
Y = np.where(X[:, :4].sum(axis=1) + RNG.normal(size=80) > 0.0, 1.0, -1.0)
PRIORITY = {"schedule": schmp.Priority(4), "random_state": 0}


@pytest.mark.covering
@pytest.mark.parametrize(
    "form", [np.ascontiguousarray, np.asfortranarray, lambda X: sp.csc_array(X * (np.abs(X) > 1.2))]
)
@pytest.mark.parametrize(
    "options", [{}, {"n_shards": 3}, pytest.param(PRIORITY, marks=pytest.mark.slow)]
)
def test_squared_hinge_is_that_of_linear_svc(form, options):
    n_columns, tol = (50, 1e-4) if "schedule" in options else (150, 1e-9)
    given = form(X[:, :n_columns])
    ours = SparseGLM(
        SquaredHinge(), L1(4.0), 1.0 / 80, fit_intercept=False, tol=tol, **options
    ).fit(given, Y)
    exact = {
        "dual": False,
        "fit_intercept": False,
        "tol": 1e-9,
        "max_iter": 100_000,
        "random_state": 0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = LinearSVC(penalty="l1", C=0.25, **exact).fit(sp.csr_matrix(given), Y)
    found, best = (
        4.0 * np.abs(one.coef_).sum()
        + (np.maximum(0.0, 1.0 - Y * (given @ np.ravel(one.coef_))) ** 2).sum()
        for one in (ours, theirs)
    )
    assert 80 * ours.history_[-1]["objective"] == pytest.approx(found, rel=1e-12)
    assert found - best <= 80 * np.ravel(ours.dual_gap_)[0] <= 1.01 * tol * 80 + 1e-12


def test_losses_refuse_what_they_cannot_take():
    with pytest.raises(ValueError, match=r"y >= 0; got -1: give counts or rates"):
        SparseGLM(Poisson(), L1(1.0)).fit(X, np.where(np.arange(80) == 7, -1.0, 2.0))
    with pytest.raises(
        TypeError, match=r"'priority' needs a loss with a finite `smoothness`.*Poisson"
    ):
        SparseGLM(Poisson(), L1(1.0), schedule="priority").fit(X, np.ones(80))
    for epsilon in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(
            ValueError, match="epsilon of the Huber loss must be a finite number > 0"
        ):
            Huber(epsilon)
