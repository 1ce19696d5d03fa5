"""Topics of the Python packages on this machine.

The text is the docstrings of installed scientific packages: nothing is downloaded, and no cluster is needed.

    python examples/quickstart.py              # in this process, one thread per core
    python examples/quickstart.py --cluster    # the same fit on worker processes: the same result, to the bit
"""

import argparse
import hashlib
import os
import time

import numpy as np
from distributed import Client, LocalCluster
from sklearn.callback import ProgressBar
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from schmp_estimators import DistributedLDA, HeldOutPerplexity
from schmp_estimators.datasets import load_docstrings

N_TOPICS = 50
#: Words of reStructuredText and of every signature, which say nothing about a topic.
NOISE = ["parameters", "returns", "examples", "notes", "default", "optional", "import", "none", "true", "false", "int"]


def load():
    """Return word counts for fitting and for testing, and the words."""
    docstrings = load_docstrings()
    counter = CountVectorizer(stop_words=NOISE, min_df=5, max_df=0.2, token_pattern=r"[a-zA-Z]{3,}", dtype=np.int32)
    X = counter.fit_transform(docstrings.data)
    print(f"{X.shape[0]:,} docstrings of {', '.join(docstrings.target_names)}")
    print(f"{X.sum():,} tokens, {X.shape[1]:,} different words")
    return *train_test_split(X, test_size=0.1, random_state=0), counter.get_feature_names_out()


def fit(X, watch, **params):
    """Fit, and say how fast it was."""
    lda = DistributedLDA(N_TOPICS, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=100, random_state=0, **params)
    began = time.perf_counter()
    lda.set_callbacks(ProgressBar(), watch).fit(X)
    seconds = time.perf_counter() - began
    speed = lda.history_[-1]["samples"] / lda.history_[-1]["seconds"]
    print(f"fitted in {seconds:.1f} s with {lda.n_shards_} shard(s), compilation and perplexity included")
    print(f"sweeps alone: {speed / 1e6:.1f} million tokens per second")
    return lda.set_callbacks()


def show(lda, words, n_topics=12, n_words=9):
    """Print the heaviest topics by the words that stand out in them."""
    counts = lda.components_
    standing_out = counts / counts.sum(0) * np.sqrt(counts)
    for topic in np.argsort(-counts.sum(1))[:n_topics]:
        best = np.argsort(-standing_out[topic])[:n_words]
        print(f"  topic {topic:2d}:  {'  '.join(words[best])}")


def draw(lda, watch, path):
    """Write a figure of the held-out perplexity, sweep by sweep, and of the sizes of the topics."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    measured = [(record["iterations"], record["perplexity"]) for record in watch.history_]
    left.plot(*zip(*measured, strict=True), marker="o")
    left.set(xlabel="Sweeps", ylabel="Held-out perplexity", title="Documents it has not seen")
    right.bar(range(N_TOPICS), np.sort(lda.topic_word_counts_.sum(1))[::-1])
    right.set(xlabel="Topics, heaviest first", ylabel="Tokens", title=f"{N_TOPICS} topics of docstrings")
    figure.savefig(path, dpi=120)
    print(f"figure written to {path}")


def digest(lda):
    """Return a fingerprint of the fitted counts."""
    counts = lda.topic_word_counts_
    return hashlib.sha256(b"".join(a.tobytes() for a in (counts.indptr, counts.indices, counts.data))).hexdigest()[:16]


def main():
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", action="store_true", help="fit again on a LocalCluster, and compare")
    parser.add_argument("--output", default="quickstart.png", help="where to write the figure")
    arguments = parser.parse_args()

    X, held_out, words = load()
    watch = HeldOutPerplexity(held_out, every=10)
    lda = fit(X, watch, n_jobs=-1)
    for record in watch.history_:
        print(f"  sweep {record['iterations']:3d}: held-out perplexity {record['perplexity']:7.1f}")
    show(lda, words)
    draw(lda, watch, arguments.output)
    print(f"result {digest(lda)}")

    if arguments.cluster:
        n_workers = min(4, os.cpu_count() or 1)
        with LocalCluster(n_workers=n_workers, threads_per_worker=1) as cluster, Client(cluster) as client:
            print(f"{n_workers} worker processes; watch them at {client.dashboard_link}")
            print("so small a corpus is fitted sooner without them: this shows that they find the same")
            on_cluster = fit(X, HeldOutPerplexity(held_out, every=50), n_shards=n_workers)
        print(f"result {digest(on_cluster)}: {'identical' if digest(on_cluster) == digest(lda) else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
