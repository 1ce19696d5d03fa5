"""Groups of columns and several classes, also of large X: certificates from outside, and peers.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_blocks.py large
    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_blocks.py groups
    OPENBLAS_NUM_THREADS=1 SCHMP_DATA=folder python benchmarks/bench_blocks.py classes

``large`` fits twenty problems of at least 3 · 2^22 entries, in several storages, and prints the gap
that plain NumPy computes from the coefficients, relative to the null objective, beside the one that
was asked for; and what FISTA in float64 reaches in a hundred steps.  ``groups`` is a path of twenty
penalties of the group lasso beside skglm, both with gaps recomputed outside.  ``classes`` is the
multinomial loss of the 20 newsgroups, beside scikit-learn's saga, which runs until its gap is as
small as ours; the growth of memory is printed, too.
"""

import os
import resource
import sys
import time
import warnings

import dask.array as da
import numpy as np
import scipy.sparse as sp
from l1_cases import DATA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import schmp_estimators as se

sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir, "tests"))
from oracles.glm import Glm, of_rows

SHAPES = [(70, 180_000), (2000, 6400), (40_000, 320)]
FORMS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csc": sp.csc_array,
    "int8": lambda X: X.astype(np.int8),
    "chunks": lambda X: da.from_array(X, chunks=(-(-len(X) // 3), X.shape[1])),
}
KINDS = [("squared", "group"), ("logistic", "group"), ("multinomial", "l1")]
KINDS += [("multinomial", "elasticnet"), ("multinomial", "group")]


def problem(number):
    """Return an oracle, the arguments of an estimator, and X in one of its forms."""
    rng = np.random.default_rng(number)
    n, p = SHAPES[number % 3]
    (loss, penalty), form = KINDS[number % 5], list(FORMS)[(number // 3 + number) % 5]
    n_outputs = 4 if loss == "multinomial" else 1
    X = rng.normal(size=(n, p))
    X[:, 1:] += 0.5 * X[:, :-1]
    X = np.round(X) if form == "int8" else X * (rng.random(X.shape) < 0.1) if form == "csc" else X
    decision = X[:, ::7][:, :20] @ rng.normal(size=(20, n_outputs))
    decision += 0.5 * decision.std() * rng.normal(size=decision.shape)
    if loss == "squared":
        y = decision[:, 0]
    elif loss == "logistic":
        y = np.where(decision[:, 0] > 0.0, 1.0, -1.0)
    else:
        y = decision.argmax(axis=1).astype(float)
    weights = rng.uniform(0.5, 1.5, n) if number % 2 else np.ones(n)
    options, ratio = {"loss": loss, "penalty": penalty}, 1.0
    if penalty == "group":
        labels = np.arange(p) // 10
        own = np.where(np.arange(p // 10) == number % 2, 0.0, np.sqrt(10.0))
        shift = p * np.arange(n_outputs)[:, None]
        groups = [np.ravel(shift + np.arange(10 * g, 10 * g + 10)) for g in range(len(own))]
        options |= {"groups": labels, "penalty_factors": own}
        positive = False
    else:
        groups, positive = [np.array([one]) for one in range(n_outputs * p)], bool(number % 2)
        own = np.ones(n_outputs * p)
        options["positive"] = positive
        if penalty == "elasticnet":
            ratio = options["l1_ratio"] = 0.5
            own = 0.5 * own
    oracle = Glm(loss, X, y, weights, groups, own, n_outputs, (1.0 - ratio) / ratio, True, positive)
    return oracle, options, FORMS[form](X), form


def fista(oracle, strength, steps):
    """Return the objective after some steps of FISTA with backtracking."""
    n_outputs, p = oracle.n_outputs, oracle.X.shape[1]
    coef, level = np.zeros((n_outputs, p)), np.zeros(n_outputs)
    point, at, momentum, bound = coef, level, 1.0, 1.0
    order = np.concatenate(oracle.groups)
    starts = np.cumsum([0, *map(len, oracle.groups)])[:-1]
    limits = oracle.factors

    def prox(values, step):
        flat = np.maximum(values, 0.0).ravel() if oracle.positive else values.ravel()
        flat = flat[order]
        sizes = np.sqrt(np.add.reduceat(flat * flat, starts))
        kept = np.maximum(0.0, 1.0 - strength * limits * step / np.maximum(sizes, 1e-300))
        kept /= 1.0 + strength * limits * oracle.ridge * step
        found = np.empty_like(flat)
        found[order] = flat * np.repeat(kept, np.diff(np.append(starts, len(flat))))
        return found.reshape(values.shape)

    def loss(w, b):
        losses, slope = of_rows(oracle.loss, w @ oracle.X.T + b[:, None], oracle.y)
        return float(oracle.weights @ losses), oracle.weights * slope

    for _ in range(steps):
        value, slope = loss(point, at)
        gradient, of_level = slope @ oracle.X, slope.sum(axis=1)
        while True:
            new, moved = prox(point + gradient / bound, 1.0 / bound), at + of_level / bound
            change, shift = new - point, moved - at
            model = value - (gradient * change).sum() - of_level @ shift
            model += 0.5 * bound * ((change**2).sum() + shift @ shift)
            if loss(new, moved)[0] <= model + 1e-12 * abs(value):
                break
            bound *= 2.0
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = (momentum - 1.0) / after
        point, at = new + ahead * (new - coef), moved + ahead * (moved - level)
        coef, level, momentum = new, moved, after
    return oracle.objective(coef, level, strength)


def large():
    """Print a line for each problem."""
    for number in range(20):
        oracle, options, X, form = problem(number)
        total, tol = oracle.weights.sum(), 1e-6
        null = se.SparseGLM(alpha=1e12, tol=1e-9, **options).fit(X, oracle.y, oracle.weights)
        largest = oracle.excess(null.coef_, null.intercept_)
        least = oracle.objective(null.coef_, null.intercept_, 0.0)
        began = time.perf_counter()
        model = se.SparseGLM(alpha=0.1 * largest / total, tol=tol, **options)
        model.fit(X, oracle.y, oracle.weights)
        seconds = time.perf_counter() - began
        gap, _ = oracle.gap(model.coef_, model.intercept_, 0.1 * largest)
        goal = tol * (2.0 if oracle.loss == "squared" else 1.0)
        ours = oracle.objective(model.coef_, model.intercept_, 0.1 * largest)
        theirs = fista(oracle, 0.1 * largest, 100)
        print(
            f"{oracle.loss:11s} {options['penalty']:10s} {form:6s} {oracle.X.shape[0]:6d} x "
            f"{oracle.X.shape[1]:6d} {seconds:6.2f} s, {np.count_nonzero(model.coef_):6d} nonzero, "
            f"gap {gap / least:8.2e} of {goal:.0e}, FISTA - ours {(theirs - ours) / least:9.2e}",
            flush=True,
        )


def groups():
    """Print the seconds of paths, with the largest gap on them."""
    from skglm.datafits import QuadraticGroup
    from skglm.penalties import WeightedGroupL2
    from skglm.solvers import GroupBCD
    from skglm.utils.data import grp_converter

    rng, (n, p, width) = np.random.default_rng(0), (100, 100_000, 20)
    X, coef = np.asfortranarray(rng.normal(size=(n, p))), np.zeros((p // width, width))
    coef[rng.choice(len(coef), 10, replace=False)] = rng.normal(size=(10, width))
    y = X @ coef.ravel()
    y += 0.5 * y.std() * rng.normal(size=n)
    X, y = X - X.mean(axis=0), (y - y.mean()) / y.std()

    def sizes(values):
        return np.linalg.norm(values.reshape(-1, width), axis=1)

    largest, null = sizes(X.T @ y / n).max() / np.sqrt(width), 0.5 * np.mean(y**2)
    alphas = largest * np.geomspace(1.0, 0.1, 20)

    def gap(coef, alpha):
        left = y - X @ coef
        scale = 1.0 / max(1.0, sizes(X.T @ left / n).max() / np.sqrt(width) / alpha)
        cost = alpha * np.sqrt(width) * sizes(coef).sum()
        dual = 0.5 * np.mean(y**2) - 0.5 * np.mean((y - scale * left) ** 2)
        return (0.5 * np.mean(left**2) + cost - dual) / null

    def ours():
        options = {"penalty": "group", "groups": np.arange(p) // width, "fit_intercept": False}
        return se.sparse_glm_path(X, y, alphas=alphas, tol=5e-5, **options)[1].T

    members, starts = grp_converter(width, p)
    datafit, roots = QuadraticGroup(starts, members), np.full(p // width, np.sqrt(width))

    def theirs(tol):
        found = [np.zeros(p)]
        for alpha in alphas:
            solver = GroupBCD(tol=tol, fit_intercept=False, max_iter=50, max_epochs=50_000)
            penalty = WeightedGroupL2(alpha, roots, starts, members)
            start = found[-1].copy()
            found.append(solver.solve(X, y, datafit, penalty, start, X @ start)[0])
        return found[1:]

    ours(), theirs(1e-2)
    for turn in range(3):
        for name, path in (("ours", ours), ("skglm, tol=1e-4", lambda: theirs(1e-4))):
            began = time.perf_counter()
            found = path()
            seconds = time.perf_counter() - began
            worst = max(map(gap, found, alphas))
            print(f"turn {turn}: {name:15s} {seconds:6.2f} s, largest gap {worst:.1e}", flush=True)


def classes():
    """Print seconds, gaps and the growth of memory."""
    X = sp.csc_array(sp.load_npz(DATA / "news20.npz").astype(float))
    y = np.load(DATA / "news20.y.npy")
    X = sp.csc_array(
        sp.diags_array(1.0 / np.maximum(1.0, np.sqrt(np.asarray((X * X).sum(axis=1)))).ravel()) @ X
    )
    hot = np.eye(20)[y]
    largest = np.abs((hot - hot.mean(axis=0)).T @ X).max() / len(y)
    null, by_rows = np.log(20.0), sp.csr_array(X)

    def gap(coef, intercept, alpha):
        decision = np.asarray(X @ coef.T) + intercept
        decision -= decision.max(axis=1, keepdims=True)
        shares = np.exp(decision)
        sums = shares.sum(axis=1, keepdims=True)
        shares, loss = shares / sums, np.mean(np.log(sums[:, 0]) - (hot * decision).sum(axis=1))
        slope = hot - shares
        slope -= slope.mean(axis=0)
        scale = 1.0 / max(1.0, np.abs(slope.T @ X).max() / len(y) / alpha)
        part = np.clip(hot - scale * slope, 1e-300, None)
        return (
            loss + alpha * np.abs(coef).sum() + np.mean((part * np.log(part)).sum(axis=1))
        ) / null

    def memory():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0

    def fit(alpha, X=X, y=y):
        return se.SparseGLM("multinomial", alpha=alpha, tol=1e-4).fit(X, y)

    fit(0.5 * largest, X[:2000], y[:2000])
    before = memory()
    for part in (0.1, 0.03):
        began = time.perf_counter()
        model = fit(part * largest)
        seconds = time.perf_counter() - began
        reached = gap(model.coef_, model.intercept_, part * largest)
        print(f"max x {part}: ours {seconds:6.2f} s, gap {reached:.1e}", flush=True)
        for steps in (50, 200, 800):
            saga = LogisticRegression(
                C=1.0 / (part * largest * len(y)),
                l1_ratio=1.0,
                solver="saga",
                tol=0.0,
                max_iter=steps,
            )
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                saga.fit(by_rows, y)
            seconds, found = (
                time.perf_counter() - began,
                gap(saga.coef_, saga.intercept_, part * largest),
            )
            print(
                f"max x {part}: saga {seconds:6.2f} s, gap {found:.1e}, {steps} steps", flush=True
            )
            if found <= reached:
                break
        if part == 0.1:
            size = sum(one.nbytes for one in (X.data, X.indices, X.indptr))
            limit = 2 * size + model.coef_.nbytes + 4 * hot.nbytes
            print(f"memory grew by {(memory() - before) / 1e6:.0f} MB of {limit / 1e6:.0f}")
    began, start = time.perf_counter(), None
    for alpha in largest * np.geomspace(1.0, 0.1, 10):
        model = se.SparseGLM("multinomial", alpha=alpha, tol=1e-4, warm_start=True)
        if start is not None:
            model.coef_, model.intercept_ = start
        model.fit(X, y)
        start = model.coef_, model.intercept_
    print(
        f"ten penalties to max / 10, each from the one before: {time.perf_counter() - began:.2f} s"
    )


if __name__ == "__main__":
    {"large": large, "groups": groups, "classes": classes}[sys.argv[1]]()
