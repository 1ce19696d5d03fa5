"""Any loss with any penalty: those of the examples against scikit-learn, brute force and the estimators."""

import ast
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet as TheirElasticNet
from sklearn.svm import LinearSVC

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.penalised import L1, Derivatives, ElasticNet, Level, Logistic, Squared, minimise

ROOT = Path(__file__).parents[3]


def defined(example, name):
    """Return a class of an example, without running the rest of it; it is known to pickle."""
    tree = ast.parse((ROOT / "examples" / f"{example}.py").read_text())
    kept = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    names = {"__name__": __name__}
    exec(compile(ast.Module(kept, []), example, "exec"), names)
    return names[name]


MCP = defined("plot_your_own_penalty", "MCP")
SquaredHinge = defined("plot_your_own_loss", "SquaredHinge")


class AnySquared(Squared):
    """Squared loss to the solver that knows nothing of constant curvature."""

    constant_curvature = False


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


def test_gap_of_a_loss_of_ones_own_is_that_of_its_dual(problem):
    X, y = problem[0], np.where(problem[1] > 3.0, 1.0, -1.0)
    for max_iter in (1, 2, 100):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = minimise(
                X, y, loss=SquaredHinge(), penalty=L1(4.0), fit_intercept=False, max_iter=max_iter, tol=1e-10
            )
        part = 2.0 * np.maximum(0.0, 1.0 - y * (X @ found.coef))
        part *= min(1.0, 4.0 / np.abs(X.T @ (y * part)).max())
        assert found.dual_gap <= found.objective - (part - part**2 / 4).sum() + 1e-9 * len(y)
        best = minimise(X, y, loss=SquaredHinge(), penalty=L1(4.0), fit_intercept=False, tol=1e-12).objective
        assert found.dual_gap >= found.objective - best - 1e-10 * len(y)


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


@pytest.mark.slow  # its kernels are compiled in each process; the example runs it with the docs
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", [Squared(), SquaredHinge()])
def test_mcp_ends_where_no_coefficient_can_be_improved(problem, form, loss):
    X, y = form(problem[0]), problem[1]
    y = y if isinstance(loss, Squared) else np.where(y > 3.0, 1.0, -1.0)
    penalty = MCP(20.0, 0.05)
    found = minimise(X, y, loss=loss, penalty=penalty, tol=1e-10)
    assert found.converged and found.dual_gap is None and found.stationarity <= 1e-9 * found.objective
    dense = X.toarray() if sp.issparse(X) else X
    target = y if isinstance(loss, Squared) else y.copy()
    decision = dense @ found.coef

    def objective(j, b):
        moved = decision + dense[:, j] * (b - found.coef[j])
        return loss.derivatives(moved, target, np.empty(0), found.intercept).level.loss + penalty.value(np.array([b]))

    for j in [*np.flatnonzero(found.coef), 50, 100]:
        here = objective(j, found.coef[j])
        near = found.coef[j] + np.linspace(-0.1, 0.1, 21)
        assert min(objective(j, b) for b in near) >= here * (1.0 - 1e-9)


@pytest.mark.slow
def test_mcp_leaves_no_kernel_on_the_disk(problem, tmp_path):
    before = {path.name for path in (ROOT / "schmp_estimators").rglob("*.nb[ci]")}
    minimise(*problem, loss=Squared(), penalty=MCP(20.0, 0.05))
    assert {path.name for path in (ROOT / "schmp_estimators").rglob("*.nb[ci]")} == before


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_solver_for_any_loss_agrees_with_that_for_squared_loss(problem, form, n_shards):
    X, y = form(problem[0]), problem[1]
    for penalty in (L1(8.0), ElasticNet(8.0, 3.0), L1(8.0, True)):
        with_own, with_any = (
            minimise(X, y, loss=loss, penalty=penalty, tol=1e-12, n_shards=n_shards)
            for loss in (Squared(), AnySquared())
        )
        assert with_own.converged and with_any.converged
        assert with_any.objective == pytest.approx(with_own.objective, rel=1e-11)
        np.testing.assert_allclose(with_any.coef, with_own.coef, atol=1e-5)


def test_it_is_what_the_estimators_do(problem):
    X, y = problem
    theirs = TheirElasticNet(0.1, l1_ratio=0.7, tol=1e-12, max_iter=100_000).fit(X, y)
    ours = minimise(X, y, loss=Squared(), penalty=ElasticNet(0.1 * 0.7 * 80, 0.1 * 0.3 * 80), tol=1e-12)
    np.testing.assert_allclose(ours.coef, theirs.coef_, atol=1e-6)
    lasso = PrioritizedLasso(0.25, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(minimise(X, y, loss=Squared(), penalty=L1(20.0), tol=1e-9).coef, lasso.coef_, atol=1e-7)
    label = np.where(y > 3.0, 1.0, -1.0)
    model = SparseLogisticRegression(0.5, tol=1e-9).fit(X, label)
    found = minimise(X, label, loss=Logistic(), penalty=L1(2.0), tol=1e-9)
    np.testing.assert_array_equal(found.coef, model.coef_[0])
    assert found.intercept == model.intercept_[0]


def test_same_bits_on_a_cluster(problem, client):
    X, y = problem[0], np.where(problem[1] > 3.0, 1.0, -1.0)
    here = minimise(X, y, loss=Logistic(), penalty=ElasticNet(2.0, 1.0), n_shards=3)
    with client.as_current():
        there = minimise(X, y, loss=Logistic(), penalty=ElasticNet(2.0, 1.0), n_shards=3)
    np.testing.assert_array_equal(there.coef, here.coef)


class Lines:
    """A loss that says only how it changes."""

    def derivatives(self, decision, target, weights, intercept):
        slope = np.sign(target - decision - intercept)
        loss = np.abs(target - decision - intercept).sum()
        return Derivatives(Level(loss, slope.sum(), 0.0), slope, np.zeros_like(slope))


def test_what_is_missing_is_said_before_any_work(problem):
    X, y = problem
    with pytest.raises(TypeError, match=r"schedule='priority' needs a loss with a finite `smoothness`.*Lines"):
        minimise(X, y, loss=Lines(), penalty=L1(1.0), schedule="priority")
    with pytest.raises(
        TypeError, match=r"needs a loss with a method `derivatives` and a penalty that is a named tuple"
    ):
        minimise(X, y, loss=None, penalty=0.5)
    with pytest.raises(ValueError, match=r"penalty holds an array of shape \(3,\); give one number .* shape \(150,\)"):
        minimise(X, y, loss=Squared(), penalty=L1(np.ones(3)))
    with pytest.raises(ValueError, match="'tol' parameter of minimise must be"):
        minimise(X, y, loss=Squared(), penalty=L1(1.0), tol=-1.0)
