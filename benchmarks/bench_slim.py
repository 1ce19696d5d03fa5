"""The item model: what a fit, more clicks and serving take, and a model of a million users.

    python benchmarks/bench_slim.py fit --folder F [--setting '{"max_neighbors": null}']
    python benchmarks/bench_slim.py serve --folder F [--threads 2]
    python benchmarks/bench_slim.py generated --shape 1000000x50000 --clicks 30e6

Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before.  The folder is one of bench_public.py.
Times are medians of three fits, of 15 or 301 calls.  `fit` fits the training part by one and two
threads, judges a fit of the training and validation parts on the test part, and adds 1 % of the
clicks by `partial_fit` to a fit of the others.  `serve` has the package implicit beside both
models, K = 64, and makes calls in turn.  `generated` draws users with three of many interests each,
and clicks at random besides; a tenth of the clicks is held out, and factors with K = 64 are fitted,
too.  Memory is the peak of the process, the input included.
"""

import argparse
import json
import resource
import statistics
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from bench_public import judge, read
from common import machine, table
from sklearn.base import clone

from schmp_estimators import DistributedSLIM, ModelParallelMF


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
    print(f"largest gap {model.history_[-1]['dual_gap']:.2e} of the objective at zero")


def serve(folder, n_threads):
    import implicit

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
    most = np.bincount(X.indices).max() / shape[0]
    title = f"{shape}, {known.nnz} clicks, {most:.3f} of users on one item, two threads"
    table(title, ("model", "CPU s", "wall s", "peak GiB", "recall@20", "NDCG@20"), rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["fit", "serve", "generated"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--setting", type=json.loads, default={}, help="parameters, as JSON")
    parser.add_argument("--shape", default="100000x20000", help="users x items")
    parser.add_argument("--clicks", type=float, default=3e6)
    parser.add_argument("--interests", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1, help="of `serve`")
    options = parser.parse_args()
    print(machine())
    if options.what == "fit":
        fit(options.folder, options.setting)
    elif options.what == "serve":
        serve(options.folder, options.threads)
    else:
        shape = [int(float(side)) for side in options.shape.split("x")]
        generated(shape, int(options.clicks), options.interests, options.setting)


if __name__ == "__main__":
    main()
