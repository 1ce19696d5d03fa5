"""Topic models beyond the memory of workers.

These are the figures of a row of docs/measurements/limits.

    SCHMP_DATA=folder python benchmarks/bench_spill_cluster.py --corpus msdocs \
        --copies 9 --limit 800

The corpus, so many copies one after the other, is written to files, of which each chunk of a Dask
array loads some rows (or which are mapped into memory, with --mapped).  Every fit has a cluster of
its own, of worker processes with one thread; with `spill` they have the limit, in MiB, as
`memory_limit`, without it none.  A small fit loads the kernels.  CPU is that of the client and of
all worker processes; memory is what a worker has at most (VmRSS, and RssAnon, which leaves out what
files back), looked at every 10 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import dask
import dask.array as da
import numpy as np
from bench_spill import open_copies, write_copies
from common import _memory, corpus, digest, machine, table
from distributed import Client, LocalCluster
from scipy import sparse

from schmp_estimators import DistributedLDA

DOCS_OF_CHUNK = 20_000


def load(folder, first, last):
    """Return some rows of the copies, read from the files."""
    X = open_copies(Path(folder))
    ptr = np.array(X.indptr[first : last + 1])
    cut = slice(ptr[0], ptr[-1])
    parts = np.array(X.data[cut]), np.array(X.indices[cut]), ptr - ptr[0]
    return sparse.csr_array(parts, shape=(last - first, X.shape[1]))


def lazily(folder, shape):
    """Return a Dask array whose chunks are loaded when they are needed."""
    n_docs, n_words = shape
    bounds = [*range(0, n_docs, DOCS_OF_CHUNK), n_docs]
    meta = sparse.csr_array((0, n_words), dtype=np.int32)
    chunks = [
        da.from_delayed(dask.delayed(load)(str(folder), a, b), (b - a, n_words), np.int32, meta)
        for a, b in pairwise(bounds)
    ]
    return da.concatenate(chunks)


def watch(dask_worker):
    """Begin to look how much memory the process of a worker has."""
    most = dask_worker.most = dict.fromkeys(("VmRSS", "RssAnon"), 0)

    def look():
        while True:
            for what, before in list(most.items()):
                most[what] = max(before, _memory(what))
            time.sleep(0.01)

    threading.Thread(target=look, daemon=True).start()
    return _memory("RssAnon")


class Clock:
    """A callback that takes each sweep's CPU seconds, of all processes, and wall seconds."""

    def __init__(self, client):
        self._client, self.cpu, self.wall = client, [], []

    def setup(self, estimator, context):
        """Start the clock."""
        self._last = self._now()

    def teardown(self, estimator, context):
        """Do nothing."""

    on_fit_task_begin = teardown

    def on_fit_task_end(self, estimator, context):
        """Take the time of a sweep."""
        if context.task_name == "sweep":
            now = self._now()
            self.cpu.append(now[0] - self._last[0])
            self.wall.append(now[1] - self._last[1])
            self._last = now

    def _now(self):
        return cpu_of(self._client), time.perf_counter()


def cpu_of(client):
    """Return the CPU seconds of the client and of all workers."""
    return time.process_time() + sum(client.run(time.process_time).values())


def fit(folder, args, spill):
    """Fit with a cluster of its own, and print what it took."""
    warnings.simplefilter("ignore")
    limit = f"{args.limit}MiB" if spill else "0"
    parameters = {
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
        "sampler": "warp",
        "random_state": 0,
    }
    small = np.random.default_rng(0).poisson(0.2, (40, 60))
    with (
        tempfile.TemporaryDirectory() as place,
        LocalCluster(
            n_workers=args.workers, threads_per_worker=1, memory_limit=limit,
            dashboard_address=":0", local_directory=place,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.run(sys.path.insert, 0, str(Path(__file__).parent))
        named = Path(place) / "small"
        DistributedLDA(args.topics, max_iter=2, spill=named if spill else None, **parameters).fit(
            small
        )
        X = open_copies(folder)
        X = X if args.mapped else lazily(folder, X.shape)
        before = client.run(watch)
        where = {None: None, "auto": "auto", "folder": Path(place) / "named"}[spill]
        lda, clock = (
            DistributedLDA(args.topics, max_iter=args.sweeps, spill=where, **parameters),
            Clock(client),
        )
        began = cpu_of(client), time.perf_counter()
        try:
            lda.set_callbacks(clock).fit(X)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
            return
        found = {
            "cpu": cpu_of(client) - began[0],
            "wall": time.perf_counter() - began[1],
            "digest": digest(lda),
        }
        most = list(client.run(lambda dask_worker: dask_worker.most).values())
        # A mean: on a cluster the next sweep has begun when a sweep is told of.
        found |= {"sweep_cpu": fmean(clock.cpu[1:]), "sweep_wall": fmean(clock.wall[1:])}
        found |= {"before": max(before.values())} | {
            what: max(one[what] for one in most) for what in most[0]
        }
    print(json.dumps(found))


def run(folder, args, spill):
    """Fit in a process of its own."""
    here = [sys.executable, __file__, *sys.argv[1:], "--fit", str(folder), "--spill", str(spill)]
    done = subprocess.run(here, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    """Fit in memory and on disks, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="msdocs")
    parser.add_argument("--copies", type=int, default=9)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=int, default=800, help="of a worker with spill, in MiB")
    parser.add_argument("--mapped", action="store_true")
    parser.add_argument("--fits", nargs="+", default=["None", "auto", "folder"])
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--spill", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit:
        fit(Path(args.fit), args, None if args.spill == "None" else args.spill)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_copies(corpus(args.corpus), args.copies, folder)
        n_tokens = int(open_copies(folder).data.sum(dtype=np.int64))
        fits = {spill: run(folder, args, spill) for spill in args.fits}
    print(machine())
    rows = []
    for spill, found in fits.items():
        if "error" in found:
            rows.append([spill, found["error"][:80], *[""] * 7])
            continue
        ns = [found[key] / n_tokens * 1e9 for key in ("sweep_cpu", "sweep_wall")]
        memory = [found[key] / 2**20 for key in ("before", "RssAnon", "VmRSS")]
        rows.append([spill, *ns, found["cpu"], found["wall"], *memory, found["digest"]])
    header = [
        "spill",
        "CPU ns/token",
        "wall ns/token",
        "CPU s",
        "wall s",
        "MiB before",
        "RssAnon",
        "VmRSS",
        "digest",
    ]
    title = (
        f"{args.corpus} x {args.copies}: {n_tokens} tokens, K = {args.topics}, "
        f"{args.sweeps} sweeps, "
    )
    table(f"{title}{args.workers} workers of {args.limit} MiB", header, rows)


if __name__ == "__main__":
    main()
