"""What ranks cost: the CPU of small fits on clusters of many workers, beside one process.

The clusters are in this process.

    python benchmarks/bench_ranks.py                        4, 8, 16, 32 and 64 workers
    python benchmarks/bench_ranks.py --workers 4 16

Client, scheduler and workers are in this process, each worker with one thread and one shard, so its
CPU is that of all of them.  The second fit of each kind counts.  The last column says whether it
has the bits of a fit without a cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import numpy as np
from common import machine, table
from distributed import Client, LocalCluster
from scipy import sparse

from schmp_estimators import DistributedLDA, ModelParallelMF


def digest(array):
    """Return a fingerprint of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def make_fits():
    """Return functions of the number of shards that fit, and return a fingerprint, by name."""
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.poisson(0.15, (2000, 800)).astype(np.int32))
    pairs = np.unique(rng.integers(0, 3000, (200_000, 2)), axis=0)
    ratings = rng.normal(size=len(pairs))

    def lda(sampler, n_shards):
        model = DistributedLDA(
            8, sampler=sampler, max_iter=40, n_shards=n_shards, random_state=1, evaluate_every=0
        )
        return digest(model.fit(counts).topic_word_counts_.toarray())

    def mf(n_shards):
        model = ModelParallelMF(8, max_iter=20, tol=0.0, n_shards=n_shards, random_state=1)
        return digest(model.fit(pairs, ratings).components_)

    return {
        "LDA, warp, 40 sweeps": lambda n: lda("warp", n),
        "LDA, frozen, 40 sweeps": lambda n: lda("frozen", n),
        "MF, sgd, 20 sweeps": mf,
    }


def seconds_of(action):
    """Return what an action returns, and its CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = action()
    return found, time.process_time() - cpu, time.perf_counter() - wall


def main():
    """Print a row for each number of workers and each fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    arguments = parser.parse_args()
    print(machine(), flush=True)
    fits, rows = make_fits(), []
    for n in arguments.workers:
        alone = {}
        for name, fit in fits.items():
            fit(n)  # compiles
            alone[name] = seconds_of(lambda fit=fit, n=n: fit(n))
        with (
            LocalCluster(
                n_workers=n,
                threads_per_worker=1,
                processes=False,
                memory_limit=0,
                dashboard_address=None,
            ) as cluster,
            Client(cluster),
        ):
            for name, fit in fits.items():
                fit(n)
                found, cpu, wall = seconds_of(lambda fit=fit, n=n: fit(n))
                expected, cpu_alone, wall_alone = alone[name]
                rows.append(
                    [
                        n,
                        name,
                        cpu,
                        wall,
                        cpu_alone,
                        wall_alone,
                        "yes" if found == expected else "NO",
                    ]
                )
                print(rows[-1], flush=True)
    header = ["workers", "fit", "CPU/s", "wall/s", "CPU alone/s", "wall alone/s", "same bits"]
    table("Fits on ranks in one process", header, rows)


if __name__ == "__main__":
    main()
