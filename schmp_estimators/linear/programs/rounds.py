"""The schedules of the papers as programs: a few coefficients at a time, all from the same residual.

A round updates n_parallel coefficients by their own one-dimensional minimisers (Lee et al., NIPS
2014, section 3.3; Bradley et al., ICML 2011).  From time to time a full gradient gives the duality
gap and updates all priorities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.engine.dynamic import Overlapping, Steps
from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    DynamicRegressionSchedule,
    Moves,
)
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import proximal_steps
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import take
from schmp_estimators.linear.programs.certificate import ROUNDING
from schmp_estimators.linear.programs.design import NO_CHANGE, Design
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.joint_jobs import seen_of
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.solution import Point, Solution

#: A fit counts as diverging if the objective exceeds this multiple of its value at zero.
_DIVERGED = 1e3
#: A change of the residual by this multiple of the square root of the objective at zero ends the
#: rounds, before numbers overflow.
_RUNAWAY = 1e50


class Round(NamedTuple):
    """One round: apply the changes of earlier rounds, compute partial gradients and the products for a check."""

    moved: Indices
    change: Floats
    #: (1, f) coefficients of F
    levels: Floats
    columns: Indices
    check: Check | None
    means: Floats
    loss: Loss
    n_rows: int = 0

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, float, Any]]:
        """Return x̃_jᵀ(slope) over `columns`, Σ slope, and the products of the checked columns."""
        state = rows.state
        if len(self.moved):
            state = state + rows.matrix.combine(self.moved, self.change)
        slope = seen_of(self.loss, rows._replace(state=state), self.levels).slope[0]
        gradient = rows.matrix.gradient(slope, self.columns) if len(self.columns) else np.empty(0)
        products = 0.0 if self.check is None else self._products(rows, self.check)
        return rows._replace(state=state), (gradient, float(slope.sum()), products)

    def _products(self, rows: RowPartition, check: Check) -> Floats:
        """Return Σ s x_j x_k of the candidates with both; on a sample of rows, of centred columns."""
        both, count = check.both, len(check.candidates)
        if check.rows is not None:
            stop = rows.first + rows.matrix.n_rows
            drawn = check.rows.within(self.n_rows, rows.first, stop)
            taken = rows.matrix.take_dense(both, drawn) - self.means[both, None]
            return (
                rows.weights[drawn] * taken[:count] if len(rows.weights) else taken[:count]
            ) @ taken.T
        if rows.matrix.is_sparse:
            columns = tuple(rows.matrix.compressed(both))
            block = sp.csc_array(columns, shape=(rows.matrix.n_rows, len(both)))
            left = block[:, :count]
            if len(rows.weights):
                left = left.multiply(rows.weights[:, None]).tocsc()
            return (left.T @ block).toarray()
        taken = rows.matrix.take_dense(both)
        return rows.weigh(taken[:count]) @ taken.T


class Scheduled(Resolve):
    """Overlapping rounds between two gaps; columns without a penalty are fitted with the intercept."""

    def __init__(self, *given: Any, rounds: DynamicRegressionSchedule, **start: Any) -> None:
        super().__init__(*given, **start)
        self.rounds = rounds
        #: coefficients of all columns, those that the partitions know, and rounds until the next
        #: gap
        self._coef = self._known = NO_CHANGE
        self._left = 0
        #: coefficients updated so far, and entries of X multiplied to check them
        self._updates, self._checked = 0, 0.0
        #: what updates since the last gap or pass would each lower alone, added up; and their end
        self._lowered, self._end = 0.0, 0
        #: whether changes have become so large that numbers would overflow
        self._ran_away = False

    def _pending(self) -> tuple[Indices, Floats]:
        """Return the changes of coefficients that the partitions do not know yet, and count them as known."""
        difference = self._coef - self._known
        moved = np.flatnonzero(difference)
        self._known[moved] = self._coef[moved]
        return moved, difference[moved]

    def schedule(self, point: Point) -> Round | None:
        """Return the next round, or None if it is time for a gap."""
        if self._left == 0 and not self._goes_on():
            return None
        self._left -= 1
        columns, check = self.rounds.next_round()
        columns = np.sort(columns)
        moved, change = self._pending()
        means = self.design.means
        self._updates += len(columns)
        given = moved, change, point.level.copy(), columns, check, means, self.loss
        return Round(*given, self.design.n_rows)

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
        self._coef[columns] += change
        lengths = np.abs(change) * np.sqrt(design.norms[columns])
        runs_away = not lengths.max(initial=0.0) < _RUNAWAY * np.sqrt(
            self.certificate.null_objective
        )
        if runs_away:
            self._left, self._ran_away = 0, True
        else:
            self._lowered += 0.5 * float(lengths @ lengths)
        self.work.touched += len(columns) * float(design.n_rows)
        if design.fit_intercept:
            # the changes are those of centred columns
            centring = float(design.means[columns] @ change)
            point.level[0, 0] += balance / (self.loss.smoothness * design.total_weight) - centring
        if not runs_away:
            self.rounds.record(columns, change)
        found = None
        if job.check is not None:
            found = _correlations(design, job.check, products)
            drawn = job.check.rows
            touched = products.size * float(design.n_rows if drawn is None else drawn.n_drawn)
            self.work.touched += touched
            self._checked += touched
        self.rounds.answer(job.check, found)

    def step(self) -> Steps:
        """Make rounds until it is time for a gap; go back if they have raised the objective."""
        point, before = self.point, self.certificate.objective
        kept = point.coef.copy(), point.level.copy()
        self._coef = self._over_columns(point.coef)
        self._known = self._coef.copy()
        between = self.rounds.rounds_between
        if between is not None:
            self._refresh_priorities()
        self._left, self._ran_away = between or 1, False
        self._lowered, self._end = 0.0, self._of_pass()
        yield Overlapping(self, point, self.rounds.pipeline_depth)
        self.point.coef = self._coef[None, self.layout.order]
        moved, change = self._pending()
        yield from self.advance(moved, change[None])
        if not self.certificate.objective <= before * (1.0 + ROUNDING) and self.rounds.halve():
            point.coef, point.level = kept
            yield from self.refresh()
            self._refresh_priorities()

    def _over_columns(self, values: Floats) -> Floats:
        """Return coefficients, or a gradient, as those of all columns."""
        every = np.zeros(self.design.n_columns)
        every[self.layout.order] = values[0]
        return every

    def _refresh_priorities(self) -> None:
        columns = np.arange(self.design.n_columns)
        self._coef = self._over_columns(self.point.coef)
        self.rounds.refresh(self._steps(columns, self._over_columns(self.point.gradient)))

    def _of_pass(self) -> int:
        """Return the number of updates at the end of the next pass."""
        return self._updates + self.design.n_columns

    def _goes_on(self) -> bool:
        """Return whether rounds go on without a gap, as long as passes of them lower enough."""
        most = self.max_iter * self.design.n_columns
        if self.rounds.rounds_between is not None or self._ran_away or self._updates >= most:
            return False
        if self._updates >= self._end:
            if not self.loss.smoothness * self._lowered > self.certificate.tolerance:
                return False
            self._lowered, self._end = 0.0, self._of_pass()
        self._left = 1
        return True

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
        known = {"updates": self._updates, "checked": self._checked}
        return {**super().state(), **known, "schedule": self.rounds.save()}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore a state, also that of the schedule."""
        yield from super().recover(state)
        self._updates, self._checked = state["updates"], state["checked"]
        self.rounds.restore(state["schedule"])

    def record(self) -> dict[str, float]:
        """Return the record of the present point, and what the rounds have cost."""
        counts = {"updates": self._updates, "checked": int(self._checked)}
        return {**super().record(), **counts}

    def solution(self) -> Solution:
        """Return the present point, and what the schedule has recorded."""
        moves = self.rounds.moves
        if moves is not None:
            moves = Moves(moves.n_updates.copy(), moves.last_moved.copy())
        return replace(super().solution(), moves=moves)

    def _steps(self, columns: Indices, gradient: Floats) -> Floats:
        """Return the steps to the one-dimensional minimisers of `columns`."""
        norms, old = self.loss.smoothness * self.design.norms[columns], self._coef[columns]
        penalty, change = take(self.penalty, columns), np.empty(len(columns))
        take_steps = compiled_for(penalty, proximal_steps)
        take_steps(
            freeze(gradient + norms * old), freeze(norms), freeze(old), freeze(penalty), change
        )
        change[np.isin(columns, self.layout.free)] = 0.0
        return change


def _correlations(design: Design, check: Check, products: Floats) -> Floats:
    """Return correlations from products; constant columns have no correlations."""
    left, both = check.candidates, check.both
    if check.rows is not None:
        covariance = products * (design.n_rows / check.rows.n_drawn)
    else:
        centring = np.outer(design.means[left], design.means[both])
        covariance = products - design.total_weight * centring
    scale = np.outer(np.sqrt(design.norms[left]), np.sqrt(design.norms[both]))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0)
