"""Matrix factorisation on clusters of real processes."""

from functools import partial

import dask.array as da
import numpy as np
import pytest
from clusters import Killer, keys_left
from mf_cases import bits
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.engine.static import GroupRun

make = partial(ModelParallelMF, n_components=9, max_iter=8, tol=0.0, n_shards=4, random_state=0)


@pytest.fixture(scope="module")
def ratings():
    generator = np.random.default_rng(0)
    observed = np.argwhere(generator.random((200, 90)) < 0.3)
    return observed, generator.integers(1, 6, len(observed)).astype(np.float32)


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
    assert bits(found) == bits(expected)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_ratings_on_dask_stay_there(processes, ratings, solver):
    """The client may see counts and factors, and its model keeps no ratings."""
    pairs, values = ratings
    dense = sparse.coo_array((values, pairs.T), shape=(200, 90)).toarray()
    expected = make(solver=solver).fit(sparse.csr_array(dense))
    rows = da.from_array(dense, chunks=(70, 90))
    with processes.as_current():
        found = make(solver=solver).fit(rows.map_blocks(make_untouchable, meta=sparse.csr_array((1, 1))))
    assert bits(found) == bits(expected)
    with pytest.raises(ValueError, match="not kept with the model; pass exclude=None"):
        found.recommend([0])


@pytest.mark.parametrize("parameters", [{"solver": "sgd"}, {"solver": "ccd", "early_stopping": True}])
def test_workers_make_the_shards_of_ratings_in_memory(client, ratings, parameters):
    """What the client does not make itself it hears of: who has rated what, and which rating is given twice."""
    pairs, values = ratings
    expected = make(**parameters).fit(pairs, values)
    with client.as_current():
        found = make(**parameters).fit(pairs, values)
        assert bits(found) == bits(expected)
        np.testing.assert_array_equal(found.recommend([0, 7])[0], expected.recommend([0, 7])[0])
        twice = np.vstack([pairs, pairs[5:6]]), np.append(values, 3)
        before = dict(vars(found))
        with pytest.raises(ValueError, match=f"user {pairs[5, 0]} rated item {pairs[5, 1]} more than once"):
            found.fit(*twice)
        assert vars(found).keys() == before.keys()
        assert found.history_ == before["history_"]
        named = np.char.add("n", pairs.astype(str))
        with pytest.raises(ValueError, match=f"user n{pairs[5, 0]} rated item n{pairs[5, 1]} more than once"):
            make(**parameters).fit(np.vstack([named, named[5:6]]), twice[1])
    assert client.nthreads()
    assert keys_left(client) == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "sgd", "tol": 0.01},
        {"solver": "ccd", "tol": 0.02},
        {"solver": "ccd", "tol": 0.02, "unobserved_weight": 0.2},
        {"solver": "sgd", "tol": 0.02, "evaluate_every": 3},
        {"solver": "sgd", "tol": 1e-9, "max_iter": 12},
    ],
)
def test_workers_find_that_a_fit_has_converged(client, ratings, parameters, monkeypatch):
    pairs, values = ratings
    parameters = {"max_iter": 60, **parameters}
    expected = make(**parameters).fit(pairs, values)
    lengths, work = [], GroupRun._work

    def noting(run, n_sweeps):
        lengths.append(n_sweeps)
        work(run, n_sweeps)

    monkeypatch.setattr(GroupRun, "_work", noting)
    monkeypatch.setattr("schmp_estimators.core.engine.static.LONGEST_BATCH", 60.0)  # however slow the machine is
    with client.as_current():
        found = make(**parameters).fit(pairs, values)
    assert bits(found) == bits(expected)
    n_iter = expected.n_iter_
    assert found.n_iter_ == len(found.history_) == n_iter
    assert (n_iter == 12) == (parameters["max_iter"] == 12) and n_iter > 2
    assert len(lengths) <= 3 and sum(lengths) >= n_iter
