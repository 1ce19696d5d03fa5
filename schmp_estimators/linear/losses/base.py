"""What solvers ask of a loss, for the rows that a partition holds, and in kernels for one row."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Level(NamedTuple):
    """Σ_i s_i ℓ_i at an intercept b, and how it changes with b."""

    loss: float
    #: −Σ_i s_i ℓ_i'
    slope: float
    #: Σ_i s_i ℓ_i''
    curvature: float


class Derivatives(NamedTuple):
    """The same, and what each row has to do with it."""

    level: Level
    #: (n,) −s_i ℓ_i': where the prediction should go
    slope: Floats
    #: (n,) s_i ℓ_i''
    curvature: Floats


class Loss(Protocol):
    """A convex loss Σ_i s_i ℓ(y_i, u_i + b) ≥ 0 that has two derivatives; u = Xβ, and b is the intercept.

    Jobs take it to the workers: an instance must be one that pickle knows.
    """

    @property
    def smoothness(self) -> float:
        """A bound of ℓ'', ∞ if there is none: then only "resolve" takes it."""

    @property
    def certified(self) -> bool:
        """Whether `dual` is one, so that a duality gap can be given."""

    def derivatives(self, decision: Floats, target: Floats, weights: Floats, intercept: float) -> Derivatives:
        """Return the loss and its derivatives.

        Parameters
        ----------
        decision, target : ndarray of shape (n,)
            u and y.
        weights : ndarray of shape (n,) or (0,)
            s; none stand for ones.
        intercept : float
            b.
        """

    def dual(self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float) -> float:
        """Return −Σ_i s_i ℓ*(y_i, −θ_i/s_i) at θ = scale·slope, scale ≤ 1; ℓ* is the convex conjugate of ℓ in u."""


@runtime_checkable
class Rowwise(Loss, Protocol):
    """A loss that kernels know row by row: what `SmoothProblem` solves for where X is at one place.

    Such a loss is a named tuple, with numbers as fields if it has any.  numba compiles kernels anew for each type of
    loss, with its own `row` and `conjugate` inside: these use nothing but numbers and `math`, and make no arrays.
    """

    def row(self, target: float, decision: float) -> tuple[float, float, float]:
        """Return ℓ(y, u), −ℓ'(y, u) and ℓ''(y, u)."""

    def conjugate(self, target: float, dual: float) -> float:
        """Return ℓ*(y, −q) = max_u −q·u − ℓ(y, u), for q between 0 and some −ℓ'(y, u)."""


class Steps(NamedTuple):
    """What Newton steps in a kernel have come to."""

    #: change of the intercept
    level: float
    #: columns gone through
    visited: float
    #: gap on these columns, about, when they were last looked at
    gap: float
    #: whether the goal has been reached, and whether the problem is too hard for such steps
    arrived: bool
    hard: bool


def steepness(loss: Loss, level: Level, weight: float) -> float:
    """Return the bound of ℓ'', or where there is none its mean at the present point; `weight` is that of all rows."""
    return loss.smoothness if loss.smoothness < np.inf else level.curvature / weight


def weigh(weights: Floats, values: Floats) -> Floats:
    """Return s⊙values."""
    return weights * values if len(weights) else values
