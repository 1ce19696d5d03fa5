"""
Similar documents
=================

Fifty topic proportions describe a docstring nearly as well as thousands of word counts.  They also
explain why two docstrings are similar, by the topics that both have.
"""

# %%
# The data are word counts of docstrings of three packages, and the part of the package that each
# docstring is from.
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["numpy", "scipy", "sklearn"])
counter = CountVectorizer(
    stop_words="english", min_df=5, max_df=0.1, token_pattern=r"\b[a-z]{3,}\b"
)
X = counter.fit_transform(docstrings.data)
part = np.array(
    [
        f"{docstrings.target_names[package]}.{path.split('/')[0].removesuffix('.py')}"
        for package, path in zip(docstrings.target, docstrings.filenames, strict=True)
    ]
)
print(f"{X.shape[0]:,} docstrings of {len(set(part))} parts of packages")

# %%
# Topic proportions sum to 1.  The Euclidean distance between their square roots is, up to a factor,
# the Hellinger distance, which suits proportions.  So any index for Euclidean vectors can find
# neighbours.
from sklearn.neighbors import NearestNeighbors

from schmp_estimators import DistributedLDA

N = 100
lda = DistributedLDA(50, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=60, random_state=0)
places = np.sqrt(lda.fit_transform(X))
_, by_topics = NearestNeighbors(n_neighbors=N + 1).fit(places).kneighbors(places)

# %%
# For comparison we use the cosine similarity of the word counts.
_, by_words = NearestNeighbors(n_neighbors=N + 1, metric="cosine").fit(X).kneighbors(X)

# %%
# This is one docstring, with its topics and its neighbours.
query = next(
    i
    for i, text in enumerate(docstrings.data)
    if text.lstrip().startswith("Singular Value Decomposition.")
)
names = lda.top_words(5, feature_names=counter.get_feature_names_out())
for topic in np.argsort(-places[query])[:2]:
    print(f"{places[query, topic] ** 2:4.0%} {' '.join(names[topic])}")
for other in [query, *by_topics[query][by_topics[query] != query][:5]]:
    print(f"{part[other]:18} {' '.join(docstrings.data[other].split())[:90]}")

# %%
# How often is a neighbour from the same part of the same package?
import matplotlib.pyplot as plt

same = {}
for name, found in (("50 topics", by_topics), (f"{X.shape[1]:,} words", by_words)):
    others = np.array([row[row != i][:N] for i, row in enumerate(found)])
    same[name] = (part[others] == part[:, None]).mean(axis=0)
_, sizes = np.unique(part, return_counts=True)
chance = (sizes**2).sum() / sizes.sum() ** 2

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in same.items():
    ax.plot(np.arange(1, N + 1), 100 * values, label=name)
ax.axhline(100 * chance, color="#7a8a93", linestyle="--", label="any docstring")
ax.set(
    xlabel="Which neighbour, the nearest first",
    ylabel="From the same part of the package, percent",
    ylim=(0, None),
)
ax.set_title("Beyond the very nearest, topics find more of what is alike")
ax.legend()
plt.show()

# %%
# Word counts are better for the nearest neighbour; topics are better for all further ones.
topics, words = same.values()
for first, last in ((0, 10), (10, N)):
    of_topics, of_words = topics[first:last].mean(), words[first:last].mean()
    print(
        f"Neighbours {first + 1} to {last} from the same part: {of_topics:.0%} by topics, "
        f"{of_words:.0%} by words."
    )
assert topics.mean() > 5 * chance
