"""A model of a million topics and a million words: memory and speed, by processes.

    python benchmarks/bench_million.py --tokens 60e6 --workers 0 1 2 --steps 1 2

The corpus is generated: words follow Zipf-Mandelbrot's law with exponent 1.07, documents have 178
tokens on average.  0 workers: one process, without Dask.  Otherwise so many worker processes with
one thread each, and the documents are a Dask array of chunks that are made when they are needed: a
worker's memory includes them.  A small fit, with a chunk and a shard for each worker, loads
libraries and kernels.  Memory is that of the process that fits, or of the largest worker, beyond
what it has before the fit, which has a column of its own; the peak of all, harvest included, as the
kernel counts it.  CPU is that of the client and of all workers, for each token of the sweeps after
the first; with few sweeps and workers, which begin a sweep before the client hears of the last, it
says nothing.
"""

from __future__ import annotations

import argparse
import time

import dask
import dask.array as da
import numpy as np
from common import digest, forget_peak, machine, peak, resident, table
from distributed import Client, LocalCluster
from scipy import sparse

from schmp_estimators import DistributedLDA

LENGTH, CHUNK = 178, 5_000
#: Documents for each worker of the fit that comes first.
SMALL = 400
#: Seconds until workers have let go of what a fit has left.
SETTLED = 2.0


def chunk(number, n_docs, n_words):
    """Return the counts of some documents, as a CSR array of 32-bit numbers.

    What is large is worked upon where it is, so that a worker that makes its input needs little
    beside it.
    """
    rng = np.random.default_rng(number)
    lengths = rng.poisson(rng.gamma(2.0, LENGTH / 2, n_docs)) + 1
    ranks = np.arange(n_words) + 2.7
    np.divide(1.0, np.power(ranks, 1.07, out=ranks), out=ranks)
    np.cumsum(ranks, out=ranks)
    drawn = rng.random(lengths.sum())
    drawn *= ranks[-1]
    words = np.searchsorted(ranks, drawn)
    del ranks, drawn
    # Frequent words are spread over the columns, as in a sorted vocabulary.
    words = np.random.default_rng(0).permutation(np.arange(n_words, dtype=np.int32))[words]
    key = np.repeat(np.arange(n_docs) * n_words, lengths)
    key += words
    key.sort()
    first = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(first, append=len(key)).astype(np.int32)
    key = key[first]
    ptr = np.searchsorted(key, np.arange(n_docs + 1) * n_words)
    key %= n_words
    return sparse.csr_array(
        (counts, key.astype(np.int32), ptr.astype(np.int32)), shape=(n_docs, n_words)
    )


def stacked(n_docs, n_words):
    """Return all chunks, one after the other, without a second copy of them."""
    parts = [chunk(number, n, n_words) for number, n in enumerate(sizes(n_docs))]
    data = np.concatenate([part.data for part in parts])
    column = np.concatenate([part.indices for part in parts])
    ptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts]))])
    return sparse.csr_array((data, column, ptr), shape=(n_docs, n_words))


def lazily(n_docs, n_words, size=CHUNK):
    """Return the same as a Dask array, with so many documents in a chunk."""
    meta = sparse.csr_array((0, n_words), dtype=np.int32)
    make = dask.delayed(chunk)
    chunks = []
    for number, n in enumerate(sizes(n_docs, size)):
        chunks.append(da.from_delayed(make(number, n, n_words), (n, n_words), np.int32, meta))
    return da.concatenate(chunks)


def sizes(n_docs, size=CHUNK):
    """Return the documents of each chunk."""
    return [min(size, n_docs - first) for first in range(0, n_docs, size)]


class Clock:
    """A callback that takes CPU and wall seconds at the end of every sweep."""

    def __init__(self, client=None):
        self._client, self.seen = client, []

    def setup(self, estimator, context):
        """Do nothing."""

    def teardown(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Do nothing."""

    def on_fit_task_end(self, estimator, context):
        """Look at the clocks."""
        if context.task_name == "sweep":
            self.seen.append((self.cpu(), time.perf_counter()))

    def cpu(self):
        """Return the CPU seconds of all processes so far."""
        of_workers = self._client.run(time.process_time).values() if self._client else []
        return time.process_time() + sum(of_workers)


def figures(arguments, n_workers, steps):
    """Return what one fit takes."""
    n_docs = int(arguments.tokens) // LENGTH
    options = {"sampler": "warp", "init": "uniform", "random_state": 0, "mh_steps": steps}

    def measured(client):
        X = lazily(n_docs, arguments.words) if client else stacked(n_docs, arguments.words)
        small = (
            lazily(SMALL * n_workers, arguments.words, SMALL)
            if client
            else stacked(SMALL, arguments.words)
        )
        DistributedLDA(arguments.topics, max_iter=2, n_shards=n_workers or None, **options).fit(
            small
        )
        run = client.run if client else lambda function: {"": function()}
        clock = Clock(client)
        lda = DistributedLDA(
            arguments.topics, max_iter=arguments.sweeps, n_shards=n_workers or None, **options
        ).set_callbacks(clock)
        time.sleep(SETTLED if client else 0)
        run(forget_peak)
        forget_peak()
        before, here = run(resident), resident()
        lda.fit(X)
        most = max(after - before[key] for key, after in run(peak).items())
        n = int(lda.topic_word_counts_.sum())
        cpu, wall = np.diff(np.array(clock.seen), axis=0).mean(axis=0)
        idle = max(before.values()) / 2**20
        found = [n, n_workers, steps, most / 2**20, idle, most / n, (peak() - here) / 2**20]
        return [
            *found,
            1e9 * cpu / n,
            n / 1e6 / cpu,
            n / 1e6 / wall,
            lda.topic_word_counts_.nnz / n,
            digest(lda),
        ]

    if not n_workers:
        return measured(None)
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        return measured(client)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=float, default=60e6)
    parser.add_argument("--topics", type=int, default=10**6)
    parser.add_argument("--words", type=int, default=10**6)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--workers", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    for n_workers in arguments.workers:
        for steps in arguments.steps:
            rows.append(figures(arguments, n_workers, steps))
            print(rows[-1], flush=True)
    header = ["tokens", "workers", "proposals", "MiB of a worker", "MiB before", "bytes of a token"]
    header += ["MiB of the client", "CPU ns", "M tokens/CPU s", "M tokens/s", "entries", "digest"]
    table(__doc__.splitlines()[0], header, rows)


if __name__ == "__main__":
    main()
