"""Workers whose memory limit is too small: they spill, pause, or are killed by their nannies.

    LIMITS=170,250,400,800 ROWS=50000 python -m pytest tests/hostile/test_memory.py -m slow

Limits are in MB; 50,000 rows are about 100 MB.  Every fit must end with the bits of a fit without a
cluster, or with an error that names the trouble; none may wait for ever.
"""

import os
from contextlib import suppress
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from real import fit_here, left_by

from schmp_estimators import DistributedLDA, PrioritizedLasso
from schmp_estimators.exceptions import SchMPError

LIMITS, N_ROWS = (
    os.environ.get("LIMITS", "250,800").split(","),
    int(os.environ.get("ROWS", "20000")),
)
SIZES = {"size": (N_ROWS, 250), "chunks": (N_ROWS // 8, 250)}
#: Of each name an estimator, rows that workers make, and responses.
FITS = {
    "LDA": (
        partial(DistributedLDA, 16, n_shards=2, max_iter=8, random_state=0),
        da.random.default_rng(0).poisson(0.3, **SIZES),
        None,
    ),
    "Lasso": (
        partial(PrioritizedLasso, 0.01),
        da.random.default_rng(1).standard_normal(**SIZES),
        np.random.default_rng(2).standard_normal(N_ROWS),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(
    500, method="thread"
)  # more than all timeouts and restarts of the worst case together
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_the_same_or_its_error_names_the_trouble(name, lazy, limit):
    make, X, y = FITS[name]
    X = X if lazy else X.compute(scheduler="threads")
    expected = fit_here(make, X, y)
    options = {
        "worker_kwargs": {"memory_limit": f"{limit}MB"},
        "dashboard_address": None,
        "silence_logs": 50,
    }
    with (
        dask.config.set({"schmp-estimators.worker-timeout": 20}),
        SubprocessCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster, timeout=60) as client,
    ):
        with suppress(TimeoutError):  # a limit may be too small even to start
            client.wait_for_workers(2, timeout=60)
        with suppress(
            SchMPError, MemoryError
        ):  # errors of the package, and the refusal of a fit that finds no room
            assert left_by(make().fit(X, y)) == expected
