"""Screening: which columns a fit looks at, and which of these it solves for.

Full gradients take most of the time of a dense fit, so columns whose coefficients will probably remain zero are
skipped.  The other columns are the *scope*.  A solution on a scope must be verified on all columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.linear.penalties.base import Penalty, sizes, take
from schmp_estimators.linear.programs.design import NO_COLUMNS
from schmp_estimators.linear.programs.gram import GramProblem
from schmp_estimators.linear.programs.matrix import Floats, Indices

FEW = 0.1  # violators per column of the support, below which a working set is nearly complete
NEAR = 0.85  # part of the penalty above which a gradient nearly violates
#: A column is likely if its gradient exceeds this part of the penalty, at first and in later steps; part of all columns
#: above which likely columns are too many to be useful.
_LIKELY, _FEW_LIKELY = (0.6, 0.7, 0.8), 0.35


@dataclass
class Screening:
    """The scope, which by default has all columns."""

    #: columns that are not skipped, ascending; None for all
    scope: Indices | None = None
    #: gap on the scope at which all columns are used again
    goal: float = 0.0
    #: best dual value on the scope, which is a bound only for the problem on that scope
    best_dual: float = -np.inf
    #: number of steps on the scope
    steps: int = 0

    @property
    def places(self) -> Indices | slice:
        """The scope as an index of arrays over columns."""
        return slice(None) if self.scope is None else self.scope

    def narrow(
        self, numbers: Indices, likely_at: Callable[[float], NDArray[np.bool_]], goal: float
    ) -> NDArray[np.bool_] | None:
        """Choose the likely columns as the scope if they are few, or narrow the scope.

        Likely are those that stay, and those whose gradient exceeds a part of the penalty; this part rises as the
        solution settles.  A new scope is left when its gap is at most `goal`.  Returns which of the columns with these
        `numbers` remain, or None.
        """
        if self.scope is not None:
            self.steps += 1
        likely = likely_at(_LIKELY[min(self.steps, len(_LIKELY) - 1)])
        if self.scope is None:
            if np.count_nonzero(likely) > _FEW_LIKELY * len(likely):
                return None
            self.goal, self.best_dual = goal, -np.inf
        self.scope = numbers[likely]
        return likely


class Scoped(NamedTuple):
    """The columns in the scope, at a point."""

    numbers: Indices
    coef: Floats
    gradient: Floats
    norms: Floats
    penalty: Penalty

    @property
    def sizes(self) -> Floats:
        """What the optimality condition compares with λ."""
        return sizes(self.penalty, self.gradient)

    @property
    def stay(self) -> NDArray[np.bool_]:
        """Which columns are in the support or have no penalty."""
        return (self.coef != 0.0) | (self.penalty.strengths == 0.0)

    def likely(self, kept: Indices, part: float) -> NDArray[np.bool_]:
        """Return which columns stay, are among those `kept`, or have a gradient above a part of the penalty."""
        near = (self.sizes > part * self.penalty.strengths) | self.stay
        return near | np.isin(self.numbers, kept)

    def violators(self, among: NDArray[np.bool_], most: int) -> tuple[Indices, int]:
        """Return positions of the largest violations, at most `most`, and the number of all violations.

        The order is by predicted change, (|z_j| − λ)/‖x_j‖².
        """
        excess = self.sizes - self.penalty.strengths
        found = np.flatnonzero(among & (excess > 0.0) & (self.norms > 0.0))
        if len(found) <= most:
            return found, len(found)
        change = excess[found] / self.norms[found]
        return found[np.argpartition(-change, most - 1)[:most]], len(found)

    def working_set(self, least: int, near: bool) -> tuple[Indices, int, bool]:
        """Return the support and the worst violators: at most `least` of these, or as many as the support has.

        If `near`, and violators are few relative to the support, columns that nearly violate join, too: a small step on
        a nearly complete support then needs no other working set.  Also returns the number of all violators, and
        whether all are returned.
        """
        outside = self.coef == 0.0
        size = len(outside) - int(np.count_nonzero(outside))
        worst, count = self.violators(outside, max(least, size))
        if near and count <= FEW * size:
            nearly = self.sizes > NEAR * self.penalty.strengths
            worst = np.flatnonzero(outside & nearly & (self.norms > 0.0))
        chosen = np.sort(np.concatenate([self.numbers[~outside], self.numbers[worst]]))
        return chosen, count, count <= len(worst)


@dataclass
class Candidates:
    """The columns whose Gram matrix is known, in the order in which they joined."""

    #: (k,) column numbers, and the numbers of columns that joined together
    columns: Indices = field(default_factory=lambda: NO_COLUMNS)
    groups: list[Indices] = field(default_factory=list)
    #: (capacity, capacity); the leading (k, k) part is in use
    gram: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def __len__(self) -> int:
        return len(self.columns)

    def extend(self, new: Indices, rows: np.ndarray) -> None:
        """Add `new` columns; `rows` (k_old + k_new, k_new) has their products with all candidates."""
        old, total = len(self), len(self) + len(new)
        if total > len(self.gram):
            grown = np.zeros((max(2 * total, 512),) * 2)
            grown[:old, :old] = self.gram[:old, :old]
            self.gram = grown
        self.gram[:total, old:total] = rows
        self.gram[old:total, :old] = rows[:old].T
        self.columns = np.concatenate([self.columns, new])
        self.groups.append(new)

    def problem(
        self, gradient: Floats, coef: Floats, energy: float, penalty: Penalty
    ) -> GramProblem:
        """Return the problem on the candidates, given their gradient, and coefficients and penalty of all columns."""
        used, order = self.gram[: len(self), : len(self)], np.argsort(self.columns, kind="stable")
        return GramProblem(
            used, gradient, coef[self.columns], energy, take(penalty, self.columns), order
        )
