"""Sparse input whose arrays do not fit its shape is refused; all other forms of the same numbers stay the same."""

from itertools import product

import numpy as np
import pytest
from broken_arrays import BREAKS, broken
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from schmp_estimators.core.inputs.sparse_arrays import check_sparse
from schmp_estimators.core.inputs.validation import read_chunk

VALUES = np.random.default_rng(0).integers(1, 9, (6, 7)) * (np.random.default_rng(1).random((6, 7)) < 0.7)
FORMATS = "csr", "csc", "bsr", "coo", "lil", "dok", "dia"


@pytest.mark.parametrize("how", BREAKS)
def test_arrays_that_do_not_fit_are_refused(how):
    for form, container, long in product(BREAKS[how][0], ("array", "matrix"), (False, True)):
        X = broken(VALUES, form, how, container, long)
        with pytest.raises(ValueError, match=r"^X .* shape \(6, 7\). Build the sparse array anew"):
            check_sparse(X)
        with pytest.raises(ValueError, match=r"^exclude has "):
            check_sparse(X, "exclude")


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=6), elements=st.integers(0, 3)),
    st.sampled_from(FORMATS),
    st.sampled_from(["array", "matrix"]),
    st.sampled_from([np.int32, np.int64, np.uint32, ">i4"]),
    st.sampled_from(["?", "u1", "i4", "u8", "f4", "f8"]),
)
def test_sound_arrays_pass_unchanged_whatever_their_form(values, form, container, index, dtype):
    values = values.astype(dtype)
    X = getattr(sparse, f"{form}_{container}")(values)
    for name in ("indices", "indptr", "offsets"):
        if hasattr(X, name):
            setattr(X, name, getattr(X, name).astype(index))
            getattr(X, name).flags.writeable = False
    checked = check_sparse(X)
    assert checked.shape == values.shape
    np.testing.assert_array_equal(checked.toarray(), values)
    if form in ("csr", "csc", "bsr", "dia"):
        assert checked is X


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("container", [sparse.coo_array, sparse.coo_matrix])
def test_duplicates_do_not_wrap_round(dtype, container):
    most = np.iinfo(dtype).max
    X = container((np.array([most, most, 5], dtype), ([0, 0, 0], [1, 1, 1])), shape=(1, 2))
    assert float(check_sparse(X).tocsr()[0, 1]) == pytest.approx(2 * float(most) + 5, rel=1e-15)


def test_room_for_more_entries_is_cut_off_in_a_copy():
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.bsr_array):
        X = form(VALUES)
        X.data, X.indices = np.concatenate([X.data, X.data[:3]]), np.append(X.indices, [-7, 99, 0])
        size = X.indices.size
        checked = check_sparse(X)
        np.testing.assert_array_equal(checked.toarray(), VALUES)
        assert (type(checked), checked.indices.size, X.indices.size) == (form, size - 3, size)


@pytest.mark.parametrize(("form", "how"), [("csr", "index huge"), ("csc", "indptr falls"), ("coo", "row -1")])
def test_chunks_are_checked_before_they_are_converted(form, how):
    with pytest.raises(ValueError, match="Build the sparse array anew") as caught:
        read_chunk(broken(VALUES, form, how))
    assert "start of their chunk" in caught.value.__notes__[0]


def test_a_csr_array_weighs_its_arrays():
    matrix = sparse.random_array((100, 50), density=0.1, format="csr", rng=0)
    arrays = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    assert arrays <= sizeof(matrix) <= arrays + 200
