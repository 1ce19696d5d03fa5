"""Problems with blocks of coefficients, of any size: groups of columns, and several classes.

Objective Σ s_i ℓ(y_i, v_i) + Σ_b P_b(w_b), where v = Wx + Fz has K values for each row; z is one
for the intercepts, and columns without a penalty.  One step:

    update      move the image of W; loss and derivatives in F                (repeated until F is
    optimal) update      partial gradients over the scope; dual objective aggregate   duality gap;
    blocks that are not zero, and those that violate their condition worst update      second
    derivatives in these blocks and F, or their columns and rows aggregate   solve the second-order
    model; send the change, halved later if the objective should rise

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
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.programs import joint_jobs as jobs
from schmp_estimators.linear.programs.block_model import BlockModel
from schmp_estimators.linear.programs.certificate import LAST_BITS
from schmp_estimators.linear.programs.design import NO_CHANGE, NO_COLUMNS
from schmp_estimators.linear.programs.jobs import stacked
from schmp_estimators.linear.programs.joint_point import MOST, JointPoint, all_or
from schmp_estimators.linear.programs.layout import Chosen
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.row_model import RowModel
from schmp_estimators.linear.programs.screening import Screening
from schmp_estimators.linear.programs.smooth_point import damped

#: A second-order model is solved to this part of its gap, but not below this part of the goal.
_INNER, _OF_GOAL = 0.01, 0.1
#: Number of coefficients in violating blocks that join at a time, in addition to the number of
#: nonzero ones, and part of the coefficients that join where there is no matrix.
_JOINING, _SHARE = 400, 0.25
#: Number of multiply–adds up to which the matrix of a model is computed although X is sparse.
_MOST_WORK = 1 << 28
#: When the gap has fallen to this part, a scope is checked on all columns.
_CHECKED = 0.02
#: Damping of a model whose rows with curvature are fewer than its coefficients.
_OF_SINGULAR = 1.0


class ResolveJoint(JointPoint):
    """Program of the schedule "resolve" for blocks of coefficients; see `Resolve`."""

    def skip(self, previous: Penalty) -> None:
        """Apply the strong rule, after a fit with another penalty."""
        present = self.layout.by_cell(self._levels())
        before = self.layout.levels(self.layout.own(previous), self._tilted(), None)
        most = float(self.layout.by_cell(before).max(initial=0.0))
        if not most > 0.0 or not len(present):
            return
        ratio = float(present.max()) / most * min(1.0, most)  # of the penalties
        stay = self.layout.by_cell(self.layout.support(self.point.coef, None))
        strong = (present >= 2.0 - ratio) | stay
        if ratio > 1.0 + LAST_BITS and not strong.all():
            scope = self.screening.scope
            self.point.gradient = self.point.gradient[:, self.layout.within(strong, scope)]
            kept = np.flatnonzero(strong) if scope is None else scope[strong]
            self.screening = Screening(kept, self.certificate.tolerance)

    def step(self) -> Steps:
        """Choose blocks, solve the second-order model on them, and update the point."""
        self.work.n_iter += 1
        scope = self.screening.scope
        here = self.point.coef[:, self.layout.positions(scope)]
        levels, support = self._levels(), self.layout.support(here, scope)
        cells = np.arange(len(self.layout.numbers))[all_or(scope)]
        chosen = self._chosen(cells, levels, support)
        self._narrow(cells, self.layout.by_cell(levels), self.layout.by_cell(support))
        if not len(chosen.numbers):
            yield from self.advance(NO_COLUMNS, NO_CHANGE)
            return
        on = self._on_rows if self._suits_rows(len(chosen.places)) else self._on_matrix
        change, levels = yield from on(chosen)
        yield from self._move(chosen, change, levels)

    def _suits_rows(self, count: int) -> bool:
        """Return whether a model of this number of coefficients is solved without its matrix."""
        work = float(count) ** 2 * self.design.n_rows
        return count > MOST or (self.sparse and work > _MOST_WORK)

    def _narrow(self, cells: Indices, levels: Floats, support: NDArray[np.bool_]) -> None:
        """Use only likely cells, if they are few, until the gap has fallen enough."""
        goal = max(self.certificate.tolerance, _CHECKED * self.certificate.gap)
        scope = self.screening.scope
        kept = self.screening.narrow(cells, lambda part: (levels > part) | support, goal)
        if kept is not None:
            self.point.gradient = self.point.gradient[:, self.layout.within(kept, scope)]

    def _chosen(self, cells: Indices, levels: Floats, support: NDArray[np.bool_]) -> Chosen:
        """Return the blocks that are not zero, and those that violate their condition most."""
        blocks, widths = self.layout.blocks_of(cells)
        levels, support = np.ravel(levels), np.ravel(support)
        joining = np.flatnonzero(~support & (levels > 1.0))
        joining = joining[np.argsort(-levels[joining], kind="stable")]
        most = max(_JOINING, int(widths[support].sum()), int(widths[joining[:1]].sum()))
        if self.sparse:
            most = max(most, int(_SHARE * self.point.coef.size))
        joining = joining[np.cumsum(widths[joining]) <= most]
        return self.layout.chosen(np.sort(blocks[np.append(np.flatnonzero(support), joining)]))

    def _on_matrix(self, chosen: Chosen) -> Generator[Any, Any, tuple[Floats, Floats]]:
        """Solve the second-order model on its matrix, with F eliminated; returns the changes."""
        point, certificate = self.point, self.certificate
        products = yield from self._products(chosen)
        count = len(chosen.places)
        gram, across, inner = (
            products[:count, :count],
            products[:count, count:],
            products[count:, count:],
        )
        raw = np.diagonal(gram).copy()
        away = across @ np.linalg.pinv(inner, 1e-13, hermitian=True)
        gram = gram - away @ across.T
        np.fill_diagonal(gram, np.maximum(np.diagonal(gram), FLAT * raw))
        old = np.ravel(point.coef)[chosen.places]
        model = BlockModel(self._own, chosen, gram, self._everywhere()[chosen.places], old.copy())
        goal = max(_INNER * certificate.gap, _OF_GOAL * certificate.tolerance)
        self.work.touched += model.solve(max(goal, LAST_BITS * certificate.objective))
        change = model.coef - old
        levels = -(change @ away).reshape(point.level.shape)
        return change, levels

    def _products(self, chosen: Chosen) -> Generator[Any, Any, Floats]:
        """Return the second derivatives in some coefficients and F."""
        point, q = self.point, len(self.layout.order)
        columns = self.layout.order[chosen.places % q]
        self.work.touched += len(columns) ** 2 * float(self.design.n_rows)
        if self._constant:
            yield from self.kept.extend(columns, point.level)
            return self.kept.of(columns, self._looked.curvature)
        damping = self._damping(chosen)
        if self.n_outputs > 1:
            given = columns, chosen.places // q, point.level, damping
            return (yield Sum(jobs.JointProducts(self.loss, *given)))
        products = jobs.Products(self.loss, columns, 0, point.level, damping)
        gram, across, inner = yield Sum(products)
        return np.block([[gram, across.T], [across, inner]])

    def _damping(self, chosen: Chosen) -> float:
        """Return the damping of a model: too few rows may have a curvature."""
        looked, design = self._looked, self.design
        singular = (
            declared(self.loss, "of_difference")
            and looked.curved < len(chosen.places)
            and design.n_rows < design.n_columns
        )
        return _OF_SINGULAR if singular else self.point.damping

    def _on_rows(self, chosen: Chosen) -> Generator[Any, Any, tuple[Floats, Floats]]:
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
        return model.coef - old, model.levels - point.level

    def _move(self, chosen: Chosen, change: Floats, levels: Floats) -> Steps:
        """Make a step, halved while the objective rises, and evaluate the point.

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
            objective = yield from self._settle(columns, image)
            if objective <= before * (1.0 + RISE):
                point.damping = damped(point.damping, halvings)
                yield from self._look(objective)
                return
            length *= 0.5
            image = -length * step
        point.coef, point.level = kept
        point.damping = damped(point.damping, MOST_HALVINGS)
        self.certificate.step_backs += 1
        yield from self.refresh()
