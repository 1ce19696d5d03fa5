"""L1 models on row partitions in worker processes, beside one process.

Rounds, bytes per reduce, and wall time.

    export OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_l1_dask.py --cases "toeplitz;strads" --parts 10,100 --workers 2
    python benchmarks/bench_l1_dask.py --cases toeplitz --peer    # dask-glm on the same chunks
    python benchmarks/bench_l1_dask.py --path 40

A fit on the cluster and one in this process, of one partition and one thread, take turns; the
median of each counts.  The relative gap is the duality gap over the objective at zero, computed
here.  X is on the workers before a fit starts.
"""

import l1_cases  # isort: skip  (limits BLAS threads)

import argparse
import time
import warnings
from functools import partial

import common
import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, wait

from schmp_estimators import PrioritizedLasso, prioritized_lasso_path
from schmp_estimators.core.engine.rounds import Rounds


def dense(order):
    """Independent columns, as many of which matter a little as a large working set needs."""
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(40_000, 2000)), np.zeros(2000)
    coef[rng.choice(2000, 100, replace=False)] = rng.normal(size=100)
    signal = X @ coef
    return np.asarray(X, order=order), signal + signal.std() * rng.normal(size=40_000)


CASES = {
    "dense": lambda: dense("C"),
    "dense by columns": lambda: dense("F"),
    "strads, 4 times the rows": lambda: l1_cases.strads(200_000),
    "strads, 4 times the rows and columns": lambda: l1_cases.strads(200_000, 400_000),
    "strads, 8 times the rows": lambda: l1_cases.strads(400_000),
    "strads, 4 times the rows, twice the values": lambda: l1_cases.strads(200_000, per_column=50),
    "strads, 4 times the rows and values": lambda: l1_cases.strads(200_000, per_column=100),
    "genotypes": lambda: l1_cases.genotypes()[:2],
    "toeplitz": l1_cases.toeplitz,
    "tall": lambda: l1_cases.toeplitz(20_000, 4_000, 0.5),
    "strads": l1_cases.strads,
    "mice": l1_cases.mice,
}


class Meter:
    """Counts rounds, and weighs what comes to the client: answers of partitions."""

    def __enter__(self):
        self.largest, self.total, self.rounds = {"nothing": 0}, 0, 0
        self._collect = Rounds.collect

        def collect(rounds, ticket):
            partials = self._collect(rounds, ticket)
            sizes = [sizeof(partial) for partial in partials]
            name = type(ticket.command.job).__name__
            self.largest[name] = max(self.largest.get(name, 0), *sizes)
            self.total, self.rounds = self.total + sum(sizes), rounds.n_rounds
            return partials

        Rounds.collect = collect
        return self

    def __exit__(self, *_):
        Rounds.collect = self._collect


def on_workers(X, n_chunks):
    """Return X as a Dask array of which each chunk is on a worker."""
    rows = -(-X.shape[0] // n_chunks)
    if not sp.issparse(X):
        lazy = da.from_array(X, chunks=(rows, X.shape[1]))
        if X.flags.f_contiguous:
            lazy = lazy.map_blocks(np.asfortranarray, meta=np.empty((0, 0)))
    else:
        by_rows = sp.csr_array(X)
        chunks = [by_rows[start : start + rows] for start in range(0, X.shape[0], rows)]
        shapes = [(chunk.shape[0], X.shape[1]) for chunk in chunks]
        meta = sp.csr_array((1, 1))
        parts = [
            da.from_delayed(dask.delayed(chunk), shape, meta=meta)
            for chunk, shape in zip(chunks, shapes, strict=True)
        ]
        lazy = da.concatenate(parts)
    lazy = lazy.persist()
    wait(lazy)
    return lazy


def measure(case, part, options):
    X, y = CASES[case]()
    alpha = float(np.abs(X.T @ y).max() / len(y) / part)
    lasso = PrioritizedLasso(alpha, fit_intercept=False, tol=5e-7)
    lazy = on_workers(X, options.chunks or options.workers)
    here, there = [], []
    for number in range(options.repeats + 1):  # the first compiles
        started = time.perf_counter()
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            lasso.fit(X, y)
        between = time.perf_counter()
        with Meter() as meter:
            lasso.fit(lazy, y)
        if number:
            here.append(between - started)
            there.append(time.perf_counter() - between)
    support, p = int(np.count_nonzero(lasso.coef_)), X.shape[1]
    allowed = 8 * (p + support**2)
    return [
        f"{case}, 1/{part:g}",
        support,
        l1_cases.relative_gap(X, y, lasso.coef_, alpha),
        lasso.n_iter_,
        meter.rounds,
        max(meter.largest.values()) / 1e6,
        allowed / 1e6,
        meter.total / 1e6,
        common.median(here),
        common.median(there),
        common.median(there) / common.median(here),
    ], (X, y, alpha, lazy)


def path(n_alphas, options):
    """Print wall seconds of a path, here and there, and how far coefficients differ.

    The path is on 120,000 × 2,000 dense rows.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120_000, 2000)) + 0.5 * rng.normal(size=(120_000, 1))
    y = X[:, :100] @ rng.normal(size=100) + 5.0 * rng.normal(size=120_000)
    lazy = on_workers(X, options.chunks or options.workers)
    solve = partial(prioritized_lasso_path, alphas=n_alphas, eps=1e-2)
    here, there = [], []
    for number in range(options.repeats + 1):
        started = time.perf_counter()
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            one = solve(X, y)[1]
        between = time.perf_counter()
        other = solve(lazy, y)[1]
        if number:
            here.append(between - started)
            there.append(time.perf_counter() - between)
    seconds = common.median(here), common.median(there)
    header = ["alphas", "here/s", "there/s", "there / here", "largest difference"]
    row = [n_alphas, *seconds, seconds[1] / seconds[0], float(np.abs(one - other).max())]
    common.table(f"A path on {options.workers} workers", header, [row])


def peer(X, y, alpha, lazy, seconds):
    """Yield what dask-glm reaches on the same chunks.

    It is asked after each number of iterations that fits into the time.
    """
    from dask_glm.algorithms import admm, proximal_grad
    from dask_glm.families import Normal

    target = da.from_array(y, chunks=(lazy.chunks[0],))
    # its loss is Σ (y − Xβ)², without a factor; tolerances so small that the iterations decide
    options = {
        "regularizer": "l1",
        "lamduh": 2 * len(y) * alpha,
        "family": Normal,
        "normalize": False,
    }
    tolerances = {proximal_grad: {"tol": 1e-15}, admm: {"abstol": 1e-12, "reltol": 1e-12}}
    for solver, stopping in tolerances.items():
        for steps in (10, 100, 1000):
            started = time.perf_counter()
            coef = solver(lazy, target, max_iter=steps, **options, **stopping)
            passed = time.perf_counter() - started
            yield [
                solver.__name__,
                steps,
                passed,
                l1_cases.relative_gap(X, y, np.asarray(coef), alpha),
            ]
            if 10 * passed > seconds:
                break


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="toeplitz;strads")
    parser.add_argument("--parts", default="10,100")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--chunks", type=int, default=0, help="chunks of rows; as many as workers by default"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="dask-glm too")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds for each solver of dask-glm"
    )
    parser.add_argument(
        "--path", type=int, default=0, help="number of alphas of a path, instead of the cases"
    )
    options = common.parse(parser)
    warnings.filterwarnings("ignore")
    print(common.machine(), flush=True)
    sizes = ["reduce/MB", "allowed/MB", "all/MB"]
    header = ["case", "support", "gap", "steps", "rounds", *sizes, "here/s", "there/s", "ratio"]
    with (
        LocalCluster(
            options.workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        if options.path:
            path(options.path, options)
            return
        for case in options.cases.split(";"):
            for part in map(float, options.parts.split(",")):
                row, problem = measure(case, part, options)
                common.table(f"{options.workers} workers", header, [row])
                answers = [f"{row[at]:.3g} MB" for at in (5, 7)]
                common.record("l1-rounds", [[*row[:2], *row[3:5], *answers]])
                common.record("l1-dask-glm", [["ours", row[9], f"{row[2]:.1e}"]])
                if options.peer:
                    for reached in peer(*problem, options.limit):
                        solver, steps, seconds, gap = reached
                        shown = [f"dask-glm, {steps} iterations of {solver}", seconds, f"{gap:.3g}"]
                        common.record("l1-dask-glm", [shown], peers=("dask-glm",))
                        common.table(
                            "dask-glm", ["solver", "iterations", "seconds", "gap"], [reached]
                        )


if __name__ == "__main__":
    main()
