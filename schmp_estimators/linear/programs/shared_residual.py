"""A sparse working set solved where its rows are: by products with H alone, each one sum over all partitions.

The problem is min −q·δ + ½δᵀHδ + P(β + δ) over the columns of the working set, with H = X̃ᵀWX̃ and q the gradient at
the point: no residual is needed.  A round is a proximal step of each column, or group of dependent columns, by itself
with one length for all, which lets columns in; then conjugate gradients on the support within its signs, in which
coordinates that would cross zero are pinned there.  All but the products is done by everybody alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.engines.team import Team
from schmp_estimators.linear.kernels import groups
from schmp_estimators.linear.kernels.face import (
    block_targets,
    centre_groups,
    precondition,
    restrict_groups,
    unite_groups,
)
from schmp_estimators.linear.kernels.groups import Blocks
from schmp_estimators.linear.kernels.rows import Rows, keep_columns, row_product, rows_of
from schmp_estimators.linear.kernels.sparse import Columns, Quadratic, frozen, sparse_moments
from schmp_estimators.linear.penalties.base import Penalty, take
from schmp_estimators.linear.programs.matrix import Floats, Indices

_DEPENDENT, _LARGEST_GROUP = 0.5, 16
_PINNING_ROUNDS = 3
#: Penalties with ridges are not for here, see `is_for_all`.
_NONE = frozen(np.empty(0))
#: Steps of conjugate gradients on one face, at least and at most, and the smallest part of the slope that they leave.
_LEAST_STEPS, _MOST_STEPS, _LAST_ACCURACY = 4, 300, 0.01
#: Coordinates crossing zero, as parts of the support, below which the next face is solved better, above which worse.
_FEW_CROSS, _MANY_CROSS = 0.02, 0.1
#: Part of a step on a face, if the best one is at least that, to which it is made whole, so that pins hold.
_WHOLE = 0.6
#: Rounds that leave most of the merit after which there is nothing to be gained.
_STALLED, _LITTLE = 5, 0.9


#: Members of groups of columns, group after group, and where each group starts.
Groups = tuple[Indices, Indices]


def united(found: Sequence[Groups], count: int) -> Groups:
    """Return groups among `count` columns that are put together of what each partition finds."""
    lengths = np.concatenate([[0], *(np.diff(starts) for _, starts in found)])
    joined = frozen(np.concatenate([members for members, _ in found])), frozen(np.cumsum(lengths))
    members, starts = map(frozen, unite_groups(*joined, count, _LARGEST_GROUP))
    return members, starts


class Piece(NamedTuple):
    """The columns of a working set in the rows of one partition."""

    columns: Columns
    #: (n_p,) or (0,) for weights of one
    weights: Floats
    n_rows: int

    def dependent(self, means: Floats) -> tuple[Indices, Indices]:
        """Return groups of dependent columns as far as the rows of this partition show them."""
        sums, squares = np.empty((2, len(means)))
        sparse_moments(frozen(self.columns), frozen(self.weights), sums, squares)
        total = float(self.weights.sum()) if len(self.weights) else float(self.n_rows)
        norms = np.maximum(squares - means * (2.0 * sums - total * means), 0.0)
        quadratic = frozen(Quadratic(norms, means, sums, self.weights, _NONE))
        return groups.dependent_groups(frozen(self.columns), self.n_rows, quadratic, _DEPENDENT, _LARGEST_GROUP)

    def grams(self, members: Indices, starts: Indices) -> Floats:
        """Return the products of the columns of each group, less what means are to take off."""
        zeros = np.zeros(len(self.columns.starts) - 1)
        sums, squares = np.empty((2, len(zeros)))
        sparse_moments(frozen(self.columns), frozen(self.weights), sums, squares)
        quadratic = frozen(Quadratic(squares, zeros, zeros, self.weights, _NONE))
        return groups.group_grams(frozen(self.columns), quadratic, self.n_rows, frozen(members), frozen(starts))


class RowPiece(NamedTuple):
    """The same by rows, for products."""

    rows: Rows
    weights: Floats

    @classmethod
    def of(cls, piece: Piece) -> "RowPiece":
        """Return the piece by rows."""
        return cls(frozen(Rows(*rows_of(frozen(piece.columns), piece.n_rows))), frozen(piece.weights))

    def restricted(self, places: Indices) -> "RowPiece":
        """Return the columns whose place is not negative, as columns with that number."""
        return self._replace(rows=frozen(Rows(*keep_columns(self.rows, frozen(places)))))

    def product(self, means: Floats, change: Floats) -> Floats:
        """Return X_pᵀW(X_p − 1x̄ᵀ)·change: the part of this partition in the product with H."""
        out = np.empty(len(change))
        row_product(self.rows, self.weights, frozen(change), float(means @ change), out)
        return out


class Effort(NamedTuple):
    """How well faces are solved; as with `Pace`, too well too early is the main waste."""

    steps: int
    accuracy: float

    def sharpened(self) -> "Effort":
        """Return what solves faces better."""
        return Effort(min(2 * self.steps, _MOST_STEPS), max(0.3 * self.accuracy, _LAST_ACCURACY))

    def after(self, crossed: int, support: int) -> "Effort":
        """Return what to take next, where so many coordinates of a support have crossed zero before any was pinned."""
        if crossed <= _FEW_CROSS * support:
            return self.sharpened()
        if crossed > _MANY_CROSS * support:
            return self._replace(steps=max(self.steps // 2, _LEAST_STEPS))
        return self


@dataclass
class SharedProblem:
    """A working set of which each member of a team has some rows, and the point reached on it."""

    pieces: Sequence[Piece]
    team: Team
    #: (k,) diagonal of H, and x̄
    norms: Floats
    means: Floats
    #: Σ w over all rows
    total_weight: float
    #: (k,) coefficients and the gradient there, which moves with them
    coef: Floats
    gradient: Floats
    #: what ‖r‖² has lost since the beginning
    gained: float
    penalty: Penalty
    effort: Effort
    #: of dependent columns, where they are known
    groups: Groups | None = None
    #: columns gone through by products
    visited: float = 0.0
    _rows: list[RowPiece] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = self.team.each(RowPiece.of, self.pieces)

    def solve(self, merit: Callable[["SharedProblem"], float], goal: float, rounds: int) -> bool:
        """Move the point until its merit is at most `goal`; returns whether it is."""
        blocks, best, value, stalled = self._blocks(), np.inf, np.inf, 0
        for _ in range(rounds):
            self._let_in(blocks)
            support = np.flatnonzero(self.coef)
            if len(support):
                self._descend(support, blocks)
            value = merit(self)
            stalled = stalled + 1 if value >= _LITTLE * best else 0
            if stalled:  # what crosses here crosses again, unless faces are solved better
                self.effort = self.effort.sharpened().sharpened()
            best = min(best, value)
            if value <= goal or stalled >= _STALLED:
                break
        return value <= goal

    def product(self, change: Floats) -> Floats:
        """Return H·change."""
        return self._product(self._rows, self.means, change)

    def _product(self, pieces: Sequence[RowPiece], means: Floats, change: Floats) -> Floats:
        self.visited += 2 * len(change)
        product: Floats = self.team.sum(self.team.each(lambda piece: piece.product(means, change), pieces))
        return product

    def _move(self, change: Floats, image: Floats, slope: float, whole: float = 1.0) -> float:
        """Make the best step on the segment to `change`, along which the penalised objective has `slope` at least."""
        curvature = float(change @ image)
        length = min(1.0, slope / curvature) if curvature > 0.0 else 0.0
        if length > whole:
            length = 1.0
        if length > 0.0:
            self.coef += length * change
            self.gained += length * float(change @ (2.0 * self.gradient - length * image))
            self.gradient -= length * image
        return length

    # -- proximal steps --------------------------------------------------------------------------------------------

    def _let_in(self, blocks: Blocks) -> None:
        targets = np.empty(len(self.coef))
        block_targets(
            frozen(self.gradient), frozen(self.norms), blocks, frozen(self.coef), frozen(self.penalty), targets
        )
        change = targets - self.coef
        if change.any():
            rise = self.penalty.rise(targets, self.coef)
            self._move(change, self.product(change), float(self.gradient @ change) - rise)

    # -- conjugate gradients on a face -----------------------------------------------------------------------------

    def _descend(self, support: Indices, blocks: Blocks) -> None:
        """Minimise over the support within the orthant of its signs."""
        places = self._places(support)
        pieces = self.team.each(lambda piece: piece.restricted(places), self._rows)
        norms, means, signs = frozen(self.norms[support]), self.means[support], np.sign(self.coef[support])
        blocks = self._restricted(blocks, support)
        old, free = self.coef[support], np.ones(len(support), bool)
        strengths = take(self.penalty, support).strengths * signs
        step, slope = np.zeros(len(support)), self.gradient[support] - strengths
        crossed, goal = 0, None
        for number in range(_PINNING_ROUNDS + 1):
            if number:
                slope = self.gradient[support] - strengths - self._product(pieces, means, step)
            move, goal = self._conjugate_gradients(pieces, norms, means, blocks, free, slope, goal)
            step += move
            crossing = free & ((old + step) * signs < 0.0)
            count = int(np.count_nonzero(crossing))
            if not count:
                break
            crossed = crossed or count
            step[crossing] = -old[crossing]
            free &= ~crossing
            if not free.any():
                break
        self.effort = self.effort.after(crossed, len(support))
        change = np.zeros(len(self.coef))
        change[support] = step
        slope_along = float((self.gradient[support] - strengths) @ step)
        length = self._move(change, self.product(change), slope_along, _WHOLE)
        if length == 1.0:
            self.coef[support[~free]] = 0.0

    def _conjugate_gradients(
        self,
        pieces: Sequence[RowPiece],
        norms: Floats,
        means: Floats,
        blocks: Blocks,
        free: np.ndarray,
        slope: Floats,
        goal: float | None,
    ) -> tuple[Floats, float]:
        """Return a step that solves H·step = slope over the free columns, and the energy that was to be reached."""
        remaining, scaled, step = np.where(free, slope, 0.0), np.empty(len(slope)), np.zeros(len(slope))
        free = frozen(free)
        energy = precondition(frozen(remaining), norms, blocks, free, scaled)
        goal = self.effort.accuracy**2 * energy if goal is None else goal
        direction = scaled.copy()
        for _ in range(self.effort.steps):
            if not energy > goal:
                break
            image = self._product(pieces, means, direction)
            curvature = float(direction @ image)
            if not curvature > 1e-300:
                break
            length = energy / curvature
            step += length * direction
            remaining -= length * np.where(free, image, 0.0)
            before, energy = energy, precondition(frozen(remaining), norms, blocks, free, scaled)
            direction = scaled + (energy / before) * direction
        return step, goal

    # -- dependent columns -----------------------------------------------------------------------------------------

    def _blocks(self) -> Blocks:
        """Return the groups of dependent columns, with their parts of H."""
        if self.groups is None:
            found = self.team.sum(self.team.each(lambda piece: [piece.dependent(self.means)], self.pieces))
            members, starts = united(found, len(self.coef))
        else:
            members, starts = map(frozen, self.groups)
        grams = self.team.sum(self.team.each(lambda piece: piece.grams(members, starts), self.pieces))
        centre_groups(members, starts, frozen(self.norms), frozen(self.means), self.total_weight, grams)
        return _factorised(members, starts, grams)

    def _restricted(self, blocks: Blocks, support: Indices) -> Blocks:
        """Return the blocks of the columns in a support."""
        return _factorised(*restrict_groups(blocks, self._places(support)))

    def _places(self, support: Indices) -> Indices:
        """Return the number of each column in a support, −1 for those outside."""
        places = np.full(len(self.coef), -1)
        places[support] = np.arange(len(support))
        return frozen(places)


def _factorised(members: Indices, starts: Indices, grams: Floats) -> Blocks:
    factors = groups.factorise_groups(frozen(grams), frozen(starts), frozen(members), _NONE)
    return frozen(Blocks(members, starts, grams, factors))
