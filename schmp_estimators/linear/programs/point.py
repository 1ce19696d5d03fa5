"""The current point of a fit, and the work done so far."""

from dataclasses import dataclass, field
from typing import Any

from schmp_estimators.linear.programs.design import NO_CHANGE
from schmp_estimators.linear.programs.matrix import Floats


@dataclass
class Point:
    """The current point of a fit."""

    #: (p,) coefficients, or (K, q) in the order of `Layout`
    coef: Floats
    #: weighted mean of the response (squared loss), or the intercept (other losses), for columns minus their shifts; of
    #: blocks (K, f) coefficients of F
    level: Any
    #: gradient over the columns in the scope
    gradient: Floats = field(default_factory=lambda: NO_CHANGE)
    #: Σ s r² (squared loss)
    energy: float = 0.0
    #: Σ s y p at the best intercept (other losses), zero up to rounding
    balance: float = 0.0
    #: upper bound on the curvature of a row of weight 1, or its mean if there is no bound
    steepness: float = 1.0
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
