"""Clicks: time to the ranking of the package ``implicit``, and what each loss reaches.

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/bench_clicks.py implicit --data generated --ranks 64 128
    SCHMP_DATA=folder python benchmarks/bench_clicks.py implicit --data msdocs
    python benchmarks/bench_clicks.py objective --folder gowalla --ranks 512 1024 --epochs 3
    SCHMP_DATA=folder python benchmarks/bench_clicks.py losses

`implicit`: both fit Σ c(r − ŵ)² with weight 1 of a missing pair, for us divided by c.  For each
contestant the ladder of confidences and penalties is climbed, every epoch is judged by NDCG@10 and
recall@10 on a fifth of the clicks, and times are CPU seconds of one thread, without judging and
without set-up (seconds of both are printed).  Of a corpus every fourth document is taken.
`objective`: with a folder of bench_recommend.py, CPU seconds and the common objective after each
epoch: weight .03 of a missing pair, and a penalty of 1 per row.

`losses`: a fifth of the clicks is there to test.  Of a grid, the same number of settings for each
loss, the one with the best NDCG@10 on an eighth of the other clicks is judged on these: NDCG@10 and
recall@20, CPU seconds of that fit, and of all.
Peer: ``pip install implicit``.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import SweepClock, forget_peak, machine, parse, peak, record, table
from scipy import sparse
from threadpoolctl import threadpool_limits

from schmp_estimators import ModelParallelMF

_CUT = 10


class Clicks(NamedTuple):
    """Clicks to train on and to test on."""

    train: sparse.csr_array
    test: sparse.csr_array


def generated(n_users=60_000, n_items=20_000, n_topics=60, per_user=25, seed=0):
    """Return clicks of users who like three topics, on items whose popularity has a long tail."""
    rng = np.random.default_rng(seed)
    popularity, topics = 1 / (np.arange(n_items) + 20.0) ** 0.8, rng.integers(0, n_topics, n_items)
    lengths = 1 + rng.geometric(1 / per_user, n_users)
    users = np.repeat(np.arange(n_users), lengths)
    favourites = rng.integers(0, n_topics, (n_users, 3))
    wanted = favourites[users, np.minimum(rng.geometric(0.5, users.size) - 1, 2)]
    wanted[rng.random(users.size) < 0.2] = n_topics  # any topic
    items = np.empty(users.size, np.int64)
    for topic in range(n_topics + 1):
        members = np.flatnonzero(topics == topic) if topic < n_topics else np.arange(n_items)
        chosen = wanted == topic
        shares = popularity[members] / popularity[members].sum()
        items[chosen] = rng.choice(members, chosen.sum(), p=shares)
    return users, items, (n_users, n_items)


def documents(name):
    """Return the words of every fourth document of a corpus as clicks.

    Words of fewer than five are left out.
    """
    path = Path(os.environ.get("SCHMP_DATA", ".")) / f"{name}.npz"
    if not path.exists():
        raise SystemExit(
            f"{path} is not there; set SCHMP_DATA to the folder of the corpora, or use generated"
        )
    words = sparse.csr_array(sparse.load_npz(path))[::4].tocsc()
    words = words[:, np.flatnonzero(np.diff(words.indptr) >= 5)].tocoo()
    return *words.coords, words.shape


def split(users, items, shape, share=0.2, seed=1):
    """Return a fifth of the clicks to test on, the others to train on."""
    users, items = np.divmod(np.unique(users.astype(np.int64) * shape[1] + items), shape[1])
    test = np.random.default_rng(seed).random(users.size) < share
    parts = [(users[chosen], items[chosen]) for chosen in (~test, test)]
    return Clicks(
        *(sparse.csr_array((np.ones(one[0].size, np.float32), one), shape=shape) for one in parts)
    )


def judge(users, items, clicks, n=12_000, depth=_CUT):
    """Return NDCG of ten and recall of `depth` recommendations, for some users.

    Clicks of training are not recommended.

    Of 1,500 users the NDCG has a standard error of .004, and contests were decided by who they
    were.
    """
    gains, ndcg, recall = 1 / np.log2(np.arange(2, _CUT + 2)), [], []
    chosen = np.random.default_rng(5).permutation(np.flatnonzero(np.diff(clicks.test.indptr)))[:n]
    for batch in np.array_split(chosen, -(-chosen.size // 500)):
        scores = users[batch] @ items.T
        for row, user in enumerate(batch):
            known, wanted = (side.indices[slice(*side.indptr[user : user + 2])] for side in clicks)
            scores[row, known] = -np.inf
            top = np.argpartition(-scores[row], depth)[:depth]
            hits = np.isin(top[np.argsort(-scores[row, top])], wanted)
            ndcg.append(gains[hits[:_CUT]].sum() / gains[: wanted.size].sum())
            recall.append(hits.sum() / min(depth, wanted.size))
    return float(np.mean(ndcg)), float(np.mean(recall))


class Judge:
    """A callback that takes CPU seconds of epochs, and judges what they leave.

    `seconds` are those of each epoch.
    """

    def __init__(self, clicks):
        self.clicks, self.rungs, self.seconds = clicks, [], 0.0

    def setup(self, estimator, context):
        """Do nothing."""

    def teardown(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Start the clock."""
        self.began = time.process_time()

    def on_fit_task_end(self, estimator, context):
        """Stop the clock after an epoch, and judge."""
        if context.task_name == "sweep":
            self.seconds += time.process_time() - self.began
            fitted = estimator._as_if_fitted()
            self.rungs.append(
                (self.seconds, *judge(fitted.user_factors_, fitted.components_.T, self.clicks))
            )


def fit_of_ours(clicks, rank, confidence, penalty, kind, n_epochs):
    """Return (seconds, NDCG, recall) after every epoch, and the seconds of the set-up."""
    at_end = Judge(clicks)
    mf = ModelParallelMF(
        rank, solver="ccd", unobserved_weight=1 / confidence, alpha=penalty, penalty=kind,
        max_iter=n_epochs, tol=0, random_state=0,
    )  # fmt: skip
    began = time.process_time()
    mf.set_callbacks(at_end).fit(clicks.train)
    whole = time.process_time() - began
    return at_end.rungs, whole


def fit_of_theirs(clicks, rank, confidence, penalty, n_epochs):
    """The same for alternating least squares of ``implicit``, by conjugate gradients.

    That is its default.
    """
    from implicit.cpu.als import AlternatingLeastSquares

    als = AlternatingLeastSquares(
        rank,
        regularization=penalty * confidence,
        alpha=confidence,
        iterations=n_epochs,
        num_threads=1,
        random_state=0,
    )
    rungs, clock = [], {"used": 0.0}

    def after(epoch, *others):
        clock["used"] += time.process_time() - clock["began"]
        rungs.append(
            (
                clock["used"],
                *judge(np.asarray(als.user_factors), np.asarray(als.item_factors), clicks),
            )
        )
        clock["began"] = time.process_time()

    matrix = sparse.csr_matrix(clicks.train)
    clock["began"] = began = time.process_time()
    als.fit(matrix, show_progress=False, callback=after)
    return rungs, time.process_time() - began


def contest(name, clicks, rank, arguments):
    """Print what each reaches on its own ladder, and when we reach what the peer does."""
    n, penalties, rows, reached = arguments.epochs, arguments.penalties, [], {}
    for confidence in arguments.confidences:
        ladder = [
            ("implicit", penalty, fit_of_theirs(clicks, rank, confidence, penalty, n)[0])
            for penalty in penalties
        ]
        per_rating = [("per_rating", penalty) for penalty in (0.05, 0.07)]
        for kind, penalty in [*(("per_row", penalty) for penalty in penalties), *per_rating]:
            ladder.append(
                (
                    f"ccd, {kind}",
                    penalty,
                    fit_of_ours(clicks, rank, confidence, penalty, kind, n)[0],
                )
            )
        for who, penalty, rungs in ladder:
            seconds, ndcg, recall = max(rungs, key=lambda rung: rung[1])
            rows.append((who, confidence, penalty, rungs[-1][0] / n, seconds, ndcg, recall))
            reached.setdefault(who.partition(",")[0], []).extend(rungs)
    header = (
        "",
        "confidence",
        "penalty",
        "seconds of an epoch",
        "seconds to its best",
        "NDCG@10",
        "recall@10",
    )
    shape = clicks.train.shape
    table(
        f"{name}, K = {rank}, {clicks.train.nnz} clicks of {shape[0]} users on {shape[1]} items",
        header,
        rows,
    )
    best, rows = max(ndcg for _, ndcg, _ in reached["implicit"]), []
    for share in (0.98, 0.99, 1.0):
        first = [
            min(
                (seconds for seconds, ndcg, _ in reached[who] if ndcg >= share * best),
                default=np.nan,
            )
            for who in ("implicit", "ccd")
        ]
        rows.append((share, *first, first[0] / first[1]))
    table(f"CPU seconds to a share of {best:.4f}", ("share", "implicit", "ccd", "ratio"), rows)


def objective(users, items, X, weight, penalty):
    """Return Σ (1 − ŵ)² over clicks + weight · Σ ŵ² over other pairs + penalty · (‖W‖² + ‖H‖²)."""
    pairs = sparse.coo_array(X)
    total = penalty * sum(float(np.sum(side * side, dtype=np.float64)) for side in (users, items))
    for some in np.array_split(np.arange(pairs.nnz), -(-pairs.nnz // 200_000)):
        who, what = (index[some] for index in pairs.coords)
        scores = np.einsum("nk,nk->n", users[who], items[what], dtype=np.float64)
        total += float(np.sum((1 - scores) ** 2 - weight * scores**2))
    grams = [(side.T @ side).astype(np.float64) for side in (users, items)]
    return total + weight * float(np.sum(grams[0] * grams[1]))


def descend(folder, rank, n_epochs, weight=0.03, penalty=1.0):
    """Print what each epoch of both takes, and what it leaves of the objective."""
    from bench_recommend import read
    from implicit.cpu.als import AlternatingLeastSquares

    X, *_ = read(folder)
    clock = SweepClock()
    forget_peak()
    mf = ModelParallelMF(
        rank, solver="ccd", unobserved_weight=weight, alpha=penalty, penalty="per_row",
        max_iter=n_epochs, tol=0, random_state=0,
    ).set_callbacks(clock).fit(X)  # fmt: skip
    ours = list(zip(clock.cpu, (record["objective"] for record in mf.history_), strict=True))
    memory = [peak() / 2**20]
    own = objective(mf.user_factors_, np.ascontiguousarray(mf.components_.T), X, weight, penalty)
    print(f"ours {ours[-1][1]:.0f}, computed here {own:.0f}")
    forget_peak()
    als = AlternatingLeastSquares(
        rank, regularization=penalty / weight, alpha=1 / weight, iterations=n_epochs,
        num_threads=1, random_state=0,
    )  # fmt: skip
    theirs, began = [], [0.0]

    def after(epoch, *others):
        spent = time.process_time() - began[0]
        sides = np.asarray(als.user_factors), np.asarray(als.item_factors)
        memory[1:] = memory[1:] or [peak() / 2**20]
        theirs.append((spent, objective(*sides, X, weight, penalty)))
        began[0] = time.process_time()

    matrix = sparse.csr_matrix(X)
    began[0] = time.process_time()
    als.fit(matrix, show_progress=False, callback=after)
    rows = [
        (epoch, *one, *other)
        for epoch, (one, other) in enumerate(zip(ours, theirs, strict=True), 1)
    ]
    header = ("epoch", "ours, s", "objective", "implicit, s", "objective")
    table(
        f"{folder.name}, K = {rank}, peaks of {memory[0]:.0f} and {memory[1]:.0f} MiB", header, rows
    )


RANKS = (32, 64)


#: Of each loss, what is searched beside ranks.
_OF_STEPS = {"learning_rate": (0.05, 0.1), "alpha": (0.02, 0.05, 0.1), "max_iter": (20, 60)}


GRIDS = {
    "squared": {"unobserved_weight": (0.03, 0.1, 0.3), "alpha": (0.02, 0.07), "max_iter": (8, 20)},
    "logistic": _OF_STEPS,
    "bpr": _OF_STEPS,
}


def insteval():
    """Return the ratings of 4 and 5 of students as clicks."""
    stored = np.load(Path(os.environ.get("SCHMP_DATA", ".")) / "insteval.npz")
    users, items = (stored[name][stored["values"] >= 4] for name in ("users", "items"))
    return users, items, (users.max() + 1, items.max() + 1)


DATA = {
    "generated": lambda: generated(12_000, 4_000),
    "sotu_passages": lambda: documents("sotu_passages"),
    "insteval": insteval,
}


def parts(name):
    """Return clicks to fit on and choose by, and all of them with those to test on."""
    whole = split(*DATA[name]())
    return split(*whole.train.nonzero(), whole.train.shape, share=1 / 8, seed=2), whole


def settings(grid):
    """Return all settings of a grid, with each rank."""
    return [dict(zip(("rank", *grid), one, strict=True)) for one in product(RANKS, *grid.values())]


def vectors(clicks, rank, **parameters):
    """Return vectors of users and items, with the biases of items, of a fit."""
    mf = ModelParallelMF(rank, tol=0.0, random_state=0, **parameters).fit(clicks.train)
    users, items = mf.user_factors_, mf.components_.T
    return np.column_stack([users, np.ones(len(users), np.float32)]), np.column_stack(
        [items, mf.item_bias_]
    )


def search(who, run, grid, inner, whole):
    """Return a row of the table.

    Who, NDCG@10 and recall@20, seconds of the best fit and of all, and its setting.
    """
    found = []
    for setting in settings(grid):
        began = time.process_time()
        model = run(inner, **setting)
        seconds = time.process_time() - began
        found.append((judge(*model, inner, n=1_500)[0], seconds, setting, model))
    _, seconds, setting, model = max(found, key=lambda one: one[0])
    ndcg, recall = judge(*model, whole, n=6_000, depth=20)
    chosen = ", ".join(f"{name} {value:g}" for name, value in setting.items())
    return who, f"{ndcg:.4f}", f"{recall:.4f}", seconds, sum(one[1] for one in found), chosen


def implicit(arguments):
    """Run a contest for each data set and rank."""
    compile_both()
    for name in arguments.data or ["generated"]:
        clicks = split(*(generated() if name == "generated" else documents(name)))
        for rank in arguments.ranks:
            with threadpool_limits(1):
                contest(name, clicks, rank, arguments)


def descent(arguments):
    """Print objectives of a folder."""
    compile_both()
    for rank in arguments.ranks:
        with threadpool_limits(1):
            descend(arguments.folder, rank, arguments.epochs)


def compile_both():
    """Fit something small."""
    small = split(np.arange(60) % 20, np.arange(60) % 17, (20, 17))
    fit_of_ours(small, 8, 10.0, 1.0, "per_row", 2)


def losses(arguments):
    """Search for each loss on each data set."""
    for name in arguments.data or DATA:
        inner, whole = parts(name)
        rows = []
        for loss, grid in GRIDS.items():
            how = {"unobserved_weight": 0.1} if loss == "squared" else {}
            vectors(inner, 8, loss=loss, max_iter=1, **how)  # compiles

            def run(clicks, loss=loss, **how):
                return vectors(clicks, loss=loss, **how)

            rows.append(search(loss, run, grid, inner, whole))
        shape = inner.train.shape
        title = f"{name}: {inner.train.nnz} clicks of {shape[0]} users on {shape[1]} items"
        record("mf-losses", [[name, *(f"{float(a):.3f}, {float(b):.3f}" for _, a, b, *_ in rows)]])
        table(title, ("", "NDCG@10", "recall@20", "seconds", "of all", "setting"), rows)


FIGURES = {"implicit": implicit, "objective": descent, "losses": losses}


def main():
    """Print the figure that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--data", nargs="+", help="by default generated, for losses three sets")
    parser.add_argument("--folder", type=Path, help="for objective")
    parser.add_argument("--ranks", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--confidences", nargs="+", type=float, default=[3.0, 10.0])
    parser.add_argument("--penalties", nargs="+", type=float, default=[0.5, 5.0, 20.0])
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parse(parser)
    print(machine())
    FIGURES[arguments.figure](arguments)


if __name__ == "__main__":
    main()
