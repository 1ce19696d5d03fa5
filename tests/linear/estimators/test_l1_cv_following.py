"""What goes into the folds of the cross-validated L1 classes, and what is seen of them: groups, callbacks, errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from callbacks import Recorder
from sklearn import config_context
from sklearn.base import clone
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut

from schmp_estimators import PrioritizedLassoCV, SparseLogisticRegressionCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = 2 * X[:, 0] - X[:, 1] + RNG.normal(size=60)
GROUPS = RNG.integers(0, 4, 60)

CASES = {
    "lasso": (PrioritizedLassoCV(alphas=[1.0, 0.3, 0.1], cv=3), Y),
    "logistic": (SparseLogisticRegressionCV(Cs=[0.1, 1.0, 10.0], cv=3), Y > 0),
    "three classes": (SparseLogisticRegressionCV(Cs=[0.1, 1.0, 10.0], cv=3), np.digitize(Y, [-1, 1])),
}


def values(estimator):
    return estimator.mse_path_ if isinstance(estimator, PrioritizedLassoCV) else estimator.scores_


@pytest.fixture(params=CASES)
def case(request):
    estimator, target = CASES[request.param]
    return clone(estimator), target


# -- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.covering
@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("splitter", [GroupKFold(3), LeaveOneGroupOut()])
def test_groups_reach_the_splitter(case, routing, splitter):
    estimator, target = case
    folds = list(splitter.split(X, target, GROUPS))
    expected = clone(estimator).set_params(cv=folds).fit(X, target)
    with config_context(enable_metadata_routing=routing):
        estimator.set_params(cv=splitter).fit(X, target, groups=GROUPS)
        np.testing.assert_array_equal(values(estimator), values(expected))
        np.testing.assert_array_equal(estimator.coef_, expected.coef_)


def test_what_is_not_asked_for_is_refused(case):
    estimator, target = case
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        estimator.fit(X, target, shoe_size=GROUPS)
    with config_context(enable_metadata_routing=True), pytest.raises(TypeError, match="shoe_size"):
        estimator.fit(X, target, shoe_size=GROUPS)
    assert not hasattr(estimator, "coef_")


def test_scorers_get_what_they_ask_for():
    """Weights go to the scorer, and with routing whatever else it requests, cut to the samples held out."""
    seen = []

    def metric(y_true, y_pred, sample_weight=None, costs=None):
        seen.append((len(y_true), None if costs is None else len(costs)))
        return accuracy_score(y_true, y_pred, sample_weight=sample_weight)

    weights = RNG.random(60) + 0.1
    estimator = SparseLogisticRegressionCV(Cs=[1.0], cv=3, scoring=make_scorer(metric))
    plain = clone(estimator).set_params(scoring=None).fit(X, Y > 0, sample_weight=weights)
    np.testing.assert_array_equal(estimator.fit(X, Y > 0, sample_weight=weights).scores_, plain.scores_)
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(metric).set_score_request(sample_weight=True, costs=True)
        for n_jobs in (1, 2):
            seen.clear()
            routed = SparseLogisticRegressionCV(Cs=[1.0], cv=3, scoring=scorer, n_jobs=n_jobs)
            routed.set_fit_request(sample_weight=True).fit(X, Y > 0, sample_weight=weights, costs=GROUPS)
            np.testing.assert_array_equal(routed.scores_, plain.scores_)
            assert seen == [(20, 20)] * 3


# -- callbacks -----------------------------------------------------------------------------------------------------


class Penalties(Recorder):
    """Ends each path after `stop_at` penalties."""

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        super().on_fit_task_end(estimator, context)
        if context.task_name == "penalty":
            assert fitted_estimator.predict(X).shape == y.shape == (40,)
            self.kept.append(fitted_estimator)
        return context.task_name == "penalty" and context.task_id + 1 == self.stop_at


def test_callbacks_see_each_penalty_of_each_fold(case):
    estimator, target = case
    plain = clone(estimator).fit(X, target)
    recorder = Penalties()
    estimator.set_callbacks(recorder).fit(X, target)
    fold = ["begin fold", *["begin penalty", "end penalty"] * 3, "end fold"]
    start = ["setup", "begin fit", "begin cross-validation", *fold * 3, "end cross-validation"]
    assert recorder.events[: len(start)] == start
    rest = recorder.events[len(start) :]
    refits = (len(rest) - 2) // 2
    assert rest == ["begin refit", "end refit"] * refits + ["end fit", "teardown"] and refits in (1, 2)
    np.testing.assert_array_equal(values(estimator), values(plain))
    np.testing.assert_array_equal(estimator.coef_, plain.coef_)
    tried = [model.alpha_ if isinstance(model, PrioritizedLassoCV) else model.C_ for model in recorder.kept]
    assert tried == (estimator.alphas_ if isinstance(estimator, PrioritizedLassoCV) else estimator.Cs_).tolist() * 3
    assert len({model.coef_.tobytes() for model in recorder.kept}) > 3
    pickle.loads(pickle.dumps(estimator.set_callbacks())).predict(X)


def test_callbacks_of_parts_see_the_steps_of_the_fit_on_all_samples(case):
    class Deep(Recorder):
        max_propagation_depth = None

    estimator, target = case
    recorder = Deep()
    estimator.set_callbacks(recorder).fit(X, target)
    assert recorder.events.count("end step") >= 1
    assert recorder.events.count("setup") == recorder.events.count("teardown") == 1


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_callback_ends_paths(case, n_jobs):
    """Penalties that were not tried everywhere are not chosen."""
    estimator, target = case
    full = clone(estimator).fit(X, target)
    estimator.set_params(n_jobs=n_jobs).set_callbacks(Penalties(stop_at=2)).fit(X, target)
    np.testing.assert_array_equal(values(estimator)[:2], values(full)[:2])
    assert np.isnan(values(estimator)[2]).all()
    if isinstance(estimator, PrioritizedLassoCV):
        assert full.alpha_ == 0.1 and estimator.alpha_ == 0.3
    else:
        assert estimator.C_ in (0.1, 1.0)


def test_verbose_shows_a_progress_bar(case, capfd):
    pytest.importorskip("rich")
    estimator, target = case
    estimator.set_params(verbose=1, n_jobs=2).fit(X, target)
    shown = capfd.readouterr().out
    assert f"{type(estimator).__name__} - cross-validation" in shown
    assert not hasattr(estimator, "_skl_callbacks")


# -- input and errors ----------------------------------------------------------------------------------------------


def test_folds_that_cannot_be_fitted_or_scored_are_named(case):
    estimator, target = case
    weights = np.ones(60)
    weights[:20] = 0.0
    thirds = list(KFold(3).split(X))
    with pytest.raises(ValueError, match=r"fold 0 of cv=.* no samples of positive weight held out"):
        estimator.set_params(cv=thirds).fit(X, target, sample_weight=weights)
    with pytest.raises(ValueError, match=r"fold 0 of cv=.* no samples of positive weight to fit"):
        estimator.set_params(cv=[(np.arange(20), np.arange(20, 60))]).fit(X, target, sample_weight=weights)
    with pytest.raises(ValueError, match="gives no folds"):
        estimator.set_params(cv=[]).fit(X, target)


def test_a_fold_of_one_class_is_named():
    labels = np.arange(60) >= 30
    with pytest.raises(ValueError, match=r"cv=.* leaves one class only, .*StratifiedKFold"):
        SparseLogisticRegressionCV(cv=KFold(2)).fit(X, labels)


@pytest.mark.filterwarnings("ignore:Only one class is present in y_true")
def test_a_score_that_is_no_number_is_named():
    labels = np.arange(60) >= 20
    with pytest.raises(ValueError, match=r"scoring='roc_auc' is NaN on a fold of cv="):
        SparseLogisticRegressionCV(cv=KFold(6), scoring="roc_auc").fit(X, labels)


def test_input_of_any_form(case):
    """Frames, sparse and masked folds, an iterator of folds: the same model."""
    estimator, target = case
    folds = list(KFold(3).split(X))
    expected = clone(estimator).set_params(cv=folds).fit(X, target)
    frame = pd.DataFrame(X, columns=[f"column {j}" for j in range(8)], index=np.arange(60)[::-1])
    named = clone(estimator).set_params(cv=folds).fit(frame, pd.Series(target, index=frame.index))
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    masks = [tuple(np.isin(np.arange(60), part) for part in fold) for fold in folds]
    lists = [tuple(part.tolist() for part in fold) for fold in folds]
    np.testing.assert_allclose(values(named), values(expected), rtol=1e-9)  # a frame comes by columns
    np.testing.assert_allclose(named.coef_, expected.coef_, atol=1e-9)
    for other in (
        clone(estimator).set_params(cv=masks).fit(X, target),
        clone(estimator).set_params(cv=lists).fit(X, target),
        estimator.set_params(cv=iter(folds), n_jobs=2).fit(X, target),
    ):
        np.testing.assert_array_equal(values(other), values(expected))
        np.testing.assert_array_equal(other.coef_, expected.coef_)
    single = clone(expected).fit(X.astype(np.float32), target)
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(values(single), values(expected), rtol=1e-3)
    sparse = clone(expected).fit(sp.coo_array(X), target)
    np.testing.assert_allclose(values(sparse), values(expected), rtol=1e-4)


def test_a_single_penalty_and_a_constant_response():
    ours = PrioritizedLassoCV(alphas=1, cv=2).fit(X, Y)
    assert ours.alphas_.shape == (1,) and not ours.coef_.any()
    constant = PrioritizedLassoCV(alphas=3, cv=2).fit(X, np.full(60, 7.0))
    assert not constant.coef_.any() and constant.intercept_ == 7.0
    np.testing.assert_array_equal(constant.mse_path_, 0.0)
    assert SparseLogisticRegressionCV(Cs=1, cv=2).fit(X, Y > 0).Cs_.tolist() == [1e-4]


def test_samples_without_weight_may_be_of_any_class():
    weights, labels = np.ones(60), np.where(Y > 0, "yes", "no")
    weights[::6], labels[::6] = 0.0, "never seen"
    ours = SparseLogisticRegressionCV(Cs=[1.0], cv=KFold(3), scoring="neg_log_loss")
    ours.fit(X, labels, sample_weight=weights)
    assert ours.classes_.tolist() == ["no", "yes"] and np.isfinite(ours.scores_).all()
