"""Columns that are centred before rounds begin, and columns without a penalty.

If the mean of a column is large relative to its spread, as with time stamps, years and identifiers,
centring loses most digits.  This is so for centred sums, Σ x² − n x̄², and for centred products,
xᵀr − x̄ Σ r.  So a number near the mean is subtracted from the values of such a column before
anything is summed; these differences are exact.  Only these columns need it, and only problems with
an intercept.

A fit is exact over columns without a penalty whenever a gap is computed, as it is over the
intercept: a dual point gives a bound only if it is orthogonal to them.  Newton steps are made on an
orthonormal basis of their span, because covariates may be nearly dependent, such as powers of a
year.
"""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.penalties.base import PerColumn
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.jobs import (
    SMALLEST_NORM,
    Moments,
    RowPartition,
    Sums,
    SumsError,
    check_squares,
)
from schmp_estimators.linear.programs.matrix import TOGETHER, Floats, Indices

#: If centring leaves less than this part of a squared norm, the column is shifted first: mean/sd is
#: then 1000, and a gradient has lost three digits.
OFFSET = 1e-6
#: Spread, in units of the distance of neighbouring floats, below which a column is only rounding.
SPREAD = 0.125
#: Length of a direction, in units of the rounding of its values, below which it is only rounding.
REAL = 8.0


def shift(rows: RowPartition, shifts: Floats) -> RowPartition:
    """Return the partition with `shifts` (p,) subtracted from its columns, in addition to earlier shifts."""
    both = rows.shifts + shifts if len(rows.shifts) else shifts
    return rows._replace(matrix=rows.matrix.shifted(shifts), shifts=both)


class Look(NamedTuple):
    """Find the ranges of some columns; the partition is not changed."""

    columns: Indices

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, np.ndarray]:
        """Return (3, k): whether columns have no implicit zeros, and if so their minimum and negative maximum."""
        complete = rows.matrix.complete(self.columns).astype(np.float64)
        found = np.stack([complete, np.full(len(complete), np.inf), np.full(len(complete), np.inf)])
        here = np.flatnonzero(complete)
        for start in range(0, len(here), TOGETHER):
            part = here[start : start + TOGETHER]
            taken = rows.matrix.take_dense(self.columns[part])
            found[1:, part] = taken.min(axis=1, initial=np.inf), -taken.max(axis=1, initial=-np.inf)
        return rows, found


class Recentre(NamedTuple):
    """Subtract a number from each column."""

    #: (p,)
    shifts: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with the columns shifted."""
        return shift(rows, self.shifts), None


def centre(design: Design) -> Generator[Any, Any, list[Sums]]:
    """Compute the moments, shift columns if necessary, and return the sums of each partition."""
    sums: list[Sums] = yield Moments()
    whole = tree_sum(sums)
    check_squares(whole.squares)
    means = whole.columns / whole.total
    columns = np.flatnonzero(whole.squares - whole.columns * means < OFFSET * whole.squares)
    if not design.fit_intercept or not len(columns):
        return sums
    complete, lowest, negative = np.min((yield Look(columns)), axis=0)
    varied = -negative > lowest
    complete = complete > 0.0
    design.constant = np.union1d(design.constant, columns[complete & ~varied])
    moved = columns[complete & varied]
    if not len(moved):
        return sums
    shifts = np.zeros(len(means))
    shifts[moved] = means[moved]
    design.shifts = shifts + design.shifts if len(design.shifts) else shifts
    yield Recentre(shifts)
    sums = yield Moments()
    again = tree_sum(sums)
    raw = whole.squares[moved]
    norms = again.squares[moved] - again.columns[moved] ** 2 / again.total
    flat = (norms <= (SPREAD * design.eps) ** 2 * raw) & (raw >= SMALLEST_NORM)
    design.dropped = moved[flat]
    design.constant = np.union1d(design.constant, design.dropped)
    return sums


def check_small(design: Design, strengths: PerColumn, energy: float) -> None:
    """Raise SumsError if a column whose squares underflow might need a coefficient, or if all columns are so.

    No gradient exceeds √`energy` times the norm: this is twice the objective at zero, times the
    bound on curvatures.
    """
    most = np.sqrt(SMALLEST_NORM) * np.sqrt(energy) if design.norms.any() else np.inf
    lost = design.small[np.broadcast_to(strengths, design.n_columns)[design.small] < most]
    if len(lost):
        raise SumsError(
            f"column {lost[0]} of X holds values whose squares, times the weights of samples, underflow float64; "
            "multiply it by a power of ten, or all of X, and alpha or 1 / C with it"
        )


class Span(NamedTuple):
    """An orthonormal basis of some centred columns."""

    #: (k,) columns, and their means
    columns: Indices
    means: Floats
    #: (k, r) coefficients of the columns in each direction
    basis: Floats

    def take(self, rows: jobs.RowPartition) -> Floats:
        """Return the directions on the rows of a partition, shape (r, n_p)."""
        taken: Floats = self.basis.T @ (rows.matrix.take_dense(self.columns) - self.means[:, None])
        return taken

    def coordinates(self, coef: Floats) -> Floats:
        """Return coefficients of the columns (k,) as those of the directions (r,)."""
        units = 1.0 / np.abs(self.basis).max(axis=1)
        return np.linalg.lstsq(self.basis * units[:, None], coef * units)[0]


class Triangle(NamedTuple):
    """Compute the QR factorisation of the directions on the rows of each partition."""

    span: Span

    def __call__(self, rows: jobs.RowPartition) -> tuple[jobs.RowPartition, Floats]:
        """Return the triangular factor, with at most r rows."""
        taken = (
            self.span.take(rows) * np.sqrt(rows.weights)
            if len(rows.weights)
            else self.span.take(rows)
        )
        triangle: Any = np.linalg.qr(taken.T, mode="r")
        return rows, triangle


def find_span(design: Design, columns: Indices) -> Generator[Any, Any, Span | None]:
    """Find a basis of those of some columns that vary, if there are any.

    The concatenated triangles of all partitions have the singular values of all rows (J.  Demmel et
    al., "Communication-optimal parallel and sequential QR and LU factorizations", SIAM J. Sci.
    Comput. 2012).  Directions no longer than the rounding of the columns are left out.  The second
    pass makes the directions of the first orthonormal.
    """
    columns = columns[design.norms[columns] > 0.0]
    if not len(columns):
        return None
    norms = design.norms[columns]
    means = design.means[columns]
    away = means + design.shifts[columns] if len(design.shifts) else means
    rounding = design.eps * np.sqrt(norms + design.total_weight * away**2)
    span = Span(columns, means, np.diag(1.0 / np.sqrt(norms)))
    for _ in range(2):
        triangles = yield Triangle(span)
        _, values, directions = np.linalg.svd(np.concatenate(triangles), full_matrices=False)
        turned = span.basis @ directions.T
        real = values > REAL * np.linalg.norm(turned * rounding[:, None], axis=0)
        span = span._replace(basis=np.ascontiguousarray(turned[:, real] / values[real]))
    return span
