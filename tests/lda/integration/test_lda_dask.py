"""DistributedLDA on Dask: any chunks give the bits of a fit in memory, what comes out is lazy, the data stay there."""

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from callbacks import dies
from clusters import Killer, keys_left
from corpora import NAMES, SMALL, assert_same_bits, planted
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import DistributedLDA
from schmp_estimators.core.errors import NoWorkersError, WorkLostError
from schmp_estimators.lda.programs.warp_values import MetWords


def make(**parameters):
    return DistributedLDA(**{"n_components": 3, "max_iter": 4, "evaluate_every": 2, "random_state": 7} | parameters)


@pytest.fixture(scope="module")
def expected():
    return make().fit(SMALL)


def chunked(chunks, form=None, X=SMALL):
    array = da.from_array(X, chunks=chunks)
    return array if form is None else array.map_blocks(form, dtype=X.dtype, meta=form((1, 1), dtype=X.dtype))


def unknown(form=None, chunks=(7, 11)):
    array = chunked(chunks)
    array = array[da.from_array(np.ones(len(SMALL), bool), chunks=chunks[0])]
    return array if form is None else array.map_blocks(form, dtype=SMALL.dtype, meta=form((1, 1), dtype=SMALL.dtype))


FORMS = {
    "dense": lambda: chunked((7, 11)),
    "float": lambda: chunked((7, 11), X=SMALL.astype(float)),
    "one row a chunk": lambda: chunked((1, 11)),
    "empty chunks": lambda: chunked(((0, 5, 0, 18, 0), (11,))),
    "csr_array": lambda: chunked((7, 11), sparse.csr_array),
    "csc_matrix": lambda: chunked((7, 11), sparse.csc_matrix),
    "coo_array": lambda: chunked((7, 11), sparse.coo_array),
    "columns": lambda: chunked((7, 4)),
    "sparse columns": lambda: chunked((7, 4), sparse.csr_matrix),
    "unknown rows": unknown,
    "unknown rows, sparse": lambda: unknown(sparse.csr_array),
    "unknown rows, columns": lambda: unknown(chunks=(7, 4)),
    "data frame": lambda: dd.from_pandas(pd.DataFrame(SMALL, columns=NAMES), npartitions=4),
    "delayed": lambda: [dask.delayed(SMALL[:9]), dask.delayed(sparse.csr_array)(SMALL[9:])],
}


def values(result, client):
    """Compute a lazy result: on the cluster, or here without one."""
    assert not isinstance(result, np.ndarray)
    parts = result if isinstance(result, list) else [result]
    done = client.gather(client.compute(parts)) if client else dask.compute(*parts, scheduler="sync")
    return np.concatenate(done)


@pytest.mark.covering
# Every other one with each change, all of them in the slow lane.
@pytest.mark.parametrize(
    "kind", [kind if n % 2 else pytest.param(kind, marks=pytest.mark.slow) for n, kind in enumerate(FORMS)]
)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_kind_of_collection_gives_the_bits_of_memory(kind, place, expected):
    X = FORMS[kind]()
    lda = make()
    if place is None:
        assert_same_bits(lda.fit(X), expected)
    else:
        with place.as_current():
            assert_same_bits(lda.fit(X), expected)
            assert lda.perplexity(X) == expected.perplexity(SMALL)
            assert lda.score(X) == expected.score(SMALL)
    np.testing.assert_array_equal(values(expected.transform(X), place), expected.transform(SMALL))


def test_transform_of_an_array_is_a_lazy_array_with_the_same_rows(place, expected):
    for kind in ("dense", "columns", "unknown rows", "sparse columns"):
        X = FORMS[kind]()
        theta = expected.transform(X)
        assert isinstance(theta, da.Array)
        assert (theta.dtype, theta.ndim, theta.shape[1], theta.chunks[1]) == (np.float64, 2, 3, (3,))
        np.testing.assert_array_equal(theta.chunks[0], X.chunks[0])
        part = theta.max(axis=1)  # more work, as lazy
        np.testing.assert_array_equal(values(part, place), expected.transform(SMALL).max(axis=1))


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), form=st.sampled_from([None, sparse.csr_array, sparse.csc_matrix]), n_shards=st.integers(1, 6))
def test_any_chunks_and_any_shards_give_the_same_bits(place, expected, data, form, n_shards):
    def cuts(n):
        inner = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=4)))
        return tuple(np.diff([0, *inner, n]).tolist())

    X = chunked((cuts(23), cuts(11)), form)
    lda = make(n_shards=n_shards)
    if place is None:
        lda.fit(X)
    else:
        with place.as_current():
            lda.fit(X)
    assert_same_bits(lda, expected)


# The data stay where they are.


@pytest.mark.slow
def test_the_client_never_has_the_documents(processes, expected):
    X = chunked((5, 11)).map_blocks(make_untouchable, dtype=SMALL.dtype, meta=sparse.csr_array((1, 1), dtype=int))
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


@pytest.mark.parametrize("how", ["bad value", "callback", "bad parameter", "good"])
def test_nothing_is_left_on_the_cluster(client, how):
    bad = SMALL.copy()
    bad[20, 3] = -1
    X = chunked((7, 11), X=bad if how == "bad value" else SMALL)
    lda = make(n_shards=3, mh_steps=9 if how == "bad parameter" else 2)
    lda.set_callbacks(dies(1 if how == "callback" else 99, ZeroDivisionError))
    with client.as_current():
        if how == "good":
            lda.fit(X).perplexity(X)
        else:
            with pytest.raises((ValueError, ZeroDivisionError)):
                lda.fit(X)
    assert keys_left(client) == []


# Clusters of processes.


@pytest.fixture(scope="module")
def corpus():
    return planted(n_docs=90, seed=3)[0]


@pytest.fixture(scope="module")
def local_fit(corpus):
    return make(max_iter=12).fit(corpus)


@pytest.mark.parametrize(
    ("lazy", "sampler"),
    [
        pytest.param(False, "warp", id="warp, in memory"),
        pytest.param(True, "warp", marks=pytest.mark.slow, id="warp, on Dask"),
        pytest.param(True, "fplus", marks=pytest.mark.slow, id="fplus, on Dask"),
        pytest.param(True, "frozen", marks=pytest.mark.slow, id="frozen, on Dask"),
        pytest.param(True, "saber", marks=pytest.mark.slow, id="saber, on Dask"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
def test_a_killed_worker_does_not_change_a_bit(processes, lazy, sampler, corpus, local_fit):
    expected = local_fit if sampler == "frozen" else make(max_iter=12, n_shards=2, sampler=sampler).fit(corpus)
    killer = Killer(processes, at=5)
    with processes.as_current():
        X = chunked((20, 40), X=corpus) if lazy else corpus
        lda = make(max_iter=12, n_shards=2, sampler=sampler).set_callbacks(killer).fit(X)
    assert killer.killed
    assert_same_bits(lda, expected)
    assert keys_left(processes) == []


@pytest.mark.cluster
def test_tokens_that_are_lost_are_sampled_again_from_the_start(client, monkeypatch):
    expected = make(sampler="warp").fit(SMALL)
    of_shards, asked = MetWords.of, iter(range(10**9))

    def of_shards_but_once(*given):
        if next(asked) == 5:  # in a later sweep than the first two: in each two shards ask
            raise WorkLostError("a peer is gone")
        return of_shards(*given)

    monkeypatch.setattr(MetWords, "of", of_shards_but_once)
    with client.as_current():
        assert_same_bits(make(sampler="warp", n_shards=2).fit(SMALL), expected)
    assert next(asked) > 5 + 2 * 4
    assert keys_left(client) == []


@pytest.mark.cluster
def test_one_shard_for_each_process_whatever_threads_it_has(corpus, local_fit, monkeypatch):
    """The sampler divides the work of a shard among the threads of its worker."""
    monkeypatch.setattr("schmp_estimators.lda.fit.default_shards", lambda *_, **__: 8)
    monkeypatch.setattr("schmp_estimators.lda.programs.frozen_counts.MIN_JOB", 50)
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        lda = make(max_iter=12).fit(corpus)
    assert lda.n_shards_ == 2
    assert_same_bits(lda, local_fit)


@pytest.mark.cluster
def test_what_is_in_memory_is_applied_without_the_cluster(expected):
    """A cluster that happens to be there is not asked, not even for workers, for what this process does at once."""
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        dask.config.set({"schmp-estimators.worker-timeout": 0.1}),
    ):
        with pytest.raises(NoWorkersError):
            expected.perplexity(chunked((7, 11)))
        assert expected.perplexity(SMALL) > 0
        assert expected.score(SMALL) < 0
        assert isinstance(expected.transform(SMALL), np.ndarray)
