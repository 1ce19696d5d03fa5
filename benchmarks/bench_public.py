"""Recommendations on a public split: chosen on its validation part, judged once on its test part.

    python benchmarks/bench_public.py --folder F [--models slim,mf] [--seconds 600] [--settings 30]

Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before.  The folder has ``train.txt``,
``valid.txt`` and ``test.txt``, whose lines are a user and the items that this user took.  Each
model tries the first values of its parameters, then settings in a random order, until it has used
the seconds or tried the settings.  The best by NDCG@20 on the validation part is fitted again to
both parts, and judged on the test part: all items are ranked but those that the user took in the
parts that were fitted.  Prints recall@20, NDCG@20, CPU seconds of the last fit, the number of
settings tried, and the setting.
"""

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import machine, table

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


def search(make, grid, train, valid, seconds, most):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--settings", type=int, default=30)
    args = parser.parse_args()
    train, valid, test = read(args.folder)
    both = train.maximum(valid).tocsr()
    print(machine())
    shape = "{} users, {} items".format(*train.shape)
    print(f"{args.folder.name}: {shape}, {both.nnz} clicks fitted")
    rows = []
    for name in args.models.split(","):
        make, grid = MODELS[name]
        if name == "ease" and train.shape[1] > MOST_ITEMS_OF_EASE:
            print(f"ease: {train.shape[1]} items are too many for a matrix of all pairs")
            continue
        if implicit is None and make in (implicit_als, implicit_bpr, neighbours):
            print(f"{name}: needs the package implicit")
            continue
        make(train[:200], **{key: values[0] for key, values in grid.items()})  # compiles kernels
        setting, n_tried = search(make, grid, train, valid, args.seconds, args.settings)
        began = time.process_time()
        score = make(both, **setting)
        seconds = time.process_time() - began
        recall, gain = judge(score, both, test)
        rows.append([name, f"{recall:.4f}", f"{gain:.4f}", f"{seconds:.1f}", n_tried, str(setting)])
        print(*rows[-1], flush=True)
    table(args.folder.name, ["model", "recall@20", "NDCG@20", "CPU s", "tried", "setting"], rows)


if __name__ == "__main__":
    main()
