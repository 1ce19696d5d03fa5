"""
Documents that arrive in batches
================================

``partial_fit`` takes new documents and never reads old ones again.  Each batch has its own words,
and new words become new columns of the model.  With a half-life, old documents lose weight, so the
model follows the stream.
"""

# %%
# The stream starts with docstrings of three packages.  Further batches come from scikit-learn, then
# SciPy, then Dask.  Some documents of Dask are held out.
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["sklearn", "scipy", "dask"])
package = np.array(docstrings.target)
order = np.random.default_rng(0).permutation(len(package))
first, rest = np.split(order, [600])
rest = rest[np.argsort(package[rest], kind="stable")]  # package by package
held_out, rest = rest[-150:], rest[:-150]
batches = [first, *np.array_split(rest, 8)]


def count(numbers):
    """Return the counts of the words of some documents, and their names."""
    counter = CountVectorizer(
        stop_words="english", min_df=2, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
    )
    counts = counter.fit_transform([docstrings.data[number] for number in numbers])
    return counts, counter.get_feature_names_out()


X_held_out, held_out_words = count(held_out)

# %%
# Each batch has its own word counts.  Words are identified by their names.  After each call we
# record how many words the model has, and how many of the held-out tokens it knows.
from schmp_estimators import DistributedLDA

options = {"doc_topic_prior": 0.1, "topic_word_prior": 0.02, "max_iter": 40, "random_state": 0}
lda = DistributedLDA(12, half_life=2, **options)
n_words, known = [], []
for batch in batches:
    counts, words = count(batch)
    lda.partial_fit(counts, feature_names=words)
    is_known = np.isin(held_out_words, lda.feature_names_)
    n_words.append(len(lda.feature_names_))
    known.append(X_held_out[:, is_known].sum() / X_held_out.sum())

# %%
# The alternative is to keep all documents, and to fit a new model to them.
whole = DistributedLDA(12, **options)
counts, words = count(np.concatenate(batches))
whole.partial_fit(counts, feature_names=words)

# %%
# The vocabulary grows with each package.
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.plot(range(1, len(batches) + 1), n_words, marker="o")
axes.set(xlabel="Call", ylabel="Words of the model", ylim=(0, None), title="The model learns words")

# %%
# The display shows what the batches are about: the share of each topic in the tokens of each call.
from schmp_estimators import TopicDisplay

TopicDisplay.from_estimator(lda, calls=True, topics=8)
plt.show()

# %%
# We compare both models on the held-out documents of Dask, by the words that both know.
shared = np.isin(held_out_words, lda.feature_names_) & np.isin(held_out_words, words)
X_shared, names = X_held_out[:, shared], held_out_words[shared]
stream, anew = (model.perplexity(X_shared, feature_names=names) for model in (lda, whole))
print(
    f"The stream knew {known[0]:.0%} of the tokens after the first call, {known[-1]:.0%} after the "
    "last. "
    f"Perplexity of Dask's documents: {stream:.0f}, of a fit of all documents {anew:.0f}."
)
assert known[-1] > known[0] and stream < anew
