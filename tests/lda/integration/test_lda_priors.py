"""Priors of `DistributedLDA` beyond two numbers, as users meet them."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, completion_perplexity, planted, samplers
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from schmp_estimators import DistributedLDA
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.lda.samplers import program_of

UNEVEN = [0.05, 0.3, 2.0]
each_sampler = samplers(["warp"])


make = partial(
    DistributedLDA,
    n_components=3,
    max_iter=6,
    evaluate_every=2,
    random_state=7,
    doc_topic_prior=UNEVEN,
)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (
            [0.1, 0.2],
            r"doc_topic_prior has shape \(2,\), but n_components=3; give .* of shape \(3,\)",
        ),
        ([[0.1, 0.2, 0.3]], r"shape \(1, 3\)"),
        (
            [0.1, 0.0, 0.3],
            r"doc_topic_prior\[1\] is 0.0; .* 1e-30 to 1e\+30: give rare topics a small prior",
        ),
        ([0.1, np.nan, -1.0], r"doc_topic_prior\[1\] is nan; .* so must 1 others"),
        ([0.1, np.inf, 1.0], r"doc_topic_prior\[1\] is inf"),
        (["a", "b", "c"], "doc_topic_prior must be one number, or numbers, one for each topic"),
        (np.inf, "doc_topic_prior"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(make(doc_topic_prior=prior), method)(SMALL)


@each_sampler
def test_a_prior_for_each_topic_is_in_all_that_is_fitted(sampler):
    given = np.array(UNEVEN)
    lda = make(doc_topic_prior=given, sampler=sampler, n_shards=2, init="uniform").fit(SMALL)
    np.testing.assert_array_equal(lda.doc_topic_prior_, UNEVEN)
    assert {record["doc_topic_prior"] for record in lda.history_} == {np.mean(UNEVEN)}
    np.testing.assert_allclose(lda.transform(np.zeros((1, 11), int))[0], given / given.sum())
    np.testing.assert_allclose(lda.perplexity(SMALL), completion_perplexity(lda, SMALL))
    assert_same_bits(lda, make(sampler=sampler, n_shards=2, init="uniform").fit(SMALL))
    more = make(sampler=sampler).partial_fit(SMALL).partial_fit(SMALL[:9])
    np.testing.assert_array_equal(more.doc_topic_prior_, UNEVEN)
    assert more.topic_word_counts_.sum() == SMALL.sum() + SMALL[:9].sum()


def learning(**parameters):
    return make(**{"doc_topic_prior": "learn", "max_iter": 24, "n_components": 4} | parameters)


@each_sampler
def test_priors_are_learned_and_go_with_the_model(sampler):
    X = planted(n_docs=120, length=40)[0]
    lda = learning(sampler=sampler, n_shards=2).fit(X)
    assert lda.doc_topic_prior_.shape == (4,)
    assert len(set(lda.doc_topic_prior_)) == 4
    means = [record["doc_topic_prior"] for record in lda.history_]
    assert set(means[12:15]) == {0.1}  # begins after the start, and every five sweeps
    assert len(set(means[15:20])) == 1
    np.testing.assert_allclose(means[20:], lda.doc_topic_prior_.mean())
    expected = lda.doc_topic_prior_ / lda.doc_topic_prior_.sum()
    np.testing.assert_allclose(lda.transform(np.zeros((1, X.shape[1]), int))[0], expected)
    np.testing.assert_allclose(lda.perplexity(X), completion_perplexity(lda, X))


@pytest.mark.parametrize(
    "n_components", [499, 500, *(pytest.param(n, marks=pytest.mark.slow) for n in (4096, 4097))]
)
def test_priors_of_many_topics_are_learned_by_default(n_components):
    X = np.arange(24).reshape(4, 6) % 3
    given = {"n_components": n_components, "max_iter": 12, "evaluate_every": 0}
    lda = make(doc_topic_prior=None, **given).fit(X)
    expected = "learn" if 500 <= n_components <= 4096 else 1 / n_components
    same = make(doc_topic_prior=expected, **given).fit(X)
    assert_same_bits(lda, same)
    np.testing.assert_array_equal(lda.doc_topic_prior_, same.doc_topic_prior_)
    assert np.ndim(lda.doc_topic_prior_) == (expected == "learn")


SEEDS = {0: [12, 11], 2: [30, 31, 12]}


def seeded(**parameters):
    given = {"doc_topic_prior": 0.2, "n_components": 4, "seed_words": SEEDS, "max_iter": 30}
    return make(**given | parameters)


#: Kernels are compiled for seeds alone.
each_with_seeds = samplers(["frozen"])


@each_with_seeds
@pytest.mark.parametrize("init", ["auto", "uniform"])
def test_seeded_words_stay_in_their_topics(sampler, init):
    X = planted(n_docs=120, length=40)[0]
    for seed in range(3):
        lda = seeded(
            sampler=sampler,
            init=init,
            random_state=seed,
            seed_words={3: [0, 1, 2], 1: [10, 11, 12]},
        ).fit(X)
        shares = lda.topic_word_counts_.toarray() / X.sum(axis=0)
        assert shares[3, :10].min() > 0.5  # and take along those that go with them
        assert shares[1, 10:20].min() > 0.5
    totals = X.sum(axis=0)
    expected = np.zeros((4, 40))
    expected[3, :3], expected[1, 10:13] = totals[:3], totals[10:13]
    np.testing.assert_array_equal(lda.seed_counts_.toarray(), expected)
    components = lda.topic_word_counts_.toarray() + lda.topic_word_prior_ + expected
    np.testing.assert_allclose(lda.components_, components)


@pytest.mark.slow
@each_with_seeds
def test_seeds_have_the_same_bits_for_any_way_to_fit(sampler, tmp_path):
    X = planted(n_docs=120, length=40)[0]
    X[:, 31] = 0  # a seeded word without tokens
    expected = seeded(sampler=sampler, n_shards=3, init="uniform").fit(X)
    assert expected.seed_counts_.toarray()[2, 31] == 1.0
    if program_of(sampler).partition_invariant:
        for way in ({"n_shards": 1}, {"n_shards": 8}, {"n_shards": 2, "n_jobs": 2}):
            assert_same_bits(seeded(sampler=sampler, init="uniform", **way).fit(X), expected)
    parameters = {
        "sampler": sampler,
        "n_shards": 3,
        "init": "uniform",
        "checkpoint": tmp_path / "run",
    }
    seeded(**parameters, max_iter=20).fit(X)
    with pytest.raises(CheckpointMismatchError, match="seed_words"):
        seeded(**parameters, seed_weight=0.5).fit(X)
    assert_same_bits(seeded(**parameters).fit(X), expected)
    lda = seeded(sampler=sampler).partial_fit(X)
    lda.partial_fit(X[:40])
    np.testing.assert_array_equal(
        lda.seed_counts_.toarray(), expected.seed_counts_.toarray()
    )  # of the first batch
    assert np.isfinite(lda.history_[-1]["log_likelihood"])


def test_later_batches_have_the_seeds_of_the_first():
    X = planted(n_docs=30)[0]
    lda, table = seeded().partial_fit(X), np.zeros((4, 40))
    table[1, 5] = 2.0
    first = lda.seed_counts_.toarray()
    lda.set_params(seed_words=first).partial_fit(X[:20])  # the same, as an array
    for others in (None, {}, {0: [12, 11]}, {**SEEDS, 1: [3]}, table, first + table, 2 * first):
        with pytest.raises(
            ValueError, match=r"seed_words are not those of the first batch.*give the same"
        ):
            lda.set_params(seed_words=others).partial_fit(X[:20])
        np.testing.assert_array_equal(lda.seed_counts_.toarray(), first)
    with pytest.raises(ValueError, match="seed_words are not those of the first batch"):
        seeded(seed_words=None).partial_fit(X).set_params(seed_words=SEEDS).partial_fit(X)
    lda.set_params(seed_words=table).fit(X)
    np.testing.assert_array_equal(lda.seed_counts_.toarray(), table)


@pytest.mark.parametrize("way", ["partial_fit", "fit"])
def test_to_a_later_fit_seeds_are_like_earlier_tokens(way):
    X = planted(n_docs=30)[0]
    lda = seeded().partial_fit(X)
    other = deepcopy(lda).set_params(seed_words=None)
    other.topic_word_counts_ = sparse.csc_array(lda.topic_word_counts_ + lda.seed_counts_)
    other.seed_counts_ = other._seeds_given = None
    np.testing.assert_allclose(lda.transform(X), other.transform(X), rtol=1e-9)
    for one in (lda, other):
        # The only sweep of a warm start draws from the last fit.
        one.set_params(warm_start=True, max_iter=3 if way == "partial_fit" else 1, evaluate_every=1)
        getattr(one, way)(X)
    kept = lda.seed_counts_.toarray() * (way == "partial_fit")
    expected = other.topic_word_counts_.toarray() - kept
    np.testing.assert_array_equal(lda.topic_word_counts_.toarray(), expected)
    if way == "partial_fit":
        last, theirs = (one.history_[-1]["log_likelihood"] for one in (lda, other))
        assert last == pytest.approx(theirs, rel=1e-12)


def test_seeds_that_an_array_has_twice_are_added():
    twice = sparse.csc_array(([1.0, 2.0], [1, 1], [0] * 5 + [2] * 7), (4, 11))
    one, other = (seeded(seed_words=seeds).fit(SMALL) for seeds in (twice, {1: {4: 3.0}}))
    assert_same_bits(one, other)
    assert one.seed_counts_.data.tolist() == [3.0]
    assert twice.nnz == 2


@pytest.mark.parametrize("others", [{0: {5: 2.0}}, {1: {4: 2.0}}])
def test_a_checkpoint_belongs_to_seeds_of_the_same_words_and_topics(others, tmp_path):
    options = {"checkpoint": tmp_path / "run", "max_iter": 2}
    seeded(seed_words={0: {4: 2.0}}, **options).fit(SMALL)
    with pytest.raises(CheckpointMismatchError, match="seed_words"):
        seeded(seed_words=others, **options).fit(SMALL)


TEXTS = ["war army peace", "tax tariff duty", "army war duty"] * 20


def test_seeds_by_name_in_a_pipeline():
    words = {0: ["war", "army"], 1: ["tariff"]}
    counter = CountVectorizer()
    lda = DistributedLDA(2, seed_words=words, feature_names=counter, random_state=0)
    make_pipeline(counter, lda).fit(TEXTS)
    names = counter.get_feature_names_out()
    assert lda.feature_names_.tolist() == sorted({*" ".join(TEXTS).split()})
    by_number = {
        topic: [names.tolist().index(word) for word in seeded] for topic, seeded in words.items()
    }
    expected = DistributedLDA(2, seed_words=by_number, random_state=0).fit(counter.transform(TEXTS))
    assert_same_bits(lda, expected)
    assert (
        lda.top_words(3, "probability").tolist()
        == names[expected.top_words(3, "probability")].tolist()
    )
    counter.fit(["another vocabulary"])  # the names are those of the fit
    assert lda.top_words(3).tolist() == expected.top_words(3, feature_names=names).tolist()


def test_names_that_cannot_be_had_are_refused(tmp_path):
    def fit(**parameters):
        make_pipeline(
            CountVectorizer(), DistributedLDA(2, seed_words={0: ["war"]}, **parameters)
        ).fit(TEXTS)

    with pytest.raises(
        ValueError, match=r"make_pipeline\(vectorizer, DistributedLDA\(feature_names=vectorizer\)\)"
    ):
        fit()
    with pytest.raises(
        ValueError, match=r"feature_names is a CountVectorizer that has no names .*vocabulary=words"
    ):
        fit(feature_names=CountVectorizer())
    counter = CountVectorizer()
    model = make_pipeline(counter, DistributedLDA(2, feature_names=counter))
    for copied in (clone(model), model.set_params(memory=str(tmp_path))):
        with pytest.raises(
            ValueError,
            match=r"feature_names is a CountVectorizer .* for these give the words to both",
        ):
            copied.fit(TEXTS)
    with pytest.raises(ValueError, match=r"feature_names has shape \(1,\), but there are 6 words"):
        fit(feature_names=["war"])
    with pytest.raises(
        ValueError,
        match=r"has the word 'war', which several columns have as their name: give numbers",
    ):
        fit(feature_names=["war"] * 6)
    with pytest.raises(ValueError, match=r"has the word 'war', but X has no such column"):
        fit(feature_names=list("abcdef"))


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ({4: [0]}, r"seed_words has the topic 4; topics are numbers from 0 to 3"),
        ({"a": [0]}, r"seed_words has the topic 'a'"),
        ({1: "word"}, r"seed_words\[1\] is 'word'; give a list of words"),
        ({1: 3}, r"seed_words\[1\] is 3; give a list"),
        (
            {1: ["word"]},
            r"seed_words\[1\] has the word 'word', but X has no names of columns: give numbers",
        ),
        ({1: [40]}, r"seed_words\[1\] has the word 40; .* numbers from 0 to 39"),
        ({1: [-1]}, r"seed_words\[1\] has the word -1"),
        ({1: [1.5]}, r"seed_words\[1\] has the word 1.5"),
        (
            np.ones((3, 40)),
            r"seed_words has shape \(3, 40\); .* \(n_components, n_features\) = \(4, 40\)",
        ),
        (-np.ones((4, 40)), "seed_words has values that are negative"),
        (np.full((4, 40), np.nan), "seed_words has values that are negative or not finite"),
        (np.full((4, 40), 1e308), r"seed_words has values .* above 1e\+30"),
        ([["a"] * 40] * 4, "seed_words must be a dictionary or an array of numbers"),
    ],
)
def test_seeds_that_are_none_are_refused(seeds, message):
    with pytest.raises(ValueError, match=message):
        seeded(seed_words=seeds).fit(planted(n_docs=9)[0])
