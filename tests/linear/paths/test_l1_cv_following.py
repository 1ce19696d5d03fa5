"""What goes into the folds of the cross-validated L1 classes, and what is seen of them.

Groups, callbacks, errors.
"""

import pickle

import numpy as np
import pytest
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
    "three classes": (
        SparseLogisticRegressionCV(Cs=[0.1, 1.0, 10.0], cv=3),
        np.digitize(Y, [-1, 1]),
    ),
}


def values(estimator):
    return estimator.mse_path_ if isinstance(estimator, PrioritizedLassoCV) else estimator.scores_


@pytest.fixture(params=CASES)
def case(request):
    estimator, target = CASES[request.param]
    return clone(estimator), target


# -- groups ----------------------------------------------------------------------------------------


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


def test_scorers_get_what_they_ask_for():
    """Weights go to the scorer, cut to the samples held out.

    With routing, whatever else it requests goes there, too.
    """
    seen = []

    def metric(y_true, y_pred, sample_weight=None, costs=None):
        seen.append((len(y_true), None if costs is None else len(costs)))
        return accuracy_score(y_true, y_pred, sample_weight=sample_weight)

    weights = RNG.random(60) + 0.1
    estimator = SparseLogisticRegressionCV(Cs=[1.0], cv=3, scoring=make_scorer(metric))
    plain = clone(estimator).set_params(scoring=None).fit(X, Y > 0, sample_weight=weights)
    np.testing.assert_array_equal(
        estimator.fit(X, Y > 0, sample_weight=weights).scores_, plain.scores_
    )
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(metric).set_score_request(sample_weight=True, costs=True)
        for n_jobs in (1, 2):
            seen.clear()
            routed = SparseLogisticRegressionCV(Cs=[1.0], cv=3, scoring=scorer, n_jobs=n_jobs)
            routed.set_fit_request(sample_weight=True).fit(
                X, Y > 0, sample_weight=weights, costs=GROUPS
            )
            np.testing.assert_array_equal(routed.scores_, plain.scores_)
            assert seen == [(20, 20)] * 3


# -- callbacks -------------------------------------------------------------------------------------


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
    assert rest == ["begin refit", "end refit"] * refits + ["end fit", "teardown"] and refits in (
        1,
        2,
    )
    np.testing.assert_array_equal(values(estimator), values(plain))
    np.testing.assert_array_equal(estimator.coef_, plain.coef_)
    tried = [
        model.alpha_ if isinstance(model, PrioritizedLassoCV) else model.C_
        for model in recorder.kept
    ]
    assert (
        tried
        == (
            estimator.alphas_ if isinstance(estimator, PrioritizedLassoCV) else estimator.Cs_
        ).tolist()
        * 3
    )
    assert len({model.coef_.tobytes() for model in recorder.kept}) > 3
    pickle.loads(pickle.dumps(estimator.set_callbacks())).predict(X)


# -- input and errors ------------------------------------------------------------------------------


def test_folds_that_cannot_be_fitted_or_scored_are_named(case):
    estimator, target = case
    weights = np.ones(60)
    weights[:20] = 0.0
    thirds = list(KFold(3).split(X))
    with pytest.raises(ValueError, match=r"fold 0 of cv=.* no samples of positive weight held out"):
        estimator.set_params(cv=thirds).fit(X, target, sample_weight=weights)
    with pytest.raises(ValueError, match=r"fold 0 of cv=.* no samples of positive weight to fit"):
        estimator.set_params(cv=[(np.arange(20), np.arange(20, 60))]).fit(
            X, target, sample_weight=weights
        )
    with pytest.raises(ValueError, match="gives no folds"):
        estimator.set_params(cv=[]).fit(X, target)


def test_a_fold_of_one_class_is_named():
    labels = np.arange(60) >= 30
    with pytest.raises(ValueError, match=r"cv=.* leaves one class only, .*StratifiedKFold"):
        SparseLogisticRegressionCV(cv=KFold(2)).fit(X, labels)
