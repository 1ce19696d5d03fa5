"""Fits on the disks of workers that die."""

import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from textwrap import dedent

import dask
import dask.array as da
import psutil
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
@pytest.mark.parametrize("at", [1, 6])
@pytest.mark.parametrize("where", ["auto", "folder"])
@pytest.mark.parametrize("lazy", [True, False])
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


@pytest.mark.slow
def test_all_workers_die(spilling, processes, caplog, snapshots):
    killer = Killer(processes, 6, 3)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(sampler=spilling).fit(X)
    with processes.as_current(), caplog.at_level(logging.WARNING, "schmp_estimators"):
        lda = make(sampler=spilling, spill="auto").set_callbacks(killer).fit(X)
    assert_same_bits(lda, expected)
    assert len(killer.killed) == 3
    assert "going on from the end of sweep" in caplog.text


FIT = """
    import sys
    import dask.array as da
    from clusters import worker_processes
    from corpora import planted
    from scipy import sparse
    from schmp_estimators import DistributedLDA
    from schmp_estimators.lda import spill

    spill.count_slices = lambda *args: 2
    X = planted(n_docs=60, length=30)[0]

    class Tell:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "sweep":
                print("sweep", context.task_id, flush=True)

    if __name__ == "__main__":
        with worker_processes(int(sys.argv[2])):
            counts = da.from_array(X, chunks=(7, -1)).map_blocks(sparse.csr_array)
            lda = DistributedLDA(4, random_state=7, sampler=sys.argv[3], max_iter=12, spill=sys.argv[1])
            lda.set_callbacks(Tell()).fit(counts)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 3])
def test_client_and_workers_are_killed(at, spilling, processes, tmp_path, caplog):
    script = tmp_path / "fit.py"
    script.write_text(dedent(FIT))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
    }
    command = [sys.executable, str(script), str(tmp_path / "folder"), "2", spilling]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        for line in running.stdout:
            if line.split() == ["sweep", str(at)]:
                break
        family = [*psutil.Process(running.pid).children(recursive=True), psutil.Process(running.pid)]
        for one in family:
            one.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=20)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(sampler=spilling, max_iter=12).fit(X)
    with processes.as_current(), caplog.at_level(logging.INFO, "schmp_estimators"):
        lda = make(sampler=spilling, max_iter=12, spill=tmp_path / "folder").fit(X)
    assert_same_bits(lda, expected)
    found = re.findall(r"going on after sweep (\d+)", caplog.text)
    assert [int(number) >= at for number in found] == [True] * (at > 0 or len(found))
    left = sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert left == ["checkpoint", "lock"]
    again = make(sampler=spilling, max_iter=12, spill=tmp_path / "folder")
    with processes.as_current():
        assert_same_bits(again.fit(X), expected)  # of which nothing is left to do
