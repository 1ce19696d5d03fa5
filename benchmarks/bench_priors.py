"""Priors of topic models: held-out perplexity and coherence.

They are listed by corpora, numbers of topics and priors.

    SCHMP_DATA=folder python benchmarks/bench_priors.py --topics 20 100 300 1000

A tenth of the documents is held out.  Perplexity is by document completion, coherence the mean NPMI
of topics in the documents of the fit, CPU that of the fit, 150 sweeps from the second fit of a
process on.  "titles" are five words, drawn at random, from each of 60,000 documents, "medium"
documents of 200 to 340 tokens.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import corpus, docstrings, machine, split, table
from scipy import sparse

from schmp_estimators import DistributedLDA

#: Document-topic and topic-word priors; None is 1/K.
PRIORS = {
    "1/K": (None, None),
    ".1": (0.1, None),
    "learn": ("learn", None),
    ".1 and .01": (0.1, 0.01),
}
CORPORA = {
    "msdocs": lambda: used(some(corpus("msdocs"), 5_000)),
    "sotu": lambda: used(corpus("sotu_passages")),
    "peps": lambda: used(corpus("peps")),
    "news20": lambda: used(corpus("news20"), 5),
    "docstrings": lambda: used(docstrings()[0]),
    "medium": lambda: used(some(of_length(corpus("msdocs"), 200, 340), 3_000)),
    "titles": lambda: used(titles(some(corpus("msdocs"), 60_000)), 5),
}


def some(X, n_docs):
    """Return some documents."""
    return X[np.sort(np.random.default_rng(0).permutation(X.shape[0])[:n_docs])]


def of_length(X, least, most):
    """Return the documents with so many tokens, but not `most`."""
    length = np.asarray(X.sum(axis=1)).ravel()
    return X[(length >= least) & (length < most)]


def used(X, least=2):
    """Leave out words of fewer documents, and documents without words."""
    X = X[:, np.asarray((X > 0).sum(axis=0)).ravel() >= least]
    return sparse.csr_array(X[np.asarray(X.sum(axis=1)).ravel() > 0])


def titles(X, length=5):
    """Return some words of each document that has as many."""
    rng, rows = np.random.default_rng(0), []
    for start, stop in zip(X.indptr, X.indptr[1:], strict=False):
        words = np.repeat(X.indices[start:stop], X.data[start:stop])
        if len(words) >= length:
            rows.append(rng.choice(words, length, replace=False))
    columns = np.concatenate(rows)
    ptr = length * np.arange(len(rows) + 1)
    found = sparse.csr_array(
        (np.ones(len(columns), np.int32), columns, ptr), shape=(len(rows), X.shape[1])
    )
    found.sum_duplicates()
    return found


def main():
    """Print a row for each corpus, number of topics and prior."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpora", nargs="+", choices=CORPORA, default=[one for one in CORPORA if one != "medium"]
    )
    parser.add_argument("--topics", nargs="+", type=int, default=[20, 100, 300, 1000])
    parser.add_argument("--priors", nargs="+", choices=PRIORS, default=list(PRIORS))
    parser.add_argument("--samplers", nargs="+", default=["auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    for name in args.corpora:
        train, test = split(CORPORA[name]())
        DistributedLDA(5, max_iter=1).fit(train)
        for n_topics in args.topics:
            for prior in args.priors:
                for sampler in args.samplers:
                    rows.append(
                        [
                            name,
                            n_topics,
                            prior,
                            *_figures(train, test, n_topics, prior, sampler, args.seeds),
                        ]
                    )
                    print(rows[-1], flush=True)
    table(
        __doc__.splitlines()[0],
        ["corpus", "topics", "priors", "sampler", "perplexity", "NPMI", "CPU s"],
        rows,
    )


def _figures(train, test, n_topics, prior, sampler, seeds):
    """Return the sampler, and means over seeds."""
    alpha, beta = PRIORS[prior]
    found = []
    for seed in seeds:
        lda = DistributedLDA(
            n_topics,
            doc_topic_prior=1 / n_topics if alpha is None else alpha,
            topic_word_prior=beta,
            sampler=sampler,
            random_state=seed,
        )
        began = time.process_time()
        lda.fit(train)
        cpu = time.process_time() - began
        found.append([lda.perplexity(test), np.mean(lda.coherence(train, measure="npmi")), cpu])
    return lda.sampler_, *np.mean(found, axis=0).tolist()


if __name__ == "__main__":
    main()
