"""Losses other than the squared loss, above all the logistic one, as a program: proximal Newton steps on a working set.

Objective Σ s_i ℓ(y_i, x_iᵀβ + b) + P(β), for logistic regression with ℓ = ln(1 + e^{−y(u + b)}), y ∈ {−1, 1}.  The
intercept b is not penalised.  It is optimised before every gap, because the dual point, s_i y_i p_i there, gives a
bound only if it adds up to zero.  One outer step:

    update      move the decision values; loss and its derivatives in b             (repeated until b is optimal)
    update      partial gradient over the likely columns; dual objective
    aggregate   duality gap; working set = support and worst violators
    update      Gram matrix weighted by the curvature (dense), or the columns of the working set (sparse)
    aggregate   solve the quadratic model; send the change, halved later if the objective should rise
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.kernels.smooth import FLAT, MOST_HALVINGS, RISE
from schmp_estimators.linear.losses.base import Level, Loss, steepness
from schmp_estimators.linear.penalties.base import Penalty, dual_scale, merit, take, weigh
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.gram import LARGEST_GRAM, GramProblem
from schmp_estimators.linear.programs.jobs import Gather, stacked
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import NO_CHANGE, NO_COLUMNS, Model
from schmp_estimators.linear.programs.offsets import Span, centre, check_small, find_span
from schmp_estimators.linear.programs.residual import Pace
from schmp_estimators.linear.programs.resolve import LEAST, Resolve, ToPoint
from schmp_estimators.linear.programs.smooth_point import (
    LEVEL_ROUNDING,
    LEVEL_TOLERANCE,
    Bracket,
    Descend,
    Point,
    damped,
    descent_of,
    level_tolerance,
    sparse_descent_of,
    suits,
)

#: Slope in the intercept, relative to the sum of weights, above which it is not the best one and no gap is computed.
_SETTLED = 1e-9
_RISE = 1e-11  # the objective may rise by this part if no step lowers it: such a rise is only rounding
_MOST_STEP_BACKS = 2
#: Newton steps on the columns without a penalty, and the longest step in units of the decision value
_MOST_NEWTON_STEPS, _LONGEST = 50, 5.0
#: Newton steps on a sparse working set, and the part of the merit to leave: with all violators, and with some
_ON_ALL, _ON_SOME = (8, 0.03), (2, 0.3)
_CHECKED = 1e-3  # when the gap has fallen to this part, a guess is checked on all columns

#: Steps that return the objective at the best intercept, and steps that return the change of coefficients.
_Settled = Generator[Any, Any, float]
_Solved = Generator[Any, Any, Floats]


@dataclass
class SmoothModel(Model):
    """The point of a fit with such a loss; `level` is the intercept b."""

    pace: Pace = field(default_factory=lambda: Pace(passes=8, settled=0.03, crossing=0.02))

    @property
    def distance(self) -> float:
        """Size of the intercept for centred columns, at least 1."""
        return max(1.0, abs(self.level + float(self.means @ self.coef)))

    @property
    def shifted_intercept(self) -> float:
        """Intercept b, for columns less `shifts`."""
        return self.level


class ResolveSmooth(Resolve):
    """Program of the schedule "resolve"."""

    model: SmoothModel

    def __init__(self, model: SmoothModel, loss: Loss, sparse: bool = False) -> None:
        super().__init__(model)
        self.loss = loss
        model.certified = loss.certified and model.penalty.certified
        self.sparse = sparse
        #: the columns without a penalty, and the remaining slopes along their directions
        self.unpenalised: Span | None = None
        self.unsettled = NO_CHANGE

    def begin(self) -> ToPoint:
        """Compute the moments of the columns, and evaluate the start; the gradient at zero follows from the moments."""
        model = self.model
        partials = yield from centre(model)
        sums = tree_sum(partials)
        model.set_moments(sums.total, sums.columns, sums.squares, sums.products)
        self.unpenalised = yield from find_span(model)
        known = getattr(self.loss, "at_zero", None)
        if known is not None:
            model.null_objective = sums.total * known(0.0)[0]
        else:
            level: Level = yield Sum(jobs.Shift(self.loss, NO_COLUMNS, NO_CHANGE, 0.0))
            model.null_objective = max((yield from self._at_zero()), LEAST * level.loss)
        check_small(model, self.loss.smoothness)
        model.tolerance *= model.null_objective
        objective = yield from self._settle(self._anew())
        if not objective <= model.null_objective and model.coef.any():
            model.coef[:] = 0.0  # a start that is worse than zero
            model.level = 0.0
            objective = yield from self._settle(self._anew())
        if known is None or model.coef.any():
            return (yield from self._look(objective))
        products = tree_sum([part.products_about(0.0) for part in partials])
        _, of_target, constant = known(model.level)
        gradient = model.take(of_target * products + constant * sums.columns, model.balance)
        return (yield from self._certify(objective, gradient))

    def _at_zero(self) -> _Settled:
        """Return the objective at zero coefficients with the best intercept, and leave the partitions at this point."""
        model, kept = self.model, (self.model.coef, self.model.level)
        model.coef = np.zeros_like(model.coef)
        objective = yield from self._settle(self._anew())
        model.coef, model.level = kept
        return objective

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Find the columns without a penalty again."""
        self.unpenalised = yield from find_span(self.model)
        yield from super().recover(state)

    def begin_again(self, previous: Penalty) -> ToPoint:
        """Evaluate the present solution with another penalty."""
        model = self.model
        check_small(model, self.loss.smoothness)
        model.step_backs = 0
        model.pace.relax()
        objective = model.objective + model.penalty.value(model.coef) - previous.value(model.coef)
        if model.full_gradient is None:
            return (yield from self._look(objective))
        return (yield from self._certify(objective, model.full_gradient))

    def refresh(self) -> ToPoint:
        """Compute the decision values of the present coefficients from scratch."""
        return (yield from self._look((yield from self._settle(self._anew()))))

    def verify(self) -> ToPoint:
        """Evaluate the present point on all columns."""
        return (yield from self._look(self.model.objective))

    def step(self, gradient: Floats) -> ToPoint:
        """Choose the working set, solve the quadratic model on it, and update the point."""
        model = self.model
        model.n_iter += 1
        if not self.sparse:
            gradient = model.look_at_likely(gradient, NO_COLUMNS, _CHECKED)
        kept = model.coef.copy(), model.level
        if self.sparse and (steps := sparse_descent_of(model, self.loss, gradient)) is not None:
            return (yield from self._descend(steps, kept))
        smaller, support = min(model.n_rows, model.n_columns), int(np.count_nonzero(model.coef))
        descends = not self.sparse and suits(self.loss, model, max(smaller // 2, support))
        least = 2000 if self.sparse else smaller // 2 if descends else max(100, smaller // 10)
        chosen, n_violators, complete = model.working_set(gradient, least, self.sparse)
        descent = descent_of(model, self.loss, chosen, gradient, complete) if descends else None
        if descent is not None:
            return (yield from self._descend(descent, kept))
        if self.sparse or len(chosen) > LARGEST_GRAM:
            effort = _ON_ALL if complete else _ON_SOME
            change = yield from self._solve_on_residual(chosen, n_violators, *effort)
        else:
            change = yield from self._solve_on_gram(chosen, gradient)
        moved = np.flatnonzero(change)
        return (yield from self._look((yield from self._move(chosen[moved], change[moved], kept))))

    def _descend(self, descent: Descend, kept: tuple[Floats, float]) -> ToPoint:
        """Make steps by descent; do not try again if they are slow or fail."""
        model, gap = self.model, self.model.gap
        [(coef, found)] = yield descent
        model.touched += found.visited * model.n_rows
        model.level, change = found.level, coef - descent.coef
        moved = np.flatnonzero(change)
        objective = yield from self._move(descent.columns[moved], change[moved], kept)
        if model.provisional and found.arrived and descent.goal <= model.tolerance:
            model.scope = None  # the columns of the scope need no evaluation of their own
        gradient = yield from self._look(objective)
        model.pace.second_order = found.hard or not model.gap < 0.5 * gap
        return gradient

    def exhausted(self) -> bool:
        """Return whether no further step is possible."""
        return self.model.exhausted or self.model.step_backs > _MOST_STEP_BACKS

    def _anew(self) -> jobs.Shift:
        support = np.flatnonzero(self.model.coef)
        return jobs.Shift(self.loss, support, self.model.coef[support], self.model.level, anew=True)

    def _move(self, columns: Indices, change: Floats, kept: tuple[Floats, float]) -> _Settled:
        """Change the coefficients, by a step that is halved while the objective rises; returns the objective.

        If no step lowers it, return to the point `kept`.  This may happen by rounding after large decision values, so
        they are then computed from scratch, at most twice.
        """
        model, before = self.model, self.model.objective
        model.coef[columns] += change
        objective = yield from self._settle(jobs.Shift(self.loss, columns, change, model.level))
        for halvings in range(MOST_HALVINGS):
            if objective <= before * (1.0 + RISE):
                model.damping = damped(model.damping, halvings)
                return objective
            change = 0.5 * change
            model.coef[columns] -= change
            objective = yield from self._settle(jobs.Shift(self.loss, columns, -change, model.level))
        model.damping = damped(model.damping, MOST_HALVINGS)
        if objective <= before * (1.0 + _RISE):
            return objective
        model.coef, model.level = kept
        model.step_backs += 1
        return (yield from self._settle(self._anew()))

    def _settle(self, shift: jobs.Shift) -> _Settled:
        """Update the decision values, and make Newton steps on the intercept until it is optimal."""
        model, bracket = self.model, Bracket()
        level: Level = yield Sum(shift)
        least = LEVEL_ROUNDING * model.total_weight
        suits = level_tolerance(model.penalty, model.total_weight) if model.fit_intercept else np.inf
        while model.fit_intercept:
            # the remaining slope enters the gap times the intercept, which may be large
            if not abs(level.slope) > max(min(suits, 0.01 * model.tolerance / model.distance), least):
                break
            place = bracket.next(model.level, level)
            if place is None:
                break
            model.level = place
            level = yield Sum(jobs.Shift(self.loss, NO_COLUMNS, NO_CHANGE, place))
        model.balance = level.slope if model.fit_intercept else 0.0
        model.steepness = steepness(self.loss, level, model.total_weight)
        loss = level.loss
        if self.unpenalised is not None and not self.rounded:
            loss = yield from self._settle_unpenalised(self.unpenalised)
        return loss + model.penalty.value(model.coef)

    def _settle_unpenalised(self, span: Span) -> _Settled:
        """Make Newton steps on the columns without a penalty and the intercept; returns the smallest loss.

        A step that raises it is halved.
        """
        model = self.model
        root = np.sqrt(model.total_weight)
        units = np.concatenate([[root], np.ones(span.basis.shape[1])])
        found: jobs.Curved = yield Sum(jobs.Free(self.loss, NO_CHANGE, model.level, span, model.fit_intercept))
        for _ in range(_MOST_NEWTON_STEPS):
            if (np.abs(found.slope) <= root * units * LEVEL_TOLERANCE).all():
                break
            # directions have the same length, so that directions without curvature are found
            step = np.linalg.pinv(found.curvature / np.outer(units, units), hermitian=True) @ (found.slope / units)
            step *= min(1.0, _LONGEST * root / max(1e-300, float(np.abs(step).max())))
            for _ in range(MOST_HALVINGS):
                change = span.basis @ step[1:]
                level = model.level + step[0] / root - float(span.means @ change)
                tried: jobs.Curved = yield Sum(jobs.Free(self.loss, change, level, span, model.fit_intercept))
                if tried.loss <= found.loss * (1.0 + 1e-15):
                    break
                yield Sum(jobs.Free(self.loss, -change, model.level, span, model.fit_intercept))
                step = 0.5 * step
            else:
                break
            model.coef[span.columns] += change
            model.level, found = level, tried
        model.balance = float(found.slope[0])
        self.unsettled = np.abs(found.slope[1:])
        return found.loss

    def _look(self, objective: float) -> ToPoint:
        """Compute the gradient at the present point, and the gap."""
        slope = jobs.Slope(self.loss, self.model.level, self.model.scope)
        gradient = self.model.take((yield Sum(slope)), self.model.balance)
        return (yield from self._certify(objective, gradient))

    def _certify(self, objective: float, gradient: Floats) -> ToPoint:
        """Compute the gap at the present point, from the dual objective at the scaled slopes."""
        model = self.model
        coef, penalty = model.coef[model.scope_columns()], model.scope_penalty()
        if not model.certified:
            norms = model.steepness * model.norms[model.scope_columns()]
            model.certify(objective, merit(penalty, coef, gradient, norms))
            return gradient
        scale = dual_scale(penalty, coef, gradient)
        dual = yield Sum(jobs.Dual(self.loss, model.level, scale))
        dual -= 0.5 * scale**2 * weigh(penalty.ridges, coef * coef)
        # if Σ s y p is δ instead of zero, the bound is lower by b·δ; likewise for columns without a penalty
        dual -= 2.0 * abs(model.balance) * model.distance
        settled = abs(model.balance) <= _SETTLED * model.total_weight
        if self.unpenalised is not None:
            length = np.sqrt(model.total_weight)
            present = self.unpenalised.coordinates(model.coef[self.unpenalised.columns])
            dual -= 2.0 * float(self.unsettled @ (length + np.abs(present)))
            settled &= not self.rounded and bool((self.unsettled <= _SETTLED * length).all())
        model.certify(objective, objective - dual if settled else np.inf)
        return gradient

    def _solve_on_gram(self, chosen: Indices, scoped: Floats) -> _Solved:
        """Solve the quadratic model on its Gram matrix, with the intercept eliminated."""
        model = self.model
        least = model.damping * model.steepness
        weighted = jobs.WeightedGram(self.loss, chosen, model.level, model.means, least)
        gram, weighted_sums, total, energy = yield Sum(weighted)
        means = weighted_sums / total
        if model.fit_intercept:
            raw = np.diagonal(gram).copy()
            gram = gram - np.outer(weighted_sums, means)
            # a column that is constant in rows with curvature may still become zero
            np.fill_diagonal(gram, np.maximum(np.diagonal(gram), FLAT * raw))
        gradient = np.zeros(model.n_columns)
        gradient[model.scope_columns()] = scoped
        old = model.coef[chosen]
        problem = GramProblem(gram, gradient[chosen], old.copy(), energy, take(model.penalty, chosen))
        problem.solve(max(0.1 * problem.gap(), 0.1 * model.tolerance))
        model.touched += len(chosen) ** 2 * float(model.n_rows) + problem.work
        change = problem.coef - old
        model.level -= float((means + model.means[chosen]) @ change) if model.fit_intercept else 0.0
        return change

    def _solve_on_residual(self, chosen: Indices, n_violators: int, most: int, left: float) -> _Solved:
        """Make up to `most` proximal Newton steps on the working set until `left` of the merit is, all rows at hand."""
        model = self.model
        gathered, penalty = stacked((yield Gather(chosen))), take(model.penalty, chosen)
        intercept = model.level, model.fit_intercept
        point = Point(self.loss, *gathered, model.coef[chosen], *intercept, penalty, model.damping)
        complete = n_violators <= 0.05 * max(50, int(np.count_nonzero(model.coef)))
        point.solve(model.pace, left, 0.02 * model.tolerance, complete, most)
        model.touched += point.visited * model.n_rows
        model.level, model.damping = point.level, point.damping
        return point.coef - model.coef[chosen]
