"""Jobs of problems whose coefficients are in blocks: groups of columns, and several classes.

The state of a partition is the image (K, n_p) of penalised coefficients, Σ_j w_j x_j for each of K
outputs.  Decision values are this image plus that of F, the columns without a penalty: ones for an
intercept, and directions of columns.
"""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.contracts import declared, is_joint
from schmp_estimators.linear.kernels.descent import LEAST_CURVATURE
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.losses.base import Loss, Seen, weigh
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.offsets import Span


def look(
    loss: Any, decision: Floats, target: Floats, weights: Floats, damping: float = 0.0
) -> Seen:
    """Return the loss of K decision values and its derivatives.

    With `damping` curvatures are at least this part of their upper bounds.  A loss of y − v is
    bounded by the parabola through the point that is even in y − v.
    """
    if is_joint(loss):
        seen: Seen = loss.look(decision, target, weights)
        if damping:
            raised = weigh(weights, np.full(len(target), damping * loss.smoothness))
            seen = seen._replace(curvature=seen.curvature + raised)
        return seen
    level, slope, curvature = loss.derivatives(decision[0], target, weights, 0.0)
    if damping:
        curvature = np.maximum(curvature, damping * _bounds(loss, decision, target, weights, slope))
    return Seen(level.loss, slope[None], curvature[None], np.empty((0, len(target))))


def _bounds(loss: Any, decision: Floats, target: Floats, weights: Floats, slope: Floats) -> Floats:
    """Return upper bounds of the curvature, or four times the present one if there are none."""
    smoothness = declared(loss, "smoothness")
    if not smoothness < np.inf:
        found: Floats = 4.0 * loss.derivatives(decision[0], target, weights, 0.0).curvature
        return found
    bounds = weigh(weights, np.full(len(target), smoothness))
    if declared(loss, "of_difference"):
        apart = np.abs(target - decision[0])
        np.divide(np.abs(slope), apart, out=bounds, where=apart > 0.0)
    return bounds


class Looked(NamedTuple):
    """Partial result of `Look`."""

    loss: float
    #: (K, f) slopes of F, and (K·f, K·f) second derivatives
    slope: Floats
    curvature: Floats
    #: Σ a over rows and outputs, and the number of rows and outputs where it is positive
    total: float
    curved: float
    #: (K, |scope|) gradient, if it was asked for
    gradient: Floats = np.empty((0, 0))


class Begin(NamedTuple):
    """Subtract the mean of the response, and compute the columns of F."""

    n_outputs: int
    mean: float
    fit_intercept: bool
    span: Span | None
    #: length that directions get
    length: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with its columns of F."""
        count = rows.matrix.n_rows
        extra = np.ones((int(self.fit_intercept), count))
        if self.span is not None:
            extra = np.concatenate([extra, self.length * self.span.take(rows)])
        state = np.zeros((self.n_outputs, count))
        return rows._replace(target=rows.target - self.mean, state=state, extra=extra), None


class Look(NamedTuple):
    """Update the image for a change of coefficients, and evaluate the loss."""

    loss: Loss
    columns: Indices
    #: (K, c)
    change: Floats
    #: (K, f)
    levels: Floats
    damping: float = 0.0
    #: whether to compute the image from scratch; `change` then has the coefficients
    anew: bool = False
    #: whether to compute the gradient, and that of which columns; None for all
    with_gradient: bool = False
    scope: Indices | None = None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Looked]:
        """Return the loss, its derivatives in F, and perhaps the gradient."""
        state = np.zeros_like(rows.state) if self.anew else rows.state
        if len(self.columns):
            image = [_combined(rows, self.columns, factors) for factors in self.change]
            state = state + np.array(image)
        rows = rows._replace(state=state)
        seen = seen_of(self.loss, rows, self.levels, self.damping)
        second = second_derivatives(rows.extra, seen, rows.weights)
        total, curved = float(seen.curvature.sum()), float(np.count_nonzero(seen.curvature))
        found = Looked(seen.loss, seen.slope @ rows.extra.T, second, total, curved)
        if self.with_gradient:
            found = found._replace(gradient=_gradients(rows, seen, self.scope))
        return rows, found


def second_derivatives(extra: Floats, seen: Seen, weights: Floats) -> Floats:
    """Return the second derivatives in F, (K·f, K·f)."""
    n_outputs, n_free = len(seen.curvature), len(extra)
    found = np.zeros((n_outputs * n_free,) * 2)
    if len(seen.shares):
        shares = weigh(np.sqrt(weights), seen.shares)
        values = (shares[:, None] * extra).reshape(n_outputs * n_free, extra.shape[1])
        found -= values @ values.T
    for k, curvature in enumerate(seen.curvature):
        own = slice(k * n_free, (k + 1) * n_free)
        found[own, own] += (extra * curvature) @ extra.T
    return found


def _combined(rows: RowPartition, columns: Indices, factors: Floats) -> Floats:
    used = np.flatnonzero(factors)
    return rows.matrix.combine(columns[used], factors[used])


def decision_of(rows: RowPartition, levels: Floats) -> Floats:
    """Return the decision values (K, n_p)."""
    decision: Floats = rows.state + levels @ rows.extra
    return decision


def seen_of(loss: Loss, rows: RowPartition, levels: Floats, damping: float = 0.0) -> Seen:
    """Return the derivatives at the decision values of a partition."""
    return look(loss, decision_of(rows, levels), rows.target, rows.weights, damping)


class Gradients(NamedTuple):
    """Compute the gradient for each output."""

    loss: Loss
    levels: Floats
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return slope·X over the scope, (K, |scope|)."""
        return rows, _gradients(rows, seen_of(self.loss, rows, self.levels), self.scope)


def _gradients(rows: RowPartition, seen: Seen, scope: Indices | None) -> Floats:
    return np.array([rows.matrix.gradient(slope, scope) for slope in seen.slope])


class DualValue(NamedTuple):
    """Evaluate the dual objective."""

    loss: Loss
    levels: Floats
    scale: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, float]:
        """Return this partition's part of the dual objective at scale·slope."""
        decision = decision_of(rows, self.levels)
        decision = decision if is_joint(self.loss) else decision[0]
        return rows, self.loss.dual(decision, rows.target, rows.weights, 0.0, self.scale)


class Products(NamedTuple):
    """Compute second derivatives of one output in some columns and F."""

    loss: Loss
    columns: Indices
    levels: Floats
    damping: float

    def __call__(
        self, rows: RowPartition
    ) -> tuple[RowPartition, tuple[Floats, Floats, Floats, float]]:
        """Return the products of columns, of F with columns, and of F.

        Also returns Σ slope²/a over rows with curvature a.
        """
        seen = seen_of(self.loss, rows, self.levels, self.damping)
        [weights], [slope] = seen.curvature, seen.slope
        energy = float((slope**2 / np.maximum(weights, LEAST_CURVATURE)).sum())
        columns, extra = self.columns, rows.extra
        found = rows.matrix.products(columns, 0, weights)
        across = np.array([rows.matrix.gradient(weights * one, columns) for one in extra])
        inner = (extra * weights) @ extra.T
        return rows, (found, across.reshape(-1, len(columns)), inner, energy)


class JointProducts(NamedTuple):
    """Compute second derivatives of several outputs in some coefficients, and after them F."""

    loss: Loss
    columns: Indices
    outputs: Indices
    levels: Floats
    damping: float

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats]:
        """Return (m + K·f, m + K·f)."""
        seen = seen_of(self.loss, rows, self.levels, self.damping)
        curvature, shares = seen.curvature, weigh(np.sqrt(rows.weights), seen.shares)
        n_outputs, n_free = len(curvature), len(rows.extra)
        outputs = np.append(self.outputs, np.repeat(np.arange(n_outputs), n_free))
        found = np.zeros((len(outputs), len(outputs)))
        distinct, places = np.unique(self.columns, return_inverse=True)
        own = [np.flatnonzero(outputs == k) for k in range(n_outputs)]
        for here, taken in rows.matrix.pieces(distinct):
            own_extra = np.tile(rows.extra[:, here], (n_outputs, 1))
            values = np.concatenate([taken.T[places], own_extra])
            weighed = values * shares[outputs, here]
            found -= weighed @ weighed.T
            for k, chosen in enumerate(own):
                of_output = values[chosen]
                found[np.ix_(chosen, chosen)] += (of_output * curvature[k, here]) @ of_output.T
        return rows, found


class GatherRows(NamedTuple):
    """Gather some columns, and all else that a step on them needs."""

    columns: Indices

    def __call__(
        self, rows: RowPartition
    ) -> tuple[RowPartition, tuple[Columns, Floats, Floats, Floats, Floats]]:
        """Return columns, image, y, s and F of this partition; to be concatenated."""
        vectors = rows.state, rows.target, rows.weights, rows.extra
        return rows, (rows.matrix.compressed(self.columns), *vectors)
