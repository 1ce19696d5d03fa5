"""
How many topics?
================

Two measures need no labels, and can be computed for new documents.  *Perplexity* says how well one half of their tokens
predicts the other half.  *Coherence* says whether the words of a topic occur together.  We generate a corpus with a
known number of topics.
"""

# %%
# There are twenty topics; each document mixes a few of them.
import numpy as np

rng = np.random.default_rng(0)
N_TOPICS, N_WORDS, N_DOCUMENTS, LENGTH = 20, 1000, 1500, 80
phi = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
theta = rng.dirichlet(np.full(N_TOPICS, 0.1), N_DOCUMENTS)
X = np.array([rng.multinomial(LENGTH, row) for row in theta @ phi])

# %%
# Cross-validation over the number of topics, with both measures.
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedLDA


def perplexity(lda, X, y=None):
    return -lda.perplexity(X)  # more is better, for scikit-learn


def coherence(lda, X, y=None):
    return lda.coherence(X).mean()


numbers = [2, 5, 10, 20, 40, 80]
lda = DistributedLDA(doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=80, random_state=0)
search = GridSearchCV(
    lda,
    {"n_components": numbers},
    scoring={"perplexity": perplexity, "coherence": coherence},
    refit="perplexity",
    cv=3,
).fit(X)

# %%
# A perplexity of 100 means that tokens are as hard to predict as a choice among 100 equally likely words.  The dashed
# line is the perplexity of the true topics and proportions.
import matplotlib.pyplot as plt

splits = {
    name: np.array([search.cv_results_[f"split{i}_test_{name}"] for i in range(3)])
    for name in ("perplexity", "coherence")
}
seen = X > 0
truth = np.exp(-(X[seen] * np.log((theta @ phi)[seen])).sum() / X.sum())

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
for ax, values in ((left, -splits["perplexity"]), (right, splits["coherence"])):
    ax.plot(numbers, values.T, "o", color="#2f7ea6", alpha=0.4, markersize=4)
    ax.plot(numbers, values.mean(axis=0), color="#2f7ea6", label="held-out documents")
    ax.axvline(N_TOPICS, color="#e08e45", label=f"the true number, {N_TOPICS}")
    ax.set_xscale("log")
    ax.set_xticks(numbers, [str(n) for n in numbers])
    ax.minorticks_off()
    ax.set_xlabel("n_components")
left.axhline(truth, color="#7a8a93", linestyle="--", label="the true model")
left.set(ylabel="Perplexity", title="Too many topics predict nearly as well")
right.set(ylabel="Mean coherence of the topics (NPMI)", title="Too many topics are less coherent")
left.legend()
plt.show()

# %%
mean = dict(zip(numbers, -splits["perplexity"].mean(axis=0), strict=True))
coherent = dict(zip(numbers, splits["coherence"].mean(axis=0), strict=True))
few, many = mean[10] / mean[20] - 1, mean[80] / mean[20] - 1
print(
    f"The perplexity with 10 topics is {few:.0%} higher than with {N_TOPICS}, that with 80 topics {many:.0%}."
)
best, most_coherent = search.best_params_["n_components"], max(coherent, key=coherent.get)
print(f"There are {N_TOPICS} topics: perplexity puts {best} first, and coherence {most_coherent}.")
assert best in (20, 40) and few > 0.2 and many < 0.1 and most_coherent == N_TOPICS
