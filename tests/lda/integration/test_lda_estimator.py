"""DistributedLDA as its users meet it.

Quality on corpora whose topics are known, and work with scikit-learn.
"""

import math
from fractions import Fraction
from functools import partial

import dask
import numpy as np
import pytest
from clusters import own_cluster
from corpora import SMALL, assert_same_bits, planted, unigram_perplexity
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from schmp_estimators import DistributedLDA
from schmp_estimators.lda import fit as fit_module
from schmp_estimators.lda import samplers
from schmp_estimators.lda.samplers import choose_sampler

SAMPLERS = ["warp", "fplus", "frozen", "saber", "data-parallel"]


make = partial(DistributedLDA, n_components=4, random_state=7)


# Quality.


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_planted_topics_are_found_and_predict_new_documents(sampler):
    X, topics, shares = planted(n_docs=400)
    lda = make(max_iter=60, sampler=sampler, doc_topic_prior=0.15, topic_word_prior=0.05).fit(
        X[:300]
    )
    found = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    apart = np.abs(topics[:, None] - found).sum(axis=2) / 2  # total variation
    rows, order = linear_sum_assignment(apart)
    assert apart[rows, order].max() < 0.12
    theta = lda.transform(X)[:, order]
    assert np.abs(theta - shares).mean() < 0.06
    assert (theta.argmax(axis=1) == shares.argmax(axis=1)).mean() > 0.95
    tokens = [np.repeat(np.arange(X.shape[1]), row)[1::2] for row in X[300:]]
    truth = [
        np.log((share @ topics)[words]) for share, words in zip(shares[300:], tokens, strict=True)
    ]
    best = np.exp(-np.concatenate(truth).mean())
    assert (
        0.98 * best
        < lda.perplexity(X[300:])
        < min(1.15 * best, 0.6 * unigram_perplexity(X[:300], X[300:]))
    )


@pytest.mark.parametrize(
    ("n_components", "sampler"),
    [(2, "frozen"), (256, "frozen"), pytest.param(257, "saber", marks=pytest.mark.slow)],
)
def test_auto_draws_from_all_topics_where_they_are_few(n_components, sampler):
    lda = make(max_iter=2, n_components=n_components).fit(SMALL)
    assert lda.sampler_ == sampler
    assert_same_bits(lda, make(max_iter=2, n_components=n_components, sampler=sampler).fit(SMALL))


def test_auto_leaves_large_tables_to_warp(monkeypatch):
    n_used = np.count_nonzero(SMALL.sum(axis=0))
    for room, sampler in ((4 * 50 * n_used, "frozen"), (4 * 50 * n_used - 1, "warp")):
        monkeypatch.setattr(samplers, "TABLE", room)
        assert make(max_iter=1, n_components=50).fit(SMALL).sampler_ == sampler


def test_auto_looks_at_all_topics_of_long_documents():
    def chosen(n_topics=100, n_tokens=500_001, n_docs=1000):
        sizes = {"n_topics": n_topics, "n_tokens": n_tokens, "n_docs": n_docs}
        return choose_sampler("auto", n_used_words=0, **sizes)

    assert [chosen(n) for n in (99, 100, 256, 257)] == ["frozen", "saber", "saber", "warp"]
    assert chosen(n_tokens=500_000) == "frozen"
    assert [chosen(n_tokens=n) for n in (1 << 25, (1 << 25) + 1)] == ["saber", "frozen"]


def test_auto_leaves_long_documents_and_large_corpora_to_warp():
    def chosen(**sizes):
        usual = {"n_topics": 257, "n_used_words": 0, "n_tokens": 300_000, "n_docs": 1000}
        return choose_sampler("auto", **usual | sizes)

    assert [chosen(), chosen(n_tokens=300_001)] == ["saber", "warp"]
    assert [chosen(n_topics=n) for n in (4096, 4097)] == ["saber", "warp"]
    assert [chosen(n_docs=1 << 20, n_tokens=n) for n in (1 << 25, (1 << 25) + 1)] == [
        "saber",
        "warp",
    ]


# scikit-learn around it.


def test_pipeline_from_text_to_classes():
    words = (
        ["cat", "cats", "purr", "fur", "milk", "mouse"],
        ["car", "wheel", "engine", "motor", "road", "fuel"],
    )
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    text = [" ".join([*rng.choice(words[kind], 12), *rng.choice(words[1 - kind], 2)]) for kind in y]
    model = make_pipeline(
        CountVectorizer(), make(n_components=2, max_iter=40), LogisticRegression()
    )
    assert model.fit(text[:80], y[:80]).score(text[80:], y[80:]) == 1.0
    names = model[:-1].get_feature_names_out()
    assert names.tolist() == ["distributedlda0", "distributedlda1"]
    assert cross_val_score(model, text, y, cv=3).min() > 0.95
    found = GridSearchCV(model, {"distributedlda__n_components": [1, 2]}, cv=3).fit(text, y)
    assert found.best_params_ == {"distributedlda__n_components": 2}


# Many topics.


def test_components_are_refused_where_they_would_fill_the_memory():
    X = sparse.csr_array(([1, 2], ([0, 1], [0, 299_999])), shape=(2, 300_000))
    lda = make(n_components=1000, max_iter=1).fit(X)
    with pytest.raises(
        MemoryError, match=r"2.24 GiB; use the sparse topic_word_counts_.*dense-limit': 2400000000"
    ):
        _ = lda.components_
    assert lda.transform(X).shape == (2, 1000)
    with (
        dask.config.set({"schmp-estimators.dense-limit": 8 * 4 * 11 - 1}),
        pytest.raises(MemoryError),
    ):
        _ = make(max_iter=1).fit(SMALL).components_
    with dask.config.set({"schmp-estimators.dense-limit": 8 * 4 * 11}):
        assert make(max_iter=1).fit(SMALL).components_.shape == (4, 11)


@pytest.mark.cluster
def test_documents_that_do_not_fit_a_cluster_are_refused_before_work():
    X = np.full((2, 2), 2_000_000)
    with (
        own_cluster(1, memory_limit="40 MiB"),
        pytest.raises(
            MemoryError,
            match=r"needs about .* GiB on the cluster.*add workers or raise their memory_limit",
        ),
    ):
        make(max_iter=1).fit(X)


def test_a_table_of_rows_that_is_too_large_is_refused_before_work(monkeypatch):
    X = np.ones((3, 5), int)
    X[:, 2] = 0  # a word that no document has takes no room
    monkeypatch.setattr(fit_module, "LARGEST_TABLE", 4 * 32 * 4)
    assert make(max_iter=1, sampler="frozen", n_components=32).fit(X).n_iter_ == 1
    make(max_iter=1, sampler="warp", n_components=33).fit(X)
    with pytest.raises(
        MemoryError, match=r"'frozen' keeps the weights of 4 words in 33 topics.*use sampler='warp'"
    ):
        make(max_iter=1, sampler="frozen", n_components=33).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [None, 1e30])  # the second accepts all
def test_proposals_follow_from_those_of_the_sweep_before(prior):
    X, priors = 100 * SMALL, {"doc_topic_prior": prior, "topic_word_prior": prior}
    given = {"n_components": 700, "max_iter": 4, "n_shards": 2, "warm_start": True, **priors}
    lengths = X.sum(axis=1)
    fitted = make(sampler="hybrid", mh_steps="acceptance", **given)
    for _ in range(2):  # a first fit, and one that begins with a sweep of its own kind
        asked, history = 2, fitted.fit(X).history_
        for record in history:
            assert record["mh_steps"] == asked
            assert record["proposals"] == asked * lengths[lengths > 600].sum()
            assert 0 < record["accepted"] <= record["proposals"]
            asked = min(16, math.ceil(Fraction(record["proposals"], record["accepted"])))
        assert len({record["mh_steps"] for record in history}) > 1


@pytest.mark.parametrize("sampler", ["auto", "warp", "fplus", "light", "alias"])
def test_proposals_by_acceptance_are_refused_where_it_is_not_counted(sampler):
    with pytest.raises(
        ValueError,
        match=rf"mh_steps='acceptance', but sampler='{sampler}' does not make so many",
    ):
        make(sampler=sampler, mh_steps="acceptance").fit(SMALL)


@pytest.mark.slow
def test_proposals_for_long_documents_are_refused_where_all_are_short():
    """By default "hybrid" makes proposals for documents of more than 600 tokens."""
    lda = make(sampler="hybrid", n_components=601, mh_steps=3, max_iter=1, evaluate_every=0)
    X = np.eye(2, 11, dtype=int) * 600
    with pytest.raises(ValueError, match=r"mh_steps=3, but sampler='hybrid' does not make so many"):
        lda.fit(X)
    X[0, 1] = 1
    assert lda.fit(X).n_iter_ == 1


@pytest.mark.parametrize("sampler", ["auto", "warp", "frozen", "sparse"])
def test_more_proposals_than_a_sampler_makes_are_refused(sampler):
    with pytest.raises(
        ValueError, match=rf"mh_steps=5, but sampler='{sampler}' does not make so many .*'light'"
    ):
        make(sampler=sampler, mh_steps=5).fit(SMALL)
