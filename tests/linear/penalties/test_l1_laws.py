"""Laws of the L1 problems, over random problems."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import schmp
from schmp_estimators.linear.lasso import PrioritizedLasso


def problem(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(10, 60)), int(rng.integers(2, 80))
    X = rng.normal(size=(n, p)) + rng.normal()
    return X, X[:, 0] + 0.5 * rng.normal(size=n), rng


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), n_shards=st.integers(1, 5))
def test_shards_rows_and_columns_may_be_in_any_order(seed, n_shards):
    X, y, rng = problem(seed)
    rows, columns = rng.permutation(len(y)), rng.permutation(X.shape[1])
    plain = PrioritizedLasso(0.1, tol=1e-12).fit(X, y)
    moved = PrioritizedLasso(0.1, tol=1e-12, n_shards=n_shards).fit(X[rows][:, columns], y[rows])
    np.testing.assert_allclose(moved.predict(X[:, columns]), plain.predict(X), atol=1e-4)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 100.0), shift=st.floats(-10.0, 10.0))
def test_scaling_and_shifting_the_response(seed, scale, shift):
    X, y, _ = problem(seed)
    plain = PrioritizedLasso(0.1, tol=1e-12).fit(X, y)
    scaled = PrioritizedLasso(0.1 * scale, tol=1e-12).fit(sp.csc_array(X), scale * y + shift)
    np.testing.assert_allclose(
        scaled.predict(X), scale * plain.predict(X) + shift, atol=1e-4 * max(1.0, scale)
    )


@pytest.mark.slow
def test_any_schedule_may_check_dependencies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1)) + 0.1 * rng.normal(size=(100, 60))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    options = {"max_iter": 20, "random_state": 0}
    for kind in (schmp.Random, schmp.RoundRobin):
        with pytest.warns(ConvergenceWarning):
            fitted = PrioritizedLasso(1e-3, schedule=kind(30, max_correlation=0.5), **options).fit(
                X, y
            )
        assert (
            fitted.history_[-1]["objective"] < 0.1 * fitted.history_[0]["objective"]
        )  # unchecked, it diverges
