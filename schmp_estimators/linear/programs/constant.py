"""Steps on one output whose curvature is constant: the second-order model is the loss itself.

The products of all columns that have been in a model are kept.  Columns that violate their
condition join; of many, those that a few passes of descent make nonzero.  STRADS drops dependent
candidates (Lee et al., NIPS 2014, section 3.3); here they are solved together, with the
correlations that its check would compute.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Quadratic
from schmp_estimators.linear.losses.base import weigh
from schmp_estimators.linear.penalties.base import Penalty, gap_or_merit, take
from schmp_estimators.linear.programs import joint_jobs as jobs
from schmp_estimators.linear.programs.certificate import LAST_BITS
from schmp_estimators.linear.programs.design import NO_CHANGE
from schmp_estimators.linear.programs.gram import LARGEST_GRAM, GramProblem
from schmp_estimators.linear.programs.jobs import stacked
from schmp_estimators.linear.programs.kept import Join, KeptColumns
from schmp_estimators.linear.programs.layout import Chosen
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.residual import ResidualProblem, ridges_of
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.screening import Screening

#: Number of columns that are tried per wanted one, and passes over them: most of them remain zero.
_TRIED, _PASSES = 4, 3
#: Part of the columns above which all are read, although an earlier gradient leaves only these in
#: doubt; relative error of gradients, which are sums over rows, far above the true one.
_DOUBTFUL, _ROUNDING = 0.5, 1e-9

#: Blocks that change, the changes of their coefficients, and those of F.
Solved = Generator[Any, Any, tuple[Chosen, Floats, Floats]]


class ConstantSteps(Resolve):
    """Steps of the squared loss, and bounds of its gradient on a path."""

    #: on a path: the last two points whose gradients are known on all columns, and these gradients
    _seen: Sequence[tuple[Floats, Floats]] = ()
    _on_path = False

    def __init__(self, *given: Any, **start: Any) -> None:
        super().__init__(*given, **start)
        self.kept = KeptColumns()

    def follow(self, other: Any) -> None:
        """Take over the columns of an earlier fit to the same partitions, with their products."""
        super().follow(other)
        self.kept = other.kept

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore a state, and compute products again."""
        yield from super().recover(state)
        yield from self.kept.restore(state["kept"], self._looked.curvature)

    def state(self) -> dict[str, Any]:
        """Return also which columns are kept."""
        return {**super().state(), "kept": list(self.kept.groups)}

    # -- on products -------------------------------------------------------------------------------

    def _wanted_columns(self, size: int) -> int:
        """Return how many columns may join or be tried, given how many are not zero."""
        if self.design.n_partitions > 1:
            return max(400, 2 * size)
        return _TRIED * max(100, min(self.design.n_rows, self.design.n_columns) // 10, size)

    def _join(self, columns: Indices, penalty: Any = None, passes: int = 0) -> Steps:
        """Keep some columns, or those that passes of descent make nonzero."""
        anew = not len(self.kept)
        means = NO_CHANGE if self.sparse else self.design.means[columns]
        job = Join(columns, means, self.point.level, penalty, passes, anew)
        self.work.touched += max(1, passes) * len(columns) * float(self.design.n_rows)
        return (yield from self.kept.join(job, self._looked.curvature))

    def _is_kept(self) -> NDArray[np.bool_]:
        """Return which cells every scope has: those whose products are kept."""
        found = super()._is_kept()
        if self.is_single:
            found[np.searchsorted(self.layout.order, self.kept.columns)] = True
        return found

    def _kept_products(self, columns: Indices) -> Generator[Any, Any, tuple[Floats, Floats]]:
        """Return the products of some columns with F eliminated, and how much F falls."""
        if len(self.kept) + len(columns) > LARGEST_GRAM:
            self.kept = KeptColumns()
        new = np.setdiff1d(columns, self.kept.columns)
        if len(new):
            yield from self._join(new)
        at = self.kept.places(columns)
        return self.kept.gram[np.ix_(at, at)], self.kept.away[at]

    def _on_kept(self, chosen: Chosen) -> Solved:
        """Let chosen columns join, and solve for all; while some are missing, only to a part."""
        coef, places = self.point.coef[0], chosen.places
        if len(self.kept) + len(places) > LARGEST_GRAM:
            self.kept = KeptColumns()
        new = places[~np.isin(self.layout.order[places], self.kept.columns)]
        given, tried = new[coef[new] != 0.0], new[coef[new] == 0.0]
        if len(given):
            yield from self._join(self.layout.order[given])
        known, found, fresh = len(self.kept), np.empty(0), np.empty(0)
        if len(tried):
            tried = tried[np.argsort(-np.abs(self._everywhere()[tried]), kind="stable")]
            passes = _PASSES if self.design.n_partitions == 1 else 0
            own = take(self._own, tried)
            found, fresh = yield from self._join(self.layout.order[tried], own, passes)
        kept = self.kept
        joined = np.arange(known, len(kept))
        together = np.searchsorted(self.layout.order, kept.columns)
        old, slopes = coef[together], self._everywhere()[together]
        slopes[joined] = fresh  # those known so far may be bounds
        problem = GramProblem(
            kept.gram,
            slopes,
            old.copy(),
            2.0 * self._looked.loss,
            take(self._own, together),
            np.argsort(kept.columns, kind="stable"),
        )
        if found.any():
            problem.move(joined, found)
        self.work.touched += len(joined) * len(kept) * float(self.design.n_rows)
        problem.solve(self._goal(len(joined)), newton=len(joined) <= 0.05 * len(kept))
        self.work.touched += problem.work
        change = problem.coef - old
        levels = -(change @ kept.away).reshape(self.point.level.shape)
        return self.layout.chosen(together), change, levels

    def _goal(self, n_new: int) -> float:
        """Return the gap to leave on the kept columns, of which some are new."""
        certificate = self.certificate
        goal = (0.3 if self.design.n_partitions == 1 else 0.05) * certificate.gap
        if not n_new:
            scoped = self.screening.scope is not None
            goal = min(goal, 0.5 * (self.screening.goal if scoped else certificate.tolerance))
        elif 0.3 * certificate.gap < 10.0 * certificate.tolerance:
            goal = min(goal, 0.5 * certificate.tolerance)
        return max(goal, LAST_BITS * certificate.objective)

    # -- on the residual ---------------------------------------------------------------------------

    def _on_rows_alone(self, chosen: Chosen, n_violators: int) -> Solved:
        """Solve for some columns on the rows of all partitions."""
        point, design, certificate = self.point, self.design, self.certificate
        places, columns = chosen.places, self.layout.order[chosen.places]
        gathered = stacked((yield jobs.GatherRows(columns)))
        compressed, image, target, row_weights, extra = gathered
        old, means, norms = point.coef[0, places], design.means[columns], design.norms[columns]
        penalty = take(self._own, places)
        complete = n_violators <= 0.02 * max(50, int(np.count_nonzero(point.coef)))
        goal = 0.5 * certificate.tolerance
        if n_violators and 0.3 * certificate.gap >= 10.0 * certificate.tolerance:
            goal = max((0.01 if complete else 0.3) * certificate.gap, goal)
        elif not n_violators:
            goal = min(0.3 * certificate.gap, goal)
        sums, ridges = means * design.total_weight, ridges_of(penalty, len(places))
        residual = weigh(row_weights, target - image[0] - point.level[0] @ extra)
        quadratic = freeze(Quadratic(norms, means, sums, row_weights, ridges))
        problem = ResidualProblem(compressed, quadratic, old.copy(), residual, penalty)

        def gap(gradient: Floats) -> float:
            weighted = problem.residual / row_weights if len(row_weights) else problem.residual
            energy = float(problem.residual @ weighted)
            return gap_or_merit(penalty, problem.coef, gradient, energy, norms)

        problem.solve(gap, goal, self.pace, complete, rounds=200)
        self.work.touched += problem.visited * float(design.n_rows)
        change = problem.coef - old
        return chosen, change, self._of_intercept(-float(means @ change))

    # -- bounds of the gradient --------------------------------------------------------------------

    def begin_again(self, previous: Penalty, known: bool) -> Steps:
        """Evaluate the present solution with another penalty."""
        exact = self._constant and self.is_single and self.certificate.certified
        self._on_path = exact and not self.sparse
        yield from super().begin_again(previous, known)

    def _look(self, objective: float) -> Steps:
        """Compute the gradient at the present point, and the gap."""
        yield from super()._look(objective)
        if self._on_path and self.screening.scope is None:
            self._seen = (self.point.coef[0].copy(), self.point.gradient[0]), *self._seen[:1]

    def verify(self) -> Steps:
        """Evaluate the present point; an earlier gradient shows that most columns need no look."""
        bounds = self._bounds()
        if bounds is not None:
            above = self.layout.levels(self._own, bounds, None) > 1.0
            doubtful = np.flatnonzero(above | self._is_kept() | (self.point.coef[0] != 0.0))
            if len(doubtful) <= _DOUBTFUL * len(bounds):
                yield from self._verify(bounds, doubtful)
                return
        yield from super().verify()

    def _verify(self, bounds: Floats, doubtful: Indices) -> Steps:
        """Compute the gap from bounds of the gradient, and the gradient where it is in doubt."""
        columns = self.layout.order[doubtful]
        gradient = yield Sum(jobs.Gradients(self.loss, self.point.level, columns))
        self._set_gradient(gradient, columns)
        bounds[doubtful] = self.point.gradient[0]
        self.point.gradient, self.screening = bounds[None], Screening()
        yield from self._certify(self._looked.loss + self.cost())

    def _bounds(self) -> Floats | None:
        """Return numbers no smaller than the gradient, in size, on any column, if they are known.

        Between two changes of the support the residual moves on a line.  If it is the vector d away
        from the line through two earlier residuals, the gradient of column j is at most ‖x̃_j‖·‖d‖
        away from the same point of the line through theirs.  ‖d‖ follows from kept products.
        """
        if not self._seen:
            return None
        here, gram = np.searchsorted(self.layout.order, self.kept.columns), self.kept.gram
        (last, gradient), coef = self._seen[0], self.point.coef[0]
        if any(np.count_nonzero(one) > np.count_nonzero(one[here]) for one in (coef, last)):
            return None
        change = (coef - last)[here]
        sums = np.abs(change)
        for earlier, of_earlier in self._seen[1:]:
            along = (earlier - last)[here]
            image = gram @ along
            part = float(change @ image) / max(float(along @ image), np.finfo(np.float64).tiny)
            inside = np.count_nonzero(earlier) == np.count_nonzero(earlier[here])
            if inside and np.isfinite(part):
                change, sums = change - part * along, sums + np.abs(part * along)
                gradient = gradient + part * (of_earlier - gradient)
        lengths, eps = np.sqrt(np.maximum(np.diagonal(gram), 0.0)), np.finfo(np.float64).eps
        rounding = 4.0 * (len(here) + self.design.n_rows) * eps * float(sums @ lengths) ** 2
        error = np.sqrt(max(0.0, float(change @ (gram @ change))) + rounding)
        error += _ROUNDING * np.sqrt(2.0 * self._looked.loss)
        reach = error * np.sqrt(self.design.norms[self.layout.order])
        away = reach if self.penalty.positive else np.copysign(reach, gradient)
        bounds: Floats = gradient + away
        return bounds
