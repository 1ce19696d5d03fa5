"""How a fit of DistributedLDA starts: which priors its sweeps have, and what it says about them."""

from functools import partial

import numpy as np
import pytest
from callbacks import AfterSweeps
from corpora import assert_same_bits, planted
from scipy.stats import chisquare

from schmp_estimators import DistributedLDA
from schmp_estimators.core.rng import stream_key
from schmp_estimators.lda.data import shards
from schmp_estimators.lda.parameters import Sizes, choose_start
from schmp_estimators.lda.programs.seeds import draw_uniform_topics

X, _, _ = planted(n_docs=60, length=40)  # 2,400 tokens of 40 words
ALPHA, BETA = 0.1, 0.01


make = partial(
    DistributedLDA, n_components=4, random_state=7, doc_topic_prior=ALPHA, topic_word_prior=BETA
)


def priors(lda):
    return [(record["doc_topic_prior"], record["topic_word_prior"]) for record in lda.history_]


class Stop(AfterSweeps):
    """Ends a fit after a sweep, and keeps what a callback sees then."""

    def __init__(self, at):
        super().__init__(self.look)
        self.at = at

    def look(self, estimator, context):
        self.seen = estimator._as_if_fitted()
        return estimator.n_iter_ == self.at


# Which priors.


@pytest.mark.parametrize("max_iter", [1, 3, 30, 61, 90])
def test_a_tempered_start_is_at_most_thirty_sweeps_and_half_of_any_fit(max_iter):
    lda = make(max_iter=max_iter, init="tempered").fit(X[:5])
    n_hot = min(30, max_iter // 2)
    used = priors(lda)
    assert len(used) == lda.n_iter_ == max_iter
    assert all(alpha > ALPHA for alpha, _ in used[:n_hot])
    assert used[n_hot:] == [(ALPHA, BETA)] * (max_iter - n_hot)
    assert (lda.doc_topic_prior_, lda.topic_word_prior_) == (ALPHA, BETA)
    np.testing.assert_array_equal(lda.components_, lda.topic_word_counts_.toarray() + BETA)


def test_passages_are_for_many_topics_that_are_not_too_large():
    def suits(n_tokens, n_topics):
        sizes = Sizes(n_tokens, 100, 100, n_topics)
        return choose_start("auto", (0.1, 0.1), sizes, tempers=False).topics == "documents"

    assert [suits(10**5, k) for k in (49, 50, 10**6)] == [False, True, True]
    assert [suits(10**7, k) for k in (50, 99, 100)] == [False, False, True]


def test_auto_is_tempered_with_warp_and_uniform_with_fplus():
    assert_same_bits(make(max_iter=6).fit(X), make(max_iter=6, init="tempered").fit(X))
    fplus = make(max_iter=4, sampler="fplus").fit(X)
    assert_same_bits(fplus, make(max_iter=4, sampler="fplus", init="uniform").fit(X))
    assert priors(fplus) == [(ALPHA, BETA)] * 4


def first_priors(counts, n_components, alpha, beta):
    parameters = {"n_components": n_components, "doc_topic_prior": alpha, "topic_word_prior": beta}
    lda = make(**parameters, max_iter=2, init="tempered")
    return priors(lda.fit(counts))[0]


def test_documents_get_five_times_their_prior_but_no_more_than_half_their_length():
    """Ten documents of 40 tokens."""
    counts = np.full((10, 20), 2)
    assert first_priors(counts, 10, 0.1, 1e-9)[0] == pytest.approx(0.5)  # 10 times 0.5 is 5
    assert first_priors(counts, 40, 0.1, 1e-9)[0] == pytest.approx(
        0.5
    )  # 40 times 0.5 is 20: half of 40
    assert first_priors(counts, 80, 0.1, 1e-9)[0] == pytest.approx(0.25)  # 80 times 0.5 would be 40
    assert first_priors(counts, 80, 0.3, 1e-9)[0] == 0.3  # never less than what was asked for


def test_words_get_ten_times_their_prior_where_documents_are_short_and_topics_have_tokens_enough():
    """With K = 4 a topic has 100 tokens.

    25 used words times a prior of 1 are outweighed four times.
    """
    counts = np.zeros((10, 30), int)
    counts[:, :25] = 2
    counts[:5, 1:3] -= 2
    counts[5:, 5:7] -= 2
    assert (counts.sum(), np.count_nonzero(counts.sum(axis=0))) == (460, 25)
    assert first_priors(counts, 4, 0.1, 0.114)[1] == pytest.approx(
        1.14
    )  # 4 * 25 * 1.14 is 114, a topic has 115
    assert first_priors(counts, 4, 0.1, 0.116)[1] == 0.116  # 116 is too much
    long = np.zeros((2, 25), int)
    long[:] = 20
    assert first_priors(long[:, :24], 2, 0.1, 0.1)[1] == pytest.approx(
        1.0
    )  # 480 tokens in a document
    assert first_priors(long, 2, 0.1, 0.1)[1] == 0.1  # 500


# What it says.


def test_a_fit_that_was_ended_in_its_start_says_so():
    stop = Stop(3)
    lda = make(max_iter=60).set_callbacks(stop).fit(X)
    hot = priors(lda)[-1]
    assert lda.n_iter_ == 3 and hot[0] > ALPHA and hot[1] > BETA
    assert (lda.doc_topic_prior_, lda.topic_word_prior_) == hot
    assert (stop.seen.doc_topic_prior_, stop.seen.topic_word_prior_) == hot
    np.testing.assert_array_equal(lda.components_, lda.topic_word_counts_.toarray() + hot[1])


def test_shards_of_fplus_follow_from_the_documents_alone(monkeypatch):
    monkeypatch.setattr(shards, "TOKENS_PER_CELL", 100)
    assert make(max_iter=1, sampler="fplus").fit(X).n_shards_ == 4


# Going on.


@pytest.mark.parametrize(("done", "max_iter", "n_hot"), [(4, 80, 30), (12, 20, 12)])
def test_a_start_that_was_interrupted_ends_in_time(done, max_iter, n_hot, tmp_path):
    place = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    make(max_iter=80, **place).set_callbacks(Stop(done)).fit(X)
    lda = make(max_iter=max_iter, **place).fit(X)
    used = priors(lda)
    assert used == [used[0]] * n_hot + [(ALPHA, BETA)] * (max_iter - n_hot)
    assert (lda.doc_topic_prior_, lda.topic_word_prior_) == used[-1]
    if max_iter == 80:
        assert_same_bits(lda, make(max_iter=80).fit(X))


def test_an_earlier_fit_leaves_no_room_for_a_tempered_start():
    batches = make(max_iter=6, init="tempered").partial_fit(X[:30])
    assert priors(batches)[0][0] > ALPHA
    assert priors(batches.partial_fit(X[30:])) == [(ALPHA, BETA)] * 6
    warm = make(max_iter=6, init="tempered", warm_start=True).fit(X)
    assert priors(warm.fit(X)) == [(ALPHA, BETA)] * 6


def test_batches_have_random_numbers_of_their_own():
    """With such priors it does not matter what was drawn before."""
    lda = make(
        max_iter=1, doc_topic_prior=1e30, topic_word_prior=1e30, sampler="frozen", init="uniform"
    )
    first = lda.partial_fit(X).topic_word_counts_.toarray()
    assert (lda.partial_fit(X).topic_word_counts_.toarray() != 2 * first).any()


def test_a_sparse_start_gives_each_word_two_topics():
    """With hardly any prior of words their tokens never leave the topics that they began in."""
    go = partial(make, n_components=10, topic_word_prior=1e-30, sampler="frozen", max_iter=3)
    n_topics = {
        init: np.count_nonzero(go(init=init).fit(X).topic_word_counts_.toarray(), axis=0)
        for init in ("sparse", "uniform")
    }
    assert n_topics["sparse"].max() <= 2 < n_topics["uniform"].min()


def test_uniform_topics_are_those_of_the_tokens_however_they_are_cut():
    whole, key = np.empty(50_000, np.uint8), stream_key(3)
    draw_uniform_topics(7, key, 200, whole)
    for begin, end in ((0, 9), (9, 30_000), (30_000, 50_000)):
        part = np.empty(end - begin, np.int16)
        draw_uniform_topics(7 + begin, key, 200, part)
        np.testing.assert_array_equal(part, whole[begin:end])
    assert chisquare(np.bincount(whole, minlength=200)).pvalue > 1e-3


# How it ends.


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e9])
def test_a_fit_has_converged_when_the_last_two_evaluations_hardly_differ(size):
    estimator = DistributedLDA(tol=0.01, doc_topic_prior=0.1, topic_word_prior=0.1)
    priors = {"doc_topic_prior": 0.1, "topic_word_prior": 0.1}
    for values, converged in (
        ([-3.0], False),
        ([-3.0, -2.0], False),
        ([-2.01, -2.0], True),
        ([-2.0, -2.01], True),
        ([-3.0, -2.01, -2.0], True),
        ([-2.01, -2.0, -1.0], False),
        ([-2.04, -2.0], False),
    ):
        estimator.history_ = [{"log_likelihood": value * size, **priors} for value in values]
        assert estimator._has_converged() == converged
        estimator.history_.append({"moved": 1, **priors})  # not evaluated: nothing new is known
        assert not estimator._has_converged()
    values = {"log_likelihood": -2.0 * size}
    estimator.history_ = [
        {**values, **priors, "topic_word_prior": 1.0},
        {**values, **priors},
    ]  # the first is tempered
    assert not estimator._has_converged()
    estimator.set_params(tol=0.0).history_ = [{"log_likelihood": -2.0, **priors}] * 2
    assert not estimator._has_converged()
