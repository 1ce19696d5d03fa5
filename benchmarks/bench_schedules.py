"""Schedules: every figure of docs/measurements/schedules.

    python benchmarks/bench_schedules.py costs         orders from costs beside rotations
    python benchmarks/bench_schedules.py schedulers    what draws take with one or more schedulers
    python benchmarks/bench_schedules.py claim         passes of updates, checks and gradients

Costs are random and have no unit.  The figures of `costs` are the same everywhere.  With a barrier
after each step a sweep takes the sum of each step's dearest pair; without, a shard begins as soon
as it and the block are free.  The rotation leaves out pairs that cost nothing.
"""

import argparse
import time

import numpy as np
from common import machine, median, parse, record, table
from scipy.stats import norm

from schmp_estimators import PrioritizedLasso
from schmp_estimators.schmp import Priority, Random, schedule_from_costs, schedule_rotation

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
    """Return random costs.

    Even ones are within a quarter of 1, the logarithms of lognormal ones have a spread of 1.
    """
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
        "\n"
        f"{np.count_nonzero(cost):,} pairs, 1000 × 1000: {steps} steps in "
        f"{time.process_time() - begun:.2f} s"
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
    shown = [[row[0], *map(int, row[1:3]), *row[3:-1]] for row in rows]
    record("schedules-orders", shown, is_chosen=True)


def genotypes(seed, n=300, p=900, neighbours=0.95):
    """Return standardised counts 0, 1, 2 of two haplotypes, and a response of 30 of them."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(2, n, p))
    for j in range(1, p):
        noise[..., j] *= np.sqrt(1 - neighbours**2)
        noise[..., j] += neighbours * noise[..., j - 1]
    X = (noise < norm.ppf(rng.uniform(0.1, 0.5, p))).sum(axis=0).astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = X[:, rng.choice(p, 30, replace=False)] @ rng.normal(size=30)
    y = signal + 0.5 * signal.std() * rng.normal(size=n)
    return X, y - y.mean()


def passes(X, y, penalty, goal, schedule, seed, most):
    """Return passes until the Lasso is at its goal, and the size of a round.

    The passes are those of updates, checks and gradients.
    """
    (n, p), squares = X.shape, (X**2).sum(axis=0)
    chooses, residual, coef = schedule.start(p, seed), y.copy(), np.zeros(p)
    rounds = updates = checked = gradients = 0

    def steps(columns):
        image = X[:, columns].T @ residual + squares[columns] * coef[columns]
        wanted = np.sign(image) * np.maximum(np.abs(image) - penalty, 0) / squares[columns]
        return wanted - coef[columns]

    objective = y @ y / 2
    while objective > goal:
        between = chooses.rounds_between
        if between is not None and rounds % between == 0:
            chooses.refresh(steps(np.arange(p)))
            gradients += 1
        chosen, check = chooses.next_round()
        found = None
        if check is not None:
            rows = X if check.rows is None else X[check.rows.within(n, 0, n)]
            found = rows[:, check.candidates].T @ rows[:, check.both] / len(rows)
            checked += found.size * len(rows)
        change = steps(chosen)
        coef[chosen] += change
        residual -= X[:, chosen] @ change
        chooses.record(chosen, change)
        chooses.answer(check, found)
        rounds, updates = rounds + 1, updates + len(chosen)
        objective = residual @ residual / 2 + penalty * np.abs(coef).sum()
        if updates + (checked / n) > most * p or not objective < 1e6 * (y @ y):
            return None
    return updates / p, checked / (n * p), gradients, updates / rounds


def claim(n_seeds, most=2000):
    data = []
    for seed in range(n_seeds):
        X, y = genotypes(seed)
        alpha = np.abs(X.T @ y).max() / len(y) / 20
        exact = PrioritizedLasso(alpha, tol=1e-12, fit_intercept=False).fit(X, y)
        best = len(y) * exact.history_[-1]["objective"]
        data.append((X, y, alpha * len(y), best + 1e-3 * (y @ y / 2 - best)))
    rows = []
    for size in (16, 64):
        seldom = 4 * max(10, 900 // (2 * size))
        few = {"correlation_rows": 10, "oversample": 1.0}
        ways = [
            Random(size),
            Random(size, refresh=None),
            Priority(size),
            Priority(size, oversample=1.2),
            Priority(size, oversample=1.2, correlation_rows=20),
            Priority(size, **few),
            Priority(size, **few, refresh=seldom),
            Priority(size, oversample=1.2, refresh=None),
            Priority(size, **few, refresh=None),
        ]
        for schedule in ways:
            found = [passes(*one, schedule, seed, most) for seed, one in enumerate(data)]
            if None in found:
                rows.append([schedule, f"not within {most}", "", "", "", "", ""])
                continue
            sums = [sum(one[:3]) for one in found]
            medians = [median(part) for part in zip(*found, strict=True)]
            spread = f"{min(sums):.0f} to {max(sums):.0f}"
            rows.append([schedule, *medians[:3], median(sums), spread, medians[3]])
    header = ["schedule", "updates", "check", "gradients", "sum", "range", "updates a round"]
    table(f"Passes to .1 %, medians of {n_seeds} data sets", header, rows)
    record("schedules-counted", rows, is_chosen=True)


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
    parser.add_argument("what", nargs="+", choices=["costs", "schedulers", "claim"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parse(parser)
    print(machine())
    if "costs" in arguments.what:
        costs(arguments.seeds)
    if "schedulers" in arguments.what:
        schedulers(arguments.rounds)
    if "claim" in arguments.what:
        claim(min(3, arguments.seeds))
