"""Small Lasso problems: milliseconds of CPU of fits, paths and cross-validation, beside scikit-learn and celer.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_small_lasso.py

Medians of a few calls through the public functions, with all their checks; the first call of each, which compiles, is
not counted.
"""

import time
import warnings

import numpy as np
from sklearn.linear_model import Lasso, LassoCV, lasso_path

from schmp_estimators import PrioritizedLasso, PrioritizedLassoCV, prioritized_lasso_path

try:
    from celer import celer_path
except ImportError:
    celer_path = None

SHAPES = ((500, 30), (2000, 200), (1000, 100), (100, 1000), (60, 401), (62, 4026), (200, 2000))
TOL = 1e-6


def problem(n, p, correlated):
    """Return X in Fortran order, of which neighbouring columns may be correlated, and a response of ten columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    if correlated:
        X = X + 0.5 * X[:, np.arange(p) - 1]
    return np.asfortranarray(X), X[:, :10] @ rng.normal(size=10) + rng.normal(size=n)


def milliseconds(repeats, function, *data, **options):
    """Return the median of the CPU time of a call, but the first one."""

    def call():
        function(*data, **options)

    call()
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return 1e3 * float(np.median(taken))


def main():
    """Print a line for each problem."""
    warnings.simplefilter("ignore")
    print(f"{'problem, ms':28s}{'ours':>12s}{'sklearn':>12s}{'celer':>12s}")
    for n, p in SHAPES:
        for correlated in (False, True):
            X, y = problem(n, p, correlated)
            kind = f"{n} x {p}{' corr.' if correlated else ''}"
            if not correlated:
                line(
                    "fit " + kind,
                    milliseconds(21, PrioritizedLasso(0.05).fit, X, y),
                    milliseconds(21, Lasso(0.05).fit, X, y),
                )
            figures = [
                milliseconds(5, prioritized_lasso_path, X, y, tol=TOL),
                milliseconds(1, lasso_path, X, y, tol=TOL),
            ]
            if celer_path is not None:
                figures.append(milliseconds(1, celer_path, X, y, pb="lasso", tol=TOL))
            line("path " + kind, *figures)
            if n > p and not correlated:
                line(
                    "5 folds " + kind,
                    milliseconds(3, PrioritizedLassoCV(cv=5, tol=TOL).fit, X, y),
                    milliseconds(1, LassoCV(cv=5, tol=TOL).fit, X, y),
                )


def line(name, *figures):
    """Print a line of the table."""
    print(f"{name:28s}" + "".join(f"{figure:12.2f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
