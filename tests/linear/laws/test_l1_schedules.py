"""What the schedules of the papers draw and let pass, against counts and correlations made by NumPy."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.core.schedules.dynamic_regression import DynamicRegressionSchedule
from schmp_estimators.linear.programs.rounds import make_schedule


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
        Given([0], [1, 2], [3], [4]), 2, 0.1, oversample=1.0, pipeline_depth=2
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
    """Columns of a pair are copies, and candidates of the same round: who comes second would never be updated."""
    n_columns, rounds = 8, 60
    pair = (
        np.arange(n_columns) // (2 * n_schedulers) * n_schedulers
        + np.arange(n_columns) % n_schedulers
    )
    table = (pair[:, None] == pair).astype(float)
    schedule = make_schedule(n_columns, "round_robin", 2, 0.5, 0, pipeline_depth, n_schedulers)
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
@pytest.mark.parametrize("max_correlation", [0.3, 1.0])
@pytest.mark.parametrize("estimator", [PrioritizedLasso(0.01), SparseLogisticRegression(10.0)])
def test_samples_count_gradients_updates_and_products(
    estimator, max_correlation, schedule, monkeypatch
):
    """Of each round the columns that are updated, and the pairs of columns whose products tell if they depend."""
    rng, counted, next_round = np.random.default_rng(0), [], DynamicRegressionSchedule.next_round

    def watched(self):
        columns, check = next_round(self)
        pairs = (
            0
            if check is None
            else len(check.candidates) * (len(check.candidates) + len(check.others))
        )
        counted.append(len(columns) + pairs)
        assert (check is None) == (max_correlation == 1.0)
        return columns, check

    monkeypatch.setattr(DynamicRegressionSchedule, "next_round", watched)
    X = rng.normal(size=(50, 12))
    estimator.set_params(
        schedule=schedule, max_correlation=max_correlation, n_parallel=3, max_iter=4, tol=1e-9
    )
    estimator.set_params(random_state=0, n_shards=2)
    with pytest.warns(ConvergenceWarning):
        history = estimator.fit(X, X[:, 0] > 0).history_
    assert history[-1]["samples"] == 50 * (sum(counted) + 12 * len(history))


def test_priorities_follow_the_last_changes():
    """Column 0 is drawn until its second change, which is zero as columns are orthogonal; then the others are."""
    X = np.linalg.qr(
        np.column_stack([np.ones(64), np.random.default_rng(0).normal(size=(64, 40))])
    )[0][:, 1:]
    lasso = PrioritizedLasso(1e-6, schedule="priority", n_parallel=1, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        lasso.fit(X, X @ np.append(100.0, np.ones(39)))
    assert np.count_nonzero(lasso.coef_) > 10
