"""
Topics of my documents
======================

Docstrings are real texts that are already installed.  The model sees only their word counts, not
which package a docstring is from, and finds twenty topics.  Then we ask what the topics are about,
which packages use them, and whether they are good.
"""

# %%
# First we turn texts into counts.  Words in more than a tenth of the docstrings, such as *returns*,
# say little about them, and are left out.
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["numpy", "scipy", "sklearn", "dask", "distributed", "numba"])
counter = CountVectorizer(
    stop_words="english", min_df=8, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(docstrings.data)
words = counter.get_feature_names_out()
print(f"{X.shape[0]:,} docstrings, {X.shape[1]:,} words, {X.sum():,} tokens")

# %%
# With a small ``doc_topic_prior`` a docstring has few topics; with a small ``topic_word_prior`` a
# topic has few words.
from schmp_estimators import DistributedLDA

lda = DistributedLDA(20, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=60, random_state=0)
theta = lda.fit_transform(X)

# %%
# The picture shows the words of the eight largest topics.  The words are ranked by *relevance*,
# which combines how probable a word is in the topic, and how much more probable it is there than
# elsewhere.  Bars are the probabilities.
import matplotlib.pyplot as plt

from schmp_estimators import TopicDisplay

TopicDisplay.from_estimator(lda, topics=8, feature_names=words)
plt.show()

# %%
# This picture shows what the packages are about: the mean proportion of each topic in their
# docstrings.
TopicDisplay.from_estimator(
    lda,
    X,
    docstrings.target,
    topics=20,
    feature_names=words,
    display_labels=docstrings.target_names,
)
plt.show()

# %%
# How certain are these shares?  The intervals take the topics as given, and are short if a package
# has many docstrings.
import numpy as np

packages = np.array(docstrings.target_names)[docstrings.target]
shares = lda.topic_shares(X, packages, n_draws=100, random_state=0)
TopicDisplay.from_estimator(lda, shares=shares, topics=4, feature_names=words)
plt.show()

# %%
# Topics differ in quality.  Coherence measures whether the most probable words of a topic occur in
# the same docstrings.
import pandas as pd

summary = pd.DataFrame(lda.summary(X, 6, feature_names=words)).sort_values("coherence")
print(summary[["share", "coherence", "exclusivity", "words"]].round(2).to_string())

# %%
# This table has the topic diagnostics of the program MALLET.  Then we read the docstrings with the
# highest proportion of the most distinctive topic.
table = pd.DataFrame(lda.topic_diagnostics(X, 6, feature_names=words, random_state=0))
columns = ["tokens", "corpus_dist", "exclusivity", "document_entropy", "words"]
print(table.sort_values("corpus_dist", ascending=False)[columns].head(4).round(2).to_string())
documents, _ = lda.top_documents(proportions=theta, n_documents=3)
for number in documents[table["corpus_dist"].idxmax()]:
    print(docstrings.data[number].strip().splitlines()[0])
assert table["tokens"].sum() == X.sum()

# %%
# Are the topics good features?  A linear classifier gets only the twenty proportions.
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import cross_val_score

package = np.array(docstrings.target)
accuracy = cross_val_score(RidgeClassifier(), np.log(theta), package, cv=3).mean()
most_frequent = np.bincount(package).max() / len(package)
print(
    f"Twenty numbers name the package of {accuracy:.0%} of docstrings; the largest package has "
    f"{most_frequent:.0%}."
)
assert accuracy > most_frequent + 0.15
