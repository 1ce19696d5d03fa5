"""What is wrong with a question about topics is said before any work: the parameter, its value, and what it may be."""

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import NAMES, SMALL
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from schmp_estimators import DistributedLDA


def make(**parameters):
    return DistributedLDA(**{"n_components": 3, "max_iter": 4, "random_state": 7} | parameters)


@pytest.fixture(scope="module")
def fitted():
    return make().fit(SMALL)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"n_words": 0},
            r"'n_words' parameter of DistributedLDA.top_words must be an int in the range \[1, inf\). Got 0 instead",
        ),
        ({"n_words": 2.5}, r"'n_words' .* must be an int .* Got 2.5 instead"),
        ({"n_words": "ten"}, r"'n_words' .* must be an int .* Got 'ten' instead"),
        ({"by": "lift"}, r"'by' .* must be a str among {.*'relevance'.*}. Got 'lift' instead"),
        ({"relevance": 1.5}, r"'relevance' .* must be a float in the range \[0.0, 1.0\]. Got 1.5 instead"),
        ({"relevance": np.nan}, r"'relevance' .* Got nan instead"),
        ({"feature_names": NAMES[:4]}, r"feature_names has shape \(4,\), but there are 11 words; give one name for"),
        ({"feature_names": [NAMES]}, r"feature_names has shape \(1, 11\), but there are 11 words"),
        ({"feature_names": {"a": 0}}, "feature_names"),
        ({"return_probability": "yes"}, "'return_probability' .* must be an instance of 'bool'"),
    ],
)
def test_words_that_cannot_be_had(fitted, parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted.top_words(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"measure": "c_uci"},
            r"'measure' parameter of DistributedLDA.coherence must be a str among {.*'npmi'.*}. Got 'c_uci' instead",
        ),
        ({"n_words": 1}, r"'n_words' .* must be an int in the range \[2, inf\). Got 1 instead"),
    ],
)
def test_coherence_that_cannot_be_had(fitted, parameters, message):
    with pytest.raises(ValueError, match=message):
        fitted.coherence(SMALL, **parameters)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (SMALL[:0], r"0 sample\(s\)"),
        (SMALL[:, :4], "X has 4 features, but DistributedLDA is expecting 11 features as input"),
        (-SMALL, r"Negative values in data: X\[0, \d+\] is -\d"),
        (SMALL + 0.5, r"X\[0, 0\] is .*5, which is not a whole number.*CountVectorizer"),
        (np.where(np.arange(11) == 4, np.nan, SMALL), r"X\[0, 4\] is NaN.*nan_to_num"),
        (["a cat", "a dog"], "CountVectorizer"),
        (SMALL[0], "Reshape your data"),
    ],
)
def test_documents_that_have_no_coherence(fitted, X, message):
    with pytest.raises(ValueError, match=message):
        fitted.coherence(X)
    if isinstance(X, np.ndarray) and X.ndim == 2:
        with dask.config.set({"schmp-estimators.runtime": "local"}), pytest.raises(ValueError, match=message):
            fitted.coherence(da.from_array(X, chunks=(9, 11)))


def test_pairs_that_would_fill_the_memory(fitted):
    with dask.config.set({"schmp-estimators.dense-limit": 8 * 3 * 10}):
        fitted.coherence(SMALL, n_words=4)
    with (
        dask.config.set({"schmp-estimators.dense-limit": 8 * 3 * 10 - 1}),
        pytest.raises(MemoryError, match=r"n_words=4 of 3 topics need .* GiB .* take fewer words, .*dense-limit': 240"),
    ):
        fitted.coherence(SMALL, n_words=4)


def test_numbers_of_words_may_be_integers_of_any_kind(fitted):
    np.testing.assert_array_equal(fitted.coherence(SMALL, n_words=np.int8(11)), fitted.coherence(SMALL, n_words=11))
    np.testing.assert_array_equal(fitted.top_words(np.uint8(2)), fitted.top_words(2))
    np.testing.assert_array_equal(fitted.top_words(True), fitted.top_words(1))


def test_no_words_without_a_fit():
    for ask in (make().top_words, lambda: make().coherence(SMALL), lambda: make().topic_sizes_):
        with pytest.raises(NotFittedError, match="DistributedLDA instance is not fitted yet"):
            ask()
    assert not hasattr(make(), "topic_sizes_")


def test_the_input_is_not_written_to(fitted):
    X, counts = SMALL.copy(), fitted.topic_word_counts_.copy()
    X.flags.writeable = False
    fitted.coherence(X), fitted.top_words()
    np.testing.assert_array_equal(X, SMALL)
    assert (fitted.topic_word_counts_ != counts).nnz == 0


def test_names_come_from_a_vectorizer_ahead():
    text = ["cats purr", "dogs bark", "cats sleep", "dogs bark at cats"]
    model = make_pipeline(CountVectorizer(), make(n_components=2)).fit(text)
    names = model[:-1].get_feature_names_out()
    found = model[-1].top_words(feature_names=names)
    assert found.shape == (2, len(names))
    assert {*found.ravel()} == {*names} == {"at", "bark", "cats", "dogs", "purr", "sleep"}


@pytest.mark.slow
def test_a_million_topics_have_words_and_coherence():
    lda, many = make().fit(SMALL), sparse.csc_array((1_000_000, 11), dtype=np.int32)
    lda.topic_word_counts_ = sparse.csc_array(sparse.vstack([lda.topic_word_counts_, many[3:]]))
    few, values = lda.top_words(3, relevance=0.5), lda.coherence(SMALL, n_words=3)
    assert few.shape == (1_000_000, 3) and (few[3:] == few[3]).all()
    assert np.isfinite(values).all() and (values[3:] == values[3]).all()
