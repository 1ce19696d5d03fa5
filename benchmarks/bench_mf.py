"""Matrix factorisation: every figure of docs/measurements/mf.

    python benchmarks/bench_mf.py throughput ccd shards memory threads carried serving
    SCHMP_DATA=folder python benchmarks/bench_mf.py quality defaults --data netflix_like spi_items
    python benchmarks/bench_mf.py cluster
    python benchmarks/bench_mf.py large --folder FOLDER --millions 100

Times are CPU seconds of this process (wall seconds where several threads or processes work),
medians of several epochs; compilation comes before the clock, making shards does not.  Peers:
``pip install libmf cmfrec``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from hashlib import sha256
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from common import (
    SweepClock,
    forget_peak,
    machine,
    median,
    milliseconds,
    parse,
    peak,
    record,
    table,
)
from dask import delayed
from scipy import sparse

from schmp_estimators import DistributedSLIM, ModelParallelMF
from schmp_estimators.mf import fit as _mf_fit
from schmp_estimators.mf.programs.ccd import CcdFactorization
from schmp_estimators.mf.programs.sgd import SgdFactorization


class Split(NamedTuple):
    """Ratings to train on and to test on."""

    pairs: np.ndarray
    values: np.ndarray
    test_pairs: np.ndarray
    test_values: np.ndarray


def netflix_like(n_ratings=1_000_000, n_users=6_040, n_items=3_706, rank=20, seed=0):
    """Return ratings 1 to 5 with long tails of users and items, biases, factors and noise.

    The factors decay.
    """
    rng = np.random.default_rng(seed)
    popular = (np.arange(n_users) + 10.0) ** -0.6, (np.arange(n_items) + 10.0) ** -0.9
    drawn = [
        rng.choice(weights.size, 2 * n_ratings, p=weights / weights.sum()) for weights in popular
    ]
    keys = np.sort(
        drawn[0] * np.int64(n_items) + drawn[1]
    )  # faster than `np.unique`, which hashes them
    users, items = np.divmod(
        rng.permutation(keys[np.diff(keys, prepend=-1) > 0])[:n_ratings], n_items
    )
    tastes = (
        rng.normal(size=(n_users, rank)) / np.sqrt(1 + np.arange(rank)),
        rng.normal(size=(n_items, rank)),
    )
    values = np.full(n_ratings, 3.6)[: users.size]
    for start in range(0, users.size, 1 << 18):  # all tastes at once would take gigabytes
        part = slice(start, start + (1 << 18))
        values[part] += 0.25 * np.einsum("nk,nk->n", tastes[0][users[part]], tastes[1][items[part]])
    values += 0.4 * rng.normal(size=n_users)[users] + 0.5 * rng.normal(size=n_items)[items]
    values = np.clip(np.rint(values + 0.75 * rng.normal(size=users.size)), 1, 5).astype(np.float32)
    names = rng.permutation(n_users)[users], rng.permutation(n_items)[items]
    return np.column_stack(names), values


def from_file(name, share):
    """Return a sample of the ratings in ``NAME.npz`` of $SCHMP_DATA."""
    path = Path(os.environ.get("SCHMP_DATA", ".")) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(
            f"{path} is not there; set SCHMP_DATA to the folder of the ratings, or use netflix_like"
        )
    stored = np.load(path)
    chosen = np.random.default_rng(0).permutation(stored["values"].size)[
        : int(share * stored["values"].size)
    ]
    pairs = np.column_stack([stored["users"], stored["items"]])[chosen].astype(np.int64)
    return pairs, stored["values"][chosen].astype(np.float32)


def split(pairs, values, share=0.1, seed=1):
    """Return a share of the ratings to test on, the others to train on."""
    test = np.random.default_rng(seed).random(values.size) < share
    return Split(pairs[~test], values[~test], pairs[test], values[test])


RATINGS = {
    "netflix_like": netflix_like,
    "spi_items": lambda: from_file("spi_items", 0.2),
    "insteval": lambda: from_file("insteval", 1.0),
}


def load(name):
    """Return a data set by name."""
    return split(*RATINGS[name]())


def sample(pairs, values, share, seed=0):
    """Return a share of some ratings."""
    chosen = np.random.default_rng(seed).permutation(values.size)[: int(share * values.size)]
    return pairs[chosen], values[chosen]


def mf(n_components=40, **parameters):
    """Return an estimator that does all its epochs."""
    return ModelParallelMF(n_components, **{"tol": 0.0, "random_state": 0, **parameters})


def warm(**parameters):
    """Compile what a fit needs."""
    pairs = np.argwhere(np.ones((30, 20)))
    mf(8, max_iter=2, **parameters).fit(pairs, np.ones(len(pairs))).predict(pairs)


def every_epoch(data, n_components, n_epochs, **parameters):
    """Return a clock with the seconds of every epoch."""
    clock = SweepClock()
    mf(n_components, max_iter=n_epochs, **parameters).set_callbacks(clock).fit(
        data.pairs, data.values
    )
    return clock


def epochs(data, n_components, n_epochs=6, **parameters):
    """Return the CPU seconds of an epoch."""
    return median(every_epoch(data, n_components, n_epochs, **parameters).cpu)


def rmse(predicted, values):
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def ours(data, n_components, alpha, n_epochs, **parameters):
    """Return CPU seconds of a fit, set-up included, and its test RMSE."""
    alpha = (
        alpha / data.values.std()
    )  # ours is that of standardised ratings, the others' that of ratings as they are
    began = time.process_time()
    fitted = mf(n_components, alpha=alpha, max_iter=n_epochs, **parameters).fit(
        data.pairs, data.values
    )
    return time.process_time() - began, rmse(fitted.predict(data.test_pairs), data.test_values)


def libmf(data, n_components, alpha, n_epochs):
    """The same for LIBMF.

    Its `predict` is left alone, because it garbles its input in this version.
    """
    from libmf import mf as peer

    table_of_ratings = np.ascontiguousarray(
        np.column_stack([data.pairs, data.values]).astype(np.float32)
    )
    options = {
        "lambda_p1": 0.0,
        "lambda_q1": 0.0,
        "lambda_p2": alpha,
        "lambda_q2": alpha,
        "quiet": True,
    }
    began = time.process_time()
    model = peer.MF(k=n_components, nr_iters=n_epochs, nr_threads=1, **options)
    model.fit(table_of_ratings)
    seconds = time.process_time() - began
    users, items = data.test_pairs.T
    predicted = np.einsum("nk,nk->n", model.p_factors()[users], model.q_factors()[items])
    return seconds, rmse(np.nan_to_num(predicted, nan=float(data.values.mean())), data.test_values)


def cmfrec(data, n_components, alpha, n_epochs):
    """The same for cmfrec: alternating least squares by conjugate gradients, with biases."""
    import cmfrec as peer
    from scipy import sparse

    matrix = sparse.coo_matrix((data.values, data.pairs.T))
    options = {
        "scale_lam": True,
        "lambda_": alpha,
        "use_float": True,
        "nthreads": 1,
        "verbose": False,
    }
    began = time.process_time()
    model = peer.CMF(k=n_components, niter=n_epochs, **options).fit(matrix)
    seconds = time.process_time() - began
    predicted = model.predict(*data.test_pairs.T.astype(np.int32))
    return seconds, rmse(np.nan_to_num(predicted, nan=float(data.values.mean())), data.test_values)


def ladder(run, data, n_components, alphas, lengths, **parameters):
    """Return (seconds, RMSE, alpha, epochs) of every rung."""
    return [
        (*run(data, n_components, alpha, length, **parameters), alpha, length)
        for alpha in alphas
        for length in lengths
    ]


def quality(arguments):
    """CPU seconds, set-up included, to the best RMSE of LIBMF's own ladder plus 0.5 %."""
    for solver in ("sgd", "ccd"):
        warm(solver=solver)
    for name in arguments.data:
        data, k = load(name), 40
        contestants = {
            "libmf": ladder(libmf, data, k, (0.03, 0.05, 0.1, 0.2), (2, 3, 5, 8, 12, 20, 40)),
            "cmfrec": ladder(cmfrec, data, k, (0.03, 0.05, 0.1, 0.2), (1, 2, 3, 5, 10)),
            "sgd": ladder(ours, data, k, (0.03, 0.05, 0.1, 0.2), (1, 2, 3, 5, 8, 12, 20, 40)),
            "ccd": ladder(ours, data, k, (0.03, 0.05, 0.1, 0.2), (1, 2, 3, 5, 10), solver="ccd"),
        }
        goal = 1.005 * min(error for _, error, _, _ in contestants["libmf"])
        rows = []
        for who, rungs in contestants.items():
            best = min(rungs, key=lambda rung: rung[1])
            there = min((rung for rung in rungs if rung[1] <= goal), default=(float("nan"),) * 4)
            rows.append(
                (who, there[0], f"{there[2]} / {there[3]}", best[1], f"{best[2]} / {best[3]}")
            )
        header = ("", "CPU seconds", "alpha / epochs", "best test RMSE", "alpha / epochs")
        table(f"{name}, K = {k}, {data.values.size} ratings; common RMSE {goal:.4f}", header, rows)
        there = [f"{name}: seconds to {goal:.4f}", *(row[1] for row in rows)]
        best = [f"{name}: best test RMSE", *(f"{row[3]:.4f}" for row in rows)]
        record("mf-quality", [there, best], peers=("libmf", "cmfrec"))


#: Ratings times one number plus another: 0 to 100, -10 to 10 and .5 to 5 where they were 1 to 5 or
#: so.
SCALES = ((20.0, 0.0), (4.0, -10.0), (0.9, 0.5))


def defaults(arguments):
    """Test RMSE of an estimator as it comes beside the best of a grid.

    The same ratings are also taken on other scales.
    """
    grid = list(product((10, 20, 40), (0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3), (10, 20, 40)))
    for name, share in product(arguments.data, arguments.shares):
        rows, moved = [], []
        for seed in (1, 2, 3):
            data = split(*sample(*RATINGS[name](), share), share=0.15, seed=seed)

            def error(*parameters, slope=1.0, shift=0.0, data=data, seed=seed, **others):
                made = ModelParallelMF(*parameters, random_state=seed, **others)
                fitted = made.fit(data.pairs, (slope * data.values + shift).astype(np.float32))
                return rmse((fitted.predict(data.test_pairs) - shift) / slope, data.test_values)

            ladder = {(k, a, n): error(k, alpha=a, max_iter=n) for k, a, n in grid}
            found, best = error(), min(ladder, key=ladder.get)
            moved += [abs(error(slope=slope, shift=shift) / found - 1) for slope, shift in SCALES]
            rows.append((seed, found, ladder[best], str(best), 100 * (found / ladder[best] - 1)))
        table(
            f"{name}, {share:g} of the ratings",
            ("seed", "defaults", "best", "its K, alpha, epochs", "% more"),
            rows,
        )
        print(f"on other scales it differs by up to {max(moved):.1e}\n")
        label = name if share == 1 else f"{name}, {share:g}"
        more = ", ".join(f"{row[4]:.2f}" for row in rows)
        record("mf-defaults", [[label, more]])


def throughput(arguments):
    """Million ratings per CPU second of an epoch of SGD, one thread."""
    warm()
    data, rows = load("netflix_like"), []
    for k in (40, 128, 1000):
        cpu = epochs(data, k)
        peer = (libmf(data, k, 0.05, 4)[0] - libmf(data, k, 0.05, 1)[0]) / 3
        rows.append((k, data.values.size / 1e6 / cpu, data.values.size / 1e6 / peer, peer / cpu))
    table("SGD, million ratings per CPU second", ("K", "ours", "libmf", "ratio"), rows)


def ccd(arguments):
    """Million ratings per CPU second of an epoch of coordinate descent, one thread."""
    warm(solver="ccd")
    data = load("netflix_like")
    rows = [(k, data.values.size / 1e6 / epochs(data, k, solver="ccd")) for k in (40, 128)]
    table("Coordinate descent, million ratings per CPU second", ("K", "ours"), rows)


def threads(arguments):
    """Wall seconds of an epoch with one thread and with two, in turns."""
    rows = []
    data = (
        load("netflix_like")
        if arguments.millions is None
        else Split(*millions(arguments.millions), None, None)
    )
    for solver, k in (("sgd", 40), ("sgd", 128), ("ccd", 40), ("ccd", 128)):
        warm(solver=solver)
        seconds = {1: [], 2: []}
        for _ in range(4 if arguments.millions is None else 2):
            for jobs in (1, 2):
                seconds[jobs] += every_epoch(data, k, 5, solver=solver, n_jobs=jobs).wall
        one, two = median(seconds[1]), median(seconds[2])
        rows.append((solver, k, one, two, one / two, min(seconds[1]) / min(seconds[2])))
    table(
        "Threads, wall seconds of an epoch",
        ("solver", "K", "one", "two", "ratio of medians", "of minima"),
        rows,
    )
    record("mf-threads", [row[:5] for row in rows], 2)


def shards(arguments):
    """Objective after each epoch with 1 and with 64 shards."""
    data = load("netflix_like")
    runs = [
        mf(40, n_shards=count, max_iter=8, evaluate_every=1).fit(data.pairs, data.values).history_
        for count in (1, 64)
    ]
    rows = [
        (a["iterations"], a["objective"], b["objective"] / a["objective"])
        for a, b in zip(*runs, strict=True)
    ]
    table("SGD, objective", ("epoch", "1 shard", "64 shards / 1"), rows)


def memory(arguments):
    """Largest memory of a fit of 9 M ratings beyond the input, in a process of its own."""
    pairs, values = netflix_like(9_000_000, 60_000, 17_000)
    coo, factors, rows = pairs.nbytes + values.nbytes, 4 * 40 * (60_000 + 17_000), []
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/ratings.npz", pairs=pairs, values=values)
        for solver in ("sgd", "ccd"):
            command = [sys.executable, "-c", CHILD, f"{folder}/ratings.npz", solver]
            beyond = int(
                subprocess.run(
                    command, check=True, capture_output=True, cwd=Path(__file__).parent
                ).stdout
            )
            rows.append(
                (solver, coo / 2**20, factors / 2**20, beyond / 2**20, beyond / (coo + factors))
            )
    header = ("solver", "COO", "factors", "beyond the input", "ratio to COO + factors")
    table(f"Memory, MiB, {values.size} ratings", header, rows)
    record("mf-memory", [[f"``{row[0]}``", row[3]] for row in rows])


CHILD = """
import sys, threading
import numpy as np
from bench_mf import mf, warm
from common import resident
stored = np.load(sys.argv[1])
pairs, values = stored["pairs"], stored["values"]
warm(solver=sys.argv[2])
before, done, most = resident(), threading.Event(), [0]
def watch():
    while not done.wait(0.005):
        most.append(resident() - before)
thread = threading.Thread(target=watch)
thread.start()
mf(40, max_iter=2, solver=sys.argv[2]).fit(pairs, values)
done.set()
thread.join()
print(max(most))
"""


def carried(arguments):
    """Bytes of factors that a worker holds at a time.

    Its users, and what is with it of the items.
    """
    pairs, values = netflix_like()
    rows = []
    for kind, solver in ((SgdFactorization, "sgd"), (CcdFactorization, "ccd")):
        sizes = []
        for count in (1, 2, 4, 8):
            held = []

            class Watched(kind):
                """The same program, with an eye on what its functions are given."""

                def update(self, at, state, block, kind=kind, held=held):
                    held.append(state.users.factors.nbytes + block.factors.nbytes)
                    return kind.update(self, at, state, block)

                def chunk(self, at, state, number, kind=kind, held=held):
                    held.append(state.users.nbytes + state.items.nbytes + at.model.items.nbytes)
                    return kind.chunk(self, at, state, number)

            with mock.patch.object(_mf_fit, kind.__name__, Watched):
                mf(128, solver=solver, n_shards=count, max_iter=1).fit(pairs, values)
            sizes.append(max(held) / 1024)
        rows.append((solver, *sizes))
    table(
        "Factors per worker, KiB, K = 128",
        ("solver", *(f"{count} workers" for count in (1, 2, 4, 8))),
        rows,
    )


class Nights:
    """Ratings, or clicks, of which seven parts come later, with some of the users.

    A tenth are to test on.
    """

    def __init__(self, are_clicks):
        self.pairs, self.values = netflix_like(300_000, 4_000, 2_000)
        if are_clicks:
            self.pairs = self.pairs[self.values >= 4]
            self.values = np.ones(len(self.pairs), np.float32)
        rng = np.random.default_rng(1)
        arrives = np.maximum(
            rng.uniform(-9, 1, self.pairs[:, 0].max() + 1), 0
        )  # a tenth of the users come later
        times = rng.uniform(arrives[self.pairs[:, 0]], 1)
        self.test, self.are_clicks = rng.random(len(times)) < 0.1, are_clicks
        self.night = np.where(times < 0.86, -1, (times - 0.86) // 0.02).astype(int)
        self.is_new = ~np.isin(self.pairs[:, 0], self.pairs[~self.test & (self.night < 0), 0])

    def seconds(self, call, chosen):
        """Return the CPU seconds of a call on some of the ratings that are not to test on."""
        pairs, values = (array[~self.test & chosen] for array in (self.pairs, self.values))
        began = time.process_time()
        call(pairs, values)
        return time.process_time() - began

    def judge(self, fitted):
        """Return what is reached for all, old and new users."""
        parts = (self.test, self.test & ~self.is_new, self.test & self.is_new)
        if self.are_clicks:
            return [fitted.score(self.pairs[part], self.values[part]) for part in parts]
        errors = fitted.predict(self.pairs) - self.values
        return [np.sqrt(np.mean(errors[part] ** 2)) for part in parts]


def nightly(arguments):
    """Error, or NDCG@10 of clicks, and CPU seconds after seven nights.

    Day one, `partial_fit`, fit anew.
    """
    rows = []
    for name, are_clicks, fitted, epochs in (
        ("ratings", False, mf(32, max_iter=20, tol=1e-4), (20, 20)),
        ("clicks", True, mf(32, max_iter=20, tol=1e-4, unobserved_weight=0.1), (20, 20)),
        ("clicks, bpr", True, mf(32, loss="bpr", tol=0), (40, 3)),
        ("clicks, DistributedSLIM", True, DistributedSLIM(), (1000, 1000)),
    ):
        data = Nights(are_clicks)
        fitted.fit([[0, 0], [1, 1]], [1.0, 2.0]).partial_fit([[2, 0]], [1.0])  # compiles
        spent = data.seconds(fitted.set_params(max_iter=epochs[0]).fit, data.night < 0)
        rows.append((name, "fit of the first day", spent, *data.judge(fitted)))
        fitted.set_params(max_iter=epochs[1])
        spent = [data.seconds(fitted.partial_fit, data.night == number) for number in range(7)]
        rows.append((name, "partial_fit of each night", np.mean(spent), *data.judge(fitted)))
        spent = data.seconds(fitted.set_params(max_iter=epochs[0]).fit, data.night < 7)
        rows.append((name, "fit anew", spent, *data.judge(fitted)))
    columns = "", "after", "CPU seconds", "all users", "old users", "new users"
    table("Error on a tenth of the ratings, NDCG@10 on a tenth of the clicks", columns, rows)


def calls(n_items, names):
    """Return what calls of a model take: 50,000 users, 64 components, a million random ratings."""
    rng = np.random.default_rng(0)
    pairs = np.unique(
        np.column_stack([rng.integers(0, n, 1_000_000) for n in (50_000, n_items)]), axis=0
    )
    ratings = 3.0 + rng.normal(size=len(pairs))
    users, items = (np.arange(n) for n in (50_000, n_items))
    if names:
        users, items = (np.array([f"id{one}" for one in ids], object) for ids in (users, items))
    columns = [ids[column] for ids, column in zip((users, items), pairs.T, strict=True)]
    model = ModelParallelMF(64, max_iter=1, random_state=0).fit(np.column_stack(columns), ratings)
    return [
        milliseconds(15, model.recommend, users[7:8]),
        milliseconds(15, model.predict, [[users[7], items[9]]]),
        milliseconds(15, model.similar_items, items[5:6]),
        milliseconds(3, model.recommend, users[:400]),
    ]


def serving(arguments):
    """Milliseconds of CPU of a call, medians, the first one, which makes tables, apart.

    Ids are row numbers, or texts.
    """
    rows = [
        [n, "texts" if names else "numbers", *calls(n, names)]
        for n in arguments.items
        for names in (False, True)
    ]
    header = ["items", "ids", "recommend to one", "predict one", "similar to one"]
    table(serving.__doc__.splitlines()[0], [*header, "recommend to 400"], rows)


def millions(count):
    """So many million ratings, of 100,000 users on 30,000 items for 15 million."""
    return netflix_like(int(count * 1e6), int(6_667 * count), int(2_000 * count))


def cluster(arguments):
    """Wall seconds of a fit and of its epochs, in turns.

    Two processes of a LocalCluster against two threads here.
    """
    from distributed import Client, LocalCluster

    count, n_epochs, n_fits = arguments.millions or 9, 5, 2
    pairs, values = millions(count)
    few = np.argwhere(np.ones((60, 20)))
    header = (
        "solver",
        "K",
        "threads",
        "processes",
        "ratio",
        "epoch, threads",
        "epoch, processes",
        "ratio of epochs",
    )
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers:
        for solver, k in (("sgd", 64), ("ccd", 40)):

            def fit(pairs=pairs, values=values, solver=solver, k=k, **parameters):
                clock, began = SweepClock(), time.perf_counter()
                mf(k, max_iter=n_epochs, solver=solver, **parameters).set_callbacks(clock).fit(
                    pairs, values
                )
                return time.perf_counter() - began, clock.wall

            times = {"here": [], "there": []}
            for number in range(n_fits + 1):
                data = (
                    {} if number else {"pairs": few, "values": np.ones(len(few)), "n_shards": 4}
                )  # first compile
                here = fit(n_jobs=2, **data)
                with Client(workers):
                    there = fit(**data)
                if number:
                    times["here"].append(here)
                    times["there"].append(there)
            fits = [float(np.median([seconds for seconds, _ in times[place]])) for place in times]
            epochs_of = [
                median(np.concatenate([wall for _, wall in times[place]])) for place in times
            ]
            row = (solver, k, *fits, fits[1] / fits[0], *epochs_of, epochs_of[1] / epochs_of[0])
            table(
                f"{n_epochs} epochs of {values.size} ratings, medians of {n_fits} fits",
                header,
                [row],
            )


class Large:
    """Ratings 1 to 5 in steps of a half, in files.

    There are 100 of each user, from one to thousands, and popular items.

    They are the arrays of a CSR matrix.  They are made from 20,000 users at a time.
    """

    def __init__(self, folder, count):
        self.folder, self.shape = Path(folder), (int(1e4 * count), int(5e2 * count))

    def write(self):
        """Make the files, if they are not there."""
        if (self.folder / "indptr.npy").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        n_users, n_items = self.shape
        rng = np.random.default_rng(0)
        upto = np.cumsum(rng.permutation((np.arange(n_items) + 30.0) ** -0.8))
        of_items, lengths, step = 0.5 * rng.normal(size=n_items), [], 20_000
        with tempfile.TemporaryDirectory(dir=self.folder) as parts:
            for first in range(0, n_users, step):
                n = min(step, n_users - first)
                drawn = np.clip(63.0 * rng.lognormal(size=n), 1, n_items / 8).astype(int)
                users = np.repeat(np.arange(n), drawn)
                items = np.searchsorted(upto, upto[-1] * rng.random(users.size))
                users, items = np.divmod(np.unique(users * n_items + items), n_items)
                values = 3.6 + 0.4 * rng.normal(size=n)[users] + of_items[items]
                values += 0.8 * rng.normal(size=users.size)
                values = np.clip(np.rint(2 * values) / 2, 1, 5).astype(np.float32)
                lengths.append(np.bincount(users, minlength=n))
                for name, array in (("indices", items.astype(np.int32)), ("data", values)):
                    with open(f"{parts}/{name}", "ab") as file:
                        array.tofile(file)
            for name, dtype in (("indices", np.int32), ("data", np.float32)):
                np.save(self.folder / f"{name}.npy", np.memmap(f"{parts}/{name}", dtype, "r"))
        indptr = np.cumsum([0, *np.concatenate(lengths)]).astype(np.int32)
        np.save(self.folder / "indptr.npy", indptr)

    def rows(self, first=0, last=None, mapped=True):
        """Return some rows, in memory or as views of memory-mapped files."""
        indptr = np.load(self.folder / "indptr.npy")[first : None if last is None else last + 1]
        arrays = (
            np.load(self.folder / f"{name}.npy", mmap_mode="r" if mapped else None)
            for name in ("data", "indices")
        )
        data, indices = (array[indptr[0] : indptr[-1]] for array in arrays)
        shape = (len(indptr) - 1, self.shape[1])
        return sparse.csr_array((data, indices, indptr - indptr[0]), shape=shape, copy=False)

    def fit(self, how, n_epochs):
        """Fit in this process, or with two workers; return the figures of a row."""
        from distributed import Client, LocalCluster

        few = sparse.random_array((40, 30), density=0.5, format="csr", dtype=np.float32, rng=0)
        estimator = mf(64, max_iter=n_epochs, n_jobs=2)
        if how != "two workers":
            mf(64, max_iter=2, n_jobs=2).fit(few)
            return self._measured(estimator, self.rows(mapped=how == "mapped"), lambda f: [f()])
        chunks = np.linspace(0, self.shape[0], 17, dtype=int)
        X = [delayed(self.rows)(first, last) for first, last in pairwise(chunks.tolist())]
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
            ) as workers,
            Client(workers) as client,
        ):
            mf(64, max_iter=2, n_shards=4).fit([delayed(few)])
            return self._measured(estimator, X, lambda f: list(client.run(f).values()))

    @staticmethod
    def _measured(estimator, X, ask):
        clock = SweepClock()
        ask(forget_peak)
        began = time.process_time(), time.perf_counter()
        fitted = estimator.set_callbacks(clock).fit(X)
        cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
        factors = (fitted.user_factors_, fitted.components_, fitted.user_bias_, fitted.item_bias_)
        digest = sha256(b"".join(array.tobytes() for array in factors)).hexdigest()[:12]
        most = max(ask(peak)) / 2**30
        return [wall, cpu, wall - sum(clock.wall), most, digest]


def large(arguments):
    """Whole fits of ten epochs with K = 64.

    Two threads on a CSR in memory and in mapped files, and two workers.
    """
    data, rows = Large(arguments.folder, arguments.millions or 100), []
    data.write()
    for how in ("in memory", "mapped", "two workers"):
        call = (
            f"print(json.dumps(Large({str(data.folder)!r}, {arguments.millions or 100})"
            f".fit({how!r}, 10)))"
        )
        command = [sys.executable, "-c", f"import json; from bench_mf import Large; {call}"]
        told = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
        ).stdout
        rows.append([how, *json.loads(told)])
    header = ("input", "wall s", "CPU s", "wall s of the set-up", "peak, GiB", "digest")
    table(f"{data.rows().nnz} ratings, {data.shape}", header, rows)
    inputs = "in memory, two threads", "mapped files, two threads", "chunks on Dask, two workers"
    rows[2][2] = ""  # of the client alone
    record("mf-large", [[how, *row[1:5]] for how, row in zip(inputs, rows, strict=True)])


def main():
    """Run the figures that are asked for."""
    warnings.filterwarnings("ignore", category=SyntaxWarning)
    figures = (
        quality,
        defaults,
        throughput,
        ccd,
        threads,
        shards,
        memory,
        carried,
        nightly,
        serving,
        cluster,
        large,
    )
    named = {figure.__name__: figure for figure in figures}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=named)
    parser.add_argument("--data", nargs="+", default=["netflix_like", "spi_items"])
    parser.add_argument(
        "--millions", type=float, help="ratings made up for threads and cluster, in millions"
    )
    parser.add_argument("--folder", default="ratings", help="where large ratings are made, once")
    parser.add_argument("--items", nargs="+", type=int, default=[20_000, 100_000], help="serving")
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0])
    arguments = parse(parser)
    print(machine())
    for figure in arguments.figures:
        named[figure](arguments)


if __name__ == "__main__":
    main()
