"""What checkpoints cost: the share of a fit's CPU and wall seconds that writing them takes.

    SCHMP_DATA=folder python benchmarks/bench_checkpoints.py --corpus msdocs::6 --topics 200 --sweeps 50 --workers 0 2

A checkpoint is written every 25 sweeps, as by default.  Its documents are known by a hash, which is part of the share.
0 workers: one process, without Dask.  Otherwise so many worker processes with one thread each, of which each has a
shard.  Their CPU seconds are those of the tasks that save, hash and write, beside those of the client while it asks for
a checkpoint or puts one together; wall seconds are those that the client waits for, as workers write while the next
sweeps run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from functools import wraps
from unittest.mock import patch

import numpy as np
from bench_lda import some_documents
from common import machine, table
from distributed import Client, LocalCluster

from schmp_estimators import DistributedLDA
from schmp_estimators.core import checkpoint as files
from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.static import StaticRun
from schmp_estimators.lda import checkpoint
from schmp_estimators.lda.fit import LDAFit


def clocks():
    """Return CPU and wall seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def take_note(dask_worker):
    """Let a worker note the CPU seconds of its tasks that are there for checkpoints."""
    dask_worker.spent_on_checkpoints = []
    for module, name in ((files, "save_part"), (cells, "ask_shard"), (checkpoint, "_hash_documents")):
        setattr(module, name, noted(getattr(module, name), dask_worker.spent_on_checkpoints))


def noted(function, spent):
    """Return a function that adds its CPU seconds to a list; `ask_shard` where it saves."""

    @wraps(function)
    def wrapped(*given):
        began = time.thread_time()
        found = function(*given)
        if function.__name__ != "ask_shard" or given[2].method == "save":
            spent.append(time.thread_time() - began)
        return found

    return wrapped


def so_far(dask_worker):
    """Return how many such tasks a worker has had, their CPU seconds, and all that the worker has used."""
    return np.array([len(dask_worker.spent_on_checkpoints), sum(dask_worker.spent_on_checkpoints), time.process_time()])


def figures(arguments, n_workers, client):
    """Return what the checkpoints of one fit take."""
    X, spent, written, inside = some_documents(arguments.corpus), np.zeros(2), [], []
    settle = StaticRun._settle

    def timed(method):
        @wraps(method)
        def wrapped(self, *given):
            # as a part of what is timed already, or saved lest work is lost, with a checkpoint or without one
            if inside or (method is settle and not (self._owed and self._owed.asked)):
                return method(self, *given)
            inside.append(method)
            began = clocks()
            try:
                return method(self, *given)
            finally:
                spent[:] += clocks() - began
                inside.clear()
                written.append(method.__name__)

        return wrapped

    run = client.run if client else lambda function: {}
    options = {"sampler": "warp", "random_state": 0, "n_shards": n_workers or None}
    DistributedLDA(arguments.topics, max_iter=2, **options).fit(X)
    run(take_note)
    timed_here = (LDAFit, "_write"), (LDAFit, "_fingerprint"), (StaticRun, "_settle")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for owner, name in timed_here:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name))))
        path, before = os.path.join(folder, "checkpoint"), run(so_far)
        began = clocks()
        DistributedLDA(arguments.topics, max_iter=arguments.sweeps, checkpoint=path, **options).fit(X)
        whole = clocks() - began
        size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
    for address, found in run(so_far).items():
        n_tasks, of_tasks, of_all = found - before[address]
        assert n_tasks, f"{address} has done nothing for checkpoints"
        spent[0] += of_tasks
        whole[0] += of_all
    n_written, n = written.count("_write"), X.sum()
    return [n, arguments.topics, n_workers, n_written, *(100 * spent / whole), 1e9 * spent[0] / n_written / n, size / n]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="msdocs::6")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--workers", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    for n_workers in arguments.workers:
        if not n_workers:
            rows.append(figures(arguments, 0, None))
            continue
        with (
            LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            rows.append(figures(arguments, n_workers, client))
    header = ["tokens", "K", "workers", "written", "CPU %", "wall %", "CPU ns of a token", "bytes"]
    table(__doc__.splitlines()[0], header, rows)


if __name__ == "__main__":
    main()
