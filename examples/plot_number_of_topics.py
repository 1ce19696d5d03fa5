"""
How many topics?
================

Three measures need no labels.  *Perplexity* measures how well one half of the words of a new
document predicts the other half.  *Coherence* measures how often the words of a topic occur
together.  *Stability* measures whether other seeds find the same topics.  We generate a corpus with
a known number of topics.
"""

# %%
# There are twenty topics.  Each document mixes a few of them.
import numpy as np

rng = np.random.default_rng(0)
N_TOPICS, N_WORDS, N_DOCUMENTS, LENGTH = 20, 1000, 1500, 80
phi = rng.dirichlet(np.full(N_WORDS, 0.05), N_TOPICS)
theta = rng.dirichlet(np.full(N_TOPICS, 0.1), N_DOCUMENTS)
X = np.array([rng.multinomial(LENGTH, row) for row in theta @ phi])

# %%
# Each number gets three fits to the same documents, with different seeds.  A tenth of the documents
# is held out.
import pandas as pd

from schmp_estimators import DistributedLDA, choose_n_components

numbers = [5, 10, 20, 40, 80, 160]
lda = DistributedLDA(doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=80)
found = choose_n_components(lda, X, numbers, random_state=0)
print(pd.DataFrame(found.table_).round(3).to_string(index=False))
print(found.reason_)

# %%
# A perplexity of 100 means that words are as hard to predict as a choice among 100 equally likely
# words.  The dashed line is the perplexity of the true topics and proportions.  Bars in the left
# picture are standard errors over documents.  The others are standard deviations over fits or pairs
# of fits.
import matplotlib.pyplot as plt

seen = X > 0
truth = np.exp(-(X[seen] * np.log((theta @ phi)[seen])).sum() / X.sum())
left, middle, right = found.plot()
left.axhline(truth, color="#7a8a93", linestyle="--", label="the true model")
left.set(title="Too many predict nearly as well")
middle.set(title="Too many are less coherent")
right.set(title="Other seeds find the true ones")
left.legend()
plt.show()

# %%
# With too few topics, several true topics share one.  With too many, some true topics are divided,
# and each seed divides different ones.
perplexity = dict(zip(found.table_["n_components"], found.table_["perplexity"], strict=True))
few, many = perplexity[10] / perplexity[20] - 1, perplexity[40] / perplexity[20] - 1
print(f"The perplexity with 10 topics is {few:.0%} higher than with 20, that with 40 {many:+.0%}.")
most_coherent = found.table_["n_components"][found.table_["coherence"].argmax()]
assert found.n_components_ == most_coherent == N_TOPICS and few > 0.2 and many < 0.1
