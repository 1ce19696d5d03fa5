"""Canonical counts: the same for every form of the same numbers, and no other numbers are let in."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.data.counts import (
    Counts,
    Fault,
    canonical_counts,
    copy_rows,
    read_counts,
    take_rows,
    token_counts,
)

#: Those that other tests have kernels for, and all.
DTYPES = ["i8", "f4", "f8", "f2", "longdouble", ">i4", ">f8"]
ALL_DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "u8", *DTYPES]
matrices = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=8), elements=st.integers(0, 3)
)


def dense(counts: Counts):
    parts = counts.data, counts.indices, counts.indptr
    return sparse.csr_array(parts, shape=(counts.indptr.size - 1, counts.n_features)).toarray()


def assert_canonical(counts: Counts, expected):
    rows, columns = np.nonzero(expected)
    np.testing.assert_array_equal(counts.indices, columns)
    np.testing.assert_array_equal(counts.data, expected[rows, columns])
    np.testing.assert_array_equal(np.diff(counts.indptr), np.count_nonzero(expected, axis=1))
    assert counts.n_features == expected.shape[1]
    assert [array.dtype for array in counts[:3]] == [np.int64, np.int32, np.int32]
    assert not any(array.flags.writeable for array in counts[:3])


@st.composite
def scattered(draw):
    """A matrix, and a CSR array of it with repeated, unsorted and explicitly zero entries."""
    expected = draw(matrices)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, columns = np.nonzero(expected)
    split = rng.integers(0, expected[rows, columns] + 1)
    values = np.concatenate([split, expected[rows, columns] - split])
    order = rng.permutation(values.size)
    rows, columns, values = np.tile(rows, 2)[order], np.tile(columns, 2)[order], values[order]
    by_row = np.argsort(rows, kind="stable")
    index = draw(st.sampled_from([np.int32, np.int64]))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=expected.shape[0]))]).astype(index)
    dtype = draw(st.sampled_from(["i1", "u1", "i8", "f4", "f8"]))
    matrix = sparse.csr_array(expected.shape, dtype=dtype)
    matrix.indptr, matrix.indices, matrix.data = ptr, columns[by_row].astype(index), values[by_row].astype(dtype)
    return expected, matrix


@pytest.mark.parametrize(
    "dtypes", [["?", *DTYPES], pytest.param(ALL_DTYPES, marks=pytest.mark.slow)], ids=["some", "all"]
)
@given(matrices, st.data(), st.booleans())
def test_every_dtype_and_layout_gives_the_same_counts(dtypes, expected, data, columns_first):
    dtype = data.draw(st.sampled_from(dtypes))
    expected = np.minimum(expected, 1) if dtype == "?" else expected
    typed = expected.astype(dtype)
    assert_canonical(canonical_counts(np.asfortranarray(typed) if columns_first else typed), expected)
    if dtype not in ("f2", ">i4", ">f8"):  # SciPy does not take these
        assert_canonical(canonical_counts(sparse.csr_array(typed)), expected)
        assert_canonical(canonical_counts(sparse.csr_matrix(typed)), expected)


@given(scattered())
def test_scattered_entries_are_put_in_order_without_touching_them(pair):
    expected, matrix = pair
    before = [array.copy() for array in (matrix.indptr, matrix.indices, matrix.data)]
    for array in (matrix.indptr, matrix.indices, matrix.data):
        array.flags.writeable = False
    assert_canonical(canonical_counts(matrix), expected)
    for array, old in zip((matrix.indptr, matrix.indices, matrix.data), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_what_is_canonical_is_not_copied():
    matrix = sparse.csr_array(np.array([[0, 2, 1], [3, 0, 0]], np.int32))
    counts = canonical_counts(matrix)
    assert np.shares_memory(counts.indices, matrix.indices)
    assert np.shares_memory(counts.data, matrix.data)
    assert matrix.data.flags.writeable


def test_narrow_integers_do_not_overflow_when_summed():
    matrix = sparse.csr_array((2, 3), dtype=np.uint8)
    matrix.indptr, matrix.indices = np.array([0, 2, 2]), np.array([1, 1])
    matrix.data = np.array([200, 100], np.uint8)
    assert_canonical(canonical_counts(matrix), np.array([[0, 300, 0], [0, 0, 0]]))


def test_an_entry_is_judged_by_its_sum():
    matrix = sparse.csr_array((1, 2), dtype=float)
    matrix.indptr, matrix.indices, matrix.data = np.array([0, 3]), np.array([1, 0, 1]), np.array([0.5, 2.0, 2.5])
    assert_canonical(canonical_counts(matrix), np.array([[2, 3]]))


def test_wide_dense_columns_first_input_is_read_in_groups(monkeypatch):
    monkeypatch.setattr("schmp_estimators.lda.data.counts._DENSE_GROUP", 100)
    expected = np.random.default_rng(0).poisson(0.5, (20, 6))
    assert_canonical(canonical_counts(np.asfortranarray(expected)), expected)
    expected[17, 2] = -1
    with pytest.raises(ValueError, match=r"X\[17, 2\] is -1"):
        canonical_counts(np.asfortranarray(expected))


FAULTS = [
    (-1.0, r"Negative values in data: X\[12, 3\] is -1.0.* CountVectorizer"),
    (0.5, r"X\[12, 3\] is 0.5, which is not a whole number.* CountVectorizer .* round X"),
    (np.nan, r"X\[12, 3\] is NaN.*numpy.nan_to_num"),
    (np.inf, r"X\[12, 3\] is inf, infinity.*replace"),
    (-np.inf, r"X\[12, 3\] is -inf, infinity.*replace"),
    (2.0**31, r"X\[12, 3\] is 2147483648.0, more than .*\(2147483647\).*Divide"),
]


@pytest.mark.parametrize(("value", "message"), FAULTS)
@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csr_matrix])
def test_no_count_is_refused_with_place_value_and_remedy(value, message, form):
    matrix = np.ones((4, 5))
    matrix[2, 3] = value
    with pytest.raises(ValueError, match=message):
        canonical_counts(form(matrix), first_row=10)


@pytest.mark.parametrize("dtype", ["i8", "u8", "u4"])
def test_large_integers_are_refused(dtype):
    matrix = np.zeros((1, 2), dtype)
    matrix[0, 1] = 2**31 - 1
    assert canonical_counts(matrix).data.tolist() == [2**31 - 1]
    matrix[0, 1] += 1
    with pytest.raises(ValueError, match=r"X\[0, 1\] is 2147483648, more than"):
        canonical_counts(matrix)


def test_faults_are_values_until_raised():
    found = read_counts(np.array([[1, 1], [-2, -3]]))
    assert found == Fault("negative", -2, 1, 0)


def test_too_many_columns_for_an_index_are_refused():
    with pytest.raises(ValueError, match=r"2147483648 columns.*hash"):
        canonical_counts(sparse.csr_array((1, 2**31), dtype=np.int64))


def test_a_cut_piece_is_copied_on_a_cluster_and_a_whole_one_is_not():
    counts = canonical_counts(np.arange(12).reshape(4, 3))
    whole, part = copy_rows([slice(0, 4), slice(1, 3)], counts, counts)
    assert whole is counts
    [view] = take_rows([slice(1, 3)], counts)
    for one, other, full in zip(part[:3], view[:3], counts[:3], strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.shares_memory(one, full)
        assert not one.flags.writeable


@given(matrices)
def test_totals(expected):
    counts = canonical_counts(expected)
    np.testing.assert_array_equal(token_counts(counts)[0], expected.sum(axis=1))
    np.testing.assert_array_equal(token_counts(counts)[1], expected.sum(axis=0))


@given(matrices, st.data())
def test_rows_are_taken_as_views(expected, data):
    first = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(first, len(expected)))
    counts = canonical_counts(expected)
    taken, rest = take_rows([slice(first, stop), slice(stop, len(expected))], counts, counts)
    assert_canonical(taken, expected[first:stop])
    assert_canonical(rest, expected[stop:])
    assert not taken.data.size or np.shares_memory(taken.data, counts.data)


def test_stored_zeros_are_left_out_and_the_rest_keeps_its_values():
    matrix = sparse.csr_array((np.array([3, 0, 5, 0, 7]), np.array([0, 1, 2, 0, 2]), np.array([0, 3, 5])), shape=(2, 3))
    counts = canonical_counts(matrix)
    assert (counts.indptr.tolist(), counts.indices.tolist(), counts.data.tolist()) == ([0, 2, 3], [0, 2, 2], [3, 5, 7])


def test_tokens_of_words_are_added_up_beyond_the_bits_of_a_partition():
    counts = np.array([[200, 0], [200, 1], [60_000, 0], [60_000, 0]])
    with_parts = da.from_array(counts, chunks=(1, 2))
    corpus = open_corpus(with_parts, DistributedLDA(2), reset=True)
    assert corpus.word_totals.dtype == np.int64
    assert corpus.word_totals.tolist() == counts.sum(axis=0).tolist()
    corpus.close()
