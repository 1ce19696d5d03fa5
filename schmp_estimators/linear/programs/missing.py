"""Arrays and sparse matrices in which values are missing, and others stand for these in a fit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import replace
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage
from schmp_estimators.linear.programs.stored import Dense, SparseByColumns, as_matrix

#: Number of values that are replaced at a time, so that they fit in a cache.
_AT_A_TIME = 1 << 18


class _Missing(NamedTuple):
    whole: Dense
    #: what missing values are, NaN or a number
    marker: float
    #: (p,) what stands for them
    fill: Floats
    #: factor of all other values
    scale: float = 1.0


class Missing(_Missing, Storage):
    """Dense X whose missing values are replaced where they are read, so that X is never copied."""

    __slots__ = ()
    may_miss = True

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return self.whole.shape

    @property
    def dtype(self) -> Any:
        """See `Storage`."""
        return self.whole.dtype

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return self._replace(whole=self.whole.rows(chosen))  # type: ignore[arg-type]

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        return self._replace(fill=values)

    def missing_weights(self, weights: Floats) -> Floats:
        """See `Storage`."""
        return self._replace(fill=np.ones(self.n_columns), scale=0.0).gradient(weights, None)

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        if scope is None:
            return self._sums(1, lambda block, part: block.gradient(part, None), vector)[0]
        parts = (vector[here] @ values for here, values in self.pieces(scope))
        return np.zeros(len(scope)) + sum(parts)

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        return factors @ self.take_dense(columns)

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        sums, squares, products = self._sums(3, Dense.moments, weights, vector)
        return sums, squares, products

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        taken = self.whole.take_dense(columns, rows)
        return self._replaced(taken, self.fill[columns], False, np.empty(taken.shape))

    def _replaced(self, values: np.ndarray, fill: Floats, by_rows: bool, out: Floats) -> Floats:
        given = freeze(np.ascontiguousarray(values)), self.marker, freeze(fill), self.scale
        replace(*given, by_rows, out)
        return out

    def _sums(self, count: int, of: Callable[..., Any], *vectors: Floats) -> Floats:
        """Return `count` sums over rows, (count, p).

        `of` finds them for a block of X, and parts of vectors.
        """
        lines, by_rows = self.whole
        height = max(1, _AT_A_TIME // max(1, lines.shape[1]))
        out, room = np.zeros((count, self.n_columns)), np.empty((height, lines.shape[1]))
        for start in range(0, len(lines), height):
            here = slice(start, start + height)
            values, fill = lines[here], self.fill if by_rows else self.fill[here]
            block = Dense(self._replaced(values, fill, by_rows, room[: len(values)]), by_rows)
            there = out if by_rows else out[:, here]
            there += of(block, *(one[here] if by_rows else one for one in vectors))
        return out


class MissingSparse(SparseByColumns):
    """Sparse X with missing values among those that are stored; a copy of these is in use.

    In some of its `rows` they have been replaced for good.
    """

    __slots__ = ()
    may_miss = True

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        fill = np.repeat(values, np.diff(self.columns.starts))
        return self._storing(np.where(self.missing, fill, self.columns.values))

    def missing_weights(self, weights: Floats) -> Floats:
        """See `Storage`."""
        return self._storing(self.missing.astype(np.float64)).gradient(weights, None)

    def _storing(self, values: Floats) -> Storage:
        return self._replace(columns=freeze(self.columns._replace(values=values)))


def with_missing(X: Any, marker: float | None) -> Storage:
    """Return X in the form that kernels read; values that are `marker`, if not None, are missing.

    Raises
    ------
    ValueError
        If zeros of a sparse X would be missing.
    """
    matrix: Any = as_matrix(X)
    if marker is None or matrix.may_miss:
        return matrix
    if isinstance(matrix, SparseByColumns):
        if marker == 0.0:
            raise ValueError(
                "missing_values=0 would make all zeros of a sparse X missing; give another number, "
                "NaN or X.toarray()"
            )
        values = matrix.columns.values
        # values may have been float32 before
        with np.errstate(over="ignore"):
            markers = np.array([marker, np.float32(marker)], np.float64)
        missing = np.isnan(values) if np.isnan(markers[0]) else np.isin(values, markers)
        return MissingSparse(matrix.columns, matrix.n_rows, freeze(missing))
    kind = matrix.dtype.type if matrix.dtype.kind == "f" else float
    with np.errstate(over="ignore"):
        return Missing(matrix, float(kind(marker)), np.full(matrix.n_columns, np.nan))
