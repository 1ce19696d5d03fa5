"""Topic models: figures of docs/measurements/lda.

    export SCHMP_DATA=folder
    python benchmarks/bench_lda.py quality --corpora sotu_passages msdocs::12 --topics 100 1000
    python benchmarks/bench_lda.py throughput shards threads memory cluster bits progress first

Times are CPU seconds of this process (wall seconds where several processes or threads work),
medians over sweeps; compilation comes before the clock.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time

import numpy as np
from common import (
    SweepClock,
    corpus,
    corpus_file,
    digest,
    forget_peak,
    machine,
    median,
    peak,
    resident,
    split,
    table,
)
from distributed import Client, LocalCluster
from peers_lda import (
    PRIORS,
    make_tomotopy,
    of_tomotopy,
    rival,
    stream_of_gensim,
    stream_of_tomotopy,
    tomotopy_model,
    tomotopy_perplexity,
    trained,
)
from scipy import sparse

from schmp_estimators import DistributedLDA, choose_n_components

SEQUENTIAL = ("fplus", "sparse", "light", "alias")
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


def course(train, test, sweeps, every, **params):
    """Fit; return (sweeps, CPU seconds, held-out perplexity) after every so many sweeps."""
    points = []

    def at_end(sweep, seconds, fitted):
        if sweep % every == 0:
            points.append((sweep, seconds, fitted().perplexity(test)))
        return False

    lda(max_iter=sweeps, **params).set_callbacks(SweepClock(at_end)).fit(train)
    return points


def race(arguments):
    """Held-out perplexity by CPU seconds.

    The goal is tomotopy's after 100 sweeps and 1 %, the ratio is to its time.
    """
    rows = []
    for name in arguments.corpora:
        train, test = split(some_documents(name))
        for k in arguments.topics:
            peer = tomotopy_model(train, k)
            peer_seconds = trained(peer, 100)
            goal = 1.01 * tomotopy_perplexity(peer, train.shape[1], test)
            for contestant in arguments.samplers or ["warp", "fplus", "frozen"]:
                sampler, _, init = contestant.partition(":")
                params = {"n_components": k, "sampler": sampler, "init": init or "auto"}
                warm(**params)
                for seed in range(arguments.seeds):
                    points = course(
                        train,
                        test,
                        arguments.max_iter,
                        arguments.every,
                        random_state=seed,
                        **params,
                    )
                    reached = next(
                        ((*point, peer_seconds / point[1]) for point in points if point[2] <= goal),
                        (),
                    )
                    found = (*reached[:2], reached[-1]) if reached else ("-", "-", "not reached")
                    later = [points[n // arguments.every - 1] for n in arguments.sweeps]
                    ours = [
                        *found,
                        *(
                            f"{perplexity:.5g} @ {seconds:.3g} s"
                            for _, seconds, perplexity in later
                        ),
                    ]
                    rows.append([name, k, contestant, seed, goal, peer_seconds, *ours])
                    print(rows[-1], file=sys.stderr, flush=True)
    header = [
        "corpus",
        "K",
        "sampler",
        "seed",
        "goal",
        "tomotopy CPU s",
        "sweeps to goal",
        "CPU s",
        "ratio",
    ]
    table(race.__doc__, [*header, *(f"{n} sweeps" for n in arguments.sweeps)], rows)


def long(arguments):
    """CPU seconds until within 0.3 % of the best perplexity.

    The best is that of tomotopy and "fplus" in ten times our time.
    """
    rows = []
    for name in arguments.corpora:
        train, test = split(some_documents(name))
        for k in arguments.topics:
            warm(k, sampler="auto")
            warm(k, sampler="fplus")
            options = {"n_components": k, "sampler": "auto"}
            ours = [
                course(
                    train, test, arguments.max_iter, arguments.every, random_state=seed, **options
                )
                for seed in range(arguments.seeds)
            ]
            limit = 10 * median([points[-1][1] for points in ours])
            theirs = {"tomotopy": [], "fplus": []}
            peer, seconds = tomotopy_model(train, k), 0.0
            while seconds < limit:
                seconds += trained(peer, 50)
                theirs["tomotopy"].append(
                    (seconds, tomotopy_perplexity(peer, train.shape[1], test))
                )

            def at_end(sweep, seconds, fitted, test=test, points=theirs["fplus"], limit=limit):
                if sweep % 50 == 0:
                    points.append((seconds, fitted().perplexity(test)))
                return seconds > limit

            lda(k, sampler="fplus", n_shards=1, max_iter=10_000).set_callbacks(
                SweepClock(at_end)
            ).fit(train)
            goal = 1.003 * min(perplexity for points in theirs.values() for _, perplexity in points)
            reached = {one: _first(points, goal) for one, points in theirs.items()}
            for seed, points in enumerate(ours):
                of_ours = _first([point[1:] for point in points], goal)
                row = [
                    name,
                    k,
                    seed,
                    goal / 1.003,
                    *reached.values(),
                    of_ours,
                    points[-1][1],
                    points[-1][2],
                ]
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    header = [
        "corpus",
        "K",
        "seed",
        "best of theirs",
        "tomotopy, s",
        "fplus, s",
        "auto, s",
        "all of it, s",
        "perplexity",
    ]
    table(long.__doc__, header, rows)


def _first(points, goal):
    """Return after how many seconds a goal was reached."""
    return next((seconds for seconds, perplexity in points if perplexity <= goal), "-")


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
    for name in arguments.corpora:
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
                    ]
                )
                print(rows[-1], file=sys.stderr, flush=True)
    header = ["corpus", "K", "sampler, proposals", "seed", "peer", "its perplexity", "its CPU s"]
    table(quality.__doc__, [*header, "perplexity", "CPU s", "sweeps", "ratio"], rows)


def begin(arguments):
    """CPU seconds of whole fits to a held-out perplexity, by how they start.

    All before the first sweep is included.
    """
    rows = []
    for name, goal in zip(arguments.corpora, arguments.goals, strict=True):
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


def priors(arguments):
    """Held-out perplexity and coherence (NPMI) by the document-topic prior.

    tomotopy learns its own, as it does.
    """
    rows = []
    for name in arguments.corpora:
        train, test = split(some_documents(name))
        for k in arguments.topics:
            for seed in range(arguments.seeds):
                ways = {"1/K": 1 / k, "0.1": 0.1, "50/K": 50 / k, "learn": "learn"}
                for way, prior in ways.items():
                    options = {
                        "doc_topic_prior": prior,
                        "sampler": (arguments.samplers or ["warp"])[0],
                    }
                    one = lda(k, max_iter=arguments.max_iter, random_state=seed, **options).fit(
                        train
                    )
                    rows.append(
                        [name, k, seed, way, one.perplexity(test), npmi(one, train), spread(one, k)]
                    )
                    print(rows[-1], file=sys.stderr, flush=True)
                if arguments.peer:
                    peer = make_tomotopy(train, k, 0.1, seed)
                    peer.train(arguments.max_iter, workers=1)
                    one = of_tomotopy(peer, train.shape[1])
                    rows.append(
                        [
                            name,
                            k,
                            seed,
                            "tomotopy",
                            one.perplexity(test),
                            npmi(one, train),
                            spread(one, k),
                        ]
                    )
                    print(rows[-1], file=sys.stderr, flush=True)
    table(
        priors.__doc__,
        ["corpus", "topics", "seed", "prior", "perplexity", "NPMI", "sum, least, largest"],
        rows,
    )


def spread(fitted, k):
    """Return the sum of a document-topic prior, its least and its largest value."""
    alphas = np.broadcast_to(fitted.doc_topic_prior_, k)
    return f"{alphas.sum():.3g} {alphas.min():.2g} {alphas.max():.2g}"


def starts(arguments):
    """Held-out perplexity and coherence (NPMI) after so many sweeps, by the start.

    They are means over seeds.
    """
    rows, named = (
        [],
        [f"{figure}, {n}" for n in arguments.sweeps for figure in ("perplexity", "NPMI")],
    )
    header = ["corpus", "topics", "sampler", "init", *named, "spread"]
    for name in arguments.corpora:
        train, test = split(some_documents(name))
        for k in arguments.topics:
            for sampler, init in itertools.product(arguments.samplers or ["auto"], arguments.inits):
                given = {"sampler": sampler, "init": init}
                if arguments.default_priors:
                    given |= DEFAULT_PRIORS
                found = [
                    _figures(k, train, test, arguments.sweeps, random_state=s, **given)
                    for s in range(arguments.seeds)
                ]
                spread = np.ptp(found, axis=0)[-2] / np.mean(found, axis=0)[-2]
                rows.append([name, k, sampler, init, *np.mean(found, axis=0), spread])
                table("so far", header, rows[-1:])
    table(starts.__doc__, header, rows)


def _figures(k, train, test, sweeps, **params):
    """Return perplexity and coherence of one fit after each of the numbers of sweeps."""
    found = []

    def at_end(sweep, seconds, fitted):
        if sweep in sweeps:
            model = fitted()
            found.extend([model.perplexity(test), npmi(model, train)])

    lda(k, max_iter=max(sweeps), **params).set_callbacks(SweepClock(at_end)).fit(train)
    return found


def npmi(fitted, X, n_top=10):
    """Return the mean normalised pointwise mutual information of pairs of topics' top words.

    The mean is over topics.

    Chances are those of documents of X to hold the words; pairs that never meet count as -1.
    Topics with fewer than `n_top` words are left out.  Aletras and Stevenson, "Evaluating topic
    coherence using distributional semantics", IWCS 2013.
    """
    counts = fitted.topic_word_counts_.toarray()
    tops = [
        np.argsort(-row, kind="stable")[:n_top] for row in counts if np.count_nonzero(row) >= n_top
    ]
    used = np.unique(np.concatenate(tops))
    present = (X[:, used] > 0).astype(float)
    together = (present.T @ present).toarray() / X.shape[0]
    values = []
    for top in tops:
        at = np.searchsorted(used, top)
        one, other = np.triu_indices(n_top, 1)
        both, alone = together[np.ix_(at, at)][one, other], np.diag(together)[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.log(both / (alone[one] * alone[other])) / -np.log(both)
        values.append(np.mean(np.where(both > 0, value, -1.0)))
    return float(np.mean(values))


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


def late(arguments):
    """Million tokens per CPU second in sweeps 81 to 100 from a uniform start, one thread."""
    rows = []
    for name in arguments.corpora:
        X = some_documents(name)
        for k, sampler in itertools.product(
            arguments.topics, arguments.samplers or ("warp", *SEQUENTIAL)
        ):
            warm(k, sampler=sampler, evaluate_every=0)
            clock = SweepClock()
            lda(k, sampler=sampler, init="uniform", n_shards=1, max_iter=100).set_callbacks(
                clock
            ).fit(X)
            rows.append([name, k, sampler, X.sum() / median(clock.cpu[80:]) / 1e6])
    table(late.__doc__, ["corpus", "K", "sampler", "million tokens per CPU second"], rows)


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


def bits(arguments):
    """Fingerprints of the fitted counts."""
    X = corpus(arguments.small)
    ways = {"one thread": {}, "two threads": {"n_jobs": 2}}
    ways.update({f"{n} shards": {"n_shards": n} for n in (2, 3, 8)})
    rows = [[way, digest(lda(100, max_iter=20, **params).fit(X))] for way, params in ways.items()]
    for n_workers in (1, 2, 3, 4):
        for processes in (True, False):
            with (
                LocalCluster(
                    n_workers, processes=processes, threads_per_worker=1, dashboard_address=":0"
                ) as local,
                Client(local),
            ):
                kind = "processes" if processes else "threads"
                rows.append(
                    [
                        f"cluster, {n_workers} {kind}",
                        digest(lda(100, max_iter=20, n_shards=n_workers).fit(X)),
                    ]
                )
    table(bits.__doc__, ["way", "fingerprint"], rows)


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


def progress(arguments):
    """Joint log-likelihood after each sweep at 64 shards against 1.

    The staleness of the topic totals is beside it.
    """
    X = corpus(arguments.small)
    rows = []
    for sampler in ("warp", *SEQUENTIAL):
        one, many = (
            lda(100, sampler=sampler, max_iter=20, evaluate_every=1, n_shards=n, n_jobs=2)
            .fit(X)
            .history_
            for n in (1, 64)
        )
        gaps = [
            abs(a["log_likelihood"] / b["log_likelihood"] - 1)
            for a, b in zip(one, many, strict=True)
        ]
        rows.append(
            [
                arguments.small,
                sampler,
                max(gaps),
                max(record.get("s_error", 0.0) for record in many),
            ]
        )
    table(
        progress.__doc__,
        ["corpus", "sampler", "largest relative difference", "largest s-error"],
        rows,
    )


def first(arguments):
    """Seconds of the first and second fit in a fresh process with kernels cached on disk."""
    code = (
        "import time, numpy as np; t0 = time.perf_counter(); from schmp_estimators import "
        "DistributedLDA\n"
        "X = np.random.default_rng(0).poisson(0.5, (500, 300)); t = [time.perf_counter()]\n"
        "for _ in range(2): DistributedLDA(20, max_iter=10, random_state=0).fit(X); "
        "t.append(time.perf_counter())\n"
        "print(t[0] - t0, t[1] - t[0], t[2] - t[1])"
    )
    rows = []
    for repeat in range(arguments.repeats + 1):
        times = [
            float(s)
            for s in subprocess.check_output([sys.executable, "-c", code], text=True).split()
        ]
        rows.append([repeat, *times, times[1] - times[2]])
    table(first.__doc__, ["run", "import", "first fit", "second fit", "difference"], rows[1:])


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
    for name, k, seed in corpora + [(name, None, 0) for name in arguments.corpora]:
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
        race,
        long,
        starts,
        begin,
        priors,
        throughput,
        late,
        shards,
        threads,
        cluster,
        bits,
        memory,
        memory_of_one,
        progress,
        first,
        numbers,
        intervals,
        stream,
    )
}


def main():
    """Run the figures named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="+", choices=FIGURES)
    parser.add_argument("--corpora", nargs="*", default=["sotu_passages", "peps", "msdocs::12"])
    parser.add_argument("--large", default="msdocs")
    parser.add_argument("--small", default="sotu_passages")
    parser.add_argument("--topics", nargs="*", type=int, default=[100, 1000])
    parser.add_argument("--topics-throughput", nargs="+", type=int, default=[100, 1000, 1_000_000])
    parser.add_argument("--topics-shards", nargs="+", type=int, default=[200, 1000])
    parser.add_argument("--proposals", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--shards", nargs="+", type=int, default=[2, 4, 8, 32, 64])
    parser.add_argument("--samplers", nargs="+")
    parser.add_argument(
        "--peer", action="store_true", help="with tomotopy, where a figure can do without"
    )
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
        help="for quality and starts: everybody's own, ours are 1 / K",
    )
    parser.add_argument("--inits", nargs="+", default=["auto", "tempered", "uniform", "sparse"])
    parser.add_argument(
        "--goals", nargs="+", type=float, help="for begin, a perplexity for each corpus"
    )
    parser.add_argument("--sweeps", nargs="+", type=int, default=[10, 50, 150])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--settings", type=int, default=10, help="for intervals, at most 12")
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["all at once"], help="stream")
    parser.add_argument("--every", type=int, default=5)
    arguments = parser.parse_args()
    if "memory-of-one" not in arguments.figures:
        print(machine(), "\n", " ".join(sys.argv))
    for figure in arguments.figures:
        FIGURES[figure](arguments)


if __name__ == "__main__":
    main()
