"""The equations of a Newton step on the support, solved by conjugate gradients."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import groups
from schmp_estimators.linear.kernels.groups import Blocks
from schmp_estimators.linear.kernels.newton import conjugate_gradient
from schmp_estimators.linear.kernels.sparse import Columns, Quadratic
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.programs.matrix import Floats, Indices

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
        members, starts = freeze(members), freeze(starts)
        grams = groups.group_grams(columns, quadratic, n_rows, members, starts)
        factors = groups.factorise_groups(freeze(grams), starts, members, quadratic.ridges)
        return cls(columns, quadratic, n_rows, freeze(Blocks(members, starts, grams, factors)))

    def settle_groups(self, coef: Floats, residual: Floats, penalty: Penalty) -> None:
        """Solve each group of dependent columns on its own; moves `coef` and `residual`."""
        groups.group_pass(self.columns, self.quadratic, self.blocks, coef, residual, freeze(penalty))

    def solve(self, gradient: Floats, free: np.ndarray, max_steps: int, goal: float) -> tuple[Floats, Floats, int]:
        """Return the step over the free columns, zero elsewhere, X̃·step, and how many steps of CG it took."""
        step, image = np.empty(len(gradient)), np.empty(self.n_rows)
        steps = conjugate_gradient(
            self.columns, self.quadratic, self.blocks, freeze(free), freeze(gradient), max_steps, goal, step, image
        )
        return step, image, int(steps)


def pinned_solution(
    hessian: Floats, gradient: Floats, coef: Floats, most: int, rounds: int = 6
) -> tuple[Floats | None, Indices]:
    """Return the Newton step that keeps every sign of `coef`, and the positions, `most` of them, that it sends to zero.

    One Cholesky factor serves all rounds: pinning coordinates F to zero adds multipliers, i.e. |F| right-hand sides.
    The step is None where `hessian` (k, k), which is overwritten, is not positive definite.
    """
    count = len(coef)
    nothing = np.empty(0, np.int64)
    hessian.flat[:: count + 1] *= 1.0 + 1e-9
    factor, failed = lapack.dpotrf(hessian.T, lower=1, overwrite_a=1, clean=0)
    if failed:
        return None, nothing
    free_step = lapack.dpotrs(factor, gradient, lower=1)[0]
    step, pinned = free_step, nothing
    responses = np.empty((count, 0), order="F")
    for attempt in range(rounds + 1):
        crossing = (coef + step) * coef < 0.0
        crossing[pinned] = False
        new = np.flatnonzero(crossing)
        if not len(new):
            break
        pinned = np.concatenate([pinned, new])
        if attempt == rounds or len(pinned) > most:  # too many: cut the step off, descent goes on from there
            step = step.copy()
            step[new] = -coef[new]
            break
        units = np.zeros((count, len(new)), order="F")
        units[new, np.arange(len(new))] = 1.0
        responses = np.hstack([responses, lapack.dpotrs(factor, units, lower=1, overwrite_b=1)[0]])
        multipliers = np.linalg.solve(responses[pinned], -coef[pinned] - free_step[pinned])
        step = free_step + responses @ multipliers
        step[pinned] = -coef[pinned]
    return step, pinned
