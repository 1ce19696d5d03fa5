"""Word counts in one canonical form, made from any matrix in one pass and a check.

Canonical counts are sparse rows with ascending columns, each column once, and counts from 1 to 2³¹
- 1.  What they mean does not depend on the format, the dtype or the chunks of the input, so neither
does anything computed from them.

A worker returns the first entry that is not a count as a `Fault`, and the client raises the error
for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.typing import AnySigned, Array, Integers, Integers32, IntPair
from schmp_estimators.core.values import freeze, offsets_of, own

logger = logging.getLogger(__name__)

#: The largest count: it must fit in 32 bits.
LARGEST = int(np.iinfo(np.int32).max)
#: Bytes of dense rows that are converted at a time, so that temporary arrays stay small.
_DENSE_GROUP = 1 << 24
#: Entries that are checked or added at a time.
AT_ONCE = 1 << 20


#: Documents that are hashed at a time: enough for NumPy to be fast, few enough to need little
#: memory.
_HASHED_AT_ONCE = 1 << 12


class Counts(NamedTuple):
    """Canonical counts of consecutive documents, in the layout and with the names of a CSR array.

    The arrays are read-only, and may be those of the caller.
    """

    #: (n_docs + 1,)
    indptr: Integers
    #: (n_entries,) columns, ascending in each row.
    indices: Integers32
    #: (n_entries,) positive.
    data: Integers32
    n_features: int


class Columns(NamedTuple):
    """The columns of a model that those of an input have, by their names."""

    #: (n_columns,) column of the model, -1 for a word that it does not know.
    of_input: Integers32
    #: Columns of the model.
    n_features: int


def read_counts(matrix: Any, columns: Columns | None = None) -> Counts | Fault:
    """Return the canonical counts of a CSR or dense array, or of a matrix, or the first fault.

    Index arrays have been checked before.  Arrays that are canonical already are not copied, and
    the caller's arrays are never written to.  With `columns`, the counts are in those of the model.
    """
    n_columns = matrix.shape[1]
    if n_columns > LARGEST:
        return Fault("wide", n_columns, -1, -1)
    found = _read_sparse(matrix) if sparse.issparse(matrix) else _read_dense(matrix)
    if columns is None or isinstance(found, Fault):
        return found
    if n_columns != len(columns.of_input):
        raise ValueError(
            f"X has {n_columns} columns, but feature_names has {len(columns.of_input)} names; give "
            "one for each"
        )
    return _in_columns(found, columns)


def _in_columns(counts: Counts, columns: Columns) -> Counts:
    """Return counts in the columns of a model, and say how many tokens it does not know."""
    column = columns.of_input[counts.indices]
    known = column >= 0
    ptr = offsets_of(known)[counts.indptr]
    shape = len(counts.indptr) - 1, columns.n_features
    found = sparse.csr_array((counts.data[known], column[known], ptr), shape=shape)
    found.sort_indices()
    if n_unknown := int(counts.data[~known].sum(dtype=np.int64)):
        n_tokens = int(counts.data.sum(dtype=np.int64))
        logger.warning(
            "%d of %d tokens are words that the model does not know", n_unknown, n_tokens
        )
    return _counts(found.indptr, found.indices, found.data, columns.n_features)


def canonical_counts(matrix: Any, columns: Columns | None = None) -> Counts:
    """Return the canonical counts of a CSR array or matrix, or of a dense array.

    Parameters
    ----------
    matrix : CSR array, CSR matrix or ndarray of shape (n_docs, n_features)
        Whole, non-negative, finite numbers of any real dtype.
    columns : Columns, optional
        Where its columns are in the model.

    Raises
    ------
    ValueError
        With the place, the value and the remedy, if an entry is no count.
    """
    found = read_counts(matrix, columns)
    if isinstance(found, Fault):
        raise_fault(found)
    return found


def token_counts(counts: Counts) -> tuple[Integers, AnySigned]:
    """Return the number of tokens of each document, and of each word, as `count_words` does."""
    return sum_rows(counts.indptr, counts.data), count_words([counts], counts.n_features)


def count_words(pieces: Sequence[Counts], n_words: int) -> AnySigned:
    """Return how many tokens each column has in consecutive documents.

    No other array over all words exists at that time.  The result is int32 if the number of all
    tokens fits.
    """
    n_tokens = sum([int(piece.data.sum(dtype=np.int64)) for piece in pieces])
    total: AnySigned = np.zeros(n_words, np.int32 if n_tokens <= LARGEST else np.int64)
    for piece in pieces:
        add_at(total, piece.indices, piece.data)
    return total


def sum_rows(ptr: Integers, values: Array) -> Array:
    """Return the sum of the values of each row, as int64 or float64."""
    total: Array = np.zeros(len(ptr) - 1, np.int64 if values.dtype.kind == "i" else np.float64)
    filled = np.flatnonzero(ptr[1:] > ptr[:-1])
    if len(filled):
        total[filled] = np.add.reduceat(values[: ptr[-1]], ptr[filled], dtype=total.dtype)
    return total


def count_values(values: Array, size: int) -> Integers:
    """Return how often each number below `size` is among the values."""
    total: Integers = np.zeros(size, np.int64)
    for first in range(0, len(values), AT_ONCE):
        total += np.bincount(values[first : first + AT_ONCE], minlength=size)
    return total


def add_at(total: Array, index: Array, values: Array) -> None:
    """Add values to the elements of `total` that `index` names, some of them several times."""
    for first in range(0, len(index), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        np.add.at(total, index[some].astype(np.intp), values[some].astype(total.dtype))


def take_rows(rows: Sequence[slice], *pieces: Counts) -> list[Counts]:
    """Return the given rows of each piece, as views."""
    return [_slice(piece, cut) for piece, cut in zip(pieces, rows, strict=True)]


def copy_rows(rows: Sequence[slice], *pieces: Counts) -> list[Counts]:
    """Return the same rows, with copies of those that are only part of a piece.

    So the piece can be released.
    """
    taken = zip(take_rows(rows, *pieces), pieces, strict=True)
    return [one if one is piece else freeze(own(one)) for one, piece in taken]


def _slice(piece: Counts, rows: slice) -> Counts:
    ptr = piece.indptr[rows.start : rows.stop + 1]
    if len(ptr) == len(piece.indptr):
        return piece
    entries = slice(ptr[0], ptr[-1])
    return _counts(ptr - ptr[0], piece.indices[entries], piece.data[entries], piece.n_features)


def _counts(ptr: Array, column: Array, value: Array, n_features: int) -> Counts:
    """Return read-only counts of the declared dtypes.

    Kernels are compiled for one kind of argument.
    """
    arrays = np.ascontiguousarray(ptr, np.int64), np.ascontiguousarray(column, np.int32)
    return freeze(Counts(*arrays, np.ascontiguousarray(value, np.int32), int(n_features)))


def _plain(values: Array) -> Array:
    """Return the same numbers in a dtype that kernels know, read-only."""
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    elif values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    return freeze(np.ascontiguousarray(values, values.dtype.newbyteorder("=")))


def _read_sparse(matrix: Any) -> Counts | Fault:
    n_columns = matrix.shape[1]
    n = int(matrix.indptr[-1])
    ptr, column = freeze(
        (np.ascontiguousarray(matrix.indptr, np.int64), np.ascontiguousarray(matrix.indices[:n]))
    )
    value = _plain(matrix.data[:n])
    if not _ascend(ptr, column):
        return _read_sparse(_summed(matrix))
    kept, bad = _inspect(value)
    if bad >= 0:
        row = int(np.searchsorted(ptr, bad, side="right")) - 1
        return fault_of(value[bad], row, int(column[bad]))
    if kept == n:
        return _counts(ptr, column, value, n_columns)
    is_kept = value != 0
    ends = np.cumsum(sum_rows(ptr, is_kept.view(np.int8)))
    return _counts(np.append(0, ends), column[is_kept], value[is_kept], n_columns)


def _ascend(ptr: Integers, column: Array) -> bool:
    """Return whether columns ascend in every row.

    Entries whose column is not above the one before are counted: there must be none but at the
    beginnings of rows.
    """
    begins = np.unique(ptr[(ptr > 0) & (ptr < len(column))])
    n_falls = np.count_nonzero(column[begins] <= column[begins - 1])
    for first in range(0, len(column) - 1, AT_ONCE):
        some = column[first : first + AT_ONCE + 1]
        n_falls -= np.count_nonzero(some[1:] <= some[:-1])
    return bool(n_falls == 0)


def _inspect(values: Array) -> IntPair:
    """Return how many values are not zero, and the place of the first non-count, or -1."""
    kept = 0
    for first in range(0, len(values), AT_ONCE):
        some = values[first : first + AT_ONCE]
        fits = (some >= 0) & (some <= LARGEST)
        if values.dtype.kind == "f":
            fits &= some == np.floor(some)
        if not fits.all():
            return kept, first + int(np.argmin(fits))
        kept += int(np.count_nonzero(some))
    return kept, -1


def _summed(matrix: Any) -> Any:
    """Return a copy with ascending columns and each column once.

    Small integers must not overflow in the sums.
    """
    dtype = np.bool_ if matrix.dtype.kind == "b" else np.float64
    parts = matrix.data.astype(dtype), matrix.indices.copy(), matrix.indptr.copy()
    copy = sparse.csr_array(parts, shape=matrix.shape)
    copy.sum_duplicates()
    return copy


def _read_dense(matrix: Array) -> Counts | Fault:
    n_rows, n_columns = matrix.shape
    parts = [_counts(np.zeros(1), np.zeros(0), np.zeros(0), n_columns)]
    step = max(1, _DENSE_GROUP // max(1, n_columns * matrix.itemsize))
    for first in range(0, n_rows, step):
        found = _read_sparse(_rows_of(_plain(matrix[first : first + step])))
        if isinstance(found, Fault):
            return found._replace(row=found.row + first)
        parts.append(found)
    ptr = offsets_of(np.concatenate([np.diff(part.indptr) for part in parts]))
    column, value = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    return _counts(ptr, column, value, n_columns)


def _rows_of(matrix: Array) -> Any:
    """Return the entries that are not zero.

    SciPy takes three times as long to find their rows and columns.
    """
    n_rows, n_columns = matrix.shape
    at = np.flatnonzero(matrix != 0)
    ptr = np.searchsorted(at, n_columns * np.arange(n_rows + 1))
    return sparse.csr_array((matrix.ravel()[at], at % max(n_columns, 1), ptr), shape=matrix.shape)


def hash_documents(counts: Counts) -> NDArray[np.uint64]:
    """Return a number for each document that follows from its words, whatever chunk it is in."""
    hashes = np.zeros(len(counts.indptr) - 1, np.uint64)
    for first in range(0, len(hashes), _HASHED_AT_ONCE):
        ptr = counts.indptr[first : first + _HASHED_AT_ONCE + 1]
        entries = slice(ptr[0], ptr[-1])
        mixed = (counts.indices[entries].astype(np.uint64) << np.uint64(32)) | counts.data[
            entries
        ].astype(np.uint64)
        for shift, factor in (
            (30, 0xBF58476D1CE4E5B9),
            (27, 0x94D049BB133111EB),
        ):  # splitmix64's finalizer
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        sums = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)]
        )
        hashes[first : first + len(ptr) - 1] = np.diff(sums[ptr - ptr[0]])
    return hashes


_REMEDIES = {
    "negative": "Negative values in data: X[{row}, {column}] is {value}. Counts are whole "
    "numbers from 0 to {largest}: pass raw counts, for example those of CountVectorizer.",
    "nan": "X[{row}, {column}] is NaN. Counts are whole numbers: replace missing values first, "
    "for example with numpy.nan_to_num(X); in a sparse X that is numpy.nan_to_num(X.data).",
    "infinite": "X[{row}, {column}] is {value}, infinity. Counts are whole numbers: replace "
    "infinite values first.",
    "large": "X[{row}, {column}] is {value}, more than a 32-bit count can hold ({largest}). "
    "Divide the document into several rows, or scale the counts down.",
    "fractional": "X[{row}, {column}] is {value}, which is not a whole number. Topic models "
    "need counts: pass raw counts, for example those of CountVectorizer rather than of "
    "TfidfVectorizer, or round X first.",
    "wide": "X has {value} columns, more than a 32-bit index can hold ({largest}). "
    "Drop unused columns, or hash the words into fewer columns.",
}


class Fault(NamedTuple):
    """The first entry of a piece that is not a count.

    What is wrong, its value, its row in the piece and its column.
    """

    kind: str
    value: Any
    row: int
    column: int


def fault_of(value: Any, row: int, column: int) -> Fault:
    """Return the fault of a value that is not a count."""
    x = value.item()
    kinds = {
        "nan": math.isnan(x),
        "infinite": math.isinf(x),
        "negative": x < 0,
        "large": x > LARGEST,
        "fractional": True,
    }
    return Fault(next(kind for kind, holds in kinds.items() if holds), x, row, column)


def raise_fault(fault: Fault) -> NoReturn:
    """Raise the error for a fault."""
    text = _REMEDIES[fault.kind]
    raise ValueError(
        text.format(row=fault.row, column=fault.column, value=fault.value, largest=LARGEST)
    )


def changed() -> ValueError:
    """Return the error for an input whose counts differ when it is read again."""
    return ValueError(
        "X has changed while it was read: a second look at its documents found other counts than "
        "the first. With spill, X is read several times: write it to a file that stays, or make "
        "its chunks by functions without chance."
    )
