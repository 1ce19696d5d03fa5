"""Blocks of coefficients, and the second-order model of a step on some of them."""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from schmp_estimators.linear.kernels.descent import PASS_LEFT
from schmp_estimators.linear.kernels.gram import descend_blocks
from schmp_estimators.linear.kernels.smooth import FLAT
from schmp_estimators.linear.kernels.working_set import LIFT, NOTHING
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.penalties.group import Group

#: Passes of descent on a model between two exact steps, and number of exact steps.
_PASSES, _MOST_ROUNDS = 20, 50


class Blocks(NamedTuple):
    """Blocks of coefficients.  The coefficient of column j and output k has the number k·p + j."""

    #: (m,) numbers, block after block, and (B + 1,) where each begins
    members: Indices
    starts: Indices
    #: (B,) f > 0, and (m,) ρ
    strengths: Floats
    ridges: Floats
    #: columns without a penalty
    free: Indices


def blocks_of(penalty: Any, n_columns: int, n_outputs: int) -> Blocks:
    """Return the blocks of a penalty of strength one."""
    outputs = n_columns * np.arange(n_outputs)[:, None]
    strengths = np.broadcast_to(
        penalty.strengths, len(penalty.starts) - 1 if isinstance(penalty, Group) else n_columns
    )
    if isinstance(penalty, Group):
        groups = [
            penalty.columns[a:b]
            for a, b in zip(penalty.starts[:-1], penalty.starts[1:], strict=True)
        ]
        kept = [
            np.ravel(outputs + group)
            for group, strength in zip(groups, strengths, strict=True)
            if strength > 0.0
        ]
        free = [group for group, strength in zip(groups, strengths, strict=True) if strength == 0.0]
        none = np.empty(0, np.int64)
        members, starts = np.concatenate([none, *kept]), np.cumsum([0, *map(len, kept)])
        ridges, free_columns = np.zeros(len(members)), np.sort(np.concatenate([none, *free]))
        return Blocks(members, starts, strengths[strengths > 0.0], ridges, free_columns)
    columns = np.flatnonzero(strengths)
    members, ridges = (
        np.ravel(outputs + columns),
        np.broadcast_to(penalty.ridges, n_columns)[columns],
    )
    own = np.tile(strengths[columns], n_outputs), np.tile(ridges, n_outputs)
    return Blocks(members, np.arange(len(members) + 1), *own, np.flatnonzero(strengths == 0.0))


class BlockModel:
    """−qᵀΔ + ½ΔᵀHΔ + Σ_b λ_b‖w_b‖ on some blocks, begun at w; within a block H is made diagonal by rotation."""

    def __init__(
        self,
        blocks: Blocks,
        gram: Floats,
        away: Floats,
        slopes: Floats,
        coef: Floats,
        positive: bool,
    ) -> None:
        self.members, self.away, self.begun = blocks.members, away, coef.copy()
        self.gram, self.slopes, self.coef, self.positive = gram, slopes, coef, positive
        self.starts, self.strengths = blocks.starts, blocks.strengths
        self.sizes = np.diff(blocks.starts)
        self.wide = [slice(*blocks.starts[b : b + 2]) for b in np.flatnonzero(self.sizes > 1)]
        self.turns = [self._turn(here) for here in self.wide]

    def _turn(self, here: slice) -> Floats:
        values, vectors = np.linalg.eigh(self.gram[here, here])
        self.gram[here] = vectors.T @ self.gram[here]
        self.gram[:, here] = self.gram[:, here] @ vectors
        self.gram[here, here] = np.diag(np.maximum(values, FLAT * values[-1]))
        self.slopes[here], self.coef[here] = self.slopes[here] @ vectors, self.coef[here] @ vectors
        turn: Floats = vectors
        return turn

    def solve(self, goal: float) -> float:
        """Solve until descent could gain about `goal` at most; returns the number of multiply–adds."""
        work = 0.0
        given = self.gram, self.slopes, self.coef, self.starts, self.strengths, self.positive
        for _ in range(_MOST_ROUNDS):
            work += descend_blocks(*given, _PASSES, PASS_LEFT) * float(self.gram.size)
            if self._merit() <= goal or not self._exact_step():
                break
            work += float(np.count_nonzero(self.coef)) ** 3 / 3.0
        for here, turn in zip(self.wide, self.turns, strict=True):
            self.coef[here] = turn @ self.coef[here]
        return work

    def _units(self) -> tuple[Floats, Floats]:
        """Return ‖w_b‖, and the derivative of the penalty in each coefficient; it is zero in blocks that are zero."""
        lengths = np.sqrt(np.add.reduceat(self.coef * self.coef, self.starts[:-1]))
        each = np.repeat(
            np.divide(self.strengths, lengths, out=np.zeros_like(lengths), where=lengths > 0.0),
            self.sizes,
        )
        return lengths, each * self.coef

    def _merit(self) -> float:
        """Return the violation of the optimality conditions, in units of the objective."""
        lengths, units = self._units()
        left = self.slopes - units
        left = np.maximum(left, 0.0) if self.positive else left
        distance = np.sqrt(np.add.reduceat(left * left, self.starts[:-1]))
        distance = np.where(lengths > 0.0, distance, np.maximum(distance - self.strengths, 0.0))
        curvatures = np.maximum.reduceat(np.diagonal(self.gram), self.starts[:-1])
        gains = (
            np.divide(distance, curvatures, out=np.zeros_like(distance), where=curvatures > 0.0)
            * distance
        )
        return float(distance @ lengths + 0.5 * gains.sum())

    def _exact_step(self) -> bool:
        """Make a Newton step on the nonzero blocks, or a part of it; returns whether this lowers the model."""
        lengths, units = self._units()
        support = np.flatnonzero(np.repeat(lengths > 0.0, self.sizes))
        old, narrow = self.coef[support], np.repeat(self.sizes == 1, self.sizes)[support]
        try:
            factor = cho_factor(self._curvature(support, lengths, units), check_finite=False)
        except LinAlgError:
            return False
        step = cho_solve(factor, (self.slopes - units)[support], check_finite=False)
        crossing = narrow & (step * old < 0.0) & (np.abs(step) > np.abs(old))
        first = float((old[crossing] / -step[crossing]).min(initial=1.0))
        for part in (1.0, first, 0.5 * first, 0.1 * first):
            new = old + part * step
            new[narrow & (new * old <= NOTHING * old * old)] = 0.0
            slopes, coef = self.slopes - (new - old) @ self.gram[support], self.coef.copy()
            coef[support] = new
            fall = 0.5 * float((new - old) @ (self.slopes + slopes)[support])
            if fall - (self._value(coef) - self._value(self.coef)) > 0.0:
                self.slopes[:], self.coef[:] = slopes, coef
                return True
        return False

    def _value(self, coef: Floats) -> float:
        return float(self.strengths @ np.sqrt(np.add.reduceat(coef * coef, self.starts[:-1])))

    def _curvature(self, support: Indices, lengths: Floats, units: Floats) -> Floats:
        """Return the second derivatives on the support, raised a little because columns may be dependent."""
        curvature = self.gram.copy()
        curvature[np.diag_indices(len(curvature))] *= 1.0 + LIFT
        for b in np.flatnonzero((self.sizes > 1) & (lengths > 0.0)):
            here, strength = slice(*self.starts[b : b + 2]), self.strengths[b]
            unit = units[here] / strength
            curvature[here, here] += (np.eye(len(unit)) - np.outer(unit, unit)) * (
                strength / lengths[b]
            )
        found: Floats = curvature[np.ix_(support, support)]
        return found
