"""The functions on the page of genotypes: a fit beside components is the Lasso after projecting covariates out."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Lasso

EXAMPLE = Path(__file__).parents[3] / "examples" / "plot_genotypes.py"


@pytest.fixture(scope="module")
def page():
    """What the example defines, without running what follows."""
    names = {}
    exec(compile(EXAMPLE.read_text().partition("\n# %%\n")[0], EXAMPLE, "exec"), names)
    return names


@pytest.mark.parametrize("part", [2, 10])
def test_components_beside_X_are_projected_out(page, part):
    X, components, trait, _ = page["study"](120, 400, seed=3)
    X, whole = X.copy(order="F"), page["WHOLE"]
    covariates = np.column_stack([np.ones(len(X)), X[:, :whole], components])
    projector = np.eye(len(X)) - covariates @ np.linalg.pinv(covariates)
    deviations = np.maximum(X.std(axis=0), 0.1)
    columns, response = projector @ X[:, whole:] / deviations[whole:], projector @ trait
    alpha = np.abs(columns.T @ response).max() / len(X) / part
    factors = np.where(np.arange(X.shape[1]) < whole, 0.0, deviations)
    lasso, coef, _ = page["fit_beside"](X, trait, components, alpha, factors)
    peer = Lasso(alpha, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(columns, response)

    def objective(coef):
        left = response - columns @ coef
        return left @ left / (2 * len(X)) + alpha * np.abs(coef).sum()

    # variants may be equal, so that only the fitted values are unique
    ours = lasso.coef_[whole:] * deviations[whole:]
    assert np.count_nonzero(ours) > 3
    np.testing.assert_allclose(columns @ ours, peer.predict(columns), rtol=0, atol=1e-5)
    assert objective(ours) <= objective(peer.coef_) + 1e-12
    left = trait - lasso.predict(X) - (components - components.mean(axis=0)) @ coef
    np.testing.assert_allclose(left, response - columns @ ours, rtol=0, atol=1e-5)
    assert X.dtype == np.int8
