"""What each loss reaches on clicks: the table "Losses that rank" of docs/measurements/mf.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 SCHMP_DATA=folder python benchmarks/bench_ranking.py

A fifth of the clicks is there to test.  Of a grid, the same number of settings for each loss, the
one with the best NDCG@10 on an eighth of the other clicks is judged on these: NDCG@10 and
recall@20, CPU seconds of that fit, and of all.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import product
from pathlib import Path

import numpy as np
from bench_implicit import documents, generated, judge, split
from common import machine, table

from schmp_estimators import ModelParallelMF

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


def ours(clicks, rank, **parameters):
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


def main():
    """Search for each loss on each data set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=list(DATA))
    print(machine())
    for name in parser.parse_args().data:
        inner, whole = parts(name)
        rows = []
        for loss, grid in GRIDS.items():
            ours(
                inner,
                8,
                loss=loss,
                max_iter=1,
                **{"unobserved_weight": 0.1} if loss == "squared" else {},
            )  # compiles
            rows.append(
                search(
                    loss,
                    lambda clicks, loss=loss, **how: ours(clicks, loss=loss, **how),
                    grid,
                    inner,
                    whole,
                )
            )
        title = (
            f"{name}: {inner.train.nnz} clicks of {inner.train.shape[0]} users on "
            f"{inner.train.shape[1]} items"
        )
        table(title, ("", "NDCG@10", "recall@20", "seconds", "of all", "setting"), rows)


if __name__ == "__main__":
    main()
