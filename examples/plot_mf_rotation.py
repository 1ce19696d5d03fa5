"""
Rotation keeps the step of a serial run
=======================================

Many workers can factorise one matrix of ratings by stochastic gradient descent in two ways.  *Bulk synchronous, data
parallel* (BSP): each takes some users, starts from its own copy of all items, and at a barrier the changes are added.
*Rotation* (Kim et al., EuroSys 2016, section 4.3): items are divided, too, and no two workers ever hold the same ones.
With the same step, BSP applies as many steps to an item from one starting point as there are workers.  We let both do
the same work with up to 64 workers, then look at the estimator, which rotates.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from numba import njit

from schmp_estimators import ModelParallelMF

rng = np.random.default_rng(0)
n_users, n_items, rank = 2000, 1000, 8
drawn = (n_items * rng.random(100_000) ** 2).astype(int)  # some items are far more popular than others
users, items = np.divmod(np.unique(rng.integers(0, n_users, 100_000) * n_items + drawn), n_items)
W0, H0 = rng.normal(size=(n_users, rank)) / rank**0.25, rng.normal(size=(n_items, rank)) / rank**0.25
ratings = (W0[users] * H0[items]).sum(axis=1) + 0.3 * rng.normal(size=users.size)
shuffled = rng.permutation(users.size)
start = 0.3 * rng.normal(size=(n_users, rank)), 0.3 * rng.normal(size=(n_items, rank))


@njit(nogil=True)
def descend(users, items, ratings, order, W, H, step, penalty):
    """Take a step for each rating, in this order; W and H are changed."""
    for n in order:
        w, h = W[users[n]], H[items[n]]
        error = step * (ratings[n] - np.dot(w, h))
        for k in range(w.size):
            w[k], h[k] = w[k] + error * h[k] - step * penalty * w[k], h[k] + error * w[k] - step * penalty * h[k]


def run(schedule, n_workers, step, n_epochs=10, barriers=1):
    """Return the mean squared error after each epoch; rotating workers share no rows, so one may do their work."""
    (W, H), errors = map(np.copy, start), []
    worker, meeting = users[shuffled] % n_workers, (items - users)[shuffled] % n_workers
    order = shuffled[np.argsort(meeting, kind="stable")]
    parts = [shuffled[worker == p] for p in range(n_workers)]
    for _ in range(n_epochs):
        if schedule == "rotation":
            descend(users, items, ratings, order, W, H, step, 0.05)
        for c in range(barriers if schedule == "bsp" else 0):
            before, change = H.copy(), np.zeros_like(H)
            for part in parts:
                H[:] = before
                descend(users, items, ratings, part[c::barriers], W, H, step, 0.05)
                change += H - before
            H[:] = before + change
        errors.append(np.mean((ratings - (W[users] * H[items]).sum(axis=1)) ** 2))
    return np.nan_to_num(errors, nan=np.inf)


# %%
# On the left the step is one that suits a serial run, and every schedule has one barrier per epoch.  In the middle, the
# best of three steps for each: BSP needs a smaller one, or many more barriers.  On the right the estimator, whose steps
# adapt: a finer grid is another order of the same ratings, a little slower on the way and as good in the end.
steps, numbers = [0.1, 0.03, 0.01], [1, 8, 32, 64]
with np.errstate(all="ignore"):
    errors = {(s, p, step): run(s, p, step) for s in ("rotation", "bsp") for p in numbers for step in steps}
    often = run("bsp", 64, 0.1, barriers=64)
best = {(s, p): min(steps, key=lambda step: errors[s, p, step][-1]) for s in ("rotation", "bsp") for p in numbers}
pairs = np.stack([users, items], axis=1)
params = {"n_components": rank, "alpha": 0.1, "max_iter": 20, "tol": 0, "random_state": 0}
histories = {p: ModelParallelMF(n_shards=p, **params).fit(pairs, ratings).history_ for p in (1, 8, 32)}
final = [history[-1]["running_rmse"] for history in histories.values()]

figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for p, colour in zip(numbers, ["#2b3a42", "#2f7ea6", "#e08e45", "#a05195"], strict=True):
    axes[0].plot(range(1, 11), errors["rotation", p, 0.1], color=colour, label=f"rotation, {p}")
    axes[0].plot(range(1, 11), np.minimum(errors["bsp", p, 0.1], 1e9), "--", color=colour, label=f"BSP, {p}")
for schedule, style in (("rotation", "o-"), ("bsp", "o--")):
    axes[1].plot(numbers, [best[schedule, p] for p in numbers], style, label=schedule.replace("bsp", "BSP"))
for p, history in histories.items():
    axes[2].plot(range(1, 21), [h["running_rmse"] for h in history], label=f"{p} shard{'s' * (p > 1)}")
axes[0].set(title="Step 0.1", xlabel="Epochs", ylabel="Mean squared error", ylim=(0.05, 5), yscale="log")
axes[1].set(title="Best step", xlabel="Workers", yscale="log", xscale="log")
axes[2].set(title="ModelParallelMF", xlabel="Epochs", ylabel="RMSE on the way", xticks=[1, 5, 10, 15, 20])
for ax in axes:
    ax.legend(fontsize=8)
plt.show()

# %%
print("best steps:", {f"{s} {p}": step for (s, p), step in best.items()})
rotated = errors["rotation", 64, 0.1][-1]
print(f"64 workers, step 0.1: rotation {rotated:.3f}; BSP diverges, and with 64 barriers per epoch has {often[-1]:.3f}")
assert all(best["rotation", p] == best["rotation", 1] for p in numbers)
assert all(best["bsp", p] < best["rotation", p] and errors["bsp", p, 0.1][-1] > 10 for p in numbers[1:])
assert np.ptp(final) < 0.05 * final[0]
