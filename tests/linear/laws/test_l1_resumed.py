"""An L1 fit that is left at any place where it may be left, and gone on with from its checkpoint, has the same bits."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.core.io.checkpoint import Checkpoint
from schmp_estimators.linear.programs import choose

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


@pytest.fixture(autouse=True)
def by_rounds(monkeypatch):
    """Let small fits take rounds, also without a checkpoint."""
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)
    monkeypatch.setattr(choose, "_ROWS", 1 << 30)


LASSO = {"alpha": 0.01, "tol": 1e-10}
LOGISTIC = {"C": 2.0, "tol": 1e-9}
NET = {"l1_ratio": 0.6, "penalty_factors": np.where(np.arange(140) % 45 == 3, 0.0, 1.0 + np.arange(140) % 3)}
SLOW = {"n_parallel": 6, "tol": 1e-2, "n_shards": 2, "pipeline_depth": 2, "random_state": 3}

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
        PrioritizedLasso, {**LASSO, "alpha": 0.1, "n_shards": 2}, OFFSET, np.column_stack([Y, Y[::-1]]), None, False,
    ),
    "residual": (PrioritizedLasso, {**LASSO, "n_shards": 3}, SPARSE, Y, WEIGHTS, True),
    "Gram, net": (PrioritizedLasso, {**LASSO, **NET, "n_shards": 2}, OFFSET, Y, WEIGHTS, False),
    "residual, net": (PrioritizedLasso, {**LASSO, **NET, "n_shards": 3}, SPARSE, Y, WEIGHTS, True),
    "logistic, net": (SparseLogisticRegression, {**LOGISTIC, **NET, "n_shards": 2}, OFFSET, Y > 2, WEIGHTS, False),
    "logistic Gram": (SparseLogisticRegression, {**LOGISTIC, "n_shards": 3}, DENSE, Y > 0, WEIGHTS, False),
    "logistic, offset": (SparseLogisticRegression, {**LOGISTIC, "n_shards": 2}, OFFSET, Y > 2, None, False),
    "logistic residual": (SparseLogisticRegression, {**LOGISTIC, "n_shards": 3}, SPARSE, Y > 0, None, True),
    "three classes": (
        SparseLogisticRegression, LOGISTIC, DENSE, np.digitize(Y, [-3, 3]), None, True,
    ),
    "priority": (PrioritizedLasso, {"alpha": 0.2, "schedule": "priority", **SLOW}, FEW, Y, None, False),
    "random, three targets": (
        PrioritizedLasso, {"alpha": 0.3, "schedule": "random", **SLOW}, FEW, np.column_stack([Y, -Y, Y[::-1]]), WEIGHTS,
        False,
    ),
    "round robin": (PrioritizedLasso, {"alpha": 0.1, "schedule": "round_robin", **SLOW}, SPARSE, Y, None, False),
    "logistic priority": (SparseLogisticRegression, {"schedule": "priority", **SLOW}, FEW, Y > 0, WEIGHTS, False),
}  # fmt: skip


def left_by(fitted):
    """What a fit leaves behind, to the last bit, but for the clock."""
    records = [{name: value for name, value in record.items() if name != "seconds"} for record in fitted.history_]
    names = ("coef_", "intercept_", "dual_gap_", "n_iter_")
    return [np.asarray(getattr(fitted, name)).tobytes() for name in names], records


class Dies(Exception):
    """What ends a process."""


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    """A function that fits, with more parameters."""
    make, parameters, X, y, weights, on_residual = CASES[request.param]
    monkeypatch.setattr(choose, "prefer_residual", lambda size: on_residual)
    return lambda **more: make(**parameters, **more).fit(X, y, weights)


def dying(monkeypatch):
    """Let each fit die once it has written a checkpoint; returns whom to ask for the number of those."""
    write = Checkpoint.write

    class Deaths:
        n = 0

    def write_and_die(self, done, values):
        write(self, done, values)
        Deaths.n += 1
        raise Dies

    monkeypatch.setattr(Checkpoint, "write", write_and_die)
    return Deaths


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[] if n % 3 == 1 else pytest.mark.slow) for n, name in enumerate(CASES)],
    indirect=True,
)
def test_a_fit_that_dies_at_every_place_where_it_can_be_left(case, tmp_path, monkeypatch):
    expected = left_by(case())
    deaths, path = dying(monkeypatch), tmp_path / "fit"
    for _ in range(1000):
        try:
            resumed = case(checkpoint=path, checkpoint_every=1)
        except Dies:
            continue
        break
    assert left_by(resumed) == expected
    assert 3 <= deaths.n <= len(expected[1])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "case", ["Gram, guessed scope", "residual", "logistic Gram", "Gram, float32", "priority"], indirect=True
)
def test_a_larger_max_iter_goes_further_with_the_bits_of_one_fit(case, tmp_path):
    expected = left_by(case())
    for max_iter in (1, 2):
        path = tmp_path / f"fit{max_iter}"
        short = left_by(case(checkpoint=path, max_iter=max_iter))
        assert short == left_by(case(max_iter=max_iter)) and short != expected
        assert left_by(case(checkpoint=path, max_iter=max_iter)) == short
        assert left_by(case(checkpoint=path)) == expected


def test_a_fit_that_a_callback_has_ended_goes_on(tmp_path):
    class Stop:
        def setup(self, **_): ...
        def teardown(self, **_): ...
        def on_fit_task_begin(self, *_, **__): ...

        def on_fit_task_end(self, *_, **__):
            return True

    expected = left_by(PrioritizedLasso(**LASSO).fit(DENSE, Y))
    early = PrioritizedLasso(**LASSO, checkpoint=tmp_path / "fit").set_callbacks(Stop()).fit(DENSE, Y)
    assert len(early.history_) == 1
    assert left_by(PrioritizedLasso(**LASSO, checkpoint=tmp_path / "fit").fit(DENSE, Y)) == expected


def test_a_fit_that_diverges_leaves_its_last_good_point(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 1)) + 0.01 * rng.normal(size=(50, 40))
    lasso = PrioritizedLasso(1e-4, schedule="random", n_parallel=40, max_iter=10_000, random_state=0)
    with pytest.warns(ConvergenceWarning):
        expected = left_by(lasso.fit(X, X[:, 0]))
    for _ in range(2):
        with pytest.warns(ConvergenceWarning):
            assert left_by(lasso.set_params(checkpoint=tmp_path / "fit").fit(X, X[:, 0])) == expected
