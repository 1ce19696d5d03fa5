"""What users may pass to DistributedLDA, what they get for what is odd, and what they are told when it is wrong."""

from contextlib import nullcontext

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from corpora import NAMES, SMALL, assert_same_bits, column_sums
from scipy import sparse
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning

from schmp_estimators import DistributedLDA

FORMATS = [
    f"{name}_{kind}" for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia") for kind in ("array", "matrix")
]


def make(**parameters):
    return DistributedLDA(**{"n_components": 3, "max_iter": 4, "evaluate_every": 2, "random_state": 7} | parameters)


@pytest.fixture(scope="module")
def expected():
    return make().fit(SMALL)


def long_indices(form):
    matrix = form(SMALL)
    matrix.indptr, matrix.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return matrix


def in_halves():
    """Entries out of order, each count in two parts, zeros stored."""
    rows, columns = np.indices(SMALL.shape).reshape(2, -1)[:, ::-1]
    flat = SMALL[rows, columns]
    parts = np.concatenate([flat // 2, flat - flat // 2])
    return sparse.coo_array((parts, (np.tile(rows, 2), np.tile(columns, 2))), shape=SMALL.shape)


def unsorted():
    matrix = sparse.csr_array(SMALL)
    for first, last in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        for part in (matrix.indices, matrix.data):
            part[first:last] = part[first:last][::-1].copy()
    matrix.has_sorted_indices = False
    return matrix


IN_MEMORY = {
    **{dtype: lambda dtype=dtype: SMALL.astype(dtype) for dtype in ("int8", "uint16", "int64", "float32", "float64")},
    "half precision": lambda: SMALL.astype(np.float16),
    "big-endian": lambda: SMALL.astype(">i4"),
    "columns first": lambda: np.asfortranarray(SMALL),
    "nothing masked": lambda: np.ma.masked_equal(SMALL, -1),
    "every other": lambda: np.repeat(np.repeat(SMALL, 2, axis=0), 2, axis=1)[::2, ::2],
    "lists": SMALL.tolist,
    "tuples": lambda: tuple(map(tuple, SMALL.tolist())),
    "objects": lambda: SMALL.astype(object),
    "matrix in halves": in_halves,
    "unsorted": unsorted,
    "read-only sparse": lambda: _read_only(sparse.csr_array(SMALL)),
    "long csr": lambda: long_indices(sparse.csr_array),
    "long csc": lambda: long_indices(sparse.csc_matrix),
    "pandas": lambda: pd.DataFrame(SMALL, columns=NAMES),
    "pandas with an index": lambda: pd.DataFrame(SMALL, index=[f"doc{i}" for i in range(len(SMALL))]),
    "pandas sparse": lambda: pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(SMALL)),
    "pandas nullable": lambda: pd.DataFrame(SMALL).astype("UInt16"),
    **{name: lambda name=name: getattr(sparse, name)(SMALL) for name in FORMATS},
    "float csr": lambda: sparse.csr_array(SMALL.astype(float)),
}


def _read_only(matrix):
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


@pytest.mark.parametrize("kind", IN_MEMORY)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_form_gives_the_same_bits(kind, expected):
    X = IN_MEMORY[kind]()
    assert_same_bits(make().fit(X), expected)
    np.testing.assert_array_equal(expected.transform(X), expected.transform(SMALL))
    assert expected.perplexity(X) == expected.perplexity(SMALL)
    assert expected.score(X) == expected.score(SMALL)


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
@pytest.mark.parametrize("kind", ODD)
def test_odd_but_legal(kind, n_components, parameters):
    X = ODD[kind]
    with nullcontext() if X.any() else pytest.warns(UserWarning, match="X holds no counts: all . documents are empty"):
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
    else:
        has_no_score(lda, X)


def has_no_score(lda, X):
    for judge in (lda.perplexity, lda.score):
        with pytest.warns(UndefinedMetricWarning, match="no document with two, so that there is nothing to score"):
            assert np.isnan(judge(X))


def test_documents_of_one_token_have_no_score(expected, place):
    X = np.eye(11, dtype=int)[np.arange(30) % 11]
    for given in (X, sparse.csr_array(X)):
        has_no_score(expected, given)
    for form in ("array", "sparse", "delayed"):
        in_place(place, has_no_score, expected, on_dask(X, form))


# What is wrong.

BAD_INPUT = {
    "negative": (-SMALL, r"Negative values in data: X\[0, \d+\] is -\d"),
    "fractional": (SMALL + 0.25, r"X\[0, 0\] is .*25, which is not a whole number.*CountVectorizer"),
    "NaN": (np.where(np.arange(11) == 4, np.nan, SMALL), r"X\[0, 4\] is NaN.*nan_to_num"),
    "infinite": (np.where(np.arange(11) == 4, np.inf, SMALL), r"X\[0, 4\] is inf"),
    "too large": (np.array([[1, 2**31]]), r"X\[0, 1\] is 2147483648, more than a 32-bit count can hold"),
    "no documents": (SMALL[:0], r"0 sample\(s\)"),
    "no words": (SMALL[:, :0], r"0 feature\(s\)"),
    "1-d": (SMALL[0], "Reshape your data"),
    "3-d": (SMALL[None], "dim 3"),
    "text": (["a cat", "a dog"], "CountVectorizer"),
    "one text": ("a cat", "CountVectorizer"),
    "complex": (SMALL + 1j, "Complex data not supported"),
    "masked": (np.ma.masked_equal(SMALL, SMALL.max()), r"X has masked entries, the first of them in row \d+.*X.filled"),
}


def untouched(lda):
    """Nothing is fitted, or claims to be."""
    assert not [name for name in vars(lda) if name.endswith("_")]
    with pytest.raises(NotFittedError, match=r"not fitted yet.*Call 'fit'"):
        lda.transform(SMALL)
    with pytest.raises(NotFittedError):
        _ = lda.components_


@pytest.mark.parametrize("kind", BAD_INPUT)
def test_bad_input_is_refused_before_any_work(kind):
    X, message = BAD_INPUT[kind]
    watch = Watch()
    for method in ("fit", "partial_fit", "fit_transform"):
        lda = make().set_callbacks(watch)
        with pytest.raises(ValueError, match=message):
            getattr(lda, method)(X)
        untouched(lda)
    assert watch.calls == 0


def on_dask(X, form):
    if form == "frame":
        return dd.from_pandas(pd.DataFrame(X, columns=NAMES[: X.shape[1]]), npartitions=2)
    if form == "delayed":
        return [dask.delayed(X[:9]), dask.delayed(X[9:])]
    array = da.from_array(X, chunks=8)
    if form == "array":
        return array
    return array.map_blocks(sparse.csr_array, dtype=X.dtype, meta=sparse.csr_array((1, 1)))


def in_place(place, function, *arguments):
    if place is None:
        return function(*arguments)
    with place.as_current():
        return function(*arguments)


class Watch:
    """Counts what it is told."""

    calls = 0

    def setup(self, estimator, context):
        self.calls += 1

    teardown = on_fit_task_begin = on_fit_task_end = setup


BAD_PARAMETERS = {
    "n_components": [0, -1, 2.5, 3.0, "ten", None, np.nan, 2**31],
    "doc_topic_prior": [0, 0.0, -0.1, np.nan, np.inf, 1e31, 5e-324, 9e-31, "auto"],
    "topic_word_prior": [0, -1, np.nan, np.inf, 5e-324, 1e-300, [0.1], "auto"],
    "transform_tol": [0.0, -1e-3, 1.0, np.nan, None],
    "seed_words": [3, "words"],
    "feature_names": [3, "words"],
    "seed_weight": [-1, np.nan, np.inf, None, "much"],
    "sampler": ["gibbs", "", None, 1],
    "mh_steps": [0, 5, 1.5, None],
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
    watch = Watch()
    for value in BAD_PARAMETERS[name]:
        for method in ("fit", "partial_fit"):
            lda = make(**{name: value}).set_callbacks(watch)
            with pytest.raises(ValueError, match=f"{name}.*") as caught:
                getattr(lda, method)(SMALL)
            assert repr(value) in str(caught.value)
            untouched(lda)
    assert watch.calls == 0


def test_masks_of_other_arrays_are_refused():
    masked = np.ma.masked_less(np.linspace(0.1, 1.0, 3), 0.2)
    for name, lda, y in (
        ("y", make(), np.ma.masked_less(np.arange(len(SMALL)), 1)),
        ("doc_topic_prior", make(doc_topic_prior=masked), None),
        ("seed_words", make(seed_words=np.ma.masked_array(np.ones((3, 11)), np.eye(3, 11))), None),
    ):
        with pytest.raises(ValueError, match=f"^{name} has masked entries, the first of them in row 0"):
            lda.fit(SMALL, y)
        untouched(lda)


def test_every_parameter_is_constrained():
    assert set(make().get_params()) == set(BAD_PARAMETERS)


def test_wrong_width(expected):
    message = "X has 5 features, but DistributedLDA is expecting 11 features as input"
    lazy = da.from_array(SMALL[:, :5], chunks=(8, 5))
    for X in (SMALL[:, :5], sparse.csr_array(SMALL[:, :5]), lazy):
        for method in (expected.transform, expected.perplexity, expected.score, make().fit(SMALL).partial_fit):
            with pytest.raises(ValueError, match=message):
                method(X)


@pytest.mark.covering
@pytest.mark.parametrize("sampler", ["warp", "fplus"])
@pytest.mark.parametrize("alpha", [1e-30, 1e-3, 1e6, 1e30])
@pytest.mark.parametrize("beta", [1e-30, 50.0, 1e30])
def test_extreme_priors_do_no_harm(alpha, beta, sampler):
    parameters = {"doc_topic_prior": alpha, "topic_word_prior": beta, "sampler": sampler}
    for X, n_components in ((SMALL, 3), (SMALL, 50), (SMALL[:, :1], 50), (1000 * SMALL, 5)):
        lda = make(n_components=n_components, **parameters).fit(X)
        np.testing.assert_array_equal(column_sums(lda.topic_word_counts_), column_sums(X))
        np.testing.assert_allclose(lda.transform(X).sum(axis=1), 1, rtol=1e-12)
        assert np.isfinite(lda.perplexity(X))
        assert np.isfinite([record["log_likelihood"] for record in lda.history_ if "log_likelihood" in record]).all()


@pytest.mark.parametrize("sampler", ["warp", "fplus"])
def test_there_are_no_more_shards_than_documents_or_words(sampler):
    for X, most in ((SMALL, 11), (SMALL[:4], 4)):
        parameters = {"sampler": sampler, "max_iter": 2}
        lda = make(n_shards=20_000, **parameters).fit(X)
        assert lda.n_shards_ == most
        assert_same_bits(lda, make(n_shards=most, **parameters).fit(X))
    assert make(n_shards=5, max_iter=1).fit(SMALL).n_shards_ == 5


def test_whole_numbers_of_other_types_are_whole_numbers():
    plain = make(max_iter=3).fit(SMALL)
    odd = make(n_components=np.int64(3), max_iter=np.uint8(3), random_state=np.int32(7), n_shards=np.int16(2))
    assert_same_bits(odd.fit(SMALL), plain)
