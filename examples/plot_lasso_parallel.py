"""
How many coefficients at a time?
================================

If coordinate descent updates several coefficients from the same residual, no update takes the
others into account.  For correlated columns the sum of the steps is then too long.  Therefore
Shotgun (Bradley et al., ICML 2011) diverges if too many coefficients are updated at a time.  STRADS
(Lee et al., NIPS 2014) adds *priorities*, which prefer coefficients that still change, and a
*dependency check*, which keeps correlated columns from being updated at the same time.  This page
shows that each needs the other.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, schmp

warnings.simplefilter("ignore", ConvergenceWarning)
rng = np.random.default_rng(0)
n, p, block = 300, 1000, 25
blocks = []  # genotypes: within a block of columns everybody inherits from two of six founders
for _ in range(p // block):
    founders = rng.random((6, block)) < rng.uniform(0.1, 0.5)
    blocks.append(founders[rng.integers(0, 6, (2, n))].sum(axis=0, dtype=np.int8))
X = np.hstack(blocks)
signal = X[:, rng.choice(p, 30, replace=False)] @ rng.normal(size=30)
y = signal + 0.5 * signal.std() * rng.normal(size=n)
alpha = np.abs(X.T @ (y - y.mean())).max() / n / 10
best = PrioritizedLasso(alpha, tol=1e-12).fit(X, y).history_[-1]["objective"]


def fit(schedule, max_iter=60):
    """Return passes over the coefficients, and the distance to the minimum (1 at the start)."""
    lasso = PrioritizedLasso(
        alpha,
        schedule=schedule,
        max_iter=max_iter,
        random_state=0,
        tol=1e-6,
    )
    history = lasso.fit(X, y).history_
    after = {
        h["iterations"]: h["objective"] for h in reversed(history)
    }  # the first after each pass
    after[history[-1]["iterations"] + 1] = history[-1]["objective"]
    passes, objective = np.transpose(sorted(after.items()))
    return passes, (objective - best) / (objective[0] - best)


# %%
# The left picture shows the passes over the data until the objective is within 1/1000 of the
# minimum.  For a good schedule the line is flat.  The right picture shows priorities and the check,
# alone and together.
numbers, needed = [16, 32, 64, 128, 192, 256, 512], {}
for kind in (schmp.Random, schmp.Priority):
    for number in numbers:
        passes, left = fit(kind(number))
        needed[kind, number] = min(passes[left < 1e-3], default=np.inf)
ways = {
    "neither": schmp.Random(64),
    "check": schmp.Random(64, max_correlation=0.1),
    "priorities": schmp.Priority(64, max_correlation=None),
    "both": schmp.Priority(64),
}
separately = {name: fit(schedule, 20) for name, schedule in ways.items()}

figure, (one, two) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
for kind, label in ((schmp.Random, "random (Shotgun)"), (schmp.Priority, "priority (STRADS)")):
    [line] = one.plot(numbers, [needed[kind, number] for number in numbers], "o-", label=label)
    lost = [number for number in numbers if np.isinf(needed[kind, number])]
    one.plot(
        lost, [80] * len(lost), "x", color=line.get_color(), label="diverges" if lost else None
    )
one.set(
    title="Passes to 1/1000",
    xscale="log",
    yscale="log",
    xlabel="Coefficients at a time",
    ylabel="Passes",
)
one.set_xticks(numbers, numbers)
one.set_xticks([], minor=True)
for name, (passes, left) in separately.items():
    two.plot(passes, np.maximum(left, 1e-12), label=name, linewidth=3 if name == "both" else 1.6)
two.set(
    title="64 at a time",
    yscale="log",
    xlabel="Passes",
    ylabel="Objective above its minimum",
    ylim=(1e-8, 1e4),
)
one.legend()
two.legend()
plt.show()

# %%
final = {name: left[-1] for name, (_, left) in separately.items()}
print("after 20 passes:", {name: f"{value:.0e}" for name, value in final.items()})
assert (
    np.isinf(needed[schmp.Random, 512])
    and max(needed[schmp.Priority, number] for number in numbers) < 20
)
assert final["priorities"] > 1 > final["check"] and final["both"] < 0.01 * final["neither"]

# %%
# A schedule of our own
# ---------------------
# A schedule is an object with a sampler, which draws the coefficients of each update.  This one
# draws neighbouring columns, which are the most correlated ones of genotypes.  The check removes
# most of them.


class Neighbours(schmp.Sampler):
    def __init__(self, count, random):
        self.count, self.random = count, random

    def save(self):  # for checkpoints
        return {"random": self.random.bit_generator.state}

    def restore(self, saved):
        self.random.bit_generator.state = saved["random"]

    def draw(self, count, excluded):
        first = self.random.integers(self.count)
        return np.setdiff1d((first + np.arange(count)) % self.count, excluded)


class InARow(schmp.Schedule):
    def sampler(self, n_parameters, random):
        return Neighbours(n_parameters, random)


# %%
ways = {"alone": InARow(16), "check": InARow(16, max_correlation=0.1)}
final = {name: fit(schedule, 20)[1][-1] for name, schedule in ways.items()}
print("neighbours, after 20 passes:", {name: f"{value:.0e}" for name, value in final.items()})
assert final["alone"] > 1 > final["check"]
