"""Names of words, in any form and order; what has names is never taken for what is at its place."""

import re
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation

from schmp_estimators import DistributedLDA

COUNTS = np.array([[5, 0, 0, 1], [0, 6, 1, 0], [0, 0, 7, 2]] * 10)
NUMBERS, LETTERS = [500, 3, 0, 77], list("abcd")
make = partial(DistributedLDA, 2, max_iter=3, random_state=0)
frame = partial(pd.DataFrame, COUNTS)


def seeded(lda):
    return lda.seed_counts_.nonzero()[1].tolist()


NAMED = {
    "list": ({"feature_names": NUMBERS}, COUNTS),
    "array": ({"feature_names": np.array(NUMBERS, np.uint16)}, COUNTS),
    "series": ({"feature_names": pd.Series(NUMBERS, index=[3, 2, 1, 0])}, COUNTS),
    "beside strings": ({"feature_names": ["a", 3, "b", 0]}, sparse.csr_array(COUNTS)),
    "columns": ({}, frame(columns=NUMBERS)),
    "whole floats": ({}, frame(columns=np.array(NUMBERS, float))),
    "small counts": ({}, frame(columns=NUMBERS).astype(np.int8)),
}


@pytest.mark.parametrize("kind", NAMED)
def test_where_names_are_numbers_a_seed_is_the_name(kind):
    parameters, X = NAMED[kind]
    lda = make(**parameters, seed_words={0: [np.int64(3)], 1: {0: 2.0}}).fit(X)
    names = pd.Index(lda.feature_names_)
    assert seeded(lda) == [names.get_loc(3), names.get_loc(0)] == [1, names.get_loc(0)]
    assert lda.feature_names_[1] in lda.top_words(1)[0] or lda.seed_counts_[0, 1]
    with pytest.raises(ValueError, match="has the word 1, but X has no such column"):
        make(**parameters, seed_words={0: [1]}).fit(X)


def test_other_numbers_are_those_of_columns():
    for X, names in (
        (COUNTS, None),
        (frame(), None),
        (frame(columns=LETTERS), None),
        (COUNTS, LETTERS),
    ):
        assert seeded(make(feature_names=names, seed_words={0: [3]}).fit(X)) == [3]
    assert make().fit(frame()).feature_names_ is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"feature_names": ["500", "3", "0", "77"], "seed_words": {0: [3]}},
            "another column than 3 has the",
        ),
        (
            {"feature_names": [3, 3, 0, 77], "seed_words": {0: [3]}},
            "several columns .*: give names that",
        ),
        ({"seed_words": {0: [True]}}, "has the word True"),
        ({"seed_words": {True: [0]}}, "has the topic True"),
        (
            {"seed_words": {0: {1: "5"}}},
            r"seed_words\[0\] has '5' for the word 1; give a number of tokens",
        ),
        ({"seed_words": {0: {1: np.nan}}}, "has nan for the word 1"),
        ({"seed_words": {0: {1: -2}}}, "has -2 for the word 1"),
        ({"seed_words": [["1"] * 4] * 2}, "seed_words must be a dictionary or"),
        (
            {"seed_words": frame()[[1, 0, 2, 3]][:2]},
            "seed_words is a DataFrame that has 1 at place 0",
        ),
        ({"seed_words": frame()[1::-1]}, "seed_words is a DataFrame that has 1 at place 0"),
        ({"seed_weight": 2.0}, "seed_weight=2.0 is for words of a dictionary"),
        ({"doc_topic_prior": ["0.1", "0.2"]}, "doc_topic_prior must be one number, or numbers"),
        ({"doc_topic_prior": [0.1, b"0.2"]}, "doc_topic_prior must be"),
        ({"doc_topic_prior": np.array([0.1, "0.2"], object)}, "doc_topic_prior must be.*strings"),
        ({"doc_topic_prior": np.array([0.1j, 0.2])}, "doc_topic_prior must be"),
        ({"doc_topic_prior": np.array([9, 9], "M8[D]")}, "doc_topic_prior must be"),
        (
            {"doc_topic_prior": pd.Series([0.1, 0.2], [1, 0])},
            "doc_topic_prior is a Series that has 1 at place 0",
        ),
        ({"evaluate_every": 4}, "evaluate_every=4 is more than max_iter=3"),
        ({"mh_steps": 3}, "mh_steps=3, but sampler='frozen' does not make so many"),
    ],
)
def test_what_could_mean_something_else_is_refused(parameters, message):
    lda = make(**parameters)
    with pytest.raises(ValueError, match=message):
        lda.fit(COUNTS)
    assert not [name for name in vars(lda) if name.endswith("_")]


def test_seed_words_have_the_tokens_that_they_are_given():
    words = {0: {"b": 100.0, "a": 1}, 1: ["c"]}
    lda = make(seed_words=words, seed_weight=0.5, feature_names=LETTERS).partial_fit(COUNTS)
    expected = np.array([[0.5, 50.0, 0.0, 0.0], [0.0, 0.0, 0.5 * COUNTS[:, 2].sum(), 0.0]])
    np.testing.assert_array_equal(lda.seed_counts_.toarray(), expected)
    lda.partial_fit(COUNTS[:5])
    for other in ({**words, 0: {"b": 99.0, "a": 1}}, {**words, 0: ["b", "a"], 1: {"c": 1.0}}):
        with pytest.raises(ValueError, match="seed_words are not those of the first batch"):
            lda.set_params(seed_words=other).partial_fit(COUNTS)


def test_columns_with_the_names_of_words_are_those_of_the_model():
    """Of columns with other names than the words scikit-learn warns."""
    lda = make(feature_names=LETTERS).fit(COUNTS)
    expected = lda.transform(COUNTS)
    named = frame(columns=LETTERS)
    np.testing.assert_array_equal(lda.transform(named), expected)
    for begin in (make(feature_names=LETTERS).partial_fit, make(feature_names=LETTERS).fit):
        again = begin(COUNTS).set_params(warm_start=True)
        assert getattr(again, begin.__name__)(named).feature_names_.tolist() == [*LETTERS]
    assert not hasattr(lda, "feature_names_in_")
    with pytest.warns(UserWarning, match="fitted without feature names"):
        lda.transform(frame(columns=[*"wxyz"]))


def test_names_of_columns_may_be_replaced_but_not_exchanged():
    X = frame(columns=LETTERS)
    assert make(feature_names=[*"wxyz"]).fit(X).feature_names_.tolist() == [*"wxyz"]
    lda = make(feature_names=LETTERS).fit(X)
    for names in ([*"badc"], ["x", "a", "y", "z"]):
        for ask in (make(feature_names=names).fit, lda.top_words):
            with pytest.raises(ValueError, match=r"feature_names has '.' at place ., where"):
                ask(X) if ask != lda.top_words else ask(feature_names=names)


ASK = ["transform", "perplexity", "score", "coherence", "top_documents", "sample_topics",
       "topic_diagnostics", "topic_stability", "partial_fit"]  # fmt: skip
FITTED = {
    "names": (make, frame(columns=LETTERS), LETTERS),
    "numbers": (make, frame(columns=NUMBERS), NUMBERS),
    "places": (make, frame(), [0, 1, 2, 3]),
    "a list": (partial(make, feature_names=LETTERS), COUNTS, LETTERS),
}


@pytest.mark.parametrize("kind", FITTED)
def test_columns_in_another_order_are_refused_by_every_method(kind, tmp_path):
    fit, X, labels = FITTED[kind]
    lda, turned = fit().fit(X), frame(columns=labels)[[labels[n] for n in (1, 0, 2, 3)]]
    tables = [turned] + [pl.from_pandas(turned)] * (labels is LETTERS)
    ways = [partial(getattr(lda, name), table) for name in ASK for table in tables]
    ways += [partial(lda.write_mallet_state, tmp_path / "state", turned)]
    ways += [partial(fit(warm_start=True).fit(X).fit, turned)]
    for way in ways:
        with pytest.raises(
            ValueError, match=r"^The feature names should match those that were passed"
        ):
            way()
    np.testing.assert_array_equal(lda.transform(X), fit().fit(COUNTS).transform(COUNTS))


def test_tables_of_topics_in_another_order_are_refused():
    lda = make().set_output(transform="pandas").fit(frame(columns=LETTERS))
    theta, other = (
        lda.transform(frame(columns=LETTERS)),
        pd.DataFrame(lda.components_, columns=LETTERS),
    )
    peer = LatentDirichletAllocation(2, random_state=0).fit(frame(columns=LETTERS)[[*"badc"]])
    for ask, message in (
        (lambda: lda.top_documents(proportions=theta.iloc[:, ::-1]), "proportions is a DataFrame"),
        (lambda: lda.top_documents(proportions=theta.astype(str)), "proportions must be numbers"),
        (
            lambda: lda.match_topics(other[[*"badc"]]),
            "other is a DataFrame that has 'b' at place 0",
        ),
        (lambda: lda.match_topics(other.astype(str)), "other must be a fitted topic model"),
        (
            lambda: lda.match_topics(peer),
            "column 0 is the word 'a' in this model, but 'b' in other",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    assert lda.match_topics(other)[0].tolist() == [0, 1]


def test_words_in_files_and_tables_are_told_apart(tmp_path):
    names = [" s", "s ", "s", "  ", "_", "", "a b", "a_b", "a\tb", "a_b#7", "x", "x"]
    X = np.random.default_rng(0).poisson(1.0, (20, 12))
    lda = make(feature_names=names).fit(X)
    lda.write_mallet_state(tmp_path / "state.gz", X, random_state=0)
    found = pd.read_csv(
        tmp_path / "state.gz", sep=" ", skiprows=3, header=None, names=[*"dspwnt"],
        dtype=str, keep_default_na=False,
    )  # fmt: skip
    assert found["n"].str.len().min() > 0
    assert found.groupby("n")["w"].nunique().max() == found.groupby("w")["n"].nunique().max() == 1
    of_word = found.drop_duplicates("w").set_index("w")["n"]
    for word, name in enumerate(names):
        plain = "".join("_" if one.isspace() else one for one in name) or "_"
        assert re.fullmatch(rf"{re.escape(plain)}(#\d+)*", of_word[str(word)])
    assert of_word["0"] == "_s" and of_word["2"] == "s"
    words = lda.topic_diagnostics(n_words=12)["words"]
    assert {*words[0].split(" ")} == {*of_word} and len(words[0].split(" ")) == 12
    with pytest.raises(ValueError, match="feature_names has 'x' for 2 columns, which texts cannot"):
        lda.coherence([["x", "s"]], "c_v", 12)
