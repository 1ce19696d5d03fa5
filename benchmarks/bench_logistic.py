"""Sparse logistic regression: CPU seconds of one thread to a certified relative gap.

The peers are celer, skglm and liblinear.

    export OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_logistic.py --cases news20,toeplitz --parts 10,100

    python benchmarks/bench_logistic.py --cases news20 --fold 14

A fold of cross-validation is four fifths of the rows, fitted for each of the first of 20 Cs from
1e-4 to 1e4 to a gap of 1e-7, and all rows for the best of them; liblinear's seconds are of the fold
alone, and of the loosest tolerance that reaches the gap.

The relative gap is the duality gap over the objective at zero, computed here; models have no
intercept.
"""

from side_by_side import race, report  # isort: skip  (limits BLAS threads)

import argparse
import time
import warnings

import l1_cases
import numpy as np
import scipy.sparse as sp
from scipy.special import expit, xlogy
from sklearn.linear_model import LogisticRegression

from schmp_estimators import SparseLogisticRegression, SparseLogisticRegressionCV

try:
    import celer
except ImportError:
    celer = None
try:
    import skglm
except ImportError:
    skglm = None


def halves(X, response):
    return X, np.where(response > np.median(response), 1.0, -1.0)


CASES = {
    "docstrings": l1_cases.docstrings,
    "news20": l1_cases.news20,
    "strads": lambda: halves(*l1_cases.strads()),
    "toeplitz": lambda: halves(*l1_cases.toeplitz(correlation=0.5)),
    "tall": lambda: halves(*l1_cases.tall(1_000_000, 50)),
    "tall-columns": lambda: halves(*l1_cases.tall(1_000_000, 50, order="F")),
    "words": l1_cases.words,
}


def relative_gap(X, y, coef, C):
    """Return the duality gap over the objective at zero, without intercept."""
    decision = X @ coef
    wrong = expit(-y * decision)
    point = wrong * min(1.0, 1.0 / (C * np.abs(X.T @ (y * wrong)).max()))
    primal = np.abs(coef).sum() / C + np.logaddexp(0, -y * decision).sum()
    return (primal + (xlogy(point, point) + xlogy(1 - point, 1 - point)).sum()) / (
        len(y) * np.log(2)
    )


def toy(X):
    rng = np.random.default_rng(0)
    part = np.asfortranarray(rng.normal(size=(60, 40)))
    return (sp.csc_matrix(part) if sp.issparse(X) else part), np.where(part[:, 0] > 0.1, 1.0, -1.0)


def solvers(X, y, C):
    """Return (name, solve, tolerances) of everybody installed, ours first."""
    by_columns = sp.csc_matrix(X) if sp.issparse(X) else X
    by_rows = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)

    def fitted(make, data):
        def solve(tolerance, warm):
            features, target = toy(X) if warm else (data, y)
            return make(1.0 if warm else C, tolerance).fit(features, target).coef_.ravel()

        return solve

    falling = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    ours = lambda C, tol: SparseLogisticRegression(C, fit_intercept=False, tol=tol)  # noqa: E731
    found = [("ours", fitted(ours, by_columns), (1e-6,))]
    if celer is not None:
        make = lambda C, tol: celer.LogisticRegression(  # noqa: E731
            C=C, fit_intercept=False, tol=tol
        )
        found.append(("celer", fitted(make, by_columns), (1e-4, 1e-5, 1e-6, 1e-7)))
    if skglm is not None:
        make = lambda C, tol: skglm.SparseLogisticRegression(  # noqa: E731
            1 / (C * len(y)), fit_intercept=False, tol=tol
        )
        found.append(("skglm", fitted(make, by_columns), falling))
    make = lambda C, tol: LogisticRegression(  # noqa: E731
        C=C,
        l1_ratio=1,
        solver="liblinear",
        fit_intercept=False,
        tol=tol,
        max_iter=10_000,
        random_state=0,
    )
    found.append(("liblinear", fitted(make, by_rows), (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)))
    return found


def fold(case, n_cs, limit):
    """Print the seconds of a fold of cross-validation.

    liblinear goes on C after C until it takes longer than `limit`.
    """
    X, y = CASES[case]()
    X, n = sp.csr_matrix(X), len(y) * 4 // 5
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:n], order[n:]
    Cs = np.logspace(-4, 4, 20)[:n_cs]
    SparseLogisticRegressionCV(Cs=2, cv=2, fit_intercept=False).fit(*toy(X))
    start = time.process_time()
    ours = SparseLogisticRegressionCV(Cs=Cs, cv=[(train, test)], fit_intercept=False, tol=1e-7).fit(
        X, y
    )
    print(
        f"{case}: ours, {n_cs} Cs and the fit of all rows: {time.process_time() - start:.2f} s, C "
        f"{ours.C_:.3g}"
    )
    total = 0.0
    for C in Cs:

        def solve(tolerance, warm, C=C):
            model = LogisticRegression(
                C=C,
                l1_ratio=1,
                solver="liblinear",
                fit_intercept=False,
                tol=tolerance,
                max_iter=10_000,
                random_state=0,
            )
            return model.fit(*(toy(X) if warm else (X[train], y[train]))).coef_.ravel()

        falling = tuple(10.0**-digits for digits in range(5, 13))
        found = race(
            solve,
            lambda coef, C=C: relative_gap(X[train], y[train], coef, C),
            1e-7,
            falling,
            limit,
            1,
        )
        total += found[0]
        print(
            f"    liblinear, C {C:.3g}: {found[0]:.2f} s, gap {found[1]:.1e}, tol {found[2]:g}; in "
            f"all {total:.2f}"
        )
        if not np.isfinite(total):
            break


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="news20,strads,toeplitz")
    parser.add_argument("--parts", default="10,100")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds after which a solver is given up"
    )
    parser.add_argument("--without", default="", help="solvers to leave out")
    parser.add_argument(
        "--fold", type=int, default=0, help="number of Cs of a fold of cross-validation"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for case in options.cases.split(","):
        if options.fold:
            fold(case, options.fold, options.limit)
            continue
        X, y = CASES[case]()
        smallest = 2.0 / np.abs(X.T @ y).max()
        for part in map(float, options.parts.split(",")):

            def gap(coef, X=X, y=y, C=part * smallest):
                return relative_gap(X, y, coef, C)

            found = [
                s for s in solvers(X, y, part * smallest) if s[0] not in options.without.split(",")
            ]
            report(
                f"{case}, 1/{part:g}",
                [(n, race(s, gap, 1e-6, t, options.limit)) for n, s, t in found],
            )


if __name__ == "__main__":
    main()
