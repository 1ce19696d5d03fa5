"""What the engine costs beside the work that it sends out.

python benchmarks/bench_engines.py rounds CPU microseconds of an empty round of the dynamic engine,
in-process python benchmarks/bench_engines.py two CPU of two fits at once on a cluster, by that of
one after the other python benchmarks/bench_engines.py snapshots what snapshots and checkpoints cost
runs on two worker processes
"""

import argparse
import os
import tempfile
import threading
import time
from statistics import median

import numpy as np
import psutil


def unchanged(partition, job):
    return partition, 0.0


def rounds():
    """Empty rounds on one, four and sixteen partitions."""
    from schmp_estimators.core.engine.rounds import Rounds
    from schmp_estimators.core.places.place import Place
    from schmp_estimators.core.places.threads import one_blas_thread

    for n in (1, 4, 16):
        held, times = Rounds(Place(), [np.zeros(3)] * n), []
        for _ in range(200):
            with one_blas_thread():  # as in every fit
                began = time.process_time()
                for number in range(50):
                    held.collect(held.submit(unchanged, number))
                times.append((time.process_time() - began) / 50)
        print(f"{n:3} partitions: {1e6 * median(times):.1f} us a round")


def two(pairs):
    """Two LDA fits on two workers of two threads, at once and one after the other."""
    from distributed import Client, LocalCluster

    from schmp_estimators import DistributedLDA

    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.2, 2.0, size=(3000, 1)) * rng.gamma(0.2, 2.0, size=(1, 2000)))

    def fit():
        DistributedLDA(50, max_iter=30, random_state=0).fit(X)

    def at_once():
        fits = [threading.Thread(target=fit) for _ in range(2)]
        for one in fits:
            one.start()
        for one in fits:
            one.join()

    def in_turn():
        fit()
        fit()

    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        workers = [
            psutil.Process(pid) for pid in client.run(lambda: __import__("os").getpid()).values()
        ]

        def spent():
            return sum(sum(process.cpu_times()[:2]) for process in workers)

        in_turn()  # compiles
        ratios, walls = [], []
        for number in range(pairs):
            found = {}
            for way in (at_once, in_turn) if number % 2 else (in_turn, at_once):
                cpu, began = spent(), time.perf_counter()
                way()
                found[way] = spent() - cpu, time.perf_counter() - began
            ratios.append(found[at_once][0] / found[in_turn][0])
            walls.append(found[at_once][1] / found[in_turn][1])
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    print(
        f"CPU of workers, at once by in turn: {middle:.3f} ({low:.3f} {high:.3f}); wall "
        f"{median(walls):.2f}"
    )


class Clock:
    """A callback that notes when sweeps end."""

    def __init__(self):
        self.times = []

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        self.times.append(time.perf_counter())


def snapshots(pairs):
    """LDA of 6 M tokens and MF of 2 M ratings, with and without snapshots or checkpoints.

    Snapshots are taken after each sweep.
    """
    from distributed import Client, LocalCluster

    from schmp_estimators import DistributedLDA, ModelParallelMF
    from schmp_estimators.core.engine import static

    n_sweeps, rng = 31, np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.2, 1.0, (5000, 1)) * rng.gamma(0.2, 7.5, (1, 4000)))
    rated = np.unique(
        np.column_stack([rng.integers(0, 40_000, 2_000_000), rng.integers(0, 10_000, 2_000_000)]),
        axis=0,
    )
    common = {"max_iter": n_sweeps, "n_shards": 2, "random_state": 0}
    inputs = {"lda": (counts,), "mf": (rated, rng.normal(size=len(rated)))}
    estimators = {
        "lda": lambda **options: DistributedLDA(100, **common, **options),
        "mf": lambda **options: ModelParallelMF(32, **common, **options),
    }

    def fit(kind, way):
        static.SNAPSHOT_EVERY, static.SNAPSHOT_SHARE = (
            (0.0, 0.0) if way == "snapshot" else (np.inf, 0.0)
        )
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            kept = {
                "checkpoint": os.path.join(folder, "state"),
                "checkpoint_every": 1 if way == "checkpoint" else 99,
            }
            estimators[kind](**kept).set_callbacks(clock).fit(*inputs[kind])
        return clock.times[n_sweeps - 1] - clock.times[0]

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        processes = [psutil.Process(pid) for pid in client.run(os.getpid).values()] + [
            psutil.Process()
        ]

        def spent():
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        for kind in estimators:
            fit(kind, "none")  # compiles
            found = {"none": [], "snapshot": [], "checkpoint": []}
            for number in range(pairs):
                for way in list(found)[:: -1 if number % 2 else 1]:
                    cpu = spent()
                    seconds = fit(kind, way)
                    found[way].append((seconds, spent() - cpu))
            n = n_sweeps - 1
            wall, cpu = (median(one[i] for one in found["none"]) for i in range(2))
            print(f"{kind}: {n} sweeps in {wall:.2f} s, a fit with {cpu:.2f} s of CPU")
            for way in ("snapshot", "checkpoint"):
                more = [
                    [(a[i] - b[i]) / n for a, b in zip(found[way], found["none"], strict=True)]
                    for i in range(2)
                ]
                print(
                    f"  each {way}: {1e3 * median(more[0]):+.0f} ms, {1e3 * median(more[1]):+.0f} "
                    "ms of CPU"
                )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["rounds", "two", "snapshots"])
    parser.add_argument("--pairs", type=int, default=9)
    options = parser.parse_args()
    if options.what == "rounds":
        rounds()
    else:
        {"two": two, "snapshots": snapshots}[options.what](options.pairs)


if __name__ == "__main__":
    main()
