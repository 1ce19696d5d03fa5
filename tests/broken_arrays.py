"""Sparse arrays whose index arrays do not fit their shape, made from sound ones in place."""

import numpy as np
from scipy import sparse

COMPRESSED = "csr", "csc", "bsr"


def minor(X):
    """Return how many indices there are: columns, rows or columns of blocks."""
    return (
        X.shape[0]
        if X.format == "csc"
        else X.shape[1] // X.data.shape[-1]
        if X.format == "bsr"
        else X.shape[1]
    )


def set_at(name, at, value):
    """Return a break that puts a number, or what a function of X says, into an array."""

    def change(X):
        array = getattr(X, name).copy()
        array[at] = value(X) if callable(value) else value
        setattr(X, name, array)

    return change


def cut(name, stop):
    return lambda X: setattr(X, name, getattr(X, name)[:stop])


def convert(name, dtype):
    return lambda X: setattr(X, name, getattr(X, name).astype(dtype))


def set_coordinate(axis, value):
    def change(X):
        coords = [index.copy() for index in X.coords]
        coords[axis][-1] = value(X) if callable(value) else value
        X.coords = tuple(coords)

    return change


def set_column(value):
    def change(X):
        X.rows[np.flatnonzero([len(row) for row in X.rows])[0]][-1] = (
            value(X) if callable(value) else value
        )

    return change


def set_key(key):
    return lambda X: X._dict.__setitem__(key, 1)


#: What is broken: the formats, and a function that does it.
BREAKS = {
    "index too large": (COMPRESSED, set_at("indices", -1, minor)),
    "index huge": (COMPRESSED, set_at("indices", 0, 2**31 - 1)),
    "index -1": (COMPRESSED, set_at("indices", -1, -1)),
    "indptr falls": (COMPRESSED, set_at("indptr", 1, lambda X: X.indptr[-1])),
    "indptr starts late": (COMPRESSED, set_at("indptr", 0, 1)),
    "indptr ends late": (COMPRESSED, set_at("indptr", -1, lambda X: X.indptr[-1] + 1)),
    "indptr short": (COMPRESSED, cut("indptr", -1)),
    "indptr long": (COMPRESSED, lambda X: setattr(X, "indptr", np.append(X.indptr, X.indptr[-1]))),
    "data short": (COMPRESSED, cut("data", -1)),
    "indices float": (COMPRESSED, convert("indices", float)),
    "indptr float": (COMPRESSED, convert("indptr", float)),
    "indices in a column": (COMPRESSED, lambda X: setattr(X, "indices", X.indices[:, None])),
    "blocks of other shape": (
        ("bsr",),
        lambda X: setattr(X, "data", np.ones((len(X.indices), 5, 4))),
    ),
    "row too large": (("coo",), set_coordinate(0, lambda X: X.shape[0])),
    "column too large": (("coo",), set_coordinate(1, lambda X: X.shape[1])),
    "row -1": (("coo",), set_coordinate(0, -1)),
    "values short": (("coo",), cut("data", -1)),
    "coordinates float": (
        ("coo",),
        lambda X: setattr(X, "coords", tuple(index.astype(float) for index in X.coords)),
    ),
    "one coordinate": (("coo",), lambda X: setattr(X, "coords", X.coords[:1])),
    "list: column too large": (("lil",), set_column(lambda X: X.shape[1])),
    "list: column -1": (("lil",), set_column(-1)),
    "list: column 0.5": (("lil",), set_column(0.5)),
    "list: values missing": (
        ("lil",),
        lambda X: X.data[0].clear() if X.data[0] else X.data[0].append(1),
    ),
    "list: row missing": (("lil",), lambda X: (cut("rows", -1)(X), cut("data", -1)(X))),
    "key: row too large": (("dok",), set_key((10**6, 0))),
    "key: column -1": (("dok",), set_key((0, -1))),
    "key: three numbers": (("dok",), set_key((0, 0, 0))),
    "key: text": (("dok",), set_key(("a", "b"))),
    "offset missing": (("dia",), cut("offsets", -1)),
    "offset twice": (("dia",), set_at("offsets", 0, lambda X: X.offsets[-1])),
    "offset huge": (("dia",), lambda X: setattr(X, "offsets", X.offsets.astype(np.int64) + 2**40)),
}


def broken(values, form, how, container="array", long=False):
    """Return a sparse array or matrix of the values, and then break it."""
    X = getattr(sparse, f"{form}_{container}")(values)
    if form == "bsr":
        X = getattr(sparse, f"bsr_{container}")(values, blocksize=(1, 1))
    for name in ("indices", "indptr", "offsets") if long else ():
        if hasattr(X, name):
            setattr(X, name, getattr(X, name).astype(np.int64))
    BREAKS[how][1](X)
    return X
