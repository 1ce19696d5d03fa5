"""Small L1 problems: milliseconds of CPU of fits, paths and cross-validation.

The peers are scikit-learn and celer.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_small_l1.py lasso
    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_small_l1.py logistic

Medians of a few calls through the public functions, with all their checks; the first call of each,
which compiles, is not counted.  Logistic regression is that of liblinear, each with its own default
tolerance; scikit-learn has no path of it, so one fit after the other stands for it, each from zero,
as liblinear makes no warm starts.
"""

import sys
import warnings

import numpy as np
from common import milliseconds
from sklearn.linear_model import (
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    lasso_path,
)

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    prioritized_lasso_path,
    sparse_logistic_path,
)

try:
    from celer import celer_path
except ImportError:
    celer_path = None

SHAPES = ((500, 30), (2000, 200), (1000, 100), (100, 1000), (60, 401), (62, 4026), (200, 2000))
TOL = 1e-6


def problem(n, p, correlated):
    """Return X in Fortran order, and a response of ten columns.

    Neighbouring columns of X may be correlated.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    if correlated:
        X = X + 0.5 * X[:, np.arange(p) - 1]
    return np.asfortranarray(X), X[:, :10] @ rng.normal(size=10) + rng.normal(size=n)


def lasso():
    """Print a line for each problem of the Lasso."""
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


def logistic():
    """Print a line for each problem of logistic regression."""
    theirs = {"l1_ratio": 1.0, "solver": "liblinear"}
    for n, p in SHAPES:
        X, y = problem(n, p, False)
        labels, kind, Cs = (
            y > np.median(y),
            f"{n} x {p}",
            np.geomspace(0.01, 1.0, 30) * (10.0 if p > n else 1.0),
        )

        def one_after_the_other(X, labels, Cs=Cs):
            for C in Cs:
                LogisticRegression(C=C, **theirs).fit(X, labels)

        ours, other = SparseLogisticRegression().fit, LogisticRegression(**theirs).fit
        line("fit " + kind, milliseconds(9, ours, X, labels), milliseconds(9, other, X, labels))
        path = milliseconds(3, sparse_logistic_path, X, labels, Cs=Cs)
        line("path of 30 " + kind, path, milliseconds(1, one_after_the_other, X, labels))
        if n > p:
            folds = milliseconds(1, SparseLogisticRegressionCV(Cs=Cs, cv=5).fit, X, labels)
            other = LogisticRegressionCV(
                Cs=Cs, cv=5, l1_ratios=(1.0,), solver="liblinear", use_legacy_attributes=False
            )
            line("5 folds of 30 " + kind, folds, milliseconds(1, other.fit, X, labels))


def main():
    """Print the table that is asked for."""
    warnings.simplefilter("ignore")
    print(f"{'problem, ms':28s}{'ours':>12s}{'sklearn':>12s}{'celer':>12s}")
    {"lasso": lasso, "logistic": logistic}[sys.argv[1]]()


def line(name, *figures):
    """Print a line of the table."""
    print(f"{name:28s}" + "".join(f"{figure:12.2f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
