"""What users may pass to DistributedLDA, and what they get for it.

They get something for what is odd, and are told when it is wrong.
"""

import pickle
import re
from contextlib import nullcontext
from functools import partial

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import own_cluster
from corpora import NAMES, SMALL, assert_same_bits, column_sums
from input_cases import IN_MEMORY, ON_DASK, chunked
from scipy import sparse
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning

from schmp_estimators import DistributedLDA
from schmp_estimators.core.errors import NoWorkersError

make = partial(DistributedLDA, n_components=3, max_iter=4, evaluate_every=2, random_state=7)


@pytest.fixture(scope="module")
def expected():
    return make().fit(SMALL)


def values(result, client):
    """Compute a lazy result: on the cluster, or here without one."""
    assert not isinstance(result, np.ndarray)
    parts = result if isinstance(result, list) else [result]
    done = (
        client.gather(client.compute(parts)) if client else dask.compute(*parts, scheduler="sync")
    )
    return np.concatenate(done)


@pytest.mark.parametrize("kind", IN_MEMORY)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_form_gives_the_same_bits(kind, expected):
    X = IN_MEMORY[kind](SMALL)
    assert_same_bits(make().fit(X), expected)
    np.testing.assert_array_equal(expected.transform(X), expected.transform(SMALL))
    assert expected.perplexity(X) == expected.perplexity(SMALL)
    assert expected.score(X) == expected.score(SMALL)


@pytest.mark.covering
@pytest.mark.parametrize("kind", ON_DASK)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_kind_of_collection_gives_the_bits_of_memory(kind, in_place, expected):
    X = ON_DASK[kind](SMALL)
    lda = make().fit(X)
    assert lda.perplexity(X) == expected.perplexity(SMALL)
    assert_same_bits(lda, expected)
    theta, dense = expected.transform(X), expected.transform(SMALL)
    if isinstance(X, da.Array):
        assert (theta.dtype, theta.ndim, theta.chunks[1]) == (np.float64, 2, (3,))
        np.testing.assert_array_equal(theta.chunks[0], X.chunks[0])
        theta, dense = 2 * theta[:, 1:], 2 * dense[:, 1:]
    np.testing.assert_array_equal(values(theta, in_place), dense)


MADE = []


def note(chunk):
    MADE.append(len(chunk))
    return chunk


def test_every_chunk_is_made_once(in_place):
    MADE.clear()
    make().fit(chunked(SMALL).map_blocks(note, **INTEGERS))
    assert sorted(MADE) == [2, 7, 7, 7]


def test_what_travels_to_the_client_does_not_grow_with_the_documents(client):
    """A document of many words weighs more than all that the client needs to know of it."""
    rows, words = 60, 4000
    X = da.random.default_rng(0).poisson(1.0, (rows, words), chunks=(20, words))
    with client.as_current():
        seen = []
        gather = client.gather

        async def weigh(futures, *arguments, **options):
            found = await gather(futures, *arguments, **options)
            seen.append(len(pickle.dumps(found)))
            return found

        client.gather = weigh
        try:
            make(max_iter=2, n_shards=3).fit(X)
        finally:
            del client.gather
    assert seen
    assert max(seen) < rows * words  # of 8 bytes each


@pytest.mark.cluster
def test_what_is_in_memory_is_applied_without_the_cluster(expected):
    """A cluster that happens to be there is not asked, not even for workers.

    This process does such work at once.
    """
    with own_cluster(0), dask.config.set({"schmp-estimators.worker-timeout": 0.1}):
        with pytest.raises(NoWorkersError):
            expected.perplexity(chunked(SMALL))
        assert expected.perplexity(SMALL) > 0
        assert expected.score(SMALL) < 0
        assert isinstance(expected.transform(SMALL), np.ndarray)


def test_names_of_frames_on_dask_are_kept_compared_and_forgotten():
    frame = pd.DataFrame(SMALL, columns=NAMES)
    lda = make().fit(dd.from_pandas(frame, npartitions=2))
    assert lda.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        lda.transform(dd.from_pandas(frame[NAMES[::-1]], npartitions=2))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        lda.transform(chunked(SMALL))
    assert not hasattr(lda.fit(ON_DASK["delayed"](SMALL)), "feature_names_in_")


# What is legal, if odd.

ODD = {
    "empty documents": np.vstack([np.zeros((3, 11), int), SMALL, np.zeros((2, 11), int)]),
    "unused words": np.hstack([np.zeros((23, 2), int), SMALL, np.zeros((23, 4), int)]),
    "one document": SMALL[:1],
    "one word": SMALL[:, :1],
    "one token": np.array([[0, 1, 0]]),
    "one cell": np.array([[3]]),
    "no tokens": np.zeros((4, 3), int),
    "one empty cell": np.array([[0]]),
    "heavy cell": np.array([[0, 200_000, 1], [3, 0, 2]]),
}


@pytest.mark.covering
@pytest.mark.parametrize("parameters", [{}, {"sampler": "fplus"}, {"n_shards": 5}], ids=str)
@pytest.mark.parametrize("n_components", [1, 3, 500])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "heavy cell")) for kind in ODD],
)
def test_odd_but_legal(kind, n_components, parameters):
    X = ODD[kind]
    with (
        nullcontext()
        if X.any()
        else pytest.warns(UserWarning, match="X holds no counts: all . documents are empty")
    ):
        lda = make(n_components=n_components, **parameters).fit(X)
    np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), column_sums(X))
    assert lda.topic_word_counts_.dtype == np.int32
    theta = lda.transform(X)
    assert theta.shape == (len(X), n_components)
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-12)
    assert (theta > 0).all()
    np.testing.assert_array_equal(theta[X.sum(axis=1) == 0], 1 / n_components)
    assert np.isfinite(lda.components_).all()
    assert np.isfinite(lda.history_[-1]["log_likelihood"])
    if (X.sum(axis=1) // 2).any():
        assert np.isfinite(lda.score(X)) and np.isfinite(lda.perplexity(X))
        return
    for judge in (lda.perplexity, lda.score):
        with pytest.warns(
            UndefinedMetricWarning, match="no document with two, so that there is nothing to score"
        ):
            assert np.isnan(judge(X))


# What is wrong.


def mask(X):
    return np.ma.masked_equal(X, 2)


def with_entry(entry):
    table = SMALL.astype(object)
    table[2, 3] = entry
    return table


TEXTS = ["the cat", "the dog"]
INTEGERS = {"dtype": int, "meta": np.empty((0, 0), int)}
COMPLEX, MASKED = "Complex data not supported", "X has masked entries"
DATES = r"X holds dates or times \((datetime|timedelta)64\[.\]\), not numbers"
#: Inputs of which nothing can be made, kinds of errors, and words of messages.
BAD = {
    "text": (TEXTS, ValueError, "CountVectorizer"),
    "one text": ("the cat", ValueError, "CountVectorizer"),
    "array of text": (np.array(TEXTS), ValueError, "CountVectorizer"),
    "series of text": (pd.Series(TEXTS), ValueError, "CountVectorizer"),
    "one column of text": (pd.DataFrame({"text": TEXTS}), ValueError, "CountVectorizer, alone"),
    "lists of words": (
        [["the", "cat"], [], ["the"]],
        ValueError,
        r"no number: .*CountVectorizer\(analyzer=list\)",
    ),
    "lists of pairs": (
        [[(0, 1), (3, 2)], [(2, 1)]],
        ValueError,
        r"no number: .*gensim.matutils.corpus2csc\(X\).T",
    ),
    "table of text": ([TEXTS], ValueError, "strings|convert"),
    "a dict": (with_entry({}), TypeError, "X has an entry that is no number: .*dict"),
    "a list in a list": (
        with_entry([1]),
        ValueError,
        "X has an entry that is no number: .*sequence",
    ),
    "a missing value of pandas": (
        with_entry(pd.NA),
        TypeError,
        "X has an entry that is no number: .*NAType",
    ),
    "a huge number": (
        with_entry(10**400),
        ValueError,
        "X has an entry that is no number: int too large",
    ),
    "1-d": (SMALL[0], ValueError, "Reshape your data"),
    "1-d sparse": (sparse.coo_array(np.ones(3)), ValueError, "2D"),
    "3-d": (SMALL[None], ValueError, "dim 3"),
    "complex": (SMALL + 0j, ValueError, COMPLEX),
    "masked": (
        np.ma.masked_equal(SMALL, SMALL.max()),
        ValueError,
        MASKED + r", the first .* in row \d+.*X.filled",
    ),
    "dates": (SMALL.astype("M8[D]"), ValueError, DATES),
    "no documents": (SMALL[:0], ValueError, r"0 sample\(s\)"),
    "no words": (SMALL[:, :0], ValueError, r"0 feature\(s\)"),
}
BAD_ON_DASK = {
    "array of text": (lambda: da.from_array(np.array([TEXTS])), ValueError, "CountVectorizer"),
    "chunk of text": (lambda: [dask.delayed(list)(TEXTS)], ValueError, "CountVectorizer"),
    "1-d": (lambda: da.ones(3, chunks=2), ValueError, "Reshape your data"),
    "3-d": (lambda: da.ones((2, 2, 2), chunks=1), ValueError, "Expected 2D array, got 3D"),
    "a dict in a chunk": (
        lambda: [dask.delayed(with_entry({}))],
        TypeError,
        "an entry that is no number: .*dict",
    ),
    "1-d chunk": (lambda: [dask.delayed(np.ones)(3)], ValueError, "Expected 2D array"),
    "complex": (lambda: chunked(SMALL + 0j), ValueError, COMPLEX),
    "complex chunk": (lambda: [dask.delayed(np.ones)((2, 2), complex)], ValueError, COMPLEX),
    "masked": (lambda: da.from_array(mask(SMALL), chunks=(4, 3)), ValueError, MASKED),
    "masked where none is told": (
        lambda: chunked(SMALL, 4, 3).map_blocks(mask, **INTEGERS),
        ValueError,
        MASKED,
    ),
    "masked, delayed": (lambda: [dask.delayed(mask)(SMALL)], ValueError, MASKED),
    "times": (lambda: chunked(SMALL.astype("m8[s]")), ValueError, DATES),
    "no documents": (
        lambda: chunked(SMALL)[:0],
        ValueError,
        r"0 sample\(s\) .* required by DistributedLDA",
    ),
    "no documents in any chunk": (
        lambda: [dask.delayed(SMALL[:0])] * 2,
        ValueError,
        r"0 sample\(s\)",
    ),
    "no words": (lambda: da.zeros((3, 0)), ValueError, r"0 feature\(s\)"),
    "widths": (
        lambda: [*map(dask.delayed, (SMALL, SMALL[:, :3]))],
        ValueError,
        "chunk 1 has 3.*same columns",
    ),
    "unknown widths": (
        lambda: chunked(SMALL, has_sizes=False).T,
        ValueError,
        "compute_chunk_sizes",
    ),
    "series": (
        lambda: dd.from_pandas(pd.Series([1, 2]), npartitions=1),
        TypeError,
        "one two-dimensional Dask array",
    ),
    "series of text": (
        lambda: dd.from_pandas(pd.Series(TEXTS), npartitions=1),
        TypeError,
        r"Series.*X.to_delayed\(\)",
    ),
    "bag": (lambda: db.from_sequence(TEXTS), TypeError, "of type Bag.*text.*vectorizer"),
    "list of arrays": (
        lambda: [da.ones((2, 2))],
        TypeError,
        "of type list.*one two-dimensional Dask array",
    ),
    "list with a gap": (lambda: [dask.delayed(SMALL), None], TypeError, "list of Delayed"),
    "one delayed": (lambda: dask.delayed(SMALL), TypeError, "list of Delayed .* chunk of rows[.]"),
}


class Watch:
    """Counts what it is told."""

    calls = 0

    def setup(self, estimator, context):
        self.calls += 1

    teardown = on_fit_task_begin = on_fit_task_end = setup


def assert_refused(error, message, *given, methods=("fit", "partial_fit"), **parameters):
    """Each method raises before any work, and nothing is fitted, or claims to be."""
    for method in methods:
        watch = Watch()
        lda = make(**parameters).set_callbacks(watch)
        with pytest.raises(error, match=message):
            getattr(lda, method)(*given)
        assert watch.calls == 0
        assert not [name for name in vars(lda) if name.endswith("_")]
        with pytest.raises(NotFittedError, match=r"not fitted yet.*Call 'fit'"):
            lda.transform(SMALL)
        with pytest.raises(NotFittedError):
            _ = lda.components_


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_in_memory(kind):
    X, error, message = BAD[kind]
    assert_refused(error, message, X, methods=("fit", "partial_fit", "fit_transform"))


@pytest.mark.covering
@pytest.mark.parametrize("kind", BAD_ON_DASK)
def test_bad_input_on_dask(kind, in_place):
    X, error, message = BAD_ON_DASK[kind]
    assert_refused(error, message, X(), methods=["fit"])


@pytest.mark.covering
@pytest.mark.parametrize("row", [0, 9, 22])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "Negative values in data: {} is -1.0.* CountVectorizer"),
        (0.5, "{} is 0.5, which is not a whole number.* CountVectorizer .* round X"),
        (np.nan, "{} is NaN.*numpy.nan_to_num"),
        (np.inf, "{} is inf, infinity.*replace"),
        (-np.inf, "{} is -inf, infinity.*replace"),
        (2.0**31, r"{} is 2147483648.0, more than .*\(2147483647\).*Divide"),
    ],
)
def test_the_first_bad_count_is_named_with_its_place_and_the_remedy(value, message, row, in_place):
    bad = SMALL.astype(float)
    bad[row, 5] = bad[22, 7] = value
    forms = [bad, np.asfortranarray(bad), sparse.csr_array(bad), sparse.csr_matrix(bad)]
    for X in (*forms, chunked(bad, 4, 3), chunked(bad, 4, form=sparse.csr_array)):
        assert_refused(ValueError, message.format(rf"X\[{row}, 5\]"), X, methods=["fit"])


BAD_PARAMETERS = {
    "n_components": [0, -1, 2.5, 3.0, "ten", None, np.nan, 2**31],
    "doc_topic_prior": [0, 0.0, -0.1, np.nan, np.inf, 1e31, 5e-324, 9e-31, "auto"],
    "topic_word_prior": [0, -1, np.nan, np.inf, 5e-324, 1e-300, [0.1], "auto"],
    "transform_tol": [0.0, -1e-3, 1.0, np.nan, None],
    "seed_words": [3, "words"],
    "feature_names": [3, "words"],
    "seed_weight": [-1, np.nan, np.inf, None, "much"],
    "sampler": ["gibbs", "", None, 1],
    "half_life": [0, -1.0, np.nan, np.inf, "calls"],
    "max_features": [0, -1, 1.5, "few"],
    "mh_steps": [0, 5, 1.5, None, "often"],
    "init": ["svd", "", None, 1],
    "max_iter": [0, -1, 1.5, None],
    "evaluate_every": [-1, 0.5, None],
    "tol": [-1e-9, np.nan, "small", None],
    "n_shards": [0, -1, 1.5, "auto"],
    "n_jobs": [0, 1.5, "all"],
    "checkpoint": [3, b"bytes"],
    "checkpoint_every": [0, None],
    "spill": [3, b"bytes"],
    "warm_start": ["yes", None],
    "verbose": [-1, "loud", None],
    "random_state": [-1, "seed", 1.5],
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_are_named_with_their_value(name):
    assert set(make().get_params()) == set(BAD_PARAMETERS)  # each is constrained
    for value in BAD_PARAMETERS[name]:
        assert_refused(ValueError, rf"(?s){name}.*{re.escape(repr(value))}", SMALL, **{name: value})


def test_wrong_width(expected):
    message = "X has 5 features, but DistributedLDA is expecting 11 features as input"
    narrow, partial_fit = SMALL[:, :5], make().fit(SMALL).partial_fit
    for X in (
        narrow,
        sparse.csr_array(narrow),
        chunked(narrow),
        chunked(narrow, 7, 3, sparse.csr_array),
    ):
        for method in (expected.transform, expected.perplexity, expected.score, partial_fit):
            with pytest.raises(ValueError, match=message):
                method(X)
    with pytest.raises(ValueError, match=r"chunk 1 has 5.*same columns"):
        expected.perplexity([*map(dask.delayed, (SMALL, narrow))])
    chunks = [dask.delayed(narrow)]
    for method in (
        expected.perplexity,
        partial_fit,
        lambda X: dask.compute(*expected.transform(X), scheduler="sync"),
    ):
        with pytest.raises(ValueError, match=message):
            method(chunks)


@pytest.mark.parametrize("sampler", ["warp", "fplus"])
def test_there_are_no_more_shards_than_documents_or_words(sampler):
    for X, most in ((SMALL, 11), (SMALL[:4], 4)):
        parameters = {"sampler": sampler, "max_iter": 2}
        lda = make(n_shards=20_000, **parameters).fit(X)
        assert lda.n_shards_ == most
        assert_same_bits(lda, make(n_shards=most, **parameters).fit(X))
    assert make(n_shards=5).fit(SMALL).n_shards_ == 5
