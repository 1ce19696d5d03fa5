"""DistributedLDA on Dask: the data stay there, nothing is left, and workers that die cost only time."""

import pickle
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from clusters import Killer, keys_left, own_cluster
from corpora import SMALL, assert_same_bits, planted
from input_cases import chunked
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import DistributedLDA
from schmp_estimators.core.errors import NoWorkersError

make = partial(DistributedLDA, n_components=3, max_iter=4, evaluate_every=2, random_state=7)


@pytest.fixture(scope="module")
def expected():
    return make().fit(SMALL)


# The data stay where they are.


@pytest.mark.slow
def test_the_client_never_has_the_documents(processes, expected):
    X = chunked(SMALL, 5).map_blocks(make_untouchable, dtype=SMALL.dtype, meta=sparse.csr_array((1, 1), dtype=int))
    with processes.as_current():
        with pytest.raises(AssertionError, match="the client has got a chunk"):
            X[:5].compute()  # so it would be noticed
        lda = make(n_shards=3).fit(X)
        assert_same_bits(lda, expected)
        assert lda.perplexity(X) == expected.perplexity(SMALL)
        theta = lda.transform(X)
        np.testing.assert_array_equal(theta.compute(), expected.transform(SMALL))
    assert keys_left(processes) == []


def test_what_travels_to_the_client_does_not_grow_with_the_documents(client):
    """A document of many words weighs more than all that the client needs to know of it."""

    rows, words = 60, 4000
    X = da.random.default_rng(0).poisson(1.0, (rows, words), chunks=(20, words))
    with client.as_current():
        seen = []
        gather = client.gather

        async def weigh(futures, *arguments, **options):
            found = await gather(futures, *arguments, **options)
            seen.append(len(pickle.dumps(found)))
            return found

        client.gather = weigh
        try:
            make(max_iter=2, n_shards=3).fit(X)
        finally:
            del client.gather
    assert seen
    assert max(seen) < rows * words  # of 8 bytes each


# Clusters of processes.


@pytest.mark.parametrize(
    ("lazy", "sampler"),
    [
        (False, "warp"),
        *(pytest.param(True, one, marks=pytest.mark.slow) for one in ("warp", "fplus", "frozen", "saber")),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
def test_a_killed_worker_does_not_change_a_bit(processes, lazy, sampler):
    X, parameters = planted(n_docs=90, seed=3)[0], {"max_iter": 12, "n_shards": 2, "sampler": sampler}
    killer, expected = Killer(processes, at=5), make(**parameters).fit(X)
    with processes.as_current():
        lda = make(**parameters).set_callbacks(killer).fit(chunked(X, 20) if lazy else X)
    assert killer.killed
    assert_same_bits(lda, expected)
    assert keys_left(processes) == []


@pytest.mark.cluster
def test_what_is_in_memory_is_applied_without_the_cluster(expected):
    """A cluster that happens to be there is not asked, not even for workers, for what this process does at once."""
    with own_cluster(0), dask.config.set({"schmp-estimators.worker-timeout": 0.1}):
        with pytest.raises(NoWorkersError):
            expected.perplexity(chunked(SMALL))
        assert expected.perplexity(SMALL) > 0
        assert expected.score(SMALL) < 0
        assert isinstance(expected.transform(SMALL), np.ndarray)
