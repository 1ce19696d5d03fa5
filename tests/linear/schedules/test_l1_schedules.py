"""What the schedules of the papers draw and let pass.

Counts and correlations are made by NumPy.
"""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression, schmp
from schmp_estimators.core.schedules.dynamic import SCHEDULES
from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    DynamicRegressionSchedule,
    RowSample,
)
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.rounds import Round


class Given:
    """Draws what it is told to."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def draw(self, count, excluded):
        return np.setdiff1d(self.draws.pop(0), excluded, assume_unique=True)[:count]

    def put_back(self, parameters):
        pass


@pytest.mark.parametrize(("correlation", "second"), [(0.9, [2]), (0.05, [1, 2])])
def test_columns_in_flight_keep_their_relatives_waiting(correlation, second):
    """Column 1 is related to column 0, whose update is under way when it is its turn."""
    table = np.eye(6)
    table[0, 1] = table[1, 0] = correlation
    schedule = DynamicRegressionSchedule(
        schmp.Priority(2, max_correlation=0.1, oversample=1.0, pipeline_depth=2),
        Given([0], [1, 2], [3], [4]),
        5,
    )

    def answer(check):
        schedule.answer(
            check, table[np.ix_(check.candidates, np.concatenate([check.candidates, check.others]))]
        )

    chosen, first = schedule.next_round()
    assert not len(chosen)
    chosen, next_check = schedule.next_round()
    assert not len(chosen)
    answer(first)
    chosen, _ = schedule.next_round()
    assert chosen.tolist() == [0]
    answer(next_check)
    chosen, _ = schedule.next_round()  # column 0 is in flight
    assert sorted(chosen.tolist()) == second


@pytest.mark.parametrize("n_schedulers", [1, 2])
@pytest.mark.parametrize("pipeline_depth", [1, 2])
def test_a_candidate_that_is_rejected_does_not_lose_its_turn(pipeline_depth, n_schedulers):
    """Columns of a pair are copies, and candidates of the same round.

    Who comes second would never be updated.
    """
    n_columns, rounds = 8, 60
    pair = (
        np.arange(n_columns) // (2 * n_schedulers) * n_schedulers
        + np.arange(n_columns) % n_schedulers
    )
    table = (pair[:, None] == pair).astype(float)
    schedule = schmp.RoundRobin(
        2, max_correlation=0.5, pipeline_depth=pipeline_depth, n_schedulers=n_schedulers
    ).start(n_columns)
    under_way, updates = [], np.zeros(n_columns, int)
    for number in range(rounds):
        chosen, check = schedule.next_round()
        updates[chosen] += 1
        under_way.append(check)
        if number + 1 >= pipeline_depth:
            asked = under_way.pop(0)
            both = np.concatenate([asked.candidates, asked.others])
            schedule.answer(asked, table[np.ix_(asked.candidates, both)])
    assert updates.min() >= rounds // (2 * n_columns)
    assert updates.max() <= 2 * updates.min()


@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
@pytest.mark.parametrize("correlation_rows", [None, 20])
@pytest.mark.parametrize("max_correlation", [0.3, None])
@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.01), SparseLogisticRegression(10.0)])
def test_samples_count_gradients_updates_and_products(
    estimator, max_correlation, correlation_rows, schedule, monkeypatch
):
    """Return for each round the columns that are updated, and pairs of columns.

    Their products tell if they depend.
    """
    if max_correlation is None:
        correlation_rows = None
    rng, counted, next_round = np.random.default_rng(0), [], DynamicRegressionSchedule.next_round

    def watched(self):
        columns, check = next_round(self)
        pairs = (
            0
            if check is None
            else len(check.candidates) * (len(check.candidates) + len(check.others))
        )
        counted.append((len(columns), pairs * (correlation_rows or 50)))
        assert (check is None) == (max_correlation is None)
        return columns, check

    monkeypatch.setattr(DynamicRegressionSchedule, "next_round", watched)
    X = rng.normal(size=(50, 12))
    chooses = SCHEDULES[schedule](
        3, max_correlation=max_correlation, correlation_rows=correlation_rows
    )
    estimator.set_params(schedule=chooses, max_iter=4, tol=1e-9)
    estimator.set_params(random_state=0, n_shards=2)
    with pytest.warns(ConvergenceWarning):
        history = estimator.fit(X, X[:, 0] > 0).history_
    updates, checked = np.sum(counted, axis=0)
    assert (history[-1]["updates"], history[-1]["checked"]) == (updates, checked)
    assert history[-1]["samples"] == 50 * (updates + 12 * len(history)) + checked


def test_priorities_follow_the_last_changes():
    """Column 0 is drawn until its second change, which is zero as columns are orthogonal.

    Then the others are.
    """
    X = np.linalg.qr(
        np.column_stack([np.ones(64), np.random.default_rng(0).normal(size=(64, 40))])
    )[0][:, 1:]
    lasso = PrioritizedLasso(1e-6, schedule=schmp.Priority(1), max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        lasso.fit(X, X @ np.append(100.0, np.ones(39)))
    assert np.count_nonzero(lasso.coef_) > 10


RNG = np.random.default_rng(1)
ALIKE = RNG.normal(size=(100, 1)) + 0.3 * RNG.normal(size=(100, 30))
OF_ALIKE = ALIKE[:, 0] + 0.1 * RNG.normal(size=100)


@pytest.mark.covering
@pytest.mark.parametrize("schedule", ["priority", "random", "round_robin"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("estimator", [PrioritizedLasso(1e-2), SparseLogisticRegression(1.0)])
def test_by_default_no_schedule_diverges_on_dense_columns_that_are_alike(
    estimator, depth, schedule
):
    """Up to 64 of 30 columns at a time overshoot, so rounds become smaller until they do not."""
    y = OF_ALIKE if isinstance(estimator, PrioritizedLasso) else OF_ALIKE > 0
    kept = schmp.Priority if schedule == "priority" else SCHEDULES[schedule]
    model = clone(estimator).set_params(
        schedule=kept(pipeline_depth=depth), max_iter=5000, tol=1e-4, random_state=0
    )
    if depth == 1:
        model.set_params(schedule=schedule)
    model.fit(ALIKE, y)
    objectives = [record["objective"] for record in model.history_]
    assert np.ravel(model.dual_gap_)[0] <= 1e-4 * objectives[0] * (2 if y is OF_ALIKE else 100)
    if depth == 1:  # what was taken back is in the history, too
        assert min(objectives) == objectives[-1]


@pytest.mark.parametrize("schedule", [schmp.Priority(4), schmp.Random(4), schmp.RoundRobin(4)])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_without_gradients_a_fit_ends_where_updates_change_little(schedule, n_shards):
    schedule = clone(schedule).set_params(refresh=None)
    model = PrioritizedLasso(0.05, schedule=schedule, tol=1e-6, n_shards=n_shards, random_state=0)
    few = ALIKE[:, :6] + RNG.normal(size=(100, 6))
    y = few[:, 0] - few[:, 1]
    exact = PrioritizedLasso(0.05, tol=1e-12).fit(few, y)
    np.testing.assert_allclose(model.fit(few, y).coef_, exact.coef_, atol=2e-3)
    often = PrioritizedLasso(
        0.05, schedule=clone(schedule).set_params(refresh=1), tol=1e-6, random_state=0
    ).fit(few, y)
    first, second = (record["dual_gap"] for record in model.history_[:2])
    assert second <= 1e-2 * first and len(model.history_) < len(often.history_)
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        cut = clone(model).set_params(max_iter=2, tol=1e-12).fit(few, y)
    assert 12 <= cut.history_[-1]["updates"] <= 24 and len(cut.history_) == 2


def test_the_record_of_moves_is_that_of_the_fit():
    schedule = schmp.Priority(2, moved_above=0.0)
    fit = {"schedule": schedule, "random_state": 0, "tol": 1e-3}
    lasso = PrioritizedLasso(0.05, **fit).fit(ALIKE[:, :8], OF_ALIKE)
    assert lasso.moves_.n_updates.sum() == lasso.history_[-1]["updates"]
    moved = lasso.moves_.last_moved > 0
    assert (
        moved[lasso.coef_ != 0].all()
        and lasso.moves_.last_moved.max() <= lasso.moves_.n_updates.mean()
    )
    classes = np.digitize(OF_ALIKE, [-0.5, 0.5])
    several = SparseLogisticRegression(0.1, **fit).fit(ALIKE[:, :8], classes)
    assert len(several.moves_) == 3
    plain = PrioritizedLasso(0.05, schedule=schmp.Priority(2), random_state=0, tol=1e-3)
    assert not hasattr(plain.fit(ALIKE[:, :8], OF_ALIKE), "moves_")
    np.testing.assert_array_equal(plain.coef_, lasso.coef_)


def test_a_schedule_is_an_estimator_and_a_name_stands_for_it():
    schedule = schmp.Priority(4, weight=np.abs)
    kept = clone(pickle.loads(pickle.dumps(schedule)))
    assert str(kept) == str(schedule) and kept.get_params() == schedule.get_params()
    X, y = ALIKE[:, :8], OF_ALIKE
    search = GridSearchCV(
        PrioritizedLasso(0.1, schedule=schedule, random_state=0, tol=0.1),
        {"schedule__oversample": [1.0, 3.0], "schedule": [schmp.Priority(2)]},
        cv=2,
    ).fit(X, y)
    assert search.best_estimator_.schedule.n_parallel == 2 and schedule.n_parallel == 4
    named = PrioritizedLasso(0.1, schedule="random", random_state=0, tol=0.1).fit(X, y)
    given = PrioritizedLasso(0.1, schedule=schmp.Random(), random_state=0, tol=0.1).fit(X, y)
    np.testing.assert_array_equal(named.coef_, given.coef_)
    with pytest.raises(
        ValueError, match=r"schedule__n_parallel: schedule='random' is a name, which"
    ):
        named.set_params(schedule__n_parallel=3)
    with pytest.raises(ValueError, match=r"oversample=3\.0 of Random needs max_correlation"):
        named.set_params(schedule=schmp.Random(oversample=3.0)).fit(X, y)


class Outside(schmp.Schedule):
    """A schedule that the package does not know: the first column every other time."""

    def __init__(self, n_parallel=1, often=2):
        super().__init__(n_parallel)
        self.often = often

    def sampler(self, n_parameters, random):
        return FirstOften(n_parameters, self.often)


class FirstOften(schmp.Sampler):
    def __init__(self, count, often):
        self.count, self.often, self.turn = count, often, 0

    def save(self):
        return {"turn": self.turn}

    def restore(self, saved):
        self.turn = saved["turn"]

    def draw(self, count, excluded):
        self.turn += 1
        drawn = 0 if self.turn % self.often else self.turn % self.count
        return np.setdiff1d([drawn], excluded)


def test_a_schedule_from_outside_fits_searches_and_resumes(tmp_path):
    X, y = ALIKE[:, :5], OF_ALIKE
    lasso = PrioritizedLasso(1e-3, schedule=Outside(), tol=1e-8, random_state=0)
    whole = clone(lasso).fit(X, y)
    assert whole.dual_gap_ <= 1e-8 * y.var()
    assert clone(lasso).set_params(schedule__often=3).schedule.often == 3
    kept = {"checkpoint": tmp_path / "fit", "checkpoint_every": 1}
    with pytest.warns(ConvergenceWarning):
        clone(lasso).set_params(max_iter=1, **kept).fit(X, y)
    resumed = clone(lasso).set_params(**kept).fit(X, y)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    with pytest.raises(CheckpointMismatchError, match="schedule often"):
        clone(lasso).set_params(schedule__often=3, **kept).fit(X, y)


class Deaf(FirstOften):
    def refresh(self, changes):
        raise RuntimeError("told of changes")


@pytest.mark.parametrize("refresh", [None, 5, "auto"])
def test_samplers_are_told_of_gradients_only_if_there_are_any(refresh):
    class Asking(Outside):
        def sampler(self, n_parameters, random):
            return Deaf(n_parameters, self.often)

    schedule = Asking()
    schedule.refresh = refresh
    lasso = PrioritizedLasso(1e-3, schedule=schedule, tol=1e-3, random_state=0)
    if refresh is None:
        assert lasso.fit(ALIKE[:, :5], OF_ALIKE).dual_gap_ <= 1e-3 * OF_ALIKE.var()
        return
    with pytest.raises(RuntimeError, match="told of changes"):
        lasso.fit(ALIKE[:, :5], OF_ALIKE)


@pytest.mark.parametrize("weighted", [False, True])
def test_checked_products_of_drawn_rows_are_weighted_and_centred(weighted):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(30, 8)) + 1.0, rng.uniform(0.5, 2.0, 30)
    means, sample = np.average(X, axis=0, weights=weights), RowSample(5, 20)
    check = Check(np.array([1, 4]), np.array([6]), sample)
    nothing, given = np.empty(0, np.int64), weights if weighted else np.empty(0)
    job = Round(nothing, np.empty(0), np.zeros((1, 1)), nothing, check, means, Squared(), 30)
    found = 0.0
    for rows in split_rows(X, np.zeros(30), given, 2):
        ready = rows._replace(state=np.zeros((1, 15)), extra=np.ones((1, 15)))
        found = found + job(ready)[1][2]
    drawn = sample.within(30, 0, 30)
    taken, own = (X - means)[drawn][:, [1, 4, 6]], weights[drawn] if weighted else np.ones(20)
    np.testing.assert_allclose(found, (taken[:, :2].T * own) @ taken, atol=1e-12)
