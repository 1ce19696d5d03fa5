"""Any loss with any penalty: those of the examples against scikit-learn, brute force and the estimators."""

import ast
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.glm import Glm
from scipy.special import huber
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from schmp_estimators import SparseGLM
from schmp_estimators.penalised import L1, MCP, Huber, Poisson, Squared


class Minimum(SimpleNamespace):
    """A fit of Σ s ℓ + P, a sum and not a mean."""


def minimise(X, y, *, loss, penalty, sample_weight=None, tol=1e-6, **options):
    total = len(y) if sample_weight is None else np.sum(sample_weight)
    model = SparseGLM(loss, penalty, 1.0 / total, tol=tol, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight)
    last = {name: total * np.ravel(getattr(model, name, np.nan))[0] for name in ("dual_gap_", "stationarity_")}
    return Minimum(
        coef=np.ravel(model.coef_),
        intercept=np.ravel(model.intercept_)[0],
        objective=total * model.history_[-1]["objective"],
        dual_gap=None if np.isnan(last["dual_gap_"]) else last["dual_gap_"],
        stationarity=last["stationarity_"],
        converged=not any(issubclass(one.category, ConvergenceWarning) for one in caught),
        n_iter=np.ravel(model.n_iter_)[0],
    )


ROOT = Path(__file__).parents[3]


def defined(example, name):
    """Return a class of an example, without running the rest of it; it is known to pickle."""
    tree = ast.parse((ROOT / "examples" / f"{example}.py").read_text())
    kept = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    names = {"__name__": __name__}
    exec(compile(ast.Module(kept, []), example, "exec"), names)
    return names[name]


TheirMCP = defined("plot_your_own_penalty", "MCP")
SquaredHinge = defined("plot_your_own_loss", "SquaredHinge")


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 150)) + rng.normal(size=(80, 1))
    return X, X[:, :4].sum(axis=1) + rng.normal(size=80) + 3.0


def sparse(X):
    return sp.csc_array(X * (np.abs(X) > 1.2))


FORMS = [np.ascontiguousarray, np.asfortranarray, sparse]


def hinge_objective(X, y, found, strength):
    missing = np.maximum(0.0, 1.0 - y * (X @ found.coef + found.intercept))
    return strength * np.abs(found.coef).sum() + (missing**2).sum()


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_shards": 3},
        pytest.param({"schedule": "priority", "n_parallel": 4, "random_state": 0}, marks=pytest.mark.slow),
    ],
)
def test_squared_hinge_is_that_of_linear_svc(problem, form, options):
    n_columns, tol = (50, 1e-4) if "schedule" in options else (150, 1e-9)
    X, y = form(problem[0][:, :n_columns]), np.where(problem[1] > 3.0, 1.0, -1.0)
    ours = minimise(X, y, loss=SquaredHinge(), penalty=L1(4.0), fit_intercept=False, tol=tol, **options)
    exact = {"dual": False, "fit_intercept": False, "tol": 1e-9, "max_iter": 100_000, "random_state": 0}
    theirs = LinearSVC(penalty="l1", C=0.25, **exact)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(sp.csr_matrix(X) if sp.issparse(X) else X, y)
    best = 4.0 * np.abs(theirs.coef_).sum() + (np.maximum(0.0, 1.0 - y * (X @ theirs.coef_[0])) ** 2).sum()
    objective = hinge_objective(X, y, ours, 4.0)
    assert ours.converged and ours.objective == pytest.approx(objective, rel=1e-12)
    assert objective - best <= ours.dual_gap <= 1.01 * tol * len(y) + 1e-12


def test_flat_pieces_of_a_loss_hold_no_coefficient():
    """Column 5 is constant but in one row, which the hinge does not look at once it is right."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X[:, 5] = 0.0
    X[7, 5] = 30.0
    y = np.sign(X[:, 0] + 0.3 * rng.normal(size=200))
    y[7] = 1.0
    for form in (np.asarray, sp.csc_array):
        found = minimise(form(X), y, loss=SquaredHinge(), penalty=L1(2.0), tol=1e-10, max_iter=60)
        assert found.converged and found.n_iter < 60


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "loss", [Squared(), Huber(2.0), Poisson(), SquaredHinge()], ids=lambda loss: type(loss).__name__
)
def test_mcp_ends_where_no_coefficient_can_be_improved(problem, form, loss):
    X, y = form(problem[0]), problem[1]
    y = {"Poisson": np.floor(np.abs(y)), "SquaredHinge": np.where(y > 3.0, 1.0, -1.0)}.get(type(loss).__name__, y)
    penalty = MCP(20.0, 0.05)
    of_mean = MCP(20.0, 0.05 * len(y))  # SparseGLM takes γ for each unit of weight
    found = minimise(X, y, loss=loss, penalty=of_mean, tol=1e-10)
    assert found.converged and found.dual_gap is None and found.stationarity <= 1e-9 * found.objective
    dense = X.toarray() if sp.issparse(X) else X
    decision = dense @ found.coef

    def objective(j, b):
        moved = decision + dense[:, j] * (b - found.coef[j])
        return loss.derivatives(moved, y, np.empty(0), found.intercept).level.loss + penalty.value(np.array([b]))

    for j in [*np.flatnonzero(found.coef), 50, 100]:
        here = objective(j, found.coef[j])
        near = found.coef[j] + np.linspace(-0.1, 0.1, 21)
        assert min(objective(j, b) for b in near) >= here * (1.0 - 1e-9)


@pytest.mark.parametrize("gamma", [0.2, 1.0, 5.0])
def test_a_coefficient_under_mcp_is_the_best_one(gamma):
    penalty, grid = MCP(1.0, gamma), np.arange(-80_000, 80_001) * 1e-4
    size = np.minimum(np.abs(grid), gamma)
    cost = size - 0.5 * size**2 / gamma
    for norm in (0.5, 1.5):
        for aim in np.linspace(-3.0, 3.0, 42):
            least = 0.5 * norm * grid**2 - aim * grid + cost
            found = penalty.prox(0, aim, norm)
            at = min(abs(found), gamma)
            value = 0.5 * norm * found**2 - aim * found + at - 0.5 * at**2 / gamma
            assert value <= least.min() + 1e-12 and found == TheirMCP(1.0, gamma).prox(0, aim, norm)


def glm(name, X, y, weights, **options):
    p = X.shape[1]
    return Glm(name, X, y, weights, [np.array([j]) for j in range(p)], np.ones(p), **options)


@pytest.mark.parametrize(("form", "n_shards"), [(np.ascontiguousarray, 3), (sparse, 1)])
@pytest.mark.parametrize("loss", [Poisson(), Huber(1.5)], ids=["poisson", "huber"])
def test_gaps_of_poisson_and_huber_are_true(problem, form, n_shards, loss):
    rng = np.random.default_rng(3)
    X, weights = form(problem[0]), rng.uniform(0.2, 2.0, 80)
    dense, name = X.toarray() if sp.issparse(X) else X, type(loss).__name__.lower()
    counts = rng.poisson(np.exp(0.5 * dense[:, :3].sum(axis=1)))
    y = counts.astype(float) if name == "poisson" else problem[1] + rng.standard_t(1.5, 80)
    for intercept in (True, False):
        oracle = glm(name, dense, y, weights, fit_intercept=intercept)
        oracle.options = {} if name == "poisson" else {"epsilon": 1.5}
        for strength in (30.0, 3.0):
            given = {"sample_weight": weights, "n_shards": n_shards, "fit_intercept": intercept, "tol": 1e-9}
            found = minimise(X, y, loss=loss, penalty=L1(strength), **given)
            assert found.converged and found.dual_gap is not None
            assert found.objective == pytest.approx(oracle.objective(found.coef, found.intercept, strength), rel=1e-11)
            gap, apart = oracle.gap(found.coef, found.intercept, strength)
            assert apart < 1e-6 and -1e-9 <= gap <= 1.01e-9 * oracle.objective(0.0 * found.coef, 0.0, 1.0)


def test_huber_is_that_of_scipy_and_where_no_row_is_an_outlier_the_squared_one(problem):
    X, y = problem
    found = minimise(X, y, loss=Huber(0.7), penalty=L1(5.0), tol=1e-8)
    errors = y - X @ found.coef - found.intercept
    assert found.objective == pytest.approx(huber(0.7, errors).sum() + 5.0 * np.abs(found.coef).sum(), rel=1e-12)
    assert np.abs(errors).max() > 0.7
    ours, squared = (minimise(X, y, loss=loss, penalty=L1(5.0), tol=1e-12) for loss in (Huber(100.0), Squared()))
    np.testing.assert_allclose(ours.coef, squared.coef, atol=1e-5)
    far = minimise(X, y + 2.0**30, loss=Huber(0.7), penalty=L1(5.0), tol=1e-6)
    assert far.converged and far.objective == pytest.approx(found.objective, rel=1e-5)
    assert far.intercept - 2.0**30 == pytest.approx(found.intercept, abs=1e-2)


def test_losses_refuse_what_they_cannot_take(problem):
    with pytest.raises(ValueError, match=r"y >= 0; got -1: give counts or rates"):
        minimise(problem[0], np.where(np.arange(80) == 7, -1.0, 2.0), loss=Poisson(), penalty=L1(1.0))
    with pytest.raises(TypeError, match=r"'priority' needs a loss with a finite `smoothness`.*Poisson"):
        minimise(*problem, loss=Poisson(), penalty=L1(1.0), schedule="priority")
    for epsilon in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="epsilon of the Huber loss must be a finite number > 0"):
            Huber(epsilon)
