"""
From a log to lists, night by night
===================================

A shop has a log of clicks, with repeats, missing items, and events that come a day late.  We clean
the log, and give old clicks less weight.  We fit two models, and judge them by later clicks.  Then
we add each night's clicks, and write recommendations for each user.
"""

# %%
# We generate the log.  There are eight kinds of items, each user likes two of them, and new items
# come every day.
import tempfile

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from dask import delayed
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedSLIM, ModelParallelMF, ranking

rng = np.random.default_rng(0)
n_users, n_items, n_days = 1200, 400, 37
kind = rng.integers(0, 8, n_items)
born = np.where(rng.random(n_items) < 0.4, 0, rng.integers(0, n_days, n_items))
popularity = rng.permutation(1 / (np.arange(n_items) + 8.0))
likes = rng.random((n_users, 8)).argsort(axis=1) < 2


def day_of_clicks(day):
    users = rng.integers(0, n_users, 1500)
    chances = (0.05 + likes[users][:, kind]) * popularity * (born <= day)
    chances *= np.where(day - born < 7, 6.0, 1.0)  # news are clicked more
    sums = chances.cumsum(axis=1)
    items = (sums > rng.random((users.size, 1)) * sums[:, -1:]).argmax(axis=1)
    frame = pd.DataFrame({"user": users, "item": [f"i{item:03}" for item in items]})
    frame["day"] = day - (rng.random(users.size) < 0.05)  # some come a day late
    frame.loc[rng.random(users.size) < 0.01, "item"] = None  # and some without an item
    return frame


nights = [day_of_clicks(day) for day in range(n_days)]
log = pd.concat(nights[:30], ignore_index=True)
print(f"{len(log)} events, {log['item'].isna().sum()} without an item, "
      f"{log.duplicated(['user', 'item']).sum()} repeats")  # fmt: skip

# %%
# We make one row for each pair of user and item.  Its value is the sum of its clicks, each of which
# loses half of its weight every two weeks.
HALF_LIFE = 14.0


def counted(events, today):
    events = events.dropna()
    faded = events.assign(value=0.5 ** ((today - events["day"]) / HALF_LIFE))
    return faded.groupby(["user", "item"], as_index=False).agg({"value": "sum", "day": "max"})


pairs = counted(log, today=29)

# %%
# Both models are judged by the latest tenth of the pairs, because a random split would let them
# look into the future.  Both take the same pairs and values.
split = ranking.TimeSplit(test_size=0.1)
cv = list(split.split(pairs[["user", "item"]], pairs["value"], groups=pairs["day"]))
searches = {
    "items": GridSearchCV(
        DistributedSLIM(confidence=np.sqrt),
        {"l2_reg": [5.0, 20.0], "l1_reg": [0.0, 1.0]},
        cv=cv, scoring=ranking.RankingScorer(),
    ),
    "factors": GridSearchCV(
        ModelParallelMF(16, unobserved_weight=0.1, confidence=np.sqrt, random_state=0),
        {"alpha": [0.03, 0.1], "unobserved_weight": [0.1, 0.3]},
        cv=cv, scoring=ranking.RankingScorer(),
    ),
}  # fmt: skip
for name, search in searches.items():
    search.fit(pairs[["user", "item"]], pairs["value"])
    print(f"{name}: NDCG {search.best_score_:.3f} with {search.best_params_}")

# %%
# Seven nights follow.  Each morning's lists are judged by the new pairs of the day.  At night the
# day's clicks are added to both models, including pairs that they know.  A third model is never
# updated.
item_model = searches["items"].best_estimator_
factor_model = searches["factors"].best_estimator_
stays = clone(item_model).fit(pairs[["user", "item"]], pairs["value"])
known = set(zip(pairs["user"], pairs["item"], strict=True))
scorer = ranking.RankingScorer()
found = {"items": [], "factors": [], "items, never updated": []}
for today in range(30, 37):
    events = counted(nights[today], today)
    asked = zip(events["user"], events["item"], strict=True)
    fresh = np.array([pair not in known for pair in asked])
    judged = events[fresh & events["item"].isin(item_model.item_ids_)]  # what can be recommended
    for name, model in zip(found, (item_model, factor_model, stays), strict=True):
        found[name].append(scorer(model, judged[["user", "item"]], judged["value"]))
    for model in (item_model, factor_model):
        model.partial_fit(events[["user", "item"]], events["value"])
    known |= set(zip(events["user"], events["item"], strict=True))

figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for name, values in found.items():
    axes.plot(range(30, 37), values, marker="o", label=f"{name}: mean {np.mean(values):.3f}")
axes.set(xlabel="day", ylabel="NDCG@10 of the day", title="Seven nights")
axes.legend(fontsize=8)
plt.show()

# %%
# We write the lists of all users.  Their ids are a Dask collection, so the lists of each partition
# are made and written separately.  On a cluster, the workers do this.


def lists_of(frame, model):
    items, scores = model.recommend(frame["user"], n=5)
    users = np.repeat(frame["user"], 5)
    return pd.DataFrame({"user": users, "item": items.ravel(), "score": scores.ravel()})


folder = tempfile.mkdtemp()
like = pd.DataFrame({"user": [0], "item": ["i000"], "score": [0.0]})
ids = dd.from_pandas(pd.DataFrame({"user": item_model.user_ids_}), npartitions=4)
ids.map_partitions(lists_of, delayed(item_model), meta=like).to_parquet(folder, write_index=False)
lists = pd.read_parquet(folder)
print(lists.head())

# %%
# Once a week, we fit anew.  Old clicks have lost weight, and items that are gone can be left out.
pairs = counted(pd.concat(nights), today=36)
weekly = clone(item_model).fit(pairs[["user", "item"]], pairs["value"])
print(f"{weekly.coef_.nnz} coefficients of {len(weekly.item_ids_)} items")

# %%
assert lists["item"].notna().all()
assert np.mean(found["items"]) > 0.9 * np.mean(found["factors"])
