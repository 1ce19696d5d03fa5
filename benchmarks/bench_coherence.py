"""Coherence of topics beside gensim's: the figures of docs/measurements/lda, section "Coherence".

    SCHMP_DATA=folder python benchmarks/bench_coherence.py --corpus news20 --documents 10000
    python benchmarks/bench_coherence.py --corpus docstrings

Topics are those of a short fit.  What either side gets is ready before the clock starts: gensim the
documents as lists of words for "c_npmi", whose windows are as long as the longest of them, and as
lists of pairs for "u_mass"; we a sparse array.  gensim works in one process, which is what its
default comes to on two cores, and we in one thread.  Times are medians of CPU seconds, of gensim's
"c_npmi" that of one call.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
from common import corpus, machine, median, table
from gensim.corpora import Dictionary
from gensim.models.coherencemodel import CoherenceModel

from schmp_estimators import DistributedLDA


def timed(call, repeats):
    """Return the median CPU seconds of some calls, and what the last one returned."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        found = call()
        seconds.append(time.process_time() - began)
    return median(seconds), found


def theirs(measure, topics, X):
    """Return a call that computes gensim's coherence of topics, lists of words."""
    rows = [(X.indices[a:b], X.data[a:b]) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    dictionary = Dictionary([[str(word) for word in range(X.shape[1])]])
    number = dictionary.token2id
    if measure == "u_mass":
        given = {
            "corpus": [
                [(number[str(w)], int(n)) for w, n in zip(*row, strict=True)] for row in rows
            ]
        }
    else:
        texts = [[str(word) for word in np.repeat(*row)] for row in rows]
        given = {"texts": texts, "window_size": max(map(len, texts))}
    return lambda: CoherenceModel(
        topics=topics,
        dictionary=dictionary,
        coherence=measure,
        topn=len(topics[0]),
        processes=1,
        **given,
    ).get_coherence_per_topic()


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus",
        default="synthetic:1.7e6",
        help="docstrings, synthetic:TOKENS, or of $SCHMP_DATA",
    )
    parser.add_argument("--documents", type=int, default=10_000, help="the first so many")
    parser.add_argument("--topics", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--words", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())

    X, rows = corpus(arguments.corpus)[: arguments.documents], []
    for k in arguments.topics:
        lda = DistributedLDA(
            k, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=20, random_state=0
        ).fit(X)
        best = lda.top_words(arguments.words, "probability")
        topics = [[str(word) for word in topic] for topic in best]
        for measure, name in (("npmi", "c_npmi"), ("u_mass", "u_mass")):
            call = partial(lda.coherence, X, measure, n_words=arguments.words)
            call()  # loads the kernels
            ours, found = timed(call, arguments.repeats)
            gensim, expected = timed(
                theirs(name, topics, X), 1 if measure == "npmi" else arguments.repeats
            )
            difference = float(np.abs(found - expected).max())
            rows.append(
                [X.shape[0], int(X.sum()), k, measure, gensim, ours, gensim / ours, difference]
            )
    header = [
        "documents",
        "tokens",
        "K",
        "measure",
        "gensim, CPU s",
        "here, CPU s",
        "times",
        "largest difference",
    ]
    table(f"{arguments.corpus}: coherence of {arguments.words} words", header, rows)


if __name__ == "__main__":
    main()
