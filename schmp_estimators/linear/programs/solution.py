"""What solvers find: the current point of a fit, its solution, and the solutions of a path."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.programs.design import NO_CHANGE
from schmp_estimators.linear.programs.matrix import Floats

#: A penalty above which every solution is zero.
ABOVE_ALL = 1e200
#: A point of a path is solved to this part of the previous solution's gap at its penalty:
#: otherwise the previous point might satisfy the tolerance for several penalties.
OF_STEP = 0.01


@dataclass
class Point:
    """The current point of a fit."""

    #: (K, q) coefficients in the order of `Layout`
    coef: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (K, f) coefficients of F
    level: Any = 0.0
    #: gradient over the columns in the scope
    gradient: Floats = field(default_factory=lambda: NO_CHANGE)
    #: smallest curvature of a row, relative to the largest
    damping: float = 0.0


@dataclass
class Work:
    """What a fit has done so far."""

    n_iter: int = 0
    #: entries operated upon: columns × rows of gradients, updates and products, and those of Gram
    #: matrices
    touched: float = 0.0
    #: seconds from the beginning to the last gap
    seconds: float = 0.0


@dataclass
class Solution:
    """The solution for one penalty and its duality gap; objectives are sums over samples."""

    #: (p,) and a number, or (K, p) and (K,) for all classes at once
    coef: Floats
    intercept: Any
    objective: float
    gap: float
    tolerance: float
    total_weight: float
    #: objective without coefficients
    null_objective: float
    n_iter: int
    #: gap of the rounded coefficients
    certified_gap: float
    #: whether the fit has ended with a gap above the tolerance
    fell_short: bool
    #: whether gaps are bounds; otherwise they are estimates, see `penalties.base.merit`
    certified: bool = True
    #: what a schedule has recorded of each coefficient, if it was told to
    moves: Any = None

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return int(self.coef.shape[-1])


def record_of(solution: Solution, work: int, seconds: float) -> dict[str, float]:
    """Return the record of a solution for `history_`."""
    return {
        "iterations": solution.n_iter,
        "seconds": seconds,
        "objective": solution.objective / solution.total_weight,
        "dual_gap": solution.certified_gap / solution.total_weight,
        "support": int(np.count_nonzero(solution.coef)),
        "scope": solution.n_columns,
        "samples": work,
    }


class Points(NamedTuple):
    """Solutions for falling penalties, of objectives that are sums over samples."""

    #: (t,) λ
    penalties: Floats
    #: (t, p), or (t, K, p) for all K classes at once
    coefs: Floats
    #: (t,) or (t, K) intercepts for centred columns
    levels: Floats
    #: (t,) each
    gaps: Floats
    objectives: Floats
    steps: Floats
    work: Floats
    support: Floats
