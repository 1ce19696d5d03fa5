"""The current point of a fit, and the work done so far."""

from dataclasses import dataclass, field
from typing import Any

from schmp_estimators.linear.programs.design import NO_CHANGE
from schmp_estimators.linear.programs.matrix import Floats


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
    #: entries operated upon: columns × rows of gradients, updates and products, and those of Gram matrices
    touched: float = 0.0
    #: seconds from the beginning to the last gap
    seconds: float = 0.0
