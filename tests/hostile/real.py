"""What the tests of this folder share.

Clusters of real processes, and fits whose bits are known.
"""

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import checkpoints
import clusters
import dask
import dask.array as da
import numpy as np
import psutil
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from scipy import sparse

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    SparseLogisticRegression,
    schmp,
)

AfterSweeps, keys_left, left_by = clusters.AfterSweeps, clusters.keys_left, checkpoints.left_by


class Case(NamedTuple):
    """A fit: an estimator, and the data it gets."""

    make: Callable[..., Any]
    X: Any
    y: Any = None
    #: Whether y is on Dask, too, where X is.
    pairs: bool = False
    #: Whether it can write checkpoints.
    resumable: bool = False

    def data(self, lazy):
        """Return X and y in memory, or as two chunks of rows on Dask."""
        if not lazy:
            return self.X, self.y
        half = -(-self.X.shape[0] // 2)
        if sparse.issparse(self.X):
            return [dask.delayed(self.X[:half]), dask.delayed(self.X[half:])], self.y
        y = da.from_array(self.y, chunks=half) if self.pairs else self.y
        return da.from_array(self.X, chunks=(half, -1)), y


def cases(scale=1.0):
    """Return one fit for each estimator, sampler, solver and schedule.

    `scale` stretches the number of sweeps.
    """
    random = np.random.default_rng(0)
    counts = sparse.csr_array(random.poisson(random.gamma(0.3, 1.0, (300, 200))).astype(np.int32))
    pairs = random.permutation(120 * 80)[:3000]
    pairs = np.column_stack([pairs // 80, pairs % 80])
    ratings = 3 + random.standard_normal(3000)
    values = random.standard_normal((400, 150))
    response = values[:, :40] @ random.standard_normal(40) + random.standard_normal(400)

    def sweeps(n):
        return max(2, int(n * scale))

    def lda(n, **params):
        return lambda: DistributedLDA(8, n_shards=2, random_state=1, max_iter=sweeps(n), **params)

    def mf(n, solver):
        return lambda: ModelParallelMF(
            8, solver=solver, n_shards=2, tol=0, random_state=1, max_iter=sweeps(n)
        )

    return {
        "lda-warp": Case(lda(60), counts, resumable=True),
        "lda-fplus": Case(lda(40, sampler="fplus"), counts, resumable=True),
        "mf-sgd": Case(mf(60, "sgd"), pairs, ratings, pairs=True, resumable=True),
        "mf-ccd": Case(mf(20, "ccd"), pairs, ratings, pairs=True, resumable=True),
        "lasso": Case(lambda: PrioritizedLasso(0.01, n_shards=2, tol=1e-10), values, response),
        "lasso-priority": Case(
            lambda: PrioritizedLasso(
                0.5,
                schedule=schmp.Priority(16),
                n_shards=2,
                max_iter=sweeps(8),
                tol=1e-12,
                random_state=1,
            ),
            values,
            response,
        ),
        "logistic": Case(
            lambda: SparseLogisticRegression(C=0.3, n_shards=2, tol=1e-8),
            sparse.csr_array(values),
            response > 0,
        ),
    }


def fit_here(make, X, y):
    """Return what a fit in this process leaves, whatever clients there are."""
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        return left_by(make().fit(X, y))


@contextmanager
def processes(n_workers=2, memory_limit="2GB"):
    """Give the client of a cluster whose scheduler and workers are processes.

    Nannies restart what dies.
    """
    with (
        SubprocessCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=None,
            worker_kwargs={"memory_limit": memory_limit},
            silence_logs=50,
        ) as cluster,
        Client(cluster, timeout=60) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client


def worker_pids(cluster):
    """Return the processes of all workers, without their nannies."""
    found = []
    for worker in list(cluster.workers.values()):
        if (process := getattr(worker, "process", None)) is not None and process.returncode is None:
            try:
                children = psutil.Process(process.pid).children()
                # a nanny's children are its worker, and helpers of multiprocessing
                found += [
                    child.pid for child in children if "spawn_main" in " ".join(child.cmdline())
                ]
            except psutil.Error:
                continue
    return found


def signal_all(pids, number):
    """Send a signal to processes; return how many were there to get it."""
    sent = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            sent += 1
        except ProcessLookupError:
            continue
    return sent
