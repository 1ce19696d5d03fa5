"""Fits beyond the memory of a cluster.

The bits of memory, whoever dies, and nothing left behind.
"""

import gc
import logging
import os
import re
import resource
import time
import warnings
from functools import partial
from socket import gethostname

import dask
import dask.array as da
import pytest
from clusters import Killer, files_in, keys_left
from corpora import assert_same_bits, planted
from input_cases import ON_DASK

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io import slices
from schmp_estimators.exceptions import NotSharedError, SpillError, SpillWarning
from schmp_estimators.lda import spill

X = planted(n_docs=60, length=30)[0]


make = partial(
    DistributedLDA, n_components=4, random_state=7, sampler="warp", max_iter=4, evaluate_every=2
)


slow = partial(pytest.param, marks=pytest.mark.slow)


def fitted_here(**parameters):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        return make(**parameters).fit(X)


def divide(monkeypatch, n):
    """Let fits go to the disks of the workers.

    Each worker cuts its documents into so many slices.
    """
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)
    monkeypatch.setattr(spill, "memory_of_workers", lambda place: [0])
    monkeypatch.setattr(spill, "count_slices", lambda *args: n)


@pytest.fixture
def spilling(client, monkeypatch):
    """A cluster with so little memory that fits go to disk, in three slices of each worker.

    Nothing may be left.
    """
    divide(monkeypatch, 3)
    folders = list(client.run(lambda dask_worker: dask_worker.local_directory).values())
    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield client
    deadline = time.monotonic() + 60  # a sweep that nobody waited for may still be at work
    while found := sum(map(files_in, folders)):
        assert time.monotonic() < deadline, found
        gc.collect()
        time.sleep(0.05)


@pytest.mark.parametrize(
    "parameters",
    [
        slow({}),
        slow({"init": "tempered", "max_iter": 7}),
        slow({"seed_words": {0: [1, 2], 3: [0]}}),
        slow({"init": "documents", "sampler": "frozen"}),
        {"doc_topic_prior": "learn", "max_iter": 13, "sampler": "saber"},
    ],
    ids=str,
)
def test_slices_on_workers_have_the_bits_of_memory(parameters, spilling):
    lda = make(**parameters, spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, fitted_here(**parameters))
    assert lda.n_shards_ == 1  # as in memory: so few tokens are not divided


@pytest.mark.slow
def test_worker_processes(processes, monkeypatch):
    divide(monkeypatch, 3)
    with processes.as_current(), pytest.warns(SpillWarning):
        assert_same_bits(make(spill="auto").fit(da.from_array(X, chunks=(7, 11))), fitted_here())


# What ends, and what cannot begin.


@pytest.mark.parametrize("there", ["nothing", "a folder", "the folder, on some"])
def test_a_folder_that_is_another_one_on_workers_is_refused_and_nothing_is_left(
    there, processes, apart
):
    (path, (own, *others)), workers = apart, sorted(processes.run(os.getpid))
    if there != "nothing":
        for one in (own, *others):
            (one / "spill").mkdir()
    if there == "the folder, on some":
        for one in others[:2]:
            (one / "spill").rmdir()
            (one / "spill").symlink_to(own / "spill")
        workers = workers[2:]
    before = set(own.parent.rglob("*"))
    with (
        processes.as_current(),
        pytest.raises(NotSharedError, match=r"'auto', so that each uses its own disk") as caught,
    ):
        make(spill=f"{path}/spill").fit(X)
    where = f"host {gethostname()} (worker {workers[0]})"
    assert f"spill={path + '/spill'!r} is another folder, or none, on {where};" in str(caught.value)
    assert set(own.parent.rglob("*")) == before


def limit_files(n_bytes, least):
    """Let this process write no larger files, as if its disk were full.

    Arrays from a size on go into files.
    """
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (n_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )
    slices.LEAST_BYTES = least


@pytest.mark.slow
def test_a_full_disk_of_one_worker_ends_the_fit_and_the_cluster_can_be_used_again(
    processes, monkeypatch
):
    divide(monkeypatch, 3)
    X_there = da.from_array(X, chunks=(7, 11))
    [address, *_] = sorted(processes.nthreads())
    with processes.as_current(), pytest.warns(SpillWarning):
        processes.run(limit_files, 100, 1, workers=[address])
        try:
            with pytest.raises(SpillError, match=r"no room for what spill puts into .* free some"):
                make(spill="auto").fit(X_there)
        finally:
            processes.run(limit_files, resource.RLIM_INFINITY, 1 << 16, workers=[address])
        assert keys_left(processes) == []
        assert_same_bits(make(spill="auto").fit(X_there), fitted_here())


# Workers that die.


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["warp", "saber"])
@pytest.mark.parametrize(
    ("at", "where", "lazy"), [(1, "auto", True), (6, "folder", True), (6, "auto", False)]
)
def test_a_worker_dies(
    at, where, lazy, sampler, processes, tmp_path, caplog, snapshots, monkeypatch
):
    divide(monkeypatch, 2)
    where = tmp_path / "folder" if where == "folder" else where
    killer, parameters = Killer(processes, at), {"sampler": sampler, "max_iter": 9}
    with (
        processes.as_current(),
        caplog.at_level(logging.WARNING, "schmp_estimators"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", SpillWarning)
        lda = (
            make(**parameters, spill=where)
            .set_callbacks(killer)
            .fit(ON_DASK["csr_array"](X) if lazy else X)
        )
    assert_same_bits(lda, fitted_here(**parameters))
    assert killer.killed
    [sweep] = re.findall(r"going on after sweep (\d+)", caplog.text)
    assert int(sweep) >= at - 2  # no more than three sweeps are done again
    assert keys_left(processes) == []
