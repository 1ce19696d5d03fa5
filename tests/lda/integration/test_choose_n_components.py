"""The number of topics: it finds those that were planted, and measures what it says."""

import pickle
from functools import partial

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from corpora import completion_perplexity, planted
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import DistributedLDA, choose_n_components
from schmp_estimators.core.rng import stream_key
from schmp_estimators.lda.data.counts import canonical_counts, hash_documents

X = planted(n_docs=300, n_topics=4)[0]
X[5] = 0
LDA = DistributedLDA(7, doc_topic_prior=0.15, max_iter=20, topic_word_prior=0.05)
NUMBERS = [2, 4, 8, 12, 60, 99]
choose = partial(choose_n_components, n_components=NUMBERS, random_state=3)


@pytest.fixture(scope="module")
def found():
    return choose(LDA, X)


def test_the_planted_number_is_found_and_then_the_search_stops(found):
    assert found.n_components_ == found.best_estimator_.n_components == 4
    assert found.reason_.startswith("4 topics are the most stable of [4")
    assert found.table_["n_components"].tolist() == [2, 4, 8, 12]  # two gain little
    assert pd.DataFrame(found.table_).shape == (4, 8)
    assert LDA.n_components == 7 and not hasattr(LDA, "n_features_in_")


def test_the_table_has_what_the_methods_of_the_fits_say(found):
    key, *seeds = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=4).tolist()
    is_test = (hash_documents(canonical_counts(X)) ^ stream_key(key)) / 2.0**64 < 0.1
    train, test = (X[kept & X.any(axis=1)] for kept in (~is_test, is_test))
    fits = [clone(LDA).set_params(n_components=8, random_state=seed).fit(train) for seed in seeds]
    row = {name: column[2] for name, column in found.table_.items()}
    perplexities = [one.perplexity(test) for one in fits]
    assert row["perplexity"] == pytest.approx(min(perplexities), rel=1e-12)
    oracle = completion_perplexity(fits[int(np.argmin(perplexities))], test)
    assert row["perplexity"] == pytest.approx(oracle, rel=0.01)
    coherence = [one.coherence(train).mean() for one in fits]
    assert (row["coherence"], row["coherence_std"]) == (np.mean(coherence), np.std(coherence))
    pairs = [(0, 1), (0, 2), (1, 2)]
    stability = [fits[i].match_topics(fits[j])[1].mean() for i, j in pairs]
    assert (row["stability"], row["stability_std"]) == (np.mean(stability), np.std(stability))
    best = clone(found.best_estimator_).fit(train)
    assert (best.topic_word_counts_ != found.best_estimator_.topic_word_counts_).nnz == 0


def test_the_standard_error_is_that_of_a_ratio(found):
    """Over documents, of the loss of a token: by the jackknife."""
    key = np.random.RandomState(3).randint(np.iinfo(np.int32).max, size=4)[0]
    is_test = (hash_documents(canonical_counts(X)) ^ stream_key(int(key))) / 2.0**64 < 0.1
    test = X[is_test & X.any(axis=1)]
    left_out = [
        np.log(found.best_estimator_.perplexity(np.delete(test, n, axis=0)))
        for n in range(len(test))
    ]
    jackknife = np.sqrt((len(test) - 1) * np.var(left_out))
    [relative] = (found.table_["perplexity_se"] / found.table_["perplexity"])[1:2]
    assert relative == pytest.approx(jackknife, rel=0.1)


def assert_same(one, other):
    assert (one.n_components_, one.reason_) == (other.n_components_, other.reason_)
    for name in one.table_.keys() - {"seconds"}:
        np.testing.assert_array_equal(one.table_[name], other.table_[name], strict=True)
    fits = one.best_estimator_.topic_word_counts_, other.best_estimator_.topic_word_counts_
    assert (fits[0] != fits[1]).nnz == 0


@pytest.mark.parametrize(
    "form", [pytest.param(sparse.csr_matrix, marks=pytest.mark.slow), pd.DataFrame, "threads"]
)
def test_forms_and_threads_do_not_matter(found, form):
    lda, given = (clone(LDA).set_params(n_jobs=2), X) if form == "threads" else (LDA, form(X))
    if form is pd.DataFrame:
        given.columns = [f"word{n}" for n in range(X.shape[1])]
    other = choose(lda, given)
    assert_same(found, other)
    if form is pd.DataFrame:
        assert other.best_estimator_.feature_names_in_[1] == "word1"
        assert other.best_estimator_.top_words(1)[0, 0].startswith("word")


@pytest.mark.slow
def test_places_and_chunks_do_not_matter(found, in_place):
    assert_same(found, choose(LDA, da.from_array(X, chunks=((5, 1, 0, 294), 13))))


def test_a_vectorizer_names_the_words():
    counter = CountVectorizer(token_pattern=r"\S+")
    texts = [" ".join(f"w{n}" for n in np.repeat(np.arange(len(row)), row)) for row in X]
    counts = counter.fit_transform(texts)
    lda = clone(LDA).set_params(max_iter=2, feature_names=counter)
    best = choose(lda, counts, n_components=NUMBERS[:2]).best_estimator_
    assert best.feature_names_.tolist() == counter.get_feature_names_out().tolist()


def test_copies_of_documents_stay_together():
    found = choose(LDA, np.vstack([X, X]), n_components=NUMBERS[:2])
    assert not (found.best_estimator_.topic_word_counts_.sum(axis=0) % 2).any()


def test_the_picture(found):
    axes = found.plot()
    assert [ax.get_ylabel() for ax in axes] == ["Perplexity", "Coherence", "Stability"]
    for ax, name in zip(axes, ("perplexity", "coherence", "stability"), strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xydata()[:, 1], found.table_[name])
    _, given = plt.subplots(3)
    assert found.plot(given)[2] is given[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": [5]}, r"n_components=\[5\]; give two or more different whole numbers"),
        ({"n_components": [0, 5]}, r"n_components=\[0, 5\]; give two or more"),
        ({"n_components": [2, None]}, r"n_components=\[2, None\]; give two or more different"),
        ({"n_components": [2.0, 4.0]}, "n_components=.*; give two or more different whole numbers"),
        ({"n_fits": 1}, "'n_fits' parameter of choose_n_components"),
        ({"test_size": 30}, "'test_size' parameter of choose_n_components"),
        ({"estimator": object()}, "'estimator' parameter .* instance of 'schmp"),
        ({"X": X[:1]}, "test_size=0.1 holds out 0 documents, none with two tokens, or leaves 1"),
        ({"X": -X}, "Negative values in data"),
        ({"estimator": clone(LDA).set_params(doc_topic_prior=[0.1] * 7)}, "doc_topic_prior has"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        choose(**{"estimator": LDA, "X": X} | options)


def test_what_is_found_is_pickled(found):
    again = pickle.loads(pickle.dumps(found))
    assert again.reason_ == found.reason_
    components = found.best_estimator_.components_
    np.testing.assert_array_equal(again.best_estimator_.components_, components)
