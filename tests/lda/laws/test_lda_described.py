"""What is said of fitted topics, by definition.

Words, sizes, coherence, documents, tokens, diagnostics and matches.
"""

import gzip
from functools import partial
from itertools import permutations

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
import pytest
from clusters import at
from corpora import NAMES, SMALL, assert_same_bits
from covering import slow_but
from input_cases import chunked
from oracles import lda_describe as oracle
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from schmp_estimators import DistributedLDA

#: Words that never occur, and one that all documents have.
GAPS = np.where(np.isin(np.arange(11), [0, 6]), 0, SMALL)
GAPS[:, 3] += 1


make = partial(DistributedLDA, n_components=3, max_iter=4, random_state=7)


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
#: A model with seeds is applied by kernels of its own.
NAMES_OF_CASES = slow_but({*CASES} - {"seeds"}, CASES)


@pytest.mark.parametrize("case", NAMES_OF_CASES)
@pytest.mark.parametrize("n_words", [1, 50])
def test_words_by_probability_are_sorted_components(case, n_words):
    lda, X = CASES[case]
    expected = np.argsort(-lda.fit(X).components_, axis=1, kind="stable")[:, :n_words]
    found, probabilities = lda.top_words(n_words, "probability", return_probability=True)
    np.testing.assert_array_equal(found, expected, strict=True)
    np.testing.assert_array_equal(lda.top_words(n_words, relevance=1.0), expected)
    shares = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, np.take_along_axis(shares, expected, 1), rtol=1e-12)


@pytest.mark.parametrize("case", NAMES_OF_CASES)
@pytest.mark.parametrize("lam", [0.0, 0.6])
def test_words_by_relevance_are_those_of_the_definition(case, lam):
    lda, X = CASES[case]
    values = oracle.relevance(lda.fit(X).components_, lam)
    found = lda.top_words(5, relevance=lam)
    assert all(len(set(row)) == len(row) for row in found.tolist())
    # by value: words may be equally relevant but for rounding
    best = -np.sort(-values, axis=1)[:, : found.shape[1]]
    np.testing.assert_allclose(np.take_along_axis(values, found, 1), best, rtol=1e-9, atol=1e-9)


def test_equally_relevant_words_are_in_the_order_of_the_columns():
    lda = make(n_components=2).fit(np.tile(SMALL[:, :4], 3))
    lda.topic_word_counts_ = sparse.csc_array(
        np.array([[2, 0, 2, 0, 0, 3], [0, 4, 0, 0, 4, 0]], np.int32)
    )
    lda.n_features_in_ = 6
    assert lda.top_words(6, "probability").tolist() == [[5, 0, 2, 1, 3, 4], [1, 4, 0, 2, 3, 5]]
    assert lda.top_words(6, relevance=0).tolist() == [[5, 0, 2, 3, 1, 4], [1, 4, 3, 0, 2, 5]]


def test_names_of_words(fitted):
    numbers = fitted.top_words(3)
    assert numbers.dtype == np.int64
    assert fitted.top_words(3, feature_names=NAMES).tolist() == [
        [NAMES[w] for w in row] for row in numbers
    ]
    named = make().fit(pd.DataFrame(SMALL, columns=NAMES))
    assert named.top_words(3).tolist() == fitted.top_words(3, feature_names=NAMES).tolist()
    np.testing.assert_array_equal(named.top_words(3, feature_names=np.arange(11)), numbers)


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


@pytest.mark.covering
@pytest.mark.parametrize("measure", ["npmi", "u_mass"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_words", [2, 40])
def test_coherence_is_that_of_the_definition(fitted, measure, form, n_words):
    found = fitted.coherence(FORMS[form], measure, n_words=n_words)
    assert found.shape == (3,) and found.dtype == np.float64
    expected = oracle.coherence(
        fitted.top_words(n_words, "probability").tolist(), sets(FORMS[form]), measure
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


GAPPED = np.vstack([np.zeros((2, 11), int), GAPS])


@pytest.fixture(scope="module")
def named():
    return make(doc_topic_prior=[0.2, 0.5, 0.1], feature_names=NAMES).fit(SMALL)


def lazily(X, chunks):
    array = chunked(X, chunks)
    return [array, chunked(X, chunks, form=sparse.csr_array), list(array.to_delayed().ravel())]


# Documents.


def test_top_documents_are_sorted_proportions(named):
    X = np.vstack(
        [SMALL, SMALL[::-1]]
    )  # each has a twin, and the one with the lower number comes first
    theta = named.transform(X)
    for n in (1, 5, 99):
        documents, proportions = named.top_documents(X, n)
        expected = np.array([np.lexsort((np.arange(46), -column))[:n] for column in theta.T])
        np.testing.assert_array_equal(documents, expected, strict=True)
        np.testing.assert_array_equal(
            proportions, np.take_along_axis(theta.T, expected, 1), strict=True
        )
        for given in (theta, pd.DataFrame(theta), theta.tolist()):
            np.testing.assert_array_equal(
                named.top_documents(proportions=given, n_documents=n)[0], expected
            )


# Tokens.


def test_topics_of_tokens_have_their_probabilities():
    lda = make(n_components=5, doc_topic_prior=0.3).fit(SMALL)
    X = np.zeros((3, 11), int)
    X[0, [1, 4, 7]], X[2, 4] = 20_000, 1
    lda.topic_word_counts_ = sparse.csc_array(
        lda.topic_word_counts_.toarray() * (np.arange(11) != 7)
    )  # 7 is unknown
    phi, theta = lda.components_ / lda.components_.sum(axis=1, keepdims=True), lda.transform(X)
    tokens = pd.DataFrame(lda.sample_topics(X, random_state=0))
    assert tokens.groupby(["document", "word"]).size().to_dict() == {
        (0, w): 20_000 for w in (1, 4, 7)
    } | {(2, 4): 1}
    of_first = tokens[tokens["document"] == 0]
    for word in (1, 4, 7):
        expected = theta[0] * phi[:, word] / (theta[0] @ phi[:, word])
        shares = np.bincount(of_first["topic"][of_first["word"] == word], minlength=5) / 20_000
        assert (
            abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / 20_000) + 4 / 20_000
        ).all()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        pytest.param({"seed_words": {1: [0, 3]}}, marks=pytest.mark.slow),
        {"n_components": 60},
        {"n_components": 1},
    ],
)
def test_topics_of_a_document_do_not_depend_on_others(parameters):
    lda = make(**parameters).fit(SMALL)
    whole = lda.sample_topics(SMALL, random_state=5)
    np.testing.assert_array_equal(
        whole["word"], np.concatenate([np.repeat(np.arange(11), row) for row in SMALL])
    )
    np.testing.assert_array_equal(whole["document"], np.repeat(np.arange(23), SMALL.sum(axis=1)))
    assert [whole[name].dtype for name in whole] == [np.int64, np.int32, np.int32]
    some = lda.sample_topics(SMALL[[20, 4]], random_state=5)["topic"]
    np.testing.assert_array_equal(
        some, np.concatenate([whole["topic"][whole["document"] == n] for n in (20, 4)])
    )
    again = lda.set_params(n_jobs=2).sample_topics(
        sparse.csc_matrix(SMALL.astype(float)), random_state=5
    )
    np.testing.assert_array_equal(again["topic"], whole["topic"])
    if lda.n_components > 1:
        assert (lda.sample_topics(SMALL, random_state=6)["topic"] != whole["topic"]).any()


def test_mallet_reads_a_line_for_each_token(named, tmp_path):
    names = ["new york", *NAMES[1:]]
    for name in ("one.gz", "other.gz"):
        named.write_mallet_state(tmp_path / name, GAPPED, feature_names=names, random_state=1)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "other.gz").read_bytes()
    header, alpha, beta, *lines = (
        gzip.decompress((tmp_path / "one.gz").read_bytes()).decode().splitlines()
    )
    assert header == "#doc source pos typeindex type topic"
    assert [*map(float, alpha.removeprefix("#alpha : ").split(" ")[:-1])] == [0.2, 0.5, 0.1]
    assert float(beta.removeprefix("#beta : ")) == named.topic_word_prior_
    tokens = named.sample_topics(GAPPED, random_state=1)
    expected, names[0] = [], "new_york"
    for document, word, topic in zip(*tokens.values(), strict=True):
        position = sum(line.startswith(f"{document} ") for line in expected)
        expected.append(f"{document} NA {position} {word} {names[word]} {topic}")
    assert lines == expected
    assert lines[0].startswith("2 ")  # the first two are empty


# Diagnostics.


@pytest.mark.covering
@pytest.mark.parametrize("case", NAMES_OF_CASES)
@pytest.mark.parametrize("n_words", [1, 4, 50])
def test_diagnostics_are_those_of_mallet(case, n_words):
    lda, X = CASES[case]
    found = lda.fit(X).topic_diagnostics(X, n_words, random_state=3)
    best = lda.top_words(n_words, "probability").tolist()
    seeds = (
        np.zeros((lda.n_components, X.shape[1]))
        if lda.seed_counts_ is None
        else lda.seed_counts_.toarray()
    )
    tokens, counts = lda.sample_topics(X, random_state=3).values(), lda.topic_word_counts_.toarray()
    expected = oracle.diagnostics(tokens, counts, best, lda.topic_word_prior_, seeds)
    for name in expected[0]:
        np.testing.assert_allclose(
            found[name], [row[name] for row in expected], rtol=1e-9, atol=1e-9, err_msg=name
        )
    frame = pd.DataFrame(found)
    assert frame["topic"].tolist() == [*range(lda.n_components)]
    assert frame["words"].str.split(" ").tolist() == [[str(word) for word in row] for row in best]
    without = lda.topic_diagnostics(None, n_words)
    assert {*found} - {*without} == {"document_entropy", "rank_1_docs", "coherence"}
    assert set(found["alpha"].tolist()) == {lda.doc_topic_prior_}
    for name in without:
        np.testing.assert_array_equal(without[name], found[name])


LABELS = np.arange(46) % 3


@pytest.mark.covering
@pytest.mark.parametrize(
    "ask",
    [
        lambda lda, X: dict(enumerate(lda.top_documents(X, 4))),
        lambda lda, X: lda.sample_topics(X, random_state=0),
        lambda lda, X: lda.topic_diagnostics(X, 4, random_state=0),
        lambda lda, X: {"npmi": lda.coherence(X, "npmi", 4)},
        lambda lda, X: lda.summary(X, 4),
        lambda lda, X: lda.topic_shares(X, LABELS, n_draws=40, random_state=0).table(),
        lambda lda, X: lda.topic_shares(X, LABELS, n_draws=0, weighted_by="tokens").table(),
    ],
    ids=[
        "top_documents",
        "sample_topics",
        "topic_diagnostics",
        "coherence",
        "summary",
        "topic_shares",
        "mean_shares",
    ],
)
@pytest.mark.parametrize("chunks", [(46,), (0, 40, 1, 5)])
def test_places_and_chunks_do_not_matter(named, ask, chunks, in_place):
    X = np.vstack([SMALL, SMALL[::-1]])
    expected = ask(named, X)
    for lazy in lazily(X, chunks):
        found = ask(named, lazy)
        assert [*found] == [*expected]
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], strict=True)


def test_proportions_may_be_on_dask(named, in_place):
    expected, theta = (
        named.top_documents(SMALL, 4),
        da.from_array(named.transform(SMALL), chunks=(7, 2)),
    )
    for one in (theta, theta[theta[:, 0] > -1]):
        np.testing.assert_array_equal(
            named.top_documents(proportions=one, n_documents=4), expected, strict=True
        )


# Windows.


def texts_of(X, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.repeat([*NAMES, "other"], [*row, 3])).tolist() for row in X]


TEXTS = [*texts_of(SMALL), [], ["word3"] * 30, ["other"], *texts_of(np.full((2, 11), 9))]


@pytest.mark.covering
@pytest.mark.parametrize("measure", ["c_npmi", "c_v"])
@pytest.mark.parametrize("width", [1, 5, None])
def test_windows_slide_over_texts(named, measure, width):
    found = named.coherence(TEXTS, measure, 5, window_size=width)
    topics = named.top_words(5, "probability").tolist()
    usual = {"c_npmi": 10, "c_v": 110}[measure]
    expected = oracle.windowed_coherence(topics, TEXTS, measure, width or usual)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_texts_of_any_kind(named, place):
    expected = named.coherence(TEXTS, "c_v", 5, window_size=7)
    array = np.empty(len(TEXTS), object)
    array[:] = TEXTS
    number = {name: n for n, name in enumerate(NAMES)}
    numbers = [[number.get(word, -5) for word in text] for text in TEXTS]
    forms = [
        iter(TEXTS),
        map(tuple, TEXTS),
        array,
        pd.Series(TEXTS),
        [np.array(text, object) for text in TEXTS],
    ]
    bag = db.from_sequence(TEXTS, npartitions=5)
    with at(place):
        found = [
            named.coherence(X, "c_v", 5, window_size=7) for X in [*forms, bag, bag.to_delayed()]
        ]
        found.append(named.coherence(TEXTS, "c_v", 5, window_size=7, feature_names=NAMES))
        nameless = clone(named).set_params(feature_names=None).fit(SMALL)
        found.append(nameless.coherence(numbers, "c_v", 5, window_size=7))
    for one in found:
        np.testing.assert_array_equal(one, expected, strict=True)


# Matches.


@pytest.mark.parametrize("n_others", [2, 4, 6])
def test_matches_are_the_best_of_all(n_others):
    lda = make(n_components=4, seed_words={0: [3], 2: [5, 6]}).fit(SMALL)
    other = make(n_components=n_others, topic_word_prior=3.0).fit(GAPPED)
    similar = cosine_similarity(lda.components_, other.components_)
    few, many = sorted([4, n_others])
    table = similar if n_others >= 4 else similar.T
    best = max(
        sum(table[n, k] for n, k in enumerate(some)) for some in permutations(range(many), few)
    )
    for given in (
        other,
        other.components_,
        other.components_.tolist(),
        sparse.coo_array(other.components_),
    ):
        matched, found = lda.match_topics(given)
        kept = matched >= 0
        assert (matched.dtype, found.dtype, kept.sum()) == (np.int64, np.float64, few)
        assert len({*matched[kept]}) == few
        np.testing.assert_allclose(found[kept], similar[kept, matched[kept]], rtol=1e-12)
        assert np.isnan(found[~kept]).all()
        assert found[kept].sum() == pytest.approx(best, rel=1e-12)


def test_stability_is_the_mean_over_fits_with_other_seeds(named, tmp_path):
    counter = CountVectorizer().fit(NAMES)  # of which clones have unfitted copies
    lda = make(checkpoint=tmp_path / "state.npz", feature_names=counter).fit(SMALL)
    before = (tmp_path / "state.npz").read_bytes()
    seeds = np.random.RandomState(5).randint(np.iinfo(np.int32).max, size=3)
    others = [make(random_state=seed).fit(SMALL) for seed in seeds]
    expected = np.mean([lda.match_topics(other)[1] for other in others], axis=0)
    np.testing.assert_array_equal(lda.topic_stability(SMALL, 3, random_state=5), expected)
    assert (tmp_path / "state.npz").read_bytes() == before
    assert_same_bits(lda, make().fit(SMALL))


# What is refused.


def frame_of_proportions(lda):
    return pd.DataFrame(lda.transform(SMALL), columns=lda.get_feature_names_out())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda lda: lda.top_words(n_words=0),
            r"'n_words' parameter of DistributedLDA.top_words .* \[1, inf\). Got 0",
        ),
        (
            lambda lda: lda.top_words(by="lift"),
            r"'by' .* must be a str among {.*'relevance'.*}. Got 'lift' instead",
        ),
        (
            lambda lda: lda.top_words(relevance=1.5),
            r"'relevance' .* in the range \[0.0, 1.0\]. Got 1.5 instead",
        ),
        (
            lambda lda: lda.top_words(feature_names=NAMES[:4]),
            r"feature_names has shape \(4,\), but there are 11 words",
        ),
        (
            lambda lda: lda.coherence(SMALL, "c_uci"),
            r"'measure' .* must be a str among {.*'npmi'.*}. Got 'c_uci'",
        ),
        (
            lambda lda: lda.coherence(SMALL, n_words=1),
            r"'n_words' .* must be an int in the range \[2, inf\). Got 1",
        ),
        (
            lambda lda: lda.coherence(SMALL[:, :4]),
            "X has 4 features, but DistributedLDA is expecting 11 features",
        ),
        (lambda lda: make().top_words(), "DistributedLDA instance is not fitted yet"),
        (lambda lda: lda.top_documents(), "needs X, word counts, or proportions"),
        (lambda lda: lda.top_documents(SMALL, proportions=np.eye(3)), "give one"),
        (
            lambda lda: lda.top_documents(SMALL, 0),
            r"'n_documents' parameter of DistributedLDA.top_documents .* Got 0",
        ),
        (
            lambda lda: lda.top_documents(proportions=SMALL),
            r"proportions has shape \(23, 11\), but there are 3 topics",
        ),
        (
            lambda lda: lda.top_documents(proportions=frame_of_proportions(lda).iloc[:, :2]),
            r"proportions has shape \(23, 2\), but there are 3 topics",
        ),
        (lambda lda: lda.top_documents(proportions=np.full((2, 3), np.nan)), "proportions has NaN"),
        (lambda lda: lda.sample_topics(-SMALL), r"Negative values in data: X\[0, \d+\]"),
        (
            lambda lda: lda.topic_diagnostics(n_words=0),
            "'n_words' parameter of DistributedLDA.topic_diagnostics",
        ),
        (lambda lda: lda.topic_diagnostics(feature_names=["a"]), r"feature_names has shape \(1,\)"),
        (
            lambda lda: lda.topic_stability(SMALL, 0),
            "'n_fits' parameter of DistributedLDA.topic_stability .* Got 0",
        ),
        (
            lambda lda: lda.match_topics(np.ones((2, 4))),
            "other has topics of 4 words, but this model of 11",
        ),
        (lambda lda: lda.match_topics(-np.ones((2, 11))), "other must have finite weights >= 0"),
        (lambda lda: lda.match_topics("lda"), "other must be a fitted topic model, or weights"),
        (
            lambda lda: lda.match_topics(make(feature_names=NAMES[::-1]).fit(SMALL)),
            "column 0 is the word 'word0'",
        ),
        (
            lambda lda: lda.coherence(SMALL, "npmi", window_size=3),
            r"window_size=3 is for 'c_npmi' and 'c_v', which take texts; .*'npmi'",
        ),
        (
            lambda lda: lda.coherence(TEXTS, "c_v", window_size=0),
            "'window_size' parameter .* Got 0",
        ),
        (
            lambda lda: lda.coherence(SMALL, "c_v"),
            r"measure='c_v' slides windows over texts, but X is of type ndarray",
        ),
        (
            lambda lda: lda.coherence(pd.DataFrame(SMALL), "c_npmi"),
            "but X is of type DataFrame: give lists of words",
        ),
        (lambda lda: lda.coherence("word1 word2", "c_v"), "but X is of type str"),
        (
            lambda lda: lda.coherence([["word1"], "word1 word2"], "c_v"),
            "text 1 of X is 'word1 word2', not a list of",
        ),
        (
            lambda lda: lda.coherence([[["word1"]]], "c_v"),
            r"text 0 of X is \[\['word1'\]\], not a list of words",
        ),
        (
            lambda lda: lda.coherence([["Word1"]] * 3, "c_v"),
            "X has 3 windows, but none of the words of topics",
        ),
        (lambda lda: lda.coherence([], "c_v"), "X has 0 windows, but none of the words of topics"),
    ],
)
def test_what_cannot_be_had_is_named(named, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(named)


def test_what_would_fill_the_memory_is_refused(named, tmp_path):
    with dask.config.set({"schmp-estimators.dense-limit": 8}):
        for ask in (
            lambda: named.sample_topics(SMALL),
            lambda: named.match_topics(named),
            lambda: named.topic_diagnostics(SMALL),
            lambda: named.write_mallet_state(tmp_path / "state.gz", SMALL),
        ):
            with pytest.raises(MemoryError, match=r"GiB .*dense-limit'"):
                ask()
    assert [*tmp_path.iterdir()] == []
