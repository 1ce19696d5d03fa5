"""What checkpoints cost: the share of a fit's CPU and wall seconds that writing them takes, in one process.

    SCHMP_DATA=folder python benchmarks/bench_checkpoints.py --corpus msdocs::6 --topics 200 --sweeps 50

A checkpoint is written every 25 sweeps, as by default.  Its documents are known by a hash, which is part of the share.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import wraps
from unittest.mock import patch

import numpy as np
from bench_lda import some_documents
from common import machine, table

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.fit import LDAFit


def clocks():
    """Return CPU and wall seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="msdocs::6")
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--sweeps", type=int, default=50)
    arguments = parser.parse_args()
    print(machine(), flush=True)
    X, spent, written = some_documents(arguments.corpus), np.zeros(2), []

    def timed(method):
        @wraps(method)
        def wrapped(self, *given):
            began = clocks()
            found = method(self, *given)
            spent[:] += clocks() - began
            written.append(method.__name__)
            return found

        return wrapped

    options = {"sampler": "warp", "random_state": 0}
    DistributedLDA(arguments.topics, max_iter=2, **options).fit(X)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(LDAFit, "_write", timed(LDAFit._write)),
        patch.object(LDAFit, "_fingerprint", timed(LDAFit._fingerprint)),
    ):
        path, began = os.path.join(folder, "checkpoint"), clocks()
        DistributedLDA(arguments.topics, max_iter=arguments.sweeps, checkpoint=path, **options).fit(X)
        whole, size = clocks() - began, os.path.getsize(path)
    n_written, n = written.count("_write"), X.sum()
    row = [n, arguments.topics, n_written, *(100 * spent / whole), 1e9 * spent[0] / n_written / n, size / n]
    table(__doc__.splitlines()[0], ["tokens", "K", "written", "CPU %", "wall %", "CPU ns of a token", "bytes"], [row])


if __name__ == "__main__":
    main()
