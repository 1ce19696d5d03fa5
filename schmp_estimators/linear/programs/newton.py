"""The equations of a Newton step on the support, solved by conjugate gradients."""

from dataclasses import dataclass

import numpy as np

from schmp_estimators.linear.kernels import groups
from schmp_estimators.linear.kernels.groups import Blocks
from schmp_estimators.linear.kernels.newton import conjugate_gradient
from schmp_estimators.linear.kernels.sparse import Columns, Quadratic, frozen
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.programs.matrix import Floats

_DEPENDENT = 0.5  # correlation above which columns are solved together in the preconditioner
_LARGEST_GROUP = 16


@dataclass
class NewtonSystem:
    """The matrix X̃ᵀWX̃ of a set of columns, and the ridges of their penalty, ready for solving."""

    columns: Columns
    quadratic: Quadratic
    n_rows: int
    blocks: Blocks

    @classmethod
    def of(cls, columns: Columns, quadratic: Quadratic, n_rows: int) -> "NewtonSystem":
        """Return the system of all `columns`, nearly dependent ones in blocks."""
        members, starts = groups.dependent_groups(columns, n_rows, quadratic, _DEPENDENT, _LARGEST_GROUP)
        members, starts = frozen(members), frozen(starts)
        grams = groups.group_grams(columns, quadratic, n_rows, members, starts)
        factors = groups.factorise_groups(frozen(grams), starts, members, quadratic.ridges)
        return cls(columns, quadratic, n_rows, frozen(Blocks(members, starts, grams, factors)))

    def settle_groups(self, coef: Floats, residual: Floats, penalty: Penalty) -> None:
        """Solve each group of dependent columns on its own; moves `coef` and `residual`."""
        groups.group_pass(self.columns, self.quadratic, self.blocks, coef, residual, frozen(penalty))

    def solve(self, gradient: Floats, free: np.ndarray, max_steps: int, goal: float) -> tuple[Floats, Floats, int]:
        """Return the step over the free columns, zero elsewhere, X̃·step, and how many steps of CG it took."""
        step, image = np.empty(len(gradient)), np.empty(self.n_rows)
        steps = conjugate_gradient(
            self.columns, self.quadratic, self.blocks, frozen(free), frozen(gradient), max_steps, goal, step, image
        )
        return step, image, int(steps)
