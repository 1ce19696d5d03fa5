"""What a row partition of a logistic problem is asked to do; see `regression_jobs` for the form of a job.

The state of a partition is u = Xβ; the intercept b travels with the jobs.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.linear.kernels.logistic import logistic_derivatives, logistic_entropy
from schmp_estimators.linear.kernels.sparse import Columns, frozen
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.unpenalised import Span

#: Entries from which a working set is multiplied in float32: twice as fast, and its Gram matrix only steers.
_LARGE = 1 << 16


class Level(NamedTuple):
    """Partial result of `Shift`: what the intercept's Newton step and the objective need."""

    loss: float
    slope: float
    curvature: float


class Derivatives(NamedTuple):
    """Loss and derivatives of the rows at one intercept."""

    level: Level
    #: (n,) s y p
    slope: Floats
    #: (n,) s p (1 − p)
    curvature: Floats


def derivatives(decision: Floats, labels: Floats, weights: Floats, intercept: float) -> Derivatives:
    """Return loss, slopes and curvatures of rows with decision values u + b."""
    slope, curvature = np.empty_like(decision), np.empty_like(decision)
    level = logistic_derivatives(frozen(decision), frozen(labels), frozen(weights), intercept, slope, curvature)
    return Derivatives(Level(*level), slope, curvature)


class Shift(NamedTuple):
    """Move the decision values along a change of the coefficients, and look at one intercept."""

    columns: Indices
    change: Floats
    intercept: float
    #: whether to compute decision values anew, `change` being the coefficients
    anew: bool = False

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Level]:
        """Return the loss, its slope and its curvature in the intercept."""
        if self.anew:
            rows = rows._replace(state=np.zeros_like(rows.state))
        if len(self.columns):
            rows = rows._replace(state=rows.state + rows.matrix.combine(self.columns, self.change))
        return rows, derivatives(rows.state, rows.target, rows.weights, self.intercept).level


class Slope(NamedTuple):
    """Take the gradient."""

    intercept: float
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return Xᵀ(s⊙y⊙p) over the scope."""
        slope = derivatives(rows.state, rows.target, rows.weights, self.intercept).slope
        return rows, rows.matrix.gradient(slope, self.scope)


class Entropy(NamedTuple):
    """Evaluate the dual objective."""

    intercept: float
    scale: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, float]:
        """Return the dual objective of this partition at scale·p."""
        value = logistic_entropy(
            frozen(rows.state), frozen(rows.target), frozen(rows.weights), self.intercept, self.scale
        )
        return rows, value


class WeightedGram(NamedTuple):
    """Take the Gram matrix of the working set, weighted by the curvature at the present point."""

    columns: Indices
    intercept: float
    means: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, Floats, float, float]]:
        """Return XᵀWX, Σ w x, Σ w, Σ slope²/w over columns less their means; large matrices in float32."""
        _, slope, curvature = derivatives(rows.state, rows.target, rows.weights, self.intercept)
        curvature = np.maximum(curvature, 1e-12)
        taken = rows.matrix.take_dense(self.columns)
        if self.means.any():
            taken = taken - self.means[self.columns, None]
        sums = taken @ curvature
        half = np.empty(taken.shape, np.float32 if taken.size > _LARGE else np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(taken, np.sqrt(curvature), out=half, casting="same_kind")
            gram = half @ half.T
        if half.dtype == np.float32 and not np.isfinite(gram).all():  # too large for float32
            half = taken * np.sqrt(curvature)
            gram = half @ half.T
        return rows, (gram, sums, float(curvature.sum()), float((slope * slope / curvature).sum()))


class Curved(NamedTuple):
    """Partial result of `Free`, of the intercept and then the directions."""

    loss: float
    slope: Floats
    curvature: Floats


class Free(NamedTuple):
    """Move the decision values along a change of columns without penalty, and look at what moving these would do."""

    change: Floats
    intercept: float
    span: Span
    fit_intercept: bool

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Curved]:
        """Return the loss, its slopes and its curvature in the intercept and in the directions of the columns."""
        if len(self.change):
            rows = rows._replace(state=rows.state + rows.matrix.combine(self.span.columns, self.change))
        level, slope, curvature = derivatives(rows.state, rows.target, rows.weights, self.intercept)
        taken = np.vstack([np.full(rows.matrix.n_rows, float(self.fit_intercept)), self.span.take(rows)])
        return rows, Curved(level.loss, taken @ slope, (taken * curvature) @ taken.T)


class Gather(NamedTuple):
    """Bring the columns of a working set together."""

    columns: Indices

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Columns, Floats, Floats, Floats]]:
        """Return the columns of this partition, u, y and s; these are stacked, not summed."""
        return rows, (rows.matrix.take_sparse(self.columns), rows.state, rows.target, rows.weights)
