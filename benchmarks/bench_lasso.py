"""Lasso: CPU seconds of one thread to a certified relative gap.

The peers are celer, skglm and scikit-learn.

    export OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_lasso.py --cases genotypes,toeplitz --parts 10,100
    python benchmarks/bench_lasso.py --path --cases genotypes
    python benchmarks/bench_lasso.py --cv --cases tall,wide-tall,genotypes

The relative gap is the duality gap over the objective at zero, computed here; of a cross-validation
it is the largest relative distance of an error of a fold from that of a solution with a gap of
1e-10.
"""

from side_by_side import race, report  # isort: skip  (limits BLAS threads)

import argparse
import warnings

import l1_cases
import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import Lasso, LassoCV
from sklearn.model_selection import KFold

from schmp_estimators import PrioritizedLasso, PrioritizedLassoCV, prioritized_lasso_path

try:
    import celer
except ImportError:
    celer = None
try:
    import skglm
except ImportError:
    skglm = None


CASES = {
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


def relative_gap(X, y, coef, alpha):
    """Return the duality gap over the objective at zero, without intercept."""
    residual, penalty = y - X @ coef, len(y) * alpha
    scale = min(1.0, penalty / np.abs(X.T @ residual).max())
    primal = residual @ residual / 2 + penalty * np.abs(coef).sum()
    return (primal - scale * (residual @ y) + scale**2 * (residual @ residual) / 2) / (y @ y / 2)


def toy(X):
    rng = np.random.default_rng(0)
    part = np.asfortranarray(rng.normal(size=(40, 60)))
    return (sp.csc_matrix(part) if sp.issparse(X) else part), part[:, 0] + 0.1 * rng.normal(size=40)


def solvers(X, y, alpha):
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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="genotypes,mice,toeplitz,strads")
    parser.add_argument("--parts", default="10,100")
    parser.add_argument(
        "--path", action="store_true", help="100 penalties down to 1/100 of the largest"
    )
    parser.add_argument(
        "--cv", action="store_true", help="the same with five folds, and the fit to all rows"
    )
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds after which a solver is given up"
    )
    parser.add_argument("--without", default="", help="solvers to leave out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for case in options.cases.split(","):
        X, y = CASES[case]()
        largest = np.abs(X.T @ y).max() / len(y)
        left_out = options.without.split(",")
        if options.path:
            alphas = np.geomspace(largest, largest / 100, 100)

            def worst(coefs, X=X, y=y, alphas=alphas):
                return max(relative_gap(X, y, coefs[:, k], alpha) for k, alpha in enumerate(alphas))

            found = [entry for entry in path_solvers(X, y, alphas) if entry[0] not in left_out]
            report(
                f"{case}, path",
                [(n, race(s, worst, 1e-4, t, options.limit, 1)) for n, s, t in found],
            )
            continue
        if options.cv:
            alphas = np.geomspace(largest, largest / 100, 100)
            exact = (
                PrioritizedLassoCV(alphas=alphas, cv=5, fit_intercept=False, tol=1e-10)
                .fit(X, y)
                .mse_path_
            )

            def off(errors, exact=exact):
                return np.abs(errors / exact - 1.0).max()

            found = [entry for entry in cv_solvers(X, y, alphas) if entry[0] not in left_out]
            report(
                f"{case}, CV", [(n, race(s, off, 1e-3, t, options.limit, 1)) for n, s, t in found]
            )
            continue
        for part in map(float, options.parts.split(",")):

            def gap(coef, X=X, y=y, alpha=largest / part):
                return relative_gap(X, y, coef, alpha)

            found = [entry for entry in solvers(X, y, largest / part) if entry[0] not in left_out]
            report(
                f"{case}, 1/{part:g}",
                [(n, race(s, gap, 1e-6, t, options.limit)) for n, s, t in found],
            )


if __name__ == "__main__":
    main()
