"""Stability selection beside counts by scikit-learn's Lasso.

The bound is that of Meinshausen and Bühlmann.
"""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso

from schmp_estimators import (
    PrioritizedLasso,
    SparseGLM,
    SparseLogisticRegression,
    stability_selection,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(81, 12)) + 0.4 * RNG.normal(size=(81, 1))
Y = 2 * X[:, 0] - X[:, 1] + 2 * RNG.normal(size=81)


def halves(count, seed):
    random = np.random.RandomState(seed)
    return [random.permutation(81)[:40] for _ in range(count)]


@pytest.mark.parametrize("weights", [None, RNG.random(81) + 0.1])
def test_counts_are_those_of_scikit_learn(weights):
    penalties = [0.1, 0.9, 0.3]
    found = stability_selection(
        PrioritizedLasso(tol=1e-10),
        X,
        Y,
        penalties=penalties,
        n_halves=20,
        sample_weight=weights,
        random_state=3,
    )
    assert found.penalties.tolist() == sorted(penalties)[::-1]
    selected = np.zeros((20, 12, 3), bool)
    for number, half in enumerate(halves(20, 3)):
        for place, alpha in enumerate(found.penalties):
            model = Lasso(alpha, tol=1e-12, max_iter=100_000)
            given = None if weights is None else weights[half]
            selected[number, :, place] = (
                model.fit(X[half], Y[half], sample_weight=given).coef_ != 0.0
            )
    np.testing.assert_allclose(found.probabilities, selected.mean(axis=0))
    np.testing.assert_array_equal(found.selected, selected.mean(axis=0).max(axis=1) >= 0.6)
    q = selected.any(axis=2).sum(axis=1).mean()
    assert found.n_selected == pytest.approx(q) and found.expected_false == pytest.approx(
        q**2 / (0.2 * 12)
    )


def test_columns_without_a_penalty_are_left_out_of_the_bound():
    model = PrioritizedLasso(0.3, penalty_factors=[0.0] + [1.0] * 11)
    found = stability_selection(model, X, Y, n_halves=20, random_state=0)
    assert found.probabilities[0] == 1.0
    assert found.n_selected == pytest.approx(found.probabilities[1:].sum())
    assert found.expected_false == pytest.approx(found.n_selected**2 / (0.2 * 11))


def test_any_estimator_and_any_input():
    labels = np.where(Y > 0, "yes", "no")
    options = {"n_halves": 10, "random_state": 0}
    plain = stability_selection(SparseLogisticRegression(0.3), X, labels, **options)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)])
    for form in (frame, da.from_array(X, chunks=(81, 12))):
        np.testing.assert_array_equal(
            stability_selection(
                SparseLogisticRegression(0.3), form, labels, n_jobs=2, **options
            ).probabilities,
            plain.probabilities,
        )
    estimator = SparseGLM("logistic", alpha=1 / (0.3 * 40))
    np.testing.assert_array_equal(
        stability_selection(estimator, X, labels, **options)[0], plain.probabilities
    )
    assert not hasattr(estimator, "coef_") and estimator.warm_start is False
    several = stability_selection(
        PrioritizedLasso(0.3), X, np.column_stack([Y, -X[:, 4]]), **options
    )
    assert several.selected[[0, 4]].all()
    rising = stability_selection(
        SparseLogisticRegression(), X, labels, penalties=[1.0, 0.1], **options
    )
    assert rising.penalties.tolist() == [0.1, 1.0]
