"""The point of a problem with blocks of coefficients: its start, the best F, its duality gap."""

from collections.abc import Generator, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.contracts import declared, is_quadratic
from schmp_estimators.linear.kernels.smooth import MOST_HALVINGS, RISE
from schmp_estimators.linear.penalties.base import Penalty, fields_of
from schmp_estimators.linear.programs import joint_jobs as jobs
from schmp_estimators.linear.programs.certificate import LAST_BITS, LEAST, Certificate, Screening
from schmp_estimators.linear.programs.design import NO_CHANGE, NO_COLUMNS, Design
from schmp_estimators.linear.programs.jobs import Sums
from schmp_estimators.linear.programs.layout import Layout
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.models import value_of, violation_of
from schmp_estimators.linear.programs.offsets import Span, centre, check_small, find_span
from schmp_estimators.linear.programs.residual import Pace
from schmp_estimators.linear.programs.smooth_point import damped
from schmp_estimators.linear.programs.solution import Point, Work

#: Maximum number of steps to the best F, and the first bound of their length.
_MOST_SETTLING, _REACH = 100, 5.0
#: Slope in F, relative to the sum of weights, above which no gap is computed, and that of rounding.
_SETTLED, _ROUNDING = 1e-9, 1e-15
#: Largest number of coefficients of a model with a matrix.
MOST = 3000


#: The parts of a program whose fields are its state.
_PARTS = "design", "point", "certificate", "screening", "pace", "work"


class JointPoint:
    """A problem, and the present point: its start, the best F, its duality gap.

    Parameters
    ----------
    penalty : Penalty
    design : Design
    tolerance : float
        That of the gap, relative to the objective at zero.
    max_iter : int
        Maximum number of outer steps.
    loss : Loss
    n_columns : int
        Number of columns of X.
    coef : ndarray of shape (p,), (K, p) or (0,)
        Coefficients at the start; none stand for zeros.
    level : float or ndarray of shape (K,), default=0.0
        Intercepts at the start.
    dtype : type
        That of the returned coefficients; the last gap is computed after rounding to it.
    sparse : bool
        Whether models are solved on rows instead of their matrix; see `prefer_residual`.
    """

    saves = dict

    def __init__(
        self,
        penalty: Penalty,
        design: Design,
        tolerance: float,
        max_iter: int,
        *,
        loss: Any,
        n_columns: int,
        coef: Floats = NO_CHANGE,
        level: Any = 0.0,
        dtype: type = np.float64,
        sparse: bool = False,
    ) -> None:
        self.penalty, self.design, self.max_iter, self.dtype = penalty, design, max_iter, dtype
        self.loss, self.n_outputs, self.sparse = loss, int(declared(loss, "n_outputs")), sparse
        self.layout = Layout.of(penalty, n_columns, self.n_outputs)
        self.is_single = not self.layout.in_blocks and self.n_outputs == 1
        self._constant = is_quadratic(loss)
        self.point = Point()
        self.certificate = Certificate(tolerance, loss.certified and penalty.certified)
        self.screening, self.pace, self.work = Screening(), Pace(), Work()
        #: columns without a penalty
        self.free: Span | None = None
        #: whether coefficients have been rounded to the returned dtype, so that they may not change
        self.rounded = False
        self._given = coef.copy(), level
        #: what was subtracted from the response
        self._response = 0.0
        self._looked: jobs.Looked
        #: a penalty, and that for kernels
        self._owned: tuple[Any, Any] = None, None
        #: a gradient, a penalty, and the levels there
        self._leveled: tuple[Any, Any, Any] = None, None, None
        self._started = perf_counter()

    # -- what a surface asks -----------------------------------------------------------------------

    @property
    def shifted_intercept(self) -> Any:
        """Intercepts b, for columns less their shifts."""
        coef, levels = self._coefficients(), np.zeros(self.n_outputs)
        if self.design.fit_intercept:
            levels = self.point.level[:, 0] + self._response
        if self.free is not None:
            levels = levels - coef[:, self.free.columns] @ self.free.means
        return levels if self.n_outputs > 1 else float(levels[0])

    def described(self) -> tuple[Floats, Any]:
        """Return the coefficients and the intercepts; those of several outputs add up to zero."""
        coef, shifts = self._coefficients(), self.design.shifts
        intercept = np.atleast_1d(self.shifted_intercept)
        if len(shifts):
            intercept = intercept - coef @ shifts
        if self.n_outputs == 1:
            return coef[0], float(intercept[0])
        return coef, intercept - (intercept.mean() if self.design.fit_intercept else 0.0)

    def largest(self, unit: Penalty) -> float:
        """Return the smallest multiple of a penalty for which zero is the solution."""
        unit = self.layout.own(unit)
        return float(self.layout.levels(unit, self.point.gradient, None).max(initial=0.0))

    def cost(self) -> float:
        """Return the penalty of the present coefficients."""
        if not self.layout.in_blocks:
            return float(sum(self._own.value(one) for one in self.point.coef))
        coef, layout = np.ravel(self.point.coef), self.layout
        support = np.flatnonzero(self.layout.support(self.point.coef, None))
        chosen = layout.chosen(support)
        return value_of(self._own, chosen, coef[chosen.places])

    def follow(self, other: Any) -> None:
        """Take over the columns of an earlier fit to the same partitions."""
        self.design = other.design

    def state(self) -> dict[str, Any]:
        """Return all that `recover` needs, without copies, after a gap."""
        parts = {part: dict(vars(getattr(self, part))) for part in _PARTS}
        known = {"response": self._response, "looked": tuple(self._looked)}
        return {"penalty": fields_of(self.penalty), **known, **parts}

    def recover(self, state: Mapping[str, Any]) -> Steps:
        """Restore a state; the partitions have been restored."""
        self.penalty, self._response = type(self.penalty)(*state["penalty"]), state["response"]
        for part in _PARTS:
            vars(getattr(self, part)).update(state[part])
        self._started = perf_counter() - self.work.seconds
        self.free = yield from find_span(self.design, self.layout.free)
        self._looked = jobs.Looked(*state["looked"])

    def _coefficients(self) -> Floats:
        """Return the coefficients of all columns, (K, p)."""
        if self.layout.is_plain:
            return self.point.coef
        coef = np.zeros((self.n_outputs, self.design.n_columns))
        coef[:, self.layout.order] = self.point.coef
        if self.free is not None:
            of_free = self.point.level[:, int(self.design.fit_intercept) :]
            coef[:, self.free.columns] = self._length * (of_free @ self.free.basis.T)
        return coef

    def round(self) -> bool:
        """Round coefficients, those of columns without a penalty, too."""
        exact = self.point.coef
        self.point.coef = exact.astype(self.dtype).astype(np.float64)
        changed, coef = not np.array_equal(self.point.coef, exact), self._coefficients()
        if self.free is None:
            return changed
        given = coef[:, self.free.columns]
        rounded = given.astype(self.dtype).astype(np.float64)
        if np.array_equal(rounded, given):
            return changed
        level = self.point.level.copy()
        directions = [self.free.coordinates(one) / self._length for one in rounded]
        level[:, int(self.design.fit_intercept) :] = directions
        self.point.level = level
        return True

    @property
    def _length(self) -> float:
        """Length of directions in F, which is that of ones."""
        return float(np.sqrt(self.design.total_weight))

    @property
    def _own(self) -> Any:
        if self._owned[0] is not self.penalty:
            self._owned = self.penalty, self.layout.own(self.penalty)
        return self._owned[1]

    # -- the start ---------------------------------------------------------------------------------

    def begin(self) -> Steps:
        """Compute the moments of the columns, and evaluate the start."""
        point, certificate, design = self.point, self.certificate, self.design
        coef, level = self._given
        partials = yield from centre(design)
        sums: Sums = tree_sum(partials)
        design.set_moments(sums)
        self.free = yield from find_span(design, self.layout.free)
        shifted = design.fit_intercept and declared(self.loss, "of_difference")
        self._response = sums.response / sums.total if shifted else 0.0
        yield from self._prepare()
        first: jobs.Looked = yield Sum(jobs.Look(self.loss, NO_COLUMNS, NO_CHANGE, point.level))
        certificate.null_objective = first.loss  # at first
        objective = yield from self._optimise(first)
        known = declared(self.loss, "at_zero")
        null = objective if known is None else sums.total * known(0.0)[0]
        null = first.loss if self._constant else null
        certificate.null_objective = max(null, LEAST * first.loss)
        self.check_small()
        certificate.tolerance *= (2.0 if self._constant else 1.0) * certificate.null_objective
        if coef.any():
            null, levels = objective, point.level
            self._set_start(coef, level)
            objective = yield from self._settle_anew()
            if not objective <= null:  # a start that is worse than zero
                point.coef, point.level = np.zeros_like(point.coef), levels
                objective = yield from self._settle_anew()
        if not (self._constant or known) or point.coef.any() or self.free is not None:
            yield from self._look(objective)
            return
        level = self._response + float(point.level.sum())
        away = level if self._constant else 0.0
        gradient = tree_sum([part.products_about(away) for part in partials])
        if known is not None:
            _, of_target, constant = known(level)
            gradient = of_target * gradient + constant * sums.columns
        self._set_gradient(gradient[None, self.layout.order], self.layout.order)
        yield from self._certify(objective)

    def _prepare(self) -> Steps:
        """Let partitions compute the columns of F."""
        point, fit_intercept = self.point, self.design.fit_intercept
        n_free = int(fit_intercept) + (0 if self.free is None else self.free.basis.shape[1])
        point.coef = np.zeros((self.n_outputs, len(self.layout.order)))
        point.level = np.zeros((self.n_outputs, n_free))
        begin = self.n_outputs, self._response, fit_intercept, self.free, self._length
        yield jobs.Begin(*begin)

    def _set_start(self, coef: Floats, level: Any) -> None:
        """Set given coefficients and intercepts, of columns that are not shifted."""
        point, design = self.point, self.design
        coef = coef.reshape(self.n_outputs, -1).astype(np.float64)
        point.coef = coef[:, self.layout.order].copy()
        levels = np.zeros_like(point.level)
        if design.fit_intercept:
            levels[:, 0] = level - self._response
            if len(design.shifts):
                levels[:, 0] += coef @ design.shifts
        if self.free is not None:
            here = coef[:, self.free.columns]
            found = [self.free.coordinates(one) / self._length for one in here]
            levels[:, int(design.fit_intercept) :] = found
            if design.fit_intercept:
                levels[:, 0] += here @ self.free.means
        point.level = levels

    def begin_again(self, previous: Penalty, known: bool) -> Steps:
        """Evaluate the present solution with another penalty."""
        self.pace.relax()
        yield from (self._certify(self._looked.loss + self.cost()) if known else self.verify())

    def check_small(self) -> None:
        """Raise SumsError if a column whose squares underflow might need a coefficient."""
        if not len(self.design.small):
            return
        strengths = np.zeros(self.design.n_columns)
        unit = np.ones((self.n_outputs, len(self.layout.order)))
        of_cell = 1.0 / self.layout.by_cell(self.layout.levels(self._own, unit, None))
        strengths[self.layout.order] = np.repeat(of_cell, self.layout.widths)
        smoothness = declared(self.loss, "smoothness")
        energy = (
            2.0 * self.certificate.null_objective * (smoothness if smoothness < np.inf else 1.0)
        )
        check_small(self.design, strengths, energy)

    def skip(self, previous: Penalty) -> None:
        """Apply the strong rule after a fit with another penalty; the gradient is on all columns.

        Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B
        2012, sections 2 and 5.
        """
        present = self.layout.by_cell(self._levels())
        before = self.layout.levels(self.layout.own(previous), self._tilted(), None)
        most = float(self.layout.by_cell(before).max(initial=0.0))
        if not most > 0.0 or not len(present):
            return
        ratio = float(present.max()) / most * min(1.0, most)  # of the penalties
        stay = self.layout.by_cell(self.layout.support(self.point.coef, None))
        strong = (present >= 2.0 - ratio) | stay | self._is_kept()
        if ratio > 1.0 + LAST_BITS and not strong.all():
            self.point.gradient = self.point.gradient[:, self.layout.within(strong, None)]
            kept = np.flatnonzero(strong)
            self.screening = Screening(kept, self.certificate.tolerance)

    def _is_kept(self) -> NDArray[np.bool_]:
        """Return which cells every scope has, although they might be skipped."""
        return np.zeros(len(self.layout.numbers), bool)

    # -- points ------------------------------------------------------------------------------------

    def advance(self, columns: Indices, change: Floats, anew: bool = False) -> Steps:
        """Change the image, and evaluate the point."""
        yield from self._look((yield from self._settle(columns, change, anew, self._constant)))

    def refresh(self) -> Steps:
        """Compute the state of the partitions from scratch, and evaluate the point."""
        yield from self._look((yield from self._settle_anew()))

    def verify(self) -> Steps:
        """Evaluate the present point on all columns."""
        yield from self._look(self._looked.loss + self.cost())

    def _settle_anew(self) -> Generator[Any, Any, float]:
        moved = np.flatnonzero(self.point.coef.any(axis=0))
        coef = self.point.coef[:, moved]
        return (yield from self._settle(self.layout.order[moved], coef, anew=True))

    def _settle(
        self, columns: Indices, change: Floats, anew: bool = False, with_gradient: bool = False
    ) -> Generator[Any, Any, float]:
        """Change the image, and optimise F; returns the objective.

        The gradient is computed at the same time if F is expected to be optimal.
        """
        given = columns, change, self.point.level, 0.0, anew, with_gradient, self._scoped()
        found: jobs.Looked = yield Sum(jobs.Look(self.loss, *given))
        return (yield from self._optimise(found))

    def _optimise(self, found: jobs.Looked) -> Generator[Any, Any, float]:
        """Make Newton steps on F until it is optimal; returns the objective.

        A step that raises the loss is halved.  Rounded coefficients do not move.
        """
        point, damping = self.point, 0.0
        reach = np.inf if self._constant else _REACH
        ask = partial(jobs.Look, self.loss, NO_COLUMNS, NO_CHANGE)
        moves = np.ones(point.level.shape)
        if self.rounded:
            moves[:, int(self.design.fit_intercept) :] = 0.0
        both = np.outer(moves, moves)
        for _ in range(_MOST_SETTLING):
            slope = moves * found.slope
            size = float(np.abs(slope).max(initial=0.0))
            if not size > self._wanted():
                break
            step = np.linalg.pinv(both * found.curvature, 1e-13, hermitian=True) @ np.ravel(slope)
            step = step.reshape(slope.shape)
            step *= min(1.0, reach / max(float(np.abs(step).max()), LEAST))
            reach, halvings = 2.0 * reach, 0
            while True:
                new: jobs.Looked = yield Sum(ask(point.level + step, damping))
                if new.loss <= found.loss * (1.0 + RISE) or halvings == MOST_HALVINGS:
                    break
                step, halvings = 0.5 * step, halvings + 1
            if not float(np.sum(step * slope)) > LAST_BITS * found.loss:
                halvings = MOST_HALVINGS  # the slope has directions without curvature
            stands = damping == 1.0 or halvings < MOST_HALVINGS
            damping, after = damped(damping, halvings), float(np.abs(moves * new.slope).max())
            is_level = new.loss <= found.loss * (1.0 + RISE)  # but for rounding
            if new.loss < found.loss or (is_level and after < 0.5 * size):
                point.level, found = point.level + step, new
            elif stands:
                break
            else:
                found = yield Sum(ask(point.level, damping))
        self._looked = found
        return found.loss + self.cost()

    @property
    def _unit(self) -> float:
        """Size of numbers that are neither large nor small in F."""
        if not self._constant:
            return 1.0
        return float(np.sqrt(2.0 * self.certificate.null_objective / self.design.total_weight))

    def _wanted(self) -> float:
        """Return the slope at which F is optimal: the gap contains it times the size of F."""
        distance = max(self._unit, float(np.abs(self.point.level).max(initial=0.0)), LEAST)
        wanted = 0.01 * self.certificate.tolerance / (distance * max(1, self.point.level.size))
        size = self._unit * self.design.total_weight
        known = np.isfinite(self.certificate.objective)
        return max(min(wanted if known else 0.0, 1e-10 * size), _ROUNDING * size)

    def _look(self, objective: float) -> Steps:
        """Compute the gradient at the present point, and the gap."""
        asked, gradient = self._scoped(), self._looked.gradient
        columns = self.layout.order if asked is None else asked
        self._looked = self._looked._replace(gradient=np.empty((0, 0)))
        if not gradient.size:
            gradient = yield Sum(jobs.Gradients(self.loss, self.point.level, asked))
        self._set_gradient(gradient[:, columns] if asked is None else gradient, columns)
        yield from self._certify(objective)

    def _scoped(self) -> Indices | None:
        """Return the columns in the scope, or None for all."""
        scope = self.screening.scope
        return None if scope is None else self.layout.order[self.layout.positions(scope)]

    def _set_gradient(self, gradient: Floats, columns: Indices) -> None:
        """Set the gradient in the scope, given that of columns which are not centred."""
        if self.design.fit_intercept:
            gradient = gradient - np.outer(self._looked.slope[:, 0], self.design.means[columns])
        if self.design.flat:
            gradient[:, self.design.norms[columns] == 0.0] = 0.0
        self.point.gradient = gradient
        self.work.touched += gradient.size * float(self.design.n_rows)

    def _tilted(self) -> Floats:
        """Return the slopes in the scope: the gradient minus that of the squares of the penalty."""
        gradient, own = self.point.gradient, self._own
        if self.layout.in_blocks or not own.certified or not np.any(own.ridges):
            return gradient
        here = self.layout.positions(self.screening.scope)
        ridges = np.broadcast_to(own.ridges, len(self.layout.order))[here]
        found: Floats = gradient - ridges * self.point.coef[:, here]
        return found

    def _levels(self) -> Floats:
        """Return the levels of `Layout` in the scope, which the gap and the next step ask for."""
        given = self.point.gradient, self.penalty
        if any(one is not other for one, other in zip(given, self._leveled[:2], strict=True)):
            found = self.layout.levels(self._own, self._tilted(), self.screening.scope)
            self._leveled = *given, found
        levels: Floats = self._leveled[2]
        return levels

    def _certify(self, objective: float) -> Steps:
        """Compute the gap at the present point, from the dual objective at the scaled slopes."""
        point, looked = self.point, self._looked
        if not self.certificate.certified:
            self.certificate.certify(objective, self._merit(), self.screening)
            return
        scale = 1.0 / max(1.0, float(self._levels().max(initial=0.0)))
        dual = yield Sum(jobs.DualValue(self.loss, point.level, scale))
        if not self.layout.in_blocks and np.any(self._own.ridges):
            squares = (point.coef * point.coef).sum(axis=0)
            dual -= 0.5 * scale**2 * float(np.sum(self._own.ridges * squares))
        left = np.abs(looked.slope)
        dual -= 2.0 * float((left * np.maximum(self._unit, np.abs(point.level))).sum())
        total = self._unit * max(looked.total, self.design.total_weight)
        settled = (left <= _SETTLED * total).all()
        gap = objective - dual if settled else np.inf
        self.certificate.certify(objective, gap, self.screening)

    def _merit(self) -> float:
        """Return how much blocks in the scope violate their condition, as a loss."""
        cells = np.arange(len(self.layout.numbers))[all_or(self.screening.scope)]
        chosen = self.layout.chosen(self.layout.blocks_of(cells)[0])
        columns = self.layout.order[chosen.places % max(1, len(self.layout.order))]
        steep = declared(self.loss, "smoothness")
        if not steep < np.inf:
            steep = self._looked.total / self.design.total_weight
        norms = steep * self.design.norms[columns]
        bounds = np.add.reduceat(norms, chosen.starts[:-1]) if len(norms) else norms
        coef, slopes = np.ravel(self.point.coef)[chosen.places], self._everywhere()[chosen.places]
        return violation_of(self._own, slopes, coef, chosen.starts, chosen.numbers, bounds)

    def _of_intercept(self, change: float) -> Floats:
        """Return a change of the intercept as one of F."""
        levels = np.zeros_like(self.point.level)
        levels[:, : int(self.design.fit_intercept)] = change
        return levels

    def _everywhere(self) -> Floats:
        """Return the gradient of all coefficients, which is zero outside the scope."""
        whole = np.zeros_like(self.point.coef)
        whole[:, self.layout.positions(self.screening.scope)] = self.point.gradient
        return np.ravel(whole)


def all_or(cells: Indices | None) -> Any:
    """Return an index of some cells, or of all."""
    return slice(None) if cells is None else cells
