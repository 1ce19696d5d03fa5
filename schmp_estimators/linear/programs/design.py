"""The columns of X in a fit: moments, and which columns cannot be used."""

from dataclasses import dataclass, field

import numpy as np

from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, Sums
from schmp_estimators.linear.programs.matrix import Floats, Indices

NO_COLUMNS: Indices = np.empty(0, np.int64)
NO_CHANGE: Floats = np.empty(0)


@dataclass
class Design:
    """The size of X, and properties of its columns, which do not depend on coefficients."""

    n_rows: int = 0
    n_partitions: int = 1
    fit_intercept: bool = True
    #: stored values of X for each column, on average
    per_column: float = 0.0
    #: relative distance of neighbouring numbers in X
    eps: float = float(np.finfo(np.float64).eps)
    #: Σ s over all rows
    total_weight: float = 0.0
    #: (p,) weighted means, zeros without an intercept
    means: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) Σ s (x_j − x̄_j)²
    norms: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) numbers that were subtracted from the columns of X at the start, see `offsets`; (0,) if
    #: there are none
    shifts: Floats = field(default_factory=lambda: NO_CHANGE)
    #: columns that vary by less than rounding, and those of them that are not constant
    constant: Indices = field(default_factory=lambda: NO_COLUMNS)
    dropped: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: nonzero columns whose squares underflow; their coefficients remain zero
    small: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: whether norms are zero
    flat: bool = True

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.norms)

    def set_moments(self, sums: Sums) -> None:
        """Set weighted means and norms; columns that are `constant` or `small` get the norm zero.

        A column is nonzero if one of its sums is.
        """
        self.total_weight = sums.total
        if self.fit_intercept:
            self.means = sums.columns / sums.total
            self.norms = np.maximum(sums.squares - sums.columns * self.means, 0.0)
            self.norms[self.constant] = 0.0
        else:
            self.means, self.norms = np.zeros_like(sums.columns), sums.squares
        present = (sums.columns != 0.0) | (sums.squares != 0.0) | (sums.products != 0.0)
        present[self.constant] = False
        self.small = np.flatnonzero(present & (self.norms < SMALLEST_NORM))
        self.norms[self.small] = 0.0
        self.flat = not self.norms.all()
