"""Rows that are made again each time they are read.

The same rows, also where workers read files of their own.
"""

import errno
import os
import shutil
import weakref
from collections import Counter
from contextlib import closing
from pathlib import Path
from socket import gethostname

import numpy as np
import pytest
from input_cases import IN_MEMORY, ON_DASK, memory_mapped, rows_after_the_first
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.inputs import rows as rows_module
from schmp_estimators.core.inputs.rows import open_rows
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.exceptions import NotSharedError, SpillError

X = np.random.default_rng(0).poisson(0.4, (40, 7))
COUNTED = []


def as_array(rows):
    COUNTED.append(rows.shape[0])
    return rows.toarray() if sparse.issparse(rows) else np.array(rows)


SOME = ["int64", "columns first", "csr_array", "csr_matrix", "csc_array"]
SOME_ON_DASK = ["columns", "csr_array", "delayed"]
FORMS = {
    **{name: lambda folder, make=IN_MEMORY[name]: make(X) for name in SOME},
    **{f"dask, {name}": lambda folder, make=ON_DASK[name]: make(X) for name in SOME_ON_DASK},
    "memory-mapped": lambda folder: memory_mapped(X, folder),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_input_has_the_same_rows_again_and_again(form, tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", 20)
    monkeypatch.setattr(rows_module, "_BYTES_AT_ONCE", 7 * X.itemsize * 6)
    given, estimator = FORMS[form](tmp_path), DistributedLDA()
    with open_rows(as_array, given, estimator, again=True) as rows:
        assert (
            form == "dask, delayed" or estimator.n_features_in_ == 7
        )  # what makes it does not tell
        for _ in range(2):
            np.testing.assert_array_equal(np.concatenate(rows.here(rows.partitions)), X)
        sums = rows.here(rows.each(np.sum, "sum"))
        assert len(sums) > 2 and sum(sums) == X.sum()
        assert rows.reduce(np.sum, sum, "sum") == X.sum()
    with open_rows(as_array, given, estimator) as held:
        np.testing.assert_array_equal(np.concatenate(held.partitions), X)


def test_a_partition_goes_before_the_next_one_is_made(monkeypatch):
    """Otherwise two of them would be in memory at a time."""
    made, there = [], []

    def as_object(rows):
        there.append(sum(one() is not None for one in made))
        found = Counter(as_array(rows).ravel().tolist())
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", 20)
    monkeypatch.setattr(rows_module, "_BYTES_AT_ONCE", 7 * X.itemsize * 6)
    with open_rows(as_object, X, DistributedLDA(), again=True) as rows:
        del made[:], there[:]
        rows.here(rows.each(len, "count"))
    assert len(there) > 2 and set(there) == {0}


# Files that workers read under their path.


def shorter(file):
    np.save(file, np.load(file)[:-1])


def last_bit(file):
    file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1]))


MAPPED = {"sparse": (memory_mapped, "indices.npy"), "dense": (rows_after_the_first, "X.npy")}


def read_by_workers(form, apart, monkeypatch):
    """Return the rows of a file, and the files of workers.

    Each process has the file in a folder of its own.
    """
    path, (own, *others) = apart
    monkeypatch.setattr(rows_module, "_ENTRIES_AT_ONCE", 20)
    monkeypatch.setattr(rows_module, "_BYTES_AT_ONCE", 7 * X.itemsize * 6)
    make, name = MAPPED[form]
    given = make(X, path)
    for other in others:
        shutil.copytree(own, other, dirs_exist_ok=True)
    return open_rows(as_array, given, DistributedLDA(), again=True), [
        other / name for other in others
    ]


def gathered(rows, client, folder=None):
    with rows.elsewhere(DaskPlace(client), folder) as there:
        return np.concatenate(there.here(there.partitions))


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("change", [shorter, last_bit, Path.unlink])
@pytest.mark.parametrize("form", MAPPED)
def test_a_file_that_is_another_one_only_later_is_noticed_by_who_reads_it(
    form, change, processes, apart, monkeypatch
):
    rows, theirs = read_by_workers(form, apart, monkeypatch)
    whole = theirs[0].read_bytes()
    theirs[0].write_bytes(whole + b"more than X has")
    np.testing.assert_array_equal(gathered(rows, processes), X)
    theirs[0].write_bytes(whole)
    with closing(DaskPlace(processes)) as place, rows.elsewhere(place, None) as there:
        for one in theirs:
            change(one)
        if change is not Path.unlink:
            [first] = there.here(there.partitions[:1])
            np.testing.assert_array_equal(first, X[: len(first)])
        what = "cannot read" if change is Path.unlink else "does not find in"
        with pytest.raises(
            NotSharedError, match=f"host {gethostname()} {what} '{apart[0]}/{theirs[0].name}'"
        ):
            there.here(there.partitions)


@pytest.mark.parametrize("form", MAPPED)
def test_what_a_worker_does_not_reach_is_copied_where_all_reach_it(
    form, processes, apart, monkeypatch, tmp_path
):
    rows, theirs = read_by_workers(form, apart, monkeypatch)
    theirs[1].unlink()
    np.testing.assert_array_equal(gathered(rows, processes, tmp_path / "copies"), X)
    with pytest.raises(
        NotSharedError, match=r"does not reach '.*here/copies', where it would read a copy"
    ):
        gathered(rows, processes, f"{apart[0]}/copies")
    assert not [*tmp_path.glob("copies"), *tmp_path.glob("*/copies")]


def test_a_disk_without_room_for_a_copy_is_named_and_nothing_stays(client, monkeypatch, tmp_path):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fail)
    with (
        open_rows(as_array, X, DistributedLDA(), again=True) as rows,
        pytest.raises(SpillError, match=r"no room for what spill puts into .*copies.* free some"),
        rows.elsewhere(DaskPlace(client), str(tmp_path / "copies")),
    ):
        pass
    assert os.listdir(tmp_path) == []
