"""The solvers for benchopt's benchmarks reach the minimum of what benchopt evaluates.

benchopt itself is not needed: stand-ins have the names that the files import.
"""

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

FOLDER = Path(__file__).parents[3] / "benchmarks" / "benchopt"


class BaseSolver:
    def run_once(self, stop_val=1):
        self.run(stop_val)


@pytest.fixture
def load(monkeypatch):
    """Import the solver of a file, as benchopt does, by its path."""
    benchopt, criteria = ModuleType("benchopt"), ModuleType("benchopt.stopping_criterion")
    benchopt.BaseSolver, benchopt.safe_import_context = BaseSolver, nullcontext
    criteria.SufficientProgressCriterion = dict
    monkeypatch.setitem(sys.modules, "benchopt", benchopt)
    monkeypatch.setitem(sys.modules, "benchopt.stopping_criterion", criteria)

    def solver(name):
        spec = importlib.util.spec_from_file_location(f"benchopt_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Solver()

    return solver


def solve(solver, **problem):
    """Yield the results of the first steps, as benchopt asks for them."""
    solver.set_objective(**problem)
    solver.warm_up()
    n_iter = 0
    for _ in range(12):
        solver.run(n_iter)
        yield solver.get_result()["beta"]
        n_iter = solver.get_next(n_iter)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 90))
    return X, X[:, :5].sum(axis=1) + 3.0 + rng.normal(size=60)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csc_matrix])
def test_lasso(load, data, form, fit_intercept):
    X, y = data
    centre = y - y.mean() * fit_intercept
    lmbd = 0.05 * np.abs(X.T @ centre).max()
    gaps = []
    for beta in solve(load("prioritized_lasso"), X=form(X), y=y, lmbd=lmbd, fit_intercept=fit_intercept):
        assert beta.shape == (90 + fit_intercept,)
        left = y - X @ beta[:90] - (beta[90] if fit_intercept else 0.0)
        scale = max(1.0, np.abs(X.T @ left).max() / lmbd)
        primal = left @ left / 2 + lmbd * np.abs(beta[:90]).sum()
        dual = centre @ centre / 2 - (centre - left / scale) @ (centre - left / scale) / 2
        gaps.append((primal - dual) / (centre @ centre))
    assert not beta[90:].size or abs(left.sum()) < 1e-9
    assert gaps[0] > 0.1
    assert abs(gaps[-1]) < 1e-12
