"""
Topics of the packages on this machine
======================================

Docstrings are real prose, and they are installed already.  Each becomes a bag of words; twenty topics are found without
knowing which package a docstring is from.  Then we look: which topics do which packages talk about?
"""

# %%
# From text to counts.  Words in more than a tenth of the docstrings, such as *returns*, say nothing about any of them.
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["numpy", "scipy", "sklearn", "dask", "distributed", "numba"])
counter = CountVectorizer(stop_words="english", min_df=8, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b")
X = counter.fit_transform(docstrings.data)
print(f"{X.shape[0]:,} docstrings, {X.shape[1]:,} words, {X.sum():,} tokens")

# %%
# A small ``doc_topic_prior`` says that a docstring is about few things, a small ``topic_word_prior`` that a topic uses
# few words.
from schmp_estimators import DistributedLDA

lda = DistributedLDA(20, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=60, random_state=0)
theta = lda.fit_transform(X)

# %%
# The words of a topic, by how common they are in it and how rare elsewhere.
import numpy as np

counts = lda.components_
weight = np.sqrt(counts) * counts / counts.sum(axis=0)
words = counter.get_feature_names_out()
titles = [", ".join(words[row.argsort()[::-1][:4]]) for row in weight]

# %%
# What the packages talk about: the mean proportion of each topic in their docstrings.
import matplotlib.pyplot as plt

package = np.array(docstrings.target)
share = np.array([theta[package == p].mean(axis=0) for p in range(len(docstrings.target_names))])
order = np.lexsort((-share.max(axis=0), share.argmax(axis=0)))

figure, ax = plt.subplots(figsize=(8.6, 7), layout="constrained")
image = ax.imshow(100 * share[:, order].T, cmap="YlGnBu", aspect="auto", vmin=0, vmax=35)
ax.set_xticks(range(len(share)), docstrings.target_names)
ax.set_yticks(range(len(order)), [titles[k] for k in order])
ax.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
ax.grid(False)
for (row, column), value in np.ndenumerate(100 * share[:, order].T):
    if value >= 5:
        ax.text(column, row, f"{value:.0f}", ha="center", va="center", color="white" if value > 20 else "black")
figure.colorbar(image, extend="max", label="Share of the topic in the docstrings of the package, percent")
plt.show()

# %%
# Are the topics good for anything but looking?  A linear classifier gets nothing but the twenty proportions.
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score

accuracy = cross_val_score(RidgeClassifier(), np.log(theta), package, cv=3).mean()
most_frequent = np.bincount(package).max() / len(package)
print(f"Twenty numbers name the package of {accuracy:.0%} of docstrings; the largest package has {most_frequent:.0%}.")
assert accuracy > most_frequent + 0.15
