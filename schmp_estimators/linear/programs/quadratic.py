"""The squared loss as a program: rounds update the residual and compute a gradient; between them candidates are solved.

Objective ½ Σ s_i (y_i − b − x_iᵀβ)² + P(β) with row weights s; the Lasso has P(β) = λ‖β‖₁, λ = α·Σs.  One outer step:

    update      move the residual slices, partial gradients over the likely columns, scalars
    aggregate   duality gap; the worst violators join the candidates
    update      partial Gram matrix of the new candidates (dense), or the columns of the working set (sparse)
    aggregate   resolve: solve the candidate set, send the change of its coefficients

STRADS drops dependent candidates (Lee et al., NIPS 2014, section 3.3).  This program keeps them: it uses the
correlations that the dependency check would compute, and solves for all candidates together.
"""

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Quadratic
from schmp_estimators.linear.penalties.base import Penalty, gap_or_merit, take
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.gram import LARGEST_GRAM
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import LAST_BITS, NO_CHANGE, NO_COLUMNS, Model
from schmp_estimators.linear.programs.offsets import Unpenalised, centre, check_small
from schmp_estimators.linear.programs.residual import ResidualProblem, ridges_of
from schmp_estimators.linear.programs.resolve import Resolve, ToPoint

#: Number of columns that are explored per wanted candidate, and passes over them: most of them remain zero.
_EXPLORED, _PASSES = 4, 3

#: Part of the gap at which a scope is verified on all columns.
_CHECKED = 0.02
#: Steps that end with columns and their new coefficients.
_Solved = Generator[Any, Any, tuple[Indices, Floats]]


class ResolveQuadratic(Resolve):
    """Program of the schedule "resolve".

    Parameters
    ----------
    model : Model
        The current point.
    sparse : bool
        Whether to solve for candidates on the residual instead of their Gram matrix; see `prefer_residual`.
    """

    def __init__(self, model: Model, sparse: bool = False) -> None:
        super().__init__(model)
        self.sparse = sparse
        self.unpenalised: Unpenalised | None = None
        model.certified = model.penalty.certified

    def begin(self) -> ToPoint:
        """Centre the problem; the gradient at zero follows from the moments, elsewhere it is computed."""
        model = self.model
        partials = yield from centre(model)
        sums = tree_sum(partials)
        model.set_moments(sums.total, sums.columns, sums.squares, sums.products)
        model.level = sums.response / sums.total if model.fit_intercept else 0.0
        self.unpenalised = yield from Unpenalised.find(model)
        support = np.flatnonzero(model.coef)
        coef = model.coef[support]
        scope = None if len(support) else NO_COLUMNS
        start = jobs.Start(model.level, support, coef, float(model.means[support] @ coef), scope)
        slopes, null_energy = yield Sum(start)
        if scope is not None:
            slopes = slopes._replace(gradient=tree_sum([part.products_about(model.level) for part in partials]))
        model.null_objective = 0.5 * null_energy
        check_small(model)
        model.tolerance *= null_energy
        objective = 0.5 * slopes.energy + model.penalty.value(model.coef)
        if objective <= model.null_objective:
            return (yield from self._look(slopes))
        model.coef[:] = 0.0  # a start that is worse than zero would only add rounding errors to the residual
        return (yield from self.refresh())

    def begin_again(self, previous: Penalty) -> ToPoint:
        """Evaluate the present solution with another penalty."""
        model = self.model
        check_small(model)
        if model.full_gradient is None:
            return (yield from self.verify())
        return (yield from self._look(jobs.Slopes(model.energy, 0.0, model.full_gradient)))

    def refresh(self) -> ToPoint:
        """Compute the residual of the present coefficients from scratch."""
        support = np.flatnonzero(self.model.coef)
        coef = self.model.coef[support]
        advance = jobs.Advance(support, coef, float(self.model.means[support] @ coef), None, anew=True)
        return (yield from self._look((yield Sum(advance))))

    def verify(self) -> ToPoint:
        """Evaluate the present point on all columns."""
        return (yield from self._look((yield Sum(jobs.Advance(NO_COLUMNS, NO_CHANGE, 0.0, None)))))

    def state(self) -> dict[str, Any]:
        """Return which columns have joined the candidates, and in which order; their products follow from X."""
        return {"candidates": list(self.model.candidates.groups)}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Compute the Gram matrix of the candidates again."""
        self.unpenalised = yield from Unpenalised.find(self.model)
        if groups := state.get("candidates"):
            for new, gram in zip(groups, (yield Sum(jobs.Products())), strict=True):
                self.model.candidates.extend(new, gram)

    def _look(self, slopes: jobs.Slopes) -> ToPoint:
        """Compute the gap at the present point, after an exact fit of columns without a penalty."""
        if self.unpenalised is not None and not self.rounded:
            slopes = yield from self.unpenalised.project(self.model, slopes)
        return self._certify(slopes)

    def _certify(self, slopes: jobs.Slopes) -> Floats:
        model = self.model
        columns, gradient = model.scope_columns(), model.take(slopes.gradient, slopes.balance)
        model.energy = slopes.energy
        coef, penalty = model.coef[columns], model.scope_penalty()
        objective = 0.5 * slopes.energy + penalty.value(coef)
        gap = gap_or_merit(penalty, coef, gradient, slopes.energy, model.norms[columns])
        if model.certified and self.rounded and self.unpenalised is not None:
            gap = np.inf  # the best earlier bound remains valid, but this point gives none
        model.certify(objective, gap)
        return gradient

    def step(self, gradient: Floats) -> ToPoint:
        """Choose candidates, solve for them, and update the point."""
        model = self.model
        model.n_iter += 1
        if not self.sparse:
            gradient = model.look_at_likely(gradient, model.candidates.columns, _CHECKED)
        known = max(len(model.candidates), int(np.count_nonzero(model.coef)))
        solve = self._solve_on_residual if self.sparse or known > LARGEST_GRAM else self._solve_on_gram
        chosen, coef = yield from solve(gradient)
        every = coef - model.coef[chosen]
        moved = np.flatnonzero(every)
        model.coef[chosen] = coef
        columns, change = chosen[moved], every[moved]
        advance = jobs.Advance(columns, change, float(model.means[columns] @ change), model.scope)
        return (yield from self._look((yield Sum(advance))))

    # -- candidates on their Gram matrix ---------------------------------------------------------------------------

    def _solve_on_gram(self, gradient: Floats) -> _Solved:
        """Add new candidates, and solve for all; while the set is incomplete, only to a part of the gap."""
        model, candidates = self.model, self.model.candidates
        new = yield from self._new_candidates(gradient)
        if new is None:
            everywhere = np.zeros(model.n_columns)
            everywhere[model.scope_columns()] = gradient
            of_candidates = everywhere[candidates.columns]
        else:
            gram, of_candidates = yield Sum(jobs.Extend(new, model.means))
            if len(new):
                candidates.extend(new, gram)
            model.touched += (len(new) + 1) * len(candidates) * float(model.n_rows)
        n_new = 0 if new is None else len(new)
        problem = candidates.problem(of_candidates, model, model.energy)
        target = 0.3 * model.gap if model.n_partitions == 1 else 0.05 * model.gap
        if not n_new:
            target = min(target, 0.5 * (model.scope_goal if model.provisional else model.tolerance))
        elif 0.3 * model.gap < 10.0 * model.tolerance:
            target = min(target, 0.5 * model.tolerance)
        problem.solve(max(target, LAST_BITS * model.objective), newton=n_new <= 0.05 * len(candidates))
        model.touched += problem.work
        return candidates.columns, problem.coef

    def _new_candidates(self, gradient: Floats) -> Generator[Any, Any, Indices | None]:
        """Return the worst violators, or of many those that descent makes nonzero; None if there is none."""
        model = self.model
        missing = np.setdiff1d(np.flatnonzero(model.coef), model.candidates.columns)
        free = NO_COLUMNS if self.unpenalised is None else self.unpenalised.columns
        if not np.isin(missing, free).all():  # the support of a warm start
            return missing
        columns = model.scope_columns()
        outside = np.ones(model.n_columns, bool)
        outside[model.candidates.columns] = outside[missing] = False
        alone = model.n_partitions == 1
        support = int(np.count_nonzero(model.coef))
        if alone:
            most = _EXPLORED * max(100, min(model.n_rows, model.n_columns) // 10, support)
        else:
            most = max(400, 2 * support)
        worst, n_violators = model.violators(gradient, outside[columns], most)
        if not n_violators:
            return missing if len(missing) else None
        if not alone:
            return np.union1d(missing, columns[worst])
        explored = columns[worst[np.argsort(-np.abs(gradient[worst]), kind="stable")]]
        [(coef, model.energy)] = yield jobs.Explore(explored, model.means, take(model.penalty, explored), _PASSES)
        model.touched += _PASSES * len(explored) * float(model.n_rows)
        model.coef[explored] = coef
        return np.union1d(missing, explored[coef != 0.0])

    # -- working set on its residual -------------------------------------------------------------------------------

    def _solve_on_residual(self, gradient: Floats) -> _Solved:
        """Solve for the support and the worst violators, on the rows of all partitions."""
        model = self.model
        chosen, n_violators, _ = model.working_set(gradient, max(1000, model.n_columns // 4), True)
        complete = n_violators <= 0.02 * max(50, int(np.count_nonzero(model.coef)))
        goal = 0.5 * model.tolerance
        if n_violators and 0.3 * model.gap >= 10.0 * model.tolerance:
            goal = max((0.01 if complete else 0.3) * model.gap, goal)
        elif not n_violators:
            goal = min(0.3 * model.gap, goal)
        columns, residual, _, row_weights = jobs.stacked((yield jobs.Gather(chosen)))
        means, norms, penalty = model.means[chosen], model.norms[chosen], take(model.penalty, chosen)
        problem = ResidualProblem(
            columns,
            freeze(Quadratic(norms, means, means * model.total_weight, row_weights, ridges_of(penalty, len(chosen)))),
            model.coef[chosen],
            residual * row_weights if len(row_weights) else residual,
            penalty,
        )

        def gap(gradient: Floats) -> float:
            weighted = problem.residual / row_weights if len(row_weights) else problem.residual
            energy = float(problem.residual @ weighted)
            return gap_or_merit(penalty, problem.coef, gradient, energy, norms)

        problem.solve(gap, goal, model.pace, complete, rounds=200)
        model.touched += problem.visited * model.n_rows
        return chosen, problem.coef
