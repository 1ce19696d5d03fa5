"""Fits on the disks of workers that die."""

import logging
import re
import warnings

import dask
import dask.array as da
import pytest
from clusters import Killer, keys_left
from corpora import assert_same_bits, planted
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.engine import static
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill

X = planted(n_docs=60, length=30)[0]


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 9} | parameters)


@pytest.fixture(params=["warp", "saber"])
def spilling(monkeypatch, request):
    """A sampler, where workers have so little memory that fits go to disk."""
    monkeypatch.setattr(spill, "memory_of_workers", lambda place: [0])
    monkeypatch.setattr(spill, "count_slices", lambda *args: 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield request.param


@pytest.fixture
def snapshots(monkeypatch):
    """Let a snapshot be taken whenever that can be."""
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 0.0)
    monkeypatch.setattr(static, "SNAPSHOT_SHARE", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("at", "where", "lazy"), [(1, "auto", True), (6, "folder", True), (6, "auto", False)])
def test_a_worker_dies(at, where, lazy, spilling, processes, tmp_path, caplog, snapshots):
    client = processes
    counts = da.from_array(X, chunks=(7, -1)).map_blocks(sparse.csr_array) if lazy else X
    where = tmp_path / "folder" if where == "folder" else where
    killer = Killer(client, at)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(sampler=spilling).fit(X)
    with client.as_current(), caplog.at_level(logging.WARNING, "schmp_estimators"):
        lda = make(sampler=spilling, spill=where).set_callbacks(killer).fit(counts)
    assert_same_bits(lda, expected)
    assert killer.killed
    [sweep] = re.findall(r"going on from the end of sweep (-?\d+)", caplog.text)
    assert int(sweep) >= at - 3  # no more than three sweeps are done again
    assert keys_left(client) == []
