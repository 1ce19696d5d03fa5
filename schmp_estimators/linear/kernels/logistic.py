"""Kernels on the rows of a logistic model: loss, its derivatives, and the dual objective.

Notation: labels y ∈ {−1, 1}, row weights s (empty for s = 1), decision values u + b, p = σ(−y(u + b)).
"""

import math

from schmp_estimators.core.jit import kernel


@kernel
def logistic_derivatives(decision, labels, weights, intercept, slope, curvature):
    """Set slope_i = s y p and curvature_i = s p (1 − p); return Σ s ln(1 + e^{−y(u+b)}), Σ slope and Σ curvature.

    All arrays (n,) float64; about 10 ns per row.
    """
    loss, total_slope, total_curvature = 0.0, 0.0, 0.0
    weighted = weights.shape[0] > 0
    for i in range(decision.shape[0]):
        margin = labels[i] * (decision[i] + intercept)
        weight = weights[i] if weighted else 1.0
        small = math.exp(-abs(margin))
        wrong = (small if margin > 0.0 else 1.0) / (1.0 + small)
        slope[i] = weight * labels[i] * wrong
        curvature[i] = weight * small / ((1.0 + small) * (1.0 + small))
        loss += weight * (math.log1p(small) + max(-margin, 0.0))
        total_slope += slope[i]
        total_curvature += curvature[i]
    return loss, total_slope, total_curvature


@kernel
def logistic_entropy(decision, labels, weights, intercept, scale):
    """Return −Σ s [q ln q + (1 − q) ln(1 − q)] at q = scale·p, the dual objective; about 25 ns per row."""
    total = 0.0
    weighted = weights.shape[0] > 0
    for i in range(decision.shape[0]):
        margin = labels[i] * (decision[i] + intercept)
        small = math.exp(-abs(margin))
        part = scale * (small if margin > 0.0 else 1.0) / (1.0 + small)
        if 0.0 < part < 1.0:
            weight = weights[i] if weighted else 1.0
            total -= weight * (part * math.log(part) + (1.0 - part) * math.log1p(-part))
    return total
