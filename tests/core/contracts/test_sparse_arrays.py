"""Sparse input whose arrays do not fit its shape is refused.

All other forms of the same numbers stay the same.
"""

from itertools import product

import numpy as np
import pytest
from broken_arrays import BREAKS, broken
from dask.sizeof import sizeof
from scipy import sparse

from schmp_estimators.core.inputs.sparse_arrays import check_sparse
from schmp_estimators.core.inputs.validation import read_chunk

VALUES = np.random.default_rng(0).integers(1, 9, (6, 7)) * (
    np.random.default_rng(1).random((6, 7)) < 0.7
)


@pytest.mark.parametrize("how", BREAKS)
def test_arrays_that_do_not_fit_are_refused(how):
    for form, container, long in product(BREAKS[how][0], ("array", "matrix"), (False, True)):
        X = broken(VALUES, form, how, container, long)
        with pytest.raises(ValueError, match=r"^X .* shape \(6, 7\). Build the sparse array anew"):
            check_sparse(X)
        with pytest.raises(ValueError, match=r"^exclude has "):
            check_sparse(X, "exclude")


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


@pytest.mark.parametrize(
    ("form", "how"), [("csr", "index huge"), ("csc", "indptr falls"), ("coo", "row -1")]
)
def test_chunks_are_checked_before_they_are_converted(form, how):
    with pytest.raises(ValueError, match="Build the sparse array anew"):
        read_chunk(broken(VALUES, form, how))


def test_a_csr_array_weighs_its_arrays():
    matrix = sparse.random_array((100, 50), density=0.1, format="csr", rng=0)
    arrays = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    assert arrays <= sizeof(matrix) <= arrays + 200
