"""The same numbers in another form: dtypes, layouts, sparse formats, frames, chunks."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
from fuzz_models import Family, draw
from scipy import sparse

FORMATS = "csr", "csc", "coo", "dok", "lil", "bsr", "dia"


class Form(NamedTuple):
    label: str
    X: Any
    #: Whether it has to be let in; if not, a clear refusal will do.
    legal: bool = True


def is_whole(X: Any) -> bool:
    return bool((np.round(X) == X).all())


def dtypes(X: Any, family: Family, rng: Any) -> Form:
    names = ["f4", "f8", "longdouble", ">f8", "O", "f2"]
    if is_whole(X) and family.name != "mf":
        names += ["i1", "i2", "i4", "i8", ">i4"] + (["u1", "u2", "u4", "u8"] if X.min() >= 0 else [])
    name = draw(rng, *names)
    return Form(f"dtype {name}", family.dense(X).astype(name))


def layouts(X: Any, family: Family, rng: Any) -> Form:
    Z = family.dense(X)
    kind = draw(rng, "columns first", "strides", "reversed", "read-only", "unaligned", "matrix", "subclass", "list")
    if kind == "columns first":
        Z = np.asfortranarray(Z)
    elif kind == "strides":
        wide = np.full((2 * Z.shape[0], 3 * Z.shape[1]), 99).astype(Z.dtype)
        wide[::2, ::3] = Z
        Z = wide[::2, ::3]
    elif kind == "reversed":
        Z = np.ascontiguousarray(Z[::-1, ::-1])[::-1, ::-1]
    elif kind == "read-only":
        Z = Z.copy()
        Z.flags.writeable = False
    elif kind == "unaligned":
        odd = np.zeros(Z.nbytes + 1, np.uint8)[1:].view(Z.dtype).reshape(Z.shape)
        odd[:] = Z
        Z = odd
    elif kind == "matrix":
        return Form("np.matrix", np.asmatrix(Z), legal=False)
    elif kind == "subclass":
        Z = Z.view(type("Sub", (np.ndarray,), {}))
    elif kind == "list":
        Z = Z.tolist()
    return Form(kind, Z)


def sparse_formats(X: Any, family: Family, rng: Any) -> Form:
    form, container = draw(rng, *FORMATS), draw(rng, "array", "matrix")
    # Blocks and diagonals store zeros, which are ratings.
    dtype = draw(rng, "f4", "f8", "longdouble", *(["i1", "u8", "i4"] if is_whole(X) and X.min() >= 0 else []))
    made = getattr(sparse, f"coo_{container}")(X.astype(dtype)).asformat(form)
    return Form(f"{form}_{container} {dtype}", made, legal=family.name != "mf" or form not in ("bsr", "dia"))


def compressed(entries: Any, shape: tuple[int, int], form: str, index: Any) -> Any:
    """Return rows, columns and values as CSR or CSC, in the order given within each row or column."""
    rows, columns, values = entries
    major, minor, n = (rows, columns, shape[0]) if form == "csr" else (columns, rows, shape[1])
    order = np.argsort(major, kind="stable")
    X = getattr(sparse, f"{form}_array")(shape, dtype=values.dtype)
    X.indptr = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=n))]).astype(index)
    X.indices, X.data = minor[order].astype(index), values[order]
    return X


def entries_apart(X: Any, family: Family, rng: Any) -> Form:
    """Entries in any order, in two parts where that means the same, with zeros stored, and long indices."""
    rows, columns = np.nonzero(X)
    values = X[rows, columns]
    label = "unsorted"
    if family.name != "mf":
        label += ", duplicates"
        half = np.floor(values / 2)
        rows, columns, values = np.tile(rows, 2), np.tile(columns, 2), np.concatenate([half, values - half])
        if draw(rng, True, False):
            label += ", zeros"
            zero = np.argwhere(X == 0).T
            rows, columns = np.append(rows, zero[0]), np.append(columns, zero[1])
            values = np.append(values, np.zeros(zero.shape[1]))
    order = rng.permutation(values.size)
    dtype = draw(rng, "f8", "f4", *(["i1", "i8"] if is_whole(values) else []))
    entries = rows[order], columns[order], values[order].astype(dtype)
    form, index = draw(rng, "coo", "csr", "csc"), draw(rng, np.int32, np.int64)
    if form == "coo":
        made: Any = sparse.coo_array((entries[2], entries[:2]), shape=X.shape)
    else:
        made = compressed(entries, X.shape, form, index)
    if form != "coo" and draw(rng, True, False):
        label += ", room for more"
        made.data, made.indices = np.append(made.data, made.data[:1]), np.append(made.indices, made.indices[:1])
    return Form(f"{form} {label} {dtype} {np.dtype(index)}", made)


def frames(X: Any, family: Family, rng: Any) -> Form:
    frame = pd.DataFrame(family.dense(X), columns=[f"c{i}" for i in range(X.shape[1])])
    kind = draw(rng, "plain", "Float64", "Int64", "category", "sparse", "pyarrow", "object", "mixed", "one name")
    if kind == "Int64" and (family.name == "mf" or not is_whole(X)):
        frame = frame.convert_dtypes(dtype_backend="numpy_nullable")
    elif kind in ("Float64", "Int64", "category", "object"):
        frame = frame.astype(kind)
    elif kind == "sparse" and family.name != "mf":
        frame = frame.astype(pd.SparseDtype(float, 0.0))
    elif kind == "pyarrow":
        frame = frame.astype("double[pyarrow]")
    elif kind == "mixed":
        frame["c0"] = frame["c0"].astype("float32")
    elif kind == "one name":
        frame.columns = ["a"] * X.shape[1]
    return Form(f"pandas {kind}", frame, legal=kind not in ("category", "one name"))


def polars_frames(X: Any, family: Family, rng: Any) -> Form:
    frame = pl.DataFrame(family.dense(X), schema=[f"c{i}" for i in range(X.shape[1])])
    kind = draw(rng, "plain", "nulls", "float32")
    if kind == "nulls" and family.name == "mf":
        frame = frame.fill_nan(None)
    elif kind == "float32":
        frame = frame.cast(pl.Float32)
    return Form(f"polars {kind}", frame)


def cuts(n: int, rng: Any) -> tuple[int, ...]:
    """Return lengths that add up to n, some of them perhaps zero."""
    inner = np.sort(rng.integers(0, n + 1, int(rng.integers(0, 4))))
    return tuple(np.diff([0, *inner, n]).tolist())


def dask_arrays(X: Any, family: Family, rng: Any) -> Form:
    Z = family.dense(X)
    n, p = X.shape
    kind = draw(rng, "irregular", "empty", "unknown", "sparse", "columns", "sparse columns")
    rows = cuts(n, rng) if kind != "empty" else (0, n, 0)
    columns = tuple(cut for cut in cuts(p, rng) if cut) if "columns" in kind else (p,)
    array = da.from_array(X if "sparse" in kind else Z, chunks=(rows, columns))
    if kind == "unknown":
        array = array[da.from_array(np.ones(n, bool), chunks=(rows,))]
    if "sparse" in kind:
        form = getattr(sparse, f"{draw(rng, 'csr', 'csc', 'coo')}_{draw(rng, 'array', 'matrix')}")
        array = array.map_blocks(form, dtype=X.dtype, meta=form((1, 1), dtype=X.dtype))
    return Form(f"dask {kind} {rows} {columns}", array)


def dask_others(X: Any, family: Family, rng: Any) -> Form:
    if draw(rng, True, False):
        frame = pd.DataFrame(family.dense(X), columns=[f"c{i}" for i in range(X.shape[1])])
        return Form("dask frame", dd.from_pandas(frame, npartitions=int(rng.integers(1, 4))))
    ends = np.cumsum(cuts(len(X), rng))
    parts = np.split(X, ends[:-1])
    makers = [draw(rng, family.dense, sparse.csr_array, sparse.coo_matrix, sparse.lil_array) for _ in parts]
    return Form(f"delayed {len(parts)}", [dask.delayed(make)(part) for make, part in zip(makers, parts, strict=True)])


FORMS = [dtypes, layouts, sparse_formats, sparse_formats, entries_apart, entries_apart, frames, polars_frames,
         dask_arrays, dask_arrays, dask_others]  # fmt: skip


def another_form(X: Any, family: Family, rng: Any) -> Form:
    return draw(rng, *FORMS)(X, family, rng)


def responses(y: Any, rng: Any) -> Any:
    """Return y in another form."""
    chunks = int(rng.integers(1, len(y) + 1))
    return draw(rng, y, y, y.tolist(), pd.Series(y, index=np.arange(len(y))[::-1]), da.from_array(y, chunks=chunks))
