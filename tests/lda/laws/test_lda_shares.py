"""Shares of topics in groups: by enumeration, coverage, labels of all kinds."""

import math
import pickle
from datetime import date
from functools import partial
from itertools import product

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from corpora import SMALL, planted
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.programs import foldin

make = partial(DistributedLDA, n_components=3, max_iter=4, random_state=7)
#: Documents 3 and 10 have no words.
X = np.where(np.isin(np.arange(23), [3, 10])[:, None], 0, SMALL)
YEARS = 2000 + np.arange(23) // 6


@pytest.fixture(scope="module")
def fitted():
    return make().fit(X)


def known(topics, alpha):
    """Return a model that has these topics, word proportions, and this document-topic prior."""
    counts = np.rint(1e8 * topics).astype(np.int32)
    lda = make(n_components=len(topics), max_iter=1).fit(np.eye(topics.shape[1], dtype=int))
    lda.topic_word_counts_ = sparse.csc_array(counts)
    lda.topic_word_prior_, lda.doc_topic_prior_ = 1e-9, alpha
    return lda


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_draws_are_those_of_the_posterior():
    rng = np.random.default_rng(0)
    topics, alpha = rng.dirichlet(np.ones(4), 3), np.array([0.3, 0.8, 0.5])
    words = [0, 0, 1, 2, 3]
    chance, of_tokens, of_document = [], [], []
    for z in product(range(3), repeat=len(words)):
        n = np.bincount(z, minlength=3)
        prior = math.prod(math.gamma(a + k) / math.gamma(a) for a, k in zip(alpha, n, strict=True))
        chance.append(prior * math.prod(topics[k, w] for k, w in zip(z, words, strict=True)))
        of_tokens.append(n / len(words))
        of_document.append((n + alpha) / (len(words) + alpha.sum()))
    chance = np.array(chance) / sum(chance)
    lda = known(topics, alpha)
    document = np.bincount(words, minlength=4)[None]
    for weighted_by, expected in (("tokens", of_tokens), ("documents", of_document)):
        options = {"weighted_by": weighted_by, "random_state": 0}
        found = lda.topic_shares(document, n_draws=20_000, **options)
        np.testing.assert_allclose(found.share[0], chance @ expected, atol=0.01)


@pytest.mark.parametrize(
    "weighted_by", ["documents", pytest.param("tokens", marks=pytest.mark.slow)]
)
def test_intervals_cover_what_the_documents_were_drawn_with(weighted_by):
    covered, group = [], np.arange(40) % 2
    for seed in range(50):
        rng = np.random.default_rng(seed)
        topics = rng.dirichlet(np.full(30, 0.2), 4)
        shares = rng.dirichlet(np.full(4, 0.3), 40)
        tokens = np.array([rng.multinomial(25, share) for share in shares])
        counts = [[rng.multinomial(one[k], topics[k]) for k in range(4)] for one in tokens]
        truth = shares if weighted_by == "documents" else tokens / 25
        truth = np.array([truth[group == g].mean(axis=0) for g in range(2)])
        found = known(topics, 0.3).topic_shares(
            np.sum(counts, axis=1), group, n_draws=39, weighted_by=weighted_by, random_state=seed
        )
        covered += ((found.lower <= truth) & (truth <= found.upper)).ravel().tolist()
    assert 0.92 <= np.mean(covered) <= 0.98


def test_without_draws_shares_are_means_of_proportions(fitted):
    theta, lengths = fitted.transform(X), X.sum(axis=1)
    for weighted_by, weights in (("documents", lengths > 0), ("tokens", lengths)):
        found = fitted.topic_shares(X, YEARS, n_draws=0, weighted_by=weighted_by)
        expected = [
            np.average(theta[year == YEARS], axis=0, weights=weights[year == YEARS])
            for year in np.unique(YEARS)
        ]
        np.testing.assert_allclose(found.share, expected, rtol=1e-12)
        assert found.lower is found.upper is found.trend_lower is None


@pytest.mark.parametrize("weighted_by", ["documents", "tokens"])
def test_same_bits_for_any_threads_and_chunks(fitted, weighted_by, monkeypatch):
    options = {"weighted_by": weighted_by, "random_state": 3, "n_draws": 40}
    whole = fitted.topic_shares(X, YEARS, **options)
    threads = pickle.loads(pickle.dumps(fitted)).set_params(n_jobs=2)
    with monkeypatch.context() as cut:  # into a job for about four words
        cut.setattr(foldin, "_JOB", 4)
        assert_same(threads.topic_shares(X, YEARS, **options), whole)
    lazy = da.from_array(X, chunks=((5, 1, 17), 11))
    assert_same(fitted.topic_shares(lazy, da.from_array(YEARS, chunks=4), **options), whole)
    assert (
        fitted.topic_shares(X, YEARS, **options | {"random_state": 4}).share != whole.share
    ).any()


def test_what_has_no_words_or_no_label_does_not_count(fitted):
    labels = np.where(np.isin(np.arange(23), [0, 3]), np.nan, YEARS)
    kept = np.isin(np.arange(23), [0, 3, 10], invert=True)
    found = fitted.topic_shares(X, labels, n_draws=0)
    assert_same(found[:3], fitted.topic_shares(X[kept], YEARS[kept], n_draws=0)[:3])
    assert (found.n_empty, found.n_unlabelled) == (2, 1)
    np.testing.assert_array_equal(found.n_documents, np.bincount(YEARS[kept] - 2000))
    np.testing.assert_array_equal(
        found.n_tokens, np.bincount(YEARS[kept] - 2000, X[kept].sum(axis=1))
    )


def test_a_group_without_words_and_one_of_a_document(fitted):
    labels = ["none" if n == 3 else "one" if n == 4 else "rest" for n in range(23)]
    found = fitted.topic_shares(X, labels, n_draws=40, random_state=0)
    assert found.groups.tolist() == ["none", "one", "rest"] and found.n_documents.tolist() == [
        0,
        1,
        20,
    ]
    assert np.isnan(found.share[0]).all() and np.isnan(found.lower[0]).all()
    np.testing.assert_allclose(found.share[1:].sum(axis=1), 1.0)
    assert (found.lower[1:] <= found.share[1:]).all() and (found.share[1:] <= found.upper[1:]).all()


DAYS = pd.date_range("2020-02-28", periods=23, freq="D")
LABELS = {
    "numbers": (YEARS, 1.0),
    "floats": (YEARS / 4, 4.0),
    "a list with NA": ([pd.NA if n == 3 else int(y) for n, y in enumerate(YEARS)], 1.0),
    "a list with None": ([None if n == 3 else int(y) for n, y in enumerate(YEARS)], 1.0),
    "integers of pandas": (pd.Series(YEARS).astype("Int64").mask(np.arange(23) == 3), 1.0),
    "dates": ([date(int(y), 1, 1) for y in YEARS], None),
    "times": (pd.to_datetime(pd.Series(YEARS.astype(str))), None),
    "periods": (pd.PeriodIndex(YEARS.astype(str), freq="Y"), None),
    "names": (YEARS.astype(str), "none"),
    "a column of names": (pd.Series(YEARS.astype(str)).mask(np.arange(23) == 3), "none"),
    "ordered": (
        pd.Categorical(YEARS, categories=[1999, 2000, 2001, 2002, 2003], ordered=True),
        1.0,
    ),
    "missing booleans": (pd.Series(YEARS > 2001).astype("boolean").mask(np.arange(23) == 3), 0),
    "a series of categories": (pd.Series(YEARS.astype(str)).astype("category"), "none"),
    "lazy": (dd.from_pandas(pd.Series(YEARS), npartitions=2), 1.0),
    "one group": (None, "none"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_of_all_kinds(fitted, case):
    labels, unit = LABELS[case]
    usual = fitted.topic_shares(X, YEARS, random_state=0, n_draws=40)
    found = fitted.topic_shares(X, labels, random_state=0, n_draws=40)
    if case in ("one group", "missing booleans"):
        assert found.groups.tolist() == (["all"] if labels is None else [False, True])
        assert found.n_documents.sum() == 21 and found.trend is None
        return
    np.testing.assert_array_equal(found.share, usual.share)
    if unit == "none":
        assert found.trend is None
    elif unit is None:  # years differ in length
        np.testing.assert_allclose(found.trend, usual.trend, rtol=0.02)
    else:
        np.testing.assert_allclose(found.trend, unit * usual.trend)
        np.testing.assert_allclose(found.trend_upper, unit * usual.trend_upper)


def test_the_trend_is_a_weighted_line(fitted):
    found = fitted.topic_shares(X, YEARS**2, n_draws=0)
    line = np.polyfit(found.groups, found.share, 1, w=np.sqrt(found.n_documents))
    np.testing.assert_allclose(found.trend, line[0])


def test_other_fits_are_matched(fitted):
    few = {"n_draws": 8, "confidence_level": 0.5}  # too few for the default level
    assert len(fitted.topic_shares(X, YEARS, **few, n_fits=1).refits) == 1
    found = fitted.topic_shares(X, YEARS, n_draws=0, n_fits=2, random_state=5)
    random = np.random.RandomState(5)
    random.randint(np.iinfo(np.int32).max)  # the seed of draws
    for seed, shares in zip(
        random.randint(np.iinfo(np.int32).max, size=2), found.refits, strict=True
    ):
        other = make(random_state=int(seed)).fit(X)
        matched, _ = fitted.match_topics(other)
        expected = other.topic_shares(X, YEARS, n_draws=0).share[:, matched]
        np.testing.assert_array_equal(shares, expected)
    table = pd.DataFrame(found.table())
    assert table.shape == (12, 8)
    assert (table["refits_min"] == found.refits.min(axis=0).ravel()).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"by": YEARS[:5]},
            r"by has shape \(5,\), but X has 23 documents; give one label for each",
        ),
        ({"by": [1, *"a" * 22]}, "by mixes what cannot be sorted"),
        ({"by": np.ma.array(YEARS, mask=YEARS == 2000)}, "by has masked entries"),
        ({"n_draws": 38}, "n_draws=38 are too few for confidence_level=0.95; give 39 or more"),
        ({"n_draws": -1}, "'n_draws' parameter of DistributedLDA.topic_shares"),
        ({"confidence_level": 95}, "'confidence_level' parameter"),
        ({"weighted_by": "words"}, "'weighted_by' parameter"),
        ({"n_fits": 0.5}, "'n_fits' parameter"),
    ],
)
def test_errors_of_shares(fitted, options, message):
    with pytest.raises(ValueError, match=message):
        fitted.topic_shares(X, **options)


@pytest.mark.parametrize("n_draws", [0, 39])
def test_as_much_room_is_asked_for_as_totals_or_proportions_take(fitted, n_draws):
    """Draws are added up by group; without draws the proportions of all documents are held."""
    n_topics, n_groups = len(fitted.topic_sizes_), len({*YEARS})
    needed = 8 * n_topics * (39 * n_groups if n_draws else len(X))
    ask = partial(fitted.topic_shares, X, YEARS, n_draws=n_draws)
    with dask.config.set({"schmp-estimators.dense-limit": needed}):
        ask()
    with (
        dask.config.set({"schmp-estimators.dense-limit": needed - 1}),
        pytest.raises(MemoryError, match=f"{n_groups} groups, 23 documents need"),
    ):
        ask()


# Names, and the summary.


def test_names_are_words_until_others_are_assigned():
    lda = make(feature_names=[f"word{n}" for n in range(11)]).fit(X)
    assert lda.topic_names_.tolist() == [", ".join(row) for row in lda.top_words(4).tolist()]
    lda.topic_names_ = ["a", "b", "c"]
    for found in (lda, pickle.loads(pickle.dumps(lda)), lda.partial_fit(X)):
        assert found.topic_names_.tolist() == ["a", "b", "c"]
        assert found.topic_diagnostics()["name"].tolist() == ["a", "b", "c"]
        assert found.topic_shares(X, n_draws=0).table()["name"].tolist() == ["a", "b", "c"]
    assert lda.fit(X).topic_names_[0] != "a"
    for names in (["a"], "abc", [["a", "b", "c"]]):
        with pytest.raises(ValueError, match=r"topic_names_ .* there are 3 topics; give one name"):
            lda.topic_names_ = names


def test_a_summary_has_what_other_methods_say():
    lda = make(feature_names=[f"word{n}" for n in range(11)]).fit(X)
    found = lda.summary(X, 5)
    assert {*pd.DataFrame(lda.summary())} == {"topic", "name", "share", "words", "exclusivity"}
    np.testing.assert_array_equal(found["share"], lda.topic_sizes_ / X.sum())
    assert found["words"].tolist() == [", ".join(row) for row in lda.top_words(5).tolist()]
    np.testing.assert_array_equal(
        found["exclusivity"], lda.topic_diagnostics(None, 5)["exclusivity"]
    )
    np.testing.assert_array_equal(found["coherence"], lda.coherence(X, n_words=5))
    theta = lda.transform(X)
    np.testing.assert_array_equal(found["document"], theta.argmax(axis=0))
    np.testing.assert_array_equal(found["proportion"], theta.max(axis=0))
    assert lda.summary(X, 1)["name"].tolist() == lda.topic_names_.tolist()


def test_documents_without_words_represent_no_topic():
    counts, _, _ = planted(n_docs=20)
    lda = make(n_components=30, doc_topic_prior=[5.0] + [1e-3] * 29).fit(counts)
    documents, proportions = lda.top_documents(np.vstack([0 * counts[:5], counts]), 25)
    assert np.sort(documents[:, -5:]).tolist() == [[0, 1, 2, 3, 4]] * 30
    assert not proportions[:, -5:].any() and proportions[:, :-5].all()


def test_trends_over_times_do_not_depend_on_their_form():
    times = pd.Series(pd.date_range("2024-03-01", periods=48, freq="h"))
    X = np.random.default_rng(0).poisson(np.kron(np.eye(2), np.ones((24, 5))))
    lda = DistributedLDA(2, max_iter=10, random_state=0).fit(X)
    forms = times, times.dt.tz_localize("UTC"), times.dt.to_pydatetime().tolist()
    found = [lda.topic_shares(X, by, n_draws=0).trend for by in forms]
    assert abs(found[0][0]) > 100
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=1e-9)
