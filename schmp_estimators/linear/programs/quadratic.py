"""The squared loss as a program: rounds update the residual and compute a gradient; between them candidates are solved.

Objective ½ Σ s_i (y_i − b − x_iᵀβ)² + P(β) with row weights s; the Lasso has P(β) = λ‖β‖₁, λ = α·Σs.  One outer step:

    update      move the residual slices, partial gradients over the likely columns, scalars
    aggregate   duality gap; the worst violators join the candidates
    update      partial Gram matrix of the new candidates (dense), or the columns of the working set (sparse)
    aggregate   resolve: solve the candidate set, send the change of its coefficients

STRADS drops dependent candidates (Lee et al., NIPS 2014, section 3.3).  This program keeps them: it uses the
correlations that the dependency check would compute, and solves for all candidates together.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Quadratic
from schmp_estimators.linear.losses.base import weigh
from schmp_estimators.linear.penalties.base import Penalty, gap_or_merit, sizes, take
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.certificate import LAST_BITS
from schmp_estimators.linear.programs.design import NO_CHANGE, NO_COLUMNS
from schmp_estimators.linear.programs.gram import LARGEST_GRAM
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.residual import ResidualProblem, ridges_of
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.screening import Screening

#: Number of columns that are explored per wanted candidate, and passes over them: most of them remain zero.
_EXPLORED, _PASSES = 4, 3

#: Part of the gap at which a scope is verified on all columns.
_CHECKED = 0.02
#: Part of the columns above which all are read, although an earlier gradient leaves only these in doubt; relative
#: error of gradients, which are sums over rows, far above the true one.
_DOUBTFUL, _ROUNDING = 0.5, 1e-9
#: Steps that end with columns and their new coefficients.
_Solved = Generator[Any, Any, tuple[Indices, Floats]]


class ResolveQuadratic(Resolve):
    """Program of the schedule "resolve"."""

    projects = True
    #: On a path: the last two points whose gradients have been computed on all columns, with these gradients.
    _seen: Sequence[tuple[Floats, Floats]] = ()
    _on_path = False

    @property
    def shifted_intercept(self) -> float:
        """Intercept b, for columns less their shifts."""
        return self.point.level - float(self.design.means @ self.point.coef)

    def begin(self) -> Steps:
        """Centre the problem; the gradient at zero follows from the moments, elsewhere it is computed."""
        design, point, certificate = self.design, self.point, self.certificate
        partials, sums = yield from self._open()
        point.level = sums.response / sums.total if design.fit_intercept else 0.0
        support = np.flatnonzero(point.coef)
        coef = point.coef[support]
        scope = None if len(support) else NO_COLUMNS
        start = jobs.Start(point.level, support, coef, float(design.means[support] @ coef), scope)
        slopes, null_energy = yield Sum(start)
        if scope is not None:
            slopes = slopes._replace(
                gradient=tree_sum([part.products_about(point.level) for part in partials])
            )
        certificate.null_objective = 0.5 * null_energy
        self._check_small()
        certificate.tolerance *= null_energy
        if 0.5 * slopes.energy + self.penalty.value(point.coef) <= certificate.null_objective:
            yield from self._look(slopes)
            return
        point.coef[:] = (
            0.0  # a start that is worse than zero would only add rounding errors to the residual
        )
        yield from self.refresh()

    def begin_again(self, previous: Penalty, known: bool) -> Steps:
        """Evaluate the present solution with another penalty."""
        self._on_path = not self.sparse and self.free is None and self.certificate.certified
        if known:
            yield from self._look(jobs.Slopes(self.point.energy, 0.0, self.point.gradient))
        else:
            yield from self.verify()

    def verify(self) -> Steps:
        """Evaluate the present point on all columns; an earlier gradient shows that most of them need not be read."""
        bounds, strengths = self._bounds(), self.penalty.strengths
        if bounds is not None:
            doubtful = np.flatnonzero(
                (sizes(self.penalty, bounds) > strengths) | (self.point.coef != 0.0)
            )
            if len(doubtful) <= _DOUBTFUL * len(bounds):
                self.screening = Screening(doubtful)
                yield from self._look(
                    (yield Sum(jobs.Advance(NO_COLUMNS, NO_CHANGE, 0.0, doubtful))), bounds
                )
                return
        yield from self.advance(NO_COLUMNS, NO_CHANGE)

    def _bounds(self) -> Floats | None:
        """Return numbers that are no smaller than the gradient, in size, on any column; None if they are not known.

        Between two changes of the support the residual moves on a line.  If it is the vector d away from the line
        through two earlier residuals, the gradient of column j is at most ‖x̃_j‖·‖d‖ away from the same point of the
        line through theirs.  ‖d‖ follows from the Gram matrix of the candidates.
        """
        if not self._seen:
            return None
        columns, size = self.candidates.columns, len(self.candidates)
        (last, gradient), gram = self._seen[0], self.candidates.gram[:size, :size]
        if any(
            np.count_nonzero(coef) > np.count_nonzero(coef[columns])
            for coef in (self.point.coef, last)
        ):
            return None
        change = (self.point.coef - last)[columns]
        sums = np.abs(change)
        for coef, earlier in self._seen[1:]:
            along = (coef - last)[columns]
            image = gram @ along
            part = float(change @ image) / max(float(along @ image), np.finfo(np.float64).tiny)
            if np.count_nonzero(coef) == np.count_nonzero(coef[columns]) and np.isfinite(part):
                change, sums = change - part * along, sums + np.abs(part * along)
                gradient = gradient + part * (earlier - gradient)
        lengths, eps = np.sqrt(np.maximum(np.diagonal(gram), 0.0)), np.finfo(np.float64).eps
        rounding = 4.0 * (size + self.design.n_rows) * eps * float(sums @ lengths) ** 2
        error = np.sqrt(max(0.0, float(change @ (gram @ change))) + rounding)
        error += _ROUNDING * np.sqrt(self.point.energy)
        reach = error * np.sqrt(self.design.norms)
        bounds: Floats = gradient + (
            reach if self.penalty.positive else np.copysign(reach, gradient)
        )
        return bounds

    def state(self) -> dict[str, Any]:
        """Return also which columns have joined the candidates, and in which order; their products follow from X."""
        return {**super().state(), "candidates": list(self.candidates.groups)}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore a state, and compute the Gram matrix of the candidates again."""
        yield from super().recover(state)
        if groups := state["candidates"]:
            for new, gram in zip(groups, (yield Sum(jobs.Products())), strict=True):
                self.candidates.extend(new, gram)

    def advance(self, columns: Indices, change: Floats, anew: bool = False) -> Steps:
        """Change the residual, and evaluate the point."""
        offset = float(self.design.means[columns] @ change)
        yield from self._look(
            (yield Sum(jobs.Advance(columns, change, offset, self.screening.scope, anew)))
        )
        if self._on_path and self.screening.scope is None:
            self._seen = (self.point.coef.copy(), self.point.gradient), *self._seen[:1]

    def _look(self, slopes: jobs.Slopes, bounds: Floats | None = None) -> Steps:
        """Compute the gap at the present point, after an exact fit of columns without a penalty.

        With `bounds` of the gradient on all columns, those in the scope get their true gradient, and the scope is left.
        """
        free, design, certificate = self.free, self.design, self.certificate
        if free is not None and not self.rounded:
            scope = np.arange(design.n_columns)[self.screening.places]
            slopes = yield from free.project(self.point.coef, design.means, scope, slopes)
        self.point.energy = energy = slopes.energy
        self._take(slopes.gradient, slopes.balance)
        if bounds is not None:
            bounds[self.screening.places] = self.point.gradient
            self.point.gradient, self.screening = bounds, Screening()
        _, coef, gradient, norms, penalty = self.scoped()
        gap = gap_or_merit(penalty, coef, gradient, energy, norms)
        if certificate.certified and self.rounded and free is not None:
            gap = np.inf  # the best earlier bound remains valid, but this point gives none
        certificate.certify(0.5 * energy + penalty.value(coef), gap, self.screening)

    def step(self) -> Steps:
        """Choose candidates, solve for them, and update the point."""
        self.work.n_iter += 1
        if not self.sparse:
            self._screen(self.candidates.columns, _CHECKED)
        known = max(len(self.candidates), int(np.count_nonzero(self.point.coef)))
        chosen, coef = yield from (
            self._solve_on_residual()
            if self.sparse or known > LARGEST_GRAM
            else self._solve_on_gram()
        )
        change = coef - self.point.coef[chosen]
        moved = np.flatnonzero(change)
        self.point.coef[chosen] = coef
        yield from self.advance(chosen[moved], change[moved])

    # -- candidates on their Gram matrix ---------------------------------------------------------------------------

    def _solve_on_gram(self) -> _Solved:
        """Add new candidates, and solve for all; while the set is incomplete, only to a part of the gap."""
        candidates, point, design, certificate = (
            self.candidates,
            self.point,
            self.design,
            self.certificate,
        )
        new = yield from self._new_candidates()
        if new is None:
            gradient = self._gradient_of(candidates.columns)
        else:
            gram, gradient = yield Sum(jobs.Extend(new, design.means))
            if len(new):
                candidates.extend(new, gram)
            self.work.touched += (len(new) + 1) * len(candidates) * float(design.n_rows)
        n_new = 0 if new is None else len(new)
        problem = candidates.problem(gradient, point.coef, point.energy, self.penalty)
        target = 0.3 * certificate.gap if design.n_partitions == 1 else 0.05 * certificate.gap
        if not n_new:
            target = min(
                target,
                0.5
                * (certificate.tolerance if self.screening.scope is None else self.screening.goal),
            )
        elif 0.3 * certificate.gap < 10.0 * certificate.tolerance:
            target = min(target, 0.5 * certificate.tolerance)
        problem.solve(
            max(target, LAST_BITS * certificate.objective), newton=n_new <= 0.05 * len(candidates)
        )
        self.work.touched += problem.work
        return candidates.columns, problem.coef

    def _new_candidates(self) -> Generator[Any, Any, Indices | None]:
        """Return the worst violators, or of many those that descent makes nonzero; None if there is none."""
        design, coef, columns = self.design, self.point.coef, self.scoped()
        missing = np.setdiff1d(np.flatnonzero(coef), self.candidates.columns)
        free = NO_COLUMNS if self.free is None else self.free.columns
        if not np.isin(missing, free).all():  # the support of a warm start
            return missing
        outside = np.ones(design.n_columns, bool)
        outside[self.candidates.columns] = outside[missing] = False
        alone = design.n_partitions == 1
        support = int(np.count_nonzero(coef))
        if alone:
            most = _EXPLORED * max(100, min(design.n_rows, design.n_columns) // 10, support)
        else:
            most = max(400, 2 * support)
        worst, n_violators = columns.violators(outside[columns.numbers], most)
        if not n_violators:
            return missing if len(missing) else None
        if not alone:
            return np.union1d(missing, columns.numbers[worst])
        explored = columns.numbers[
            worst[np.argsort(-np.abs(columns.gradient[worst]), kind="stable")]
        ]
        explore = jobs.Explore(explored, design.means, take(self.penalty, explored), _PASSES)
        [(coef[explored], self.point.energy)] = yield explore
        self.work.touched += _PASSES * len(explored) * float(design.n_rows)
        return np.union1d(missing, explored[coef[explored] != 0.0])

    # -- working set on its residual -------------------------------------------------------------------------------

    def _solve_on_residual(self) -> _Solved:
        """Solve for the support and the worst violators, on the rows of all partitions."""
        design, coef, certificate = self.design, self.point.coef, self.certificate
        chosen, n_violators, _ = self.scoped().working_set(max(1000, design.n_columns // 4), True)
        complete = n_violators <= 0.02 * max(50, int(np.count_nonzero(coef)))
        goal = 0.5 * certificate.tolerance
        if n_violators and 0.3 * certificate.gap >= 10.0 * certificate.tolerance:
            goal = max((0.01 if complete else 0.3) * certificate.gap, goal)
        elif not n_violators:
            goal = min(0.3 * certificate.gap, goal)
        columns, residual, _, row_weights = jobs.stacked((yield jobs.Gather(chosen)))
        means, norms, penalty = (
            design.means[chosen],
            design.norms[chosen],
            take(self.penalty, chosen),
        )
        problem = ResidualProblem(
            columns,
            freeze(
                Quadratic(
                    norms,
                    means,
                    means * design.total_weight,
                    row_weights,
                    ridges_of(penalty, len(chosen)),
                )
            ),
            coef[chosen],
            weigh(row_weights, residual),
            penalty,
        )

        def gap(gradient: Floats) -> float:
            weighted = problem.residual / row_weights if len(row_weights) else problem.residual
            energy = float(problem.residual @ weighted)
            return gap_or_merit(penalty, problem.coef, gradient, energy, norms)

        problem.solve(gap, goal, self.pace, complete, rounds=200)
        self.work.touched += problem.visited * design.n_rows
        return chosen, problem.coef
