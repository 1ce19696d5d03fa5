"""What the L1 benchmarks share: data, the gap of a Lasso, and a race of solvers.

Data are from a seed or of installed packages; others are read from the folder SCHMP_DATA.
"""

import multiprocessing
import os
import queue
import statistics
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy comes

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from scipy.stats import norm  # noqa: E402

DATA = Path(os.environ.get("SCHMP_DATA", "."))
#: Seconds that there are for compilation, beside the limit.
COMPILING = 30


def genotypes(n_rows=463, n_columns=50_000, n_causal=50, block=50, seed=0):
    """Standardised 0/1/2 genotypes in blocks of linkage, with planted effects.

    The heritability is one half.
    """
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.05, 0.5, n_columns)
    counts = np.zeros((n_columns, n_rows), np.int8)
    for _ in range(2):
        noise = rng.normal(size=(n_columns, n_rows))
        for j in range(1, n_columns):
            if j % block:
                noise[j] = 0.9 * noise[j - 1] + np.sqrt(1 - 0.81) * noise[j]
        counts += noise < norm.ppf(frequency)[:, None]
    counts = counts.T
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    matrix = counts - counts.mean(axis=0)
    matrix /= np.maximum(matrix.std(axis=0), 1e-12)
    signal = matrix @ coef
    return np.asfortranarray(matrix), signal + signal.std() * rng.normal(size=n_rows), counts


def toeplitz(n_rows=2000, n_columns=10_000, correlation=0.95, n_causal=100, seed=0):
    """Gaussian columns with correlation ρ^|j−k|, and a sparse linear response.

    The signal-to-noise ratio is 3.
    """
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_columns, n_rows))
    for j in range(1, n_columns):
        matrix[j] = correlation * matrix[j - 1] + np.sqrt(1 - correlation**2) * matrix[j]
    matrix = matrix.T
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    signal = matrix @ coef
    return matrix, signal + signal.std() / 3 * rng.normal(size=n_rows)


def tall(n_rows=500_000, n_columns=50, correlation=0.9, seed=0, order="C"):
    """Many rows of few Gaussian columns with correlation ρ^|j−k|, one in ten with an effect.

    Half of y is noise.
    """
    rng = np.random.default_rng(seed)
    matrix = np.empty((n_rows, n_columns), order=order)
    for j in range(n_columns):
        new = rng.normal(size=n_rows)
        matrix[:, j] = (
            correlation * matrix[:, j - 1] + np.sqrt(1 - correlation**2) * new if j else new
        )
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_columns // 10, replace=False)] = rng.normal(size=n_columns // 10)
    signal = matrix @ coef
    return matrix, signal + signal.std() * rng.normal(size=n_rows)


def strads(n_rows=50_000, n_columns=100_000, per_column=25, n_causal=1000, seed=0):
    """The synthetic recipe of Lee et al., NIPS 2014, section 5.1.

    Neighbours share 90 % of themselves by chance.
    """
    rng = np.random.default_rng(seed)
    columns, rows, values = [], [], []
    previous_rows, previous_values = (
        rng.choice(n_rows, per_column, replace=False),
        rng.random(per_column),
    )
    for j in range(n_columns):
        if j and rng.random() >= 0.9:
            current_rows, current_values = (
                previous_rows,
                0.9 * previous_values + 0.1 * rng.random(per_column),
            )
        else:
            current_rows, current_values = (
                rng.choice(n_rows, per_column, replace=False),
                rng.random(per_column),
            )
        columns.append(np.full(per_column, j))
        rows.append(current_rows)
        values.append(current_values)
        previous_rows, previous_values = current_rows, current_values
    matrix = sp.csc_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(n_rows, n_columns),
    )
    matrix.indices, matrix.indptr = (
        matrix.indices.astype(np.int32),
        matrix.indptr.astype(np.int32),
    )  # for the peers
    coef = np.zeros(n_columns)
    coef[rng.choice(n_columns, n_causal, replace=False)] = rng.normal(size=n_causal)
    signal = matrix @ coef
    return matrix, signal + signal.std() * rng.normal(size=n_rows)


def words(n_rows=2000, n_columns=5000, per_row=65, n_topics=20, seed=0):
    """Word counts of short texts in two classes; labels are −1 and 1.

    The classes differ in the topics that they are about.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(
        np.full(n_columns, 0.05) * 2.0 / (1.0 + np.arange(n_columns) / 500), size=n_topics
    )
    labels = np.where(np.arange(n_rows) % 2, 1.0, -1.0)
    leaning = np.exp(0.8 * rng.normal(size=n_topics))
    counts = []
    for label in labels:
        mixture = rng.dirichlet(leaning**label)
        counts.append(
            rng.multinomial(round(per_row * 1.5), mixture @ topics / (mixture @ topics).sum())
        )
    return sp.csc_matrix(np.array(counts, float)), labels


def mice():
    """Mouse SNPs, standardised, against body-mass index; constant columns left out."""
    matrix = sp.load_npz(DATA / "mice_snp.npz").toarray().astype(float)
    labels = (DATA / "mice_snp.labels.txt").read_text().split()
    target = np.load(DATA / "mice_snp.y.npy")
    column = next((number for number, label in enumerate(labels) if "bmi" in label.lower()), 0)
    known = np.isfinite(target[:, column])
    matrix, target = matrix[known], target[known, column]
    matrix -= matrix.mean(axis=0)
    deviation = matrix.std(axis=0)
    return np.asfortranarray(
        matrix[:, deviation > 0] / deviation[deviation > 0]
    ), target - target.mean()


def news20():
    """Newsgroup counts, as stored, with labels 0–9 against 10–19."""
    matrix = sp.csc_array(sp.load_npz(DATA / "news20.npz").astype(float))
    return matrix, np.where(np.load(DATA / "news20.y.npy") < 10, -1.0, 1.0)


def docstrings():
    """Word counts of the docstrings of installed packages, of numpy and scipy or not.

    Versions decide the text.
    """
    from common import docstrings as texts

    matrix, package = texts()
    return sp.csc_array(matrix.astype(float)), np.where(
        np.isin(package, ("numpy", "scipy")), -1.0, 1.0
    )


def relative_gap(X, y, coef, alpha):
    """Return the duality gap over the objective at zero, without intercept."""
    residual, penalty = y - X @ coef, len(y) * alpha
    scale = min(1.0, penalty / np.abs(X.T @ residual).max())
    primal = residual @ residual / 2 + penalty * np.abs(coef).sum()
    return (primal - scale * (residual @ y) + scale**2 * (residual @ residual) / 2) / (y @ y / 2)


def _work(solve, tolerance, measure, repeats, limit, results):
    solve(tolerance, True)  # compile on a toy
    spent = []

    def solve_in_time():
        start = time.process_time()
        solution = solve(tolerance, False)
        spent.append(time.process_time() - start)
        return solution

    solution = solve_in_time()  # compiles what the toy does not need
    if spent[0] < limit + COMPILING:
        spent.clear()
        while len(spent) < repeats and sum(spent) < limit:
            solution = solve_in_time()
    results.put((statistics.median(spent), measure(solution)))


def race(solve, measure, wanted, tolerances, limit, repeats=5):
    """Return (CPU seconds, gap, tolerance) of the loosest tolerance that reaches the gap.

    Seconds are inf at the limit.

    `solve(tolerance, toy)` returns a solution, `measure(solution)` its relative gap.  Seconds are
    medians, without the first, for which there is half a minute more.
    """
    context = multiprocessing.get_context("fork")
    gap = float("inf")
    for tolerance in tolerances:
        results = context.Queue()
        process = context.Process(
            target=_work, args=(solve, tolerance, measure, repeats, limit, results)
        )
        process.start()
        try:
            seconds, gap = results.get(timeout=2 * limit + COMPILING)
        except queue.Empty:
            process.kill()
            return float("inf"), gap, tolerance
        finally:
            process.join()
        if gap <= wanted and seconds <= limit:
            return seconds, gap, tolerance
        if seconds > limit:
            break
    return float("inf"), gap, tolerance


def report(case, rows):
    """Print a line per solver, with the ratio to ours, which comes first."""
    ours = rows[0][1][0]
    for name, (seconds, gap, tolerance) in rows:
        ratio = seconds / ours if seconds < float("inf") else float("inf")
        print(
            f"{case:28s} {name:10s} {seconds:9.4f} s  gap {gap:.1e}  tol {tolerance:.0e}  "
            f"x{ratio:.2f}",
            flush=True,
        )
