"""How far a point is from optimal: the duality gap of a penalty that has one, and for others what descent could gain.

For ½‖r‖² + P(β) with P = λ‖β‖₁ the point c·r with c = λ/max(λ, ‖X̃ᵀr‖_∞) is dual feasible, and since r = t − X̃β the
gap is

    ½(1 − c)²‖r‖² + λ‖β‖₁ − c·βᵀX̃ᵀr.

A ridge ½ρb² is the same on rows augmented by √ρ: X̃ᵀr − ρβ instead of X̃ᵀr, and ‖r‖² + Σρb².
"""

import numpy as np

from schmp_estimators.linear.penalties.base import Penalty, differ, sizes, weigh
from schmp_estimators.linear.programs.matrix import Floats


def _tilted(penalty: Penalty, coef: Floats, gradient: Floats) -> Floats:
    """Return the gradient, less that of the smooth part of the penalty, if there is one."""
    tilt = penalty.tilt(coef)
    return gradient - tilt if differ(tilt) or tilt else gradient


def dual_scale(penalty: Penalty, coef: Floats, gradient: Floats) -> float:
    """Return c ≤ 1, the largest factor for which c·r is dual feasible; columns without penalty are left out."""
    if not len(gradient):
        return 1.0
    found = sizes(penalty, _tilted(penalty, coef, gradient))
    if differ(penalty.strengths):
        ratios = np.divide(found, penalty.strengths, out=np.zeros_like(found), where=penalty.strengths > 0.0)
        return 1.0 / max(1.0, float(ratios.max()))
    return float(penalty.strengths / max(penalty.strengths, float(found.max())))


def duality_gap(penalty: Penalty, coef: Floats, gradient: Floats, energy: float, scale: float) -> float:
    """Return the gap of ½‖r‖² + P(β) at the dual point scale·r; `energy` is ‖r‖², `gradient` X̃ᵀr.

    It is one if r is orthogonal to the columns without penalty.
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
    """Return how far the optimality conditions are from holding, in units of the objective."""
    descent = _tilted(penalty, coef, gradient)
    outside = np.maximum(sizes(penalty, descent) - penalty.strengths, 0.0)
    distance = np.where(coef != 0.0, np.abs(descent - penalty.strengths * np.sign(coef)), outside)
    with np.errstate(over="ignore"):
        gains = np.divide(distance, norms, out=np.zeros_like(distance), where=distance > 0.0) * distance
    return float(distance @ np.abs(coef) + 0.5 * gains.sum())


def gap_or_merit(penalty: Penalty, coef: Floats, gradient: Floats, energy: float, norms: Floats) -> float:
    """Return the duality gap of ½‖r‖² + P(β), or if the penalty has none what descent could gain.

    Columns without penalty, to which r need not be orthogonal here, add what each of them could gain.
    """
    if not penalty.certified:
        return merit(penalty, coef, gradient, norms)
    gap = duality_gap(penalty, coef, gradient, energy, dual_scale(penalty, coef, gradient))
    if differ(penalty.strengths) and not penalty.strengths.all():
        free = penalty.strengths == 0.0
        gap += 0.5 * float((gradient[free] ** 2 / np.maximum(norms[free], 1e-300)).sum())
    return gap
