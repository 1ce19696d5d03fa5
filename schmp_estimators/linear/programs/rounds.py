"""The schedules of the papers as programs: a few coefficients at a time, all from the same residual.

A round updates n_parallel coefficients by their own one-dimensional minimisers (Lee et al., NIPS 2014, section 3.3;
Bradley et al., ICML 2011).  From time to time a full gradient gives the duality gap and updates all priorities.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.engine.dynamic import Overlapping, Steps
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.dynamic_regression import Check, DynamicRegressionSchedule, make_sampler
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import proximal_steps
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import compiled_for, take
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.jobs import Advance, RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices, SparseByColumns, take_sparse
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic
from schmp_estimators.linear.programs.resolve import Resolve, ToPoint
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


@dataclass
class Rounds:
    """The state of a fit between two gaps."""

    schedule: DynamicRegressionSchedule
    #: (p,) coefficients that the partitions know
    known: Floats
    left: int = 0
    updates: int = 0

    def take_pending(self, model: Model) -> tuple[Indices, Floats, float]:
        """Return the changes that the partitions do not know yet, and x̄ᵀΔ."""
        difference = model.coef - self.known
        moved = np.flatnonzero(difference)
        self.known[moved] = model.coef[moved]
        return moved, difference[moved], float(model.means[moved] @ difference[moved])


class _Scheduled(Resolve):
    """Mixin that makes overlapping rounds between two gaps; the other base class computes gaps."""

    #: None for the squared loss
    loss: Loss | None = None

    def __init__(
        self,
        model: Any,
        make_schedule: Callable[[int], DynamicRegressionSchedule],
        pipeline_depth: int = 1,
        **given: Any,
    ) -> None:
        super().__init__(model, **given)
        #: upper bound on the curvature of the loss in units of ‖x_j‖²
        self.curvature = self.loss.smoothness if self.loss is not None else 1.0
        self.make_schedule = make_schedule
        self.pipeline_depth = pipeline_depth

    @cached_property
    def rounds(self) -> Rounds:
        """The state between two gaps, once columns are known."""
        return Rounds(self.make_schedule(self.model.n_columns), self.model.coef.copy())

    def schedule(self, model: Model) -> Round | None:
        """Return the next round, or None if it is time for a gap."""
        rounds = self.rounds
        if rounds.left == 0:
            return None
        rounds.left -= 1
        columns, check = rounds.schedule.next_round()
        columns = np.sort(columns)
        moved, change, offset = rounds.take_pending(model)
        level = model.level if self.loss is not None else offset
        rounds.updates += len(columns)
        return Round(moved, change, level, columns, check, model.means, self.loss)

    @staticmethod
    def update(rows: RowPartition, job: Round) -> tuple[RowPartition, Any]:
        """Do a round on one row partition."""
        return job(rows)

    def aggregate(self, model: Model, job: Round, partials: Sequence[Any]) -> None:
        """Update the model with the results of a round."""
        rounds, (gradient, balance, products) = self.rounds, tree_sum(partials)
        gradient = gradient - balance * model.means[job.columns]
        change = self._steps(model, job.columns, gradient)
        model.coef[job.columns] += change
        lengths = np.abs(change) * np.sqrt(model.norms[job.columns])
        if not lengths.max(initial=0.0) < _RUNAWAY * np.sqrt(model.null_objective):
            rounds.left = 0
        model.touched += len(job.columns) * float(model.n_rows)
        if self.loss is not None and model.fit_intercept:
            # the changes are those of centred columns
            centring = float(model.means[job.columns] @ change)
            model.level += balance / (self.curvature * model.total_weight) - centring
        rounds.schedule.sampler.record(job.columns, change)
        found = None
        if job.check is not None:
            model.touched += products.size * float(model.n_rows)
            found = _correlations(model, job.check, products)
        rounds.schedule.answer(job.check, found)

    def step(self, gradient: Floats) -> ToPoint:
        """Make rounds until it is time for a gap."""
        model, rounds = self.model, self.rounds
        rounds.known[:] = model.coef  # columns without a penalty were updated when the gap was computed
        rounds.schedule.sampler.refresh(self._steps(model, np.arange(model.n_columns), gradient))
        rounds.left = max(10, model.n_columns // (2 * rounds.schedule.n_parallel))
        yield Overlapping(self, model, self.pipeline_depth)
        return (yield from self._end_rounds(*rounds.take_pending(model)))

    @abstractmethod
    def _end_rounds(self, moved: Indices, change: Floats, offset: float) -> ToPoint:
        """Send the last changes to the partitions, and compute the gap."""

    def count(self) -> int:
        """Return the number of passes made over all columns."""
        return int(np.ceil(self.rounds.updates / max(1, self.model.n_columns)))

    def exhausted(self) -> bool:
        """Return whether the fit has diverged, or has made all its passes."""
        model = self.model
        diverged = not np.isfinite(model.objective) or model.objective > _DIVERGED * model.null_objective
        return diverged or self.count() >= model.max_iter

    def state(self) -> dict[str, Any]:
        """Return the state of the schedule; after a gap no round is running, and partitions know all changes."""
        return {"updates": self.rounds.updates, "schedule": self.rounds.schedule.save()}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore the state of the schedule."""
        self.rounds.updates = state["updates"]
        self.rounds.schedule.restore(state["schedule"])
        yield from super().recover(state)

    def _steps(self, model: Model, columns: Indices, gradient: Floats) -> Floats:
        """Return the steps to the one-dimensional minimisers of `columns`."""
        norms, old = self.curvature * model.norms[columns], model.coef[columns]
        penalty, change = take(model.penalty, columns), np.empty(len(columns))
        take_steps = compiled_for(penalty, proximal_steps)
        take_steps(freeze(gradient + norms * old), freeze(norms), freeze(old), freeze(penalty), change)
        return change


def _correlations(model: Model, check: Check, products: Floats) -> Floats:
    """Return correlations from products; constant columns have no correlations."""
    both = np.concatenate([check.candidates, check.others])
    left = check.candidates
    covariance = products - model.total_weight * np.outer(model.means[left], model.means[both])
    scale = np.outer(np.sqrt(model.norms[left]), np.sqrt(model.norms[both]))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0)


class ScheduledLasso(_Scheduled, ResolveQuadratic):
    """Scheduled coordinate descent for the squared loss."""

    def _end_rounds(self, moved: Indices, change: Floats, offset: float) -> ToPoint:
        return (yield from self._look(tree_sum((yield Advance(moved, change, offset, None)))))


class ScheduledLogistic(_Scheduled, ResolveSmooth):
    """Scheduled coordinate descent for other losses."""

    loss: Loss

    def _end_rounds(self, moved: Indices, change: Floats, offset: float) -> ToPoint:
        shift = jobs.Shift(self.loss, moved, change, self.model.level)
        return (yield from self._look((yield from self._settle(shift))))


def schedule_maker(
    order: str,
    n_parallel: int,
    max_correlation: float | None,
    seed: int,
    pipeline_depth: int = 1,
    n_schedulers: int = 1,
) -> Callable[[int], DynamicRegressionSchedule]:
    """Return a function that makes the schedule "priority", "random" or "round_robin" for a number of columns.

    If `max_correlation` is None, "priority" checks correlations with the limit 0.1, and the others do not check. 1
    means no check.
    """
    if max_correlation is None:
        max_correlation = _MAX_CORRELATION if order == "priority" else 1.0
    threshold = max_correlation if max_correlation < 1.0 else None

    def make(n_columns: int) -> DynamicRegressionSchedule:
        sampler = make_sampler(order, n_columns, np.random.default_rng(seed), min(n_schedulers, n_columns))
        return DynamicRegressionSchedule(sampler, min(n_parallel, n_columns), threshold, pipeline_depth=pipeline_depth)

    return make
