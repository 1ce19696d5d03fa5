"""Laws of DistributedLDA.

The same bits however the work is divided, counts conserved, and fits that can be resumed.
"""

from contextlib import nullcontext
from functools import partial
from itertools import cycle, pairwise
from unittest import mock

import numpy as np
import pytest
from callbacks import dies
from corpora import SMALL, assert_same_bits, column_sums, completion_perplexity, planted, samplers
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ranks import RankPlace
from scipy import sparse
from sklearn.exceptions import UndefinedMetricWarning

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.kernels import foldin
from schmp_estimators.lda.samplers import program_of

each_sampler = samplers()
each_invariant = samplers(wanted=lambda kind: kind.partition_invariant)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 9))
corpora = arrays(np.int64, shapes, elements=st.integers(0, 6), fill=st.just(0))

#: Laws hold for a corpus without a single count, too; that it is warned of is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:X holds no counts:UserWarning")


make = partial(DistributedLDA, n_components=3, max_iter=6, evaluate_every=2, random_state=7)


# However the work is divided.


@each_invariant
@settings(max_examples=5)
@given(corpora, st.integers(1, 20), st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 3))
def test_some_depend_neither_on_shards_nor_on_threads(
    sampler, X, n_components, seed, n_shards, n_jobs
):
    parameters = {"n_components": n_components, "random_state": seed, "max_iter": 3}
    one = make(**parameters, sampler=sampler).fit(X)
    assert_same_bits(
        make(**parameters, sampler=sampler, n_shards=n_shards, n_jobs=n_jobs).fit(X), one
    )


class Joining(RankPlace):
    """Ranks that get other parts each time they begin."""

    n_processes = 2

    def __init__(self, cuts, losses):
        super().__init__([], losses)
        self._cuts = cycle(cuts)

    def groups(self, n_shards):
        ends = sorted({0, n_shards, *(at % n_shards for at in next(self._cuts))})
        self._groups = [range(*pair) for pair in pairwise(ends)]
        return super().groups(n_shards)


@each_invariant
@settings(max_examples=5)
@given(
    corpora,
    st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=3),
    st.integers(2, 9),
    st.integers(1, 8),
)
def test_some_depend_neither_on_ranks_nor_on_what_is_joined_in_each(
    sampler, X, cuts, n_shards, loss
):
    parameters = {"sampler": sampler, "max_iter": 4}
    place = Joining(cuts, {loss})
    with mock.patch(
        "schmp_estimators.lda.estimator.choose_place", lambda *_, **__: nullcontext(place)
    ):
        found = make(**parameters, n_shards=n_shards).fit(X)
    assert_same_bits(found, make(**parameters).fit(X))
    assert not place.held


@each_invariant
def test_ranks_of_which_none_samples_a_word_locally(sampler):
    """Each word has too few tokens for rows, and too few for an owner to have too many."""
    X, place = np.tile(np.eye(40, dtype=int), (5, 1)), Joining([range(5)], set())
    parameters = {"sampler": sampler, "n_components": 20}
    with mock.patch(
        "schmp_estimators.lda.estimator.choose_place", lambda *_, **__: nullcontext(place)
    ):
        found = make(**parameters, n_shards=5).fit(X)
    assert_same_bits(found, make(**parameters).fit(X))


@each_invariant
def test_a_process_works_on_all_its_parts_together(sampler):
    kind, asked = program_of(sampler), []

    def schedule(self, sweep, n_shards):
        asked.append(n_shards)
        return made(self, sweep, n_shards)

    made = kind.schedule
    with mock.patch.object(kind, "schedule", schedule):
        assert make(sampler=sampler, n_shards=5).fit(SMALL).n_shards_ == 5
    assert {*asked} == {1}


def test_seeds_mean_something():
    one = make().fit(SMALL)
    assert_same_bits(make().fit(SMALL), one)
    assert (make(random_state=8).fit(SMALL).topic_word_counts_ != one.topic_word_counts_).nnz > 0
    unseeded = [make(random_state=None).fit(SMALL).topic_word_counts_ for _ in range(2)]
    assert (unseeded[0] != unseeded[1]).nnz > 0


# What is conserved.


@each_sampler
@settings(max_examples=5)
@given(X=corpora, n_components=st.integers(1, 30), n_shards=st.integers(1, 4))
def test_every_token_has_one_topic(sampler, X, n_components, n_shards):
    lda = make(sampler=sampler, n_components=n_components, n_shards=n_shards, max_iter=3).fit(X)
    counts = lda.topic_word_counts_
    np.testing.assert_array_equal(column_sums(counts), X.sum(axis=0))
    assert counts.data.min(initial=1) > 0
    assert counts.has_canonical_format
    assert lda.history_[-1]["samples"] == 3 * X.sum()


@each_sampler
def test_a_later_batch_is_sampled_in_the_light_of_the_earlier(sampler):
    X, _, _ = planted(seed=1)
    lda = make(n_components=4, max_iter=60, sampler=sampler).fit(X[:150])
    before = lda.topic_word_counts_.toarray()
    lda.set_params(max_iter=15).partial_fit(X[150:])
    gained = lda.topic_word_counts_.toarray() - before
    correlation = np.corrcoef(np.vstack([before, gained]))[:4, 4:]
    assert (correlation.argmax(axis=1) == np.arange(4)).all()
    assert correlation.diagonal().min() > 0.8


# Warm starts.


@each_sampler
def test_warm_start_begins_where_the_last_fit_ended(sampler):
    X, _, _ = planted(seed=2)
    parameters = {"n_components": 4, "evaluate_every": 1, "sampler": sampler}
    lda = make(**parameters, max_iter=60, warm_start=True).fit(X)
    counts, last = lda.topic_word_counts_.toarray(), lda.history_[-1]["log_likelihood"]
    few = (
        5 if sampler == "saber" else 3
    )  # where words and documents wait for each other, topics come back later
    lda.set_params(max_iter=few).fit(X)
    np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), X.sum(axis=0))
    cold = make(**parameters, max_iter=few).fit(X)
    assert lda.history_[-1]["log_likelihood"] > last - 0.05 * abs(last)
    assert lda.history_[-1]["log_likelihood"] > cold.history_[-1]["log_likelihood"]
    assert np.corrcoef(counts.ravel(), lda.topic_word_counts_.toarray().ravel())[0, 1] > 0.9


def test_warm_start_changes_nothing_the_first_time_and_refuses_another_shape():
    lda = make(warm_start=True).fit(SMALL)
    assert_same_bits(lda, make().fit(SMALL))
    with pytest.raises(
        ValueError, match="n_components=4, but the earlier fit had 3 topics; keep the number"
    ):
        lda.set_params(n_components=4).fit(SMALL)
    lda.set_params(n_components=3)
    with pytest.raises(ValueError, match="X has 5 features, but DistributedLDA is expecting 11"):
        lda.fit(SMALL[:, :5])
    lda.set_params(n_components=4, warm_start=False).fit(SMALL[:, :5])
    assert lda.components_.shape == (4, 5)


# Checkpoints.


def test_other_shards_may_go_on_with_warp(tmp_path):
    parameters = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    for n_shards, at in ((1, 2), (5, 4)):
        with pytest.raises(KeyboardInterrupt):
            make(**parameters, n_shards=n_shards).set_callbacks(dies(at)).fit(SMALL)
    assert_same_bits(make(**parameters, n_shards=2, n_jobs=2).fit(SMALL), make().fit(SMALL))


# Applying a model.


def maximum(counts, phi, alpha):
    """Return proportions of documents by dense matrices.

    They follow so many steps of EM that nothing moves any more.
    """
    weight = np.ones((len(counts), phi.shape[1]))
    for _ in range(20_000):
        weight = alpha + weight * ((counts / (weight @ phi.T)) @ phi)
    return weight / weight.sum(axis=1, keepdims=True)


@pytest.mark.covering
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-8])
@pytest.mark.parametrize("alpha", [2.0, 0.1, 0.001, "uneven"])
@pytest.mark.parametrize("n_topics", [1, 2, 6, 40])
def test_transform_is_as_near_the_maximum_as_is_asked(n_topics, alpha, tol):
    """Topics are sparse; a document is empty, and another one has only a word that no topic has."""
    rng = np.random.default_rng(5)
    alpha = np.geomspace(1e-3, 1.0, n_topics) if alpha == "uneven" else alpha
    parameters = {"doc_topic_prior": alpha, "topic_word_prior": 0.01, "transform_tol": tol}
    lda = make(n_components=n_topics, **parameters).fit(np.eye(40, dtype=int))
    table = rng.poisson(rng.gamma(0.2, 20.0, (n_topics, 40))).astype(np.int32)
    table[:, 3] = 0
    lda.topic_word_counts_ = sparse.csc_array(table)
    phi = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    sizes, shares = rng.integers(0, 200, 12), rng.dirichlet(np.full(n_topics, 0.3), 12)
    X = np.array(
        [rng.multinomial(size, share @ phi) for size, share in zip(sizes, shares, strict=True)]
    )
    X[0], X[1] = 0, np.arange(40) == 3
    theta, prior = lda.transform(X), np.full(n_topics, alpha)
    assert theta.min() > 0
    np.testing.assert_allclose(theta.sum(axis=1), 1.0, rtol=1e-14)
    assert abs(theta - maximum(X, phi.T, alpha)).sum(axis=1).max() <= tol
    np.testing.assert_allclose(theta[0], prior / prior.sum(), rtol=1e-12)


def test_a_leap_leads_where_steps_that_shrink_alike_would():
    """Scheme S3 of Varadhan and Roland takes the lengths of steps and of their difference."""
    first, alpha = np.array([3.0, -1.0, 0.5]), np.full(3, 0.1)

    def leap(second):
        weight = np.full(3, 20.0)
        return foldin._leap.py_func(np.arange(3), alpha, first, second, weight), weight

    rate, weight = leap(0.8 * first)
    assert rate == pytest.approx(0.8)
    np.testing.assert_allclose(weight, 20.0 + first * 0.8**2 / (1 - 0.8))
    second = first * [0.9, 0.5, 0.2]
    far = np.linalg.norm(first) / np.linalg.norm(second - first)
    rate, weight = leap(second)
    assert rate == pytest.approx(max(abs(second).sum() / abs(first).sum(), 1 - 1 / far))
    np.testing.assert_allclose(
        weight, 20.0 + (2 * far - 1) * first - second + far**2 * (second - first)
    )


@settings(max_examples=5)
@given(
    X=corpora, Y=corpora, n_components=st.integers(1, 6), prior=st.sampled_from([None, 0.05, 2.0])
)
def test_perplexity_is_that_of_document_completion(X, Y, n_components, prior):
    width = min(X.shape[1], Y.shape[1])
    X, Y = X[:, :width], Y[:, :width]
    lda = make(
        n_components=n_components, doc_topic_prior=prior, topic_word_prior=prior, max_iter=2
    ).fit(X)
    if (Y.sum(axis=1) // 2).sum() == 0:
        for judge in (lda.perplexity, lda.score):
            with pytest.warns(
                UndefinedMetricWarning, match=rf"X has {Y.sum()} tokens.*nothing to score"
            ):
                assert np.isnan(judge(Y))
        return
    assert lda.perplexity(Y) == pytest.approx(completion_perplexity(lda, Y), rel=1e-9)
    assert lda.score(Y) == pytest.approx(-Y.sum() * np.log(lda.perplexity(Y)), rel=1e-12)


def test_components_are_counts_plus_prior():
    lda = make(topic_word_prior=0.25).fit(SMALL)
    np.testing.assert_array_equal(lda.components_, lda.topic_word_counts_.toarray() + 0.25)
    assert (lda.doc_topic_prior_, lda.topic_word_prior_) == (1 / 3, 0.25)
    assert lda.components_.dtype == np.float64
    lda.components_[:] = 0
    assert lda.components_.min() == 0.25  # made anew on each access: nobody can spoil the model
