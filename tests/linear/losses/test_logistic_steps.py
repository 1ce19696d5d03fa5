"""Newton steps of logistic fits in one kernel.

Columns are small and sparse, or dense and rounded.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.elastic_net import logistic_net_least, logistic_net_objective
from oracles.rounds import by_rounds

from schmp_estimators import SparseLogisticRegression, sparse_logistic_path
from schmp_estimators.linear.losses.logistic import Logistic

#: X has to have more entries than 2¹⁸ for its fits to take their way through sparse columns.
N_ROWS, N_COLUMNS = 250, 1100
FORMS = {"sparse": sp.csc_array, "rows": np.ascontiguousarray, "columns": np.asfortranarray}


@pytest.fixture(autouse=True)
def ends(monkeypatch):
    """Let small problems go by rounds, too, where the steps are; returns how they have ended."""
    found, descend = [], Logistic.descend
    by_rounds(monkeypatch)
    monkeypatch.setattr(
        Logistic, "descend", lambda *given: found.append(descend(*given)) or found[-1]
    )
    return found


@pytest.fixture(scope="module", params=FORMS)
def problem(request):
    """Return counts of few words, or columns with means, of different sizes.

    Labels that depend on some of them.
    """
    rng = np.random.default_rng(0)
    if request.param == "sparse":
        often = rng.gamma(0.5, 0.05, N_COLUMNS)
        often[:60] = rng.gamma(2.0, 0.2, 60)
        X = rng.poisson(often, (N_ROWS, N_COLUMNS)).astype(float)
    else:
        X = (rng.normal(size=(N_ROWS, N_COLUMNS)) + rng.normal(size=N_COLUMNS)) * np.exp(
            rng.normal(size=N_COLUMNS)
        )
    deviation = np.maximum(X[:, :25].std(axis=0), 0.1)
    score = (X[:, :25] - X[:, :25].mean(axis=0)) @ (rng.normal(size=25) / deviation)
    return FORMS[request.param], X, np.where(score + rng.normal(size=N_ROWS) > 0.0, 1.0, -1.0)


@pytest.mark.covering
@pytest.mark.parametrize("options", [{}, {"l1_ratio": 0.5}, {"fit_intercept": False}])
@pytest.mark.parametrize("C", [0.3, 30.0])
def test_fits_by_these_steps_are_optimal(ends, problem, C, options):
    """The last columns depend on each other, which at a large C other steps have to finish."""
    form, X, y = problem
    rng, X = np.random.default_rng(3), X.copy()
    X[:, -30:] = np.repeat(X[:, :3], 10, axis=1) * (1.0 + 1e-2 * rng.random((N_ROWS, 30)))
    X = X if form is sp.csc_array or "fit_intercept" not in options else X - X.mean(axis=0)
    weights, factors = rng.uniform(0.2, 2.0, N_ROWS), np.ones(N_COLUMNS)
    fit = SparseLogisticRegression(C, tol=1e-9, **options).fit(form(X), y, sample_weight=weights)
    assert ends
    given = X, y, C, options.get("l1_ratio", 1.0), factors, weights
    start = fit.coef_[0], float(fit.intercept_[0])
    least = logistic_net_least(*given, fit.fit_intercept, *start)
    found = logistic_net_objective(X, y, *start, *given[2:])
    assert found - least <= fit.dual_gap_[0] + 1e-12 * C * N_ROWS
    assert 0.0 <= fit.dual_gap_[0] <= 1e-9 * C * weights.sum() * np.log(2)


@pytest.mark.covering
@pytest.mark.parametrize("scale", [1e-5, 1e40])
def test_units_of_columns_and_weights_do_not_matter(ends, problem, scale):
    form, X, y = problem
    weights, options = (
        np.random.default_rng(1).uniform(0.5, 2.0, N_ROWS),
        {"fit_intercept": False, "tol": 1e-10},
    )
    fit = SparseLogisticRegression(0.3, **options).fit(form(X), y, sample_weight=weights)
    plain = len(ends)
    other = SparseLogisticRegression(0.3 / scale, **options)
    other.fit(form(X / scale), y, sample_weight=weights * scale * scale)
    assert len(ends) > plain > 0
    np.testing.assert_allclose(other.coef_ / scale, fit.coef_, rtol=1e-4, atol=1e-5)


def test_paths_on_a_dense_x_make_these_steps(ends, problem):
    form, X, y = problem
    if form is sp.csc_array:
        pytest.skip("a path has a scope, and steps on sparse columns are on all of them")
    Cs, _, _, gaps = sparse_logistic_path(form(X), y, Cs=5)
    assert ends and (gaps <= 1e-4 * np.log(2) * N_ROWS * Cs).all()


def test_columns_that_vary_by_less_than_rounding_do_not_join(problem):
    form, X, y = problem
    X = X.copy()
    X[:, -1] = 1e15
    X[0, -1] += 0.125
    with pytest.warns(UserWarning, match="Columns 1099 of X vary by less than the rounding"):
        fit = SparseLogisticRegression(3.0, tol=1e-6).fit(form(X), y)
    assert fit.coef_[0, -1] == 0.0
    assert fit.dual_gap_[0] <= 1e-6 * 3.0 * N_ROWS * np.log(2)
