"""Topic models: samplers, shards, sizes, ways to go on."""

import re

import dask.array as da
import numpy as np
from corpora import SMALL, planted
from golden.record import result
from scipy import sparse

from schmp_estimators import DistributedLDA, HeldOutPerplexity

EVERYWHERE = ("here", "threads", "cluster", "dask")
HERE = ("here",)

X = planted(n_docs=60, length=30, seed=1)[0]
WIDE = 3.0 * (np.random.default_rng(2).random((25, 300)) < 0.05)
WIDE[[0, 9, 10, 24]] = 0.0
WIDE = sparse.csr_array(WIDE)
UNEVEN = [0.05, 0.1, 0.2, 0.4, 1.5]
SEEDS = {1: [0, 1, 2], 3: [2, 11, 30]}
HEAVY = np.random.default_rng(3).poisson(400.0, (6, 5))


def given(X, place):
    """Return X as the input at a place."""
    if place != "dask":
        return X
    rows = max(1, len(X) // 3) if isinstance(X, np.ndarray) else X.shape[0] // 3
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    return da.from_array(dense, chunks=(rows, X.shape[1]))


def make(place="here", **parameters):
    threads = {"n_jobs": 2} if place == "threads" else {}
    usual = {"n_components": 5, "max_iter": 6, "evaluate_every": 2, "random_state": 0}
    return DistributedLDA(**usual | threads | parameters)


def described(lda, X):
    """Return what a fitted model is remembered by."""
    likelihood = [record["log_likelihood"] for record in lda.history_ if "log_likelihood" in record]
    perplexity = lda.perplexity(X)
    figures = {"perplexity": perplexity} | (
        {"log_likelihood": likelihood[-1]} if likelihood else {}
    )
    own = {} if np.ndim(lda.doc_topic_prior_) == 0 else {"doc_topic_prior": lda.doc_topic_prior_}
    return result(
        figures,
        **own,
        counts=lda.topic_word_counts_,
        n_iter=lda.n_iter_,
        likelihood=likelihood,
        perplexity=perplexity,
        proportions=np.asarray(lda.transform(X)),
    )


def fit(X=X, **parameters):
    return lambda place: described(make(place, **parameters).fit(given(X, place)), X)


def partial(**parameters):
    def run(place):
        lda = make(place, **parameters)
        for rows in (X[:20], X[20:30], X[30:]):
            lda.partial_fit(given(rows, place))
        return described(lda, X)

    return run


def warm(**parameters):
    def run(place):
        lda = make(place, warm_start=True, **parameters).fit(given(X, place))
        return described(lda.set_params(max_iter=4).fit(given(X, place)), X)

    return run


def watched(place):
    lda = make(place, max_iter=60).set_callbacks(
        HeldOutPerplexity(X[:9], every=3, patience=1, tol=0.01)
    )
    return described(lda.fit(given(X, place)), X)


def each(about, samplers, places=EVERYWHERE, make=fit, **parameters):
    """Return a case for each sampler."""
    return {f"{one}, {about}": (make(sampler=one, **parameters), places) for one in samplers}


TWO = {"n_shards": 2}
SMALL_PRIORS = {"doc_topic_prior": 0.05, "topic_word_prior": 0.002}
LEARNED = {"doc_topic_prior": "learn"}

#: By name: what runs, and where all give the same bits.
CASES = {
    "defaults": (fit(), EVERYWHERE),
    "warp, 1 proposal": (fit(sampler="warp", mh_steps=1), EVERYWHERE),
    "warp, 2 proposals": (fit(sampler="warp", mh_steps=2), EVERYWHERE),
    "warp, 3 proposals": (fit(sampler="warp", mh_steps=3), HERE),
    "warp, 3 proposals on 3 shards": (fit(sampler="warp", mh_steps=3, n_shards=3), EVERYWHERE),
    "warp, more topics than words": (fit(SMALL, sampler="warp", n_components=40), HERE),
    "warp, one topic": (fit(SMALL, sampler="warp", n_components=1), HERE),
    "warp, 40,000 topics": (fit(SMALL, sampler="warp", n_components=40_000, max_iter=2), HERE),
    "warp, long run": (fit(sampler="warp", max_iter=40), HERE),
    "warp, tolerance": (fit(sampler="warp", max_iter=200, tol=5e-3), HERE),
    "warp, learned priors, partial_fit": (partial(sampler="warp", max_iter=20, **LEARNED), HERE),
    "watched": (watched, HERE),
    "fplus": (fit(sampler="fplus", n_shards=1), EVERYWHERE),
    "hybrid": (fit(sampler="hybrid", n_shards=2), HERE),
    "hybrid, long documents": (
        fit(HEAVY, sampler="hybrid", n_components=700, max_iter=4, n_shards=2),
        EVERYWHERE,
    ),
    "hybrid, proposals by acceptance": (
        fit(HEAVY, sampler="hybrid", mh_steps="acceptance", n_components=700, n_shards=2),
        EVERYWHERE,
    ),
    "frozen": (fit(sampler="frozen"), EVERYWHERE),
    "frozen, small priors": (fit(sampler="frozen", **SMALL_PRIORS), HERE),
    "frozen, 100 topics": (fit(sampler="frozen", n_components=100), HERE),
    "saber": (fit(sampler="saber"), HERE),
    "saber, 300 topics": (fit(sampler="saber", n_components=300), HERE),
    **each("2 shards", ["sparse", "light", "alias"], **TWO),
    **each("3 shards", ["fplus", "data-parallel", "frozen", "saber"], n_shards=3),
    **each("small priors", ["warp"], **TWO, **SMALL_PRIORS),
    **each("small priors", ["fplus"], HERE, **TWO, **SMALL_PRIORS),
    **each("empty documents", ["warp", "fplus", "frozen", "saber"], X=WIDE, **TWO),
    **each("heavy counts", ["warp", "fplus", "frozen", "saber"], HERE, X=HEAVY, **TWO),
    **each("passages", ["warp", "saber"], init="documents", **TWO),
    **each("passages", ["fplus"], HERE, init="documents", n_shards=3),
    **each("sparse start", ["warp"], init="sparse", **TWO),
    **each("sparse start", ["fplus"], HERE, init="sparse", n_shards=3),
    **each("partial_fit", ["warp"], make=partial),
    **each("partial_fit", ["fplus", "frozen", "saber"], HERE, partial),
    **each("warm start", ["warp", "fplus", "frozen"], make=warm, **TWO),
    **each("a prior for each topic", ["warp", "fplus"], doc_topic_prior=UNEVEN, **TWO),
    **each("learned priors", ["warp", "fplus", "saber"], max_iter=40, **TWO, **LEARNED),
    **each("seeds", ["warp", "fplus", "frozen", "saber"], seed_words=SEEDS, **TWO),
    **each("seeds", ["sparse", "light", "alias"], HERE, seed_words=SEEDS, **TWO),
    **each("seeds, partial_fit", ["warp"], make=partial, seed_words=SEEDS),
    **each("seeds, partial_fit", ["frozen"], HERE, partial, seed_words=SEEDS),
}

#: These run at all their places with every change; the others elsewhere than here in the slow lane.
EVERY_CHANGE = {"warp, partial_fit"}
#: These have kernels of their own to compile, and run in the slow lane only.
OWN_KERNELS = re.compile(
    "seeds|[13] proposals?|40,000|a prior for each|^(alias|sparse|light)|fplus, learned"
)
SLOW = {name for name in CASES if OWN_KERNELS.search(name)}
