"""The same numbers in another form, and bad input.

Values, shapes, objects, and index arrays that do not fit.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from broken_arrays import BREAKS, broken
from fuzz_models import Family, draw
from input_cases import IN_MEMORY, ON_DASK, chunked
from scipy import sparse

#: Forms of which some numbers are not stored; those of numbers that are whole and not negative; and
#: those that store zeros, or numbers in two parts: in a matrix of ratings these are ratings, too.
STORED = re.compile("csr|csc|coo|lil|dok|bsr|dia|sparse|keys|delayed|halves|unsorted|repeated")
WHOLE = re.compile("int|>i|nullable")
OTHER_RATINGS = re.compile("bsr|dia|halves|repeated|pandas sparse|delayed")


def another_form(X: Any, family: Family, rng: Any) -> tuple[str, Any]:
    """Return what a form is called, and the same numbers in it."""
    forms = draw(rng, IN_MEMORY, IN_MEMORY, ON_DASK)
    refused = [OTHER_RATINGS] if family.name == "mf" else []
    refused += [WHOLE] if family.name == "mf" or X.min() < 0 or (np.round(X) != X).any() else []
    name = draw(rng, *(name for name in forms if not any(one.search(name) for one in refused)))
    if name == "dense":
        return "random chunks", chunked(family.dense(X), cuts(len(X), rng), cuts(X.shape[1], rng))
    return name, forms[name](X if STORED.search(name) else family.dense(X))


def cuts(n: int, rng: Any) -> tuple[int, ...]:
    """Return lengths that add up to n."""
    inner = np.unique(rng.integers(1, n, int(rng.integers(0, 4))))
    return tuple(np.diff([0, *inner, n]).tolist())


def responses(y: Any, rng: Any) -> Any:
    """Return y in another form."""
    chunks = int(rng.integers(1, len(y) + 1))
    return draw(
        rng,
        y,
        y,
        y.tolist(),
        pd.Series(y, index=np.arange(len(y))[::-1]),
        da.from_array(y, chunks=chunks),
    )


class Spoil(NamedTuple):
    label: str
    X: Any
    #: "error", or "either" where a result that obeys the laws is as good.
    expects: str


VALUES = [
    np.nan,
    np.inf,
    -np.inf,
    -1.0,
    0.5,
    1e300,
    1e-310,
    2.0**31,
    2.0**63,
    2.0**64,
    -0.0,
    1e39,
    3.4e38,
]


def bad_value(X: Any, family: Family, rng: Any) -> Spoil:
    value, form = draw(rng, *VALUES), draw(rng, "dense", "csr", "csc", "dask", "delayed")
    Z = X.astype(float)
    Z[rng.integers(len(X)), rng.integers(X.shape[1])] = value
    stored = form in ("csr", "csc")
    if family.name == "lda":
        refused = not (0 <= value < 2**31 and value == np.floor(value))
    else:  # NaN in a dense array of ratings is none
        refused = not np.isfinite(value) and (family.name != "mf" or stored or np.isinf(value))
    if stored:
        Z = getattr(sparse, f"{form}_array")(Z)
    elif form == "dask":
        Z = da.from_array(family.dense(Z), chunks=(len(X) // 2, -1))
    elif form == "delayed":
        Z = [dask.delayed(family.dense(Z))]
    else:
        Z = family.dense(Z)
    return Spoil(f"value {value} {form}", Z, "error" if refused else "either")


def bad_shape(X: Any, family: Family, rng: Any) -> Spoil:
    n, p = X.shape
    shape = draw(rng, (0, p), (n, 0), (1, p), (n, 1), (1, 1), (0, 0), (n,), (1, n, p), ())
    Z: Any = np.ones(shape)
    form = draw(rng, "dense", "csr", "dask") if len(shape) == 2 else draw(rng, "dense", "dask")
    if form == "csr":
        Z = sparse.csr_array(Z)
    if form == "dask":
        Z = da.from_array(Z, chunks=tuple(max(1, size) for size in shape))
    return Spoil(
        f"shape {shape} {form}", Z, "either" if len(shape) == 2 and min(shape) else "error"
    )


OBJECTS = {
    "complex": lambda X: X.astype(complex),
    "complex csr": lambda X: sparse.csr_array(X.astype(complex)),
    "text": lambda X: np.full(X.shape, "a"),
    "texts": lambda X: ["the cat"] * len(X),
    "bag": lambda X: db.from_sequence(["the cat"] * len(X)),
    "text series": lambda X: dd.from_pandas(pd.Series(["the cat"] * len(X)), npartitions=2),
    "dates": lambda X: np.full(X.shape, "2020-01-01", "M8[D]"),
    "records": lambda X: np.zeros(len(X), [("a", "f8"), ("b", "i4")]),
    "ragged": lambda X: [[1, 2], [1]] + [[1]] * (len(X) - 2),
    "None": lambda X: None,
    "a number": lambda X: 3,
    "a dict": lambda X: {"a": 1},
    "a generator": lambda X: (row for row in X),
    "an empty list": lambda X: [],
    "delayed": dask.delayed,
    "delayed None": lambda X: [dask.delayed(lambda: None)()],
    "delayed widths": lambda X: [dask.delayed(X), dask.delayed(X[:, 1:])],
    "a chunk that fails": lambda X: [dask.delayed(fail)()],
}


class OwnError(Exception):
    """What the user's own code raises, which is for the user to see."""


def fail() -> None:
    raise OwnError("a chunk could not be read")


def bad_object(X: Any, family: Family, rng: Any) -> Spoil:
    if draw(rng, True, True, False):
        name = draw(rng, *OBJECTS)
        # scikit-learn reads dates as numbers
        return Spoil(name, OBJECTS[name](X), "either" if name == "dates" else "error")
    Z = X.astype(object)
    Z[0, 0] = draw(rng, None, "x", [1], 1 + 2j, pd.NA, {}, 10**400)
    return Spoil(f"an entry {Z[0, 0]!r}"[:60], Z, "either")


def bad_indices(X: Any, family: Family, rng: Any) -> Spoil:
    values = np.where(X == 0, rng.random(X.shape) < 0.3, X).astype(float)
    values[:3] = 1
    half = X.shape[1] // 2
    how = draw(rng, *BREAKS)
    form = draw(rng, *BREAKS[how][0])
    place = draw(rng, "here", "here", "delayed", "chunk", "chunk of columns")
    sound = sparse.csr_array(values[:, :half] if place == "chunk of columns" else values)
    rest = values[:, half:] if place == "chunk of columns" else values
    unsound = broken(rest, form, how, draw(rng, "array", "matrix"), long=draw(rng, True, False))

    def block(_: Any, block_info: Any = None) -> Any:
        return unsound if any(block_info[0]["chunk-location"]) else sound

    n, p = X.shape
    if place == "here":
        made: Any = unsound
    elif place == "delayed":
        made = [dask.delayed(lambda: sound)(), dask.delayed(lambda: unsound)()]
    else:
        chunks = ((n, n), (p,)) if place == "chunk" else ((n,), (half, p - half))
        shape = tuple(map(sum, chunks))
        made = da.zeros(shape, chunks=chunks).map_blocks(
            block, dtype=float, meta=sparse.csr_array((1, 1))
        )
    return Spoil(f"{form}: {how}, {place}", made, "error")
