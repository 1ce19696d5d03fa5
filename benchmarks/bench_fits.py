"""First fits, and two versions of this package beside each other.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_fits.py first [--repeats 3]
    python benchmarks/bench_fits.py pairs OTHER_TREE [--pairs 15]

`first` is what a newcomer waits for.  Each estimator is fitted twice in a process that begins with
no compiled kernels, and twice in another that finds on disk what the first has compiled.  CPU
seconds of a first fit over the second one, which has everything in memory.

For `pairs` a process for each version fits the same generated data in turn, one fit of the one
after one fit of the other, so that a machine that gets slower is slower for both.  Prints for each
case the medians of CPU seconds and of wall seconds, the ratio of the medians (this tree by the
other) and the quartiles of the ratios pair by pair.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import machine, median, parse, record, table

import schmp_estimators as package  # in a process of `pairs` that of its tree

HERE = Path(__file__).resolve().parents[1]
RNG = np.random.default_rng(0)


def counts():
    return sp.csr_array(RNG.poisson(0.3, (300, 500)).astype(np.int32))


def few_ratings():
    return sp.random_array((300, 200), density=0.1, format="coo", rng=0)


def small_dense():
    return RNG.normal(size=(200, 300))


def small_sparse():
    return sp.random_array((500, 300), density=0.05, format="csc", rng=0)


def with_target(X):
    return X, X @ np.r_[np.ones(10), np.zeros(X.shape[1] - 10)] + 0.1 * RNG.normal(size=X.shape[0])


def with_classes(X):
    _, target = with_target(X)
    return X, (target > np.median(target)).astype(int)


#: What is fitted, and on what; with default parameters but for penalties and what takes long in any
#: case.
FITS = {
    "DistributedLDA": lambda: (package.DistributedLDA(10, max_iter=5), (counts(),)),
    "ModelParallelMF, sgd": lambda: (package.ModelParallelMF(8, max_iter=5), (few_ratings(),)),
    "ModelParallelMF, ccd": lambda: (
        package.ModelParallelMF(8, max_iter=5, solver="ccd"),
        (few_ratings(),),
    ),
    "PrioritizedLasso, dense": lambda: (package.PrioritizedLasso(0.01), with_target(small_dense())),
    "PrioritizedLasso, sparse": lambda: (
        package.PrioritizedLasso(0.001),
        with_target(small_sparse()),
    ),
    "SparseLogisticRegression, dense": lambda: (
        package.SparseLogisticRegression(),
        with_classes(small_dense()),
    ),
    "SparseLogisticRegression, sparse": lambda: (
        package.SparseLogisticRegression(),
        with_classes(small_sparse()),
    ),
}


def fit_twice(name):
    """Print the CPU seconds of two fits."""
    estimator, data = FITS[name]()
    seconds = []
    for _ in range(2):
        began = time.process_time()
        estimator.fit(*data)
        seconds.append(time.process_time() - began)
    print(json.dumps(seconds))


def in_a_process(name, folder):
    """Return the CPU seconds of a first fit over a second one.

    The process keeps compiled kernels in a folder.
    """
    command = [sys.executable, __file__, "first", "--fit", name]
    answer = subprocess.run(
        command,
        env={**os.environ, "NUMBA_CACHE_DIR": folder},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    first, second = json.loads(answer.stdout)
    return first - second, second


def first(options):
    """Print what first fits take."""
    if options.fit:
        fit_twice(options.fit)
        return
    print(machine())
    rows = []
    for name in FITS:
        new, kept = [], []
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                new.append(in_a_process(name, folder))
                kept.append(in_a_process(name, folder))
        seconds = [median([over for over, _ in times]) for times in (new, kept)]
        seconds.append(median([second for _, second in kept]))
        rows.append([name, *(f"{number:.2f}" for number in seconds)])
    header = ["", "compiled", "from disk", "second fit"]
    table("CPU seconds of a first fit, over the second", header, rows)
    record("kernels-first", [row[:3] for row in rows])


def corpus():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(4000, 0.02), 30)
    lengths = rng.integers(60, 140, 3000)
    shares = rng.dirichlet(np.full(30, 0.1), 3000)
    return np.array(
        [rng.multinomial(n, share @ topics) for n, share in zip(lengths, shares, strict=True)]
    )


def ratings():
    rng = np.random.default_rng(0)
    users, items = (
        rng.integers(0, 6000, 600_000),
        (rng.pareto(1.0, 600_000) * 40).astype(int) % 3000,
    )
    pairs = np.unique(np.column_stack([users, items]), axis=0)
    left, right = rng.normal(size=(6000, 6)), rng.normal(size=(3000, 6))
    values = (
        3.5
        + 0.4 * (left[pairs[:, 0]] * right[pairs[:, 1]]).sum(axis=1)
        + rng.normal(size=len(pairs))
    )
    return pairs, values


def dense():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3000)) + 0.7 * rng.normal(size=(1000, 1))
    return X, X[:, :40] @ rng.normal(size=40) + 3 * rng.normal(size=1000)


def words():
    rng = np.random.default_rng(0)
    X = sp.random(6000, 20_000, density=0.003, format="csr", rng=rng)
    return X, X[:, :200] @ rng.normal(size=200) + 0.05 * rng.normal(size=6000) > 0


def cases():
    """Return for each case an estimator and what to fit it on."""
    X, y = dense()
    sparse_X, label = words()
    return {
        "DistributedLDA, 100 topics, 60 sweeps": (
            package.DistributedLDA(100, max_iter=60, random_state=0), (corpus(),)),
        "ModelParallelMF sgd, rank 40, 20 epochs": (
            package.ModelParallelMF(n_components=40, max_iter=20, tol=0.0, random_state=0),
            ratings()),
        "ModelParallelMF ccd, rank 40, 5 epochs": (
            package.ModelParallelMF(
                n_components=40, solver="ccd", max_iter=5, tol=0.0, random_state=0),
            ratings()),
        "PrioritizedLasso, dense": (package.PrioritizedLasso(0.3, tol=1e-6), (X, y)),
        "SparseLogisticRegression, sparse": (
            package.SparseLogisticRegression(C=5.0, tol=1e-6), (sparse_X, label)),
        "PrioritizedLassoCV, dense": (package.PrioritizedLassoCV(alphas=20, cv=3), (X, y)),
        "SparseLogisticRegressionCV, sparse, tol=1e-7": (
            package.SparseLogisticRegressionCV(Cs=[0.5, 5.0], cv=3, tol=1e-7), (sparse_X, label)),
    }  # fmt: skip


def serve():
    """Fit the case that is named on each line of standard input.

    Answer with CPU and wall seconds.
    """
    warnings.simplefilter("ignore")
    known = cases()
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        estimator, data = known[line.strip()]
        cpu, wall = time.process_time(), time.perf_counter()
        estimator.fit(*data)
        print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]), flush=True)


class Version:
    """A process that fits with the package of a tree."""

    def __init__(self, tree):
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        command = [sys.executable, __file__, "pairs", "--serve"]
        self.process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.names = json.loads(self.process.stdout.readline())

    def fit(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def pairs(options):
    """Print how two versions compare."""
    if options.serve:
        serve()
        return
    this, other = Version(HERE), Version(options.other.resolve())
    for name in this.names:
        this.fit(name), other.fit(name)  # compiles
        found = []
        for number in range(options.pairs):
            first, second = (this, other) if number % 2 else (other, this)
            pair = [first.fit(name), second.fit(name)]
            found.append(pair if number % 2 else pair[::-1])
        times = np.array(found)  # pair, version, CPU or wall
        for column, word in enumerate(("CPU", "wall")):
            ours, theirs = times[:, 0, column], times[:, 1, column]
            low, high = np.quantile(ours / theirs, [0.25, 0.75])
            ratio = np.median(ours) / np.median(theirs)
            print(
                f"{name:46} {word:4} {np.median(ours):7.3f} s, other {np.median(theirs):7.3f} s: "
                f"{ratio:.3f} (quartiles of pairs {low:.3f} {high:.3f})",
                flush=True,
            )


def main():
    """Print what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    figures = parser.add_subparsers(required=True)
    one = figures.add_parser("first")
    one.set_defaults(figure=first)
    one.add_argument("--repeats", type=int, default=3, help="processes with each folder")
    one.add_argument("--fit", choices=FITS, help="only this, in this process")
    two = figures.add_parser("pairs")
    two.set_defaults(figure=pairs)
    two.add_argument("other", nargs="?", type=Path, help="root of the other tree")
    two.add_argument("--pairs", type=int, default=15)
    two.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parse(parser, *figures.choices.values())
    options.figure(options)


if __name__ == "__main__":
    main()
