"""
Rotation keeps the step size of a serial run
============================================

Several workers can factorise one matrix of ratings by stochastic gradient descent in two ways.  In
*bulk synchronous parallel* (BSP), each worker takes some users and changes its own copy of all
items.  At a :term:`barrier` the changes are added up.  In *rotation* (Kim et al., EuroSys 2016,
section 4.3), items are divided, too, and no two workers have the same items at the same time.  With
BSP every worker makes a step for an item, and all these steps start from the same point.  Their sum
is too long, so BSP needs a smaller step size.  `~schmp_estimators.ModelParallelMF` can do both,
with one barrier per epoch and adaptive step sizes.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import ModelParallelMF

rng = np.random.default_rng(0)
n_users, n_items, rank = 2000, 1000, 8
drawn = (n_items * rng.random(100_000) ** 2).astype(
    int
)  # some items are far more popular than others
users, items = np.divmod(np.unique(rng.integers(0, n_users, 100_000) * n_items + drawn), n_items)
W, H = rng.normal(size=(n_users, rank)) / rank**0.25, rng.normal(size=(n_items, rank)) / rank**0.25
ratings = (W[users] * H[items]).sum(axis=1) + 0.3 * rng.normal(size=users.size)
pairs = np.stack([users, items], axis=1)


def fit(schedule, n_shards, step):
    """Return the error on the way in each epoch; infinity where there is no number any more."""
    mf = ModelParallelMF(
        rank,
        schedule=schedule,
        n_shards=n_shards,
        learning_rate=step,
        alpha=0.05,
        max_iter=8,
        tol=0,
        random_state=0,
    )
    try:
        return [record["running_rmse"] for record in mf.fit(pairs, ratings).history_]
    except ValueError as error:
        print(f"{schedule}, {n_shards} shards, step {step}: {error}")
        return [np.inf] * 8


# %%
# A step size of 0.3 suits a serial run.  With rotation it suits any number of workers, because more
# workers only change the order of the ratings.  With 64 workers a block has 24 ratings, and this
# order slows the first epochs a little.  With eight workers and this step size, BSP diverges.  With
# a third of the step size it converges, but more slowly the more workers there are.
steps, numbers = [0.3, 0.1, 0.03], [1, 8, 32, 64]
rotated = {p: fit("rotation", p, 0.3) for p in numbers}
copied = {(p, step): fit("bsp", p, step) for p in numbers for step in steps}
best = {p: min(steps, key=lambda step: copied[p, step][-1]) for p in numbers}

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for p, colour in zip(numbers, ["#2b3a42", "#2f7ea6", "#e08e45", "#a05195"], strict=True):
    axes[0].plot(range(1, 9), rotated[p], color=colour, label=f"{p}, step 0.3")
    axes[1].plot(range(1, 9), copied[p, best[p]], color=colour, label=f"{p}, step {best[p]}")
for ax, title in zip(axes, ("Rotation", "BSP, with the best of three steps"), strict=True):
    ax.set(title=title, xlabel="Epochs, of one barrier each")
    ax.legend(title="Workers", fontsize=8)
axes[0].set(ylabel="RMSE on the way")
plt.show()

# %%
for p in numbers:
    print(
        f"{p:2} workers: rotation {rotated[p][-1]:.3f}; BSP {copied[p, best[p]][-1]:.3f} with step "
        f"{best[p]}"
    )
assert copied[1, 0.3] == rotated[1]
assert all(errors[-1] < 1.4 * rotated[1][-1] for errors in rotated.values())
assert all(best[p] < 0.3 and copied[p, best[p]][-1] > 1.3 * rotated[p][-1] for p in numbers[1:])
