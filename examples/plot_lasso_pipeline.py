"""
Uneven convergence, and rounds in flight
========================================

Lee et al. (NIPS 2014) and Kim et al. (EuroSys 2016) make two observations about the Lasso.  First,
most coefficients converge after a few passes, and a few take long, so it helps to update these more
often.  Second, if a round of updates must wait for the network, several rounds can run at a time
(``pipeline_depth``).  Each round is chosen before the results of the others are known.  This works
if rounds that run at the same time have no correlated columns.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, ScheduleDisplay, schmp

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
exact = PrioritizedLasso(alpha, tol=1e-12).fit(X, y)
best = exact.history_[-1]["objective"]

# %%
# A schedule with ``moved_above`` records after how many passes each coefficient last changed by
# more than this number, here 1 % of the largest coefficient.  Coefficients are drawn uniformly, 16
# at a time, so that all get about as many updates.
#
# In one process rounds are executed one after the other, so a larger depth cannot save time here.
# The right picture shows the cost of outdated residuals: more passes, but no divergence.
params = {"alpha": alpha, "random_state": 0, "tol": 1e-6}
recorded = schmp.Random(16, moved_above=0.01 * np.abs(exact.coef_).max())
shotgun = PrioritizedLasso(schedule=recorded, max_iter=64, **params).fit(X, y)
last = shotgun.moves_.last_moved
last = np.ceil(last[last > 0])  # the others stay at zero all the time

depths = {
    depth: PrioritizedLasso(
        schedule=schmp.Priority(32, pipeline_depth=depth), max_iter=15, **params
    ).fit(X, y)
    for depth in range(1, 6)
}

figure, (one, two) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
ScheduleDisplay.from_estimator(shotgun, ax=one)
one.set(title=f"Of {len(last)} that ever move")
needed = {}
for (depth, lasso), shade in zip(depths.items(), np.linspace(1, 0.3, 5), strict=True):
    start = lasso.history_[0]["objective"] - best
    after = {
        record["iterations"]: record["objective"] for record in reversed(lasso.history_)
    }  # the first after a pass
    passes = sorted(after)
    left = [max((after[done] - best) / start, 1e-12) for done in passes]
    two.plot(passes, left, color="#2f7ea6", alpha=shade, label=f"depth {depth}")
    needed[depth] = next((x for x, value in zip(passes, left, strict=True) if value < 1e-7), np.inf)
two.set(
    title="Rounds in flight",
    yscale="log",
    xlabel="Passes",
    ylabel="Objective above its minimum",
    ylim=(1e-8, 2),
)
two.legend()
plt.show()

# %%
early, late = np.mean(last <= 8), np.mean(last > 16)
print(f"Within 8 passes {early:.0%} have converged; after 16 passes {late:.0%} have not.")
print("Passes to 1/10,000,000:", needed)
assert early > 0.5 and late > 0
assert needed[1] < needed[5] < np.inf
