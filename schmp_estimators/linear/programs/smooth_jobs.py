"""What a row partition is asked to do where the curvature of the loss changes; see `jobs` for the form of a job.

The state of a partition is u = Xβ; the loss and the intercept b travel with the jobs.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.linear.losses.base import Derivatives, Level, Loss
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.unpenalised import Span


class Derived(NamedTuple):
    """Derivatives of a loss, and where they hold."""

    loss: Loss
    #: decision values and responses, the very arrays
    state: Floats
    target: Floats
    intercept: float
    found: Derivatives

    def hold(self, loss: Loss, rows: RowPartition, intercept: float) -> bool:
        """Return whether they hold for a partition as it is."""
        here = self.state is rows.state and self.target is rows.target
        return here and self.intercept == intercept and self.loss == loss


def derive(loss: Loss, rows: RowPartition, intercept: float) -> tuple[RowPartition, Derivatives]:
    """Return the derivatives at the decision values of a partition, which remembers them."""
    known = rows.derived
    if isinstance(known, Derived) and known.hold(loss, rows, intercept):
        return rows, known.found
    found = loss.derivatives(rows.state, rows.target, rows.weights, intercept)
    return rows._replace(derived=Derived(loss, rows.state, rows.target, intercept, found)), found


class Shift(NamedTuple):
    """Move the decision values along a change of the coefficients, and look at one intercept."""

    loss: Loss
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
        rows, found = derive(self.loss, rows, self.intercept)
        return rows, found.level


class Slope(NamedTuple):
    """Take the gradient."""

    loss: Loss
    intercept: float
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return Xᵀ·slope over the scope."""
        rows, found = derive(self.loss, rows, self.intercept)
        return rows, rows.matrix.gradient(found.slope, self.scope)


class Dual(NamedTuple):
    """Evaluate the dual objective."""

    loss: Loss
    intercept: float
    scale: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, float]:
        """Return the part of this partition in the dual objective at scale·slope."""
        value = self.loss.dual(rows.state, rows.target, rows.weights, self.intercept, self.scale)
        return rows, value


class WeightedGram(NamedTuple):
    """Take the Gram matrix of the working set, weighted by the curvature at the present point."""

    loss: Loss
    columns: Indices
    intercept: float
    means: Floats
    #: least curvature of a row of weight 1
    least: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, Floats, float, float]]:
        """Return XᵀWX, Σ w x, Σ w, Σ slope²/w over columns less their means."""
        rows, (_, slope, curvature) = derive(self.loss, rows, self.intercept)
        curvature = np.maximum(np.maximum(curvature, 1e-12), rows.weigh(np.full(len(slope), self.least)))
        taken = rows.matrix.take_dense(self.columns)
        taken -= self.means[self.columns, None]
        sums = taken @ curvature
        taken *= np.sqrt(curvature)
        return rows, (taken @ taken.T, sums, float(curvature.sum()), float((slope * slope / curvature).sum()))


class Curved(NamedTuple):
    """Partial result of `Free`, of the intercept and then the directions."""

    loss: float
    slope: Floats
    curvature: Floats


class Free(NamedTuple):
    """Move the decision values along a change of columns without penalty, and look at what moving these would do."""

    loss: Loss
    change: Floats
    intercept: float
    span: Span
    fit_intercept: bool

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Curved]:
        """Return the loss, its slopes and its curvature in the intercept and in the directions of the columns."""
        if len(self.change):
            rows = rows._replace(state=rows.state + rows.matrix.combine(self.span.columns, self.change))
        rows, (level, slope, curvature) = derive(self.loss, rows, self.intercept)
        taken = np.vstack([np.full(rows.matrix.n_rows, float(self.fit_intercept)), self.span.take(rows)])
        return rows, Curved(level.loss, taken @ slope, (taken * curvature) @ taken.T)
