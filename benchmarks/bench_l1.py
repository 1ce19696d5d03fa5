"""Lasso and sparse logistic regression beside peers: CPU seconds of one thread.

    export OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_l1.py lasso --cases genotypes,toeplitz --parts 10,100
    python benchmarks/bench_l1.py path --cases genotypes
    python benchmarks/bench_l1.py cv --cases tall,wide-tall,genotypes
    python benchmarks/bench_l1.py logistic --cases news20,toeplitz --parts 10,100
    python benchmarks/bench_l1.py fold --cases news20 --count 14
    python benchmarks/bench_l1.py small-lasso
    python benchmarks/bench_l1.py small-logistic

The peers are celer, skglm, scikit-learn and liblinear.  Each runs to a relative gap, which is the
duality gap over the objective at zero, computed here, without intercept.  `path` and `cv` have 100
penalties down to 1/100 of the largest, `cv` five folds and the fit to all rows: its gap is the
largest relative distance of an error of a fold from that of a solution with a gap of 1e-10.

`fold` is a fold of cross-validation: four fifths of the rows, fitted for each of the first of 20 Cs
from 1e-4 to 1e4 to a gap of 1e-7, and all rows for the best of them; liblinear's seconds are of the
fold alone, and of the loosest tolerance that reaches the gap.

The small problems are milliseconds of fits, paths and cross-validation: medians of a few calls
through the public functions, with all their checks; the first call of each, which compiles, is not
counted.  Each has its own default tolerance.  scikit-learn has no path of logistic regression, so
one fit after the other stands for it, each from zero, as liblinear makes no warm starts.
"""

import l1_cases  # isort: skip  (limits BLAS threads)

import argparse
import time
import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
from common import milliseconds, parse, record
from l1_cases import race, relative_gap, report
from scipy.special import expit, xlogy
from sklearn.linear_model import (
    Lasso,
    LassoCV,
    LogisticRegression,
    LogisticRegressionCV,
    lasso_path,
)
from sklearn.model_selection import KFold

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    prioritized_lasso_path,
    sparse_logistic_path,
)

try:
    import celer
except ImportError:
    celer = None
try:
    import skglm
except ImportError:
    skglm = None

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


LASSO_CASES = {
    "genotypes": lambda: l1_cases.genotypes()[:2],
    "mice": l1_cases.mice,
    "toeplitz": l1_cases.toeplitz,
    "strads": l1_cases.strads,
    "tall": l1_cases.tall,
    "tall-columns": lambda: l1_cases.tall(order="F"),
    "wide-tall": lambda: l1_cases.tall(40_000, 500),
    "square-tall": lambda: l1_cases.tall(40_000, 2000, 0.0),
    "square-tall-columns": lambda: l1_cases.tall(40_000, 2000, 0.0, order="F"),
    "square-tall-correlated": lambda: l1_cases.tall(40_000, 2000),
    "square-tall-correlated-columns": lambda: l1_cases.tall(40_000, 2000, order="F"),
    "docstrings": l1_cases.docstrings,
    "news20": l1_cases.news20,
}


def toy(X):
    rng = np.random.default_rng(0)
    part = np.asfortranarray(rng.normal(size=(40, 60)))
    return (sp.csc_matrix(part) if sp.issparse(X) else part), part[:, 0] + 0.1 * rng.normal(size=40)


def lasso_solvers(X, y, alpha):
    """Return (name, solve, tolerances) of everybody installed, ours first."""
    peers_X = sp.csc_matrix(X) if sp.issparse(X) else X

    def fitted(make):
        def solve(tolerance, warm):
            data, target = toy(X) if warm else (peers_X, y)
            strength = np.abs(data.T @ target).max() / len(target) / 20 if warm else alpha
            return make(strength, tolerance).fit(data, target).coef_

        return solve

    falling = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
    found = [
        ("ours", fitted(lambda a, tol: PrioritizedLasso(a, fit_intercept=False, tol=tol)), (5e-7,))
    ]
    if celer is not None:
        make = lambda a, tol: celer.Lasso(  # noqa: E731
            a, fit_intercept=False, tol=tol, max_iter=100
        )
        found.append(("celer", fitted(make), (1e-6, 5e-7, 1e-7)))
    if skglm is not None:
        make = lambda a, tol: skglm.Lasso(  # noqa: E731
            a, fit_intercept=False, tol=tol, max_iter=100
        )
        found.append(("skglm", fitted(make), falling))
    make = lambda a, tol: Lasso(a, fit_intercept=False, tol=tol, max_iter=100_000)  # noqa: E731
    found.append(("sklearn", fitted(make), (5e-7, 1e-7)))
    return found


def path_solvers(X, y, alphas):
    """Return (name, solve, tolerances) for a path; solutions are coefficients (p, n_alphas)."""

    def ours(tolerance, warm):
        data, target = toy(X) if warm else (X, y)
        return prioritized_lasso_path(
            data, target, alphas=alphas, fit_intercept=False, tol=tolerance
        )[1]

    found = [("ours", ours, (5e-5,))]
    if celer is not None:

        def peer(tolerance, warm):
            data, target = toy(X) if warm else (sp.csc_matrix(X) if sp.issparse(X) else X, y)
            return celer.celer_path(
                data, target, pb="lasso", alphas=alphas, tol=tolerance, max_iter=100
            )[1]

        found.append(("celer", peer, (5e-5, 2e-5, 1e-5, 1e-6)))
    return found


def cv_solvers(X, y, alphas):
    """Return (name, solve, tolerances) for five folds; solutions are errors (n_alphas, n_folds)."""

    def errors(make):
        def solve(tolerance, warm):
            data, target = toy(X) if warm else (X, y)
            return (
                make(alphas=alphas, cv=5, fit_intercept=False, tol=tolerance)
                .fit(data, target)
                .mse_path_
            )

        return solve

    def paths(tolerance, warm):
        """Return the errors of celer's paths; its LassoCV is not made for scikit-learn of today."""
        data, target = toy(X) if warm else (X, y)
        found = []
        for train, test in KFold(5).split(data):
            part = np.asfortranarray(data[train])
            coefs = celer.celer_path(
                part, target[train], pb="lasso", alphas=alphas, tol=tolerance, max_iter=100
            )[1]
            found.append(((data[test] @ coefs - target[test][:, None]) ** 2).mean(axis=0))
        return np.array(found).T

    found = [("ours", errors(PrioritizedLassoCV), (1e-4, 1e-5, 1e-6))]
    if celer is not None:
        found.append(("celer", paths, (1e-4, 1e-5, 1e-6)))
    found.append(("sklearn", errors(LassoCV), (1e-4, 1e-5, 1e-6)))
    return found


def halves(X, response):
    return X, np.where(response > np.median(response), 1.0, -1.0)


LOGISTIC_CASES = {
    "docstrings": l1_cases.docstrings,
    "news20": l1_cases.news20,
    "strads": lambda: halves(*l1_cases.strads()),
    "toeplitz": lambda: halves(*l1_cases.toeplitz(correlation=0.5)),
    "tall": lambda: halves(*l1_cases.tall(1_000_000, 50)),
    "tall-columns": lambda: halves(*l1_cases.tall(1_000_000, 50, order="F")),
    "words": l1_cases.words,
}


def logistic_gap(X, y, coef, C):
    """Return the duality gap over the objective at zero, without intercept."""
    decision = X @ coef
    wrong = expit(-y * decision)
    point = wrong * min(1.0, 1.0 / (C * np.abs(X.T @ (y * wrong)).max()))
    primal = np.abs(coef).sum() / C + np.logaddexp(0, -y * decision).sum()
    return (primal + (xlogy(point, point) + xlogy(1 - point, 1 - point)).sum()) / (
        len(y) * np.log(2)
    )


def toy_classes(X):
    rng = np.random.default_rng(0)
    part = np.asfortranarray(rng.normal(size=(60, 40)))
    return (sp.csc_matrix(part) if sp.issparse(X) else part), np.where(part[:, 0] > 0.1, 1.0, -1.0)


def liblinear(C, tolerance):
    """Return scikit-learn's logistic regression with an L1 penalty, without an intercept."""
    options = {"l1_ratio": 1, "fit_intercept": False, "max_iter": 10_000, "random_state": 0}
    return LogisticRegression(C=C, solver="liblinear", tol=tolerance, **options)


def logistic_solvers(X, y, C):
    """Return (name, solve, tolerances) of everybody installed, ours first."""
    by_columns = sp.csc_matrix(X) if sp.issparse(X) else X
    by_rows = sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)

    def fitted(make, data):
        def solve(tolerance, warm):
            features, target = toy_classes(X) if warm else (data, y)
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
    found.append(("liblinear", fitted(liblinear, by_rows), (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)))
    return found


def lasso(options):
    """Fits of the Lasso."""
    for case in options.cases.split(","):
        X, y = LASSO_CASES[case]()
        largest = np.abs(X.T @ y).max() / len(y)
        for part in map(float, options.parts.split(",")):
            alpha = largest / part

            def gap(coef, X=X, y=y, alpha=alpha):
                return relative_gap(X, y, coef, alpha)

            found = contest(f"{case}, 1/{part:g}", lasso_solvers(X, y, alpha), gap, 1e-6, options)
            record_race("l1-lasso", shown(case, X, part), found, ("celer", "skglm", "sklearn"))


def path(options):
    """Paths of the Lasso."""
    for case in options.cases.split(","):
        X, y = LASSO_CASES[case]()
        alphas = grid(X, y)

        def worst(coefs, X=X, y=y, alphas=alphas):
            return max(relative_gap(X, y, coefs[:, k], alpha) for k, alpha in enumerate(alphas))

        found = contest(f"{case}, path", path_solvers(X, y, alphas), worst, 1e-4, options, 1)
        record_race("l1-path", case, found, ("celer",))


def cv(options):
    """Cross-validations of the Lasso."""
    for case in options.cases.split(","):
        X, y = LASSO_CASES[case]()
        alphas = grid(X, y)
        model = PrioritizedLassoCV(alphas=alphas, cv=5, fit_intercept=False, tol=1e-10)
        exact = model.fit(X, y).mse_path_

        def off(errors, exact=exact):
            return np.abs(errors / exact - 1.0).max()

        contest(f"{case}, CV", cv_solvers(X, y, alphas), off, 1e-3, options, 1)


def logistic(options):
    """Fits of sparse logistic regression."""
    for case in options.cases.split(","):
        X, y = LOGISTIC_CASES[case]()
        smallest = 2.0 / np.abs(X.T @ y).max()
        for part in map(float, options.parts.split(",")):
            C = part * smallest

            def gap(coef, X=X, y=y, C=C):
                return logistic_gap(X, y, coef, C)

            solvers = logistic_solvers(X, y, C)
            found = contest(f"{case}, 1/{part:g}", solvers, gap, 1e-6, options)
            record_race("l1-logistic", shown(case, X, part), found, ("celer", "skglm", "liblinear"))


def grid(X, y):
    """Return 100 penalties down to 1/100 of the largest."""
    largest = np.abs(X.T @ y).max() / len(y)
    return np.geomspace(largest, largest / 100, 100)


def contest(title, solvers, measure, wanted, options, repeats=5):
    """Let solvers race, but for those that are left out, and print what they take."""
    left_out = options.without.split(",")
    found = [
        (name, race(solve, measure, wanted, tolerances, options.limit, repeats))
        for name, solve, tolerances in solvers
        if name not in left_out
    ]
    report(title, found)
    return dict(found)


def shown(case, X, part):
    """Return what the pages call a problem."""
    n, p = X.shape
    name = {"toeplitz": "Toeplitz", "strads": "STRADS"}.get(case, case)
    return f"{name}, {n:,} × {p:,}, {part:g}"


def record_race(table, case, found, peers):
    """Record the seconds of ours and of peers, and the ratio of the best of these to ours."""
    seconds = [found.get(name, (np.inf,))[0] for name in ("ours", *peers)]
    ratio = min(seconds[1:]) / seconds[0]
    figures = [one if np.isfinite(one) else "—" for one in (*seconds, ratio)]
    installed = [name for name in peers if name in found and name != "liblinear"]
    record(table, [[case, *figures]], peers=installed)


def fold(options):
    """A fold of cross-validation.

    liblinear goes on C after C until it takes longer than the limit.
    """
    for case in options.cases.split(","):
        one_fold(case, options)


def one_fold(case, options):
    """Print the seconds of a fold of one case."""
    X, y = LOGISTIC_CASES[case]()
    X, n = sp.csr_matrix(X), len(y) * 4 // 5
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:n], order[n:]
    Cs = np.logspace(-4, 4, 20)[: options.count]
    SparseLogisticRegressionCV(Cs=2, cv=2, fit_intercept=False).fit(*toy_classes(X))
    start = time.process_time()
    ours = SparseLogisticRegressionCV(Cs=Cs, cv=[(train, test)], fit_intercept=False, tol=1e-7).fit(
        X, y
    )
    spent = time.process_time() - start
    print(f"{case}: ours, {len(Cs)} Cs and the fit of all rows: {spent:.2f} s, C {ours.C_:.3g}")
    total = 0.0
    for C in Cs:

        def solve(tolerance, warm, C=C):
            data = toy_classes(X) if warm else (X[train], y[train])
            return liblinear(C, tolerance).fit(*data).coef_.ravel()

        falling = tuple(10.0**-digits for digits in range(5, 13))
        found = race(
            solve,
            lambda coef, C=C: logistic_gap(X[train], y[train], coef, C),
            1e-7,
            falling,
            options.limit,
            1,
        )
        total += found[0]
        print(
            f"    liblinear, C {C:.3g}: {found[0]:.2f} s, gap {found[1]:.1e}, tol {found[2]:g}; in "
            f"all {total:.2f}"
        )
        if not np.isfinite(total):
            break


def small_lasso(options):
    """Milliseconds of small problems of the Lasso."""
    header()
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
            if celer is not None:
                figures.append(milliseconds(1, celer.celer_path, X, y, pb="lasso", tol=TOL))
            line("path " + kind, *figures)
            if n > p and not correlated:
                line(
                    "5 folds " + kind,
                    milliseconds(3, PrioritizedLassoCV(cv=5, tol=TOL).fit, X, y),
                    milliseconds(1, LassoCV(cv=5, tol=TOL).fit, X, y),
                )


def small_logistic(options):
    """Milliseconds of small problems of logistic regression."""
    header()
    write = partial(line, table="l1-small-logistic")
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
        write("fit " + kind, milliseconds(9, ours, X, labels), milliseconds(9, other, X, labels))
        path = milliseconds(3, sparse_logistic_path, X, labels, Cs=Cs)
        write("path of 30 " + kind, path, milliseconds(1, one_after_the_other, X, labels))
        if n > p:
            folds = milliseconds(1, SparseLogisticRegressionCV(Cs=Cs, cv=5).fit, X, labels)
            other = LogisticRegressionCV(
                Cs=Cs, cv=5, l1_ratios=(1.0,), solver="liblinear", use_legacy_attributes=False
            )
            write("5 folds of 30 " + kind, folds, milliseconds(1, other.fit, X, labels))


def header():
    """Print the header of the table of small problems."""
    print(f"{'problem, ms':28s}{'ours':>12s}{'sklearn':>12s}{'celer':>12s}")


def line(name, *figures, table="l1-small"):
    """Print a line of the table, and record ours and scikit-learn's."""
    print(f"{name:28s}" + "".join(f"{figure:12.2f}" for figure in figures), flush=True)
    row = [name.replace(" x ", " × "), *figures[:2], figures[1] / figures[0]]
    record(table, [row], is_chosen=True)


FIGURES = {
    one.__name__.replace("_", "-"): one
    for one in (lasso, path, cv, logistic, fold, small_lasso, small_logistic)
}
CASES = {"logistic": "news20,strads,toeplitz", "fold": "news20"}


def main():
    """Print the figures that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--cases", help="by default some that suit the figure")
    parser.add_argument("--parts", default="10,100")
    parser.add_argument("--count", type=int, default=14, help="number of Cs of a fold")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds after which a solver is given up"
    )
    parser.add_argument("--without", default="", help="solvers to leave out")
    options = parse(parser)
    warnings.filterwarnings("ignore")
    if options.cases is None:
        options.cases = CASES.get(options.figure, "genotypes,mice,toeplitz,strads")
    FIGURES[options.figure](options)


if __name__ == "__main__":
    main()
