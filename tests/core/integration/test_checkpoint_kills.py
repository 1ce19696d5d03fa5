"""Checkpoints on clusters of processes: workers and clients die in the middle of them."""

import multiprocessing
import os
import signal

import dask
import pytest
from clusters import keys_left
from distributed import Client
from toys import Ring, make_shards

from schmp_estimators import schmp
from schmp_estimators.core.io.checkpoint import Checkpoint

N_SWEEPS = 8


def whole(program=None):
    return schmp.run(program or Ring(), make_shards(3), sweeps=N_SWEEPS, engine="serial")


class Mortal(Checkpoint):
    """Its process dies when all is there for the third checkpoint, before it is written."""

    n = 0

    def write_behind(self, done, values):
        self.settle()
        Mortal.n += 1
        if Mortal.n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        super().write_behind(done, values)


def be_killed(address, path):
    from schmp_estimators.core.engine import running

    running.Checkpoint = Mortal
    with Client(address):
        schmp.run(Ring(), make_shards(3), sweeps=N_SWEEPS, checkpoint=path, checkpoint_every=2)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_client_killed_before_it_writes_leaves_the_checkpoint_before(processes, where, tmp_path):
    path = tmp_path / "run"
    child = multiprocessing.get_context("spawn").Process(target=be_killed, args=(processes.scheduler.address, path))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert keys_left(processes) == []
    seen = []
    with processes.as_current(), dask.config.set({"schmp-estimators.runtime": {"here": "local"}.get(where, "dask")}):
        found = schmp.run(Ring(), make_shards(3), sweeps=N_SWEEPS, checkpoint=path, callback=seen.append)
    assert str(found) == str(whole())
    assert len(seen) == N_SWEEPS - 4  # the checkpoint after the fourth sweep was whole
