"""What answers of a fitted factorisation take: milliseconds of CPU of a call, in one process.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_serving.py --items 20000 100000

50,000 users, 64 components, a million ratings drawn at random; ids are row numbers, or texts.
Medians of some calls, the first one, which makes tables, apart.
"""

import argparse

import numpy as np
from common import machine, milliseconds, table

from schmp_estimators import ModelParallelMF

N_USERS, N_RATINGS, RANK = 50_000, 1_000_000, 64


def figures(n_items, names):
    """Return what the calls take for a model of so many items."""
    rng = np.random.default_rng(0)
    pairs = np.unique(
        np.column_stack([rng.integers(0, n, N_RATINGS) for n in (N_USERS, n_items)]), axis=0
    )
    ratings = 3.0 + rng.normal(size=len(pairs))
    users, items = (np.arange(n) for n in (N_USERS, n_items))
    if names:
        users, items = (np.array([f"id{one}" for one in ids], object) for ids in (users, items))
    columns = [ids[column] for ids, column in zip((users, items), pairs.T, strict=True)]
    model = ModelParallelMF(RANK, max_iter=1, random_state=0).fit(np.column_stack(columns), ratings)
    return [
        milliseconds(15, model.recommend, users[7:8]),
        milliseconds(15, model.predict, [[users[7], items[9]]]),
        milliseconds(15, model.similar_items, items[5:6]),
        milliseconds(3, model.recommend, users[:400]),
    ]


def main():
    """Print a row for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", nargs="+", type=int, default=[20_000, 100_000])
    arguments = parser.parse_args()
    print(machine(), flush=True)
    header = [
        "items",
        "ids",
        "recommend to one",
        "predict one",
        "similar to one",
        "recommend to 400",
    ]
    rows = [
        [n, "texts" if names else "numbers", *figures(n, names)]
        for n in arguments.items
        for names in (False, True)
    ]
    table("Milliseconds of CPU of a call.", header, rows)


if __name__ == "__main__":
    main()
