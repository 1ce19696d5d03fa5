"""Problems with blocks of coefficients and all rows in one place: groups of columns, and several classes.

Objective Σ s_i ℓ(y_i, v_i) + λ Σ_b (f_b‖w_b‖ + ½ρ_b‖w_b‖²), where v = Wx̃ + Fz has K values for each row; z is one for
the intercepts, and columns without a penalty.  One step:

    settle      F to optimality: the dual point, the slopes of the loss scaled, has to be orthogonal to z
    certify     the gradient over all columns scales the dual point until it is feasible
    model       second-order, on blocks that are not zero and those that violate their condition worst, F eliminated
    descend     block by block, each minimised exactly, and Newton steps on those that are not zero
    move        halved while the objective rises

M. Yuan and Y. Lin, JRSS-B 2006, has the groups; J. Lee, Y. Sun and M. Saunders, "Proximal Newton-type methods for
minimizing composite functions", SIAM Journal on Optimization 2014, the steps.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.kernels.smooth import FLAT, MOST_HALVINGS, RISE
from schmp_estimators.linear.losses.base import Loss, steepness, weigh
from schmp_estimators.linear.losses.multinomial import Seen
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.programs.block_model import BlockModel, Blocks, blocks_of
from schmp_estimators.linear.programs.centred import Rows, is_flat, subtract_means
from schmp_estimators.linear.programs.certificate import LAST_BITS, STALLED
from schmp_estimators.linear.programs.homotopy import Points, ProblemAtHand, Wanted
from schmp_estimators.linear.programs.smooth_point import LEVEL_ROUNDING, damped

#: Maximum number of steps to the best F.
_MOST_SETTLING = 100
#: A second-order model is solved to this part of its gap, but not below this part of the goal.
_INNER, _OF_GOAL = 0.01, 0.1
#: Steps that lower the gap by less than this part of it make no progress.
_STANDS = 0.01
#: Number of violating blocks that join at a time, in addition to the number of nonzero blocks; largest number of
#: coefficients of a model.
_JOINING, _MOST = 100, 3000
#: Number of columns up to which products that do not change are computed only once.
_MULTIPLIED = 1000


class OneOutput(NamedTuple):
    """A loss of one decision value, as one of K = 1."""

    loss: Loss
    n_outputs: int = 1

    def look(self, decision: Floats, target: Floats, weights: Floats) -> Seen:
        """Return the loss, its slopes, its curvatures, and upper bounds on curvatures."""
        level, slope, curvature = self.loss.derivatives(decision[0], target, weights, 0.0)
        total = float(weights.sum()) if len(weights) else float(len(target))
        bounds = weigh(weights, np.full(len(target), steepness(self.loss, level, total)))
        if getattr(
            self.loss, "of_difference", False
        ):  # a parabola through the point, even in y − v
            apart = np.abs(target - decision[0])
            np.divide(np.abs(slope), apart, out=bounds, where=apart > 0.0)
        return Seen(level.loss, slope[None], np.stack([curvature, bounds]))

    def products(
        self, values: Floats, outputs: Indices, seen: Seen, weights: Floats, damping: float
    ) -> Floats:
        """Return Σ s ℓ'' x xᵀ with curvatures of at least the part `damping` of their bounds."""
        half = values * np.sqrt(
            np.maximum(seen.shape[0], damping * seen.shape[1]) if damping else seen.shape[0]
        )
        products: Floats = half @ half.T
        return products

    def dual(
        self, seen: Seen, decision: Floats, target: Floats, weights: Floats, scale: float
    ) -> float:
        """Return the dual objective at scale·slope."""
        return self.loss.dual(decision[0], target, weights, 0.0, scale)


def _centred(rows: Rows, fit_intercept: bool, eps: float) -> tuple[float, Floats, Indices]:
    """Centre the columns; returns the weight, the means, and the dropped columns, which vary only by rounding."""
    columns, (total, means, squares, raw) = rows.columns, subtract_means(rows, fit_intercept)
    flat = is_flat(squares, raw, eps)
    dropped = np.flatnonzero(flat & columns.any(axis=1))
    columns[flat] = means[flat] = 0.0
    return total, means, dropped


@dataclass
class Point:
    """The current point of a solver."""

    #: (K·p,) W without free columns, (K·f,) F, and (K, n) Wx̃
    coef: Floats
    levels: Floats
    image: Floats
    seen: Seen
    #: (K·p,)
    gradient: Floats
    #: smallest curvature of a row, relative to the largest
    damping: float = 0.0


class BlockProblem(ProblemAtHand):
    """A problem with all rows in one place.

    Parameters
    ----------
    rows : Rows
        Their columns are overwritten.  The response of `Multinomial` is the number of the class.
    fit_intercept : bool
    loss : Loss or Multinomial
    penalty : Group, L1 or ElasticNet
        That of strength one.
    eps : float
        Relative distance of neighbouring numbers in X.
    """

    def __init__(
        self, rows: Rows, fit_intercept: bool, loss: Any, penalty: Any, eps: float
    ) -> None:
        if len(rows.weights) and not rows.weights.all():
            rows = rows.part(np.flatnonzero(rows.weights))
        self.weights, self.responses, self.fit_intercept = (
            rows.weights,
            rows.responses,
            fit_intercept,
        )
        self.loss = loss if hasattr(loss, "n_outputs") else OneOutput(loss)
        self.columns = rows.columns
        self.total, self.means, self.dropped = _centred(rows, fit_intercept, eps)
        self.blocks, self.positive = (
            blocks_of(penalty, len(self.columns), self.loss.n_outputs),
            bool(penalty.positive),
        )
        free = self.columns[self.blocks.free]
        self.lengths = np.sqrt(np.einsum("ij,ij->i", free, free) / free.shape[1])
        self.lengths[self.lengths == 0.0] = 1.0
        ones = np.ones((int(fit_intercept), free.shape[1]))
        self.extra = np.concatenate([ones, free / self.lengths[:, None]])
        self.shifts = np.zeros(len(self.responses))
        if fit_intercept and getattr(loss, "of_difference", False):
            self.shifts = weigh(self.weights, self.responses).sum(axis=1) / self.total
        self.targets = self.responses - self.shifts[:, None]
        self._is_squared = bool(getattr(loss, "constant_curvature", False))
        self._constant = self._is_squared and len(self.columns) <= _MULTIPLIED
        self._products: Floats | None = None
        self._starts: dict[int, Point] = {}

    # -- what a surface asks -----------------------------------------------------------------------------------------

    def square(self, target: int) -> float:
        """Return the number to which tolerances of gaps are relative."""
        return self.null_objective(target) * (2.0 if self._is_squared else 1.0)

    def null_objective(self, target: int) -> float:
        """Return the objective at zero coefficients, and the best intercept."""
        return self._start(target).seen.loss

    def largest(self, target: int) -> float:
        """Return the smallest λ for which all penalised coefficients are zero."""
        return self._excess(self._start(target).gradient[self.blocks.members])

    def objective(self, target: int, penalty: float, coef: Floats, level: Any) -> float:
        """Return the objective at some coefficients and the intercepts of columns less their means."""
        levels = np.broadcast_to(level - self.shifts[target], self.loss.n_outputs)
        decision = coef.reshape(self.loss.n_outputs, -1) @ self.columns + levels[:, None]
        seen = self.loss.look(decision, self.targets[target], self.weights)
        return float(seen.loss) + self._value(np.ravel(coef), penalty)

    def follow(self, target: int, wanted: Wanted) -> Points:
        """Return the wanted solutions; intercepts follow from coefficients."""
        penalties, goals, _, most, start, _ = wanted
        point, found = self._start(target), []
        if start.any():
            point = self._at(target, np.ravel(start).astype(np.float64), point.levels)
        for penalty, goal, most_here in zip(penalties, goals, most, strict=True):
            point, figures = self._solve(target, point, float(penalty), float(goal), int(most_here))
            found.append((*self._described(point, target), *figures, np.count_nonzero(point.coef)))
        coefs, levels, *figures = (np.array(one) for one in zip(*found, strict=True))
        return Points(penalties, coefs, levels, *(one.astype(np.float64) for one in figures))

    # -- points ------------------------------------------------------------------------------------------------------

    def _start(self, target: int) -> Point:
        if target not in self._starts:
            sizes = self.loss.n_outputs * len(self.columns), self.loss.n_outputs * len(self.extra)
            self._starts[target] = self._at(target, *map(np.zeros, sizes))
        return self._starts[target]

    def _at(self, target: int, coef: Floats, levels: Floats) -> Point:
        """Return the point with given coefficients; those of columns without a penalty are solved for."""
        coef = coef.reshape(self.loss.n_outputs, -1).copy()
        coef[:, self.blocks.free] = 0.0
        image = coef @ self.columns
        return self._point(np.ravel(coef), image, *self._settle(target, image, levels))

    def _point(self, coef: Floats, image: Floats, levels: Floats, seen: Seen) -> Point:
        return Point(coef, levels, image, seen, np.ravel(seen.slope @ self.columns.T))

    def _image(self, levels: Floats) -> Floats:
        image: Floats = levels.reshape(self.loss.n_outputs, -1) @ self.extra
        return image

    def _settle(self, target: int, image: Floats, levels: Floats) -> tuple[Floats, Seen]:
        """Return the best F, by Newton steps that are halved while the loss rises, and the loss there."""
        response, weights, n_outputs = self.targets[target], self.weights, self.loss.n_outputs
        values, outputs = (
            np.tile(self.extra, (n_outputs, 1)),
            np.repeat(np.arange(n_outputs), len(self.extra)),
        )
        seen, damping = self.loss.look(image + self._image(levels), response, weights), 0.0
        first = self._starts[target].seen if target in self._starts else seen
        least = LEVEL_ROUNDING * float(np.abs(first.slope).sum())
        slopes = np.ravel(seen.slope @ self.extra.T)
        for _ in range(_MOST_SETTLING):
            size = float(np.abs(slopes).max(initial=0.0))
            if not size > least:
                break
            products = self.loss.products(values, outputs, seen, weights, damping)
            step, halvings = np.linalg.pinv(products, 1e-13, hermitian=True) @ slopes, 0
            new = self.loss.look(image + self._image(levels + step), response, weights)
            while not new.loss <= seen.loss * (1.0 + RISE) and halvings < MOST_HALVINGS:
                step, halvings = 0.5 * step, halvings + 1
                new = self.loss.look(image + self._image(levels + step), response, weights)
            halvings = halvings if step.any() else MOST_HALVINGS  # there is no curvature
            stands, damping = damping == 1.0 or halvings < MOST_HALVINGS, damped(damping, halvings)
            after = np.ravel(new.slope @ self.extra.T)
            if new.loss < seen.loss or (
                new.loss <= seen.loss * (1.0 + RISE) and np.abs(after).max() < 0.5 * size
            ):
                levels, seen, slopes = levels + step, new, after
            elif stands:
                break
        return levels, seen

    def _objective(self, point: Point, penalty: float) -> float:
        return point.seen.loss + self._value(point.coef, penalty)

    def _value(self, coef: Floats, penalty: float) -> float:
        own, blocks = coef[self.blocks.members], self.blocks
        return penalty * float(
            blocks.strengths @ self._sizes(own) + 0.5 * blocks.ridges @ (own * own)
        )

    def _sizes(self, values: Floats) -> Floats:
        """Return the Euclidean norms of blocks of values."""
        if len(self.blocks.members) == len(self.blocks.strengths):
            return np.abs(values)
        lengths: Floats = np.sqrt(np.add.reduceat(values * values, self.blocks.starts[:-1]))
        return lengths

    def _slopes(self, point: Point, penalty: float) -> Floats:
        """Return the gradient minus that of the squared penalty, block by block."""
        members = self.blocks.members
        slopes: Floats = (
            point.gradient[members] - penalty * self.blocks.ridges * point.coef[members]
        )
        return slopes

    def _excess(self, slopes: Floats) -> float:
        """Return the largest ratio of the norm of a block's slopes to f."""
        sizes = np.maximum(slopes, 0.0) if self.positive else self._sizes(slopes)
        return float((sizes / self.blocks.strengths).max(initial=0.0))

    def _dual(self, target: int, point: Point, penalty: float, slopes: Floats) -> float:
        """Return a lower bound of the minimum.

        Remaining slopes of F are multiplied by the size of F, or by one if that is larger.
        """
        scale, own = 1.0 / max(1.0, self._excess(slopes) / penalty), point.coef[self.blocks.members]
        given = self.targets[target], self.weights, scale
        dual = self.loss.dual(point.seen, point.image + self._image(point.levels), *given)
        dual -= 0.5 * scale**2 * penalty * float(self.blocks.ridges @ (own * own))
        left = np.abs(np.ravel(point.seen.slope @ self.extra.T))
        return dual - 2.0 * float(left @ np.maximum(1.0, np.abs(point.levels)))

    # -- steps -------------------------------------------------------------------------------------------------------

    def _described(self, point: Point, target: int) -> tuple[Floats, Floats]:
        """Return coefficients, which add up to zero over classes, and intercepts of centred columns."""
        n_outputs = self.loss.n_outputs
        coef, levels = point.coef.reshape(n_outputs, -1).copy(), point.levels.reshape(n_outputs, -1)
        coef[:, self.blocks.free] = levels[:, int(self.fit_intercept) :] / self.lengths
        found = levels[:, 0] + self.shifts[target] if self.fit_intercept else np.zeros(n_outputs)
        if isinstance(self.loss, OneOutput):
            return coef[0], found[0]
        return coef, found - (found - coef @ self.means).mean()

    def _solve(
        self, target: int, point: Point, penalty: float, goal: float, most: int
    ) -> tuple[Point, Any]:
        """Make steps until the gap is at most `goal`; returns gap, objective, steps and multiply–adds."""
        lowest, least, stalled, work, steps = np.inf, np.inf, 0, 0.0, 0
        while True:
            slopes, objective = self._slopes(point, penalty), self._objective(point, penalty)
            gap = objective - self._dual(target, point, penalty, slopes)
            work += float(self.columns.size * self.loss.n_outputs)
            moves = gap < (1.0 - _STANDS) * least or objective < lowest - _STANDS * gap
            stalled, least, lowest = (
                0 if moves else stalled + 1,
                min(gap, least),
                min(objective, lowest),
            )
            chosen = self._chosen(point.coef[self.blocks.members], slopes / penalty)
            if gap <= goal or steps == most or stalled > STALLED or not len(chosen):
                return point, (max(gap, 0.0), objective, steps, work)
            model = self._model(point, penalty, slopes, chosen)
            work += model.solve(max(_INNER * gap, _OF_GOAL * goal, LAST_BITS * objective))
            point, steps = self._moved(target, point, penalty, model), steps + 1

    def _model(self, point: Point, penalty: float, slopes: Floats, chosen: Indices) -> BlockModel:
        """Return the second-order model at a point, on the chosen blocks."""
        blocks, own = self.blocks, point.coef[self.blocks.members]
        sizes = np.diff(blocks.starts)[chosen]
        places = np.concatenate([np.arange(blocks.starts[b], blocks.starts[b + 1]) for b in chosen])
        members = blocks.members[places]
        products = self._products_of(point, members)
        count = len(members)
        gram, across, inner = (
            products[:count, :count],
            products[:count, count:],
            products[count:, count:],
        )
        gram[np.diag_indices(count)] += penalty * blocks.ridges[places]
        raw = np.diagonal(gram).copy()
        away = across @ np.linalg.pinv(inner, 1e-13, hermitian=True)
        gram = gram - away @ across.T
        np.fill_diagonal(gram, np.maximum(np.diagonal(gram), FLAT * raw))
        starts, strengths = np.append(0, np.cumsum(sizes)), penalty * blocks.strengths[chosen]
        part = Blocks(members, starts, strengths, blocks.ridges[places], blocks.free)
        return BlockModel(
            part, gram, away, slopes[places].copy(), own[places].copy(), self.positive
        )

    def _chosen(self, own: Floats, slopes: Floats) -> Indices:
        """Return the nonzero blocks and the blocks that violate their condition most."""
        sizes = np.maximum(slopes, 0.0) if self.positive else self._sizes(slopes)
        lengths, distance = self._sizes(own), sizes / self.blocks.strengths - 1.0
        support = lengths > 0.0
        joining = np.flatnonzero(~support & (distance > 0.0))
        most = max(_JOINING, int(np.count_nonzero(support)))
        if len(joining) > most:
            joining = joining[np.argsort(-distance[joining], kind="stable")[:most]]
        found = np.sort(np.concatenate([np.flatnonzero(support), joining]))
        if int(np.diff(self.blocks.starts)[found].sum()) <= _MOST:
            return found
        order = np.argsort(-np.abs(distance[found]), kind="stable")
        kept = np.cumsum(np.diff(self.blocks.starts)[found[order]]) <= _MOST
        kept[0] = True
        return np.sort(found[order[kept]])

    def _products_of(self, point: Point, members: Indices) -> Floats:
        """Return the second derivatives in some coefficients, and after them F."""
        n_columns, n_outputs, extra = len(self.columns), self.loss.n_outputs, len(self.extra)
        if self._constant:
            if self._products is None:
                every = np.concatenate([self.columns, self.extra])
                self._products = self.loss.products(
                    every, np.zeros(len(every), np.int64), point.seen, self.weights, 0.0
                )
            taken = np.append(members, n_columns + np.arange(extra))
            return self._products[np.ix_(taken, taken)]
        outputs = np.append(members // n_columns, np.repeat(np.arange(n_outputs), extra))
        values = np.concatenate(
            [self.columns[members % n_columns], np.tile(self.extra, (n_outputs, 1))]
        )
        products: Floats = self.loss.products(
            values, outputs, point.seen, self.weights, point.damping
        )
        return products

    def _moved(self, target: int, point: Point, penalty: float, model: BlockModel) -> Point:
        """Return the minimum of the model, or the first of its halved steps that lowers the objective."""
        change, before = np.zeros_like(point.coef), self._objective(point, penalty)
        change[model.members] = model.coef - model.begun
        whole = change.reshape(self.loss.n_outputs, -1)
        moved = np.flatnonzero(whole.any(axis=0))
        image, levels = whole[:, moved] @ self.columns[moved], -(change[model.members] @ model.away)
        length = 1.0
        for halvings in range(MOST_HALVINGS if len(moved) else 0):
            there = point.image + length * image
            found = self._settle(target, there, point.levels + length * levels)
            coef = point.coef + length * change
            if found[1].loss + self._value(coef, penalty) <= before * (1.0 + RISE):
                new = self._point(coef, there, *found)
                new.damping = damped(point.damping, halvings)
                return new
            length *= 0.5
        point.damping = damped(point.damping, MOST_HALVINGS)
        return point
