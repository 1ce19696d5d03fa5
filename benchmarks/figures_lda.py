"""The figures of the papers on topic models, drawn anew on real text.

    python benchmarks/figures_lda.py lengths progress density staleness --to folder
    SCHMP_DATA=folder python benchmarks/figures_lda.py progress --corpus msdocs::12 \
        --topics 100 1000 --to folder

By default the text is the documentation of installed packages, which needs no download; with
$SCHMP_DATA, any corpus of bench_lda.  One thread, CPU seconds; priors are 0.1 for documents and
0.01 for words.

- lengths: seconds per token by length of documents and number of topics (LDA*: Yu et al., VLDB
  2017, figure 2);
- progress: held-out perplexity by sweeps and by seconds (LightLDA: Yuan et al., WWW 2015, figures
  11, 12 and 14);
- density: topics per word in the first sweeps, by the start (LightLDA, figure 10c);
- staleness: s-error and likelihood by rotation and by data parallelism (STRADS: Lee et al., NIPS
  2014, figure 4).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from bench_lda import lda, some_documents, warm
from common import SweepClock, machine, median, split, table
from scipy import sparse

from schmp_estimators.lda.samplers import SAMPLERS

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from gallery_style import STYLE

mpl.use("Agg")
mpl.rcParams.update(STYLE)
from matplotlib import pyplot as plt  # noqa: E402  (after the backend)

INITS = ("documents", "sparse", "tempered", "uniform")
#: How each sampler is drawn, in every panel.
LINES = {
    name: {"color": f"C{i % 7}", "linestyle": "--" if i >= 7 else "-"}
    for i, name in enumerate(SAMPLERS)
}


def documents_of_length(X, length):
    """Return the tokens of X, one document after the other, as documents of the same length."""
    words = np.repeat(X.indices, X.data)
    n_docs = len(words) // length
    rows = np.repeat(np.arange(n_docs), length)
    ones = np.ones(n_docs * length, np.int32)
    return sparse.csr_array((ones, (rows, words[: n_docs * length])), shape=(n_docs, X.shape[1]))


def samplers_for(arguments, n_topics):
    """Return the samplers that are asked for, without those that are not for so many topics."""
    return [
        name
        for name in arguments.samplers
        if not (name == "frozen" and n_topics > arguments.most_frozen)
    ]


def lengths(arguments):
    """Nanoseconds per token in late sweeps, by length of documents."""
    X = some_documents(arguments.corpus)
    _, axes = plt.subplots(
        1, len(arguments.topics), figsize=(4.2 * len(arguments.topics), 3.4), squeeze=False
    )
    rows = []
    for axis, k in zip(axes[0], arguments.topics, strict=True):
        for sampler in samplers_for(arguments, k):
            found = []
            for length in arguments.lengths:
                clock = SweepClock()
                pieces = documents_of_length(X, length)
                lda(k, sampler=sampler, n_shards=1, max_iter=arguments.late + 5).set_callbacks(
                    clock
                ).fit(pieces)
                found.append(1e9 * median(clock.cpu[arguments.late :]) / pieces.sum())
                rows.append([k, sampler, length, found[-1]])
            axis.plot(
                arguments.lengths, found, marker="o", markersize=3, label=sampler, **LINES[sampler]
            )
        axis.set(
            xscale="log",
            yscale="log",
            title=f"{k} topics",
            xlabel="tokens per document",
            ylabel="ns per token",
        )
    _legend_below(axes[0, 0])
    table(lengths.__doc__, ["topics", "sampler", "tokens per document", "ns per token"], rows)


def progress(arguments):
    """Held-out perplexity after so many sweeps and CPU seconds."""
    train, test = split(some_documents(arguments.corpus))
    n = len(arguments.topics)
    _, axes = plt.subplots(n, 2, figsize=(9, 3.2 * n), squeeze=False)
    rows = []
    for (by_sweeps, by_seconds), k in zip(axes, arguments.topics, strict=True):
        for sampler in samplers_for(arguments, k):
            seen = []

            def at_end(sweep, seconds, fitted, seen=seen):
                if sweep in arguments.sweeps:
                    seen.append((sweep, seconds, fitted().perplexity(test)))

            clock = SweepClock(at_end)
            lda(k, sampler=sampler, n_shards=1, max_iter=max(arguments.sweeps)).set_callbacks(
                clock
            ).fit(train)
            sweeps, seconds, perplexity = zip(*seen, strict=True)
            by_sweeps.plot(sweeps, perplexity, label=sampler, **LINES[sampler])
            by_seconds.plot(seconds, perplexity, label=sampler, **LINES[sampler])
            rows.extend([k, sampler, *one] for one in seen)
        by_sweeps.set(
            xlabel="sweeps", ylabel="held-out perplexity", title=f"{k} topics", xscale="log"
        )
        by_seconds.set(xlabel="CPU seconds", xscale="log")
        for axis in (by_sweeps, by_seconds):
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:.0f}")
            axis.yaxis.set_minor_formatter("{x:.0f}")
    _legend_below(axes[0, 0])
    table(progress.__doc__, ["topics", "sampler", "sweeps", "CPU s", "perplexity"], rows)


def density(arguments):
    """Topics per word after so many sweeps, on average over tokens, by the start."""
    X = some_documents(arguments.corpus)
    n = len(arguments.topics)
    _, axes = plt.subplots(1, n, figsize=(4.2 * n, 3.4), squeeze=False)
    rows = []
    for axis, k in zip(axes[0], arguments.topics, strict=True):
        for init in INITS:
            seen = []

            def at_end(sweep, seconds, fitted, seen=seen):
                counts = fitted().topic_word_counts_
                seen.append(np.average(np.diff(counts.indptr), weights=counts.sum(axis=0)))

            lda(k, init=init, max_iter=arguments.first).set_callbacks(SweepClock(at_end)).fit(X)
            axis.plot(
                range(1, len(seen) + 1),
                seen,
                label=init,
                linestyle="--" if init == "uniform" else "-",
            )
            rows.append([k, init, *(seen[sweep - 1] for sweep in (1, 3, 10) if sweep <= len(seen))])
        axis.set(xlabel="sweeps", ylabel="topics of a token's word", title=f"{k} topics")
    axes[0, -1].legend()
    table(density.__doc__, ["topics", "start", "1 sweep", "3", "10"], rows)


def staleness(arguments):
    """The s-error, and the joint log-likelihood per token, sweep by sweep.

    All words are on their way, or none.
    """
    X = some_documents(arguments.corpus)
    k = arguments.topics[0]
    _, (errors, likelihoods) = plt.subplots(1, 2, figsize=(9, 3.4))
    rows = []
    runs = [
        ("fplus", 1),
        *(
            (sampler, arguments.shards)
            for sampler in ("fplus", "data-parallel")
            if sampler in SAMPLERS
        ),
    ]
    for sampler, n_shards in runs:
        fitted = lda(
            k, sampler=sampler, n_shards=n_shards, max_iter=arguments.first, evaluate_every=1
        ).fit(X)
        error = [record["s_error"] for record in fitted.history_]
        likelihood = [
            record["log_likelihood"] / record["samples"] * record["iterations"]
            for record in fitted.history_
        ]
        label = f"{sampler}, {n_shards} shard{'s' * (n_shards > 1)}"
        style = {"color": LINES[sampler]["color"] if sampler == "fplus" else "C1", "label": label}
        if n_shards > 1:
            errors.plot(range(1, len(error) + 1), error, **style)
        likelihoods.plot(
            range(1, len(error) + 1), likelihood, linestyle=":" if n_shards == 1 else "-", **style
        )
        rows.append([label, *(error[i] for i in (0, 4, len(error) - 1)), likelihood[-1]])
    errors.set(xlabel="sweeps", ylabel="s-error", yscale="log", title=f"{k} topics")
    likelihoods.set(xlabel="sweeps", ylabel="log-likelihood per token")
    likelihoods.legend()
    errors.legend()
    table(
        staleness.__doc__, ["", "s-error, sweep 1", "5", "last", "log-likelihood per token"], rows
    )


def _legend_below(axis):
    """Put the legend of one panel, which is that of all, below the panels."""
    axis.figure.legend(
        *axis.get_legend_handles_labels(), fontsize="small", ncols=4, loc="outside lower center"
    )


FIGURES = {one.__name__: one for one in (lengths, progress, density, staleness)}


def main():
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--corpus", default="docstrings")
    parser.add_argument("--to", type=Path, default=Path())
    parser.add_argument("--topics", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument(
        "--most-frozen", type=int, default=256, help="topics up to which 'frozen' is drawn"
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[8, 32, 128, 512, 2048])
    parser.add_argument("--late", type=int, default=30, help="sweeps before those that are timed")
    parser.add_argument(
        "--sweeps", nargs="+", type=int, default=[1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120]
    )
    parser.add_argument(
        "--first", type=int, default=20, help="sweeps of the figures of first sweeps"
    )
    parser.add_argument("--shards", type=int, default=32)
    arguments = parser.parse_args()
    print(machine(), "\n", " ".join(sys.argv))
    for name in arguments.figures:
        for sampler in arguments.samplers:
            warm(4, sampler=sampler)
        FIGURES[name](arguments)
        plt.gcf().set_layout_engine("constrained")
        plt.savefig(arguments.to / f"lda_{name}.svg")


if __name__ == "__main__":
    main()
