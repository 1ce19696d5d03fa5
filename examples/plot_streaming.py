"""
Documents that arrive in batches
================================

``partial_fit`` takes new documents and never reads old ones again.  The first batch shapes the topics.  Then we watch
what each further batch is about, and whether the model still improves.
"""

# %%
# The stream starts with a mixture of three packages.  Further batches come from scikit-learn, then SciPy, then Dask.
# Columns must be the same for all batches, so the first batch determines the vocabulary.
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["sklearn", "scipy", "dask"])
rng = np.random.default_rng(0)
order = rng.permutation(len(docstrings.data))
held_out, first, rest = np.split(order, [400, 1900])
package = np.array(docstrings.target)
rest = rest[np.argsort(package[rest], kind="stable")]  # package by package
batches = [first, *np.array_split(rest, 8)]


def texts(numbers):
    return [docstrings.data[number] for number in numbers]


counter = CountVectorizer(
    stop_words="english", min_df=4, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
counter.fit(texts(first))
X_held_out = counter.transform(texts(held_out))

# %%
# After each batch we record how well held-out documents are predicted, and how many tokens each topic has so far.
from schmp_estimators import DistributedLDA

lda = DistributedLDA(12, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=40, random_state=0)
perplexity, sizes = [], [np.zeros(12, int)]
for batch in batches:
    lda.partial_fit(counter.transform(texts(batch)))
    perplexity.append(lda.perplexity(X_held_out))
    sizes.append(lda.topic_sizes_)

# %%
# The alternative is to keep all documents and fit them again.
whole = DistributedLDA(12, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=40, random_state=0)
whole.fit(counter.transform(texts(np.concatenate(batches))))
best = whole.perplexity(X_held_out)

# %%
# The left picture shows what the model learns from the stream.  The batches from SciPy help most, because half of the
# held-out documents are from SciPy.  Old documents keep the topics of an earlier, worse model, so a fit of all
# documents is better.  The right picture shows the growth of the topics, that is, what each batch is about.
import matplotlib.pyplot as plt

growth = np.diff(sizes, axis=0).T
share = 100 * growth / growth.sum(axis=0)
largest = np.argsort(-share.max(axis=1))[:6]
names = [
    ", ".join(row[:3]) for row in lda.top_words(3, feature_names=counter.get_feature_names_out())
]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
left.plot(perplexity, marker="o", label="partial_fit")
left.axhline(best, color="#7a8a93", linestyle="--", label="a fit of all at once")
left.set(
    xlabel="Batch", ylabel="Perplexity of held-out documents", title="The model goes on learning"
)
left.legend()
for topic in largest:
    right.plot(share[topic], label=names[topic])
right.set(
    xlabel="Batch",
    ylabel="Share of the topic in the batch, percent",
    title="What batches are about",
)
right.legend(fontsize="small")
plt.show()

# %%
print(
    f"Perplexity after the first batch {perplexity[0]:.0f}, after the last {perplexity[-1]:.0f}, of one fit {best:.0f}."
)
assert perplexity[-1] < perplexity[0]
