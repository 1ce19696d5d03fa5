"""Screening: which columns a fit looks at, and which of these it solves for.

Full gradients take most of the time of a dense fit, so columns whose coefficients will probably remain zero are
skipped.  The other columns are the *scope*.  A solution on a scope must be verified on all columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.linear.programs.matrix import Indices

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
            self.goal = goal
        self.scope = numbers[likely]
        return likely
