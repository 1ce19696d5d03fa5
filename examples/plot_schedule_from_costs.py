"""
Where not everyone must meet everyone
=====================================

In a rotation every shard of the data works on every block of the model.  Many pairs of a shard and
a block may have no work, for example if their texts are in one language and their words in another.
`~schmp_estimators.schmp.schedule_from_costs` leaves such pairs out.  It puts pairs of similar cost
into the same step, so that shards do not wait long for each other.
"""

# %%
# A third of all pairs have work, and some have far more than others.  With a :term:`barrier` after
# every step, a step takes as long as its most expensive pair.  Bars are work, and gaps are waiting.
import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators.schmp import schedule_from_costs, schedule_rotation

rng = np.random.default_rng(0)
n_shards, n_blocks = 14, 18
cost = rng.lognormal(sigma=0.5, size=(n_shards, n_blocks)) * (
    rng.random((n_shards, n_blocks)) < 0.33
)
orders = {
    "Rotation": schedule_rotation(n_shards, n_blocks),
    "From costs": schedule_from_costs(cost),
}


def draw(ax, order, colour):
    """Draw the work of all shards in time; return when each step ends."""
    ends = [0.0]
    for step in order:
        seconds = [cost[shard, block] if block >= 0 else 0.0 for shard, block in enumerate(step)]
        ax.barh(
            range(n_shards),
            seconds,
            left=ends[-1],
            height=0.85,
            color=colour,
            edgecolor="white",
            linewidth=0.5,
        )
        ends.append(ends[-1] + max(seconds))
    ax.vlines(ends[1:], -0.6, n_shards - 0.4, color="#8a979e", linewidth=0.7)
    ax.set(ylim=(n_shards - 0.4, -0.6), yticks=[], ylabel="Shards")
    ax.grid(False)
    return ends[1:]


figure = plt.figure(figsize=(9.5, 4.6), layout="constrained")
grid = figure.add_gridspec(2, 2, width_ratios=[1, 1.9])
table = figure.add_subplot(grid[:, 0])
table.imshow(np.where(cost > 0, cost, np.nan), cmap="YlGnBu", vmin=-0.5)
table.set(title="What meetings cost", xlabel="Blocks", ylabel="Shards", xticks=[], yticks=[])
table.grid(False)
ends, axes = {}, [figure.add_subplot(grid[0, 1])]
axes.append(figure.add_subplot(grid[1, 1], sharex=axes[0]))
for ax, colour, (name, order) in zip(axes, ("#e08e45", "#2f7ea6"), orders.items(), strict=True):
    ends[name] = draw(ax, order, colour)
    busy = cost.sum() / (n_shards * ends[name][-1])
    ax.set_title(f"{name}: {len(order)} steps, shards at work {busy:.0%} of the time")
axes[1].set_xlabel("Time")
plt.show()

# %%
# No order can have fewer steps.  The number of steps is the largest number of pairs with work that
# one shard or block has.
met = [
    (shard, block)
    for step in orders["From costs"]
    for shard, block in enumerate(step)
    if block >= 0
]
most = max((cost > 0).sum(axis=0).max(), (cost > 0).sum(axis=1).max())
ratio = ends["Rotation"][-1] / ends["From costs"][-1]
print(f"{len(met)} meetings in {most} steps; the rotation takes {ratio:.1f} times as long")
assert sorted(met) == list(zip(*np.nonzero(cost), strict=True))
assert len(orders["From costs"]) == most
assert ratio > 2
