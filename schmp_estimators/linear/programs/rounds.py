"""The schedules of the papers as programs: a few coefficients at a time, all from the same residual.

A round updates n_parallel coefficients by their own one-dimensional minimisers (Lee et al., NIPS 2014, section 3.3;
Bradley et al., ICML 2011).  From time to time a full gradient gives the duality gap and updates all priorities.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.engine.dynamic import Overlapping, Steps
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    DynamicRegressionSchedule,
    make_sampler,
)
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import proximal_steps
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import compiled_for, take
from schmp_estimators.linear.programs.design import NO_CHANGE, Design
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices, SparseByColumns, take_sparse
from schmp_estimators.linear.programs.point import Point
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.smooth import ResolveSmooth

#: A fit counts as diverging if the objective exceeds this multiple of its value at zero.
_DIVERGED = 1e3
#: A change of the residual by this multiple of the square root of the objective at zero ends the rounds, before numbers
#: overflow.
_RUNAWAY = 1e50
#: Default of the largest correlation of columns that "priority" updates together.
_MAX_CORRELATION = 0.1


class Round(NamedTuple):
    """One round: apply the changes of earlier rounds, compute partial gradients and the products for a check."""

    moved: Indices
    change: Floats
    #: x̄ᵀΔ for the squared loss, the intercept for other losses
    level: float
    columns: Indices
    check: Check | None
    means: Floats
    #: None for the squared loss, with which the state is the residual
    loss: Loss | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, float, Any]]:
        """Return x̃_jᵀ(slope) over `columns`, Σ slope, and the products of the checked columns."""
        state = rows.state
        if len(self.moved):
            step = rows.matrix.combine(self.moved, self.change)
            state = state + step if self.loss is not None else state - step + self.level
        if self.loss is not None:
            slope = self.loss.derivatives(state, rows.target, rows.weights, self.level).slope
        else:
            slope = rows.weigh(state)
        gradient = rows.matrix.gradient(slope, self.columns) if len(self.columns) else np.empty(0)
        products = _products(rows, self.check) if self.check is not None else 0.0
        return rows._replace(state=state), (gradient, float(slope.sum()), products)


def _products(rows: RowPartition, check: Check) -> Floats:
    """Return Σ s x_j x_k of the candidates with each other and with `check.others`."""
    both = np.concatenate([check.candidates, check.others])
    if isinstance(rows.matrix, SparseByColumns):
        values, indices, starts = take_sparse(rows.matrix, both)
        block = sp.csc_array((values, indices, starts), shape=(rows.matrix.n_rows, len(both)))
        left = block[:, : len(check.candidates)]
        if len(rows.weights):
            left = left.multiply(rows.weights[:, None]).tocsc()
        return (left.T @ block).toarray()
    taken = rows.matrix.take_dense(both)
    return rows.weigh(taken[: len(check.candidates)]) @ taken.T


class _Scheduled(Resolve):
    """Mixin that makes overlapping rounds between two gaps; the other base class computes gaps."""

    #: None for the squared loss
    loss: Loss | None = None

    def __init__(
        self, *given: Any, rounds: DynamicRegressionSchedule, pipeline_depth: int = 1, **start: Any
    ) -> None:
        super().__init__(*given, **start)
        self.rounds, self.pipeline_depth = rounds, pipeline_depth
        #: coefficients that the partitions know, rounds until the next gap, and coefficients updated so far
        self._known = NO_CHANGE
        self._left = self._updates = 0

    def _pending(self) -> tuple[Indices, Floats]:
        """Return the changes of coefficients that the partitions do not know yet, and count them as known."""
        difference = self.point.coef - self._known
        moved = np.flatnonzero(difference)
        self._known[moved] = self.point.coef[moved]
        return moved, difference[moved]

    def schedule(self, point: Point) -> Round | None:
        """Return the next round, or None if it is time for a gap."""
        if self._left == 0:
            return None
        self._left -= 1
        columns, check = self.rounds.next_round()
        columns = np.sort(columns)
        moved, change = self._pending()
        means = self.design.means
        level = point.level if self.loss is not None else float(means[moved] @ change)
        self._updates += len(columns)
        return Round(moved, change, level, columns, check, means, self.loss)

    @staticmethod
    def update(rows: RowPartition, job: Round) -> tuple[RowPartition, Any]:
        """Do a round on one row partition."""
        return job(rows)

    def aggregate(self, point: Point, job: Round, partials: Sequence[Any]) -> None:
        """Update the point with the results of a round."""
        design, columns, (gradient, balance, products) = (
            self.design,
            job.columns,
            tree_sum(partials),
        )
        gradient = gradient - balance * design.means[columns]
        change = self._steps(columns, gradient)
        point.coef[columns] += change
        lengths = np.abs(change) * np.sqrt(design.norms[columns])
        if not lengths.max(initial=0.0) < _RUNAWAY * np.sqrt(self.certificate.null_objective):
            self._left = 0
        self.work.touched += len(columns) * float(design.n_rows)
        if self.loss is not None and design.fit_intercept:
            # the changes are those of centred columns
            centring = float(design.means[columns] @ change)
            point.level += balance / (self.smoothness * design.total_weight) - centring
        self.rounds.sampler.record(columns, change)
        found = None
        if job.check is not None:
            self.work.touched += products.size * float(design.n_rows)
            found = _correlations(design, job.check, products)
        self.rounds.answer(job.check, found)

    def step(self) -> Steps:
        """Make rounds until it is time for a gap."""
        n_columns = self.design.n_columns
        self._known = self.point.coef.copy()
        self.rounds.sampler.refresh(self._steps(np.arange(n_columns), self.point.gradient))
        self._left = max(10, n_columns // (2 * self.rounds.n_parallel))
        yield Overlapping(self, self.point, self.pipeline_depth)
        yield from self.advance(*self._pending())

    def count(self) -> int:
        """Return the number of passes made over all columns."""
        return int(np.ceil(self._updates / max(1, self.design.n_columns)))

    def exhausted(self) -> bool:
        """Return whether the fit has diverged, or has made all its passes."""
        objective = self.certificate.objective
        diverged = (
            not np.isfinite(objective) or objective > _DIVERGED * self.certificate.null_objective
        )
        return diverged or self.count() >= self.max_iter

    def state(self) -> dict[str, Any]:
        """Return also the state of the schedule; after a gap no round is running, and partitions know all changes."""
        return {**super().state(), "updates": self._updates, "schedule": self.rounds.save()}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore a state, also that of the schedule."""
        yield from super().recover(state)
        self._updates = state["updates"]
        self.rounds.restore(state["schedule"])

    def _steps(self, columns: Indices, gradient: Floats) -> Floats:
        """Return the steps to the one-dimensional minimisers of `columns`."""
        norms, old = self.smoothness * self.design.norms[columns], self.point.coef[columns]
        penalty, change = take(self.penalty, columns), np.empty(len(columns))
        take_steps = compiled_for(penalty, proximal_steps)
        take_steps(
            freeze(gradient + norms * old), freeze(norms), freeze(old), freeze(penalty), change
        )
        return change


def _correlations(design: Design, check: Check, products: Floats) -> Floats:
    """Return correlations from products; constant columns have no correlations."""
    both = np.concatenate([check.candidates, check.others])
    left = check.candidates
    covariance = products - design.total_weight * np.outer(design.means[left], design.means[both])
    scale = np.outer(np.sqrt(design.norms[left]), np.sqrt(design.norms[both]))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0)


class ScheduledLasso(_Scheduled, ResolveQuadratic):
    """Scheduled coordinate descent for the squared loss."""


class ScheduledLogistic(_Scheduled, ResolveSmooth):
    """Scheduled coordinate descent for other losses."""

    loss: Loss


def make_schedule(
    n_columns: int,
    order: str,
    n_parallel: int,
    max_correlation: float | None,
    seed: int,
    pipeline_depth: int = 1,
    n_schedulers: int = 1,
) -> DynamicRegressionSchedule:
    """Return the schedule "priority", "random" or "round_robin".

    If `max_correlation` is None, "priority" checks correlations with the limit 0.1, and the others do not check. 1
    means no check.
    """
    if max_correlation is None:
        max_correlation = _MAX_CORRELATION if order == "priority" else 1.0
    threshold = max_correlation if max_correlation < 1.0 else None
    sampler = make_sampler(
        order, n_columns, np.random.default_rng(seed), min(n_schedulers, n_columns)
    )
    return DynamicRegressionSchedule(
        sampler, min(n_parallel, n_columns), threshold, pipeline_depth=pipeline_depth
    )
