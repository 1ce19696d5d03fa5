"""Recommendations on public splits, and the item model: fits, more clicks, serving.

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_recommend.py search --folder F [--models slim,mf] [--seconds 600]
    python benchmarks/bench_recommend.py fit --folder F [--setting '{"max_neighbors": null}']
    python benchmarks/bench_recommend.py serve --folder F [--threads 2]
    python benchmarks/bench_recommend.py generated --shape 1000000x50000 --clicks 30e6

The folder has ``train.txt``, ``valid.txt`` and ``test.txt``, whose lines are a user and the items
that this user took.

`search`: each model tries the first values of its parameters, then settings in a random order,
until it has used the seconds or tried the settings.  The best by NDCG@20 on the validation part is
fitted again to both parts, and judged on the test part: all items are ranked but those that the
user took in the parts that were fitted.  Prints recall@20, NDCG@20, CPU seconds of the last fit,
the number of settings tried, and the setting.

The others are of the item model; times are medians of three fits, of 15 or 301 calls.  `fit` fits
the training part by one and two threads, judges a fit of the training and validation parts on the
test part, and adds 1 % of the clicks by `partial_fit` to a fit of the others.  `serve` has the
package implicit beside both models, K = 64, and makes calls in turn.  `generated` draws users with
three of many interests each, and clicks at random besides; a tenth of the clicks is held out, and
factors with K = 64 are fitted, too.  Memory is the peak of the process, the input included.
"""

import argparse
import itertools
import json
import resource
import statistics
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import machine, parse, record, table
from sklearn.base import clone

from schmp_estimators import DistributedSLIM, ModelParallelMF

try:
    import implicit
    from implicit.nearest_neighbours import BM25Recommender
except ImportError:
    implicit = None

K = 20
GAINS = 1 / np.log2(np.arange(2, K + 2))
#: EASE inverts a matrix of all pairs of items.
MOST_ITEMS_OF_EASE = 12_000


def read(folder):
    """Return the three parts as CSR arrays of one shape."""
    parts = {}
    for name in ("train", "valid", "test"):
        text = (folder / f"{name}.txt").read_text().splitlines()
        lines = [np.array(line.split(), int) for line in text if line.strip()]
        users = np.repeat([line[0] for line in lines], [len(line) - 1 for line in lines])
        parts[name] = users, np.concatenate([line[1:] for line in lines])
    shape = [1 + max(part[side].max() for part in parts.values()) for side in (0, 1)]
    found = []
    for pair in parts.values():
        matrix = sp.csr_array((np.ones(len(pair[0]), np.float32), pair), shape)
        matrix.data[:] = 1  # some files repeat pairs
        found.append(matrix)
    return found


def judge(score, seen, wanted, most=None):
    """Return recall and NDCG of the best items, for all users of `wanted`, or a sample of them."""
    users = np.flatnonzero(np.diff(wanted.indptr))
    if most and users.size > most:
        users = np.sort(np.random.default_rng(0).choice(users, most, replace=False))
    recall, gain = 0.0, 0.0
    for some in np.array_split(users, -(-users.size // 500)):
        scores = np.array(score(some), np.float32)
        rows = np.repeat(np.arange(some.size), np.diff(seen.indptr)[some])
        scores[rows, seen[some].indices] = -np.inf
        top = np.argpartition(-scores, K, axis=1)[:, :K]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1), 1)
        for user, items in zip(some, top, strict=True):
            liked = wanted.indices[wanted.indptr[user] : wanted.indptr[user + 1]]
            hits = np.isin(items, liked)
            recall += hits.sum() / liked.size
            gain += (hits * GAINS).sum() / GAINS[: liked.size].sum()
    return recall / users.size, gain / users.size


def slim(X, **setting):
    model = DistributedSLIM(**setting).fit(X)
    return lambda users: (X[users] @ model.coef_).toarray()


def factors(model):
    return lambda users: model.user_factors_[users] @ model.components_ + model.item_bias_


def mf(X, **setting):
    return factors(ModelParallelMF(random_state=0, tol=0, **setting).fit(X))


def bpr(X, **setting):
    return factors(ModelParallelMF(random_state=0, tol=0, loss="bpr", **setting).fit(X))


def of_implicit(model, X):
    model.fit(X, show_progress=False)
    if hasattr(model, "item_factors"):
        return lambda users: model.user_factors[users] @ model.item_factors.T
    return lambda users: (X[users] @ model.similarity).toarray()


def implicit_als(X, factors, regularization, alpha):
    model = implicit.als.AlternatingLeastSquares(
        factors, regularization=regularization, alpha=alpha, iterations=20, num_threads=1,
        random_state=0,
    )  # fmt: skip
    return of_implicit(model, sp.csr_matrix(X))


def implicit_bpr(X, factors, regularization, iterations):
    model = implicit.bpr.BayesianPersonalizedRanking(
        factors, regularization=regularization, iterations=iterations, learning_rate=0.05,
        num_threads=1, random_state=0,
    )  # fmt: skip
    return of_implicit(model, sp.csr_matrix(X))


def neighbours(X, K):
    return of_implicit(BM25Recommender(K, num_threads=1), sp.csr_matrix(X))


def ease(X, ridge):
    gram = (X.T @ X).toarray().astype(np.float64)
    gram[np.diag_indices_from(gram)] += ridge
    inverse = np.linalg.inv(gram)
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return lambda users: X[users] @ weights


def popular(X):
    counts = np.asarray(X.sum(axis=0))
    return lambda users: np.tile(counts, (users.size, 1))


#: Models, and the values of their parameters that are tried.
MODELS = {
    "slim": (slim, {
        "l1_reg": [0, 0.5, 1], "l2_reg": [50, 5, 10, 20, 100, 200], "user_weight": [0, 0.25],
        "max_neighbors": [300, 1000],
    }),
    **{
        f"mf {rank}": (mf, {
            "n_components": [rank], "unobserved_weight": [0.03, 0.01, 0.1, 0.3],
            "alpha": [0.03, 0.01, 0.1], "max_iter": [10],
        })
        for rank in (64, 256, 512)
    },
    "bpr": (bpr, {"n_components": [64, 128], "alpha": [0.01, 0.03, 0.1], "max_iter": [60, 120]}),
    "implicit als": (implicit_als, {
        "factors": [64, 256, 512], "regularization": [1.0, 10.0, 30.0], "alpha": [3.0, 10.0, 30.0],
    }),
    "implicit bpr": (implicit_bpr, {
        "factors": [64, 128], "regularization": [0.003, 0.01, 0.03], "iterations": [60, 120],
    }),
    "bm25": (neighbours, {"K": [20, 50, 100, 200, 500]}),
    "ease": (ease, {"ridge": [50, 100, 200, 400, 800]}),
    "popular": (popular, {}),
}  # fmt: skip


#: What tables call models.
SHOWN = {
    "slim": "``DistributedSLIM``",
    "bpr": '``ModelParallelMF(loss="bpr")``',
    **{f"mf {rank}": f"``ModelParallelMF``, K = {rank}" for rank in (64, 256, 512)},
    "implicit als": "ALS of implicit",
    "implicit bpr": "BPR of implicit",
    "bm25": "BM25 neighbours of implicit",
    "ease": "EASE, a matrix of all pairs of items",
    "popular": "most popular",
}


def best_setting(make, grid, train, valid, seconds, most):
    """Return the best setting by NDCG on the validation part, and the number of settings tried."""
    tried = itertools.product(*grid.values())
    settings = [dict(zip(grid, values, strict=True)) for values in tried]
    order = [0, *(1 + np.random.default_rng(0).permutation(len(settings) - 1))][:most]
    began, best, n_tried = time.process_time(), (-1.0, {}), 0
    for number in order:
        if n_tried and time.process_time() - began > seconds:
            break
        n_tried += 1
        found = judge(make(train, **settings[number]), train, valid, 4000)[1]
        print(f"  {settings[number]} {found:.4f}", flush=True)
        best = max(best, (found, settings[number]), key=lambda one: one[0])
    return best[1], n_tried


def search(options):
    """Print what each model reaches on a public split."""
    train, valid, test = read(options.folder)
    both = train.maximum(valid).tocsr()
    shape = "{} users, {} items".format(*train.shape)
    print(f"{options.folder.name}: {shape}, {both.nnz} clicks fitted")
    rows = []
    for name in options.models.split(","):
        make, grid = MODELS[name]
        if name == "ease" and train.shape[1] > MOST_ITEMS_OF_EASE:
            print(f"ease: {train.shape[1]} items are too many for a matrix of all pairs")
            continue
        if implicit is None and make in (implicit_als, implicit_bpr, neighbours):
            print(f"{name}: needs the package implicit")
            continue
        make(train[:200], **{key: values[0] for key, values in grid.items()})  # compiles kernels
        setting, n_tried = best_setting(make, grid, train, valid, options.seconds, options.settings)
        began = time.process_time()
        score = make(both, **setting)
        seconds = time.process_time() - began
        recall, gain = judge(score, both, test)
        rows.append([name, f"{recall:.4f}", f"{gain:.4f}", f"{seconds:.1f}", n_tried, str(setting)])
        print(*rows[-1], flush=True)
    table(options.folder.name, ["model", "recall@20", "NDCG@20", "CPU s", "tried", "setting"], rows)
    name = "mf-ml1m" if "ml-1m" in options.folder.name else "mf-gowalla"
    peers = ("implicit",) if implicit else ()
    record(name, [[SHOWN.get(row[0], row[0]), *row[1:5]] for row in rows], peers=peers)


def timed(function, repeats=3):
    """Return medians of CPU and wall seconds, and the last result."""
    spent = []
    for _ in range(repeats):
        cpu, wall = time.process_time(), time.perf_counter()
        found = function()
        spent.append((time.process_time() - cpu, time.perf_counter() - wall))
    return *map(statistics.median, zip(*spent, strict=True)), found


def divided(X, share, seed=0):
    """Return a matrix without a share of its entries, and one of these."""
    taken = np.random.default_rng(seed).random(X.nnz) < share
    parts = []
    for kept in (~taken, taken):
        part = X.copy()
        part.data = kept.astype(np.float32)
        part.eliminate_zeros()
        parts.append(part)
    return parts


def fit(folder, setting):
    train, valid, test = read(folder)
    both = train.maximum(valid).tocsr()
    old, new = divided(both, 0.01)
    DistributedSLIM(**setting).fit(train[:200])
    rows = []
    for n_jobs in (1, 2):
        cpu, wall, model = timed(lambda n=n_jobs: DistributedSLIM(**setting, n_jobs=n).fit(train))
        rows.append((f"{n_jobs} thread", cpu, wall, model.coef_.nnz))
    cpu, wall, model = timed(lambda: DistributedSLIM(**setting).fit(both), 1)
    quality = judge(lambda users: (both[users] @ model.coef_).toarray(), both, test)
    fits = [DistributedSLIM(**setting).fit(old) for _ in range(3)]
    again, wall_again, model = timed(lambda: fits.pop().partial_fit(new))
    rows.append(("fit of train and valid", cpu, wall, model.coef_.nnz))
    rows.append(("partial_fit of 1 %", again, wall_again, model.coef_.nnz))
    table(f"{folder.name}, {setting}", ("what", "CPU s", "wall s", "coefficients"), rows)
    print("test recall@20 {:.4f}, NDCG@20 {:.4f}".format(*quality))
    parameters = ", ".join(f"{name}={value}" for name, value in setting.items())
    name = f"``{parameters}``" if setting else "the default"
    record("mf-slim", [[name, f"{quality[0]:.4f}", rows[0][1], rows[1][2], again]])
    print(f"largest gap {model.history_[-1]['dual_gap']:.2e} of the objective at zero")


def serve(folder, n_threads):
    train, *_ = read(folder)
    setting = {"unobserved_weight": 0.03, "max_iter": 5, "random_state": 0}
    slim = DistributedSLIM().fit(train)
    mf = ModelParallelMF(64, n_jobs=n_threads, **setting).fit(train)
    als = implicit.als.AlternatingLeastSquares(
        64, iterations=2, num_threads=n_threads, random_state=0
    )
    matrix, many, new = sp.csr_matrix(train), np.arange(400), train[:100]
    als.fit(matrix, show_progress=False)
    ours = [
        (
            lambda m=model: m.recommend([7], 10), lambda m=model: m.recommend(many, 10),
            lambda m=model: m.recommend(new, 10), lambda m=model: m.similar_items([5], 10),
        )
        for model in (slim, mf)
    ]  # fmt: skip
    theirs = (
        lambda: als.recommend(7, matrix[7], 10), lambda: als.recommend(many, matrix[many], 10),
        lambda: als.recommend(many[:100], matrix[:100], 10, recalculate_user=True),
        lambda: als.similar_items(5, 10),
    )  # fmt: skip
    rows = [["DistributedSLIM"], ["ModelParallelMF"], ["implicit"]]
    for calls, repeats in zip(zip(*ours, theirs, strict=True), (301, 15, 15, 301), strict=True):
        for row, milliseconds in zip(rows, in_turn(calls, repeats), strict=True):
            row.append("{:.2f}, {:.2f}".format(*milliseconds))
    header = ("CPU, wall ms", "one user", "400 users", "100 new users", "similar items")
    table(f"{folder.name}, threads: {n_threads}", header, rows)
    shown = [[row[0], *(cell.partition(",")[0] for cell in row[1:])] for row in rows]
    record("mf-serving", shown, peers=("implicit",))


def in_turn(calls, repeats):
    """Return medians of CPU and wall milliseconds of some calls, made in turn."""
    spent = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repeats):
        for call, taken in zip(calls, spent, strict=True):
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            taken.append((time.process_time() - cpu, time.perf_counter() - wall))
    return [[1e3 * statistics.median(kind) for kind in zip(*taken, strict=True)] for taken in spent]


def draw(n_users, n_items, n_clicks, n_interests, seed=0):
    """Return clicks of users with three interests, a quarter of them on any item."""
    rng = np.random.default_rng(seed)
    interest = rng.integers(0, n_interests, n_items)
    popularity = rng.permutation(1 / (np.arange(n_items) + 20.0) ** 0.8)
    order = np.argsort(interest, kind="stable")
    starts = np.searchsorted(interest[order], np.arange(n_interests + 1))
    sums = np.append(0.0, np.cumsum(popularity[order]))
    lengths = rng.gamma(1.2, n_clicks / n_users / 1.2, n_users).astype(int).clip(3)
    users = np.repeat(np.arange(n_users, dtype=np.int32), lengths)
    which = rng.integers(0, n_interests, (n_users, 3))[users, rng.integers(0, 3, users.size)]
    low, high = sums[starts[which]], sums[starts[which + 1]]
    anywhere = rng.random(users.size) < 0.25
    low[anywhere], high[anywhere] = 0.0, sums[-1]
    at = np.searchsorted(sums, low + rng.random(users.size) * (high - low), side="right") - 1
    items = order[at.clip(0, n_items - 1)].astype(np.int32)
    X = sp.csr_array((np.ones(users.size, np.float32), (users, items)), (n_users, n_items))
    X.data[:] = 1
    return X


def products_of(model):
    return lambda users: model.user_factors_[users] @ model.components_


def sums_of(model, clicks):
    return lambda users: (clicks[users] @ model.coef_).toarray()


def generated(shape, n_clicks, n_interests, setting):
    X = draw(*shape, n_clicks, n_interests)
    known, wanted = divided(X, 0.1)
    models = {
        "DistributedSLIM": DistributedSLIM(**setting, n_jobs=2),
        "ModelParallelMF": ModelParallelMF(64, unobserved_weight=0.03, n_jobs=2, random_state=0),
    }
    rows = []
    for name, model in models.items():
        clone(model).fit(known[:200])
        cpu, wall, fitted = timed(lambda one=model: one.fit(known), 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if name == "DistributedSLIM":
            print(f"{fitted.coef_.nnz} coefficients, {fitted.n_iter_.mean():.1f} passes")
            scores = sums_of(fitted, known)
        else:
            scores = products_of(fitted)
        quality = judge(scores, known, wanted, 3000)
        rows.append((name, cpu, wall, peak, *map(float, quality)))
        if name == "DistributedSLIM":
            n_users, n_items = shape
            figures = known.nnz / 1e6, wall, peak, fitted.coef_.nnz / 1e6
            record("mf-clicks", [[f"{n_users:,} × {n_items:,}", *figures]])
    most = np.bincount(X.indices).max() / shape[0]
    title = f"{shape}, {known.nnz} clicks, {most:.3f} of users on one item, two threads"
    table(title, ("model", "CPU s", "wall s", "peak GiB", "recall@20", "NDCG@20"), rows)


def main():
    """Print the figure that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["search", "fit", "serve", "generated"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", default=",".join(MODELS), help="of `search`")
    parser.add_argument("--seconds", type=float, default=600, help="of `search`")
    parser.add_argument("--settings", type=int, default=30, help="of `search`")
    parser.add_argument("--setting", type=json.loads, default={}, help="parameters, as JSON")
    parser.add_argument("--shape", default="100000x20000", help="users x items")
    parser.add_argument("--clicks", type=float, default=3e6)
    parser.add_argument("--interests", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1, help="of `serve`")
    options = parse(parser)
    print(machine())
    if options.what == "search":
        search(options)
    elif options.what == "fit":
        fit(options.folder, options.setting)
    elif options.what == "serve":
        serve(options.folder, options.threads)
    else:
        shape = [int(float(side)) for side in options.shape.split("x")]
        generated(shape, int(options.clicks), options.interests, options.setting)


if __name__ == "__main__":
    main()
