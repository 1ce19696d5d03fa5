"""Arrays and sparse matrices some of whose values are missing; others stand for them in a fit."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage, known_weights
from schmp_estimators.linear.programs.stored import Dense, SparseByColumns, as_matrix, is_sparse

#: Number of values that are replaced at a time, so that they fit in a cache.
_AT_A_TIME = 1 << 16


class Missing(Storage):
    """Dense X whose missing values are replaced where they are read: X is never copied.

    Parameters
    ----------
    whole : Dense
    marker : float
        What missing values are; NaN, or a number.
    fill : ndarray of shape (n_columns,), optional
        What stands for missing values; by default NaN.
    """

    may_miss = True

    def __init__(self, whole: Dense, marker: float, fill: Floats | None = None) -> None:
        self.whole, self.marker = whole, marker
        self.fill = freeze(np.full(whole.n_columns, np.nan) if fill is None else fill)

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
        return Missing(self.whole.rows(chosen), self.marker, self.fill)  # type: ignore[arg-type]

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        return Missing(self.whole, self.marker, values)

    def known_sums(self, weights: Floats) -> Floats:
        """See `Storage`."""

        def of(block: Dense, by: Floats) -> Floats:
            known = ~np.isnan(block.values)
            parts = np.where(known, block.values, 0.0), known * 1.0
            return np.stack([Dense(one, block.by_rows).gradient(by, None) for one in parts])

        return Missing(self.whole, self.marker)._sums(of, weights)

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        if scope is not None and len(scope) < self.n_columns // 8:
            return self.take_dense(scope) @ vector
        found = self._sums(lambda block, part: block.gradient(part, None), vector)
        return found if scope is None else found[scope]

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        out, every = np.empty(self.n_rows), np.arange(len(columns))
        for here, values in self.pieces(columns):
            out[here] = as_matrix(values).combine(every, factors)
        return out

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        found = self._sums(lambda block, *given: np.stack(block.moments(*given)), weights, vector)
        return found[0], found[1], found[2]

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        return self._replaced(self.whole.take_dense(columns, rows), self.fill[columns, None])

    def pieces(self, columns: Indices) -> Iterator[tuple[slice, np.ndarray]]:
        """See `Storage`."""
        for here, values in self.whole.pieces(columns):
            yield here, self._replaced(values, self.fill[columns])

    def identity(self) -> Iterable[np.ndarray]:
        """See `Storage`."""
        yield from (*self.whole.identity(), self.fill)

    def _replaced(self, values: np.ndarray, fill: Floats) -> Floats:
        values = values.astype(np.float64)
        missing = np.isnan(values) if np.isnan(self.marker) else values == self.marker
        np.copyto(values, fill, where=missing)
        return values

    def _sums(self, of: Callable[..., Floats], *vectors: Floats) -> Floats:
        """Return the sums over rows, (…, p); `of` finds them for a block of X and parts of vectors."""
        lines, by_rows = self.whole
        step = max(1, _AT_A_TIME // max(1, lines.shape[1]))

        def found(start: int) -> Floats:
            here = slice(start, start + step)
            values = self._replaced(lines[here], self.fill if by_rows else self.fill[here, None])
            return of(Dense(values, by_rows), *(one[here] if by_rows else one for one in vectors))

        parts = map(found, range(0, max(1, len(lines)), step))
        return tree_sum(parts) if by_rows else np.concatenate(list(parts), axis=-1)


class MissingSparse(SparseByColumns):
    """Sparse X with missing values among those that are stored; these are copied to replace them."""

    may_miss = True
    #: stored values, NaN where they are missing
    given: Floats

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`; only before missing values are replaced."""
        return MissingSparse(*super().rows(chosen))

    def filled(self, values: Floats) -> Storage:
        """See `Storage`."""
        given = vars(self).get("given", self.columns.values)
        fill = np.repeat(values, np.diff(self.columns.starts))
        columns = self.columns._replace(values=np.where(np.isnan(given), fill, given))
        found = MissingSparse(freeze(columns), self.n_rows)
        found.given = given
        return found

    def known_sums(self, weights: Floats) -> Floats:
        """See `Storage`."""
        missing = self.columns._replace(values=np.isnan(self.columns.values) * 1.0)
        absent = SparseByColumns(missing, self.n_rows).gradient(weights, None)
        sums = self.filled(np.zeros(self.n_columns)).gradient(weights, None)
        return np.stack([sums, known_weights(weights, absent)])


def with_missing(X: Any, marker: float) -> Storage:
    """Return X, an array or a sparse matrix, with values that may be missing.

    Raises
    ------
    ValueError
        If zeros of a sparse matrix would be missing.
    """
    check_marker(X, marker)
    matrix = as_matrix(X)
    if isinstance(matrix, Dense):
        kind = matrix.dtype.type if matrix.dtype.kind == "f" else float
        return Missing(matrix, float(kind(marker)))
    columns, n_rows = matrix
    values = np.where(columns.values == marker, np.nan, columns.values)
    return MissingSparse(freeze(columns._replace(values=values)), n_rows)


def check_marker(X: Any, marker: float | None) -> None:
    """Raise ValueError if zeros of a sparse matrix would be missing."""
    if marker == 0 and getattr(X, "is_sparse", is_sparse(X)):
        raise ValueError(
            "missing_values=0 would make all zeros of a sparse X missing; give NaN or another number, or X.toarray()"
        )
