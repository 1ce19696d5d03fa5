"""
Text on Dask
============

The workers turn texts in files or in a bag into counts, chunk by chunk.  Topics are then fitted on
the same workers.  Neither texts nor counts are sent to the client.
"""

# %%
# Here the cluster is in this process.  With ``Client("tcp://scheduler:8786")`` the rest of the
# program is the same.
from distributed import Client, LocalCluster

cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
client = Client(cluster)

# %%
# The texts are in partitions.  In practice they would come from
# ``dask.bag.read_text("texts-*.txt.gz")``, or from the text column of
# ``dask.dataframe.read_parquet(...)``.  The rest of the program needs only the method
# ``to_delayed()``, which both have.
import dask.bag

from schmp_estimators.datasets import load_docstrings

docstrings = load_docstrings(["scipy", "sklearn"])
texts = dask.bag.from_sequence(docstrings.data, npartitions=6)

# %%
# All chunks need the same columns, so we find the vocabulary first.  The workers count in how many
# documents each word occurs; only these numbers are sent to the client.
from collections import Counter

import dask
from sklearn.feature_extraction.text import CountVectorizer

analyse = CountVectorizer(stop_words="english", token_pattern=r"\b[a-z]{3,}\b").build_analyzer()


@dask.delayed
def document_frequencies(part):
    return Counter(word for text in part for word in set(analyse(text)))


@dask.delayed
def together(counters):
    return sum(counters, Counter())


found = together([document_frequencies(part) for part in texts.to_delayed()]).compute()
vocabulary = sorted(word for word, n in found.items() if 5 <= n <= 0.1 * len(docstrings.data))
print(f"{len(found):,} words, {len(vocabulary):,} of them in at least 5 texts and at most a tenth")

# %%
# A vectorizer with this vocabulary turns each partition into a sparse chunk of counts.  ``fit``,
# ``transform`` and ``coherence`` accept the list of chunks.  The topic proportions of ``transform``
# are lazy.
from schmp_estimators import DistributedLDA

counter = dask.delayed(CountVectorizer(vocabulary=vocabulary, token_pattern=r"\b[a-z]{3,}\b"))
chunks = [counter.transform(part) for part in texts.to_delayed()]
lda = DistributedLDA(
    16, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=40, random_state=0
).fit(chunks)
theta = lda.transform(chunks)
coherence = lda.coherence(chunks)
print(theta[0], f"mean coherence {coherence.mean():.2f}", sep="\n")

# %%
# These are the most coherent topics.
import matplotlib.pyplot as plt
import numpy as np

from schmp_estimators import TopicDisplay

TopicDisplay.from_estimator(lda, topics=np.argsort(-coherence)[:8], feature_names=vocabulary)
plt.show()

# %%
# A fitted model needs no cluster.  A fit without a cluster gives bit-for-bit the same result.
client.close()
cluster.close()
X = CountVectorizer(vocabulary=vocabulary, token_pattern=r"\b[a-z]{3,}\b").transform(
    docstrings.data
)
here = DistributedLDA(
    16, doc_topic_prior=0.1, topic_word_prior=0.02, max_iter=40, random_state=0
).fit(X)
assert (here.topic_word_counts_ != lda.topic_word_counts_).nnz == 0
assert (here.coherence(X) == coherence).all()
print("The same topics and the same coherence without the cluster, to the bit.")
