"""Checks of sparse input before it is converted.

Its arrays must fit its shape, and sums of its entries their dtype.

SciPy's conversions and products, and our kernels, do not check index arrays: an index beyond the
shape ends the process, or changes other memory.  So all sparse input is checked here, once.
"""

from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from schmp_estimators.core.typing import Array


def check_sparse(X: Any, name: str = "X") -> Any:
    """Return a sparse X so that SciPy converts it safely and exactly, and any other X as it is.

    The cost is one pass over the indices of the formats CSR, CSC, BSR and COO.  LIL and DOK, which
    consist of Python objects, are converted to another format, COO integers are widened, and unused
    space for entries is cut off.

    Parameters
    ----------
    X : object
        Input of any kind; sparse arrays and matrices of all formats are checked.
    name : str, default="X"
        Its name for the user.

    Returns
    -------
    object
        X, or another container of the same values.

    Raises
    ------
    ValueError
        If its arrays do not fit its shape or each other.
    """
    if not sparse.issparse(X):
        return X
    if len(X.shape) != 2:
        raise ValueError(
            f"Expected 2D input, got a sparse array of shape {X.shape} for {name}. Reshape it "
            f"with {name}.reshape(-1, 1), if it has one feature, or with {name}.reshape(1, -1), "
            "if it is one sample."
        )
    fits = {"coo": _fits_coordinates, "dia": _fits_diagonals, "lil": _fits_lists, "dok": _fits_keys}
    if not fits.get(X.format, _fits_compressed)(X):
        finds = f"; {name}.check_format() says what is wrong" if hasattr(X, "check_format") else ""
        raise ValueError(
            f"{name} has indices or values that do not fit its shape {X.shape}. Build the sparse "
            f"array anew{finds}."
        )
    match X.format:
        case "csr" | "csc" | "bsr":
            return _prune(X)
        case "coo":
            return _widen(X)
        case "lil":
            return X.tocsr()
        case "dok":
            return X.tocoo()
    return X


def _fits_compressed(X: Any) -> bool:
    """Return whether the arrays of CSR, CSC or BSR fit.

    Checked are their lengths, the offsets, then every index.
    """
    if np.ndim(X.data) != (3 if X.format == "bsr" else 1) or not _are_integers(X.indptr, X.indices):
        return False
    block = X.data.shape[1:] or (1, 1)
    if 0 in block or any(np.mod(X.shape, block)):
        return False
    n_major, n_minor = np.floor_divide(X.shape, block)[:: -1 if X.format == "csc" else 1]
    offsets = X.indptr
    n_entries = X.indices.size
    rises = offsets.size == n_major + 1 and offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all()
    fits = rises and offsets[-1] <= n_entries == len(X.data)
    return bool(fits) and _are_below(X.indices[: offsets[-1]], n_minor)


def _prune(X: Any) -> Any:
    """Return X without values beyond the last offset of `indptr`, which not all code expects."""
    used = X.indptr[-1]
    if used == X.indices.size:
        return X
    return type(X)((X.data[:used], X.indices[:used], X.indptr), shape=X.shape)


def _fits_coordinates(X: Any) -> bool:
    if len(X.coords) != 2 or not _are_integers(*X.coords) or np.ndim(X.data) != 1:
        return False
    return len({len(one) for one in (*X.coords, X.data)}) == 1 and all(
        map(_are_below, X.coords, X.shape)
    )


def _fits_diagonals(X: Any) -> bool:
    offsets = X.offsets
    if not _are_integers(offsets) or np.ndim(X.data) != 2 or len(offsets) != len(X.data):
        return False
    largest = abs(offsets.astype(float)).max(initial=0)
    return len(np.unique(offsets)) == len(offsets) and bool(largest < 1 << 31)


def _fits_lists(X: Any) -> bool:
    for lists in (X.rows, X.data):
        if np.shape(lists) != X.shape[:1] or not all(isinstance(row, list) for row in lists):
            return False
    columns = np.array(list(chain.from_iterable(X.rows)) or np.empty(0, int))
    is_even = [*map(len, X.rows)] == [*map(len, X.data)]
    return is_even and columns.dtype.kind in "iu" and _are_below(columns, X.shape[1])


def _fits_keys(X: Any) -> bool:
    keys = list(X.keys())
    are_pairs = all(
        isinstance(key, tuple) and len(key) == 2 and all(map(_is_integer, key)) for key in keys
    )
    return are_pairs and all(
        0 <= row < X.shape[0] and 0 <= column < X.shape[1] for row, column in keys
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral)


def _are_integers(*arrays: Any) -> bool:
    return all(
        isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu"
        for array in arrays
    )


def _are_below(index: Array, limit: int) -> bool:
    """Return whether all indices are from 0 to `limit` - 1."""
    positive = index.view(
        index.dtype.str.replace("i", "u")
    )  # a negative index becomes larger than any limit
    return not index.size or bool(positive.max() < limit)


def _widen(X: Any) -> Any:
    """Widen integers that could overflow when SciPy converts from COO.

    It adds up duplicates in their own dtype.
    """
    if X.dtype.kind not in "iu" or not X.data.size:
        return X
    if X.dtype.itemsize < 8:
        return X.astype(np.int64)
    largest = max(float(X.data.max()), -float(X.data.min()))
    return X.astype(np.float64) if largest * X.data.size > np.iinfo(X.dtype).max else X
