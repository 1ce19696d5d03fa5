"""What checkpoints cost: the share of a fit's CPU and wall seconds that they take.

    SCHMP_DATA=folder python benchmarks/bench_checkpoints.py --corpus msdocs::6 \
        --topics 200 --sweeps 200 --workers 0 2

A checkpoint is written every 25 sweeps, as by default.  Its documents are known by a hash, which is
part of the share.  0 workers: one process, without Dask.  Otherwise so many worker processes with
one thread each, of which each has a shard; they write while the next sweeps run.  So what is timed
are five sweeps at a time, after which workers save the state in any case: those that end with a
checkpoint, and those that follow it, take longer than their neighbours by what it costs.  CPU
seconds are those of the client, with its scheduler, and of the workers.
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
from schmp_estimators.lda.fit import LDAFit

#: Sweeps after which a state is saved, and those after which a checkpoint is written: both by
#: default.
SAVED, WRITTEN = 5, 25


class Clocks:
    """CPU and wall seconds so far, of this process and of others on this machine (Linux)."""

    def __init__(self, others):
        self._clocks = [time.CLOCK_PROCESS_CPUTIME_ID, *((~number << 3) | 2 for number in others)]

    def __call__(self):
        """Return both."""
        return np.array([sum(map(time.clock_gettime, self._clocks)), time.perf_counter()])


def one_fit(X, arguments, options, clocks):
    """Return the seconds of the hash, of each checkpoint, and of the whole fit; and the bytes."""
    hashed, marks = [], []
    fingerprint, keep = LDAFit._fingerprint, LDAFit._keep_sweep

    @wraps(fingerprint)
    def timed(self):
        began = clocks()
        found = fingerprint(self)
        hashed.append(clocks() - began)
        return found

    @wraps(keep)
    def marked(self, run, done):
        if done % SAVED == 0:
            marks.append(clocks())
        keep(self, run, done)

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(patch.object(LDAFit, "_fingerprint", timed))
        stack.enter_context(patch.object(LDAFit, "_keep_sweep", marked))
        path, began = os.path.join(folder, "checkpoint"), clocks()
        DistributedLDA(arguments.topics, max_iter=arguments.sweeps, checkpoint=path, **options).fit(
            X
        )
        whole = clocks() - began
        size = sum(
            os.path.getsize(os.path.join(at, name))
            for at, _, names in os.walk(folder)
            for name in names
        )
    taken, n = np.diff(marks, axis=0), WRITTEN // SAVED  # of the sweeps from SAVED on
    costs = []
    for end in range(n - 2, len(taken) - 1, n):
        neighbours = [*taken[max(0, end - n + 2) : end], *taken[end + 2 : end + n]]
        costs.append(taken[end] + taken[end + 1] - 2 * np.mean(neighbours, axis=0))
    return sum(hashed), costs, whole, size


def figures(arguments, n_workers, client):
    """Return what the checkpoints of some fits take."""
    X = some_documents(arguments.corpus)
    options = {
        "sampler": arguments.sampler,
        "n_shards": n_workers or None,
        "checkpoint_every": WRITTEN,
        "random_state": 0,
    }
    clocks = Clocks(client.run(os.getpid).values() if client else [])
    DistributedLDA(arguments.topics, max_iter=2 * SAVED, **options).fit(X)
    fits = [one_fit(X, arguments, options, clocks) for _ in range(arguments.fits)]
    hashed, costs, whole, size = zip(*fits, strict=True)
    costs = np.concatenate(costs)
    extra, error = costs.mean(axis=0), costs.std(axis=0, ddof=1) / np.sqrt(len(costs))
    n_written, whole = arguments.sweeps // WRITTEN, np.mean(whole, axis=0)
    share = 100 * (n_written * extra + np.mean(hashed, axis=0)) / whole
    found = [
        f"{mean:.2f} ± {one:.2f}"
        for mean, one in zip(share, 100 * n_written * error / whole, strict=True)
    ]
    n = X.sum()
    return [n, arguments.topics, n_workers, n_written, *found, 1e9 * extra[0] / n, size[0] / n]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="msdocs::6")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--sampler", default="warp")
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--fits", type=int, default=3)
    parser.add_argument("--workers", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    for n_workers in arguments.workers:
        if not n_workers:
            rows.append(figures(arguments, 0, None))
            continue
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            rows.append(figures(arguments, n_workers, client))
    header = ["tokens", "K", "workers", "written", "CPU %", "wall %", "CPU ns of a token", "bytes"]
    table(__doc__.splitlines()[0], header, rows)


if __name__ == "__main__":
    main()
