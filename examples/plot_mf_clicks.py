"""
Implicit clicks
===============

We only know which user clicked on which item.  If clicks are fitted as ratings, all ratings are 1,
so there is nothing to learn.  With ``unobserved_weight``, pairs without a click count, too, with a
small weight.
"""

# %%
# We generate clicks.  There are six kinds of items, each user likes two of them, and some items are
# popular with all users.
import warnings

import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import ConvergenceDisplay, ModelParallelMF

rng = np.random.default_rng(0)
n_users, n_items, n_kinds = 1500, 600, 6
kind, popularity = (
    rng.integers(0, n_kinds, n_items),
    rng.permutation(1 / (np.arange(n_items) + 10.0)),
)
likes = rng.random((n_users, n_kinds)).argsort(axis=1) < 2
chances = (0.15 + likes[:, kind]) * popularity
chances *= 25 / chances.sum(axis=1, keepdims=True)
users, items = np.nonzero(rng.random((n_users, n_items)) < chances)
pairs, clicks = np.column_stack([users, items]), np.ones(users.size)
test = rng.random(users.size) < 0.2
print(f"{users.size} clicks of {n_users} users on {n_items} items")

# %%
# If clicks are fitted as ratings, there is a warning.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ModelParallelMF(8, random_state=0).fit(pairs, clicks)
print(caught[0].message)


# %%
# We search for the weight of a missing pair and for the penalty.  ``score`` is the normalised
# discounted cumulative gain (NDCG) of ten recommendations to each user, from 0 to 1.  It is
# measured on held-out clicks.  If the weight is too small, all pairs are predicted to be clicks,
# and recommending popular items is as good.
def fit(weight, alpha=0.1):
    mf = ModelParallelMF(8, unobserved_weight=weight, alpha=alpha, n_items=n_items, random_state=0)
    return mf.fit(pairs[~test], clicks[~test])


weights, alphas = [0.01, 0.03, 0.1, 0.3, 1.0], [0.03, 0.1, 0.3]
scores = {
    alpha: [fit(weight, alpha).score(pairs[test], clicks[test]) for weight in weights]
    for alpha in alphas
}
counts = np.bincount(items[~test], minlength=n_items)
ranks, popular = np.argsort(-counts), []
for user in np.unique(users[test]):
    known, wanted = items[~test & (users == user)], items[test & (users == user)]
    hits = np.isin(ranks[~np.isin(ranks, known)][:10], wanted)
    gains = 1 / np.log2(np.arange(2, 12))
    popular.append(gains[hits].sum() / gains[: wanted.size].sum())

best = fit(0.1)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for alpha, values in scores.items():
    axes[0].plot(weights, values, marker="o", label=f"alpha = {alpha}")
axes[0].axhline(np.mean(popular), color="#8a979e", linestyle="--", label="the most popular")
axes[0].set(
    xscale="log", xlabel="unobserved_weight", ylabel="NDCG@10", title="Ranking of held-out clicks"
)
axes[0].legend(fontsize=8)
ConvergenceDisplay.from_estimator(best, ax=axes[1])
axes[1].set(title="The objective, missing pairs included")
plt.show()

# %%
# Items of one kind have similar vectors.  The vector of a new user is computed from three clicks.
similar, _ = best.similar_items(np.arange(n_items), n=10)
print(
    f"of the ten most similar items {np.mean(kind[similar] == kind[:, None]):.0%} are of the same "
    "kind"
)
new = np.full((1, n_items), np.nan)
new[0, np.flatnonzero(kind == 0)[:3]] = 1.0
ranked = np.argsort(-(best.transform(new) @ best.components_)[0])
print(
    f"after three clicks on kind 0: {np.mean(kind[ranked[:20]] == 0):.0%} of the first twenty are "
    "of kind 0"
)

# %%
assert max(scores[0.1]) > 1.2 * np.mean(popular)
assert np.mean(kind[similar] == kind[:, None]) > 0.5
assert np.mean(kind[ranked[:20]] == 0) > 0.5
