"""Row partitions: how they are made from validated arrays, and what changes between fits."""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.offsets import shift
from schmp_estimators.linear.programs.stored import as_matrix, is_sparse, join

#: A partition has about this many stored values; smaller problems have one partition.
_VALUES_PER_PARTITION = 1 << 28

# nanoseconds per multiply–add, measured: filling a Gram matrix, descending on it, descending on sparse columns
_FILL, _DESCEND, _SPARSE = 0.05, 0.2, 2.0
_PASSES = 200
NOTHING_BESIDE: Floats = np.empty((0, 0))
#: Number of entries up to which a sparse X may become dense, and number of stored values up to which overhead around
#: kernels would take most of the time.
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
    if isinstance(X, Storage):
        return Extent(n_rows, n_columns, X.stored, X.is_sparse, np.dtype(X.dtype))
    return Extent(n_rows, n_columns, X.nnz if is_sparse(X) else X.size, is_sparse(X), X.dtype)


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
    values = X.n_floats if isinstance(X, Storage) else extent(X).stored
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

    `responses` has shape (n,) or (n_targets, n); `weights` and `beside` may be empty.  For `missing` see
    `with_missing`.
    """
    responses = np.atleast_2d(responses)
    if n_partitions == 1:
        return [_partition(as_matrix(X), responses, weights, beside, 0, missing)]
    cuts = np.linspace(0, X.shape[0], n_partitions + 1).astype(np.int64)
    by_rows = X.tocsr() if is_sparse(X) else X
    parts = []
    for start, stop in pairwise(cuts):
        part = slice(start, stop)
        is_storage = isinstance(X, Storage)  # its `rows` have no names
        rows = X.rows(np.arange(start, stop)) if is_storage else by_rows[part]
        if isinstance(X, np.ndarray) and X.flags.f_contiguous:
            rows = np.asfortranarray(rows)
        parts.append(
            _partition(
                as_matrix(rows),
                responses[:, part],
                weights[part],
                beside[:, part],
                int(start),
                missing,
            )
        )
    return parts


def _partition(
    matrix: Storage,
    responses: Floats,
    weights: Floats,
    beside: Floats,
    first: int,
    missing: float | None,
) -> RowPartition:
    target = np.ascontiguousarray(responses[0])
    return RowPartition(
        with_missing(matrix, missing),
        target,
        weights,
        np.zeros_like(target),
        responses=responses,
        beside=beside,
        first=first,
    )


# -- parts of X that are not here ----------------------------------------------------------------------------------


class Part(NamedTuple):
    """Some rows of X in the form that kernels read."""

    matrix: Storage
    extent: Extent


def extent_of_part(part: Part) -> Extent:
    """Return the extent of a part."""
    return part.extent


class RowValues(NamedTuple):
    """Arrays over the rows of a partition, except X."""

    #: (n_targets, n_p) and (n_p,) or (0,), of used rows
    responses: Floats
    weights: Floats
    #: (n,) bool, which rows of the parts are used; None for all
    used: np.ndarray | None
    #: (k, n_p) and a number, see `RowPartition`
    beside: Floats
    first: int
    #: what missing values of X are, see `with_missing`
    missing: float | None


def join_parts(values: RowValues, *parts: Part) -> RowPartition:
    """Make one partition of consecutive parts, without rows that are not used."""
    matrix = join([part.matrix for part in parts])
    if values.used is not None:
        matrix = matrix.rows(np.flatnonzero(values.used))
    return _partition(
        matrix, values.responses, values.weights, values.beside, values.first, values.missing
    )


# -- between fits --------------------------------------------------------------------------------------------------


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
        """Return the partition with labels 1 and −1, and decision values of zero."""
        target = np.where(rows.responses[0] == self.code, 1.0, -1.0)
        return rows._replace(target=target, state=np.zeros_like(target)), None


class Description(NamedTuple):
    """Identity of a partition."""

    n_rows: int
    digest: str


class Identify(NamedTuple):
    """Compute a digest of the data of a fit: X in its stored order, responses and weights."""

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Description]:
        """Return the description of a partition in its first form."""
        digest = hashlib.sha256()
        for array in chain(rows.matrix.identity(), (rows.responses, rows.weights)):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return rows, Description(rows.matrix.n_rows, digest.hexdigest())


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
    return SavedPartition(rows.target, rows.state, rows.members, rows.shifts, rows.extra, rows.fill)


def restore_partition(rows: RowPartition, saved: SavedPartition) -> RowPartition:
    """Return the saved state of a partition, given its first form; its columns are gathered again."""
    rows = rows.filled(saved.fill)
    if len(saved.shifts):
        rows = shift(rows, saved.shifts)
    gathered = []
    for columns, means in saved.members:
        all_means = np.zeros(rows.matrix.n_columns)
        all_means[columns] = means
        gathered.append(rows.scaled(columns, all_means))
    return rows._replace(gathered=tuple(gathered), **saved._asdict())


def prefer_residual(size: Extent) -> bool:
    """Return whether descent on the residual of a sparse X should cost less than a Gram matrix of the candidates."""
    n_rows, n_columns = size.n_rows, size.n_columns
    if not size.sparse or n_rows * n_columns <= SMALL:
        return False
    candidates = 2.0 * max(100, min(n_rows, n_columns) // 10)
    residual = _PASSES * _SPARSE * 2.0 * candidates * size.stored / max(1, n_columns)
    gram = candidates * candidates * (_FILL * n_rows + _DESCEND * _PASSES)
    return residual < gram
