"""Large topic models: a billion tokens on one machine, and a million topics of a million words.

    python benchmarks/bench_large.py text --folder FOLDER --tokens 1e9 --topics 1000 10000 \
        --sweeps 20 5 --limit 10
    python benchmarks/bench_large.py cells --folder FOLDER --tokens 1e9 --topics 50 \
        --sweeps 10 --limit 6
    python benchmarks/bench_large.py all --folder FOLDER --share 0.001
    python benchmarks/bench_large.py million --tokens 60e6 --workers 0 1 2 --steps 1 2

For `text` and `cells` the corpus is generated into memory-mapped files of the folder, once.
Lengths of documents are log-normal (250 tokens on average).  A document has a few of 500 topics;
three tokens in ten come from a background under Zipf-Mandelbrot's law, the others from topics, each
of which has 4,000 words of its own.  For `cells` documents are cells of 5,900 tokens, the words are
220,000 regions, topics have 20,000 of them, all of them more alike than words are, and every count
is 1.  A part of the documents is held out.  Each fit is a process of its own, after a small fit
that loads the kernels.  `--limit` is the memory limit that the fit is told of, in GiB.  A whole fit
is everything from the call of `fit` to its return, reading of the input included; CPU is that of
all its threads.  Memory is the most that the process has of pages that no file backs, and the most
of all resident pages: those of files are the system's to take away.  Disk is the most that the
fit's own files take.  Perplexity, after each sweep, is that of held-out documents by document
completion; the seconds are without it.

For `million` the corpus is generated, too: words follow Zipf-Mandelbrot's law with exponent 1.07,
documents have 178 tokens on average.  0 workers: one process, without Dask.  Otherwise so many
worker processes with one thread each, and the documents are a Dask array of chunks that are made
when they are needed: a worker's memory includes them.  A small fit, with a chunk and a shard for
each worker, loads libraries and kernels.  Memory is that of the process that fits, or of the
largest worker, beyond what it has before the fit, which has a column of its own; the peak of all,
harvest included, as the kernel counts it.  CPU is that of the client and of all workers, for each
token of the sweeps after the first; with few sweeps and workers, which begin a sweep before the
client hears of the last, it says nothing.
"""

# ruff: noqa: NPY002  # compiled code draws from the generator of its thread

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import dask
import dask.array as da
import numpy as np
from bench_spill import Watch
from common import (
    SweepClock,
    digest,
    forget_peak,
    machine,
    parse,
    peak,
    record,
    resident,
    shown_commands,
    table,
)
from distributed import Client, LocalCluster
from numba import njit
from scipy import sparse

from schmp_estimators import DistributedLDA


class Kind(NamedTuple):
    """A kind of corpus."""

    words: int
    topics: int
    of_a_topic: int
    mean_length: int
    #: Deviation of the logarithm of the length.
    spread: float
    #: Exponent of Zipf-Mandelbrot's law.
    power: float
    is_binary: bool
    #: Documents that are made at a time, and those that are held out.
    chunk: int
    held_out: int


KINDS = {
    "text": Kind(200_000, 500, 4_000, 250, 1.0, 1.07, False, 20_000, 5_000),
    "cells": Kind(220_000, 40, 20_000, 6_200, 0.5, 0.5, True, 1_000, 1_000),
}
BACKGROUND = 0.3
HERE = Path(__file__).parent


@njit(nogil=True, cache=True)
def make_chunk(
    seed, lengths, background, of_topic, topic_words, is_binary, indices, counts, ptr
):  # pragma: no cover
    """Fill in the counts of some documents, and return how many there are."""
    np.random.seed(seed)
    filled = 0
    for d in range(len(lengths)):
        length = lengths[d]
        n_topics = 1 + np.random.poisson(3.0)
        chosen = np.random.randint(0, len(topic_words), n_topics)
        upto = np.cumsum(np.random.exponential(1.0, n_topics))
        tokens = np.empty(length, np.int32)
        for i in range(length):
            if np.random.random() < BACKGROUND:
                tokens[i] = np.searchsorted(background, np.random.random())
            else:
                topic = chosen[np.searchsorted(upto, np.random.random() * upto[-1])]
                tokens[i] = topic_words[topic, np.searchsorted(of_topic, np.random.random())]
        tokens.sort()
        for i in range(length):
            if i and tokens[i] == tokens[i - 1]:
                counts[filled - 1] += not is_binary
            else:
                indices[filled], counts[filled] = tokens[i], 1
                filled += 1
        ptr[d + 1] = filled
    return filled


def zipf(n, power):
    """Return the distribution function of Zipf-Mandelbrot's law over so many ranks."""
    upto = np.cumsum(1.0 / (np.arange(n) + 2.7) ** power)
    return upto / upto[-1]


def write_corpus(folder, n_tokens, kind):
    """Write a corpus of about so many tokens to files, unless it is there."""
    told = {"tokens": n_tokens, **kind._asdict()}
    if (folder / "told.json").exists() and json.loads((folder / "told.json").read_text()) == told:
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    background, of_topic = zipf(kind.words, kind.power), zipf(kind.of_a_topic, kind.power)
    # Words of topics: more likely the frequent ones, as in text, but none twice as often as it
    # occurs anyway.
    drawn = rng.random((kind.topics, kind.of_a_topic)) ** 0.6
    topic_words = np.searchsorted(background, drawn).astype(np.int32)
    n_docs = n_tokens // kind.mean_length + kind.held_out
    column = rng.permutation(kind.words).astype(np.int32)

    def made(number):
        n = min(kind.chunk, n_docs - number * kind.chunk)
        centre = math.log(kind.mean_length) - kind.spread**2 / 2
        drawn = np.random.default_rng(number + 1).lognormal(centre, kind.spread, n)
        lengths = np.clip(drawn, 5, 20_000).astype(np.int64)
        room = np.empty((2, lengths.sum()), np.int32)
        ptr = np.zeros(n + 1, np.int64)
        filled = make_chunk(
            number, lengths, background, of_topic, topic_words, kind.is_binary, *room, ptr
        )
        return column[room[0, :filled]], room[1, :filled], ptr[1:]

    ptr, end = [np.zeros(1, np.int64)], 0
    with (
        (folder / "indices").open("wb") as indices,
        (folder / "data").open("wb") as data,
        ThreadPoolExecutor(2) as pool,
    ):
        numbers = range(-(-n_docs // kind.chunk))
        for first in range(0, len(numbers), 8):
            for columns, counts, ends in pool.map(made, numbers[first : first + 8]):
                columns.tofile(indices)
                counts.tofile(data)
                ptr.append(ends + end)
                end += len(columns)
    np.concatenate(ptr).astype(np.int32 if end < 2**31 else np.int64).tofile(folder / "indptr")
    (folder / "told.json").write_text(json.dumps(told))


def open_corpus(folder, kind):
    """Return the documents to fit, memory-mapped, and those that are held out."""
    ptr = np.fromfile(folder / "indptr", np.int32)
    last = len(ptr) - 1 - kind.held_out
    indices, data = (np.memmap(folder / name, np.int32, "r") for name in ("indices", "data"))

    def rows(a, b):
        parts = data[ptr[a] : ptr[b]], indices[ptr[a] : ptr[b]], ptr[a : b + 1] - ptr[a]
        return sparse.csr_array(parts, shape=(b - a, kind.words), copy=False)

    return rows(0, last), rows(last, len(ptr) - 1)


class Disk(threading.Thread):
    """Looks how much of the file system is taken, beyond what was taken before."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self._folder, self._ended, self.most = folder, threading.Event(), 0
        self._before = self._free()

    def _free(self):
        return shutil.disk_usage(self._folder).free

    def run(self):
        """Look, again and again."""
        while not self._ended.wait(0.5):
            self.most = max(self.most, self._before - self._free())

    def end(self):
        """Return the most that there was."""
        self._ended.set()
        return self.most


def fit(args, topics, sweeps):
    """Fit in this process, and print what it took."""
    warnings.simplefilter("ignore")
    parameters = {
        "doc_topic_prior": 0.1,
        "topic_word_prior": 0.01,
        "random_state": 0,
        "n_jobs": args.jobs,
    }
    folder = Path(args.folder)
    settings = {
        "schmp-estimators.memory-limit": int(args.limit * 2**30),
        "temporary-directory": str(folder),
    }
    with dask.config.set(settings):
        sampler = "warp" if args.figure == "text" else "auto"
        small = np.random.default_rng(0).poisson(0.2, (40, 60))
        with warnings.catch_warnings():
            DistributedLDA(topics, max_iter=2, sampler=sampler, **parameters).fit(small)
        X, held_out = open_corpus(folder, KINDS[args.figure])
        n_tokens, perplexities, looking = int(X.data.sum(dtype=np.int64)), [], np.zeros(2)

        def look(sweep, seconds, fitted):
            began = time.process_time(), time.perf_counter()
            perplexities.append(float(f"{fitted().perplexity(held_out):.4g}"))
            looking[:] += time.process_time() - began[0], time.perf_counter() - began[1]

        clock = SweepClock(look)
        lda = DistributedLDA(
            topics, max_iter=sweeps, spill=args.spill or None, sampler=sampler, **parameters
        ).set_callbacks(clock)
        watch, disk = Watch(), Disk(folder)
        forget_peak()
        watch.start()
        disk.start()
        began = time.process_time(), time.perf_counter()
        lda.fit(X)
        cpu = time.process_time() - began[0] - looking[0]
        wall = time.perf_counter() - began[1] - looking[1]
        of_fit = [watch.end() / 2**30, peak() / 2**30, disk.end() / 2**30]
    sampled = n_tokens * sweeps / 1e6
    row = [
        n_tokens,
        topics,
        sweeps,
        wall,
        cpu,
        sampled / cpu,
        sampled / sum(clock.cpu),
        sampled / sum(clock.wall),
    ]
    print(json.dumps([*row, *of_fit, perplexities, lda.sampler_, digest(lda)]))


def in_files(args):
    """Time, memory and disk of whole fits of a large corpus, by number of topics."""
    if args.fit:
        fit(args, args.topics[0], args.sweeps[0])
        return
    print(machine())
    began = time.perf_counter()
    write_corpus(Path(args.folder), int(args.tokens), KINDS[args.figure])
    print(f"corpus after {time.perf_counter() - began:.0f} s", flush=True)
    rows = []
    for topics, sweeps in zip(args.topics, args.sweeps, strict=True):
        told = {
            "folder": args.folder,
            "topics": topics,
            "sweeps": sweeps,
            "limit": args.limit,
            "jobs": args.jobs,
            "spill": args.spill,
        }
        options = [text for name, value in told.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, __file__, args.figure, *options, "--fit"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    header = [
        "tokens",
        "topics",
        "sweeps",
        "wall s",
        "CPU s",
        "M tokens/CPU s",
        "of sweeps",
        "M tokens/s of sweeps",
    ]
    header += ["GiB anonymous", "GiB resident", "GiB of files", "perplexity", "sampler", "digest"]
    table(in_files.__doc__.splitlines()[0], header, rows)
    record("scale-tokens", [[*row[1:3], *row[4:7], *row[8:11], row[11][-1]] for row in rows], 2)
    for row in rows:
        millions = row[0] * row[2] / 1e6
        sweeps = [millions / row[6], millions / row[7]]
        record("scale-cells-long", [["in files" if args.spill else "in memory", *sweeps]])
        whole = ["whole fit", row[4], row[3], row[8], row[10]]
        record("scale-cells", [whole, ["its sweeps", *sweeps, "", ""]])


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


def million(arguments):
    """Memory and speed of a model of a million topics and a million words, by processes."""
    print(machine(), flush=True)
    rows = []
    for n_workers in arguments.workers:
        for steps in arguments.steps:
            rows.append(figures(arguments, n_workers, steps))
            print(rows[-1], flush=True)
    header = ["tokens", "workers", "proposals", "MiB of a worker", "MiB before", "bytes of a token"]
    header += ["MiB of the client", "CPU ns", "M tokens/CPU s", "M tokens/s", "entries", "digest"]
    table(million.__doc__.splitlines()[0], header, rows)
    record("scale-million", [[*row[1:3], row[5], *row[7:10]] for row in rows], 2)
    more = [row[3] for row in sorted(rows, key=lambda row: row[1])]
    record("scale-workers", [["MiB more at the peak of a worker", *more]])


#: Tables whose first command makes a row of the picture "What fits on two cores", and options of
#: these whose numbers say how much data there is.
ON_TWO_CORES = ("scale-cells", "mf-large", "l1-genotypes", "mf-clicks")
SIZES, SHAPES = ("--tokens", "--millions", "--clicks"), ("path", "--shape")


def everything(args):
    """What fits on two cores: tokens, ratings, genotypes and clicks, one after the other."""
    for name in ON_TWO_CORES:
        words = shown_commands(name)[0]
        for i, (option, word) in enumerate(pairwise(words), 1):
            if option == "--folder":
                words[i] = f"{args.folder}/{name}-{args.share:g}"
            elif option in SIZES and args.share != 1:
                words[i] = f"{float(word) * args.share:g}"
            elif option in SHAPES and args.share != 1:
                sides = (int(side) * math.sqrt(args.share) for side in word.split("x"))
                words[i] = "x".join(f"{side:.0f}" for side in sides)
        print("$", *words, flush=True)
        script = words.index("python") + 1
        words[script - 1 : script + 1] = sys.executable, str(HERE / Path(words[script]).name)
        subprocess.run(["env", *words, *["--record"] * args.record], check=True)


def main():
    """Print the figure that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = parser.add_subparsers(required=True, dest="figure")
    for kind in KINDS:
        one = figures.add_parser(kind)
        one.set_defaults(run=in_files)
        one.add_argument("--folder", required=True)
        one.add_argument("--tokens", type=float, default=1e9)
        one.add_argument("--topics", type=int, nargs="+", default=[1_000, 10_000])
        one.add_argument("--sweeps", type=int, nargs="+", default=[20, 5])
        one.add_argument("--limit", type=float, default=10.0)
        one.add_argument("--jobs", type=int, default=2)
        one.add_argument("--spill", default="auto", help="'' keeps all tokens in memory")
        one.add_argument("--fit", action="store_true", help=argparse.SUPPRESS)
    one = figures.add_parser("all")
    one.set_defaults(run=everything)
    one.add_argument("--folder", required=True, help="where the data are made, once")
    one.add_argument("--share", type=float, default=1.0, help="of the data")
    one = figures.add_parser("million")
    one.set_defaults(run=million)
    one.add_argument("--tokens", type=float, default=60e6)
    one.add_argument("--topics", type=int, default=10**6)
    one.add_argument("--words", type=int, default=10**6)
    one.add_argument("--sweeps", type=int, default=3)
    one.add_argument("--workers", nargs="+", type=int, default=[0])
    one.add_argument("--steps", nargs="+", type=int, default=[1, 2])
    arguments = parse(parser, *figures.choices.values())
    arguments.run(arguments)


if __name__ == "__main__":
    main()
