"""What a newcomer waits for: first fits before kernels are compiled, and after.

Each estimator is fitted twice in a process that begins with no compiled kernels, and twice in
another that finds on disk what the first has compiled.  CPU seconds of a first fit over the second
one, which has everything in memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy.sparse as sp
from common import machine, median, table

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    SparseLogisticRegression,
)

RNG = np.random.default_rng(0)


def counts():
    return sp.csr_array(RNG.poisson(0.3, (300, 500)).astype(np.int32))


def ratings():
    return sp.random_array((300, 200), density=0.1, format="coo", rng=0)


def dense():
    return RNG.normal(size=(200, 300))


def sparse():
    return sp.random_array((500, 300), density=0.05, format="csc", rng=0)


def with_target(X):
    return X, X @ np.r_[np.ones(10), np.zeros(X.shape[1] - 10)] + 0.1 * RNG.normal(size=X.shape[0])


def with_classes(X):
    _, target = with_target(X)
    return X, (target > np.median(target)).astype(int)


#: What is fitted, and on what; with default parameters but for penalties and what takes long in any
#: case.
FITS = {
    "DistributedLDA": lambda: (DistributedLDA(10, max_iter=5), (counts(),)),
    "ModelParallelMF, sgd": lambda: (ModelParallelMF(8, max_iter=5), (ratings(),)),
    "ModelParallelMF, ccd": lambda: (ModelParallelMF(8, max_iter=5, solver="ccd"), (ratings(),)),
    "PrioritizedLasso, dense": lambda: (PrioritizedLasso(0.01), with_target(dense())),
    "PrioritizedLasso, sparse": lambda: (PrioritizedLasso(0.001), with_target(sparse())),
    "SparseLogisticRegression, dense": lambda: (SparseLogisticRegression(), with_classes(dense())),
    "SparseLogisticRegression, sparse": lambda: (
        SparseLogisticRegression(),
        with_classes(sparse()),
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
    command = [sys.executable, __file__, "--fit", name]
    answer = subprocess.run(
        command,
        env={**os.environ, "NUMBA_CACHE_DIR": folder},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    first, second = json.loads(answer.stdout)
    return first - second, second


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="processes with each folder")
    parser.add_argument("--fit", choices=FITS, help="only this, in this process")
    options = parser.parse_args()
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
        rows.append(
            [
                name,
                *(f"{number:.2f}" for number in (*seconds, median([second for _, second in kept]))),
            ]
        )
    table(
        "CPU seconds of a first fit, over the second",
        ["", "compiled", "from disk", "second fit"],
        rows,
    )


if __name__ == "__main__":
    main()
