"""Genotypes of a byte each: seconds of one thread, and memory beyond X.

They are those of the fits of examples/plot_genotypes.py.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_genotypes.py --people 1000 --variants 500000

Each row is a process of its own, which compiles on a toy, reads X, and fits.  Memory is the peak of
the process (resident set) above what it held before the fit.
"""

import side_by_side  # noqa: F401  isort: skip  (limits BLAS threads)

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
from common import table

from schmp_estimators import PrioritizedLasso

EXAMPLE = Path(__file__).parents[1] / "examples" / "plot_genotypes.py"
#: Bytes of the unit of `ru_maxrss`.
_UNIT = 1 if sys.platform == "darwin" else 1024


def example():
    """Return what the example defines, without running what follows."""
    names = {}
    exec(compile(EXAMPLE.read_text().partition("\n# %%\n")[0], EXAMPLE, "exec"), names)
    return names


def make(folder, people, variants):
    """Write a study to files: X, and an archive of all else."""
    names = example()
    X, components, trait, causes = names["study"](people, variants)
    whole = names["WHOLE"]
    deviations = names["by_blocks"](names["deviations_of"], X)
    covariates = np.column_stack([np.ones(people), X[:, :whole], components])
    alpha = names["threshold"](X[:, whole:], covariates, trait)
    never = np.where(np.arange(X.shape[1]) < whole, 0.0, deviations)
    np.save(folder / "X.npy", X)
    np.savez(
        folder / "rest.npz",
        components=components,
        trait=trait,
        causes=causes,
        factors=never,
        alpha=alpha,
    )


def fit(names, X, rest, part, beside, n_shards):
    """Return (fits, certified gap, variants)."""
    alpha, factors, trait = rest["alpha"] / part, rest["factors"], rest["trait"]
    if beside:
        lasso, _, n_fits = names["fit_beside"](
            X, trait, rest["components"], alpha, factors, tol=1e-8
        )
    else:
        lasso = PrioritizedLasso(alpha, penalty_factors=factors, tol=1e-8, n_shards=n_shards).fit(
            X, trait
        )
        n_fits = 1
    return n_fits, lasso.dual_gap_ / trait.var(), np.count_nonzero(lasso.coef_[names["WHOLE"] :])


def measure(folder, part, beside, n_shards, results):
    """Put the columns of a row of the table."""
    warnings.simplefilter("ignore")
    names = example()
    data = [
        (np.load(where / "X.npy"), dict(np.load(where / "rest.npz")))
        for where in (folder / "toy", folder)
    ]
    fit(names, *data[0], part, beside, n_shards)
    held = psutil.Process().memory_info().rss
    cpu, wall = time.process_time(), time.perf_counter()
    found = fit(names, *data[1], part, beside, n_shards)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
    results.put((*found, cpu, wall, (peak - held) / 1e6))


def alone(function, *arguments):
    """Call a function in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__}{arguments[1:]} ended with {process.exitcode}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--variants", type=int, default=500_000)
    parser.add_argument(
        "--parts", default="1,2", help="what the penalty of the example is divided by"
    )
    parser.add_argument(
        "--shards", default="1", help="numbers of partitions for sex and age alone; 0: the default"
    )
    parser.add_argument(
        "--data", help="folder in which the data are kept; by default they are made for this run"
    )
    options = parser.parse_args()
    results, rows = multiprocessing.get_context("spawn").Queue(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(options.data or name)
        if not (folder / "X.npy").exists():
            (folder / "toy").mkdir(parents=True, exist_ok=True)
            alone(make, folder / "toy", 100, 1000)
            alone(make, folder, options.people, options.variants)
        shards = [int(number) or None for number in options.shards.split(",")]
        for part in map(float, options.parts.split(",")):
            for beside, n_shards in [(False, number) for number in shards] + [(True, 1)]:
                alone(measure, folder, part, beside, n_shards, results)
                covariates = "sex, age, components" if beside else "sex, age"
                rows.append((covariates, f"1/{part:g}", n_shards or "default", *results.get()))
    header = (
        "covariates",
        "penalty",
        "partitions",
        "fits",
        "gap",
        "variants",
        "CPU s",
        "wall s",
        "MB beyond X",
    )
    table(
        f"{options.people} × {options.variants}: "
        f"{options.people * (options.variants + 2) / 1e6:.0f} MB",
        header,
        rows,
    )


if __name__ == "__main__":
    main()
