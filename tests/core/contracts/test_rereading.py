"""Rows that are made again each time they are read: the same rows, and no more of them at a time than one partition."""

import gc
import weakref

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.door import rows as door
from schmp_estimators.core.door.rows import open_again, open_rows
from schmp_estimators.core.places.held import Rows
from schmp_estimators.core.places.rereading import Rereading

X = np.random.default_rng(0).poisson(0.4, (40, 7))
COUNTED = []


def as_array(rows):
    COUNTED.append(rows.shape[0])
    return rows.toarray() if sparse.issparse(rows) else np.array(rows)


def memory_mapped(folder):
    made = sparse.csr_array(X)
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(made, name))
    parts = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
    return sparse.csr_array(tuple(parts), shape=X.shape, copy=False)


FORMS = {
    "dense": lambda folder: X,
    "fortran": lambda folder: np.asfortranarray(X),
    "csr": lambda folder: sparse.csr_array(X),
    "matrix": lambda folder: sparse.csr_matrix(X),
    "csc": lambda folder: sparse.csc_array(X),
    "memory-mapped": memory_mapped,
    "dask": lambda folder: da.from_array(X, chunks=(9, 4)),
    "dask, sparse": lambda folder: da.from_array(X, chunks=(9, -1)).map_blocks(sparse.csr_array),
    "delayed": lambda folder: [dask.delayed(sparse.csr_array)(X[i : i + 9]) for i in range(0, 40, 9)],
}


@pytest.mark.parametrize("form", FORMS)
def test_any_input_has_the_same_rows_again_and_again(form, tmp_path, monkeypatch):
    monkeypatch.setattr(door, "_ENTRIES_AT_ONCE", 20)
    monkeypatch.setattr(door, "_BYTES_AT_ONCE", 7 * X.itemsize * 6)
    given, estimator = FORMS[form](tmp_path), DistributedLDA()
    with open_again(as_array, given, estimator) as rows:
        assert form == "delayed" or estimator.n_features_in_ == 7  # what makes it does not tell
        for _ in range(2):
            np.testing.assert_array_equal(np.concatenate(rows.here(rows.partitions)), X)
        sums = rows.here(rows.each(np.sum, "sum"))
        assert len(sums) > 3 and sum(sums) == X.sum()
        assert rows.reduce(np.sum, sum, "sum") == X.sum()
    with open_rows(as_array, given, estimator) as held:
        np.testing.assert_array_equal(np.concatenate(held.partitions), X)


def test_nothing_is_made_before_it_is_asked_for_and_neighbours_share():
    COUNTED.clear()
    rows = open_again(as_array, da.from_array(X, chunks=(10, -1)), DistributedLDA())
    sums = rows.tasks(lambda part, more: part.sum() + more, [(one, 1) for one in rows.partitions for _ in "ab"], "sum")
    nested = rows.tasks(sum, [(sums,)], "all")
    assert COUNTED == []
    assert rows.here(nested) == [2 * X.sum() + 8]
    assert COUNTED == [10] * 4


@pytest.mark.slow
def test_one_partition_at_a_time():
    alive = weakref.WeakSet()

    class Part:
        def __init__(self):
            gc.collect()
            assert not alive
            alive.add(self)

    place = Rereading()
    rows = Rows(place.partitions([Part] * 5), place)
    assert rows.here(rows.each(lambda part: 1, "one")) == [1] * 5
    assert len(alive) == 1
    rows.close()
    gc.collect()
    assert not alive


def test_no_rows_and_long_rows(monkeypatch):
    monkeypatch.setattr(door, "_ENTRIES_AT_ONCE", 2)
    for given in (sparse.csr_array((4, 3), dtype=int), sparse.csr_array(np.ones((3, 9), int))):
        rows = open_again(as_array, given, DistributedLDA())
        np.testing.assert_array_equal(np.concatenate(rows.here(rows.partitions)), given.toarray())
