"""Schedules: every figure of docs/measurements/schedules.

    python benchmarks/bench_schedules.py costs         orders from costs beside rotations; the same figures everywhere
    python benchmarks/bench_schedules.py schedulers    what a draw takes with one scheduler and with several

Costs are random and have no unit.  With a barrier after each step a sweep takes the sum of each step's dearest pair;
without, a shard begins as soon as it and the block are free.  The rotation leaves out pairs that cost nothing.
"""

import argparse
import time

import numpy as np
from common import machine, median, table

from schmp_estimators.schmp import (
    Priority,
    schedule_from_costs,
    schedule_rotation,
)

#: Shape, share of pairs that cost something, how costs are spread.
PATTERNS = [
    ((32, 32), 0.1, "exponential"),
    ((32, 32), 0.3, "exponential"),
    ((32, 32), 0.3, "even"),
    ((32, 32), 0.3, "lognormal"),
    ((128, 128), 0.05, "exponential"),
    ((16, 256), 0.1, "exponential"),
    ((256, 16), 0.1, "exponential"),
    ((32, 32), 1.0, "exponential"),
    ((32, 32), 1.0, "even"),
]


def pattern(shape, share, law, seed):
    """Return random costs: even ones are within a quarter of 1, the logarithms of lognormal ones have a spread of 1."""
    rng = np.random.default_rng(seed)
    draw = {
        "even": lambda: rng.uniform(0.75, 1.25, shape),
        "exponential": lambda: rng.exponential(size=shape),
        "lognormal": lambda: rng.lognormal(sigma=1.0, size=shape),
    }
    return draw[law]() * (rng.random(shape) < share)


def with_barriers(cost, order):
    """Return what a sweep takes if all wait for all after every step."""
    return sum(
        max((cost[p, b] for p, b in enumerate(step) if b >= 0), default=0.0) for step in order
    )


def without_barriers(cost, order):
    """Return what a sweep takes if nobody waits longer than for the next block."""
    shards, blocks = np.zeros(cost.shape[0]), np.zeros(cost.shape[1])
    for step in order:
        for p, b in enumerate(step):
            if b >= 0 and cost[p, b] > 0:
                shards[p] = blocks[b] = max(shards[p], blocks[b]) + cost[p, b]
    return shards.max()


def bounds(cost):
    """Return what no order can go below, with barriers and without."""
    square = np.zeros((max(cost.shape),) * 2)
    square[: cost.shape[0], : cost.shape[1]] = cost
    # Who has k pairs of cost c or more needs k steps that cost c or more.
    dearest = np.maximum(np.sort(square, axis=0).T, np.sort(square, axis=1)).max(axis=0).sum()
    return dearest, max(cost.sum(axis=0).max(), cost.sum(axis=1).max())


def costs(n_seeds):
    rows = []
    for shape, share, law in PATTERNS:
        figures = []
        for seed in range(n_seeds):
            cost = pattern(shape, share, law, seed)
            begun = time.process_time()
            ours = schedule_from_costs(cost)
            seconds = time.process_time() - begun
            turn = schedule_rotation(*shape)
            waiting, running = bounds(cost)
            figures.append(
                (
                    len(turn),
                    len(ours),
                    with_barriers(cost, turn) / with_barriers(cost, ours),
                    with_barriers(cost, ours) / waiting,
                    without_barriers(cost, turn) / without_barriers(cost, ours),
                    without_barriers(cost, ours) / running,
                    1000 * seconds,
                )
            )
        rows.append(
            [f"{shape[0]} × {shape[1]}, {share}, {law}", *map(median, zip(*figures, strict=True))]
        )
    cost = pattern((1000, 1000), 0.1, "exponential", 0)
    begun = time.process_time()
    steps = len(schedule_from_costs(cost))
    print(
        f"\n{np.count_nonzero(cost):,} pairs, 1000 × 1000: {steps} steps in {time.process_time() - begun:.2f} s"
    )
    header = [
        "pattern",
        "steps of the rotation",
        "steps",
        "barriers: rotation / ours",
        "ours / bound",
    ]
    table(
        f"Medians of {n_seeds} patterns",
        [*header, "none: rotation / ours", "ours / bound", "ms"],
        rows,
    )


def schedulers(n_rounds):
    rows = []
    for n_parameters in (10_000, 100_000, 1_000_000):
        seconds = {}
        for count in (1, 2, 4, 8):
            chooses = Priority(16, max_correlation=None, n_schedulers=count)
            schedule, taken = chooses.start(n_parameters, random_state=0), []
            for _ in range(n_rounds):
                begun = time.process_time()
                schedule.next_round()
                taken.append(time.process_time() - begun)
                schedule.answer(None, None)
            seconds[count] = 1e6 * median(taken)
        rows.append([f"{n_parameters:,}", *seconds.values()])
    table(
        "µs of CPU time to draw a round of 16",
        ["parameters", *(f"{count} schedulers" for count in (1, 2, 4, 8))],
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=["costs", "schedulers"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    print(machine())
    if "costs" in arguments.what:
        costs(arguments.seeds)
    if "schedulers" in arguments.what:
        schedulers(arguments.rounds)
