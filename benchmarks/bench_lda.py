"""Topic models: figures of docs/measurements/lda.

    export SCHMP_DATA=folder
    python benchmarks/bench_lda.py quality --corpora sotu_passages msdocs::12 --topics 100 1000
    python benchmarks/bench_lda.py priors --topics 20 100 300 1000
    python benchmarks/bench_lda.py coherence --corpora news20 --topics 20 100
    python benchmarks/bench_lda.py throughput shards threads memory cluster

Times are CPU seconds of this process (wall seconds where several processes or threads work),
medians over sweeps; compilation comes before the clock.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from functools import partial

import numpy as np
from common import (
    SweepClock,
    corpus,
    corpus_file,
    digest,
    forget_peak,
    machine,
    median,
    parse,
    peak,
    record,
    resident,
    split,
    table,
)
from distributed import Client, LocalCluster
from peers_lda import (
    PRIORS,
    coherence_of_gensim,
    rival,
    stream_of_gensim,
    stream_of_tomotopy,
)
from scipy import sparse

from schmp_estimators import DistributedLDA, choose_n_components

SEQUENTIAL = ("fplus", "sparse", "light", "alias")
#: Of figures that name none.
CORPORA = ("sotu_passages", "peps", "msdocs::12")
#: Those of the estimator, where each contestant has its own.
DEFAULT_PRIORS = {"doc_topic_prior": None, "topic_word_prior": None}


def lda(n_components, **params):
    """Return an estimator with the priors that all contestants get.

    The sampler is "warp", if none is asked for.
    """
    return DistributedLDA(
        n_components, **{**PRIORS, "sampler": "warp", "random_state": 0, **params}
    )


def warm(n_components, **params):
    """Compile what a fit with these parameters needs."""
    X = np.random.default_rng(0).poisson(0.2, (40, 60))
    lda(n_components, max_iter=2, **{"evaluate_every": 1, **params}).fit(X).perplexity(X)


def some_documents(name):
    """Return a corpus, or some of its documents.

    "msdocs::12" is every twelfth, "msdocs:9000" the first 9,000.
    """
    if name.startswith("synthetic"):
        return corpus(name)
    name, _, rows = name.partition(":")
    X = corpus(name)[
        slice(*(int(end) if end else None for end in f":{rows}".split(":")))
        if rows
        else slice(None)
    ]
    return X[:, np.diff(X.tocsc().indptr) > 0]


def quality(arguments):
    """CPU seconds until the held-out perplexity is within 1 % of a peer's.

    Priors are the same for all, or everybody's own.

    The peers are tomotopy after 100 sweeps, and scikit-learn's default fit.  With default priors
    tomotopy optimises its own, as it does by itself, and each is scored under its own.
    """
    rows = []
    contestants = [
        ("auto", 2),
        ("warp", 1),
        ("warp", 2),
        ("warp", 3),
        *((name, 2) for name in ("frozen", "saber", *SEQUENTIAL)),
    ]
    asked = [one for one in contestants if not arguments.samplers or one[0] in arguments.samplers]
    ours = DEFAULT_PRIORS if arguments.default_priors else PRIORS
    for name in arguments.corpora or CORPORA:
        train, test = split(some_documents(name))
        for k, peer in itertools.product(arguments.topics, arguments.peers):
            seconds, perplexity = rival(peer, train, test, k, arguments.default_priors)
            print(name, k, peer, seconds, perplexity, file=sys.stderr, flush=True)
            for (sampler, mh_steps), seed in itertools.product(asked, range(arguments.seeds)):
                params = {"sampler": sampler, "mh_steps": mh_steps, **ours}
                warm(k, **params)
                point = _until(
                    1.01 * perplexity,
                    train,
                    test,
                    k,
                    arguments.max_iter,
                    random_state=seed,
                    **params,
                )
                chosen = lda(k, **params, max_iter=1).fit(train).sampler_
                ratio = seconds / point[1] if point[2] <= 1.01 * perplexity else "not reached"
                rows.append(
                    [
                        name,
                        k,
                        f"{sampler} {mh_steps}",
                        seed,
                        peer,
                        perplexity,
                        seconds,
                        *point[::-1],
                        ratio,
                        chosen,
                    ]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    header = ["corpus", "K", "sampler, proposals", "seed", "peer", "its perplexity", "its CPU s"]
    header += ["perplexity", "CPU s", "sweeps", "ratio", "chosen"]
    table(quality.__doc__, header, rows)
    record_quality(rows)


def record_quality(rows):
    """Record the races of "auto" to tomotopy's perplexity, the seeds of one side by side."""
    shown = []
    for (name, k, sampler, peer), some in itertools.groupby(rows, lambda row: (*row[:3], row[4])):
        if (sampler, peer) == ("auto 2", "tomotopy"):
            seeds = list(some)
            perplexity, seconds = seeds[0][5:7]
            shown.append([name, str(k), seconds, f"{perplexity:.0f}", f"auto ({seeds[0][11]})"])
            shown[-1] += [", ".join(short(row[at]) for row in seeds) for at in (9, 8, 10)]
    record("lda-quality", shown, 2, ("tomotopy",))


def short(cell):
    """Return a number with three digits, and words as they are."""
    return cell if isinstance(cell, str) else f"{cell:.3g}"


def begin(arguments):
    """CPU seconds of whole fits to a held-out perplexity, by how they start.

    All before the first sweep is included.
    """
    rows = []
    for name, goal in zip(arguments.corpora or CORPORA, arguments.goals, strict=True):
        train, test = split(some_documents(name))
        for k, seed in itertools.product(arguments.topics, range(arguments.seeds)):
            found = []
            for init in arguments.inits:
                params = {"sampler": "auto", "init": init, "random_state": seed}
                warm(k, **params)
                found.append(_until(goal, train, test, k, arguments.max_iter, whole=True, **params))
                rows.append([name, k, seed, init, *found[-1], found[-1][1] / found[0][1]])
                print(rows[-1], file=sys.stderr, flush=True)
    header = ["corpus", "K", "seed", "start", "sweeps", "CPU s", "perplexity", "to the first start"]
    table(begin.__doc__, header, rows)
    shown = []
    for name, some in itertools.groupby(rows, lambda row: row[0]):
        seeds, shown_of = list(some), []
        for init in arguments.inits:
            found = [row for row in seeds if row[3] == init]
            sweeps, seconds = (", ".join(short(row[at]) for row in found) for at in (4, 5))
            shown_of.append(f"{sweeps}: {seconds}")
        shown.append([name, *shown_of, ", ".join(short(row[7]) for row in found)])
    record("lda-starts", shown)


def _until(goal, train, test, k, max_iter, *, whole=False, **params):
    """Return sweeps, CPU seconds and held-out perplexity when the goal is reached.

    It is looked for every five sweeps.

    Seconds are those of sweeps, or of the `whole` fit.
    """
    points, before = [], [0.0]

    def at_end(sweep, seconds, fitted):
        if sweep == 1 and whole:
            before[0] = time.process_time() - began - seconds
        if sweep % 5:
            return False
        points.append((sweep, before[0] + seconds, fitted().perplexity(test)))
        return points[-1][2] <= goal

    began = time.process_time()
    lda(k, max_iter=max_iter, **params).set_callbacks(SweepClock(at_end)).fit(train)
    return points[-1]


#: For `priors`: document-topic and topic-word priors, of which None is 1/K, and corpora.
OF_PRIORS = {
    "1/K": (None, None),
    ".1": (0.1, None),
    "learn": ("learn", None),
    ".1 and .01": (0.1, 0.01),
}


CORPORA_OF_PRIORS = {
    "msdocs": lambda: used(some(corpus("msdocs"), 5_000)),
    "sotu": lambda: used(corpus("sotu_passages")),
    "peps": lambda: used(corpus("peps")),
    "news20": lambda: used(corpus("news20"), 5),
    "docstrings": lambda: used(corpus("docstrings")),
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


def _of_priors(train, test, n_topics, prior, sampler, seeds):
    """Return the sampler, and means over seeds."""
    alpha, beta = OF_PRIORS[prior]
    found = []
    for seed in range(seeds):
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


def priors(arguments):
    """Held-out perplexity and coherence, by corpora, numbers of topics and priors.

    A tenth of the documents is held out.  Perplexity is by document completion, coherence the mean
    NPMI of topics in the documents of the fit, CPU that of the fit, 150 sweeps from the second fit
    of a process on.  "titles" are five words, drawn at random, from each of 60,000 documents,
    "medium" documents of 200 to 340 tokens.
    """
    rows = []
    for name in arguments.corpora or [one for one in CORPORA_OF_PRIORS if one != "medium"]:
        train, test = split(CORPORA_OF_PRIORS[name]())
        DistributedLDA(5, max_iter=1).fit(train)
        given = arguments.topics, arguments.priors, arguments.samplers or ["auto"]
        for n_topics, prior, sampler in itertools.product(*given):
            found = _of_priors(train, test, n_topics, prior, sampler, arguments.seeds)
            rows.append([name, n_topics, prior, *found])
            print(rows[-1], file=sys.stderr, flush=True)
    header = ["corpus", "topics", "priors", "sampler", "perplexity", "NPMI", "CPU s"]
    table(priors.__doc__.splitlines()[0], header, rows)
    of_samplers = [[*row[:2], *row[3:]] for row in rows if row[2] == "1/K"]
    shown = [[a, str(k), b, f"{p:.0f}", f"{c:.3f}", s] for a, k, b, p, c, s in of_samplers]
    record("lda-auto", shown, 3, is_chosen=True)
    shown = []
    for (name, k), some in itertools.groupby(rows, lambda row: row[:2]):
        first, *others = [row[4:6] for row in some]
        shown.append([name, k, f"{first[0]:.0f}", f"{first[1]:.3f}"])
        for perplexity, npmi in others:
            change = 100 * (perplexity / first[0] - 1)
            shown[-1] += [f"{change:+.1f}", f"{npmi - first[1]:+.3f}"]
    record("lda-priors", shown, 2, is_chosen=True)


def sweep_seconds(X, k, *, wall=False, sweeps=8, **params):
    """Return the median seconds of a sweep after the first two."""
    clock = SweepClock()
    lda(k, max_iter=sweeps, **params).set_callbacks(clock).fit(X)
    return median((clock.wall if wall else clock.cpu)[2:])


def throughput(arguments):
    """Tokens per second and core, one thread."""
    X = corpus(arguments.large)
    rows = []
    for k in arguments.topics_throughput:
        for mh_steps in arguments.proposals:
            warm(k, mh_steps=mh_steps, evaluate_every=0)
            seconds = sweep_seconds(X, k, mh_steps=mh_steps)
            rows.append([arguments.large, k, mh_steps, X.sum() / seconds / 1e6])
    table(throughput.__doc__, ["corpus", "K", "proposals", "million tokens per CPU second"], rows)


def shards(arguments):
    """CPU seconds per token with several shards, against one."""
    X = corpus(arguments.large)
    rows = []
    given = arguments.samplers or ["warp"], arguments.topics_shards, arguments.proposals[:2]
    for sampler, k, mh_steps in itertools.product(*given):
        params = {"sampler": sampler, "mh_steps": mh_steps}
        for n in (1, *arguments.shards):
            warm(k, evaluate_every=0, n_shards=n, **params)
        for repeat in range(arguments.repeats):
            base = sweep_seconds(X, k, n_shards=1, **params)
            for n in arguments.shards:
                seconds = sweep_seconds(X, k, n_shards=n, **params)
                rows.append(
                    [sampler, k, repeat, mh_steps, n, 1e9 * seconds / X.sum(), seconds / base]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    table(
        shards.__doc__,
        ["sampler", "K", "run", "proposals", "shards", "ns per token", "ratio"],
        rows,
    )


def threads(arguments):
    """Wall seconds of a sweep with two threads, against one."""
    X = corpus(arguments.large)
    rows = []
    for mh_steps in arguments.proposals[:2]:
        warm(200, mh_steps=mh_steps)
        for repeat in range(arguments.repeats):
            one, two = (
                sweep_seconds(X, 200, mh_steps=mh_steps, n_jobs=n, wall=True) for n in (1, 2)
            )
            rows.append([repeat, mh_steps, one, two, one / two])
    table(
        threads.__doc__, ["run", "proposals", "one thread, s", "two threads, s", "speed-up"], rows
    )


def cluster(arguments):
    """Wall seconds of a fit and its sweeps, of two worker processes against two threads here."""
    X = some_documents(arguments.large)
    rows = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local:
        for sampler, k in itertools.product(arguments.samplers or ["warp"], arguments.topics):
            warm(k, sampler=sampler)
            for repeat in range(arguments.repeats):
                began = time.perf_counter()
                here = lda(k, max_iter=30, n_jobs=2, sampler=sampler).fit(X)
                between = time.perf_counter()
                with Client(local):
                    there = lda(k, max_iter=30, sampler=sampler).fit(X)
                seconds = between - began, time.perf_counter() - between
                sweeps = [model.history_[-1]["seconds"] for model in (here, there)]
                same = digest(here) == digest(there)
                ratios = seconds[1] / seconds[0], sweeps[1] / sweeps[0]
                rows.append(
                    [
                        there.sampler_,
                        k,
                        repeat,
                        there.n_shards_,
                        *seconds,
                        ratios[0],
                        *sweeps,
                        ratios[1],
                        same,
                    ]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    header = [
        "sampler",
        "K",
        "run",
        "shards",
        "two threads, s",
        "two processes, s",
        "ratio",
        "sweep here",
        "there",
        "ratio",
        "bits",
    ]
    table(cluster.__doc__, header, rows)


def memory(arguments):
    """Bytes per token above the input while a fit runs, each in its own process."""
    rows = []
    for mh_steps in arguments.proposals[:2]:
        command = [
            sys.executable,
            __file__,
            "memory-of-one",
            "--large",
            arguments.large,
            "--proposals",
            str(mh_steps),
        ]
        rows.append(
            [arguments.large, mh_steps, *subprocess.check_output(command, text=True).split()]
        )
    table(
        memory.__doc__,
        ["corpus", "proposals", "tokens", "bytes per token, peak", "of it while sampling"],
        rows,
    )


def memory_of_one(arguments):
    """Measure this process."""
    warm(200, mh_steps=arguments.proposals[0])
    X = corpus(arguments.large)
    n_tokens = int(X.sum())
    forget_peak()
    before, during = resident(), []

    def at_end(sweep, seconds, fitted):
        during.append(resident())

    lda(200, max_iter=5, mh_steps=arguments.proposals[0]).set_callbacks(SweepClock(at_end)).fit(X)
    print(n_tokens, (peak() - before) / n_tokens, (max(during) - before) / n_tokens)


def generated(n_topics, seed, *, n_docs=1500, n_words=1000, length=80, alpha=0.1, beta=0.05):
    """Return a corpus drawn from a topic model.

    Counts, topics, proportions, and tokens of topics in documents.
    """
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(n_words, beta), n_topics)
    theta = rng.dirichlet(np.full(n_topics, alpha), n_docs)
    tokens = np.array([rng.multinomial(length, row) for row in theta])
    counts = np.zeros((n_docs, n_words), np.int32)
    for doc, topic in zip(*np.nonzero(tokens), strict=True):
        counts[doc] += rng.multinomial(tokens[doc, topic], phi[topic]).astype(np.int32)
    return counts, phi, theta, tokens


#: Numbers of topics that are tried for generated corpora, and for others.
GRID, GRID_OF_TEXTS = (5, 8, 12, 20, 32, 50, 80, 125), (5, 10, 20, 40, 80, 160)


def numbers(arguments):
    """The number of topics that `choose_n_components` chooses.

    Some corpora have a known number, others have not.

    The last column has the CPU seconds of the search beside those of its fits.
    """
    warm(5, evaluate_every=0, sampler="auto")
    some = np.random.default_rng(0).poisson(1.0, (99, 9))
    choose_n_components(lda(5, max_iter=2, sampler="auto"), some, (2, 3), random_state=0)
    rows = []
    corpora = [
        (f"{k} topics", k, seed) for k in arguments.topics for seed in range(arguments.seeds)
    ]
    texts = CORPORA if arguments.corpora is None else arguments.corpora
    for name, k, seed in corpora + [(name, None, 0) for name in texts]:
        X = some_documents(name) if k is None else generated(k, seed)[0]
        grid = GRID_OF_TEXTS if k is None else GRID
        one = DistributedLDA(max_iter=arguments.max_iter)
        began = time.process_time()
        found = choose_n_components(one, X, grid, random_state=seed)
        seconds = time.process_time() - began
        table_, fits = found.table_, 3 * found.table_["seconds"].sum()
        measured = ", ".join(
            f"{n}: {p:.4g} {c:.3f} {s:.2f}"
            for n, p, c, s in zip(
                *(table_[w] for w in ("n_components", "perplexity", "coherence", "stability")),
                strict=True,
            )
        )
        is_near = "-" if k is None else abs(found.n_components_ / k - 1) <= 0.25
        rows.append([name, seed, found.n_components_, is_near, measured, fits, seconds / fits - 1])
        print(rows[-1], file=sys.stderr, flush=True)
    header = ["corpus", "seed", "chosen", "within 25 %", "perplexity, NPMI, stability"]
    table(numbers.__doc__, [*header, "fits, CPU s", "beside them"], rows)
    shown = []
    for name, some in itertools.groupby(rows, lambda row: row[0]):
        seeds = list(some)
        tried, spent = [row[4].count(":") for row in seeds], [row[5] for row in seeds]
        chosen = ", ".join(str(row[2]) for row in seeds)
        shown.append([name, chosen, f"{min(tried)} to {max(tried)}"])
        shown[-1].append(f"{min(spent):.1f} to {max(spent):.1f}")
    record("lda-numbers", shown, is_chosen=True)


def _known(phi, alpha):
    """Return a model that has these topics, and this document-topic prior."""
    model = DistributedLDA(len(phi), max_iter=1).fit(np.eye(phi.shape[1], dtype=int))
    model.topic_word_counts_ = sparse.csc_array(np.rint(1e9 * phi).astype(np.int32))
    model.topic_word_prior_, model.doc_topic_prior_ = 1e-9, alpha
    return model


def intervals(arguments):
    """Coverage of the intervals of .95 of `topic_shares`.

    There are 20 corpora each of ten settings, with four groups of documents.

    The truth is what the corpus was drawn with: the mean proportions, or the topics of the tokens.
    The topics are the true ones, or those of a fit with the true number, matched to them.
    """
    rows = []
    settings = itertools.product((5, 10, 20), (0.05, 0.5), (20, 100))
    for n_topics, beta, length in [*settings][: arguments.settings]:
        covered = {
            key: [] for key in itertools.product(("true", "fitted"), ("documents", "tokens"))
        }
        widths = {key: [] for key in covered}
        alpha, group = 2.0 / n_topics, np.arange(120) % 4
        sizes = {"n_docs": 120, "n_words": 300, "length": length, "alpha": alpha, "beta": beta}
        for seed in range(arguments.repeats):
            X, phi, theta, tokens = generated(n_topics, seed, **sizes)
            fitted = DistributedLDA(n_topics, doc_topic_prior=alpha, topic_word_prior=beta)
            models = {
                "true": _known(phi, alpha),
                "fitted": fitted.set_params(random_state=seed).fit(X),
            }
            for kind, weighted_by in covered:
                model = models[kind]
                truth = theta if weighted_by == "documents" else tokens / length
                truth = np.array([truth[group == g].mean(axis=0) for g in range(4)])
                found = model.topic_shares(X, group, weighted_by=weighted_by, random_state=seed)
                if kind == "fitted":
                    truth = truth[:, model.match_topics(phi)[0]]
                inside = (found.lower <= truth) & (truth <= found.upper)
                covered[kind, weighted_by] += inside.ravel().tolist()
                widths[kind, weighted_by].append((found.upper - found.lower).mean())
        for key, values in covered.items():
            width = f"{np.mean(widths[key]):.3f}"
            rows.append([n_topics, beta, length, *key, len(values), float(np.mean(values)), width])
            print(rows[-1], file=sys.stderr, flush=True)
    for key in covered:
        some = [row for row in rows if tuple(row[3:5]) == key]
        n = sum(row[5] for row in some)
        mean = sum(row[5] * row[6] for row in some) / n
        rows.append(["all", "", "", *key, n, mean, ""])
    header = ["K", "beta", "tokens of a document", "topics", "weighted by", "intervals"]
    table(intervals.__doc__, [*header, "coverage", "mean width"], rows)
    shown = []
    for kind, some in itertools.groupby(rows[-4:], lambda row: row[3]):
        documents, tokens = some
        shown.append([kind, documents[5], f"{documents[6]:.3f}", f"{tokens[6]:.3f}"])
    record("lda-intervals", shown)


def coherence(arguments):
    """CPU seconds of the coherence of topics, of a short fit, beside gensim's.

    What either side gets is ready before the clock starts: gensim the documents as lists of words
    for "c_npmi", whose windows are as long as the longest of them, and as lists of pairs for
    "u_mass"; we a sparse array.  gensim works in one process, which is what its default comes to on
    two cores, and we in one thread.  Times are medians, of gensim's "c_npmi" that of one call.
    """
    repeats, rows = arguments.repeats, []
    for name in arguments.corpora or ["synthetic:1.7e6"]:
        X = corpus(name)[: arguments.documents]
        for k in arguments.topics:
            one = lda(k, sampler="auto", max_iter=20).fit(X)
            best = one.top_words(10, "probability")
            topics = [[str(word) for word in topic] for topic in best]
            for measure, theirs in (("npmi", "c_npmi"), ("u_mass", "u_mass")):
                call = partial(one.coherence, X, measure, n_words=10)
                call()  # loads the kernels
                ours, found = _timed(call, repeats)
                peer = coherence_of_gensim(theirs, topics, X)
                seconds, expected = _timed(peer, 1 if measure == "npmi" else repeats)
                difference = float(np.abs(found - expected).max())
                row = [X.shape[0], int(X.sum()), k, measure, seconds, ours, seconds / ours]
                rows.append([name, *row, difference])
    header = ["corpus", "documents", "tokens", "K", "measure", "gensim, CPU s", "here, CPU s"]
    table(coherence.__doc__.splitlines()[0], [*header, "times", "largest difference"], rows)
    shown = [[*row[3:5], *row[5:8], f"{row[8]:.0e}"] for row in rows]
    record("lda-coherence", shown, 2, ("gensim",))


def _timed(call, repeats):
    """Return the median CPU seconds of some calls, and what the last one returned."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        found = call()
        seconds.append(time.process_time() - began)
    return median(seconds), found


def stream(arguments):
    """50 calls of `partial_fit` with words of their own, against a fit of all.

    Calls come source by source, and the fit has as many sweeps.

    Half of the documents of the last batch are held out.  The sources begin with the smallest.  In
    the table of calls, words are those of the model after the call, nanoseconds are CPU time of
    sampling for each token and sweep.
    """
    name, k = arguments.large, arguments.topics[0]
    X, sources = corpus(name), np.load(corpus_file(f"{name}.y.npy"))
    lengths, tokens = X.sum(axis=1), np.bincount(sources, X.sum(axis=1))
    order = np.lexsort((np.arange(len(sources)), tokens[sources]))
    ends = np.searchsorted(np.cumsum(lengths[order]), np.linspace(0, lengths.sum(), 51)[1:-1])
    *batches, last = np.split(order, ends)
    held_out = np.random.default_rng(0).random(len(last)) < 0.5
    batches, test = [*batches, last[~held_out]], last[held_out]
    for sampler in arguments.samplers or ["auto"]:
        options = {"max_iter": arguments.max_iter, "sampler": sampler}
        for one in ("frozen", "saber") if sampler == "auto" else (sampler,):
            warm_stream = lda(k, max_iter=1, sampler=one, half_life=10.0)
            for _ in range(2):
                warm_stream.partial_fit(np.eye(9, dtype=int), feature_names=range(9))
            warm(k, sampler=one)
        one, rows = lda(k, **options, half_life=10.0), []
        for number, batch in enumerate(batches, 1):
            words, clock = np.unique(X[batch].indices), SweepClock()
            counts, began = X[batch][:, words], (time.process_time(), time.perf_counter())
            one.set_callbacks(clock).partial_fit(counts, feature_names=words)
            spent = time.process_time() - began[0], time.perf_counter() - began[1]
            per_token = 1e9 * sum(clock.cpu) / counts.sum() / arguments.max_iter
            rows.append([number, one.sampler_, len(batch), int(counts.sum()), one.n_features_in_])
            rows[-1] += [one.topic_word_counts_.nnz, per_token, *spent]
        header = ["call", "sampler", "documents", "tokens", "words", "pairs", "ns", "CPU s", "s"]
        table(f"{stream.__doc__}\n{name}, {k} topics, {sampler}", header, rows)
        words = np.arange(X.shape[1])
        found = [
            [
                "half_life=10",
                sum(row[7] for row in rows),
                one.perplexity(X[test], feature_names=words),
            ]
        ]
        for way in arguments.ways:
            began = time.process_time()
            other = WAYS[way](X, batches, k, options)
            seconds = time.process_time() - began
            found.append([way, seconds, other.perplexity(X[test])])
            print(found[0], found[-1], file=sys.stderr, flush=True)
        for row in found:
            row.append(row[2] / found[1][2])
        table("The last batch", ["way", "CPU s", "perplexity", "to a fit of all"], found)
        later = [row[6] for row in rows[9:]]
        shown = [[way, seconds, f"{p:,.0f}", ""] for way, seconds, p, _ in found]
        shown[0][::3] = "the stream", f"{min(later):.0f} to {max(later):.0f}"
        record("lda-stream", shown, peers=("tomotopy", "gensim"))


def _all_at_once(X, batches, k, options):
    return lda(k, **options).fit(X[np.concatenate(batches)])


def _whole_tokens(X, batches, k, options):
    model = lda(k, **options)
    for batch in batches:
        model.partial_fit(X[batch])
    return model


#: What `stream` is compared with; all but the stream know all words from the beginning.
WAYS = {
    "all at once": _all_at_once,
    "no half-life": _whole_tokens,
    "gensim": stream_of_gensim,
    "tomotopy": stream_of_tomotopy,
}

FIGURES = {
    f.__name__.replace("_", "-"): f
    for f in (
        quality,
        begin,
        priors,
        throughput,
        shards,
        threads,
        cluster,
        memory,
        memory_of_one,
        numbers,
        intervals,
        coherence,
        stream,
    )
}


def main():
    """Run the figures named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--corpora", nargs="*", help="by default some that suit the figure")
    parser.add_argument("--large", default="msdocs")
    parser.add_argument("--topics", nargs="*", type=int, default=[100, 1000])
    parser.add_argument("--topics-throughput", nargs="+", type=int, default=[100, 1000, 1_000_000])
    parser.add_argument("--topics-shards", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--proposals", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--shards", nargs="+", type=int, default=[2, 4, 8, 32, 64])
    parser.add_argument("--samplers", nargs="+")
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=("tomotopy", "scikit-learn"),
        default=["tomotopy"],
        help="quality",
    )
    parser.add_argument(
        "--default-priors",
        action="store_true",
        help="for quality: everybody's own, ours are 1 / K",
    )
    parser.add_argument("--inits", nargs="+", default=["auto", "tempered", "uniform", "sparse"])
    parser.add_argument(
        "--goals", nargs="+", type=float, help="for begin, a perplexity for each corpus"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--priors", nargs="+", choices=OF_PRIORS, default=list(OF_PRIORS))
    parser.add_argument(
        "--documents", type=int, default=10_000, help="coherence, the first so many"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--settings", type=int, default=10, help="for intervals, at most 12")
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["all at once"], help="stream")
    arguments = parse(parser)
    if "memory-of-one" not in arguments.figures:
        print(machine(), "\n", " ".join(sys.argv))
    for figure in arguments.figures:
        FIGURES[figure](arguments)


if __name__ == "__main__":
    main()
