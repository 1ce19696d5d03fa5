"""Fits on the disks of workers that die."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
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
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill, spilled_fit, spilled_groups_fit

X = planted(n_docs=60, length=30)[0]


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 9} | parameters)


@pytest.fixture(params=[True, False], ids=["rows", "slices of words"])
def spilling(monkeypatch, request):
    """A cluster with so little memory that fits go to disk, with word rows in memory or without."""
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 0))
    monkeypatch.setattr(spill, "divide_group", lambda sizes, n_shards, left: spill.Division(2, request.param))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield request.param


def folders_left(client, tokens):
    """Folders of these runs that are anywhere beside those of the workers, some seconds later."""
    found = client.run(lambda dask_worker: dask_worker.local_directory)
    spaces = {Path(folder).parent for folder in found.values()}
    deadline = time.monotonic() + 20
    while left := [path for space in spaces for token in tokens for path in space.glob(f"*/schmp-spill-{token}")]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left


@pytest.fixture
def tokens(monkeypatch):
    """Return the tokens of all runs on disks: other clusters have theirs in the same space."""
    found, disks_of = [], spilled_groups_fit.disks_of

    @contextmanager
    def note(place, shared):
        with disks_of(place, shared) as disk:
            found.append(disk.token)
            yield disk

    monkeypatch.setattr(spilled_groups_fit, "disks_of", note)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 6])
@pytest.mark.parametrize("where", ["auto", "folder"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_worker_dies(at, where, lazy, spilling, processes, tmp_path, caplog, tokens):
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
    if at == 6 and where == "auto":
        assert "going on from the end of sweep 4" in caplog.text
    assert keys_left(client) == []
    assert tokens and folders_left(client, tokens) == []


@pytest.mark.slow
def test_all_workers_die(spilling, processes, caplog, tokens):
    killer = Killer(processes, 6, 3)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    with processes.as_current(), caplog.at_level(logging.WARNING, "schmp_estimators"):
        lda = make(spill="auto").set_callbacks(killer).fit(X)
    assert_same_bits(lda, expected)
    assert len(killer.killed) == 3
    assert "reading the input again" in caplog.text  # nobody had what was kept
    assert tokens and folders_left(processes, tokens) == []


FIT = """
    import sys
    import dask.array as da
    from clusters import worker_processes
    from corpora import planted
    from scipy import sparse
    from schmp_estimators import DistributedLDA
    from schmp_estimators.lda import spill

    spill.divide_group = lambda sizes, n_shards, left: spill.Division(2, sys.argv[3] == "True")
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
            lda = DistributedLDA(4, random_state=7, sampler="warp", max_iter=12, spill=sys.argv[1])
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
    command = [sys.executable, str(script), str(tmp_path / "folder"), "2", str(spilling)]
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
        expected = make(max_iter=12).fit(X)
    with processes.as_current(), caplog.at_level(logging.INFO, "schmp_estimators"):
        lda = make(max_iter=12, spill=tmp_path / "folder").fit(X)
    assert_same_bits(lda, expected)
    found = re.findall(r"going on after sweep (\d+)", caplog.text)
    assert [int(number) >= at for number in found] == [True] * (at > 0 or len(found))
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "folder").iterdir())
    assert left == ["lock.spill", "manifest.spill", *["shard"] * 3]
    again = make(max_iter=12, spill=tmp_path / "folder")
    with processes.as_current():
        assert_same_bits(again.fit(X), expected)  # of which nothing is left to do
