"""Matrix factorisation on clusters of real processes."""

import dask.array as da
import joblib
import numpy as np
import pytest
from clusters import Killer
from sklearn.model_selection import GridSearchCV, KFold

from schmp_estimators import ModelParallelMF

SOLVERS = ["sgd", "ccd"]


@pytest.fixture(scope="module")
def ratings():
    generator = np.random.default_rng(0)
    observed = np.argwhere(generator.random((200, 90)) < 0.3)
    return observed, generator.integers(1, 6, len(observed)).astype(np.float32)


def make(**parameters):
    return ModelParallelMF(
        **{"n_components": 9, "max_iter": 8, "tol": 0.0, "n_shards": 4, "random_state": 0} | parameters
    )


def assert_same_bits(one, other):
    for name in ("components_", "user_factors_", "user_bias_", "item_bias_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "sgd"},
        pytest.param({"solver": "ccd"}, marks=pytest.mark.slow),
        pytest.param({"solver": "ccd", "unobserved_weight": 0.2}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
def test_a_killed_worker_does_not_change_a_bit(processes, ratings, parameters):
    pairs, values = ratings
    expected = make(**parameters).fit(pairs, values)
    killer = Killer(processes, at=3)
    with processes.as_current():
        found = make(**parameters).set_callbacks(killer).fit(pairs, values)
    assert killer.killed
    assert_same_bits(found, expected)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_grid_search_in_worker_processes_gives_the_same_scores(processes, ratings):
    grid, options = {"alpha": [0.01, 1.0]}, {"cv": KFold(2, shuffle=True, random_state=0)}
    expected = GridSearchCV(make(), grid, **options).fit(*ratings)
    with processes.as_current(), joblib.parallel_config("dask", client=processes):
        found = GridSearchCV(make(), grid, **options).fit(*ratings)
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])
    assert_same_bits(found.best_estimator_, expected.best_estimator_)


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_ratings_on_dask_stay_there(processes, ratings, solver):
    """The client may see counts and factors, and its model keeps no ratings."""
    pairs, values = ratings
    expected = make(solver=solver).fit(pairs, values)
    with processes.as_current():
        given = da.from_array(pairs, chunks=(500, 2)), da.from_array(values, chunks=500)
        found = make(solver=solver).fit(*given)
        dense = np.full((200, 90), np.nan)
        dense[tuple(pairs.T)] = values
        folded = found.transform(da.from_array(dense, chunks=(70, 90)))
        np.testing.assert_array_equal(folded.compute(), expected.transform(dense))
    assert_same_bits(found, expected)
    with pytest.raises(ValueError, match="not kept with the model; pass exclude=None"):
        found.recommend([0])
    np.testing.assert_array_equal(found.recommend([0], exclude=None)[0], expected.recommend([0], exclude=None)[0])
