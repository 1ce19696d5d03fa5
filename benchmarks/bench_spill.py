"""Topic models beyond memory: fits with their tokens in files, beside fits in memory.

    SCHMP_DATA=folder python benchmarks/bench_spill.py alone --corpus msdocs --copies 4 --limit 600
    SCHMP_DATA=folder python benchmarks/bench_spill.py cluster --corpus msdocs --copies 9

The corpus, so many copies one after the other, is written to files, and a small fit loads the
kernels.

`alone`: each fit is a process of its own that maps the files.  On disk (spill="auto") the process
has the limit, in MiB, as RLIMIT_DATA, the system's limit of memory that is not backed by files, and
finds it by itself.  In memory it has none; then it is tried under the limit, too.  Memory is what
the process has at most of pages that no file backs (RssAnon, looked at every 10 ms) during the fit.

`cluster`: each chunk of a Dask array loads some rows (or the files are mapped into memory, with
--mapped).  Every fit has a cluster of its own, of worker processes with one thread; with `spill`
they have the limit, in MiB, as `memory_limit`, without it none.  CPU is that of the client and of
all worker processes; memory is what a worker has at most (VmRSS, and RssAnon, which leaves out what
files back), looked at every 10 ms.
"""

# Dask is imported only where there is a cluster: it would take of the limit of a process.

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

import numpy as np
from common import SweepClock, _memory, corpus, digest, machine, median, parse, record, table
from scipy import sparse

from schmp_estimators import DistributedLDA

DOCS_OF_CHUNK = 20_000
#: Of all fits.
PARAMETERS = {
    "doc_topic_prior": 0.1,
    "topic_word_prior": 0.01,
    "sampler": "warp",
    "random_state": 0,
}


def write_copies(X, copies, folder):
    """Write copies of a corpus to files, one after the other, without having them in memory."""
    for name, length in (("data", X.nnz), ("indices", X.nnz)):
        array = getattr(X, name)
        out = np.lib.format.open_memmap(
            folder / f"{name}.npy", "w+", array.dtype, (copies * length,)
        )
        for copy in range(copies):
            out[copy * length : (copy + 1) * length] = array
        out.flush()
    ends = [X.indptr[1:].astype(np.int64) + copy * X.nnz for copy in range(copies)]
    # Of the dtype of the columns: SciPy copies index arrays that differ.
    np.save(folder / "indptr.npy", np.concatenate([[0], *ends]).astype(X.indices.dtype))
    (folder / "shape.json").write_text(json.dumps([copies * X.shape[0], X.shape[1]]))


def open_copies(folder):
    """Return what `write_copies` has written, memory-mapped."""
    parts = [
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")
    ]
    return sparse.csr_array(
        tuple(parts), shape=json.loads((folder / "shape.json").read_text()), copy=False
    )


class Watch(threading.Thread):
    """Looks how much memory this process has that no file backs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self._ended = 0, threading.Event()

    def run(self):
        """Look, again and again."""
        while not self._ended.wait(0.01):
            self.most = max(self.most, _memory("RssAnon"))

    def end(self):
        """Return the most that there was."""
        self._ended.set()
        return self.most


def fit_alone(folder, args, spill):
    """Fit in this process, and print what it took."""
    if args.limit:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (args.limit << 20, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    small = np.random.default_rng(0).poisson(0.2, (40, 60))
    with tempfile.TemporaryDirectory() as place:
        DistributedLDA(
            args.topics, max_iter=2, spill=place if spill else None, n_shards=2, **PARAMETERS
        ).fit(small)
    X, clock, watch, before = open_copies(folder), SweepClock(), Watch(), _memory("RssAnon")
    lda = DistributedLDA(
        args.topics, max_iter=args.sweeps, spill="auto" if spill else None, **PARAMETERS
    )
    watch.start()
    began = time.process_time(), time.perf_counter()
    try:
        lda.set_callbacks(clock).fit(X)
    except MemoryError as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return
    cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    found = {"cpu": cpu, "wall": wall, "digest": digest(lda)}
    found |= {
        "sweep_cpu": median(clock.cpu[1:] or clock.cpu),
        "sweep_wall": median(clock.wall[1:] or clock.wall),
    }
    found |= {"before": before, "most": watch.end()}
    print(json.dumps(found))


def load(folder, first, last):
    """Return some rows of the copies, read from the files."""
    X = open_copies(Path(folder))
    ptr = np.array(X.indptr[first : last + 1])
    cut = slice(ptr[0], ptr[-1])
    parts = np.array(X.data[cut]), np.array(X.indices[cut]), ptr - ptr[0]
    return sparse.csr_array(parts, shape=(last - first, X.shape[1]))


def lazily(folder, shape):
    """Return a Dask array whose chunks are loaded when they are needed."""
    import dask
    import dask.array as da

    n_docs, n_words = shape
    bounds = [*range(0, n_docs, DOCS_OF_CHUNK), n_docs]
    meta = sparse.csr_array((0, n_words), dtype=np.int32)
    chunks = [
        da.from_delayed(dask.delayed(load)(str(folder), a, b), (b - a, n_words), np.int32, meta)
        for a, b in pairwise(bounds)
    ]
    return da.concatenate(chunks)


def watch_worker(dask_worker):
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


def fit_on_workers(folder, args, spill):
    """Fit with a cluster of its own, and print what it took."""
    from distributed import Client, LocalCluster

    warnings.simplefilter("ignore")
    limit = f"{args.limit}MiB" if spill else "0"
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
        DistributedLDA(args.topics, max_iter=2, spill=named if spill else None, **PARAMETERS).fit(
            small
        )
        X = open_copies(folder)
        X = X if args.mapped else lazily(folder, X.shape)
        before = client.run(watch_worker)
        where = {None: None, "auto": "auto", "folder": Path(place) / "named"}[spill]
        lda, clock = (
            DistributedLDA(args.topics, max_iter=args.sweeps, spill=where, **PARAMETERS),
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


def run(args, figure, folder, spill, limit):
    """Fit in a process of its own."""
    told = {"topics": args.topics, "sweeps": args.sweeps, "workers": args.workers}
    told |= {"fit": folder, "spill": spill, "limit": limit}
    options = [text for name, value in told.items() for text in (f"--{name}", str(value))]
    mapped = ["--mapped"] if args.mapped else []
    command = [sys.executable, __file__, figure, *options, *mapped]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def alone(folder, args):
    """Return what fits in one process took, and what is shown of their memory."""
    runs = {
        "in memory": ("None", 0),
        f"in memory, limit {args.limit} MiB": ("None", args.limit),
        f"on disk, limit {args.limit} MiB": ("auto", args.limit),
    }
    fits = {name: run(args, "alone", folder, *given) for name, given in runs.items()}
    return fits, {"before": "MiB before", "most": "at most"}


def cluster(folder, args):
    """Return what fits on workers took, and what is shown of their memory."""
    fits = {spill: run(args, "cluster", folder, spill, args.limit) for spill in args.fits}
    return fits, {"before": "MiB before", "RssAnon": "RssAnon", "VmRSS": "VmRSS"}


#: What a table calls fits on workers.
SHOWN = {
    "None": "in memory",
    "auto": "in files",
    "folder": "in a named folder, with checkpoints",
}
#: The functions of each figure, and defaults of its copies, sweeps and limit.
FIGURES = {"alone": (alone, fit_alone, 4, 6, 600), "cluster": (cluster, fit_on_workers, 9, 7, 800)}


def main():
    """Fit in memory and on disk, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--corpus", default="msdocs")
    parser.add_argument("--copies", type=int)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--sweeps", type=int)
    parser.add_argument("--limit", type=int, help="of a process with spill, in MiB")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mapped", action="store_true", help="for cluster")
    parser.add_argument("--fits", nargs="+", default=["None", "auto", "folder"], help="for cluster")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--spill", help=argparse.SUPPRESS)
    args = parse(parser)
    figure, fit, copies, sweeps, limit = FIGURES[args.figure]
    args.copies = args.copies or copies
    args.sweeps = args.sweeps or sweeps
    args.limit = limit if args.limit is None else args.limit
    if args.fit:
        fit(args.fit, args, None if args.spill == "None" else args.spill)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_copies(corpus(args.corpus), args.copies, folder)
        n_tokens = int(open_copies(folder).data.sum(dtype=np.int64))
        fits, memory = figure(folder, args)
    print(machine())
    rows = []
    for name, found in fits.items():
        if "error" in found:
            rows.append([name, found["error"][:80], *[""] * (len(memory) + 4)])
            continue
        ns = [found[key] / n_tokens * 1e9 for key in ("sweep_cpu", "sweep_wall")]
        of_memory = [found[key] / 2**20 for key in memory]
        rows.append([name, *ns, found["cpu"], found["wall"], *of_memory, found["digest"]])
    header = ["fit", "CPU ns/token", "wall ns/token", "CPU s", "wall s", *memory.values(), "digest"]
    title = f"{args.corpus} x {args.copies}: {n_tokens} tokens, K = {args.topics}"
    table(f"{title}, {args.sweeps} sweeps", header, rows)
    done = [[row[0], row[1], row[6]] if row[2] != "" else [row[0], "—", "refused"] for row in rows]
    if args.figure == "cluster":
        record("limits-spill", [[SHOWN[name], ns] for name, ns, _ in done])
    else:
        limits = "none", str(args.limit), str(args.limit)
        shown = [
            [one[0].partition(",")[0], limit, *one[1:]]
            for one, limit in zip(done, limits, strict=True)
        ]
        record("lda-spill", shown, 2)


if __name__ == "__main__":
    main()
