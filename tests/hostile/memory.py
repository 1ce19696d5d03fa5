"""Workers whose memory limit is too small: they spill, pause, or are killed by their nannies.

    python tests/hostile/memory.py --limits 170 250 400 800

Under each limit, in MB, LDA and Lasso are fitted to about 100 MB, in memory and on Dask.  Every fit must end with the
bits of a fit without a cluster, or with an error that names the trouble; none may wait for ever.  The last line is the
summary.  The exit code is 0 if all is as it must be.
"""

import argparse
import sys
import time
from collections import Counter
from contextlib import suppress

import dask
import dask.array as da
import numpy as np
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster
from real import Attempt, fit_here, left_by

from schmp_estimators import DistributedLDA, PrioritizedLasso
from schmp_estimators.exceptions import SchMPError

#: Seconds after which a fit is said to wait for ever: more than all timeouts and restarts of the worst case together.
LIMIT = 420
#: Errors that say what the matter is: those of the package, and the refusal of a fit that cannot find room.
NAMED = (SchMPError, MemoryError)


def fits(n_rows):
    """Return makers of estimators, and their data: in memory, and lazily made by workers."""
    columns = 250
    counts = da.random.default_rng(0).poisson(0.3, (n_rows, columns), chunks=(n_rows // 8, columns))
    values = da.random.default_rng(1).standard_normal((n_rows, columns), chunks=(n_rows // 8, columns))
    response = np.random.default_rng(2).standard_normal(n_rows)

    def lda():
        return DistributedLDA(16, n_shards=2, max_iter=8, random_state=0)

    def lasso():
        return PrioritizedLasso(0.01)

    for name, make, X, y in (("LDA", lda, counts, None), ("Lasso", lasso, values, response)):
        yield f"{name} on Dask", make, X, y
        yield f"{name} in memory", make, X.compute(scheduler="threads"), y


def run(limits, n_rows, timeout):
    """Return how often fits ended how."""
    tally = Counter()
    for name, make, X, y in fits(n_rows):
        expected = fit_here(make, X, y)
        for limit in limits:
            started = time.monotonic()
            outcome, words = under_limit(make, X, y, limit, timeout)
            if outcome == "answer":
                outcome = "same" if words == expected else "other bits"
            tally[outcome] += 1
            words = "" if outcome in ("same", "other bits") else words
            print(f"{name:16} {limit:5} MB {time.monotonic() - started:6.1f} s {outcome} {words}", flush=True)
    return tally


def under_limit(make, X, y, limit, timeout):
    """Return how a fit on workers of `limit` MB ended, and what it left, its error or where it waits."""
    options = {"worker_kwargs": {"memory_limit": f"{limit}MB"}, "dashboard_address": None, "silence_logs": 50}
    with (
        dask.config.set({"schmp-estimators.worker-timeout": timeout}),
        SubprocessCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster, timeout=60) as client,
    ):
        with suppress(TimeoutError):  # a limit may be too small even to start
            client.wait_for_workers(2, timeout=60)
        attempt = Attempt(lambda: left_by(make().fit(X, y)))
        attempt.start()
        outcome = attempt.within(LIMIT)
        if outcome == "answer":
            return outcome, attempt.result
        if outcome == "hang":
            return outcome, attempt.stack()
        error = attempt.error
        named = "named error" if isinstance(error, NAMED) else "raw error"
        return named, f"{type(error).__name__}: {str(error)[:200]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=int, nargs="+", default=[170, 250, 400, 800], help="of one worker, in MB")
    parser.add_argument("--rows", type=int, default=50_000, help="of 250 columns (default 50,000: 100 MB)")
    parser.add_argument("--timeout", type=float, default=20, help="schmp-estimators.worker-timeout (default 20 s)")
    options = parser.parse_args()
    tally = run(options.limits, options.rows, options.timeout)
    ends = [f"{tally[key]} {key}" for key in ("same", "named error", "other bits", "raw error", "hang")]
    print(f"{sum(tally.values())} fits on 2 workers of {options.limits} MB: {', '.join(ends)}")
    return int(bool(tally["other bits"] or tally["raw error"] or tally["hang"]))


if __name__ == "__main__":
    sys.exit(main())
