"""
How many topics?
================

``score`` is the log-likelihood of documents, one half of their tokens predicted from the other half.  It needs no
labels, so scikit-learn's model selection can choose ``n_components``.  We make a corpus of which we know the answer.
"""

# %%
# Twenty topics; each document mixes a few of them.
import numpy as np

rng = np.random.default_rng(0)
N_TOPICS, N_WORDS, N_DOCUMENTS, LENGTH = 20, 1000, 1500, 80
phi = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
theta = rng.dirichlet(np.full(N_TOPICS, 0.1), N_DOCUMENTS)
X = np.array([rng.multinomial(LENGTH, row) for row in theta @ phi])

# %%
# Cross-validation over the number of topics.
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedLDA

numbers = [2, 5, 10, 20, 40, 80]
lda = DistributedLDA(doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=80, random_state=0)
search = GridSearchCV(lda, {"n_components": numbers}, cv=3).fit(X)
best = search.best_params_["n_components"]

# %%
# Scores as perplexities: as if each token had to be chosen among so many equally likely words.  The dashed line is what
# the true topics and proportions would reach.
import matplotlib.pyplot as plt

splits = np.array([search.cv_results_[f"split{i}_test_score"] for i in range(3)])
perplexity = np.exp(-splits / (N_DOCUMENTS / 3 * LENGTH))
seen = X > 0
truth = np.exp(-(X[seen] * np.log((theta @ phi)[seen])).sum() / X.sum())

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
ax.plot(numbers, perplexity.T, "o", color="#2f7ea6", alpha=0.4, markersize=4)
ax.plot(numbers, perplexity.mean(axis=0), color="#2f7ea6", label="held-out documents")
ax.axhline(truth, color="#7a8a93", linestyle="--", label="the true model")
ax.axvline(N_TOPICS, color="#e08e45", label=f"the true number, {N_TOPICS}")
ax.set_xscale("log")
ax.set_xticks(numbers, [str(n) for n in numbers])
ax.minorticks_off()
ax.set(xlabel="n_components", ylabel="Perplexity", title="Too few topics cost much, too many cost little")
ax.legend()
plt.show()

# %%
mean = dict(zip(numbers, perplexity.mean(axis=0), strict=True))
few, many = mean[10] / mean[20] - 1, mean[80] / mean[20] - 1
print(f"The corpus has {N_TOPICS} topics; cross-validation puts {best} first.")
print(f"The perplexity with 10 topics is {few:.0%} higher than with 20, that with 80 topics {many:.0%}.")
assert best in (20, 40) and few > 0.2 and many < 0.1
