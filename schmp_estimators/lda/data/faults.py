"""What can be wrong with counts, and what to do about it: a value while on the cluster, an error where the user is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn

from schmp_estimators.lda.kernels.counts import LARGEST

_REMEDIES = {
    "negative": "Negative values in data: X[{row}, {column}] is {value}. Counts are whole numbers from 0 to {largest}: "
    "pass raw counts, for example those of CountVectorizer.",
    "nan": "X[{row}, {column}] is NaN. Counts are whole numbers: replace missing values first, "
    "for example with numpy.nan_to_num(X).",
    "infinite": "X[{row}, {column}] is {value}, infinity. Counts are whole numbers: replace infinite values first.",
    "large": "X[{row}, {column}] is {value}, more than a 32-bit count can hold ({largest}). "
    "Divide the document into several rows, or scale the counts down.",
    "fractional": "X[{row}, {column}] is {value}, which is not a whole number. Topic models need counts: "
    "pass raw counts, for example those of CountVectorizer rather than of TfidfVectorizer, or round X first.",
    "wide": "X has {value} columns, more than a 32-bit index can hold ({largest}). "
    "Drop unused columns, or hash the words into fewer columns.",
}


class Fault(NamedTuple):
    """The first entry of a piece that is no count: its kind, its value, its row in the piece and its column."""

    kind: str
    value: Any
    row: int
    column: int


def fault_of(value: Any, row: int, column: int) -> Fault:
    """Say what is wrong with a value that is no count."""
    x = value.item()
    if math.isnan(x):
        kind = "nan"
    elif math.isinf(x):
        kind = "infinite"
    elif x < 0:
        kind = "negative"
    else:
        kind = "large" if x > LARGEST else "fractional"
    return Fault(kind, x, row, column)


def raise_fault(fault: Fault, first_row: int = 0) -> NoReturn:
    """Raise the error for a fault in a piece whose first row has the number `first_row` in X."""
    text = _REMEDIES[fault.kind]
    row = fault.row + first_row
    raise ValueError(text.format(row=row, column=fault.column, value=fault.value, largest=LARGEST))


def changed() -> ValueError:
    """Return what to raise where a second look at the input has found something else than the first."""
    return ValueError(
        "X has changed while it was read: a second look at its documents found other counts than the first. With "
        "spill, X is read several times: write it to a file that stays, or make its chunks by functions without chance."
    )
