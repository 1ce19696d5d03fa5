"""Inputs: every kind of input gives the same counts, here and on a cluster, and stays lazy where it should."""

from contextlib import closing

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import place_of
from input_cases import COUNTS, NAMES, Reader, chunked, delayed_chunks, unknown
from scipy import sparse

from schmp_estimators.core.inputs.validation import is_dask, map_rows
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.data.partition import cut_documents


class Counted:
    """A chunk-maker that counts its calls."""

    calls = 0

    def __call__(self, chunk):
        Counted.calls += 1
        return np.asarray(chunk)


ON_DASK = {
    "dense chunks": lambda: chunked((4, 7)),
    "column chunks": lambda: chunked((4, 3)),
    "one chunk": lambda: chunked((13, 7)),
    "wrong dtype": lambda: chunked((4, 7)).map_blocks(np.asarray, dtype=np.float64, meta=np.empty((0, 0))),
    "unknown rows": lambda: unknown((4, 7)),
    "unknown rows, column chunks": lambda: unknown((4, 3)),
    "unknown rows, sparse column chunks": lambda: unknown((4, 3), sparse.csr_array),
    "csr_array chunks": lambda: chunked((4, 7), sparse.csr_array),
    "csr_matrix column chunks": lambda: chunked((4, 3), sparse.csr_matrix),
    "coo_array column chunks": lambda: chunked((4, 3), sparse.coo_array),
    "dok_array column chunks": lambda: chunked((4, 3), sparse.dok_array),
    "data frame": lambda: dd.from_pandas(pd.DataFrame(COUNTS, columns=NAMES), npartitions=3),
    "delayed": delayed_chunks,
}


def assert_same_counts(X, client, n_shards=4):
    reader = Reader()
    with closing(open_corpus(X, reader, place=place_of(client))) as corpus:
        np.testing.assert_array_equal(corpus.lengths, COUNTS.sum(axis=1))
        np.testing.assert_array_equal(corpus.word_totals, COUNTS.sum(axis=0))
        assert corpus.n_features == reader.n_features_in_ == 7
        assert corpus.partition_rows.sum() == 13
        bounds = cut_documents(corpus.lengths, n_shards)
        for shard, first, stop in zip(corpus.rows.here(corpus.shards(bounds)), bounds, bounds[1:], strict=False):
            expected = canonical_counts(COUNTS[first:stop])
            np.testing.assert_array_equal(np.concatenate([piece.indices for piece in shard]), expected.indices)
            np.testing.assert_array_equal(np.concatenate([piece.data for piece in shard]), expected.data)
            rows = np.concatenate([np.diff(piece.indptr) for piece in shard])
            np.testing.assert_array_equal(rows, np.diff(expected.indptr))


def multiply(rows, factor):
    return (np.asarray(rows.sum(axis=1)).reshape(-1, 1) * np.array([factor, 1])).astype(np.float32)


@pytest.mark.covering
@pytest.mark.parametrize("kind", ON_DASK)
def test_every_kind_on_dask_gives_the_same_counts(kind, place):
    assert is_dask(ON_DASK[kind]())
    assert_same_counts(ON_DASK[kind](), place)


def test_a_persisted_input_is_read_where_it_is(client):
    for lazy in (chunked((4, 7)), dd.from_pandas(pd.DataFrame(COUNTS), npartitions=3)):
        assert_same_counts(client.persist(lazy), client)


@pytest.mark.covering
@pytest.mark.parametrize("kind", ON_DASK)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_map_rows_on_dask(kind, place):
    X, reader = ON_DASK[kind](), Reader()
    reader.n_features_in_ = 7
    result = map_rows(multiply, X, reader, 3, n_outputs=2, dtype=np.float32, name="test")
    if isinstance(X, list):
        assert is_dask(result)
        assert len(result) == len(X)
        values = np.concatenate(place.gather(place.compute(result)) if place else dask.compute(*result))
    else:
        assert isinstance(result, da.Array)
        assert (result.dtype, result._meta.dtype, type(result._meta)) == (np.float32, np.float32, np.ndarray)
        assert result.chunks[1] == (2,)
        if isinstance(X, da.Array):
            np.testing.assert_array_equal(result.chunks[0], X.chunks[0])
        values = place.compute(result).result() if place else result.compute()
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, multiply(COUNTS, 3))


def test_map_rows_computes_nothing():
    Counted.calls = 0
    reader = Reader()
    reader.n_features_in_ = 7
    make = Counted()
    array = chunked((4, 7)).map_blocks(make, dtype=int, meta=np.empty((0, 0), int))
    columns = chunked((4, 3)).map_blocks(make, dtype=int, meta=np.empty((0, 0), int))
    frame = dd.from_pandas(pd.DataFrame(COUNTS), npartitions=3).map_partitions(
        lambda part: pd.DataFrame(make(part)), meta=pd.DataFrame(COUNTS[:0])
    )
    for X in (array, columns, frame, [dask.delayed(make)(COUNTS)]):
        map_rows(multiply, X, reader, 3, n_outputs=2, dtype=np.float32, name="test")
    assert Counted.calls == 0


def test_every_chunk_is_made_once(place):
    Counted.calls = 0
    X = chunked((4, 7)).map_blocks(Counted(), dtype=int, meta=np.empty((0, 0), int))
    with closing(open_corpus(X, Reader(), place=place_of(place))) as corpus:
        corpus.rows.here(corpus.shards(cut_documents(corpus.lengths, 3)))
    assert Counted.calls == 4


def test_wrong_widths_are_found_before_work_or_in_the_chunk():
    reader = Reader()
    reader.n_features_in_ = 5
    message = "X has 7 features, but Reader is expecting 5 features as input"
    options = {"n_outputs": 2, "dtype": np.float32, "name": "test"}
    for X in (COUNTS, chunked((4, 7)), chunked((4, 3), sparse.csr_array)):
        with pytest.raises(ValueError, match=message):
            map_rows(multiply, X, reader, 3, **options)
        with pytest.raises(ValueError, match=message):
            open_corpus(X, reader, reset=False)
    with pytest.raises(ValueError, match=message):
        dask.compute(map_rows(multiply, delayed_chunks(), reader, 3, **options))
    with pytest.raises(ValueError, match=message):
        open_corpus(delayed_chunks(), reader, reset=False)


def test_feature_names_are_kept_compared_and_forgotten():
    reader, frame = Reader(), pd.DataFrame(COUNTS, columns=NAMES)
    open_corpus(dd.from_pandas(frame, npartitions=2), reader)
    assert reader.feature_names_in_.tolist() == NAMES
    open_corpus(dd.from_pandas(frame, npartitions=2), reader, reset=False)
    with pytest.raises(ValueError, match="feature names should match"):
        open_corpus(dd.from_pandas(frame[NAMES[::-1]], npartitions=2), reader, reset=False)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        open_corpus(chunked((4, 7)), reader, reset=False)
    open_corpus(delayed_chunks(), reader)
    assert not hasattr(reader, "feature_names_in_")


@pytest.mark.parametrize("scheduler", ["sync", "threads", "distributed"])
def test_without_a_client_no_cluster_is_asked(scheduler, client):
    with client.as_current(), dask.config.set(scheduler=scheduler):
        before = client.cluster.scheduler.transition_counter
        assert_same_counts(chunked((4, 7)), None)
        assert client.cluster.scheduler.transition_counter == before
