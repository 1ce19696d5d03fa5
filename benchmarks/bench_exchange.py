"""What shards exchange: bytes, and the time of those who only deal them out.

SCHMP_DATA=folder python benchmarks/bench_exchange.py traffic bytes of a token and sweep, by shards;
the formula SCHMP_DATA=folder python benchmarks/bench_exchange.py said the same by any sampler
SCHMP_DATA=folder python benchmarks/bench_exchange.py pairs what rows of pairs, chosen each sweep,
would save SCHMP_DATA=folder python benchmarks/bench_exchange.py marked the same of any arrays,
measured python benchmarks/bench_exchange.py idle seconds of a sweep of shards that do nothing
python benchmarks/bench_exchange.py messages --shards 8 32 64 messages of a rank and sweep; the
formulas python benchmarks/bench_exchange.py web --shards 24 100 300 1000 what a corpus of 10^11
tokens would take, computed
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar
from unittest import mock

import numpy as np
from bench_lda import some_documents
from common import SweepClock, machine, table
from distributed import Client, LocalCluster
from numba import njit
from scipy import sparse

from schmp_estimators import DistributedLDA, ModelParallelMF, schmp
from schmp_estimators.core.cluster import group, wire
from schmp_estimators.core.engine.communicator import MANY
from schmp_estimators.core.values import replace_leaves
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data import shards
from schmp_estimators.lda.data.shards import (
    COUNT_BYTES,
    LARGEST_SHARE,
    ROW_BYTES,
    WORK_BYTES,
    bytes_of_words,
    bytes_saved,
    count_local_words,
    make_layout,
)

SWEEPS = 4
#: Of those figures that do not have one for each shard.
N_WORKERS = 4


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
    """Bytes that workers send each other for a token and sweep of "warp".

    Every shard is on a worker of its own.
    """
    X, rows = some_documents(arguments.corpus), []
    totals = np.asarray(X.sum(axis=0), np.int64).ravel()
    for k in arguments.topics:
        options = {"sampler": "warp", "init": "uniform", "random_state": 0}
        for n_shards in arguments.shards:
            rows.append(
                [k, n_shards, _sent(X, k, n_shards, **options)[0], _formula(totals, n_shards, k)]
            )
            print(rows[-1], flush=True)
    header = ["K", "shards", "sent", "by the formula"]
    table(traffic.__doc__, header, rows)


def said(arguments):
    """Bytes that workers send each other for a token and sweep of any sampler, a shard on each."""
    X, rows = some_documents(arguments.corpus), []
    for k, n_shards in itertools.product(arguments.topics, arguments.shards):
        found, sampler = _sent(X, k, n_shards, sampler=arguments.sampler, random_state=0)
        rows.append([sampler, k, n_shards, found])
        print(rows[-1], flush=True)
    table(said.__doc__, ["sampler", "K", "shards", "sent"], rows)


def _sent(X, k, n_shards, **options):
    """Return the bytes of a token and sweep, and the sampler."""
    with (
        LocalCluster(
            n_workers=n_shards,
            threads_per_worker=1,
            processes=False,
            memory_limit=0,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        found = []
        for sweeps in (1, 1 + SWEEPS):  # what the start and the harvest take is in both
            before = sum(client.run(_said).values())
            lda = DistributedLDA(k, max_iter=sweeps, n_shards=n_shards, **options).fit(X)
            found.append(sum(client.run(_said).values()) - before)
    return (found[1] - found[0]) / SWEEPS / X.sum(), lda.sampler_


def _said(dask_worker):
    totals = dask_worker.digests_total.items()  # Dask's metrics of tasks
    return sum(total for key, total in totals if key[-2:] == ("sent to other ranks", "bytes"))


def _travelling(k):
    """Return the bytes of a topic, and of a token, on their way."""
    n_bytes = np.min_scalar_type(k - 1).itemsize
    return n_bytes, 3 * n_bytes


def _formula(totals, n_shards, k):
    """Return the bytes of a token in a sweep."""
    return np.where(*_choice(totals, n_shards, k)).sum() / totals.sum()


def _choice(totals, n_shards, k):
    """Return which words are sampled locally, and what words cost, as rows and as tokens."""
    layout, (topic_bytes, token_bytes) = make_layout(totals, n_shards), _travelling(k)
    is_local = np.zeros(len(totals), bool)
    local = count_local_words(totals, layout, k, topic_bytes, token_bytes, far=True)
    for first, n_local in zip(layout.block_ptr, local, strict=False):
        is_local[layout.column[first : first + n_local]] = True
    return is_local, *bytes_of_words(totals, n_shards, k, topic_bytes, token_bytes)


def pairs(arguments):
    """Bytes of a token and sweep of "warp" if rows of head words were pairs where that is less.

    A pair is a topic and its count.

    First for the words that send rows now; then if words are chosen anew each sweep, so that bytes
    and the work on rows are least together, as now, or bytes alone.  What tokens and dense rows
    take follows from the tokens of a word, which stay, but pairs become fewer from sweep to sweep.
    Draws for other words go by the order of their tokens, which pairs do not have.  Counts are
    those of a fit; a shard is taken to have any token of a word with the same chance.
    """
    X, rows = some_documents(arguments.corpus), []
    totals = np.asarray(X.sum(axis=0), np.int64).ravel()
    for k in arguments.topics:
        counted = {}

        def at_end(sweep, seconds, fitted, counted=counted):
            if sweep in arguments.sweeps:
                counted[sweep] = fitted().topic_word_counts_
            return False

        options = {
            "sampler": "warp",
            "init": "uniform",
            "random_state": 0,
            "max_iter": max(arguments.sweeps),
        }
        DistributedLDA(k, **options).set_callbacks(SweepClock(at_end)).fit(X)
        for n_shards, (sweep, counts) in itertools.product(arguments.shards, counted.items()):
            is_local, by_rows, by_tokens = _choice(totals, n_shards, k)
            word = np.repeat(np.arange(len(totals)), np.diff(counts.indptr))
            in_one = 1.0 - (1.0 - 1.0 / n_shards) ** counts.data
            there, back = np.bincount(word, in_one, len(totals)), np.diff(counts.indptr)
            by_pairs = ((there + back) * (_travelling(k)[0] + COUNT_BYTES) + ROW_BYTES) * (
                n_shards - 1
            )
            by_pairs[totals < HEAD * k] = np.inf
            coded = np.minimum(by_rows, by_pairs)
            work = np.where(totals >= HEAD * k, WORK_BYTES * k * (n_shards - 1), 0)
            now, *others = [
                np.where(chosen, one, by_tokens).sum() / totals.sum()
                for chosen, one in (
                    (is_local, by_rows),
                    (is_local, coded),
                    (coded + work < by_tokens, coded),
                    (coded < by_tokens, coded),
                )
            ]
            rows.append([k, n_shards, sweep, now, *others])
            print(rows[-1], flush=True)
    header = ["K", "shards", "sweep", "now", "pairs", "chosen anew", "by bytes alone"]
    table(pairs.__doc__, header, rows)


@njit
def _mark(elements, marks, found):
    """Set a bit for each element that is not zero, and copy these; return how many there are."""
    n = 0
    for i in range(len(elements)):
        found[n] = elements[i]
        is_there = elements[i] != 0
        marks[i >> 3] |= is_there << (i & 7)
        n += is_there
    return n


@njit
def _unmark(marks, found, elements):
    """Write the elements that are not zero to their places."""
    n = 0
    for i in range(len(elements)):
        is_there = (marks[i >> 3] >> (i & 7)) & 1
        elements[i] = found[n] * is_there
        n += is_there


@dataclass(frozen=True, slots=True)
class Marked:
    """An array as a bit for each element that is not zero, and these elements."""

    array: np.ndarray
    dtype: np.dtype
    is_writeable: bool
    marks: np.ndarray
    shape: tuple[int, ...]


#: CPU seconds of threads for arrays on the wire.
_coding = []


def _timed(function):
    def timed(given):
        began = time.thread_time()
        found = function(given)
        _coding.append(time.thread_time() - began)
        return found

    return timed


def _marked(array):
    """Return an array, or if it is smaller the marked one."""
    if array.dtype.kind not in "iu" or array.nbytes <= wire.SMALL:
        return array
    dtype = np.min_scalar_type(int(array.max())) if array.min() >= 0 else array.dtype
    marks, found = np.zeros(-(-array.size // 8), np.uint8), np.empty(array.size + 1, dtype)
    n = 1 + _mark(array.reshape(-1), marks, found)
    if marks.nbytes + n * found.itemsize >= array.size * found.itemsize:
        return array
    return Marked(found[:n].copy(), array.dtype, array.flags.writeable, marks, array.shape)


def _unmarked(one):
    """Return the array that was sent."""
    array = np.empty(one.shape, one.dtype)
    _unmark(one.marks, one.array, array.reshape(-1))
    array.flags.writeable = one.is_writeable
    return array


def _pack_marked(value):
    return wire.pack(replace_leaves(value, np.ndarray, _marked))


def _unpack_marked(message):
    return replace_leaves(wire.unpack(message), Marked, _unmarked)


def marked(arguments):
    """Bytes of a token and sweep, and CPU ns for their code: arrays are dense, or dense or marked.

    The first code is that of the package.  For "warp" there is also the choice of words that suits
    the marked rows of the last sweep.  Workers are threads of this process, whose messages go
    through sockets, so its CPU time is that of all; the least of the sweeps is shown.
    """
    X, rows = some_documents(arguments.corpus), []
    totals = np.asarray(X.sum(axis=0), np.int64).ravel()
    given = itertools.product(arguments.samplers, arguments.topics, arguments.shards)
    for sampler, k, n_shards in given:
        options = {"sampler": sampler, "init": "uniform", "random_state": 0}
        last = DistributedLDA(k, max_iter=max(arguments.sweeps), **options).fit(X)
        entries = np.diff(last.topic_word_counts_.indptr)
        column = make_layout(totals, n_shards).column

        def of_marked(n, n_shards, n_topics, *sizes, entries=entries[column]):
            dense, by_tokens = bytes_of_words(n, n_shards, n_topics, *sizes)
            marks = 2 * (n_topics / 8 + COUNT_BYTES * entries) + ROW_BYTES
            of_heads = np.minimum(dense, marks * (n_shards - 1))
            return np.where(n >= HEAD * n_topics, of_heads, dense), by_tokens

        ways = {
            "dense": (wire.pack, wire.unpack, bytes_of_words),
            "dense or marked": (_pack_marked, _unpack_marked, bytes_of_words),
            "and chosen anew": (_pack_marked, _unpack_marked, of_marked),
        }
        for how, (there, back, costs) in ways.items():
            if costs is of_marked and sampler != "warp":
                continue
            with (
                mock.patch.multiple(group, pack=_timed(there), unpack=_timed(back)),
                mock.patch.object(shards, "bytes_of_words", costs),
            ):
                points = _course(X, k, n_shards, max(arguments.sweeps), **options)
            for sweep in arguments.sweeps:
                some = [points[one] - points[one - 1] for one in range(sweep - SWEEPS, sweep + 1)]
                sent, coding, cpu = np.array(some).T / X.sum()
                of_sweeps = f"{sweep - SWEEPS} to {sweep}"
                figures = sent.mean(), 1e9 * coding.min(), 1e9 * cpu.min()
                rows.append([sampler, k, n_shards, how, of_sweeps, *figures])
                print(rows[-1], flush=True)
    header = ["sampler", "K", "shards", "arrays", "sweeps", "bytes", "ns of the code", "CPU ns"]
    table(marked.__doc__, header, rows)


def _course(X, k, n_shards, n_sweeps, **options):
    """Return bytes sent, CPU seconds for their code, and all CPU seconds, up to each sweep."""
    points = {}
    with (
        LocalCluster(
            n_workers=n_shards,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            memory_limit=0,
            dashboard_address=None,
        ) as cluster,
        Client(cluster),
    ):

        def at_end(sweep, seconds, fitted):
            sent = sum(map(_said, cluster.workers.values()))
            points[sweep] = np.array([sent, sum(_coding), time.process_time()])
            return False

        lda = DistributedLDA(k, max_iter=n_sweeps, n_shards=n_shards, **options)
        lda.set_callbacks(SweepClock(at_end)).fit(X)
    return points


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
        with (
            LocalCluster(
                n_workers=p,
                threads_per_worker=1,
                processes=False,
                memory_limit=0,
                dashboard_address=None,
            ) as cluster,
            Client(cluster) as client,
        ):
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
    from bench_exchange import Idle as Program  # which workers can import

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


FIGURES = {one.__name__: one for one in (traffic, said, pairs, marked, messages, idle, web)}


def main():
    """Run the figures named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--corpus", default="msdocs::6")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--sampler", default="auto", help="for said")
    parser.add_argument("--samplers", nargs="+", default=["warp", "saber"], help="for marked")
    parser.add_argument("--topics", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--shards", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    parser.add_argument(
        "--sweeps", nargs="+", type=int, default=[1, 10, 50, 150], help="for pairs, marked"
    )
    arguments = parser.parse_args()
    print(machine())
    for figure in arguments.figures:
        FIGURES[figure](arguments)


if __name__ == "__main__":
    main()
