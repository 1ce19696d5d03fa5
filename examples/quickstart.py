"""Topics of the Python packages on this machine.

The texts are the docstrings of installed packages: nothing is downloaded, and no cluster is needed.

    python examples/quickstart.py              # in this process, one thread per core
    python examples/quickstart.py --cluster    # on worker processes: the same result, to the bit
"""

import argparse
import hashlib
import logging
import os
import time

import numpy as np
from distributed import Client, LocalCluster
from sklearn.callback import ProgressBar
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split

from schmp_estimators import DistributedLDA, HeldOutPerplexity, TopicDisplay
from schmp_estimators.datasets import load_docstrings

N_TOPICS = 50
#: Words of reStructuredText and of every signature, which say nothing about a topic.
NOISE = [
    "parameters",
    "returns",
    "examples",
    "notes",
    "default",
    "optional",
    "import",
    "none",
    "true",
    "false",
    "int",
]


def load():
    """Return word counts to fit and to test, the packages of both, and the names in them."""
    docstrings = load_docstrings()
    counter = CountVectorizer(
        stop_words=NOISE, min_df=5, max_df=0.2, token_pattern=r"[a-zA-Z]{3,}", dtype=np.int32
    )
    X = counter.fit_transform(docstrings.data)
    print(f"{X.shape[0]:,} docstrings of {', '.join(docstrings.target_names)}")
    print(f"{X.sum():,} tokens, {X.shape[1]:,} different words")
    split = train_test_split(X, docstrings.target, test_size=0.1, random_state=0)
    return *split, counter.get_feature_names_out(), docstrings.target_names


def fit(X, watch, **params):
    """Fit, and say how fast it was."""
    lda = DistributedLDA(
        N_TOPICS, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=100, random_state=0, **params
    )
    began = time.perf_counter()
    lda.set_callbacks(ProgressBar(), watch).fit(X)
    seconds = time.perf_counter() - began
    speed, sweeps = lda.history_[-1]["samples"] / seconds / 1e6, lda.history_[-1]["seconds"]
    print(
        f"fit took {seconds:.1f} s with {lda.n_shards_} shard(s), {speed:.1f} million tokens per "
        "second:"
    )
    print(
        f"  {lda.n_iter_} sweeps in {sweeps:.1f} s; the rest are held-out perplexity, reading the "
        "documents, and,"
    )
    print("  once on a machine, compiling kernels")
    return lda.set_callbacks()


def show(lda, X, words, n_topics=12):
    """Print the largest topics by their most relevant words, and how well these go together."""
    best, coherence, sizes = (
        lda.top_words(9, feature_names=words),
        lda.coherence(X),
        lda.topic_sizes_,
    )
    print(
        f"mean coherence (NPMI) {coherence.mean():.2f}; the largest topics, with their shares of "
        "all tokens:"
    )
    for topic in np.argsort(-sizes)[:n_topics]:
        share = sizes[topic] / sizes.sum()
        print(
            f"  topic {topic:2d}, {share:4.1%}, coherence {coherence[topic]:.2f}:  "
            f"{'  '.join(best[topic])}"
        )


def draw(lda, X, packages, words, names, path):
    """Write a figure of what the packages talk about."""
    import matplotlib as mpl

    mpl.use("Agg")
    display = TopicDisplay.from_estimator(
        lda, X, packages, topics=24, feature_names=words, display_labels=names
    )
    display.figure_.suptitle(
        f"The largest of {N_TOPICS} topics, and the packages whose docstrings are about them"
    )
    display.figure_.savefig(path, dpi=120)
    print(f"figure written to {path}")


def digest(lda):
    """Return a fingerprint of the fitted counts."""
    counts = lda.topic_word_counts_
    return hashlib.sha256(
        b"".join(a.tobytes() for a in (counts.indptr, counts.indices, counts.data))
    ).hexdigest()[:16]


def main():
    """Run the example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cluster", action="store_true", help="fit again on a LocalCluster, and compare"
    )
    parser.add_argument("--output", default="quickstart.png", help="where to write the figure")
    arguments = parser.parse_args()

    X, held_out, packages, _, words, names = load()
    watch = HeldOutPerplexity(held_out, every=10)
    lda = fit(X, watch, n_jobs=-1)
    for record in watch.history_:
        print(f"  sweep {record['iterations']:3d}: held-out perplexity {record['perplexity']:7.1f}")
    show(lda, X, words)
    draw(lda, X, packages, words, names, arguments.output)
    print(f"result {digest(lda)}")

    if arguments.cluster:
        n_workers = min(4, os.cpu_count() or 1)
        # on a busy machine workers take seconds to end, of which nobody has to be warned
        logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
        options = {
            "n_workers": n_workers,
            "threads_per_worker": 1,
            "dashboard_address": ":0",
        }  # any port that is free
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            print(f"{n_workers} worker processes; watch them at {client.dashboard_link}")
            print(
                "so small a corpus is fitted sooner without them: this shows that they find the "
                "same"
            )
            on_cluster = fit(X, HeldOutPerplexity(held_out, every=50), n_shards=n_workers)
        print(
            f"result {digest(on_cluster)}: "
            f"{'identical' if digest(on_cluster) == digest(lda) else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
