"""The schedules of the papers as programs: a few coefficients at a time, all from the same residual.

A round updates n_parallel coefficients by their own one-dimensional minimisers (Lee et al., NIPS 2014, section 3.3;
Bradley et al., ICML 2011).  Now and then a full gradient certifies the point and refreshes the priorities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.dynamic_regression import Check, DynamicRegressionSchedule
from schmp_estimators.core.schedules.priority import PrioritySampler, RandomSampler, RoundRobin
from schmp_estimators.linear.programs import logistic_jobs
from schmp_estimators.linear.programs.jobs import Advance, RowPartition
from schmp_estimators.linear.programs.lasso import ResolveLasso
from schmp_estimators.linear.programs.logistic import LogisticModel, ResolveLogistic
from schmp_estimators.linear.programs.matrix import Floats, Indices, SparseByColumns
from schmp_estimators.linear.programs.model import NO_COLUMNS, Model

#: The objective may rise to this multiple of its value at zero before a fit counts as diverging.
_DIVERGED = 1e3
#: A change of this size ends the rounds at once, before numbers overflow.
_RUNAWAY = 1e50
#: Largest correlation of columns that "priority" updates together, unless the user says otherwise.
_MAX_CORRELATION = 0.1


class Round(NamedTuple):
    """One round: apply the changes of earlier rounds, take partial gradients, answer a check."""

    moved: Indices
    change: Floats
    #: x̄ᵀΔ for a linear model, the intercept for a logistic one
    level: float
    columns: Indices
    check: Check | None
    means: Floats
    logistic: bool

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, float, Any]]:
        """Return x̃_jᵀ(slope) over `columns`, Σ slope, and the products of the checked columns."""
        state = rows.state
        if len(self.moved):
            step = rows.matrix.combine(self.moved, self.change)
            state = state + step if self.logistic else state - step + self.level
        if self.logistic:
            slope = logistic_jobs.derivatives(state, rows.target, rows.weights, self.level).slope
        else:
            slope = rows.weigh(state)
        gradient = rows.matrix.gradient(slope, self.columns) if len(self.columns) else np.empty(0)
        products = _products(rows, self.check) if self.check is not None else 0.0
        return rows._replace(state=state), (gradient, float(slope.sum()), products)


def _products(rows: RowPartition, check: Check) -> Floats:
    """Return Σ s x_j x_k of the candidates with themselves and the others."""
    both = np.concatenate([check.candidates, check.others])
    if isinstance(rows.matrix, SparseByColumns):
        values, indices, starts = rows.matrix.take_sparse(both)
        block = sp.csc_array((values, indices, starts), shape=(rows.matrix.n_rows, len(both)))
        left = block[:, : len(check.candidates)]
        if len(rows.weights):
            left = left.multiply(rows.weights[:, None]).tocsc()
        return (left.T @ block).toarray()
    taken = rows.matrix.take_dense(both)
    return rows.weigh(taken[: len(check.candidates)]) @ taken.T


class Loss(Protocol):
    """What a scheduled program needs to know of the loss."""

    logistic: bool
    #: bound of the curvature in units of ‖x_j‖²
    curvature: float


class SquaredLoss:
    """½ s (y − x·β − b)²."""

    logistic = False
    curvature = 1.0


class LogisticLoss:
    """s ln(1 + e^{−y(x·β + b)}), with its curvature bounded by ¼."""

    logistic = True
    curvature = 0.25


@dataclass
class Rounds:
    """Where a fit stands between certificates."""

    schedule: DynamicRegressionSchedule
    #: (p,) coefficients that the partitions know
    known: Floats
    left: int = 0
    in_flight: int = 0
    updates: int = 0

    def take_pending(self, model: Model) -> tuple[Indices, Floats, float]:
        """Return the changes that the partitions do not know yet, and x̄ᵀΔ."""
        difference = model.coef - self.known
        moved = np.flatnonzero(difference)
        self.known[moved] = model.coef[moved]
        return moved, difference[moved], float(model.means[moved] @ difference[moved])


class _Scheduled:
    """Rounds between certificates; mixed into the program that certifies."""

    def __init__(self, loss: Loss, make_schedule: Callable[[int], DynamicRegressionSchedule]) -> None:
        self.sparse = False
        self.loss = loss
        self.make_schedule = make_schedule

    def schedule(self, model: Model) -> Any:
        """Return the next job: a round, or, when the rounds have been aggregated, a step of the certificate."""
        if model.job is not None:
            job, model.job = model.job, None
            return job
        if model.rounds is None or model.rounds.left == 0:
            return None
        model.rounds.left -= 1
        model.rounds.in_flight += 1
        return self._round(model)

    def _round(self, model: Model) -> Round:
        columns, check = model.rounds.schedule.next_round()
        columns = np.sort(columns)
        moved, change, offset = model.rounds.take_pending(model)
        level = model.level if self.loss.logistic else offset
        model.rounds.updates += len(columns)
        return Round(moved, change, level, columns, check, model.means, self.loss.logistic)

    def _begin_rounds(self, model: Model, gradient: Floats) -> None:
        """Refresh the priorities after a certificate, and set out for the next rounds."""
        if model.rounds is None:
            model.rounds = Rounds(self.make_schedule(model.n_columns), model.coef.copy())
        rounds: Rounds = model.rounds
        sampler = rounds.schedule.sampler
        if isinstance(sampler, PrioritySampler):
            sampler.refresh(self._steps(model, np.arange(model.n_columns), gradient))
        model.n_iter = int(np.ceil(rounds.updates / max(1, model.n_columns)))
        diverged = not np.isfinite(model.objective) or model.objective > _DIVERGED * model.null_objective
        if not diverged and model.n_iter < model.max_iter:
            rounds.left = max(10, model.n_columns // (2 * rounds.schedule.n_parallel))
        else:
            self.finish(model)

    def finish(self, model: Model) -> None:
        """End the rounds, and the fit."""
        if model.rounds is not None:
            model.rounds.left = 0
        super().finish(model)  # type: ignore[misc]

    def _steps(self, model: Model, columns: Indices, gradient: Floats) -> Floats:
        """Return the changes to the one-dimensional minimisers of `columns`."""
        norms = self.loss.curvature * model.norms[columns]
        old = model.coef[columns]
        usable = norms > 0.0
        aim = gradient + norms * old
        shrunk = np.maximum(aim - model.penalty, 0.0)
        if not model.positive:
            shrunk -= np.maximum(-aim - model.penalty, 0.0)
        return np.where(usable, shrunk / np.where(usable, norms, 1.0) - old, 0.0)

    def _end_round(self, model: Model, job: Round, partials: Sequence[Any]) -> None:
        rounds: Rounds = model.rounds
        gradient, balance, products = tree_sum(partials)
        gradient = gradient - balance * model.means[job.columns]
        change = self._steps(model, job.columns, gradient)
        model.coef[job.columns] += change
        if not np.abs(change).max(initial=0.0) < _RUNAWAY:
            rounds.left = 0
        model.touched += len(job.columns) * float(model.n_rows)
        if self.loss.logistic and model.fit_intercept:
            # the changes are those of centred columns
            centring = float(model.means[job.columns] @ change)
            model.level += balance / (self.loss.curvature * model.total_weight) - centring
        if isinstance(rounds.schedule.sampler, PrioritySampler):
            rounds.schedule.sampler.record(job.columns, change)
        rounds.schedule.answer(job.check, None if job.check is None else _correlations(model, job.check, products))
        rounds.in_flight -= 1
        if rounds.left == 0 and rounds.in_flight == 0:
            moved, change, offset = rounds.take_pending(model)
            if self.loss.logistic:
                model.job = logistic_jobs.Shift(moved, change, model.level)
            else:
                model.job = Advance(moved, change, offset, None)


def _correlations(model: Model, check: Check, products: Floats) -> Floats:
    """Return correlations from raw products; columns without variance correlate with nothing."""
    both = np.concatenate([check.candidates, check.others])
    left = check.candidates
    covariance = products - model.total_weight * np.outer(model.means[left], model.means[both])
    scale = np.sqrt(np.outer(model.norms[left], model.norms[both]))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0)


class ScheduledLasso(_Scheduled, ResolveLasso):
    """The Lasso by scheduled coordinate descent."""

    def aggregate(self, model: Model, job: Any, partials: Sequence[Any]) -> None:
        """Take a round, or a step of the certificate, into the model."""
        if isinstance(job, Round):
            self._end_round(model, job, partials)
        else:
            super().aggregate(model, job, partials)

    def _continue(self, model: Model, gradient: Floats, scale: float, gap: float) -> None:
        self._begin_rounds(model, gradient)


class ScheduledLogistic(_Scheduled, ResolveLogistic):
    """Sparse logistic regression by scheduled coordinate descent."""

    def aggregate(self, model: LogisticModel, job: Any, partials: Sequence[Any]) -> None:
        """Take a round, or a step of the certificate, into the model."""
        if isinstance(job, Round):
            self._end_round(model, job, partials)
        else:
            super().aggregate(model, job, partials)

    def _continue(self, model: LogisticModel, dual: float) -> None:
        model.previous_objective, model.last_columns = np.inf, NO_COLUMNS
        self._begin_rounds(model, model.gradient)


def scheduled_program(
    loss: Loss,
    schedule: str,
    n_parallel: int,
    max_correlation: float | None,
    seed: int,
    pipeline_depth: int = 1,
) -> Any:
    """Return the program of the schedule "priority", "random" or "round_robin" for a loss.

    With `max_correlation` None, "priority" checks dependencies at 0.1 and the others do not; a number holds for each of
    them, and 1 means no check.
    """
    if max_correlation is None:
        max_correlation = _MAX_CORRELATION if schedule == "priority" else 1.0
    threshold = max_correlation if max_correlation < 1.0 else None

    def make(n_columns: int) -> DynamicRegressionSchedule:
        random = np.random.default_rng(seed)
        samplers: dict[str, Callable[[], Any]] = {
            "priority": lambda: PrioritySampler(n_columns, random),
            "random": lambda: RandomSampler(n_columns, random),
            "round_robin": lambda: RoundRobin(n_columns),
        }
        count = min(n_parallel, n_columns)
        return DynamicRegressionSchedule(samplers[schedule](), count, threshold, pipeline_depth=pipeline_depth)

    return ScheduledLogistic(loss, make) if loss.logistic else ScheduledLasso(loss, make)
