"""Newton steps with all rows in one place: on a sparse working set, and on few columns at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.descent import LEAST_CURVATURE, PASS_LEFT, Rounded
from schmp_estimators.linear.kernels.smooth import FLAT, MOST_HALVINGS, RISE
from schmp_estimators.linear.kernels.sparse import Quadratic, sparse_combine, sparse_moments
from schmp_estimators.linear.losses.base import Loss, Seen, Steps
from schmp_estimators.linear.penalties.base import Penalty, merit, multiple_of, sizes, take
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.joint_jobs import decision_of, look
from schmp_estimators.linear.programs.matrix import Columns, Floats, Indices
from schmp_estimators.linear.programs.residual import Pace, ResidualProblem, ridges_of
from schmp_estimators.linear.programs.stored import Dense

#: If the merit is at most this multiple of its goal, one more Newton step is enough, because
#: convergence is quadratic.
_ONE_MORE = 50.0
_MANY_HALVINGS = 3
#: From zero, larger penalties come first: the first relative to the largest with a nonzero
#: solution, and the ratio of the following ones.
_FIRST, _NEXT = 0.1, 0.2
#: Part of its first size to which the gap on likely columns falls before all columns are checked.
_TRUSTED = 0.01


def damped(damping: float, halvings: int) -> float:
    """Return the damping after a step that was halved `halvings` times.

    If the curvature at a point differs from that nearby, as for losses with flat pieces, a larger
    curvature is used.  With damping 1, the upper bound on the curvature, every step lowers the
    objective.
    """
    if halvings >= _MANY_HALVINGS:
        return min(1.0, max(10.0 * damping, 0.01))
    return 0.1 * damping if halvings == 0 and damping > 1e-3 else 0.0 if halvings == 0 else damping


def stages(
    penalty: Penalty, highest: float, goal: float, most: int
) -> Iterator[tuple[Penalty, float, int]]:
    """Yield falling penalties, each with the part of its merit to leave and its maximum number of steps.

    `highest` is the multiple of the penalty for which the start is the solution, or zero if there
    is none.
    """
    part = _FIRST * highest
    while part > 1.0:
        yield penalty.scaled(part), 0.0, 1
        part *= _NEXT
    yield penalty, goal, most


@dataclass
class SmoothWorkingSet:
    """A point of the problem on a working set, with all rows in one place."""

    loss: Loss
    columns: Columns
    #: u + b
    decision: Floats
    target: Floats
    weights: Floats
    coef: Floats
    fit_intercept: bool
    penalty: Penalty
    #: smallest curvature of a row, relative to the largest
    damping: float
    #: change of the intercept
    level: float = 0.0
    #: number of columns visited
    visited: float = 0.0

    def solve(self, pace: Pace, part: float, floor: float, may_finish: bool, most: int) -> None:
        """Make at most `most` Newton steps, while more than `part` of the first merit is left.

        A last step that descent alone can make is cheap, and is made in any case.
        """
        goal = np.inf
        for number in range(most):
            seen = self._look(self.decision)
            problem, gradient, push = self._model(seen)
            distance = self._merit(problem, gradient)
            last = number > 0 and distance <= goal
            if last and pace.second_order:
                return
            if not number:
                goal = max(part * distance, floor)
            descends = not pace.second_order and problem.descend(gradient, PASS_LEFT)
            if not descends:
                merit_of = partial(self._merit, problem)
                problem.solve(merit_of, 0.1 * distance, pace, may_finish, rounds=30)
            self.visited += problem.visited
            self._search(problem, seen.loss, push)
            if descends and (last or distance <= _ONE_MORE * floor):
                return

    def _look(self, decision: Floats) -> Seen:
        return look(self.loss, decision[None], self.target, self.weights, self.damping)

    def _merit(self, problem: ResidualProblem, gradient: Floats) -> float:
        return merit(self.penalty, problem.coef, gradient, problem.quadratic.norms)

    def _model(self, seen: Seen) -> tuple[ResidualProblem, Floats, float]:
        """Return the quadratic model, its gradient, and the step of the intercept alone."""
        curvature, count, push = np.maximum(seen.curvature[0], LEAST_CURVATURE), len(self.coef), 0.0
        if self.fit_intercept:
            push = float(seen.slope.sum() / curvature.sum())
        residual = seen.slope[0] - push * curvature
        sums, squares, gradient = np.empty((3, count))
        sparse_moments(self.columns, freeze(residual), freeze(curvature), sums, squares, gradient)
        if self.fit_intercept:
            means = sums / curvature.sum()
            squares = np.maximum(squares - sums * means, FLAT * squares)
        else:
            means = sums = np.zeros(count)
        ridges = ridges_of(self.penalty, count)
        quadratic = freeze(Quadratic(squares, means, sums, curvature, ridges))
        given = self.columns, quadratic, self.coef.copy(), residual, self.penalty
        return ResidualProblem(*given), gradient, push

    def _search(self, problem: ResidualProblem, loss: float, push: float) -> None:
        """Go to the solution of the model, halved while the objective does not fall."""
        change = problem.coef - self.coef
        moved = np.flatnonzero(change)
        image = np.zeros_like(self.decision)
        sparse_combine(self.columns, freeze(moved), freeze(change[moved]), image)
        shift = push - float(problem.quadratic.means @ change)
        before = loss + self.penalty.value(self.coef)
        length = 1.0
        for halvings in range(MOST_HALVINGS):
            coef, decision = self.coef + length * change, self.decision + length * (image + shift)
            after = self._look(decision).loss + self.penalty.value(coef)
            if after <= before * (1.0 + RISE):
                self.coef, self.level = coef, self.level + length * shift
                self.decision, self.damping = decision, damped(self.damping, halvings)
                return
            length *= 0.5
        self.damping = damped(self.damping, MOST_HALVINGS)


#: Columns whose gradient exceeds this part of the limit are likely to have a coefficient.
_LIKELY = 0.95
#: Maximum number of steps on one choice of columns.
_MOST_STEPS = 20


class Descend(NamedTuple):
    """Make Newton steps on some columns without changing decision values.

    Only if one partition has all rows.
    """

    loss: Any
    #: columns, and if X is dense their means and lengths; coefficients; exact gradient
    columns: Indices
    means: Floats
    lengths: Floats
    coef: Floats
    gradient: Floats
    levels: Floats
    penalty: Penalty
    fit_intercept: bool
    #: part of the gap to leave
    goal: float
    #: positions of columns that may not join
    still: Indices

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, Steps]]:
        """Make steps on the columns that violate their condition, or nearly do.

        When the gap on these columns has fallen to a part of its first size, all columns are
        checked for further violations.  From zero, larger penalties are solved first, so that few
        unnecessary columns join.  Returns the coefficients of these columns, and the results of the
        steps, with the intercept.
        """
        highest = 0.0 if self.coef.any() else multiple_of(self.penalty, self.gradient)
        all_coef, decision = self.coef.copy(), decision_of(rows, self.levels)[0]
        slope, level, visited = self._slope(rows, decision), 0.0, 0.0
        gradient, found = self.gradient, Steps(0.0, 0.0, np.inf, arrived=False, hard=False)
        for penalty, target, most in stages(self.penalty, highest, self.goal, _MOST_STEPS):
            for part in (_TRUSTED, 0.0) if most > 1 else (0.0,):
                if found.gap < np.inf:
                    slope = self._slope(rows, decision)
                    gradient = rows.matrix.gradient(slope, self.columns)
                    if len(self.means):
                        gradient -= slope.sum() * self.means
                    gradient[self.still] = 0.0
                near = sizes(penalty, gradient) > _LIKELY * penalty.strengths
                likely = np.flatnonzero((all_coef != 0.0) | near)
                coef = all_coef[likely]
                columns = self._some(rows, likely, gradient, slope)
                given = decision, rows.target, rows.weights, coef, take(penalty, likely)
                end = self.fit_intercept, target, part, most
                found = self.loss.descend(columns, *given, *end)
                all_coef[likely] = coef
                level, visited = level + found.level, visited + found.visited + len(all_coef)
                if found.gap <= target or not found.arrived:
                    break
        if len(self.means):
            level -= float(self.means @ (all_coef - self.coef))
        arrived = found.gap <= self.goal
        return rows, (all_coef, found._replace(level=level, visited=visited, arrived=arrived))

    def _some(
        self, rows: RowPartition, chosen: Indices, gradient: Floats, slope: Floats
    ) -> Columns | Rounded:
        """Return some of the columns; dense ones are rounded, less their means."""
        columns = self.columns[chosen]
        if not len(self.means):
            return rows.matrix.compressed(columns)
        taken, lengths = rows.matrix.take_dense(columns), self.lengths[chosen]
        taken -= self.means[chosen, None]
        values = np.empty(taken.shape, np.float32)
        np.multiply(taken, 1.0 / lengths[:, None], out=values, casting="same_kind")
        products = Dense(freeze(values), False).gradient(slope, None)
        return freeze(Rounded(values, lengths, gradient[chosen] - lengths * products))

    def _slope(self, rows: RowPartition, decision: Floats) -> Floats:
        """Return the slopes at decision values u + b, with the intercept of the quadratic model."""
        level, slope, curvature = self.loss.derivatives(decision, rows.target, rows.weights, 0.0)
        if self.fit_intercept and level.curvature > 0.0:
            slope = slope - (level.slope / level.curvature) * curvature
        return slope
