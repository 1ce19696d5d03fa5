"""The interface of a penalty, in Python and in kernels.

Every penalty is λ_j|b| + h_j(b) in each coefficient b, with h_j smooth and h_j(0) = h_j'(0) = 0.
It is a named tuple, because numba compiles each kernel once for each type of penalty, with the
`prox` and `value` of that type.
"""

from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numba.core import types

from schmp_estimators.core.jit import by_types
from schmp_estimators.core.typing import Floats, Function
from schmp_estimators.core.typing import Integers as Indices
from schmp_estimators.linear.contracts import declared

#: one number for all columns, or (k,) numbers for each column, read-only
PerColumn = Any
P = TypeVar("P", bound="Penalty")


class Penalty(Protocol):
    """A penalty Σ_j λ_j|b_j| + h_j(b_j) on coefficients b_j, with smooth functions h_j.

    λ_j is the strength of the penalty.  h_j and its derivative are zero at b_j = 0.

    A penalty is a named tuple.  Its methods `prox` and `value` are compiled by numba, so they may
    use only numbers, NumPy, `at` and `weigh`.  In addition, `prox` must not create arrays.
    """

    @property
    def strengths(self) -> PerColumn:
        """The strengths λ: one number, or one for each column.

        Coefficient j is zero while −λ_j ≤ x_jᵀr ≤ λ_j.  For the squared loss, r is the residual,
        and for other losses −ℓ'.  If λ_j is 0, column j is not penalised.
        """

    @property
    def positive(self) -> bool:
        """Whether coefficients are restricted to be ≥ 0."""

    @property
    def certified(self) -> bool:
        """Whether the penalty has the form λ|b| + ½ρb².

        Other penalties on single coefficients have no duality gap and no Newton steps.
        """

    @property
    def ridges(self) -> PerColumn:
        """The numbers ρ, if the penalty is `certified`."""

    def prox(self, j: int, aim: float, norm: float) -> float:
        """Return the b that minimises ½·norm·b² − aim·b + λ_j|b| + h_j(b)."""

    def value(self, coef: Floats) -> float:
        """Return the sum of the penalties of all coefficients."""

    def tilt(self, coef: Floats) -> Floats | float:
        """Return the derivatives h_j'(b_j) for all coefficients."""

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""


def differ(values: PerColumn) -> bool:
    """Return whether there is a number for each column; `np.ndim` takes ten times as long."""
    return isinstance(values, np.ndarray) and values.ndim > 0


def at(values: PerColumn, j: int) -> float:
    """Return the value for column j; `values` is one number for all columns, or an array."""
    return float(values[j]) if differ(values) else float(values)


@by_types(at, copied=True, strict=False)
def _at(values: Any, j: Any) -> Function:
    return (
        (lambda values, j: values[j])
        if isinstance(values, types.Array)
        else (lambda values, j: values)
    )


def weigh(strengths: PerColumn, sizes: Floats) -> float:
    """Return Σ_j λ_j·sizes_j, where λ is `strengths`: one number for all columns, or an array."""
    return float(strengths @ sizes) if differ(strengths) else float(strengths * sizes.sum())


@by_types(weigh, strict=False)
def _weigh(strengths: Any, sizes: Any) -> Function:
    if not isinstance(strengths, types.Array):
        return lambda strengths, sizes: strengths * sizes.sum()

    def summed(strengths, sizes):  # type: ignore[no-untyped-def]
        total = 0.0
        for j in range(len(sizes)):
            total += strengths[j] * sizes[j]
        return total

    return summed


def prox(penalty: Penalty, j: int, aim: float, norm: float) -> float:
    """Return `Penalty.prox`; for kernels, where a named tuple has no methods."""
    return penalty.prox(j, aim, norm)


def value(penalty: Penalty, coef: Floats) -> float:
    """Return `Penalty.value`; for kernels."""
    return penalty.value(coef)


def method_of(name: str, kind: Any) -> Function | None:
    """Return the function that a named tuple's method is compiled from; None for other types."""
    return getattr(getattr(kind, "instance_class", None), name, None)


@by_types(prox, copied=True, strict=False)
def _prox(penalty: Any, j: Any, aim: Any, norm: Any) -> Function | None:
    return method_of("prox", penalty)


@by_types(value, strict=False)
def _value(penalty: Any, coef: Any) -> Function | None:
    return method_of("value", penalty)


def take(penalty: P, columns: Indices | slice) -> P:
    """Return the penalty of some columns."""
    return type(penalty)(*(_part(field, columns) for field in fields_of(penalty)))


def fields_of(penalty: Penalty) -> tuple[Any, ...]:
    """Return the values that a penalty consists of."""
    return tuple(penalty)  # type: ignore[arg-type]


def _part(field: Any, columns: Indices | slice) -> Any:
    return read_only(field[columns]) if differ(field) else field


def read_only(values: Any) -> Any:
    """Return a number, or an array that kernels take as a constant."""
    if not np.ndim(values):
        return float(values)
    values = np.ascontiguousarray(values, np.float64)
    values.flags.writeable = False
    return values


def sizes(penalty: Penalty, gradient: Floats) -> Floats:
    """Return the numbers that the optimality condition compares with λ.

    These are |z|, or z if coefficients are ≥ 0.
    """
    return gradient if penalty.positive else np.abs(gradient)


def multiple_of(penalty: Penalty, gradient: Floats) -> float:
    """Return the smallest multiple of the penalty for which zero is the solution.

    The gradient is the one at zero.
    """
    found = sizes(penalty, gradient)
    strengths = penalty.strengths
    return float(_ratios(found, strengths).max(initial=0.0))


def _ratios(found: Floats, units: PerColumn) -> Floats:
    """Return numbers in units, 0 for those whose unit is 0."""
    return np.divide(found, units, out=np.zeros_like(found), where=np.asarray(units) > 0.0)


def of_strength(penalty: P, strength: float, total: float) -> P:
    """Return a penalty of strength one with λ = `strength`.

    The loss is summed over rows of weight `total`.  If the shape of a penalty depends on its
    strength, the penalty has a method with this name.
    """
    own: Any = declared(penalty, "of_strength")
    return penalty.scaled(strength) if own is None else own(strength, total)


def has_free(penalty: Penalty) -> bool:
    """Return whether there are columns without a penalty."""
    return differ(penalty.strengths) and not penalty.strengths.all()


def _tilted(penalty: Penalty, coef: Floats, gradient: Floats) -> Floats:
    """Return the gradient minus that of the smooth part of the penalty, if there is one."""
    tilt = penalty.tilt(coef)
    return gradient - tilt if differ(tilt) or tilt else gradient


def dual_scale(penalty: Penalty, coef: Floats, gradient: Floats) -> float:
    """Return c ≤ 1, the largest factor for which c·r is dual feasible.

    Columns without a penalty are left out.
    """
    if not len(gradient):
        return 1.0
    found = sizes(penalty, _tilted(penalty, coef, gradient))
    if differ(penalty.strengths):
        return 1.0 / max(1.0, float(_ratios(found, penalty.strengths).max()))
    return float(penalty.strengths / max(penalty.strengths, float(found.max())))


def duality_gap(
    penalty: Penalty, coef: Floats, gradient: Floats, energy: float, scale: float
) -> float:
    """Return the gap of ½‖r‖² + P(β) at the dual point scale·r; `energy` is ‖r‖², `gradient` X̃ᵀr.

    It is a bound if r is orthogonal to the columns without a penalty.
    """
    ridges = penalty.ridges
    ridge = weigh(ridges, coef * coef) if differ(ridges) or ridges else 0.0
    lasso = weigh(penalty.strengths, np.abs(coef))
    tilted = _tilted(penalty, coef, gradient)
    if differ(penalty.strengths):
        tilted = np.where(penalty.strengths > 0.0, tilted, 0.0)
    slope = float(coef @ tilted)
    return 0.5 * (1.0 - scale) ** 2 * (energy + ridge) + lasso - scale * slope


def merit(penalty: Penalty, coef: Floats, gradient: Floats, norms: Floats) -> float:
    """Return the violation of the optimality conditions, in units of the objective."""
    descent = _tilted(penalty, coef, gradient)
    outside = np.maximum(sizes(penalty, descent) - penalty.strengths, 0.0)
    distance = np.where(coef != 0.0, np.abs(descent - penalty.strengths * np.sign(coef)), outside)
    with np.errstate(over="ignore"):
        gains = (
            np.divide(distance, norms, out=np.zeros_like(distance), where=distance > 0.0) * distance
        )
    return float(distance @ np.abs(coef) + 0.5 * gains.sum())


def gap_or_merit(
    penalty: Penalty, coef: Floats, gradient: Floats, energy: float, norms: Floats
) -> float:
    """Return the duality gap of ½‖r‖² + P(β), or if there is none, the possible gain of descent.

    r need not be orthogonal to columns without a penalty here; the possible gain of each of them is
    added.
    """
    if not penalty.certified:
        return merit(penalty, coef, gradient, norms)
    gap = duality_gap(penalty, coef, gradient, energy, dual_scale(penalty, coef, gradient))
    if has_free(penalty):
        free = penalty.strengths == 0.0
        gap += 0.5 * float((gradient[free] ** 2 / np.maximum(norms[free], 1e-300)).sum())
    return gap
