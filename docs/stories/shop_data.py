import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n_users, n_items, n_days = 900, 300, 36
kind = rng.integers(0, 8, n_items)  # customers like two of eight kinds
likes = rng.random((n_users, 8)).argsort(axis=1) < 2
popular = rng.permutation(1 / (np.arange(n_items) + 8.0))


def events_of(day, n=1000):
    users = rng.integers(0, n_users, n)
    chances = ((0.03 + likes[users][:, kind]) * popular).cumsum(axis=1)
    items = (chances > rng.random((n, 1)) * chances[:, -1:]).argmax(axis=1)
    seconds = rng.integers(0, 86_400, n)
    time = pd.Timestamp("2026-03-01") + pd.to_timedelta(day * 86_400 + seconds, unit="s")
    event = rng.choice(["view", "cart", "buy", "return"], n, p=[0.7, 0.15, 0.1, 0.05])
    table = pd.DataFrame({"time": time, "user": users, "item": items, "event": event})
    table["user"] = "u" + table["user"].astype(str).str.zfill(4)
    table["item"] = "art-" + table["item"].astype(str).str.zfill(3)
    table.loc[rng.random(n) < 0.05, "user"] = None  # not signed in
    table.loc[::25, "user"] = "robot"  # reads all articles
    table.loc[::25, "item"] = [f"art-{k:03}" for k in rng.integers(0, n_items, len(table[::25]))]
    table.loc[13::97, "user"] = "test-7"
    table.loc[::9, "item"] = " " + table["item"].str.upper()  # from an old app
    table = pd.concat([table, table.sample(60, random_state=day)])
    return table.assign(time=table["time"].astype(str))  # as it is in the file


days = [events_of(day) for day in range(n_days)]
log = pd.concat(days[:30], ignore_index=True)
