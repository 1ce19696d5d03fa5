"""Sparse input before anything converts it: its arrays must fit its shape, and sums of its entries their dtype.

SciPy's conversions and products, and the kernels, follow index arrays wherever they point: an index beyond the shape
ends the process, or changes memory that belongs to others.  Whatever comes in is looked at here, once.
"""

from __future__ import annotations

from itertools import chain
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

_LARGEST_OFFSET = np.iinfo(np.int32).max


def check_sparse(X: Any, name: str = "X") -> Any:
    """Return an X that is not sparse as it is, and a sparse one so that SciPy converts it safely and exactly.

    The cost is one pass over the indices of the formats CSR, CSC, BSR and COO.  LIL and DOK, made of Python's objects,
    come back in another format; COO integers come back wider; room for entries that are not there is cut off.

    Parameters
    ----------
    X : object
        Input of any kind; sparse arrays and matrices of all formats are looked at.
    name : str, default="X"
        What the user calls it.

    Returns
    -------
    object
        X, or another container of the same values.

    Raises
    ------
    ValueError
        If arrays do not fit the shape or each other; the message says where.
    """
    if not sparse.issparse(X):
        return X
    if len(X.shape) != 2:
        raise ValueError(
            f"Expected 2D input, got a sparse array of shape {X.shape} for {name}. Reshape it with "
            f"{name}.reshape(-1, 1), if it has one feature, or with {name}.reshape(1, -1), if it is one sample."
        )
    if X.format in ("csr", "csc", "bsr"):
        _check_compressed(X, name)
        return _prune(X)
    if X.format == "coo":
        _check_coordinates(X, name)
        return _widen(X)
    if X.format == "lil":
        return _from_lists(X, name)
    if X.format == "dok":
        return _from_keys(X, name)
    _check_diagonals(X, name)
    return X


def _refuse(X: Any, name: str, what: str) -> NoReturn:
    finds = f"; {name}.check_format() finds such faults" if hasattr(X, "check_format") else ""
    raise ValueError(f"{name} {what}: its arrays do not fit its shape {X.shape}. Build the sparse array anew{finds}.")


def _check_compressed(X: Any, name: str) -> None:
    """Refuse arrays of CSR, CSC or BSR that do not fit: the lengths, the offsets, then every index."""
    height, width = _blocks(X, name)
    n_major, n_minor = X.shape[0] // height, X.shape[1] // width
    major, minor = ("row", "column") if height * width == 1 else ("row of blocks", "column of blocks")
    if X.format == "csc":
        n_major, n_minor, major, minor = n_minor, n_major, minor, major
    if not _are_integers(X.indptr, X.indices):
        _refuse(X, name, "has index arrays that are not one-dimensional arrays of integers")
    if X.indptr.size != n_major + 1:
        _refuse(X, name, f"has an indptr of length {X.indptr.size}, not {n_major + 1}")
    if X.indices.size != len(X.data):
        _refuse(X, name, f"has {X.indices.size} indices for {len(X.data)} entries")
    if X.indptr[0] != 0 or (X.indptr[1:] < X.indptr[:-1]).any():
        _refuse(X, name, "has an indptr that does not start at 0 or that falls")
    if X.indptr[-1] > X.indices.size:
        _refuse(X, name, f"has an indptr that ends at {X.indptr[-1]}, after the last of {X.indices.size} entries")
    at = _first_beyond(X.indices[: X.indptr[-1]], n_minor)
    if at >= 0:
        place = int(np.searchsorted(X.indptr, at, side="right")) - 1
        _refuse(X, name, f"has an entry in {major} {place} at {minor} {X.indices[at]}, but {n_minor} {minor}s")


def _prune(X: Any) -> Any:
    """Return X without values after the last that `indptr` knows: not all code expects them."""
    used = X.indptr[-1]
    if used == X.indices.size:
        return X
    return type(X)((X.data[:used], X.indices[:used], X.indptr), shape=X.shape)


def _blocks(X: Any, name: str) -> tuple[int, int]:
    """Return the height and width of what an index stands for: a block, or a single entry."""
    dimensions = 3 if X.format == "bsr" else 1
    if not isinstance(X.data, np.ndarray) or X.data.ndim != dimensions:
        _refuse(X, name, f"has data that is not an array of {dimensions} dimensions")
    if dimensions == 1:
        return 1, 1
    height, width = X.data.shape[1:]
    if not height or not width or X.shape[0] % height or X.shape[1] % width:
        _refuse(X, name, f"has blocks of shape {height, width}")
    return height, width


def _check_coordinates(X: Any, name: str) -> None:
    if len(X.coords) != 2 or not _are_integers(*X.coords) or np.ndim(X.data) != 1:
        _refuse(X, name, "has coordinates that are not two one-dimensional arrays of integers, or data of another kind")
    lengths = [len(array) for array in (*X.coords, X.data)]
    if len(set(lengths)) != 1:
        _refuse(X, name, f"has {lengths[0]} rows, {lengths[1]} columns and {lengths[2]} values as its entries")
    for index, limit, kind in zip(X.coords, X.shape, ("row", "column"), strict=True):
        at = _first_beyond(index, limit)
        if at >= 0:
            _refuse(X, name, f"has an entry in {kind} {index[at]}, but {limit} {kind}s")


def _check_diagonals(X: Any, name: str) -> None:
    offsets = X.offsets
    if not _are_integers(offsets) or np.ndim(X.data) != 2 or len(offsets) != len(X.data):
        _refuse(X, name, "has offsets that are no integers, or not one for each row of its data")
    if len(np.unique(offsets)) != len(offsets) or abs(offsets.astype(float)).max(initial=0) > _LARGEST_OFFSET:
        _refuse(X, name, "has the offset of a diagonal twice, or offsets beyond 32 bits")


def _from_lists(X: Any, name: str) -> Any:
    """Return LIL as CSR."""
    lists = X.rows, X.data
    if any(np.shape(one) != X.shape[:1] or not all(isinstance(row, list) for row in one) for one in lists):
        _refuse(X, name, "has other lists than one for each row")
    if [len(row) for row in X.rows] != [len(row) for row in X.data]:
        _refuse(X, name, "has rows with lists of columns and of values that differ in length")
    index = np.array(list(chain.from_iterable(X.rows)) or np.empty(0, int))
    if index.dtype.kind not in "iu":
        _refuse(X, name, "has columns that are no integers, or beyond 64 bits")
    at = _first_beyond(index, X.shape[1])
    if at >= 0:
        _refuse(X, name, f"has an entry at column {index[at]}, but {X.shape[1]} columns")
    return X.tocsr()


def _from_keys(X: Any, name: str) -> Any:
    """Return DOK as COO."""
    for key in X.keys():  # noqa: SIM118  (iterating over X is iterating over its rows)
        fits = isinstance(key, tuple) and len(key) == 2 and all(isinstance(at, Integral) for at in key)
        if not fits or not (0 <= key[0] < X.shape[0] and 0 <= key[1] < X.shape[1]):
            _refuse(X, name, f"has an entry with the key {key!r}")
    return X.tocoo()


def _are_integers(*arrays: Any) -> bool:
    return all(isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu" for array in arrays)


def _first_beyond(index: NDArray[Any], limit: int) -> int:
    """Return the place of the first index that is not from 0 to `limit` - 1, or -1; one pass if there is none."""
    positive = index.view(index.dtype.str.replace("i", "u"))  # what is below zero becomes larger than any limit
    if not index.size or positive.max() < limit:
        return -1
    return int(np.argmax(positive >= limit))


def _widen(X: Any) -> Any:
    """Let integers not wrap round where SciPy's conversion from COO sums duplicates, in the dtype of the data."""
    if X.dtype.kind not in "iu" or not X.data.size:
        return X
    if X.dtype.itemsize < 8:
        return X.astype(np.int64)
    largest = max(float(X.data.max()), -float(X.data.min()))
    return X.astype(np.float64) if largest * X.data.size > np.iinfo(X.dtype).max else X
