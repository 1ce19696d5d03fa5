"""Sizes of sparse data for Dask.

Dask by itself takes a gigabyte of sparse counts for a few dozen bytes.

Dask loads this module through its ``dask.sizeof`` entry point while Dask itself is being imported.
So neither this module nor the ``__init__`` modules above it may import Dask or anything that takes
long.
"""

import sys
from typing import Any


def sizeof_sparse(matrix: Any) -> int:
    """Return the bytes of a SciPy sparse array or matrix: of it, and of the arrays in it."""
    if matrix.format in ("lil", "dok"):
        # Python objects: an entry has a number, a column and two pointers, at least 100 bytes
        return sys.getsizeof(matrix) + int(matrix.nnz) * 100
    held = vars(matrix).values()
    arrays = [part for value in held for part in (value if isinstance(value, tuple) else (value,))]
    return sys.getsizeof(matrix) + sum(int(getattr(array, "nbytes", 0)) for array in arrays)


def register_sizeof(sizeof: Any) -> None:
    """Register `sizeof_sparse` for SciPy's sparse arrays and matrices.

    That is done when the size of one of them is first needed.

    Parameters
    ----------
    sizeof : dask.utils.Dispatch
        The dispatcher ``dask.sizeof.sizeof``.  A second registration does no harm.
    """

    # It takes the place of Dask's own rule, which knows matrices only.
    @sizeof.register_lazy("scipy")  # type: ignore[untyped-decorator]
    def register_scipy() -> None:
        # SciPy is loaded by now: an object of it is being weighed.
        from scipy import sparse  # noqa: PLC0415

        sizeof.register((sparse.sparray, sparse.spmatrix), sizeof_sparse)
