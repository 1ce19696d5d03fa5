"""Words, sizes and coherence of topics: what they are by definition, and what they do not depend on."""

import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from corpora import NAMES, SMALL
from oracles import lda_describe as oracle
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.samplers import SAMPLERS

#: Words that never occur, and one that all documents have.
GAPS = np.where(np.isin(np.arange(11), [0, 6]), 0, SMALL)
GAPS[:, 3] += 1


def make(**parameters):
    return DistributedLDA(**{"n_components": 3, "max_iter": 4, "random_state": 7} | parameters)


@pytest.fixture(scope="module")
def fitted():
    return make().fit(SMALL)


SEEDS = sparse.csc_array(np.where(np.arange(33).reshape(3, 11) % 7 == 0, 2.5, 0.0))
CASES = {
    "usual": (make(), SMALL),
    "gaps": (make(topic_word_prior=0.01), GAPS),
    "one topic": (make(n_components=1), SMALL),
    "topics without tokens": (make(n_components=60), SMALL[:3]),
    "one word": (make(), SMALL[:, :1]),
    "tiny prior": (make(topic_word_prior=1e-30), GAPS),
    "huge prior": (make(topic_word_prior=1e9), SMALL),
    "seeds": (make(seed_words=SEEDS), SMALL),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_words", [1, 50])
def test_words_by_probability_are_sorted_components(case, n_words):
    lda, X = CASES[case]
    expected = np.argsort(-lda.fit(X).components_, axis=1, kind="stable")[:, :n_words]
    found, probabilities = lda.top_words(n_words, "probability", return_probability=True)
    np.testing.assert_array_equal(found, expected, strict=True)
    np.testing.assert_array_equal(lda.top_words(n_words, relevance=1.0), expected)
    shares = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, np.take_along_axis(shares, expected, 1), rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lam", [0.0, 0.6])
def test_words_by_relevance_are_those_of_the_definition(case, lam):
    lda, X = CASES[case]
    values = np.array(oracle.relevance(lda.fit(X).components_.tolist(), lam))
    found = lda.top_words(5, relevance=lam)
    assert all(len(set(row)) == len(row) for row in found.tolist())
    # by value: words may be equally relevant but for rounding
    best = -np.sort(-values, axis=1)[:, : found.shape[1]]
    np.testing.assert_allclose(np.take_along_axis(values, found, 1), best, rtol=1e-9, atol=1e-9)


def test_equally_relevant_words_are_in_the_order_of_the_columns():
    lda = make(n_components=2).fit(np.tile(SMALL[:, :4], 3))
    lda.topic_word_counts_ = sparse.csc_array(np.array([[2, 0, 2, 0, 0, 3], [0, 4, 0, 0, 4, 0]], np.int32))
    lda.n_features_in_ = 6
    assert lda.top_words(6, "probability").tolist() == [[5, 0, 2, 1, 3, 4], [1, 4, 0, 2, 3, 5]]
    assert lda.top_words(6, relevance=0).tolist() == [[5, 0, 2, 3, 1, 4], [1, 4, 3, 0, 2, 5]]


def test_names_of_words(fitted):
    numbers = fitted.top_words(3)
    assert numbers.dtype == np.int64
    assert fitted.top_words(3, feature_names=NAMES).tolist() == [[NAMES[w] for w in row] for row in numbers]
    named = make().fit(pd.DataFrame(SMALL, columns=NAMES))
    assert named.top_words(3).tolist() == fitted.top_words(3, feature_names=NAMES).tolist()
    np.testing.assert_array_equal(named.top_words(3, feature_names=np.arange(11)), numbers)


#: Of the others the kernels are long in compilation.
QUICK = ("frozen", "warp")


@pytest.mark.parametrize(
    "sampler", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SAMPLERS]
)
def test_sizes_are_tokens_of_topics(sampler):
    lda = make(sampler=sampler).fit(SMALL)
    assert lda.topic_sizes_.dtype == np.int64
    np.testing.assert_array_equal(lda.topic_sizes_, lda.topic_word_counts_.toarray().sum(axis=1))
    assert lda.topic_sizes_.sum() == SMALL.sum()


def test_sizes_have_earlier_batches_and_survive_a_pickle(tmp_path):
    lda = make(checkpoint=tmp_path / "state.npz").fit(SMALL)
    again = make(checkpoint=tmp_path / "state.npz").fit(SMALL)  # goes on from its end
    np.testing.assert_array_equal(again.topic_sizes_, lda.topic_sizes_)
    lda.set_params(checkpoint=None).partial_fit(2 * SMALL)
    assert lda.topic_sizes_.sum() == 3 * SMALL.sum()
    assert "topic_sizes_" not in vars(lda)  # so models of earlier versions have it, too
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(lda)).topic_sizes_, lda.topic_sizes_)
    with pytest.warns(UserWarning, match="X holds no counts"):
        assert make().fit(0 * SMALL).topic_sizes_.tolist() == [0, 0, 0]


# Coherence.

FORMS = {
    "usual": SMALL,
    "gaps": GAPS,
    "empty documents": np.vstack([np.zeros((5, 11), int), SMALL]),
    "one document": SMALL[:1],
    "no words": 0 * SMALL,
    "counts do not matter": 5 * SMALL,
}


def sets(X):
    return [set(np.flatnonzero(row).tolist()) for row in X]


@pytest.mark.parametrize("measure", ["npmi", "u_mass"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_words", [2, 40])
def test_coherence_is_that_of_the_definition(fitted, measure, form, n_words):
    found = fitted.coherence(FORMS[form], measure, n_words=n_words)
    assert found.shape == (3,) and found.dtype == np.float64
    expected = oracle.coherence(fitted.top_words(n_words, "probability").tolist(), sets(FORMS[form]), measure)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_what_documents_look_like_does_not_matter(fitted):
    expected = fitted.coherence(SMALL, n_words=4)
    shuffled = SMALL[np.random.default_rng(0).permutation(len(SMALL))]
    for X in (shuffled, sparse.csc_array(SMALL), SMALL.astype(float), SMALL > 0, pd.DataFrame(SMALL).values.tolist()):
        np.testing.assert_array_equal(fitted.coherence(X, n_words=4), expected, strict=True)


@pytest.mark.parametrize("chunks", [(23,), (0, 9, 14)])
def test_places_and_chunks_do_not_matter(fitted, chunks, place):
    array = da.from_array(SMALL, chunks=(chunks, 11))
    lazy = array.map_blocks(sparse.csr_array, dtype=SMALL.dtype, meta=sparse.csr_array((1, 1), dtype=SMALL.dtype))
    for X in (array, lazy, list(array.to_delayed().ravel())):
        with dask.config.set({"schmp-estimators.runtime": "local"}) if place is None else place.as_current():
            found = fitted.coherence(X, n_words=4)
        np.testing.assert_array_equal(found, fitted.coherence(SMALL, n_words=4), strict=True)
