"""Word counts in many forms: the inputs of the tests of inputs."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy import sparse

FORMATS = [
    f"{name}_{kind}"
    for name in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
    for kind in ("array", "matrix")
]


def long_indices(matrix):
    matrix.indptr, matrix.indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return matrix


def in_halves(X):
    """Entries out of order, each count in two parts, zeros stored."""
    rows, columns = np.indices(X.shape).reshape(2, -1)[:, ::-1]
    flat = X[rows, columns]
    parts = np.concatenate([flat // 2, flat - flat // 2])
    return sparse.coo_array((parts, (np.tile(rows, 2), np.tile(columns, 2))), shape=X.shape)


def repeated(X):
    """A CSR array that nobody may write into, in which each entry stands twice, perhaps as zero."""
    matrix = sparse.csr_array(X)
    matrix.data = np.stack([matrix.data // 2, matrix.data - matrix.data // 2], axis=1).ravel()
    matrix.indices, matrix.indptr = np.repeat(matrix.indices, 2), 2 * matrix.indptr
    return read_only(matrix)


def unsorted(X):
    matrix = sparse.csr_array(X)
    for first, last in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        for part in (matrix.indices, matrix.data):
            part[first:last] = part[first:last][::-1].copy()
    matrix.has_sorted_indices = False
    return matrix


def read_only(matrix):
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


DTYPES = "int8", "uint16", "int64", "float16", "float32", "float64", "longdouble", ">i4", ">f8", "O"
#: Makers of the same counts in other forms.
IN_MEMORY = {
    **{dtype: lambda X, dtype=dtype: X.astype(dtype) for dtype in DTYPES},
    "columns first": np.asfortranarray,
    "nothing masked": lambda X: np.ma.masked_equal(X, 10**6),
    "every other": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "lists": np.ndarray.tolist,
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "matrix in halves": in_halves,
    "unsorted": unsorted,
    "repeated": repeated,
    "read-only sparse": lambda X: read_only(sparse.csr_array(X)),
    "long csr": lambda X: long_indices(sparse.csr_array(X)),
    "long csc": lambda X: long_indices(sparse.csc_matrix(X)),
    "pandas": lambda X: pd.DataFrame(X, columns=[f"word{i}" for i in range(X.shape[1])]),
    "pandas with an index": lambda X: pd.DataFrame(X, index=[f"doc{i}" for i in range(len(X))]),
    "pandas sparse": lambda X: pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(X)),
    "pandas nullable": lambda X: pd.DataFrame(X).astype("UInt16"),
    "polars": lambda X: pl.DataFrame(X, schema=[f"word{i}" for i in range(X.shape[1])]),
    "pyarrow": lambda X: pa.table([*X.T], names=[f"word{i}" for i in range(X.shape[1])]),
    **{name: getattr(sparse, name) for name in FORMATS},
    "float csr": lambda X: sparse.csr_array(X.astype(float)),
}


def chunked(X, rows=7, columns=-1, form=None, *, has_sizes=True):
    """Return a Dask array of chunks in a form, whose numbers of rows may be unknown."""
    array = da.from_array(X, chunks=(rows, columns))
    if not has_sizes:
        array = array[da.from_array(np.ones(len(X), bool), chunks=rows)]
    return (
        array
        if form is None
        else array.map_blocks(form, dtype=X.dtype, meta=form((1, 1), dtype=X.dtype))
    )


def delayed_chunks(X):
    makers = [(np.copy, X[:5]), (sparse.coo_matrix, X[5:6]), (pd.DataFrame, X[6:])]
    return [dask.delayed(make)(rows) for make, rows in makers]


#: Makers of the same counts on Dask.
ON_DASK = {
    "dense": chunked,
    "float": lambda X: chunked(X.astype(float)),
    "wrong dtype": lambda X: chunked(X).map_blocks(
        np.asarray, dtype=np.float64, meta=np.empty((0, 0))
    ),
    "one row a chunk": lambda X: chunked(X, 1),
    "empty chunks": lambda X: chunked(X, (0, 5, 0, len(X) - 5, 0)),
    "csr_array": lambda X: chunked(X, form=sparse.csr_array),
    "csc_matrix": lambda X: chunked(X, form=sparse.csc_matrix),
    "coo_array": lambda X: chunked(X, form=sparse.coo_array),
    "columns": lambda X: chunked(X, 7, 4),
    "sparse columns": lambda X: chunked(X, 7, 4, sparse.csr_matrix),
    "columns of keys": lambda X: chunked(X, 7, 4, sparse.dok_array),
    "unknown rows": lambda X: chunked(X, has_sizes=False),
    "unknown rows, sparse": lambda X: chunked(X, form=sparse.csr_array, has_sizes=False),
    "unknown rows, columns": lambda X: chunked(X, 7, 4, has_sizes=False),
    "unknown rows, sparse columns": lambda X: chunked(X, 7, 4, sparse.csr_array, has_sizes=False),
    "data frame": lambda X: dd.from_pandas(
        pd.DataFrame(X, columns=[f"word{i}" for i in range(X.shape[1])]), npartitions=4
    ),
    "delayed": delayed_chunks,
}


def memory_mapped(X, folder):
    """Return a CSR array of files in a folder."""
    parts = []
    for name in ("data", "indices", "indptr"):
        np.save(f"{folder}/{name}.npy", getattr(sparse.csr_array(X), name))
        parts.append(np.load(f"{folder}/{name}.npy", mmap_mode="r"))
    return sparse.csr_array(tuple(parts), shape=X.shape, copy=False)


def rows_after_the_first(X, folder):
    """Return a view of a file that has one row more."""
    np.save(f"{folder}/X.npy", np.vstack([X[:1], X]))
    return np.load(f"{folder}/X.npy", mmap_mode="r")[1:]
