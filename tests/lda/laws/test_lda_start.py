"""How a fit of DistributedLDA starts: which priors its sweeps have, and what it says about them."""

from math import lgamma

import matplotlib as mpl
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import make_shards, token_words
from scipy.stats import binomtest, chisquare

from schmp_estimators import ConvergenceDisplay, DistributedLDA
from schmp_estimators.core.rng import stream_key
from schmp_estimators.lda.parameters import suits_passages
from schmp_estimators.lda.programs.first_topics import draw_of_words

X, _, _ = planted(n_docs=60, length=40)  # 2,400 tokens of 40 words
ALPHA, BETA = 0.1, 0.01


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "doc_topic_prior": ALPHA, "topic_word_prior": BETA} | parameters
    )


def priors(lda):
    return [(record["doc_topic_prior"], record["topic_word_prior"]) for record in lda.history_]


class Stop:
    """Ends a fit after a sweep, and keeps what a callback sees then."""

    def __init__(self, at):
        self.at = at

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep":
            self.seen = estimator._as_if_fitted()
        return context.task_name == "sweep" and estimator.n_iter_ == self.at


# Which priors.


@pytest.mark.parametrize("max_iter", [1, 2, 3, 7, 20, 30, 31, 59, 60, 61, 90])
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
    assert [suits_passages(10**5, k) for k in (49, 50, 10**6)] == [False, True, True]
    assert [suits_passages(10**7, k) for k in (50, 99, 100)] == [False, False, True]


def test_auto_is_tempered_with_warp_and_uniform_with_fplus():
    assert_same_bits(make(max_iter=6).fit(X), make(max_iter=6, init="tempered").fit(X))
    fplus = make(max_iter=4, sampler="fplus").fit(X)
    assert_same_bits(fplus, make(max_iter=4, sampler="fplus", init="uniform").fit(X))
    assert priors(fplus) == [(ALPHA, BETA)] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("n_components", "first"), [(49, "uniform"), (50, "documents")])
def test_auto_begins_with_passages_where_there_are_many_topics(n_components, first):
    one, other = (
        make(n_components=n_components, max_iter=2, sampler="fplus", init=init).fit(X) for init in ("auto", first)
    )
    assert_same_bits(one, other)
    one, other = (make(n_components=n_components, max_iter=1, init=init).fit(X) for init in ("auto", first))
    assert_same_bits(one, other)  # a single sweep has the priors asked for


def test_a_tempered_start_samples_under_its_priors_with_fplus():
    seen = Stop(1)
    make(max_iter=2, sampler="fplus", init="tempered").set_callbacks(seen).fit(X)
    alpha, beta = seen.seen.doc_topic_prior_, seen.seen.topic_word_prior_
    assert alpha > ALPHA
    asked = {"doc_topic_prior": alpha, "topic_word_prior": beta}
    assert_same_bits(seen.seen, make(max_iter=1, sampler="fplus", init="uniform", **asked).fit(X))


def test_a_uniform_start_has_the_priors_asked_for():
    lda = make(max_iter=4, init="uniform").fit(X)
    assert priors(lda) == [(ALPHA, BETA)] * 4
    assert (lda.topic_word_counts_ != make(max_iter=4).fit(X).topic_word_counts_).nnz > 0


def first_priors(counts, n_components, alpha, beta):
    lda = DistributedLDA(
        n_components, doc_topic_prior=alpha, topic_word_prior=beta, max_iter=2, random_state=0, init="tempered"
    )
    return priors(lda.fit(counts))[0]


def test_documents_get_five_times_their_prior_but_no_more_than_half_their_length():
    """Ten documents of 40 tokens."""
    counts = np.full((10, 20), 2)
    assert first_priors(counts, 10, 0.1, 1e-9)[0] == pytest.approx(0.5)  # 10 times 0.5 is 5
    assert first_priors(counts, 40, 0.1, 1e-9)[0] == pytest.approx(0.5)  # 40 times 0.5 is 20: half of 40
    assert first_priors(counts, 80, 0.1, 1e-9)[0] == pytest.approx(0.25)  # 80 times 0.5 would be 40
    assert first_priors(counts, 80, 0.3, 1e-9)[0] == 0.3  # never less than what was asked for


def test_words_get_ten_times_their_prior_where_documents_are_short_and_topics_have_tokens_enough():
    """With K = 4 a topic has 100 tokens; 25 used words times a prior of 1 are outweighed four times."""
    counts = np.zeros((10, 30), int)
    counts[:, :25] = 2
    counts[:5, 1:3] -= 2
    counts[5:, 5:7] -= 2
    assert (counts.sum(), np.count_nonzero(counts.sum(axis=0))) == (460, 25)
    assert first_priors(counts, 4, 0.1, 0.114)[1] == pytest.approx(1.14)  # 4 * 25 * 1.14 is 114, a topic has 115
    assert first_priors(counts, 4, 0.1, 0.116)[1] == 0.116  # 116 is too much
    long = np.zeros((2, 25), int)
    long[:] = 20
    assert first_priors(long[:, :24], 2, 0.1, 0.1)[1] == pytest.approx(1.0)  # 480 tokens in a document
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


@pytest.mark.slow
@pytest.mark.parametrize("evaluate_every", [1, 7])
def test_tol_compares_sweeps_after_the_start_only(evaluate_every):
    lda = make(max_iter=60, evaluate_every=evaluate_every, tol=1e9).fit(X)  # any change is small enough
    evaluated = [sweep for sweep in range(31, 60) if sweep % evaluate_every == 0]
    assert lda.n_iter_ == evaluated[1]
    assert make(max_iter=60, evaluate_every=1, tol=1e9, init="uniform").fit(X).n_iter_ == 2
    assert make(max_iter=60, evaluate_every=1, tol=1e9, sampler="fplus").fit(X).n_iter_ == 2


def test_no_fit_is_worse_for_a_start_it_had_no_time_to_leave():
    """Short fits end under the priors asked for: their topics are as sharp as those of a uniform start, or nearly."""
    corpus, _, _ = planted(n_docs=300)
    train, test = corpus[:200], corpus[200:]
    for max_iter in (10, 20, 30):
        fits = [make(max_iter=max_iter, init=init, n_components=10).fit(train) for init in ("tempered", "uniform")]
        tempered, uniform = (lda.perplexity(test) for lda in fits)
        assert tempered < 1.05 * uniform


# First topics of words.


def first_topics(n_topics, n_choices, cuts, seed=0):
    """Return the first topics of a corpus in document order, and the words of its tokens."""
    counts = np.random.default_rng(seed).poisson(1.5, (40, 30))
    counts[:, 7] = 0
    words, tokens = stream_key(1, 0, 3), stream_key(1, 0, 4)
    topics = []
    for shard in make_shards(counts, cuts)[0]:
        topics.append(np.full(len(shard.place), -1, np.int16))
        draw_of_words(shard, n_topics, n_choices, words, tokens, topics[-1])
    return np.concatenate(topics), token_words(counts)


@pytest.mark.parametrize("n_choices", [1, 2, 3])
def test_a_word_begins_in_few_topics(n_choices):
    topics, words = first_topics(1000, n_choices, ())
    found = [np.unique(topics[words == word]) for word in range(30)]
    assert [len(one) for one in found] == [n_choices] * 7 + [0] + [n_choices] * 22
    assert len(set(np.concatenate(found))) > 0.9 * 29 * n_choices  # words draw for themselves


@pytest.mark.parametrize("cuts", [(20,), (3, 11, 39)])
def test_first_topics_of_words_do_not_depend_on_the_division(cuts):
    np.testing.assert_array_equal(first_topics(50, 2, cuts)[0], first_topics(50, 2, ())[0])


def test_first_topics_of_words_are_uniform():
    """Of topics over words, and of the two of a word over its tokens."""
    rng_free = np.eye(4000, dtype=np.int32) * 3
    [shard], _ = make_shards(rng_free)
    topics = np.empty(12_000, np.int32)
    draw_of_words(shard, 5, 2, stream_key(3, 0, 3), stream_key(3, 0, 4), topics)
    of_words = topics.reshape(4000, 3)
    assert chisquare(np.bincount(of_words[:, 0], minlength=5)).pvalue > 1e-3
    # three tokens, two topics of which one in five are the same: all alike in 1/5 + 4/5 · 1/4
    alike = int((of_words == of_words[:, :1]).all(axis=1).sum())
    assert binomtest(alike, 4000, 0.4).pvalue > 1e-3


@pytest.mark.parametrize("sampler", ["warp", "fplus", "frozen"])
def test_a_sparse_start(sampler):
    lda = make(max_iter=3, init="sparse", sampler=sampler, n_shards=1).fit(X)
    assert priors(lda) == [(ALPHA, BETA)] * 3
    assert_same_bits(lda, make(max_iter=3, init="sparse", sampler=sampler, n_shards=1).fit(X))
    assert (lda.topic_word_counts_ != make(max_iter=3, init="uniform", sampler=sampler).fit(X).topic_word_counts_).nnz
    assert lda.topic_word_counts_.sum() == X.sum()
    if sampler != "fplus":
        assert_same_bits(lda, make(max_iter=3, init="sparse", sampler=sampler, n_shards=3).fit(X))


def test_a_sparse_start_does_not_count_where_there_is_something_to_start_from():
    for fit in ("fit", "partial_fit"):
        warm = [make(max_iter=2, init=init, warm_start=True).fit(X) for init in ("uniform", "uniform")]
        assert_same_bits(
            *(
                getattr(lda.set_params(init=init), fit)(X[:20])
                for lda, init in zip(warm, ("sparse", "uniform"), strict=True)
            )
        )


def test_many_topics_are_told_apart_sooner_by_a_sparse_start():
    corpus, _, _ = planted(n_docs=400)
    sparse, uniform = (
        make(max_iter=5, init=init, n_components=300).fit(corpus[:300]) for init in ("sparse", "uniform")
    )
    assert sparse.perplexity(corpus[300:]) < uniform.perplexity(corpus[300:])


# Going on.


def test_the_start_of_a_resumed_fit_is_that_of_the_fit_that_began(tmp_path):
    place = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    make(max_iter=10, **place).fit(X)
    lda = make(max_iter=80, **place).fit(X)
    hot = priors(lda)[0]
    assert priors(lda) == [hot] * 5 + [(ALPHA, BETA)] * 75  # a start that has ended does not begin again


@pytest.mark.parametrize(("done", "max_iter", "n_hot"), [(4, 80, 30), (12, 40, 20), (12, 20, 12), (12, 12, 12)])
def test_a_start_that_was_interrupted_ends_in_time(done, max_iter, n_hot, tmp_path):
    place = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    make(max_iter=80, **place).set_callbacks(Stop(done)).fit(X)
    lda = make(max_iter=max_iter, **place).fit(X)
    used = priors(lda)
    assert used == [used[0]] * n_hot + [(ALPHA, BETA)] * (max_iter - n_hot)
    assert (lda.doc_topic_prior_, lda.topic_word_prior_) == used[-1]
    if max_iter == 80:
        assert_same_bits(lda, make(max_iter=80).fit(X))


@pytest.mark.parametrize("sampler", ["warp", "fplus", "frozen"])
@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_a_warm_start_has_a_record_for_each_sweep(sampler, max_iter):
    mpl.use("Agg")
    watch = Stop(-1)
    lda = make(max_iter=max_iter, sampler=sampler, evaluate_every=1, warm_start=True).fit(X)
    lda.set_callbacks(watch).fit(X)
    assert [record["iterations"] for record in lda.history_] == list(range(1, max_iter + 1))
    assert [record["samples"] for record in lda.history_] == [X.sum() * i for i in range(1, max_iter + 1)]
    seconds = [record["seconds"] for record in lda.history_]
    assert seconds == sorted(seconds) and seconds[0] > 0
    assert priors(lda) == [(ALPHA, BETA)] * max_iter
    assert lda.n_iter_ == max_iter
    assert watch.seen.n_iter_ == max_iter
    assert len(ConvergenceDisplay.from_estimator(lda).y) == max_iter
    mpl.pyplot.close("all")


@pytest.mark.parametrize("sampler", ["warp", "fplus", "frozen"])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_the_first_record_of_a_warm_start_knows_nothing_of_the_documents_before(sampler, n_shards):
    """Its log-likelihood is that of its own tokens alone."""
    lda = make(max_iter=1, sampler=sampler, n_shards=n_shards, evaluate_every=1, warm_start=True).fit(X)
    before = lda.fit(X[:20]).history_[-1]
    assert before.keys() == make(max_iter=1, sampler=sampler, evaluate_every=1).fit(X).history_[0].keys()
    words = lda.topic_word_counts_.toarray()
    assert words.sum() == X[:20].sum()
    of_words = sum(lgamma(n + BETA) - lgamma(BETA) for n in words.ravel()) + sum(
        lgamma(words.shape[1] * BETA) - lgamma(n + words.shape[1] * BETA) for n in words.sum(axis=1)
    )
    assert before["word_log_likelihood"] == pytest.approx(of_words, rel=1e-9)
    assert before["log_likelihood"] == before["document_log_likelihood"] + before["word_log_likelihood"]


def test_a_callback_can_end_a_warm_start_after_its_first_sweep():
    lda = make(max_iter=5, warm_start=True).fit(X).set_callbacks(Stop(1)).fit(X)
    assert (lda.n_iter_, len(lda.history_)) == (1, 1)
    assert lda.topic_word_counts_.sum() == X.sum()


def test_an_earlier_fit_leaves_no_room_for_a_tempered_start():
    batches = make(max_iter=6, init="tempered").partial_fit(X[:30])
    assert priors(batches)[0][0] > ALPHA
    assert priors(batches.partial_fit(X[30:])) == [(ALPHA, BETA)] * 6
    warm = make(max_iter=6, init="tempered", warm_start=True).fit(X)
    assert priors(warm.fit(X)) == [(ALPHA, BETA)] * 6


@pytest.mark.filterwarnings("ignore:X holds no counts:UserWarning")
@pytest.mark.parametrize("sampler", ["warp", "fplus", "frozen"])
def test_each_batch_has_random_numbers_of_its_own(sampler):
    """The same batch again and again, after nothing was learnt: only the numbers differ."""
    empty = np.zeros_like(SMALL)
    results = []
    for n_before in (1, 2, 3):
        lda = make(max_iter=3, sampler=sampler, init="uniform", n_shards=1)
        for _ in range(n_before):
            lda.partial_fit(empty)
        results.append(lda.partial_fit(SMALL).topic_word_counts_.toarray())
    assert len({result.tobytes() for result in results}) == 3
    same = make(max_iter=3, sampler=sampler, init="uniform", n_shards=1).partial_fit(empty).partial_fit(SMALL)
    np.testing.assert_array_equal(same.topic_word_counts_.toarray(), results[0])
