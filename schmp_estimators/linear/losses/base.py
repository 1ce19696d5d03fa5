"""The interface of a loss: for rows of a partition, and in kernels for one row."""

from typing import NamedTuple, Protocol, runtime_checkable

from schmp_estimators.core.typing import Floats


class Level(NamedTuple):
    """The sum of weighted losses Σ_i s_i ℓ_i, and its derivatives in the intercept b.

    `slope` is minus the first derivative, and `curvature` the second one.
    """

    loss: float
    #: −Σ_i s_i ℓ_i'
    slope: float
    #: Σ_i s_i ℓ_i''
    curvature: float


class Derivatives(NamedTuple):
    """The `Level` of n rows, and for each row i the `slope` −s_i ℓ_i' and `curvature` s_i ℓ_i''."""

    level: Level
    #: (n,) −s_i ℓ_i'
    slope: Floats
    #: (n,) s_i ℓ_i''
    curvature: Floats


def derivatives_of(loss: float, slope: Floats, curvature: Floats) -> Derivatives:
    """Return a loss with the derivatives of each row, and their sums."""
    level = Level(loss, float(slope.sum()), float(curvature.sum()))
    return Derivatives(level, slope, curvature)


class Seen(NamedTuple):
    """The value and derivatives of a loss of K decision values, for n rows.

    The second derivatives of row i are diag(a_i) − a_i p_iᵀ.
    """

    loss: float
    #: (K, n) −s_i ∂ℓ_i
    slope: Floats
    #: (K, n) a, times s
    curvature: Floats
    #: (K, n) p, proportional to a; (0, n) for one decision value
    shares: Floats


class Loss(Protocol):
    """A convex loss Σ_i s_i ℓ(y_i, u_i + b) ≥ 0 with derivatives ℓ' and ℓ'' in u.

    y are responses, s sample weights, u = Xβ predictions, and b is the intercept.  Instances must
    be picklable, to be sent to workers.
    """

    @property
    def smoothness(self) -> float:
        """An upper bound on ℓ''; ∞ if there is none.

        With ∞, only the schedule "resolve" can be used.
        """

    @property
    def certified(self) -> bool:
        """Whether the loss has `dual`, and therefore a duality gap."""

    def derivatives(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float
    ) -> Derivatives:
        """Return the loss and its derivatives.

        Parameters
        ----------
        decision, target : ndarray of shape (n,)
            Predictions u and responses y.
        weights : ndarray of shape (n,) or (0,)
            Weights s; an empty array stands for ones.
        intercept : float
            Intercept b.
        """

    def dual(
        self, decision: Floats, target: Floats, weights: Floats, intercept: float, scale: float
    ) -> float:
        """Return the dual loss −Σ_i s_i ℓ*(y_i, −θ_i/s_i) at θ = scale·slope, scale ≤ 1.

        ℓ* is the conjugate of ℓ in u, and slope that of `derivatives`.
        """


@runtime_checkable
class Rowwise(Loss, Protocol):
    """A loss that kernels can evaluate row by row.

    It is a named tuple, whose fields are numbers.  numba compiles each kernel once for each type of
    loss, with the `row` and `conjugate` of that type.  These may use only numbers and `math`.
    """

    def row(self, target: float, decision: float) -> tuple[float, float, float]:
        """Return ℓ(y, u), −ℓ'(y, u) and ℓ''(y, u)."""

    def conjugate(self, target: float, dual: float) -> float:
        """Return ℓ*(y, −q) = max_u −q·u − ℓ(y, u), for q between 0 and some −ℓ'(y, u)."""


class Steps(NamedTuple):
    """The result of Newton steps in a kernel."""

    #: change of the intercept
    level: float
    #: number of columns that were visited
    visited: float
    #: estimate of the gap on these columns, at their last visit
    gap: float
    #: whether the goal has been reached, and whether the problem is too hard for such steps
    arrived: bool
    hard: bool


def weigh(weights: Floats, values: Floats) -> Floats:
    """Return s⊙values."""
    return weights * values if len(weights) else values


def total_of(weights: Floats, n_rows: int) -> float:
    """Return Σ s."""
    return float(weights.sum()) if len(weights) else float(n_rows)
