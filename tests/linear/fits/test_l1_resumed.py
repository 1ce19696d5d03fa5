"""An L1 fit that is gone on with from its checkpoint has the same bits.

It may be left at any place where it can be left.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from checkpoints import fitted_in_spite_of_deaths, left_by
from oracles.rounds import by_rounds

from schmp_estimators import PrioritizedLasso, SparseGLM, SparseLogisticRegression, schmp
from schmp_estimators.linear.programs import choose, joint

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(90, 140))
DENSE[:, 1:] += 0.7 * DENSE[:, :-1]
Y = DENSE[:, ::7] @ RNG.normal(size=20) + 0.5 * RNG.normal(size=90)
OFFSET = DENSE + np.where(np.arange(140) % 3, 0.0, 1e5)
SPARSE = sp.csc_array(DENSE * (RNG.random(DENSE.shape) < 0.2))
WIDE = RNG.normal(size=(60, 4000)) + 0.5 * RNG.normal(size=(60, 1))
FROM_WIDE = WIDE[:, :5].sum(axis=1) + 0.5 * RNG.normal(size=60)
FEW = DENSE[:, ::4]
WEIGHTS = RNG.random(90) + 0.1
POSITIVE = np.exp(RNG.normal(size=(90, 75))) * (RNG.random((90, 75)) < 0.15)
COPIES = sp.csc_array(np.hstack([POSITIVE, POSITIVE * (1.0 + 0.01 * RNG.random((90, 75)))]))
FROM_COPIES = POSITIVE[:, ::3] @ RNG.normal(size=25) + RNG.normal(size=90)


@pytest.fixture(autouse=True)
def rounds(monkeypatch):
    """Let small fits take rounds, also without a checkpoint."""
    by_rounds(monkeypatch)


LASSO = {"alpha": 0.01, "tol": 1e-10}
LOGISTIC = {"C": 2.0, "tol": 1e-9}
NET = {
    "l1_ratio": 0.6,
    "penalty_factors": np.where(np.arange(140) % 45 == 3, 0.0, 1.0 + np.arange(140) % 3),
}
SLOW = {"tol": 1e-2, "n_shards": 2, "random_state": 3}
WAYS = {"n_parallel": 6, "pipeline_depth": 2}

GROUPS = {
    "loss": "squared", "penalty": "group", "groups": np.arange(140) // 7, "tol": 1e-8,
    "penalty_factors": np.where(np.arange(20) == 2, 0.0, 2.0),
}  # fmt: skip
CLASSES = {"loss": "multinomial", "alpha": 0.01, "tol": 1e-8}

#: estimator, its parameters, X, y, weights, whether descent is on the residual
CASES = {
    "Gram, explored": (PrioritizedLasso, LASSO, DENSE, Y, None, False),
    "Gram": (PrioritizedLasso, {**LASSO, "n_shards": 3}, DENSE, Y, WEIGHTS, False),
    "Gram, guessed scope": (
        PrioritizedLasso, {"alpha": 0.3, "tol": 1e-10, "n_shards": 2}, WIDE, FROM_WIDE, None, False,
    ),
    "Gram, offset": (PrioritizedLasso, {**LASSO, "n_shards": 2}, OFFSET, Y, None, False),
    "Gram, float32": (PrioritizedLasso, LASSO, DENSE.astype(np.float32), Y, None, False),
    "Gram, two targets": (
        PrioritizedLasso, {**LASSO, "alpha": 0.1, "n_shards": 2}, OFFSET,
        np.column_stack([Y, Y[::-1]]), None, False,
    ),
    "residual": (PrioritizedLasso, {**LASSO, "n_shards": 3}, SPARSE, Y, WEIGHTS, True),
    "residual, copies": (
        PrioritizedLasso,
        {**LASSO, "n_shards": 2},
        COPIES,
        FROM_COPIES,
        None,
        True,
    ),
    "Gram, net": (PrioritizedLasso, {**LASSO, **NET, "n_shards": 2}, OFFSET, Y, WEIGHTS, False),
    "residual, net": (PrioritizedLasso, {**LASSO, **NET, "n_shards": 3}, SPARSE, Y, WEIGHTS, True),
    "logistic, net": (
        SparseLogisticRegression, {**LOGISTIC, **NET, "n_shards": 2}, OFFSET, Y > 2, WEIGHTS, False,
    ),
    "logistic Gram": (
        SparseLogisticRegression, {**LOGISTIC, "n_shards": 3}, DENSE, Y > 0, WEIGHTS, False,
    ),
    "logistic, offset": (
        SparseLogisticRegression, {**LOGISTIC, "n_shards": 2}, OFFSET, Y > 2, None, False,
    ),
    "logistic residual": (
        SparseLogisticRegression, {**LOGISTIC, "n_shards": 3}, SPARSE, Y > 0, None, True,
    ),
    "three classes": (
        SparseLogisticRegression, LOGISTIC, DENSE, np.digitize(Y, [-3, 3]), None, True,
    ),
    "priority": (
        PrioritizedLasso, {"alpha": 0.2, "schedule": schmp.Priority(**WAYS), **SLOW}, FEW, Y, None,
        False,
    ),
    "random, three targets": (
        PrioritizedLasso, {"alpha": 0.3, "schedule": schmp.Random(**WAYS, moved_above=0.1), **SLOW},
        FEW, np.column_stack([Y, -Y, Y[::-1]]), WEIGHTS, False,
    ),
    "round robin": (
        PrioritizedLasso, {"alpha": 0.1, "schedule": schmp.RoundRobin(**WAYS), **SLOW}, SPARSE, Y,
        None, False,
    ),
    "logistic priority": (
        SparseLogisticRegression, {"schedule": schmp.Priority(**WAYS), **SLOW}, FEW, Y > 0, WEIGHTS,
        False,
    ),
    "priority, all options": (
        PrioritizedLasso, {"alpha": 0.2, "schedule": schmp.Priority(
            6, oversample=3.0, correlation_rows=30, weight=np.abs, refresh=7, n_schedulers=2,
            moved_above=1e-3,
        ), **SLOW}, FEW, Y, WEIGHTS, False,
    ),
    "groups": (SparseGLM, {**GROUPS, "alpha": 0.02, "n_shards": 3}, OFFSET, Y, WEIGHTS, False),
    "groups on rows": (
        SparseGLM, {**GROUPS, "alpha": 0.02, "n_shards": 2}, SPARSE, Y, WEIGHTS, True,
    ),
    "logistic groups": (
        SparseGLM, {**GROUPS, "loss": "logistic", "alpha": 0.02, "n_shards": 2}, DENSE, Y > 0, None,
        False,
    ),
    "two targets of groups": (
        SparseGLM, {**GROUPS, "alpha": 0.1}, DENSE, np.column_stack([Y, Y[::-1]]), None, False,
    ),
    "multinomial": (
        SparseGLM, {**CLASSES, "n_shards": 2}, DENSE, np.digitize(Y, [-3, 3]), WEIGHTS, False,
    ),
    "multinomial on rows": (
        SparseGLM, {**CLASSES, "n_shards": 3}, SPARSE, np.digitize(Y, [-3, 3]), None, True,
    ),
    "priority, no gradients": (
        PrioritizedLasso, {"alpha": 0.2, "schedule": schmp.Priority(refresh=None), **SLOW}, FEW, Y,
        None, False,
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    """A function that fits, with more parameters."""
    make, parameters, X, y, weights, on_residual = CASES[request.param]
    monkeypatch.setattr(choose, "prefer_residual", lambda size: on_residual)
    monkeypatch.setattr(joint, "_MOST_WORK", 0)
    return lambda **more: make(**parameters, **more).fit(X, y, weights)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if n % 3 == 1 and name != "three classes" else pytest.mark.slow)
        for n, name in enumerate(CASES)
    ],
    indirect=True,
)
def test_a_fit_that_dies_at_every_place_where_it_can_be_left(case, tmp_path):
    expected = left_by(case())
    resumed, deaths = fitted_in_spite_of_deaths(
        lambda: case(checkpoint=tmp_path / "fit", checkpoint_every=1)
    )
    assert left_by(resumed) == expected
    assert 3 <= len(deaths) <= len(expected[1])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "case",
    ["Gram, guessed scope", "residual", "logistic Gram", "Gram, float32", "priority"],
    indirect=True,
)
def test_a_larger_max_iter_goes_further_with_the_bits_of_one_fit(case, tmp_path):
    expected = left_by(case())
    for max_iter in (1, 2):
        path = tmp_path / f"fit{max_iter}"
        short = left_by(case(checkpoint=path, max_iter=max_iter))
        assert short == left_by(case(max_iter=max_iter)) and short != expected
        assert left_by(case(checkpoint=path, max_iter=max_iter)) == short
        assert left_by(case(checkpoint=path)) == expected
