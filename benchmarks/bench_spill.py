"""Topic models beyond memory: the figures of docs/measurements/lda, section "Beyond memory".

    SCHMP_DATA=folder python benchmarks/bench_spill.py --corpus msdocs --copies 4 --limit 600

The corpus, so many copies one after the other, is written to memory-mapped files.  Each fit is a
process of its own that reads them, after a small fit that loads the kernels.  On disk
(spill="auto") the process has the limit, in MiB, as RLIMIT_DATA, the system's limit of memory that
is not backed by files, and finds it by itself.  In memory it has none; then it is tried under the
limit, too.  Memory is what the process has at most of pages that no file backs (RssAnon, looked at
every 10 ms) during the fit.
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
from pathlib import Path

import numpy as np
from common import SweepClock, _memory, corpus, digest, machine, median, table
from scipy import sparse

from schmp_estimators import DistributedLDA


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


def fit(folder, args, spill, limit):
    """Fit in this process, and print what it took."""
    if limit:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    parameters = {
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
        "sampler": "warp",
        "random_state": 0,
    }
    small = np.random.default_rng(0).poisson(0.2, (40, 60))
    with tempfile.TemporaryDirectory() as place:
        DistributedLDA(
            args.topics, max_iter=2, spill=place if spill else None, n_shards=2, **parameters
        ).fit(small)
    X, clock, watch, before = open_copies(folder), SweepClock(), Watch(), _memory("RssAnon")
    lda = DistributedLDA(
        args.topics, max_iter=args.sweeps, spill="auto" if spill else None, **parameters
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


def run(folder, args, spill, limit):
    """Fit in a process of its own."""
    here = [sys.executable, __file__, "--topics", str(args.topics), "--sweeps", str(args.sweeps)]
    command = [*here, "--fit", str(folder), "--spilled", str(int(spill)), "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def main():
    """Fit in memory and on disk, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", default="msdocs")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=6)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--fit")
    parser.add_argument("--spilled", type=int)
    args = parser.parse_args()
    if args.fit:
        fit(Path(args.fit), args, bool(args.spilled), args.limit)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_copies(corpus(args.corpus), args.copies, folder)
        X = open_copies(folder)
        n_tokens = int(X.data.sum(dtype=np.int64))
        fits = {
            "in memory": run(folder, args, False, 0),
            f"in memory, limit {args.limit} MiB": run(folder, args, False, args.limit),
            f"on disk, limit {args.limit} MiB": run(folder, args, True, args.limit),
        }
    print(machine())
    rows = []
    for name, found in fits.items():
        if "error" in found:
            rows.append([name, found["error"][:60], *[""] * 6])
            continue
        ns = [found[key] / n_tokens * 1e9 for key in ("sweep_cpu", "sweep_wall")]
        memory = [found[key] / 2**20 for key in ("before", "most")]
        rows.append([name, *ns, found["cpu"], found["wall"], *memory, found["digest"]])
    header = [
        "fit",
        "CPU ns/token",
        "wall ns/token",
        "CPU s",
        "wall s",
        "MiB before",
        "at most",
        "digest",
    ]
    title = (
        f"{args.corpus} x {args.copies}: {n_tokens} tokens, K = {args.topics}, {args.sweeps} sweeps"
    )
    table(title, header, rows)


if __name__ == "__main__":
    main()
