"""Paths of the Lasso: each point is solved, and none stands for its neighbours."""

import numpy as np
import pytest

from schmp_estimators.linear.lasso import prioritized_lasso_path

SHAPES = {
    "tall": (150, 40, 0.0),
    "wide": (50, 120, 0.0),
    "noisy": (80, 60, 1.0),
    "with offset": (80, 60, 0.1),
}


@pytest.fixture(params=SHAPES)
def problem(request):
    n, p, noise = SHAPES[request.param]
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, p)) + 3 * (request.param == "with offset")
    return X, X[:, :6].sum(axis=1) + noise * rng.normal(size=n)


def test_alphas_in_any_order_and_twice(problem):
    X, y = problem
    alphas, coefs, _, _ = prioritized_lasso_path(X, y, alphas=[0.1, 0.5, 0.1, 1e9])
    assert alphas.tolist() == [1e9, 0.5, 0.1, 0.1]
    assert not coefs[:, 0].any() and coefs[:, 1].any()
    np.testing.assert_array_equal(coefs[:, 2], coefs[:, 3])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_single_column_is_its_soft_threshold(fit_intercept):
    """No rule discards it.

    Each penalty goes on from the one before, with nothing but its own bounds.
    """
    rng = np.random.default_rng(4)
    x = rng.normal(size=40)
    y = 2.0 * x + rng.normal(size=40)
    alphas, coefs, *_ = prioritized_lasso_path(
        x[:, None], y, alphas=6, fit_intercept=fit_intercept, tol=1e-12
    )
    centred = x - x.mean() * fit_intercept
    expected = np.maximum(centred @ y - len(y) * alphas, 0.0) / (centred @ centred)
    np.testing.assert_allclose(coefs[0], expected, rtol=1e-4, atol=1e-10)
