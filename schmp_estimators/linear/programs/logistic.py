"""Sparse logistic regression as a program: proximal Newton steps on a working set.

Objective Σ s_i ln(1 + e^{−y_i(x_iᵀβ + b)}) + λ‖β‖₁, y ∈ {−1, 1}; the intercept b is not penalised and is solved to
optimality before every certificate, since the dual point p bounds only if Σ s_i y_i p_i = 0.  One outer step:

    update      move the decision values; loss and its derivatives in b             (repeated until b is optimal)
    update      partial gradient over the screened columns; dual objective
    aggregate   duality gap; gap-safe screening; working set = support and worst violators
    update      Gram matrix weighted by the curvature (dense), or the columns of the working set (sparse)
    aggregate   solve the quadratic model; send the change, halved later if the objective should rise
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.programs import logistic_jobs as jobs
from schmp_estimators.linear.programs.gram import GramProblem, dual_scale
from schmp_estimators.linear.programs.jobs import Moments
from schmp_estimators.linear.programs.logistic_point import LEVEL_TOLERANCE, MOST_HALVINGS, Bracket, Point
from schmp_estimators.linear.programs.matrix import Floats, Indices, stack_columns
from schmp_estimators.linear.programs.model import NO_CHANGE, NO_COLUMNS, Model
from schmp_estimators.linear.programs.offsets import Probe, Recentre, centre
from schmp_estimators.linear.programs.residual import Pace

_ROUNDING = 1e-15
#: Slope, as a part of all weights, above which the intercept is not the best one, and nothing is certified.
_SETTLED = 1e-9
#: Part by which the objective may rise where no step lowers it: that is but rounding.
_RISE = 1e-11
_MOST_STEP_BACKS = 2
_MOST_CANDIDATES = 6000  # on one Gram matrix
#: Part of the gap at which a guess is verified on all columns; Newton steps soon make the gap much smaller than that.
_CHECKED = 1e-3


@dataclass
class LogisticModel(Model):
    """State of a logistic fit between rounds; `level` is the intercept b."""

    pace: Pace = field(default_factory=lambda: Pace(passes=8, settled=0.03, crossing=0.02))
    #: objective before the last change
    previous_objective: float = np.inf
    last_columns: Indices = field(default_factory=lambda: NO_COLUMNS)
    last_change: Floats = field(default_factory=lambda: NO_CHANGE)
    halvings: int = 0
    loss: float = np.inf
    #: Σ s x_j and Σ s y x_j, of which the gradient at zero is made; None once it has been
    at_zero: tuple[Floats, Floats] | None = None
    gradient: Floats = field(default_factory=lambda: NO_CHANGE)
    scale: float = 1.0
    bracket: Bracket = field(default_factory=Bracket)
    #: Σ s y p at the best intercept, zero up to rounding
    balance: float = 0.0
    #: coefficients and intercept of the best point so far
    kept: tuple[Floats, float] = (NO_CHANGE, 0.0)
    #: times that no step lowered the objective
    step_backs: int = 0

    @property
    def distance(self) -> float:
        """Size of the intercept of the centred columns, at least 1."""
        return max(1.0, abs(self.level + float(self.means @ self.coef)))

    @property
    def intercept(self) -> float:
        """Intercept b, for the columns as they are."""
        return self.level - float(self.shifts @ self.coef) if len(self.shifts) else self.level


class ResolveLogistic:
    """Program of the schedule "resolve"."""

    def __init__(self, sparse: bool = False) -> None:
        self.sparse = sparse

    def init(self, model: LogisticModel) -> None:
        """Ask for the moments of the columns."""
        model.job = Moments()

    def schedule(self, model: LogisticModel) -> Any:
        """Return the next job, or None when the fit has ended."""
        return model.job

    @staticmethod
    def update(rows: Any, job: Any) -> tuple[Any, Any]:
        """Apply the job to one row partition."""
        return job(rows)

    def aggregate(self, model: LogisticModel, job: Any, partials: Sequence[Any]) -> None:
        """Reduce the partial results in a fixed order, move the model, and set its next job."""
        match job:
            case Moments() | Probe() | Recentre():
                sums = centre(model, job, partials)
                if sums is not None:
                    self._start(model, sums)
            case jobs.Shift():
                self._settle_level(model, tree_sum(partials))
            case jobs.Slope():
                self._take_gradient(model, tree_sum(partials))
            case jobs.Entropy():
                self._judge(model, tree_sum(partials))
            case jobs.WeightedGram(columns=columns):
                self._resolve_gram(model, columns, tree_sum(partials))
            case jobs.Gather(columns=columns):
                self._resolve_residual(model, columns, partials)

    def restart(self, model: LogisticModel, penalty: float) -> None:
        """Go on from the present solution with another penalty."""
        model.penalty = penalty
        model.begin_again()
        model.previous_objective = np.inf
        model.job = jobs.Shift(NO_COLUMNS, NO_CHANGE, model.level)

    def finish(self, model: LogisticModel) -> None:
        """End the fit, with a certificate of the coefficients in the dtype in which they are returned."""
        if model.finish():
            self._refresh(model)

    @staticmethod
    def _refresh(model: LogisticModel) -> None:
        """Ask for the decision values of the present coefficients, computed anew."""
        support = np.flatnonzero(model.coef)
        model.previous_objective, model.halvings, model.bracket = np.inf, 0, Bracket()
        model.job = jobs.Shift(support, model.coef[support], model.level, anew=True)

    def _start(self, model: LogisticModel, partials: Sequence[Any]) -> None:
        """Keep the moments, and look at the start; the gradient at zero is known already."""
        sums = tree_sum(partials)
        model.set_moments(sums.total, sums.columns, sums.squares)
        model.null_objective = sums.total * np.log(2.0)
        model.tolerance *= model.null_objective
        model.at_zero = sums.columns, tree_sum([part.products_about(0.0) for part in partials])
        self._refresh(model)

    def _settle_level(self, model: LogisticModel, level: jobs.Level) -> None:
        """Make Newton steps on the intercept until it is optimal; then take the gradient, or halve a bad step."""
        if model.fit_intercept:
            # what is left of the slope enters the gap times the intercept, large where classes are far from zero
            wanted = min(LEVEL_TOLERANCE * model.total_weight, 0.01 * model.tolerance / model.distance)
            if abs(level.slope) > max(wanted, _ROUNDING * model.total_weight):
                place = model.bracket.next(model.level, level)
                if place is not None:
                    model.level = place
                    model.job = jobs.Shift(NO_COLUMNS, NO_CHANGE, place)
                    return
        model.bracket, model.balance = Bracket(), level.slope if model.fit_intercept else 0.0
        objective = level.loss + model.penalty * float(np.abs(model.coef).sum())
        if model.at_zero is not None and not objective <= model.null_objective and model.coef.any():
            model.coef[:] = 0.0  # a start that is worse than zero
            model.level = 0.0
            self._refresh(model)
            return
        if not objective <= model.previous_objective * (1.0 + 1e-13):
            if model.halvings < MOST_HALVINGS:
                model.halvings += 1
                model.last_change = 0.5 * model.last_change
                model.coef[model.last_columns] -= model.last_change
                model.job = jobs.Shift(model.last_columns, -model.last_change, model.level)
                return
            if not objective <= model.previous_objective * (1.0 + _RISE):
                self._step_back(model)
                return
        model.halvings, model.loss, model.previous_objective = 0, level.loss, objective
        model.kept = model.coef.copy(), model.level
        at_zero, model.at_zero = model.at_zero, None
        if at_zero is None or model.coef.any():
            model.job = jobs.Slope(model.level, model.scope)
            return
        columns, products = at_zero
        self._take_gradient(model, 0.5 * products - 0.5 * np.tanh(0.5 * model.level) * columns)

    def _step_back(self, model: LogisticModel) -> None:
        """Return to the best point: no step from there in the direction just tried lowers the objective.

        Once or twice this may be the rounding of decision values that were large on the way, which are computed anew.
        """
        model.coef, model.level = model.kept[0].copy(), model.kept[1]
        model.step_backs += 1
        self._refresh(model)

    @staticmethod
    def _take_gradient(model: LogisticModel, gradient: Floats) -> None:
        """Keep the gradient over the scope, and ask for the dual objective that it allows."""
        gradient = gradient - model.balance * model.means[model.scope_columns()]
        gradient[model.norms[model.scope_columns()] == 0.0] = 0.0
        model.gradient = gradient
        model.touched += len(gradient) * float(model.n_rows)
        model.scale = dual_scale(gradient, model.penalty, model.positive)
        model.job = jobs.Entropy(model.level, model.scale)

    def _judge(self, model: LogisticModel, dual: float) -> None:
        """Certify the present point, and go on unless the gap is small enough."""
        # Σ s y p = δ instead of zero lowers the bound by b·δ
        dual -= 2.0 * abs(model.balance) * model.distance
        settled = abs(model.balance) <= _SETTLED * model.total_weight
        model.certify(model.previous_objective, model.previous_objective - dual if settled else np.inf)
        model.job = None
        if model.must_verify():
            model.open_scope()
            model.job = jobs.Slope(model.level, None)
        elif model.finished:
            return
        elif model.doubt():
            self._refresh(model)
        elif model.converged:
            self.finish(model)
        else:
            self._continue(model, dual if settled else -np.inf)

    def _continue(self, model: LogisticModel, dual: float) -> None:
        """Screen columns, and choose the working set of the next outer step."""
        if model.exhausted or model.step_backs > _MOST_STEP_BACKS:
            self.finish(model)
            return
        model.n_iter += 1
        gradient = model.gradient
        if dual > -np.inf:
            # the dual is 4-strongly concave in the norm weighted by s
            radius = np.sqrt(max(model.previous_objective - dual, 0.0) / 2.0) / model.penalty
            gradient = model.screen(gradient, model.scale, radius)
        if not self.sparse:
            gradient = model.look_at_likely(gradient, NO_COLUMNS, _CHECKED)
        model.gradient = gradient
        columns = model.scope_columns()
        outside = model.coef[columns] == 0.0
        support = len(columns) - int(np.count_nonzero(outside))
        first = 2000 if self.sparse else max(100, min(model.n_rows, model.n_columns) // 10)
        choose = model.worst_and_near if self.sparse else model.violators
        worst, model.n_violators = choose(gradient, outside, max(first, support))
        chosen = np.sort(np.concatenate([columns[~outside], columns[worst]]))
        if self.sparse or len(chosen) > _MOST_CANDIDATES:
            model.job = jobs.Gather(chosen)
        else:
            model.job = jobs.WeightedGram(chosen, model.level, model.means)

    def _resolve_gram(self, model: LogisticModel, chosen: Indices, sums: tuple[Any, ...]) -> None:
        """Solve the quadratic model on its Gram matrix, the intercept eliminated."""
        gram, weighted_sums, total, energy = sums
        means = weighted_sums / total
        if model.fit_intercept:
            gram = gram - np.outer(weighted_sums, means).astype(gram.dtype)
        gradient = np.zeros(model.n_columns)
        gradient[model.scope_columns()] = model.gradient
        old = model.coef[chosen]
        problem = GramProblem(gram, gradient[chosen], old.copy(), energy, model.penalty, model.positive)
        problem.solve(max(0.1 * problem.gap(), 0.1 * model.tolerance))
        model.touched += len(chosen) ** 2 * float(model.n_rows) + problem.work
        change = problem.coef - old
        offset = float((means + model.means[chosen]) @ change) if model.fit_intercept else 0.0
        self._move(model, chosen, change, model.level - offset)

    def _move(self, model: LogisticModel, chosen: Indices, change: Floats, level: float) -> None:
        moved = np.flatnonzero(change)
        columns, change = chosen[moved], change[moved]
        model.coef[columns] += change
        model.last_columns, model.last_change, model.level = columns, change, level
        model.job = jobs.Shift(columns, change, level)

    def _resolve_residual(self, model: LogisticModel, chosen: Indices, partials: Sequence[Any]) -> None:
        """Make up to two proximal Newton steps on the working set, with the rows of all partitions at hand."""
        parts, decisions, labels, weights = zip(*partials, strict=True)
        offsets = np.cumsum([0] + [len(part) for part in decisions]).tolist()
        columns = stack_columns(list(parts), offsets[:-1])
        point = Point(
            columns, np.concatenate(decisions), np.concatenate(labels), np.concatenate(weights), model.coef[chosen]
        )
        point.level, point.fit_intercept, point.penalty = model.level, model.fit_intercept, model.penalty
        support = max(50, int(np.count_nonzero(model.coef)))
        point.solve(model.pace, 0.3, 0.02 * model.tolerance, model.n_violators <= 0.05 * support)
        model.touched += point.visited * model.n_rows
        self._move(model, chosen, point.coef - model.coef[chosen], point.level)
