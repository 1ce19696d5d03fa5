"""Problems of any size: any loss, and coefficients alone or in blocks.

Objective Σ s_i ℓ(y_i, v_i) + Σ_b P_b(w_b), where v = Wx + Fz has K values for each row; z is
one for the intercepts, and columns without a penalty.  A block is one coefficient, or those of a
group of columns, or of all outputs.  One step:

    update      move the image of W; loss and derivatives in F    (repeated until F is optimal)
    update      partial gradients over the scope; dual objective
    aggregate   duality gap; blocks that are not zero, and those that violate their condition worst
    update      second derivatives in these blocks and F, or their columns and rows
    aggregate   solve the second-order model; send the change, halved later if the objective rises

M. Yuan and Y. Lin, JRSS-B 2006, has the groups; J. Lee, Y. Sun and M. Saunders, "Proximal
Newton-type methods for minimizing composite functions", SIAM Journal on Optimization 2014, the
steps.
"""

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.kernels.smooth import FLAT, MOST_HALVINGS, RISE
from schmp_estimators.linear.programs import joint_jobs as jobs
from schmp_estimators.linear.programs.certificate import FEW, LAST_BITS, NEAR, Screening
from schmp_estimators.linear.programs.constant import Solved
from schmp_estimators.linear.programs.design import NO_CHANGE, NO_COLUMNS
from schmp_estimators.linear.programs.gram import LARGEST_GRAM
from schmp_estimators.linear.programs.jobs import stacked
from schmp_estimators.linear.programs.joint_point import MOST, all_or
from schmp_estimators.linear.programs.layout import Chosen
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.models import BlockModel, RowModel
from schmp_estimators.linear.programs.single import SingleSteps
from schmp_estimators.linear.programs.smooth_point import damped

#: A second-order model is solved to this part of its gap, but not below this part of the goal.
_INNER, _OF_GOAL = 0.01, 0.1
#: Number of coefficients in violating blocks that join at a time, in addition to the number of
#: nonzero ones, and part of the coefficients that join where there is no matrix.
_JOINING, _SHARE = 400, 0.25
#: Number of multiply–adds up to which the matrix of a model is computed although X is sparse.
_MOST_WORK = 1 << 28
#: When the gap has fallen to this part, a scope is checked on all columns.
_CHECKED, _CHECKED_CONSTANT = 1e-3, 0.02
#: Damping of a model whose rows with curvature are fewer than its coefficients.
_OF_SINGULAR = 0.3


class ResolveJoint(SingleSteps):
    """Program of the schedule "resolve"."""

    def step(self) -> Steps:
        """Choose blocks, solve the second-order model on them, and update the point."""
        self.work.n_iter += 1
        gap, scope = self.certificate.gap, self.screening.scope
        descent = self._sparse_descent() if scope is None else None
        if descent is None:
            chosen, n_violators, complete = self._choose()
            if not len(chosen.numbers):
                yield from self.advance(NO_COLUMNS, NO_CHANGE)
                return
            descent = self._dense_descent(chosen, complete)
        arrived = False
        if descent is not None:
            chosen = self.layout.chosen(np.searchsorted(self.layout.order, descent.columns))
            change, levels, arrived = yield from self._descend(descent)
        else:
            chosen, change, levels = yield from self._solve(chosen, n_violators, complete)
        objective = yield from self._move(chosen, change, levels)
        if arrived:
            self.screening = Screening()  # columns of a scope need no evaluation of their own
        yield from self._look(objective)
        if descent is not None:
            self.pace.second_order |= not self.certificate.gap < 0.5 * gap

    def _solve(self, chosen: Chosen, n_violators: int, complete: bool) -> Solved:
        """Solve for some blocks, of which all violators are if they are `complete`."""
        count = max(len(chosen.places), len(self.kept))
        most = LARGEST_GRAM if self._constant else MOST
        if self.is_single and (self.sparse or count > most):
            steps = self._on_residual(chosen, n_violators, complete)
        elif self.is_single and self._constant:
            steps = self._on_kept(chosen)
        elif self._suits_rows(count):
            steps = self._on_rows(chosen)
        else:
            steps = self._on_matrix(chosen)
        return (yield from steps)

    def _choose(self) -> tuple[Chosen, int, bool]:
        """Choose blocks, and narrow the scope; also returns how many violate, and if all join."""
        scope = self.screening.scope
        here = self.point.coef[:, self.layout.positions(scope)]
        levels, support = self._levels(), self.layout.support(here, scope)
        cells = np.arange(len(self.layout.numbers))[all_or(scope)]
        if not (self.sparse and self.is_single):
            both = self.layout.by_cell(levels), self.layout.by_cell(support)
            kept = self._narrow(cells, *both)
            cells, levels, support = cells[kept], levels[..., kept], support[..., kept]
        blocks, widths = self.layout.blocks_of(cells)
        levels, support = np.ravel(levels), np.ravel(support)
        held, joining = np.flatnonzero(support), np.flatnonzero(levels > 1.0)
        joining = joining[~support[joining]]
        size, n_violators = int(widths[held].sum()), len(joining)
        if self.sparse and self.is_single and n_violators <= FEW * size:
            joining = np.flatnonzero(~support & (levels > NEAR))
        most = max(self._least(size), size, 1)
        if len(joining) > most:
            least = np.partition(levels[joining], -most)[-most]
            joining = joining[levels[joining] >= least]
        joining = joining[np.argsort(-levels[joining], kind="stable")]
        most = max(most, int(widths[joining[:1]].sum()))
        joining = joining[np.cumsum(widths[joining]) <= most]
        together = np.sort(blocks[np.append(held, joining)])
        return self.layout.chosen(together), n_violators, n_violators <= len(joining)

    def _least(self, size: int) -> int:
        """Return how many coefficients may join at a time, whatever their number is."""
        if not self.is_single:
            return int(_SHARE * self.point.coef.size) if self.sparse else _JOINING
        if self.sparse and self._constant:
            return max(1000, len(self.layout.order) // 4)
        if self.sparse:
            return 2000
        if self._constant:
            return self._wanted_columns(size)
        smaller = min(self.design.n_rows, self.design.n_columns)
        descends = self._suits_descent(max(smaller // 2, size))
        return smaller // 2 if descends else max(100, smaller // 10)

    def _suits_rows(self, count: int) -> bool:
        """Return whether a model of this number of coefficients is solved without its matrix."""
        work = float(count) ** 2 * self.design.n_rows
        return count > MOST or (self.sparse and work > _MOST_WORK)

    def _narrow(self, cells: Indices, levels: Floats, support: NDArray[np.bool_]) -> Any:
        """Use only likely cells, if they are few, until the gap has fallen enough.

        Returns an index of those in use.
        """
        checked = _CHECKED_CONSTANT if self._constant and self.is_single else _CHECKED
        goal = max(self.certificate.tolerance, checked * self.certificate.gap)
        scope = self.screening.scope
        support = support | self._is_kept()[cells]
        kept = self.screening.narrow(cells, lambda part: (levels > part) | support, goal)
        if kept is None:
            return slice(None)
        self.point.gradient = self.point.gradient[:, self.layout.within(kept, scope)]
        return kept

    def _on_matrix(self, chosen: Chosen) -> Solved:
        """Solve the second-order model on its matrix, with F eliminated."""
        point, certificate = self.point, self.certificate
        gram, away, energy = yield from self._products(chosen)
        old = np.ravel(point.coef)[chosen.places]
        model = BlockModel(self._own, chosen, gram, self._everywhere()[chosen.places], old.copy())
        goal = max(_INNER * certificate.gap, _OF_GOAL * certificate.tolerance)
        self.work.touched += model.solve(max(goal, LAST_BITS * certificate.objective), energy)
        change = model.coef - old
        return chosen, change, -(change @ away).reshape(point.level.shape)

    def _products(self, chosen: Chosen) -> Generator[Any, Any, tuple[Floats, Floats, float | None]]:
        """Return second derivatives in some coefficients, with F eliminated.

        Also returns how much F falls when a coefficient rises, and the energy of the slopes.
        """
        point, q, energy = self.point, len(self.layout.order), None
        columns = self.layout.order[chosen.places % q]
        self.work.touched += len(columns) ** 2 * float(self.design.n_rows)
        if self._constant:
            return *(yield from self._kept_products(columns)), None
        damping, count = self._damping(chosen), len(columns)
        if self.n_outputs > 1:
            given = columns, chosen.places // q, point.level, damping
            whole = yield Sum(jobs.JointProducts(self.loss, *given))
            gram, across, inner = (
                whole[:count, :count],
                whole[count:, :count],
                whole[count:, count:],
            )
        else:
            products = jobs.Products(self.loss, columns, point.level, damping)
            gram, across, inner, energy = yield Sum(products)
        raw = np.diagonal(gram).copy()
        away = across.T @ np.linalg.pinv(inner, 1e-13, hermitian=True)
        gram = gram - away @ across
        np.fill_diagonal(gram, np.maximum(np.diagonal(gram), FLAT * raw))
        return gram, away, energy

    def _damping(self, chosen: Chosen) -> float:
        """Return the damping of a model: too few rows may have a curvature."""
        looked, design = self._looked, self.design
        singular = (
            declared(self.loss, "of_difference")
            and looked.curved < len(chosen.places)
            and design.n_rows < design.n_columns
        )
        return _OF_SINGULAR if singular else self.point.damping

    def _on_rows(self, chosen: Chosen) -> Solved:
        """Make second-order steps on the columns of some blocks, with all rows."""
        point = self.point
        places, q = chosen.places, len(self.layout.order)
        distinct, members = np.unique(places % q, return_inverse=True)
        gathered = stacked((yield jobs.GatherRows(self.layout.order[distinct])))
        old = np.ravel(point.coef)[places]
        model = RowModel(
            self.loss, self._own, chosen, members, places // q, old.copy(), point.level, *gathered
        )
        damping = self._damping(chosen) if self.n_outputs == 1 else 0.0
        model.solve(0.02 * self.certificate.tolerance, damping)
        self.work.touched += model.visited * self.design.n_rows
        return chosen, model.coef - old, model.levels - point.level

    def _move(self, chosen: Chosen, change: Floats, levels: Floats) -> Generator[Any, Any, float]:
        """Make a step, halved while the objective rises; returns the objective.

        If no step lowers it, return to the point before, with decision values computed from
        scratch.
        """
        point, before = self.point, self.certificate.objective
        kept = point.coef.copy(), point.level
        whole = np.zeros_like(point.coef)
        np.ravel(whole)[chosen.places] = change
        moved = np.flatnonzero(whole.any(axis=0))
        columns, step = self.layout.order[moved], whole[:, moved]
        length, image = 1.0, step
        for halvings in range(MOST_HALVINGS if len(moved) else 0):
            point.coef = kept[0] + length * whole
            point.level = kept[1] + length * levels
            objective = yield from self._settle(columns, image, with_gradient=self._constant)
            if objective <= before * (1.0 + RISE):
                point.damping = damped(point.damping, halvings)
                return objective
            length *= 0.5
            image = -length * step
        point.coef, point.level = kept
        point.damping = damped(point.damping, MOST_HALVINGS)
        self.certificate.step_backs += 1
        return (yield from self._settle_anew())
