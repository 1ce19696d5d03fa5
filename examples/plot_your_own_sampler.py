"""
Your own sampler: collapsed Gibbs
=================================

Collapsed Gibbs sampling draws the topic of each token from its distribution given the topics of all
other tokens (Griffiths and Steyvers, PNAS 2004).  In the plainest form, the time for a token grows
with the number of topics.  We write this form as two functions.  Threads, workers of a cluster,
files, checkpoints and searches come from `DistributedLDA`.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedLDA
from schmp_estimators.sampling import (
    DocumentSampler,
    add_row,
    beta_of,
    document_loop,
    first_above,
    mix,
    unit,
)


def begin(cell):  # compiled: what the sampler keeps while it visits tokens
    n_topics = len(cell.total)
    return np.empty(n_topics), np.empty(n_topics)


def draw(own, cell, document, token, word, old, counter):  # compiled: the topic of a token
    row, ends = own
    row[:] = 0.0
    add_row(cell.block, word, row)  # tokens of the word in each topic
    total = 0.0
    for k in range(len(row)):
        own_token = 1 if k == np.int64(old) else 0  # which is left out of all counts
        in_document = document.tokens[k] - own_token + cell.alpha[k]
        in_word = row[k] - own_token + beta_of(cell.seeds, cell.first + word, k, cell.beta)
        inverse = document.inverse_less[k] if own_token else document.inverse[k]
        total += in_document * in_word * inverse
        ends[k] = total
    return np.uint64(first_above(ends, 0, len(ends), unit(mix(counter)) * total))


class Gibbs(DocumentSampler):
    kernel = document_loop(begin, draw)


# %%
# It is right
# -----------
# The package's sampler "sparse" draws from the same distribution, with shorter sums.  Both samplers
# are exact with one shard, so the joint log-likelihood must rise to the same level.
rng = np.random.default_rng(0)
topics = np.kron(np.eye(5), np.full(12, 1 / 12)) + 0.002
topics /= topics.sum(axis=1, keepdims=True)
shares = rng.dirichlet(np.full(5, 0.1), 150)
X = np.array([rng.multinomial(40, share) for share in shares @ topics])


def make(sampler, **options):
    usual = {"max_iter": 40, "evaluate_every": 1, "random_state": 0} | options
    return DistributedLDA(5, doc_topic_prior=0.2, topic_word_prior=0.1, sampler=sampler, **usual)


figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
level = {}
for name, sampler, colour in ("Gibbs", Gibbs(), "C0"), ("sparse", "sparse", "C1"):
    curves = [
        [record["log_likelihood"] for record in make(sampler, random_state=seed).fit(X).history_]
        for seed in range(5)
    ]
    ax.plot(np.transpose(curves) / X.sum(), color=colour, linewidth=0.8)
    ax.plot([], [], color=colour, label=name)
    level[name] = np.mean(curves, axis=0)[20:].mean() / X.sum()
ax.set(xlabel="Sweeps", ylabel="Joint log-likelihood per token", title="Five fits with each")
ax.legend()
plt.show()
print(f"Level with Gibbs {level['Gibbs']:.3f}, with sparse {level['sparse']:.3f}")
assert abs(level["Gibbs"] - level["sparse"]) < 0.03

# %%
# It runs everywhere
# ------------------
# With two :term:`shards <shard>`, fits with threads, on a cluster, from files, and after an
# interruption give the same result.
two = make(Gibbs(), n_shards=2).fit(X)


def is_same(other):
    return (other.topic_word_counts_ != two.topic_word_counts_).nnz == 0


assert is_same(make(Gibbs(), n_shards=2, n_jobs=2).fit(X))
with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster):
    assert is_same(make(Gibbs(), n_shards=2).fit(X))
with tempfile.TemporaryDirectory() as folder:
    assert is_same(make(Gibbs(), n_shards=2, spill=folder).fit(X))
    kept = {"n_shards": 2, "checkpoint": Path(folder, "gibbs.npz")}
    make(Gibbs(), **kept, max_iter=20).fit(X)
    assert is_same(make(Gibbs(), **kept).fit(X))

# %%
# A grid search can choose between samplers as between other parameters.
search = GridSearchCV(make("auto", max_iter=20), {"sampler": [Gibbs(), "warp"]}, cv=2).fit(X)
for sampler, score in zip(
    search.cv_results_["param_sampler"], search.cv_results_["mean_test_score"], strict=True
):
    print(f"{sampler!r:8} log-likelihood of new documents {score:.0f}")
