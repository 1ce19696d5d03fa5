"""What the engine costs beside the work that it sends out, and what its ranks exchange.

python benchmarks/bench_engines.py rounds       CPU of an empty round, in this process
python benchmarks/bench_engines.py two          two fits at once, by one after the other
python benchmarks/bench_engines.py snapshots    what snapshots and checkpoints cost
python benchmarks/bench_engines.py ranks        fits on many workers, by one process
python benchmarks/bench_engines.py watching     what telling of a fit costs
python benchmarks/bench_engines.py messages     messages of a rank and sweep; the formulas
python benchmarks/bench_engines.py idle         seconds of a sweep that does nothing
python benchmarks/bench_engines.py web          what 10^11 tokens would take, computed
SCHMP_DATA=folder python benchmarks/bench_engines.py traffic    bytes of samplers; the formula
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np
import psutil
from bench_lda import some_documents
from common import machine, parse, record, table
from distributed import Client, LocalCluster
from scipy import sparse

from schmp_estimators import DistributedLDA, ModelParallelMF, schmp
from schmp_estimators.core.cluster import group
from schmp_estimators.core.dashboard.fits import Fits
from schmp_estimators.core.dashboard.page import View
from schmp_estimators.core.dashboard.teller import EVERY, Teller
from schmp_estimators.core.engine import static
from schmp_estimators.core.engine.communicator import MANY
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.lda.data.shards import (
    LARGEST_SHARE,
    bytes_of_words,
    bytes_saved,
    count_local_words,
    make_layout,
)

#: Sweeps of the figures of what is exchanged.
SWEEPS = 4
#: Of those figures that do not have one for each shard.
N_WORKERS = 4


def unchanged(partition, job):
    return partition, 0.0


def rounds(arguments):
    """Empty rounds on one, four and sixteen partitions."""
    for n in (1, 4, 16):
        held, times = Rounds(Place(), [np.zeros(3)] * n), []
        for _ in range(200):
            with one_blas_thread():  # as in every fit
                began = time.process_time()
                for number in range(50):
                    held.collect(held.submit(unchanged, number))
                times.append((time.process_time() - began) / 50)
        print(f"{n:3} partitions: {1e6 * median(times):.1f} us a round")


def two(arguments):
    """Two LDA fits on two workers of two threads, at once and one after the other."""
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
        for number in range(arguments.pairs):
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


def snapshots(arguments):
    """LDA of 6 M tokens and MF of 2 M ratings, with and without snapshots or checkpoints.

    Snapshots are taken after each sweep.
    """
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
            for number in range(arguments.pairs):
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


def fingerprint(array):
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
        return fingerprint(model.fit(counts).topic_word_counts_.toarray())

    def mf(n_shards):
        model = ModelParallelMF(8, max_iter=20, tol=0.0, n_shards=n_shards, random_state=1)
        return fingerprint(model.fit(pairs, ratings).components_)

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


@contextmanager
def ranks_here(count):
    """Yield the client of a cluster in this process, with a worker of one thread for each rank."""
    options = {"threads_per_worker": 1, "processes": False, "memory_limit": 0}
    with (
        LocalCluster(n_workers=count, dashboard_address=None, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def ranks(arguments):
    """CPU of small fits on clusters of many workers, beside one process.

    Client, scheduler and workers are in this process, each worker with one thread and one shard, so
    its CPU is that of all of them.  The second fit of each kind counts.  The last column says
    whether it has the bits of a fit without a cluster.
    """
    fits, rows = make_fits(), []
    for n in arguments.workers:
        alone = {}
        for name, fit in fits.items():
            fit(n)  # compiles
            alone[name] = seconds_of(lambda fit=fit, n=n: fit(n))
        with ranks_here(n):
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


RECORD = {
    "seconds": 1.0,
    "samples": 10**6,
    "log_likelihood": -1e6,
    "moved": 1000,
    "doc_topic_prior": 0.1,
}
N_TOLD, N_MESSAGES, N_RECORDS, N_LOOKS = 20_000, 400, 10, 200


def cpu(action, times):
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


def watching(arguments):
    """CPU time that telling of a fit costs.

    In its own thread, on the client's loop and the scheduler, while looked at.  They are times of
    the processor, so that other programs on the machine matter little.
    """
    options = {
        "n_workers": 4,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        without_page = cpu(lambda: time.sleep(5), 1) / 5
        teller = Teller(client, "schmp-lda")
        teller.tell("begin", {"estimator": "DistributedLDA", "objective": "log_likelihood"})
        while teller._has_page is None:
            time.sleep(0.05)
        with_page = cpu(lambda: time.sleep(5), 1) / 5
        teller._is_due = True  # nothing is sent meanwhile
        began = time.thread_time()
        for number in range(N_TOLD):
            teller.tell("record", {"iterations": number, **RECORD})
        of_tell = (time.thread_time() - began) / N_TOLD
        teller._unsent.clear()

        def send():
            for number in range(N_RECORDS):
                teller.tell("record", {"iterations": number, **RECORD})
            client.sync(teller._send)

        of_message = cpu(send, N_MESSAGES)

        def short_fit():
            one = Teller(client, "schmp-lda")
            one.tell("begin", {"estimator": "DistributedLDA"})
            one.close()

        of_fit = cpu(short_fit, N_MESSAGES)
        view = View(cluster.scheduler)

        def look():
            view._drawn = None
            view.update()

        of_look = cpu(look, N_LOOKS)
        fit = cluster.scheduler.plugins[Fits.name].fits[teller._fit]
        print(
            json.dumps({
                "microseconds in the thread of the fit for a record": round(1e6 * of_tell, 1),
                f"milliseconds of client and scheduler for {N_RECORDS} records": round(
                    1e3 * of_message, 2
                ),
                "milliseconds of both for a fit's beginning and end": round(1e3 * of_fit, 2),
                "percent of one core at the most messages a second": round(
                    100 * of_message / EVERY, 2
                ),
                "percent of one core, idle cluster without and with page": [
                    round(100 * one, 1) for one in (without_page, with_page)
                ],
                f"milliseconds for a look, two a second, at {len(fit.points)} points": round(
                    1e3 * of_look, 2
                ),
            }, indent=1)
        )  # fmt: skip
        teller.close()


@dataclass(frozen=True)
class Idle(schmp.Program):
    """Shards that exchange a number."""

    name: ClassVar[str] = "idle"

    def n_blocks(self, n_shards):
        return 0

    def schedule(self, sweep, n_shards):
        return schmp.exchanges(self.reply, split=self.cut), schmp.each(self.take, merge=self.add)

    def init(self, at):
        return np.zeros(1), {}

    def cut(self, at, state):
        return [state] * at.n_shards

    def reply(self, at, pieces):
        return pieces

    def take(self, at, state, answers):
        return state

    def report(self, at, state):
        return 0

    def add(self, one, other):
        return 0

    def aggregate(self, model, reports):
        return 0


def traffic(arguments):
    """Bytes that workers send each other for a token and sweep, with a shard on each.

    The formula is for "warp", "frozen" and "saber".
    """
    X, rows = some_documents(arguments.corpus), []
    totals = np.asarray(X.sum(axis=0), np.int64).ravel()
    for k, n_shards, sampler in itertools.product(
        arguments.topics, arguments.shards, arguments.samplers
    ):
        options = {"sampler": sampler, "init": "uniform", "evaluate_every": 0}
        sent = _sent(X, k, n_shards, random_state=0, **options)
        rows.append([sampler, k, n_shards, sent, _formula(totals, n_shards, k, sampler)])
        print(rows[-1], flush=True)
    table(traffic.__doc__, ["sampler", "K", "shards", "sent", "by the formula"], rows)
    if arguments.samplers == ["warp"]:
        record("scale-bytes", [[str(k), *found] for _, k, *found in rows], 2)


def _sent(X, k, n_shards, **options):
    """Return the bytes of a token and sweep."""
    with ranks_here(n_shards) as client:
        found = []
        for sweeps in (1, 1 + SWEEPS):  # what the start and the harvest take is in both
            before = sum(client.run(_said).values())
            DistributedLDA(k, max_iter=sweeps, n_shards=n_shards, **options).fit(X)
            found.append(sum(client.run(_said).values()) - before)
    return (found[1] - found[0]) / SWEEPS / X.sum()


def _said(dask_worker):
    totals = dask_worker.digests_total.items()  # Dask's metrics of tasks
    return sum(total for key, total in totals if key[-2:] == ("sent to other ranks", "bytes"))


def _travelling(k):
    """Return the bytes of a topic, and of a token, on their way."""
    n_bytes = np.min_scalar_type(k - 1).itemsize
    return n_bytes, 3 * n_bytes


def _formula(totals, n_shards, k, sampler="warp"):
    """Return the bytes of a token in a sweep; samplers other than "warp" send rows only."""
    is_local, by_rows, by_tokens = _choice(totals, n_shards, k)
    return np.where(is_local | (sampler != "warp"), by_rows, by_tokens).sum() / totals.sum()


def _choice(totals, n_shards, k):
    """Return which words are sampled locally, and what words cost, as rows and as tokens."""
    layout, (topic_bytes, token_bytes) = make_layout(totals, n_shards), _travelling(k)
    is_local = np.zeros(len(totals), bool)
    local = count_local_words(totals, layout, k, topic_bytes, token_bytes, far=True)
    for first, n_local in zip(layout.block_ptr, local, strict=False):
        is_local[layout.column[first : first + n_local]] = True
    return is_local, *bytes_of_words(totals, n_shards, k, topic_bytes, token_bytes)


#: Of a sweep: exchanges between all ranks, messages of a rotation, and sums that go up a tree, and
#: down again.
MESSAGES = {
    "warp": lambda p: (2, 0, 1),
    "frozen": lambda p: (2, 0, 1),
    "fplus": lambda p: (0, p, p + 1),
    "sgd": lambda p: (0, p, 1),
}


def messages(arguments):
    """Messages and kilobytes that a rank sends in a sweep, by the formulas.

    Each rank has a shard, and workers are in one process.
    """
    rng, sent, rows = np.random.default_rng(0), Counter(), []
    counts = sparse.csr_array(rng.poisson(0.15, (2000, 800)).astype(np.int32))
    pairs = np.unique(rng.integers(0, 3000, (200_000, 2)), axis=0)
    ratings, plain = rng.normal(size=len(pairs)), group.Group.send

    def counted(self, to, value):
        sent[self.rank] += 1
        plain(self, to, value)

    def fit(kind, n_shards, sweeps):
        options = {"max_iter": sweeps, "n_shards": n_shards, "random_state": 0}
        if kind == "sgd":
            ModelParallelMF(8, tol=0.0, **options).fit(pairs, ratings)
        else:
            DistributedLDA(8, sampler=kind, **options).fit(counts)

    group.Group.send = counted
    for p in arguments.shards:
        with ranks_here(p) as client:
            for kind in MESSAGES:
                found = []
                for sweeps in (2, 2 + SWEEPS):  # what the start and the harvest take is in both
                    sent.clear()
                    before = sum(client.run(_said).values())
                    fit(kind, p, sweeps)
                    found.append([sent.total(), sent[0], sum(client.run(_said).values()) - before])
                total, first, n_bytes = (np.subtract(*found[::-1]) / SWEEPS).tolist()
                rows.append([kind, p, total / p, first, *_messages(kind, p), n_bytes / p / 1e3])
                print(rows[-1], flush=True)
    rows += [
        [kind, p, "", "", *_messages(kind, p), ""] for kind in MESSAGES for p in (100, 300, 1000)
    ]
    header = [
        "kind",
        "ranks",
        "messages",
        "of rank 0",
        "by the formula",
        "of rank 0",
        "kB of a rank",
    ]
    table(messages.__doc__, header, rows)
    shown = [row for row in rows if row[1] == 32 and row[2]]
    record("scale-messages", [[row[0], f"{row[2]:.2f}", f"{row[3]:.0f}"] for row in shown])


def _messages(kind, p):
    """Return the messages of a rank on average, and those of rank 0.

    Rank 0 sends most: it is the top of the trees.
    """
    exchanges, turns, trees = MESSAGES[kind](p)
    width = (
        math.isqrt(p - 1) + 1 if p >= MANY else p
    )  # the ranks of a row, and those of each column
    columns = [len(range(first, p, width)) for first in range(width)]
    there = width - 1 + sum(n * n for n in columns) / p - 1
    mean = exchanges * there + turns + trees * 2 * (p - 1) / p
    return mean, exchanges * (width + columns[0] - 2) + turns + trees * math.ceil(math.log2(p))


def idle(arguments):
    """Seconds of a sweep of shards that do nothing, in batches and one by one.

    There are four workers of one thread.

    Client, scheduler and workers are in one process; with --processes workers are not, and CPU is
    without theirs.
    """
    from bench_engines import Idle as Program  # which workers can import

    options = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    few, many, rows = 10, 160, []
    for n_shards in arguments.shards:
        with (
            LocalCluster(n_workers=N_WORKERS, processes=arguments.processes, **options) as cluster,
            Client(cluster),
        ):
            for kind, callback in {"batches": None, "one by one": lambda record: None}.items():
                clock = [_now()]
                for sweeps in (few, few, many):  # the first one lets workers listen to each other
                    schmp.run(Program(), [np.zeros(1)] * n_shards, sweeps=sweeps, callback=callback)
                    clock.append(_now())
                _, shorter, longer = np.diff(clock, axis=0)
                rows.append([n_shards, kind, *(longer - shorter) / (many - few)])
                print(rows[-1], flush=True)
    table(idle.__doc__.splitlines()[0], ["shards", "sweeps", "wall seconds", "CPU seconds"], rows)


def _now():
    return time.perf_counter(), time.process_time()


def web(arguments):
    """Computed, not measured: GB that a worker receives in a sweep.

    There are 10^11 tokens, a million words and a million topics.

    Words follow Zipf-Mandelbrot's law with exponent 1.07; a word of n tokens is in n^.75 topics at
    the start.  Pulled rows are those of the words that a worker has, 5 bytes an entry, as LightLDA
    fetches them; it gives back 6 bytes for each token that moved, taken to be all at the start.
    """
    weights = 1.0 / (np.arange(10**6) + 2.7) ** 1.07
    totals, k, rows = 1e11 * weights / weights.sum(), 10**6, []
    for n_shards in arguments.shards:
        given = totals, n_shards, k, 4, _travelling(k)[1]
        by_rows, by_tokens = bytes_of_words(*given)
        local = (bytes_saved(*given) >= 0) | (totals > LARGEST_SHARE * totals.sum() / n_shards)
        ours = np.where(local, by_rows, by_tokens)
        has_word = n_shards * -np.expm1(-totals / n_shards)
        pulled = has_word * 5 * np.minimum(k, totals**0.75) + 6 * totals
        each = [one.sum() / n_shards / 1e9 for one in (by_rows, pulled, by_tokens, ours)]
        rows.append([n_shards, *each, 100e-9 * 1e11 / n_shards / 16])
    header = [
        "workers",
        "rows of all words",
        "rows pulled",
        "tokens",
        "rows or tokens",
        "seconds of 16 cores at 100 ns",
    ]
    table(web.__doc__, header, rows)


FIGURES = {
    one.__name__: one
    for one in (rounds, two, snapshots, ranks, watching, traffic, messages, idle, web)
}


def main():
    """Run the figures named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--pairs", type=int, default=9, help="for two and snapshots")
    parser.add_argument(
        "--workers", nargs="+", type=int, default=[4, 8, 16, 32, 64], help="for ranks"
    )
    parser.add_argument("--corpus", default="msdocs::6")
    parser.add_argument("--processes", action="store_true", help="for idle")
    parser.add_argument("--samplers", nargs="+", default=["warp"], help="for traffic")
    parser.add_argument("--topics", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--shards", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    arguments = parse(parser)
    print(machine(), flush=True)
    for figure in arguments.figures:
        FIGURES[figure](arguments)


if __name__ == "__main__":
    main()
