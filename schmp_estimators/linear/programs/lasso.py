"""The Lasso as a program: rounds that move the residual and take a gradient, and a candidate set resolved in between.

Objective ½ Σ s_i (y_i − b − x_iᵀβ)² + λ‖β‖₁ with row weights s, λ = α·Σs.  One outer step:

    update      move the residual slices, partial gradients over the screened columns, scalars
    aggregate   duality gap; gap-safe screening; the worst violators join the candidates
    update      partial Gram matrix of the new candidates (dense), or the columns of the working set (sparse)
    aggregate   resolve: solve the candidate set, send the change of its coefficients

Instead of dropping dependent candidates as STRADS does (Lee et al., NIPS 2014, section 3.3), it keeps their
correlations, which the dependency check computes anyway, and solves for all of them together.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.kernels.sparse import Quadratic, frozen
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.gram import dual_scale, duality_gap
from schmp_estimators.linear.programs.matrix import Floats, Indices, stack_columns
from schmp_estimators.linear.programs.model import NO_CHANGE, NO_COLUMNS, Model
from schmp_estimators.linear.programs.offsets import Probe, Recentre, centre
from schmp_estimators.linear.programs.residual import ResidualProblem

#: A Gram matrix of more candidates than this takes longer to fill than descent on the residual takes.
_MOST_CANDIDATES = 6000
#: Columns explored per candidate wanted, and passes over them: descent on the residual leaves most of them at zero.
_EXPLORED, _PASSES = 4, 3

#: Part of the gap at which a guess is verified on all columns.
_CHECKED = 0.02


class ResolveLasso:
    """Program of the schedule "resolve".

    Parameters
    ----------
    sparse : bool
        Solve candidates on their residual rather than on their Gram matrix; see `prefer_residual`.
    """

    def __init__(self, sparse: bool = False) -> None:
        self.sparse = sparse

    def init(self, model: Model) -> None:
        """Ask for the moments that centre the problem."""
        model.job = jobs.Moments()

    def schedule(self, model: Model) -> Any:
        """Return the next job, or None when the fit has ended."""
        return model.job

    @staticmethod
    def update(rows: jobs.RowPartition, job: Any) -> tuple[jobs.RowPartition, Any]:
        """Apply the job to one row partition."""
        return job(rows)

    def aggregate(self, model: Model, job: Any, partials: Sequence[Any]) -> None:
        """Reduce the partial results in a fixed order, move the model, and set its next job."""
        match job:
            case jobs.Moments() | Probe() | Recentre():
                sums = centre(model, job, partials)
                if sums is not None:
                    self._start(model, sums)
            case jobs.Start(scope=scope):
                slopes, null_energy = tree_sum(partials)
                if scope is not None:
                    slopes = slopes._replace(gradient=model.full_gradient)
                model.null_objective = 0.5 * null_energy
                model.tolerance *= null_energy
                objective = 0.5 * slopes.energy + model.penalty * float(np.abs(model.coef).sum())
                if objective <= model.null_objective:
                    self._judge(model, slopes)
                else:  # a start that is worse than zero would only leave its rounding in the residual
                    model.coef[:] = 0.0
                    self._refresh(model)
            case jobs.Advance() | jobs.Refresh():
                self._judge(model, tree_sum(partials))
            case jobs.Explore(columns=columns):
                (coef, model.energy) = partials[0]
                model.touched += _PASSES * len(columns) * float(model.n_rows)
                model.coef[columns] = coef
                model.job = jobs.Extend(np.sort(columns[coef != 0.0]), model.means)
            case jobs.Extend(new=new):
                gram, gradient = tree_sum(partials)
                if len(new):
                    model.candidates.extend(new, gram)
                model.touched += (len(new) + 1) * len(model.candidates) * float(model.n_rows)
                self._resolve_gram(model, gradient, len(new))
            case jobs.Gather(columns=columns):
                self._resolve_residual(model, columns, partials)

    def restart(self, model: Model, penalty: float) -> None:
        """Go on from the present solution with another penalty; columns the strong rule discards are left for later.

        Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.
        """
        previous, model.penalty = model.penalty, penalty
        model.begin_again()
        gradient = model.full_gradient
        if gradient is None:
            model.job = jobs.Advance(NO_COLUMNS, NO_CHANGE, 0.0, None)
            return
        strengths = model.strengths(gradient)
        previous = min(previous, float(strengths.max()))  # above the largest gradient, solutions are all the same
        strong = (strengths >= 2.0 * penalty - previous) | (model.coef != 0.0)
        if penalty < previous and not strong.all():
            model.guess_scope(np.flatnonzero(strong), model.tolerance)
            gradient = gradient[model.scope]
        self._judge(model, jobs.Slopes(model.energy, 0.0, gradient))

    def finish(self, model: Model) -> None:
        """End the fit, with a certificate of the coefficients in the dtype in which they are returned."""
        if model.finish():
            self._refresh(model)

    @staticmethod
    def _refresh(model: Model) -> None:
        """Ask for the residual of the present coefficients, computed anew, and for its gradient."""
        support = np.flatnonzero(model.coef)
        coef = model.coef[support]
        model.job = jobs.Refresh(support, coef, float(model.means[support] @ coef))

    def _start(self, model: Model, partials: Sequence[jobs.Sums]) -> None:
        """Centre the problem; at zero its gradient is known already, elsewhere it is asked for."""
        sums = tree_sum(partials)
        model.set_moments(sums.total, sums.columns, sums.squares)
        model.level = sums.response / sums.total if model.fit_intercept else 0.0
        model.penalty *= sums.total
        support = np.flatnonzero(model.coef)
        coef = model.coef[support]
        if not len(support):
            model.full_gradient = tree_sum([part.products_about(model.level) for part in partials])
        scope = None if len(support) else NO_COLUMNS
        model.job = jobs.Start(model.level, support, coef, float(model.means[support] @ coef), scope)

    def _judge(self, model: Model, slopes: jobs.Slopes) -> None:
        """Certify the present point, and decide what comes next."""
        columns = model.scope_columns()
        gradient = slopes.gradient - slopes.balance * model.means[columns]
        gradient[model.norms[columns] == 0.0] = 0.0
        model.energy = slopes.energy
        model.full_gradient = gradient if model.scope is None else None
        model.touched += len(columns) * float(model.n_rows)
        scale = dual_scale(gradient, model.penalty, model.positive)
        coef = model.coef[columns]
        gap = duality_gap(slopes.energy, coef, gradient, model.penalty, scale)
        model.certify(0.5 * slopes.energy + model.penalty * float(np.abs(coef).sum()), gap)
        model.job = None
        if model.must_verify():
            model.open_scope()
            model.job = jobs.Advance(NO_COLUMNS, NO_CHANGE, 0.0, None)
        elif model.finished:
            return
        elif model.doubt():
            self._refresh(model)
        elif model.converged:
            self.finish(model)
        else:
            self._continue(model, gradient, scale, gap)

    def _continue(self, model: Model, gradient: Floats, scale: float, gap: float) -> None:
        """Screen columns, and choose the candidates of the next outer step."""
        if model.exhausted:
            self.finish(model)
            return
        model.n_iter += 1
        radius = np.sqrt(max(2.0 * gap, 0.0)) / model.penalty
        gradient = model.screen(gradient, scale, radius)
        if not self.sparse:
            gradient = model.look_at_likely(gradient, model.candidates.columns, _CHECKED)
        choose = self._choose_residual if self._on_residual(model) else self._choose_gram
        choose(model, gradient)

    def _on_residual(self, model: Model) -> bool:
        known = max(len(model.candidates), int(np.count_nonzero(model.coef)))
        return self.sparse or known > _MOST_CANDIDATES

    # -- candidates on their Gram matrix ---------------------------------------------------------------------------

    def _choose_gram(self, model: Model, gradient: Floats) -> None:
        """Let the worst violators join, or resolve the candidates at once if there is none."""
        missing = np.setdiff1d(np.flatnonzero(model.coef), model.candidates.columns)
        if len(missing):  # the support of a warm start, which has to move with the others
            model.job = jobs.Extend(missing, model.means)
            return
        columns = model.scope_columns()
        outside = np.ones(model.n_columns, bool)
        outside[model.candidates.columns] = False
        alone = model.n_partitions == 1
        support = int(np.count_nonzero(model.coef))
        if alone:
            most = _EXPLORED * max(100, min(model.n_rows, model.n_columns) // 10, support)
        else:
            most = max(400, 2 * support)
        worst, n_violators = model.violators(gradient, outside[columns], most)
        if not n_violators:
            everywhere = np.zeros(model.n_columns)
            everywhere[columns] = gradient
            self._resolve_gram(model, everywhere[model.candidates.columns], 0)
        elif alone:
            ordered = worst[np.argsort(-np.abs(gradient[worst]), kind="stable")]
            model.job = jobs.Explore(columns[ordered], model.means, model.penalty, model.positive, _PASSES)
        else:
            model.job = jobs.Extend(np.sort(columns[worst]), model.means)

    def _resolve_gram(self, model: Model, gradient: Floats, n_new: int) -> None:
        """Solve the candidate set, to a part of the gap while it is not complete."""
        chosen = model.candidates.columns
        problem = model.candidates.problem(gradient, model, model.energy)
        target = 0.3 * model.gap if model.n_partitions == 1 else 0.05 * model.gap
        if not n_new:
            target = min(target, 0.5 * (model.scope_goal if model.provisional else model.tolerance))
        elif 0.3 * model.gap < 10.0 * model.tolerance:
            target = min(target, 0.5 * model.tolerance)
        problem.solve(target, newton=n_new <= 0.05 * len(chosen))
        model.touched += problem.work
        self._move(model, chosen, problem.coef)

    def _move(self, model: Model, chosen: Indices, coef: Floats) -> None:
        change = coef - model.coef[chosen]
        moved = np.flatnonzero(change)
        model.coef[chosen] = coef
        columns, change = chosen[moved], change[moved]
        model.job = jobs.Advance(columns, change, float(model.means[columns] @ change), model.scope)

    # -- working set on its residual -------------------------------------------------------------------------------

    def _choose_residual(self, model: Model, gradient: Floats) -> None:
        """Ask for the columns of the support and of the worst violators."""
        columns = model.scope_columns()
        outside = model.coef[columns] == 0.0
        support = len(columns) - int(np.count_nonzero(outside))
        most = max(1000, model.n_columns // 4, support)
        worst, model.n_violators = model.worst_and_near(gradient, outside, most)
        model.job = jobs.Gather(np.sort(np.concatenate([columns[~outside], columns[worst]])))

    def _resolve_residual(self, model: Model, chosen: Indices, partials: Sequence[Any]) -> None:
        """Solve the working set on the rows of all partitions."""
        parts, residuals, weights = zip(*partials, strict=True)
        offsets = np.cumsum([0] + [len(part) for part in residuals]).tolist()
        row_weights = np.concatenate(weights)
        means = model.means[chosen]
        problem = ResidualProblem(
            stack_columns(list(parts), offsets[:-1]),
            frozen(Quadratic(model.norms[chosen], means, means * model.total_weight, row_weights)),
            model.coef[chosen],
            np.concatenate(residuals),
            model.penalty,
            model.positive,
        )

        def gap(gradient: Floats) -> float:
            weighted = problem.residual / row_weights if len(row_weights) else problem.residual
            energy = float(problem.residual @ weighted)
            scale = dual_scale(gradient, model.penalty, model.positive)
            return duality_gap(energy, problem.coef, gradient, model.penalty, scale)

        complete = model.n_violators <= 0.02 * max(50, int(np.count_nonzero(model.coef)))
        goal = 0.5 * model.tolerance
        if model.n_violators and 0.3 * model.gap >= 10.0 * model.tolerance:
            goal = max((0.01 if complete else 0.3) * model.gap, goal)
        elif not model.n_violators:
            goal = min(0.3 * model.gap, goal)
        problem.solve(gap, goal, model.pace, complete, rounds=200)
        model.touched += problem.visited * model.n_rows
        self._move(model, chosen, problem.coef)
