"""Following fits of L1 models: callbacks, early ends, the log, the progress bar, the plot."""

import pickle

import numpy as np
import pytest
from callbacks import Recorder
from oracles.rounds import by_rounds
from sklearn.base import clone

import schmp_estimators as se
from schmp_estimators import schmp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 50))
Y = X[:, 0] - X[:, 1] + 0.1 * RNG.normal(size=80)

CASES = {
    "lasso": (se.PrioritizedLasso(0.01, tol=1e-8), Y),
    "two targets": (se.PrioritizedLasso(0.01, tol=1e-8), np.column_stack([Y, X[:, 5] - Y])),
    "scheduled": (
        se.PrioritizedLasso(0.1, schedule=schmp.Priority(4, pipeline_depth=2), random_state=0),
        Y,
    ),
    "two classes": (se.SparseLogisticRegression(tol=1e-8), Y > 0),
    "three classes": (se.SparseLogisticRegression(), np.digitize(Y, [-1, 1])),
    "groups": (se.SparseGLM("logistic", "group", 0.01, groups=np.arange(50) // 5, tol=1e-8), Y > 0),
    "groups of classes": (se.SparseGLM("multinomial", "group", 0.02), np.digitize(Y, [-1, 1])),
}


@pytest.fixture(params=CASES)
def case(request):
    estimator, target = CASES[request.param]
    return clone(estimator), target


class Steps(Recorder):
    """Ends the fit after `stop_at` steps."""

    def on_fit_task_end(self, estimator, context):
        super().on_fit_task_end(estimator, context)
        if context.task_name == "step":
            self.kept.append(estimator._as_if_fitted())
        return context.task_name == "step" and len(self.kept) == self.stop_at


def test_callbacks_see_each_certificate(case):
    estimator, target = case
    recorder = Steps()
    estimator.set_callbacks(recorder).fit(X, target)
    steps = ["begin step", "end step"] * len(estimator.history_)
    assert recorder.events == ["setup", "begin fit", *steps, "end fit", "teardown"]
    last = recorder.kept[-1]
    np.testing.assert_array_equal(last.coef_, estimator.coef_)
    assert recorder.kept[0].predict(X).shape == estimator.predict(X).shape
    pickle.dumps(last.set_callbacks())
    plain = clone(estimator).fit(X, target)
    np.testing.assert_array_equal(plain.coef_, estimator.coef_)


def test_a_callback_ends_the_fit_without_a_warning(case):
    estimator, target = case
    steps = 1 if estimator.schedule == "resolve" else 2  # each target has one
    estimator.set_callbacks(Steps(steps)).fit(X, target)
    assert len(estimator.history_) == steps
    assert estimator.predict(X).shape == target.shape


def test_an_early_end_tells_the_gap_of_the_whole_problem(monkeypatch):
    """The Lasso looks at likely columns only for some of its steps.

    A gap on those says little about all.
    """
    by_rounds(monkeypatch)
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 4000)) + 0.5 * rng.normal(size=(60, 1))
    target = wide[:, :5].sum(axis=1) + 0.5 * rng.normal(size=60)
    full = se.PrioritizedLasso(0.3, tol=1e-10, fit_intercept=False).fit(wide, target)
    assert any(record["scope"] < 4000 for record in full.history_)

    def objective(coef):
        return 0.5 * np.mean((target - wide @ coef) ** 2) + 0.3 * np.abs(coef).sum()

    for stop_at in range(1, len(full.history_)):
        early = se.PrioritizedLasso(0.3, tol=1e-10, fit_intercept=False).set_callbacks(
            Steps(stop_at)
        )
        early.fit(wide, target)
        assert early.dual_gap_ == pytest.approx(early.history_[-1]["dual_gap"])
        assert early.dual_gap_ >= objective(early.coef_) - objective(full.coef_) - 1e-12


def test_an_early_end_tells_the_gap_of_groups():
    groups, weights = np.arange(50) // 5, np.full(10, np.sqrt(5.0))
    model = se.SparseGLM(penalty="group", alpha=0.05, groups=groups, tol=1e-10)
    full = clone(model).fit(X, Y)

    def objective(found):
        sizes = np.sqrt(np.bincount(groups, found.coef_**2))
        return 0.5 * np.mean((Y - found.predict(X)) ** 2) + 0.05 * weights @ sizes

    for stop_at in range(1, len(full.history_)):
        early = clone(model).set_callbacks(steps := Steps(stop_at)).fit(X, Y)
        assert len(early.history_) == stop_at and early.history_[-1]["dual_gap"] == early.dual_gap_
        assert early.dual_gap_ >= objective(early) - objective(full) - 1e-12
        assert [objective(one) for one in steps.kept] == pytest.approx(
            [record["objective"] for record in early.history_], rel=1e-9
        )
    assert stop_at > 1


def test_a_failed_fit_leaves_no_trace():
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise RuntimeError("enough")

    estimator = se.PrioritizedLasso(0.01).set_callbacks(Failing())
    with pytest.raises(RuntimeError, match="enough"):
        estimator.fit(X, Y)
    assert not [name for name in vars(estimator) if name.endswith("_")]


@pytest.mark.covering
@pytest.mark.parametrize(
    "kind",
    [
        se.PrioritizedLasso,
        se.SparseLogisticRegression,
        se.PrioritizedLassoCV,
        se.SparseLogisticRegressionCV,
    ],
)
@pytest.mark.parametrize("fault", ["one class", "NaN", "length"])
def test_a_failed_refit_keeps_the_earlier_fit(kind, fault):
    estimator = kind().fit(X, Y > 0)
    before = estimator.predict(X)
    narrow, target = X[:, :7].copy(), (Y > 0).astype(float)
    if fault == "NaN":
        narrow[0, 0] = np.nan
    elif fault == "length":
        target = target[:-1]
    elif kind in (se.PrioritizedLasso, se.PrioritizedLassoCV):
        target[:] = np.inf
    else:
        target[:] = 1.0
    with pytest.raises(ValueError, match=r"one class|NaN|infinity|inconsistent"):
        estimator.fit(narrow, target)
    assert estimator.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(estimator.predict(X), before)
