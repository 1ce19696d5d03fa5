"""Canonical counts: the same for every form of the same numbers, and no other numbers are let in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from schmp_estimators.lda.data.counts import (
    Counts,
    canonical_counts,
    copy_rows,
    take_rows,
)

#: Those that other tests have kernels for, and all.
DTYPES = ["i8", "f4", "f8", "f2", "longdouble", ">i4", ">f8"]
ALL_DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "u8", *DTYPES]
matrices = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=8), elements=st.integers(0, 3)
)


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


def test_narrow_integers_do_not_overflow_when_summed():
    matrix = sparse.csr_array((2, 3), dtype=np.uint8)
    matrix.indptr, matrix.indices = np.array([0, 2, 2]), np.array([1, 1])
    matrix.data = np.array([200, 100], np.uint8)
    assert_canonical(canonical_counts(matrix), np.array([[0, 300, 0], [0, 0, 0]]))


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


def test_stored_zeros_are_left_out_and_the_rest_keeps_its_values():
    matrix = sparse.csr_array((np.array([3, 0, 5, 0, 7]), np.array([0, 1, 2, 0, 2]), np.array([0, 3, 5])), shape=(2, 3))
    counts = canonical_counts(matrix)
    assert (counts.indptr.tolist(), counts.indices.tolist(), counts.data.tolist()) == ([0, 2, 3], [0, 2, 2], [3, 5, 7])
