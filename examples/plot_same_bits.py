"""
The same bits, however the work is divided
==========================================

With the default sampler of topic models, the number of threads or :term:`shards <shard>` and the
use of a cluster change only the time of a fit.  We fit the same corpus in seven ways, and compare
digests of the fitted counts.
"""

# %%
import hashlib

from distributed import Client, LocalCluster
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA
from schmp_estimators.datasets import load_docstrings

X = CountVectorizer(stop_words="english", min_df=5, max_df=0.1).fit_transform(
    load_docstrings(["sklearn"]).data
)
print(f"{X.shape[0]:,} documents, {X.shape[1]:,} words, {X.sum():,} tokens")


def fit(sampler="warp", **params):
    """Fit, and show a digest of the counts."""
    lda = DistributedLDA(
        20, sampler=sampler, max_iter=10, evaluate_every=1, random_state=0, **params
    ).fit(X)
    counts = lda.topic_word_counts_
    digest = hashlib.sha256(
        counts.indptr.tobytes() + counts.indices.tobytes() + counts.data.tobytes()
    ).hexdigest()[:12]
    print(f"{digest}  {sampler:6s} {lda.n_shards_} shard{'s' * (lda.n_shards_ > 1)} {params}")
    return digest, [record["log_likelihood"] / X.sum() for record in lda.history_]


# %%
# The first five fits run in this process, and the others on a cluster of two workers.
runs = [fit(), fit(n_jobs=2), fit(n_shards=2), fit(n_shards=3), fit(n_shards=8, n_jobs=2)]
cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
with cluster, Client(cluster):
    runs += [fit(n_shards=2), fit(n_shards=5)]

digests = {digest for digest, _ in runs}
print(f"{len(runs)} fits, {len(digests)} result")
assert len(digests) == 1

# %%
# This is not true of every sampler.  The exact sampler "fplus" updates the totals of topics after
# each token, so its shards see slightly different totals.  Each number of shards gives a different
# result.
exact = [fit("fplus", n_shards=n) for n in (1, 2, 3, 8)]
assert len({digest for digest, _ in exact}) == 4

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), sharey=True, layout="constrained")
for ax, group, title in zip(
    axes, (runs, exact), ("“warp”: 7 fits", "“fplus”: 1, 2, 3, 8 shards"), strict=True
):
    first = group[0][1]
    for _, curve in group:
        ax.plot(
            range(1, len(curve) + 1),
            [a - b for a, b in zip(curve, first, strict=True)],
            linewidth=1.6,
        )
    ax.set(title=title, xlabel="Sweeps")
axes[1].legend(["1 shard", "2 shards", "3 shards", "8 shards"], ncols=2)
axes[0].set_ylabel("Log-likelihood per token,\ndifference from the first fit")
plt.show()
