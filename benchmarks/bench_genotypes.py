"""Genotypes of a byte, or packed: products, fits, folds, and a path on a .bed file.

    export OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_genotypes.py bytes 1000x500000
    python benchmarks/bench_genotypes.py products 5000x6000
    python benchmarks/bench_genotypes.py path 20000x500000 --folder F
    python benchmarks/bench_genotypes.py path 20000x500000 --max-worse 5
    python benchmarks/bench_genotypes.py fits 463x50000
    python benchmarks/bench_genotypes.py folds 2000x100000

Shapes are people x variants.  `bytes` makes the fits of examples/plot_genotypes.py, on a byte for
each genotype: seconds of one thread, and memory beyond X.  Each row is a process of its own, which
compiles on a toy, reads X, and fits; memory is the peak of the process (resident set) above what it
held before the fit.

All others have packed genotypes.  Products are those of a vector with all columns, in 10⁹ genotypes
per CPU second of one thread, the most in a hundred turns.  The path is of 50 penalties down to a
tenth of the largest; its gaps are computed again from the file.  The columns that each kernel reads
are counted, in units of the whole file.  The last penalty is fitted alone, too, with one and two
threads, in one and two partitions, and on two workers.  With --max-worse every tenth person is held
out, and nothing else is fitted.  Fits are of the genotypes of bench_l1.py, packed and as int8, in
turn: the least CPU seconds of three.  Half the mean square of the difference of their predictions
is at most the sum of their gaps.  Folds are five of logistic regression with 30 penalties down to a
tenth of the largest, three covariates beside the genotypes, and 1 % missing; memory is the peak
beyond that before the fit.  Each haplotype copies its neighbour with odds of 19 to 1; 50 variants
explain .4 of the variance of the trait; .2 % of all genotypes are missing.
"""

import l1_cases  # isort: skip  (limits BLAS threads)

import argparse
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import psutil
from common import parse, record, table
from distributed import Client, LocalCluster
from numba import njit

from schmp_estimators import PrioritizedLasso, SparseGLMCV, prioritized_lasso_path
from schmp_estimators.genotypes import join, pack, read_plink
from schmp_estimators.linear.kernels import packed as kernels

#: Inverse odds that a haplotype is drawn anew, and that a genotype is missing.
ANEW, MISSING = 20, 500
EXAMPLE = Path(__file__).parents[1] / "examples" / "plot_genotypes.py"


#: Bytes of the unit of `ru_maxrss`.
_UNIT = 1 if sys.platform == "darwin" else 1024


@njit
def draw(seed):
    """Advance `seed` (1,) uint64, and return a number of 64 bits (xorshift*)."""
    x = seed[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    seed[0] = x
    return x * np.uint64(0x2545F4914F6CDD1D)


@njit
def write_variants(n_people, frequencies, state, packed, seed):
    """Set rows of packed genotypes, each drawn like the one before; `state` are uniform numbers."""
    shift, count = np.uint64(40), np.uint64(len(state))
    for j in range(len(frequencies)):
        for _ in range(len(state) // ANEW):
            state[(draw(seed) >> np.uint64(32)) % count] = draw(seed) >> shift
        limit = np.uint32(frequencies[j] * 2**24)
        for byte in range(packed.shape[1]):
            codes = 0
            for i in range(4 * byte, min(4 * byte + 4, n_people)):
                copies = int(state[2 * i] < limit) + int(state[2 * i + 1] < limit)
                codes |= (3 - copies - (copies >> 1)) << 2 * (i % 4)
            packed[j, byte] = codes
        for _ in range(n_people // MISSING):
            i = (draw(seed) >> np.uint64(32)) % np.uint64(n_people)
            byte, place = i // np.uint64(4), np.uint8(2) * np.uint8(i % np.uint64(4))
            packed[j, byte] = packed[j, byte] & ~(np.uint8(3) << place) | np.uint8(1) << place


def write_study(prefix, n_people, n_variants, seed=0):
    """Write .bed, .bim and .fam files."""
    rng = np.random.default_rng(seed)
    state = rng.integers(0, 2**24, 2 * n_people, dtype=np.uint32)
    drawn = rng.integers(1, 2**63, 1, dtype=np.uint64)
    with open(prefix.with_suffix(".bed"), "wb") as file:
        file.write(b"\x6c\x1b\x01")
        for start in range(0, n_variants, 1000):
            count = min(1000, n_variants - start)
            packed = np.empty((count, -(-n_people // 4)), np.uint8)
            frequencies = rng.beta(0.6, 2.0, count).clip(0.005, 0.5).astype(np.float32)
            write_variants(n_people, frequencies, state, packed, drawn)
            packed.tofile(file)
    variants = (f"{1 + 22 * j // n_variants} rs{j} 0 {j} A G\n" for j in range(n_variants))
    prefix.with_suffix(".bim").write_text("".join(variants))
    people = (f"f{i} i{i} 0 0 0 -9\n" for i in range(n_people))
    prefix.with_suffix(".fam").write_text("".join(people))


def trait_of(G, seed=0):
    """Return a trait of which 50 variants explain .4."""
    rng = np.random.default_rng(seed)
    causes = rng.choice(G.shape[1], 50, replace=False)
    part = G[:, causes]
    genetic = part.filled(part.known_means(np.ones(len(G)))).to_array() @ rng.normal(size=50)
    return np.sqrt(0.4) * genetic / genetic.std() + rng.normal(0.0, np.sqrt(0.6), len(G))


def products(n_people, n_variants, turns=100):
    """Print the speed of products of a vector with all columns, in turn."""
    from schmp_estimators.linear.programs.stored import as_matrix

    rng, functions = np.random.default_rng(0), {}
    dose = np.asfortranarray(rng.binomial(2, 0.3, (n_people, n_variants)).astype(np.int8))
    vector = rng.normal(size=n_people)
    for share in (0.0, 0.002, 0.01):
        holes = np.where(rng.random(dose.shape, np.float32) < share, np.int8(-1), dose)
        G = pack(holes).filled(np.ones(n_variants))
        functions[f"packed, {100 * share:g} % missing"] = partial(G.gradient, vector, None)
    functions["int8"] = partial(as_matrix(dose).gradient, vector, None)
    floats, short = np.ascontiguousarray(dose.T, np.float32), vector.astype(np.float32)
    functions["float32, NumPy"] = partial(np.matmul, floats, short)
    spent = dict.fromkeys(functions, np.inf)
    for _ in range(turns):
        for name, function in functions.items():
            start = time.process_time()
            function()
            spent[name] = min(spent[name], time.process_time() - start)
    rows = [(name, dose.size / seconds / 1e9) for name, seconds in spent.items()]
    table(f"{n_people} × {n_variants}", ("columns", "10⁹/s"), rows)
    record("l1-products", rows)


@contextmanager
def counting():
    """Count the columns that kernels read, by the name of the kernel."""
    read = Counter()

    def counted(name, kernel):
        def run(codes, chosen, *others):
            read[name] += len(chosen)
            return kernel(codes, chosen, *others)

        return run

    with ExitStack() as stack:
        for name in ("packed_products", "packed_pairs", "packed_combine", "packed_take"):
            kernel = counted(name, getattr(kernels, name))
            stack.enter_context(mock.patch.object(kernels, name, kernel))
        yield read


@contextmanager
def peak_of_memory():
    """Give a list whose last item becomes the most memory without files, in GiB."""
    status, over, found = Path("/proc/self/status"), threading.Event(), [0.0]

    def watch():
        while not over.wait(0.05):
            lines = status.read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            found.append(max(found.pop(), kilobytes / 2**20))

    watching = threading.Thread(target=watch)
    watching.start()
    yield found
    over.set()
    watching.join()


def path(prefix, n_penalties, max_worse):
    """Print what a path takes, and its gaps."""
    G = read_plink(prefix)
    y, small = trait_of(G), G[:400, :2000]
    prioritized_lasso_path(small, y[:400], alphas=n_penalties, eps=0.1)  # compiles
    options = {"alphas": n_penalties, "eps": 0.1}
    if max_worse:
        held_out = np.arange(len(G)) % 10 == 0
        new = G[held_out], y[held_out]
        options |= {"max_worse": max_worse, "validation_data": new}
        G, y = G[~held_out], y[~held_out]
    start, cpu = time.perf_counter(), time.process_time()
    with counting() as read, peak_of_memory() as peak:
        alphas, coefs, levels, _ = prioritized_lasso_path(G, y, **options)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    X, rows = G.filled(G.known_means(np.ones(len(G)))), []
    null = ((y - y.mean()) ** 2).sum() / 2
    for number in {0, len(alphas) // 2, len(alphas) - 1}:
        coef, strength = coefs[:, number], alphas[number] * len(y)
        used = np.flatnonzero(coef)
        left = y - X.combine(used, coef[used]) - levels[number]
        left -= left.mean()
        primal = left @ left / 2 + strength * np.abs(coef).sum()
        scale = min(1.0, strength / np.abs(X.gradient(left, None)).max())
        centred = y - y.mean()
        dual = (centred @ centred - ((centred - scale * left) ** 2).sum()) / 2
        rows.append((alphas[number] / alphas[0], len(used), (primal - dual) / null))
    spent = f"{wall:.1f} s wall, {cpu:.1f} s CPU, {peak[-1]:.2f} GiB beside the file"
    title = f"{G.shape}: {len(alphas)} penalties, {spent}"
    table(title, ("of the largest", "members", "gap of null"), sorted(rows)[::-1])
    passes = [(name, count / G.shape[1]) for name, count in read.items()]
    passes.append(("all", sum(read.values()) / G.shape[1]))
    table("how often the path reads the file", ("kernel", "times"), passes)
    if max_worse:
        worse = new[0].filled(G.known_means(np.ones(len(G))))
        used = np.flatnonzero(coefs.any(axis=1))
        guesses = coefs[used].T @ worse.take_dense(used) + levels[:, None]
        explained = 1.0 - ((guesses - new[1]) ** 2).mean(axis=1) / new[1].var()
        table(
            "explained of the held out",
            ("of the largest", "R2"),
            list(zip(alphas / alphas[0], explained, strict=True)),
        )
        return
    fits = []

    def fit(where, **options):
        start = time.perf_counter()
        model = PrioritizedLasso(alphas[-1], **options).fit(G, y)
        fits.append((where, time.perf_counter() - start, str(joblib.hash(model.coef_))[:8]))

    for n_shards in (1, 2):
        for n_jobs in (1, 2):
            fit(f"partitions {n_shards}, threads {n_jobs}", n_shards=n_shards, n_jobs=n_jobs)
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**workers) as cluster, Client(cluster):
        fit("partitions 2, workers 2", n_shards=2)
    table("a fit of the last penalty", ("where", "wall s", "coefficients"), fits)
    whole = [f"a path of {n_penalties} penalties, one thread", wall, peak[-1]]
    record("l1-genotypes", [whole, *([f"a fit with the last one, {w}", s, ""] for w, s, _ in fits)])


def fits(n_people, n_variants):
    """Compare fits to packed genotypes with those to int8."""
    _, y, counts = l1_cases.genotypes(n_people, n_variants)
    forms = {"packed": pack(counts), "int8": np.asfortranarray(counts)}
    largest = np.abs((counts - counts.mean(axis=0)).T @ (y - y.mean())).max() / len(y)
    rows = []
    for part in (10, 100):
        spent, models = {name: [] for name in forms}, {}
        for _ in range(3):
            for name, X in forms.items():
                start = time.process_time()
                models[name] = PrioritizedLasso(largest / part, tol=1e-6).fit(X, y)
                spent[name].append(time.process_time() - start)
        one, other = models.values()
        apart = one.predict(forms["packed"]) - other.predict(forms["packed"])
        gaps = one.dual_gap_ + other.dual_gap_
        seconds = [min(spent[name]) for name in forms]
        rows.append((f"largest / {part}", *seconds, apart @ apart / 2 / len(y), gaps))
    columns = "penalty", "packed, s", "int8, s", "apart", "gaps"
    table(f"fits, {n_people} × {n_variants}", columns, rows)


def folds(n_people, n_variants):
    """Print what a cross-validation of logistic regression takes."""
    rng, parts = np.random.default_rng(0), []
    causes, genetic = rng.choice(n_variants, 30, replace=False), np.zeros(n_people)
    counts = np.empty((n_people, n_variants), np.int8)
    for part in np.array_split(np.arange(n_variants), max(1, n_variants // 5000)):
        frequencies = rng.uniform(0.05, 0.5, len(part))
        counts[:, part] = rng.binomial(2, frequencies, (n_people, len(part)))
        here = np.intersect1d(part, causes)
        genetic += (counts[:, here] - counts[:, here].mean(axis=0)) @ rng.normal(size=len(here))
        missing = rng.random((n_people, len(part)), np.float32) < 0.01
        counts[:, part] = np.where(missing, -1, counts[:, part])
    covariates = rng.normal(size=(n_people, 3))
    odds = 0.5 * genetic + covariates @ [0.5, -0.5, 0.3]
    y, X = rng.random(n_people) < 1.0 / (1.0 + np.exp(-odds)), join(pack(counts), covariates)
    del counts
    factors = np.append(np.ones(n_variants), np.zeros(3))
    few = join(X.left[:300, :2000], covariates[:300])
    options = {"alphas": 30, "eps": 0.1, "cv": 5}
    SparseGLMCV("logistic", penalty_factors=factors[-2003:], **options).fit(few, y[:300])
    process, over = psutil.Process(), threading.Event()
    before, peak = process.memory_info().rss, [0]

    def watch():
        while not over.wait(0.05):
            peak[0] = max(peak[0], process.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    for max_worse in (None, 3):
        peak[0], start = 0, time.process_time()
        model = SparseGLMCV("logistic", penalty_factors=factors, max_worse=max_worse, **options)
        model.fit(X, y)
        spent, done = time.process_time() - start, (~np.isnan(model.deviance_path_[:, 0])).sum()
        memory = (peak[0] - before) / 2**20
        parts.append((str(max_worse), spent, memory, int(done), int(np.sum(model.coef_ != 0.0))))
    over.set()
    watching.join()
    columns = "max_worse", "CPU s", "MiB", "penalties", "members"
    table(f"five folds, {n_people} × {n_variants}, {X.left.stored / 2**22:.0f} MiB", columns, parts)


def example():
    """Return what the example defines, without running what follows."""
    names = {}
    exec(compile(EXAMPLE.read_text().partition("\n# %%\n")[0], EXAMPLE, "exec"), names)
    return names


def write_bytes(folder, people, variants):
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


def fit_to_bytes(names, X, rest, part, beside, n_shards):
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
    fit_to_bytes(names, *data[0], part, beside, n_shards)
    held = psutil.Process().memory_info().rss
    cpu, wall = time.process_time(), time.perf_counter()
    found = fit_to_bytes(names, *data[1], part, beside, n_shards)
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


def of_bytes(options):
    """Print what the fits of the example take."""
    n_people, n_variants = options.shape
    results, rows = multiprocessing.get_context("spawn").Queue(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(options.data or name)
        if not (folder / "X.npy").exists():
            (folder / "toy").mkdir(parents=True, exist_ok=True)
            alone(write_bytes, folder / "toy", 100, 1000)
            alone(write_bytes, folder, n_people, n_variants)
        shards = [int(number) or None for number in options.shards.split(",")]
        for part in map(float, options.parts.split(",")):
            for beside, n_shards in [(False, number) for number in shards] + [(True, 1)]:
                alone(measure, folder, part, beside, n_shards, results)
                covariates = "sex, age, components" if beside else "sex, age"
                rows.append((covariates, f"1/{part:g}", n_shards or "default", *results.get()))
    header = ("covariates", "penalty", "partitions", "fits", "gap", "variants", "CPU s", "wall s")
    size = n_people * (n_variants + 2) / 1e6
    table(f"{n_people} × {n_variants}: {size:.0f} MB", (*header, "MB beyond X"), rows)


def of_a_file(options):
    """Print what a path takes, on a file that is written unless it is there."""
    n_people, n_variants = options.shape
    prefix = Path(options.folder, f"study-{n_people}x{n_variants}")
    if not prefix.with_suffix(".fam").exists():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write_study(prefix, n_people, n_variants)
    path(prefix, options.penalties, options.max_worse)


FIGURES = {
    "bytes": of_bytes,
    "products": lambda options: products(*options.shape),
    "path": of_a_file,
    "fits": lambda options: fits(*options.shape),
    "folds": lambda options: folds(*options.shape),
}


def main():
    """Print the figure that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split("x"))))
    parser.add_argument("--penalties", type=int, default=50, help="of the path")
    parser.add_argument("--max-worse", type=int, help="of the path")
    parser.add_argument("--folder", default=".", help="where the .bed file is, or is written")
    parser.add_argument(
        "--parts", default="1,2", help="what the penalty of the example is divided by"
    )
    parser.add_argument(
        "--shards", default="1", help="numbers of partitions for sex and age alone; 0: the default"
    )
    parser.add_argument(
        "--data", help="folder in which bytes are kept; by default they are made for this run"
    )
    options = parse(parser)
    FIGURES[options.figure](options)


if __name__ == "__main__":
    main()
