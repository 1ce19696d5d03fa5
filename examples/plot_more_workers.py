"""
What more workers save
======================

A topic model on a cluster divides documents among workers, which exchange words once per
:term:`sweep`. Either the :term:`tokens <token>` of a word are sent to the worker that owns the
word, and back. Or the row of the word, which is its count in every topic, is sent to all workers.
The sampler "warp" chooses the cheaper way for each word. So the more workers there are, the less
each of them receives and keeps. The picture shows this by formulas, and by measurements of small
fits.
"""

# %%
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

counter = CountVectorizer(
    stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(load_docstrings(["sklearn", "scipy"]).data)
n_of_word = np.asarray(X.sum(axis=0)).ravel()
n_tokens, n_words = n_of_word.sum(), len(n_of_word)
print(f"{X.shape[0]:,} documents, {n_words:,} words, {n_tokens:,} tokens")

# %%
# Each small fit runs on a cluster in this process.  Dask's metrics count the bytes that workers
# send each other.  After each sweep we measure the bytes that they keep.
import sys

from distributed import Client, LocalCluster

from schmp_estimators import DistributedLDA


def sent(dask_worker):
    metrics = dask_worker.digests_total.items()
    return sum(total for key, total in metrics if key[-2:] == ("sent to other ranks", "bytes"))


def held(dask_worker):
    """Return the bytes of a shard, and of the rank that works on it: topics and proposals."""
    kept = {key[0].rpartition("-")[0]: value for key, value in dask_worker.data.items()}
    return n_bytes(kept["lda-load"]) + sys.getsizeof(kept["lda-sweeps"])


def n_bytes(value):
    return sum(map(n_bytes, value)) if isinstance(value, tuple) else getattr(value, "nbytes", 0)


class Look:
    """Look at the workers after each sweep."""

    def setup(self, estimator, context):
        self.sent, self.held = [], []

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep":
            self.sent.append(sum(client.run(sent).values()))
            self.held.append(max(client.run(held).values()))

    def teardown(self, estimator, context):
        pass


K, TOPIC, TOKEN, COUNT = 100, 1, 3, 2  # and bytes on the way
measured = {}
for p in (2, 4, 6):
    options = {
        "n_workers": p,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        look = Look()
        lda = DistributedLDA(
            K, sampler="warp", init="uniform", n_shards=p, max_iter=12, random_state=0
        )
        lda.set_callbacks(look).fit(X)
    measured[p] = (look.sent[-1] - look.sent[1]) / 10 / n_tokens, look.held[-1] / 2**10
    print(f"{p} workers: {measured[p][0]:.2f} bytes a token, {measured[p][1]:.0f} KiB")

# %%
# These are the formulas.  Integers are sent in as few bytes as they need: here 1 for a topic, and
# at most 2 for a count.  A token is sent with two proposed topics.  With K topics, the row of a
# word with 2 K tokens or more has a count for each topic; other rows are lists of topics.  The work
# of reading a row counts like 4 bytes for each topic.  A worker keeps 7 bytes for each token, and
# 32 for each word that it owns or has in its documents.  With eight workers or more, small messages
# are sent through other workers, and so nearly twice.  The formulas do not count this.


def traffic(p):
    """Return the bytes for each token that p workers receive.

    Words travel as rows, as tokens, or the cheaper way.
    """
    is_head = n_of_word >= 2 * K
    there, back = [np.where(is_head, float(COUNT * K), TOPIC * n_of_word / n) for n in (p, 1)]
    rows = (p - 1) * (there + back + 4)
    tokens = 2 * TOKEN * n_of_word * (p - 1) / p
    saved = tokens - rows - 4 * K * (p - 1) * is_head
    cheaper = (saved >= 0) | (n_of_word > n_tokens / 4 / p)
    return [one.sum() / n_tokens for one in (rows, tokens, np.where(cheaper, rows, tokens))]


def memory(p):
    """Return the KiB that each of p workers holds.

    It knows the words that it has or owns, or all.
    """
    has_or_owns = 1 - (1 - 1 / p) ** (n_of_word + 1.0)
    return [(7 * n_tokens / p + 32 * n) / 2**10 for n in (has_or_owns.sum(), n_words)]


# %%
import matplotlib.pyplot as plt

numbers = np.unique(np.geomspace(2, 64, 60).astype(int))
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
curves = [("rows", "tokens", "the cheaper way"), ("the words it has or owns", "all words")]
for panel, formula, names, at in zip(panels, (traffic, memory), curves, (0, 1), strict=True):
    for name, line in zip(names, np.transpose([formula(p) for p in numbers]), strict=True):
        panel.plot(numbers, line, label=name)
    panel.plot(
        list(measured),
        [found[at] for found in measured.values()],
        "o",
        color="#2b3a42",
        label="measured",
    )
    panel.set(xscale="log", yscale="log", xlabel="workers")
    panel.set_xticks([2, 4, 8, 16, 32, 64], [2, 4, 8, 16, 32, 64])
    panel.set_xticks([], minor=True)
    panel.legend()
panels[0].set(title="Received for a token, all workers", ylabel="bytes a sweep", ylim=(2, 60))
panels[1].set(title="Held by a worker between sweeps", ylabel="KiB")
plt.show()

# %%
for p, found in measured.items():
    assert abs(found[0] / traffic(p)[2] - 1) < 0.2
    assert abs(found[1] / memory(p)[0] - 1) < 0.1
