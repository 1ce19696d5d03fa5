"""Row partitions: how they are made from validated arrays, and what changes between fits."""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.programs.jobs import RowPartition, scaled_columns
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.offsets import shift
from schmp_estimators.linear.programs.stored import as_matrix, is_sparse, join

#: A partition has about this many stored values; smaller problems have one partition.
_VALUES_PER_PARTITION = 1 << 28

#: Time of 200 passes of descent, in units of what an entry of a row takes while a Gram matrix is
#: filled: over twice a stored value of a sparse X, and over an entry of the Gram matrix.
_BY_COLUMNS = 16000
_BY_PRODUCTS = 800
NOTHING_BESIDE: Floats = np.empty((0, 0))
#: Number of entries up to which a sparse X may become dense, and number of stored values up to
#: which overhead around kernels would take most of the time.
SMALL = 1 << 18


class Extent(NamedTuple):
    """The size and dtype of X, or of a part of it."""

    n_rows: int
    n_columns: int
    #: stored values
    stored: int
    sparse: bool
    dtype: np.dtype


def extent(X: Any) -> Extent:
    """Return the extent of X."""
    n_rows, n_columns = X.shape
    stored, sparse = (X.stored, X.is_sparse) if isinstance(X, Storage) else (X.size, is_sparse(X))
    return Extent(n_rows, n_columns, stored, sparse, np.dtype(X.dtype))


@cache
def resolution(dtype: Any) -> float:
    """Return the machine epsilon of data of a dtype after conversion to floats."""
    return float(np.finfo(dtype if np.issubdtype(dtype, np.floating) else np.float64).eps)


def joint_extent(parts: Sequence[Extent]) -> Extent:
    """Return the extent of concatenated parts."""
    rows, columns, stored, sparse, dtypes = zip(*parts, strict=True)
    return Extent(sum(rows), columns[0], sum(stored), all(sparse), np.result_type(*dtypes))


def default_partitions(X: Any) -> int:
    """Return the number of row partitions; it depends only on the size of the data, and so do results."""
    values = X.n_floats if isinstance(X, Storage) else X.size
    return int(min(X.shape[0], max(1, round(values / _VALUES_PER_PARTITION))))


def split_rows(
    X: Any,
    responses: Floats,
    weights: Floats,
    n_partitions: int,
    beside: Floats = NOTHING_BESIDE,
    missing: float | None = None,
) -> list[RowPartition]:
    """Divide X, and the arrays over its rows, into consecutive partitions; their target is the first response.

    `responses` has shape (n,) or (n_targets, n); `weights` and `beside` may be empty.  For
    `missing` see `with_missing`.
    """
    matrix = as_matrix(X)
    responses = np.atleast_2d(responses)
    parts = []
    cuts = np.linspace(0, matrix.n_rows, n_partitions + 1).astype(np.int64).tolist()
    for start, stop in pairwise(cuts):
        rows = matrix if n_partitions == 1 else matrix.rows(np.arange(start, stop))
        given = responses[:, start:stop], weights[start:stop], beside[:, start:stop]
        parts.append(partition(rows, *given, start, missing))
    return parts


def partition(
    matrix: Storage,
    responses: Floats,
    weights: Floats,
    beside: Floats,
    first: int = 0,
    missing: float | None = None,
) -> RowPartition:
    """Return a partition whose target is the first response."""
    target = np.ascontiguousarray(responses[0])
    own: Any = {"responses": responses, "beside": beside, "first": first}
    rows = with_missing(matrix, missing)
    return RowPartition(rows, target, weights, np.zeros_like(target), **own)


def join_parts(arrays: tuple[Any, ...], used: np.ndarray, *parts: tuple[Storage, Extent]) -> Any:
    """Make one partition of consecutive parts of X, of the rows that are `used` (n,).

    `arrays` are the further arguments of `partition`, for these rows.
    """
    matrix = join([part for part, _ in parts])
    return partition(matrix if used.all() else matrix.rows(np.flatnonzero(used)), *arrays)


# -- between fits
# --------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """Fit one of several targets next; gathered columns of X are kept."""

    number: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with this target."""
        return rows._replace(target=np.ascontiguousarray(rows.responses[self.number])), None


class Label(NamedTuple):
    """Fit one class against all others next; the only response has the numbers of the classes."""

    code: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with labels 1 and −1."""
        target = np.where(rows.responses[0] == self.code, 1.0, -1.0)
        return rows._replace(target=target), None


def identify(rows: RowPartition) -> tuple[RowPartition, tuple[int, str]]:
    """Return the number of rows of a partition, and a digest of X in its stored order, responses and weights."""
    digest = hashlib.sha256()
    for array in chain(rows.matrix.identity(), (rows.responses, rows.weights)):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return rows, (rows.matrix.n_rows, digest.hexdigest())


class SavedPartition(NamedTuple):
    """The part of a partition that rounds change; of gathered columns only their numbers are saved."""

    target: Floats
    state: Floats
    members: tuple[tuple[Indices, Floats], ...]
    shifts: Floats
    extra: Floats
    fill: Floats


def save_partition(rows: RowPartition) -> SavedPartition:
    """Return what `restore_partition` needs."""
    return SavedPartition(*(getattr(rows, name) for name in SavedPartition._fields))


def restore_partition(rows: RowPartition, saved: SavedPartition) -> RowPartition:
    """Return the saved state of a partition, given its first form; its columns are gathered again."""
    rows = rows.filled(saved.fill)
    if len(saved.shifts):
        rows = shift(rows, saved.shifts)
    gathered = tuple(scaled_columns(rows, *one) for one in saved.members)
    return rows._replace(gathered=gathered, **saved._asdict())


def prefer_residual(size: Extent) -> bool:
    """Return whether descent on the residual of a sparse X should cost less than a Gram matrix of the candidates."""
    n_rows = size.n_rows
    n_columns = size.n_columns
    if not size.sparse or n_rows * n_columns <= SMALL:
        return False
    candidates = 2 * max(100, min(n_rows, n_columns) // 10)
    residual = _BY_COLUMNS * size.stored / max(1, n_columns)
    return residual < candidates * (n_rows + _BY_PRODUCTS)
