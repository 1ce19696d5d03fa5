"""Fits on the disks of workers that die."""

import logging
import time
import warnings
from pathlib import Path

import dask
import dask.array as da
import pytest
from clusters import Killer, keys_left
from corpora import assert_same_bits, planted
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill, spilled_fit

X = planted(n_docs=60, length=30)[0]


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 9} | parameters)


@pytest.fixture
def spilling(monkeypatch):
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 0))
    monkeypatch.setattr(spill, "choose_slices", lambda sizes, n_shards, left: 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield


def folders_left(client):
    """Folders of fits that are anywhere beside those of the workers, some seconds later."""
    found = client.run(lambda dask_worker: dask_worker.local_directory)
    spaces = {Path(folder).parent for folder in found.values()}
    deadline = time.monotonic() + 20
    while left := [path for space in spaces for path in space.rglob("schmp-spill-*")]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 6])
@pytest.mark.parametrize("where", ["auto", "folder"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_worker_dies(at, where, lazy, spilling, processes, tmp_path, caplog):
    client = processes
    counts = da.from_array(X, chunks=(7, -1)).map_blocks(sparse.csr_array) if lazy else X
    where = tmp_path / "folder" if where == "folder" else where
    killer = Killer(client, at)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    with client.as_current(), caplog.at_level(logging.WARNING, "schmp_estimators"):
        lda = make(spill=where).set_callbacks(killer).fit(counts)
    assert_same_bits(lda, expected)
    assert killer.killed and lda.n_shards_ == 3
    print(caplog.text)
    if at == 6 and where == "auto":
        assert "going on from the end of sweep 4" in caplog.text
    assert keys_left(client) == []
    assert folders_left(client) == []
