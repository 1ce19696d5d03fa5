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

from collections.abc import Generator
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.kernels.smooth import FLAT, MOST_HALVINGS, RISE
from schmp_estimators.linear.losses.base import Level, Loss, steepness
from schmp_estimators.linear.penalties.base import Penalty, dual_scale, merit, take, weigh
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.certificate import LEAST
from schmp_estimators.linear.programs.design import NO_CHANGE, NO_COLUMNS
from schmp_estimators.linear.programs.gram import LARGEST_GRAM, GramProblem
from schmp_estimators.linear.programs.input import SMALL
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.offsets import Span
from schmp_estimators.linear.programs.residual import Pace
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.screening import Screening
from schmp_estimators.linear.programs.smooth_point import (
    LEVEL_ROUNDING,
    LEVEL_TOLERANCE,
    Bracket,
    Descend,
    SmoothWorkingSet,
    damped,
    level_tolerance,
)

#: The part of its gap that is left of a singular model.
_OF_SINGULAR = 0.5
#: Slope in the intercept, relative to the sum of weights, above which it is not the best one and no gap is computed.
_SETTLED = 1e-9
_RISE = (
    1e-11  # the objective may rise by this part if no step lowers it: such a rise is only rounding
)
#: Newton steps on the columns without a penalty, and the longest step in units of the decision value
_MOST_NEWTON_STEPS, _LONGEST = 50, 5.0
#: Newton steps on a sparse working set, and the part of the merit to leave: with all violators, and with some
_ON_ALL, _ON_SOME = (8, 0.03), (2, 0.3)
_CHECKED = 1e-3  # when the gap has fallen to this part, a guess is checked on all columns
#: Smallest number of columns of a dense X for which descent is faster, and largest number of their entries, whose copy
#: must fit in a cache.
_FEWEST, _MOST_ENTRIES = 100, 1 << 23
#: All columns of a scope are used if they are at most this many times those in the support or violating their
#: condition.
_ROOMY = 8
#: The part of the tolerance that descent leaves, or of the gap if there are other violators; the part of a gap that
#: float32 leaves.
_OF_TOLERANCE, _OF_GAP, _OF_ROUNDING = 0.7, 1e-2, 1e-6

#: Steps that return the objective at the best intercept, and steps that return the change of coefficients.
_Settled = Generator[Any, Any, float]
_Solved = Generator[Any, Any, Floats]


class ResolveSmooth(Resolve):
    """Program of the schedule "resolve" for a `loss`."""

    def __init__(self, *given: Any, loss: Loss, **start: Any) -> None:
        super().__init__(*given, **start)
        self.loss, self.smoothness = loss, loss.smoothness
        self.certificate.certified = loss.certified and self.penalty.certified
        self.pace = Pace(passes=8, settled=0.03, crossing=0.02)
        #: remaining slopes along the directions of columns without a penalty
        self.unsettled = NO_CHANGE

    @property
    def shifted_intercept(self) -> float:
        """Intercept b, for columns less their shifts."""
        return self.point.level

    def begin(self) -> Steps:
        """Compute the moments of the columns, and evaluate the start; the gradient at zero follows from the moments."""
        point, certificate = self.point, self.certificate
        partials, sums = yield from self._open()
        known = declared(self.loss, "at_zero")
        if known is not None:
            certificate.null_objective = sums.total * known(0.0)[0]
        else:
            level: Level = yield Sum(jobs.Shift(self.loss, NO_COLUMNS, NO_CHANGE, 0.0))
            start = point.coef, point.level
            point.coef = np.zeros_like(point.coef)
            certificate.null_objective = max((yield from self._settle_anew()), LEAST * level.loss)
            point.coef, point.level = start
        self._check_small()
        certificate.tolerance *= certificate.null_objective
        objective = yield from self._settle_anew()
        if not objective <= certificate.null_objective and point.coef.any():
            point.coef[:] = 0.0  # a start that is worse than zero
            point.level = 0.0
            objective = yield from self._settle_anew()
        if known is None or point.coef.any():
            yield from self._look(objective)
            return
        products = tree_sum([part.products_about(0.0) for part in partials])
        _, of_target, constant = known(point.level)
        self._take(of_target * products + constant * sums.columns, point.balance)
        yield from self._certify(objective)

    def begin_again(self, previous: Penalty, known: bool) -> Steps:
        """Evaluate the present solution with another penalty."""
        coef = self.point.coef
        self.pace.relax()
        objective = self.certificate.objective + self.penalty.value(coef) - previous.value(coef)
        yield from (self._certify(objective) if known else self._look(objective))

    def advance(self, columns: Indices, change: Floats, anew: bool = False) -> Steps:
        """Change the decision values, and evaluate the point."""
        yield from self._look((yield from self._settle(columns, change, anew)))

    def verify(self) -> Steps:
        """Evaluate the present point on all columns."""
        yield from self._look(self.certificate.objective)

    def step(self) -> Steps:
        """Choose the working set, solve the quadratic model on it, and update the point."""
        design, coef = self.design, self.point.coef
        self.work.n_iter += 1
        if not self.sparse:
            self._screen(NO_COLUMNS, _CHECKED)
        kept = coef.copy(), self.point.level
        if self.sparse and (descent := self._sparse_descent()) is not None:
            yield from self._descend(descent, kept)
            return
        smaller, support = min(design.n_rows, design.n_columns), int(np.count_nonzero(coef))
        descends = not self.sparse and self._suits_descent(max(smaller // 2, support))
        least = 2000 if self.sparse else smaller // 2 if descends else max(100, smaller // 10)
        chosen, n_violators, complete = self.scoped().working_set(least, self.sparse)
        if descends and (descent := self._dense_descent(chosen, complete)) is not None:
            yield from self._descend(descent, kept)
            return
        if self.sparse or len(chosen) > LARGEST_GRAM:
            change = yield from self._solve_on_residual(
                chosen, n_violators, *(_ON_ALL if complete else _ON_SOME)
            )
        else:
            change = yield from self._solve_on_gram(chosen)
        moved = np.flatnonzero(change)
        yield from self._look((yield from self._move(chosen[moved], change[moved], kept)))

    # -- descent, if one partition has all rows --------------------------------------------------------------------

    def _may_descend(self) -> bool:
        possible = (
            self.design.n_partitions == 1
            and self.certificate.certified
            and declared(self.loss, "descend") is not None
        )
        return possible and not self.pace.second_order

    def _suits_descent(self, count: int) -> bool:
        """Return whether steps by descent may be tried on this number of columns of a dense X."""
        fits = count >= _FEWEST and count * self.design.n_rows <= _MOST_ENTRIES
        return fits and self.design.per_column == self.design.n_rows and self._may_descend()

    def _sparse_descent(self) -> Descend | None:
        """Return the job for steps on all columns of a small sparse X, or None; a scope has fewer columns."""
        design = self.design
        small = design.per_column * design.n_columns <= SMALL and not self.point.damping
        if not small or self.screening.scope is not None or not self._may_descend():
            return None
        goal = _OF_TOLERANCE * self.certificate.tolerance
        return self._descent(np.arange(design.n_columns), NO_CHANGE, goal, design.constant)

    def _dense_descent(self, chosen: Indices, complete: bool) -> Descend | None:
        """Return the job for steps on columns in the scope, the `chosen` ones or all of them, or None.

        If `complete`, only chosen columns violate their condition.
        """
        design, scope, certificate = self.design, self.screening.scope, self.certificate
        if (
            scope is not None
            and len(scope) <= _ROOMY * len(chosen)
            and self._suits_descent(len(scope))
        ):
            chosen = scope
        if not self._suits_descent(len(chosen)):
            return None
        lengths = np.sqrt(design.norms[chosen] * (design.n_rows / design.total_weight))
        lengths[lengths == 0.0] = 1.0
        left = (_OF_ROUNDING if complete else _OF_GAP) * certificate.gap
        return self._descent(chosen, lengths, max(_OF_TOLERANCE * certificate.tolerance, left))

    def _descent(
        self, columns: Indices, lengths: Floats, goal: float, still: Indices = NO_COLUMNS
    ) -> Descend:
        point, design = self.point, self.design
        own = design.means[columns], lengths, point.coef[columns], self._gradient_of(columns)
        return Descend(
            self.loss,
            columns,
            *own,
            point.level,
            take(self.penalty, columns),
            design.fit_intercept,
            goal,
            still,
        )

    def _descend(self, descent: Descend, kept: tuple[Floats, float]) -> Steps:
        """Make steps by descent; do not try again if they are slow or fail."""
        gap = self.certificate.gap
        [(coef, found)] = yield descent
        self.work.touched += found.visited * self.design.n_rows
        self.point.level, change = found.level, coef - descent.coef
        moved = np.flatnonzero(change)
        objective = yield from self._move(descent.columns[moved], change[moved], kept)
        if found.arrived and descent.goal <= self.certificate.tolerance:
            self.screening = Screening()  # the columns of a scope need no evaluation of their own
        yield from self._look(objective)
        self.pace.second_order = found.hard or not self.certificate.gap < 0.5 * gap

    # -- points ----------------------------------------------------------------------------------------------------

    def _settle_anew(self) -> _Settled:
        support = np.flatnonzero(self.point.coef)
        return self._settle(support, self.point.coef[support], anew=True)

    def _move(self, columns: Indices, change: Floats, kept: tuple[Floats, float]) -> _Settled:
        """Change the coefficients, by a step that is halved while the objective rises; returns the objective.

        If no step lowers it, return to the point `kept`.  This may happen by rounding after large decision values, so
        they are then computed from scratch, at most twice.
        """
        point, before = self.point, self.certificate.objective
        point.coef[columns] += change
        objective = yield from self._settle(columns, change)
        for halvings in range(MOST_HALVINGS):
            if objective <= before * (1.0 + RISE):
                point.damping = damped(point.damping, halvings)
                return objective
            change = 0.5 * change
            point.coef[columns] -= change
            objective = yield from self._settle(columns, -change)
        point.damping = damped(point.damping, MOST_HALVINGS)
        if objective <= before * (1.0 + _RISE):
            return objective
        point.coef, point.level = kept
        self.certificate.step_backs += 1
        return (yield from self._settle_anew())

    def _distance(self) -> float:
        """Return the size of the intercept for centred columns, at least 1."""
        return max(1.0, abs(self.point.level + float(self.design.means @ self.point.coef)))

    def _settle(self, columns: Indices, change: Floats, anew: bool = False) -> _Settled:
        """Change the decision values, and make Newton steps on the intercept until it is optimal."""
        point, bracket, total = self.point, Bracket(), self.design.total_weight
        level: Level = yield Sum(jobs.Shift(self.loss, columns, change, point.level, anew))
        suits = level_tolerance(self.penalty, total) if self.design.fit_intercept else np.inf
        while self.design.fit_intercept:
            # the remaining slope enters the gap times the intercept, which may be large
            wanted = min(suits, 0.01 * self.certificate.tolerance / self._distance())
            if not abs(level.slope) > max(wanted, LEVEL_ROUNDING * total):
                break
            place = bracket.next(point.level, level)
            if place is None:
                break
            point.level = place
            level = yield Sum(jobs.Shift(self.loss, NO_COLUMNS, NO_CHANGE, place))
        point.balance = level.slope if self.design.fit_intercept else 0.0
        point.steepness = steepness(self.loss, level, total)
        loss = level.loss
        if self.free is not None and not self.rounded:
            loss = yield from self._settle_unpenalised(self.free)
        return loss + self.penalty.value(point.coef)

    def _settle_unpenalised(self, span: Span) -> _Settled:
        """Make Newton steps on the columns without a penalty and the intercept; returns the smallest loss.

        A step that raises it is halved.
        """
        point, given = self.point, (span, self.design.fit_intercept)
        root = np.sqrt(self.design.total_weight)
        units = np.concatenate([[root], np.ones(span.basis.shape[1])])
        found: jobs.Curved = yield Sum(jobs.Free(self.loss, NO_CHANGE, point.level, *given))
        for _ in range(_MOST_NEWTON_STEPS):
            if (np.abs(found.slope) <= root * units * LEVEL_TOLERANCE).all():
                break
            # directions have the same length, so that directions without curvature are found
            step = np.linalg.pinv(found.curvature / np.outer(units, units), hermitian=True) @ (
                found.slope / units
            )
            step *= min(1.0, _LONGEST * root / max(1e-300, float(np.abs(step).max())))
            for _ in range(MOST_HALVINGS):
                change = span.basis @ step[1:]
                level = point.level + step[0] / root - float(span.means @ change)
                tried: jobs.Curved = yield Sum(jobs.Free(self.loss, change, level, *given))
                if tried.loss <= found.loss * (1.0 + 1e-15):
                    break
                yield Sum(jobs.Free(self.loss, -change, point.level, *given))
                step = 0.5 * step
            else:
                break
            point.coef[span.columns] += change
            point.level, found = level, tried
        point.balance = float(found.slope[0])
        self.unsettled = np.abs(found.slope[1:])
        return found.loss

    def _look(self, objective: float) -> Steps:
        """Compute the gradient at the present point, and the gap."""
        slope = jobs.Slope(self.loss, self.point.level, self.screening.scope)
        self._take((yield Sum(slope)), self.point.balance)
        yield from self._certify(objective)

    def _certify(self, objective: float) -> Steps:
        """Compute the gap at the present point, from the dual objective at the scaled slopes."""
        point, total = self.point, self.design.total_weight
        _, coef, gradient, norms, penalty = self.scoped()
        if not self.certificate.certified:
            left = merit(penalty, coef, gradient, point.steepness * norms)
            self.certificate.certify(objective, left, self.screening)
            return
        scale = dual_scale(penalty, coef, gradient)
        dual = yield Sum(jobs.Dual(self.loss, point.level, scale))
        dual -= 0.5 * scale**2 * weigh(penalty.ridges, coef * coef)
        # if Σ s y p is δ instead of zero, the bound is lower by b·δ; likewise for columns without a penalty
        dual -= 2.0 * abs(point.balance) * self._distance()
        settling = _SETTLED * max(1.0, point.steepness)  # slopes of counts are rounded like counts
        settled = abs(point.balance) <= settling * total
        if self.free is not None:
            length = np.sqrt(total)
            present = self.free.coordinates(point.coef[self.free.columns])
            dual -= 2.0 * float(self.unsettled @ (length + np.abs(present)))
            settled &= not self.rounded and bool((self.unsettled <= settling * length).all())
        self.certificate.certify(objective, objective - dual if settled else np.inf, self.screening)

    # -- the quadratic model -----------------------------------------------------------------------------------------

    def _solve_on_gram(self, chosen: Indices) -> _Solved:
        """Solve the quadratic model on its Gram matrix, with the intercept eliminated."""
        point, design = self.point, self.design
        least = point.damping * point.steepness
        weighted = jobs.WeightedGram(self.loss, chosen, point.level, design.means, least)
        gram, weighted_sums, total, energy = yield Sum(weighted)
        # rows without curvature may leave fewer than there are columns; if all rows had some, they might fit exactly
        curved = total * design.n_rows / design.total_weight
        singular = (
            declared(self.loss, "of_difference")
            and curved < len(chosen)
            and design.n_rows < design.n_columns
        )
        if singular:
            gram, weighted_sums, total, energy = yield Sum(weighted._replace(of_secant=True))
        means = weighted_sums / total
        if design.fit_intercept:
            raw = np.diagonal(gram).copy()
            gram = gram - np.outer(weighted_sums, means)
            # a column that is constant in rows with curvature may still become zero
            np.fill_diagonal(gram, np.maximum(np.diagonal(gram), FLAT * raw))
        old = point.coef[chosen]
        problem = GramProblem(
            gram, self._gradient_of(chosen), old.copy(), energy, take(self.penalty, chosen)
        )
        left = (_OF_SINGULAR if singular else 0.1) * problem.gap()
        problem.solve(max(left, 0.1 * self.certificate.tolerance))
        self.certificate.futile += singular and problem.gap() > left
        self.work.touched += len(chosen) ** 2 * float(design.n_rows) + problem.work
        change = problem.coef - old
        point.level -= (
            float((means + design.means[chosen]) @ change) if design.fit_intercept else 0.0
        )
        return change

    def _solve_on_residual(
        self, chosen: Indices, n_violators: int, most: int, left: float
    ) -> _Solved:
        """Make up to `most` proximal Newton steps on the working set until `left` of the merit is, all rows at hand."""
        point, old = self.point, self.point.coef[chosen]
        columns, state, target, weights = jobs.stacked((yield jobs.Gather(chosen)))
        intercept, penalty = (point.level, self.design.fit_intercept), take(self.penalty, chosen)
        problem = SmoothWorkingSet(
            self.loss, columns, state, target, weights, old, *intercept, penalty, point.damping
        )
        complete = n_violators <= 0.05 * max(50, int(np.count_nonzero(point.coef)))
        problem.solve(self.pace, left, 0.02 * self.certificate.tolerance, complete, most)
        self.work.touched += problem.visited * self.design.n_rows
        point.level, point.damping = problem.level, problem.damping
        return problem.coef - old
