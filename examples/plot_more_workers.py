"""
What more workers save
======================

On a cluster documents are divided among workers, and words travel between them once a sweep: as tokens, to the one
worker that owns the word, and back; or as rows, the topics of all tokens of a word, to everybody.  Each word goes the
cheaper way.  So a worker receives less, and holds less, the more of them there are.  We draw the formulas, and put on
them what small fits received and held.
"""

# %%
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA
from schmp_estimators.datasets import load_docstrings

counter = CountVectorizer(stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b")
X = counter.fit_transform(load_docstrings(["sklearn", "scipy"]).data)
n_of_word, n_words = X.sum(axis=0).A1 if hasattr(X.sum(axis=0), "A1") else X.sum(axis=0), X.shape[1]
n_tokens = n_of_word.sum()
print(f"{X.shape[0]:,} documents, {n_words:,} words, {n_tokens:,} tokens")

# %%
# The formulas: a topic has 2 bytes, a token travels with two proposals.  A row is a list of topics, or K counts of 4
# bytes, whichever is shorter.
import numpy as np

K, TOPIC, TOKEN = 100, 2, 6


def traffic(p):
    """Return the bytes that p workers receive for a token: if all words travel as rows, as tokens, the cheaper way."""
    row = np.where(n_of_word >= 2 * K, 4 * K, TOPIC * n_of_word)
    rows = (p - 1) * (np.minimum(4 * K, TOPIC * n_of_word / p) + row + 20)
    tokens = 2 * TOKEN * n_of_word * (p - 1) / p
    cheaper = (rows <= tokens) | (n_of_word > n_tokens / 4 / p)
    return np.array([rows.sum(), tokens.sum(), np.where(cheaper, rows, tokens).sum()]) / n_tokens


def memory(p):
    """Return the KiB of a worker's tokens, and of its arrays over words: those it has, or the whole vocabulary."""
    tokens = (4 + TOKEN) * n_tokens / p
    has = np.where(n_of_word > 0, 1 - (1 - 1 / p) ** n_of_word * (1 - 1 / p), 1 / p).sum()
    return (tokens + 32 * np.array([has, n_words])) / 2**10


# %%
# The fits.  A cluster of workers in this process counts what travels, and what is in memory at the end of a sweep.
from distributed import Client, LocalCluster


def received(dask_worker):
    return sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log)


def held(dask_worker):
    keep = ("load", "documents", "sample")
    tasks = [task for task in dask_worker.state.tasks.values() if task.state == "memory"]
    return sum(task.nbytes for task in tasks if any(word in str(task.key) for word in keep))


def measure(p):
    """Return the bytes received for a token and sweep, and the KiB that the largest worker holds."""
    seen = []
    with (
        LocalCluster(n_workers=p, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for n_sweeps in (1, 5):
            options = {"sampler": "warp", "init": "uniform", "random_state": 0, "n_shards": p, "max_iter": n_sweeps}
            before = sum(client.run(received).values())
            DistributedLDA(K, **options).fit(X)
            seen.append(sum(client.run(received).values()) - before)
    return (seen[1] - seen[0]) / 4 / n_tokens


measured = {p: measure(p) for p in (2, 4, 8)}
print(measured, [traffic(p) for p in measured])
