"""Kernels on sparse columns: gradients and coordinate descent on the residual.

Notation: columns x_j with weighted means x̄_j, row weights w, coefficients β, residual r, penalty
P. All kernels are for the problem ½ Σ_i w_i r_i² + P(β) with r = t − (X − 1x̄ᵀ)β, and store v =
w⊙r.  Centring is implicit: a step Δ on β_j changes every residual by the same amount x̄_jΔ.  The
sum of these is one number, `shift`, stored in addition to v: w⊙r = v + shift·w.  An empty `weights`
stands for w = 1, an all-zero `means` for a model without intercept.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel, maker
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.penalties.base import prox, value

_ONE, _TWO = np.uint64(1), np.uint64(2)


class Columns(NamedTuple):
    """Compressed sparse columns: column j has values[starts[j]:starts[j+1]] in rows[starts[j]:starts[j+1]]."""

    #: (nnz,) float64 or float32
    values: np.ndarray
    #: (nnz,) int32 or int64
    rows: np.ndarray
    #: (p + 1,) int64
    starts: np.ndarray


class Quadratic(NamedTuple):
    """Constants of ½ Σ w_i r_i² over columns and rows."""

    #: (p,) float64, Σ_i w_i (x_ij − x̄_j)²
    norms: np.ndarray
    #: (p,) float64, weighted means x̄_j, zeros without an intercept
    means: np.ndarray
    #: (p,) float64, Σ_i w_i x_ij, zeros without an intercept
    sums: np.ndarray
    #: (n,) float64, or (0,) for w = 1
    weights: np.ndarray
    #: (p,) float64, the ridges that the penalty adds to the diagonal of H, or (0,) if there are
    #: none
    ridges: np.ndarray


@inlined
def column_dot(values, rows, start, stop, vector):
    """Return Σ values·vector[rows] of one column; two partial sums hide the latency of the additions.

    Here and below positions are unsigned: so they cannot be negative, and the check for that would
    take half of the time.
    """
    even = 0.0
    odd = 0.0
    first = np.uint64(start)
    paired = first + np.uint64((stop - start) // 2 * 2)
    for index in range(first, paired, _TWO):
        even += values[index] * vector[np.uint64(rows[index])]
        odd += values[index + _ONE] * vector[np.uint64(rows[index + _ONE])]
    if (stop - start) % 2:
        even += values[paired] * vector[np.uint64(rows[paired])]
    return even + odd


@inlined
def add_column(values, rows, start, stop, factor, out):
    """Add factor·x to `out` (n,), x being one column."""
    for index in range(np.uint64(start), np.uint64(stop)):
        out[np.uint64(rows[index])] += factor * values[index]


@inlined
def add_weighted_column(values, rows, start, stop, factor, weights, out):
    """Add factor·w⊙x to `out` (n,), x being one column."""
    for index in range(np.uint64(start), np.uint64(stop)):
        row = np.uint64(rows[index])
        out[row] += factor * values[index] * weights[row]


@kernel
def sparse_gradient(columns, chosen, vector, out):
    """Set out[t] = x_jᵀ·vector for j = chosen[t]; `out` (k,) float64 is overwritten.  1–2 ns per non-zero."""
    values, rows, starts = columns
    for position in range(chosen.shape[0]):
        j = chosen[position]
        out[position] = column_dot(values, rows, starts[j], starts[j + 1], vector)


@kernel
def sparse_combine(columns, chosen, change, out):
    """Add Σ_t change[t]·x_j, j = chosen[t], to `out` (n,) float64."""
    values, rows, starts = columns
    for position in range(chosen.shape[0]):
        factor = change[position]
        if factor != 0.0:
            j = chosen[position]
            add_column(values, rows, starts[j], starts[j + 1], factor, out)


@inlined
def column_sums(values, rows, start, stop, weights, vector):
    """Return Σ w x, Σ w x² and xᵀ·vector of one column."""
    first, second, along = 0.0, 0.0, 0.0
    for index in range(np.uint64(start), np.uint64(stop)):
        i, value = np.uint64(rows[index]), values[index]
        weighted = value * weights[i]
        first += weighted
        second += weighted * value
        along += value * vector[i]
    return first, second, along


@kernel
def sparse_moments(columns, vector, weights, sums, squares, products):
    """Set sums[j] = Σ_i w_i x_ij, squares[j] = Σ_i w_i x_ij² and products[j] = x_jᵀ·vector; `weights` (n,)."""
    values, rows, starts = columns
    for j in range(starts.shape[0] - 1):
        found = column_sums(values, rows, starts[j], starts[j + 1], weights, vector)
        sums[j], squares[j], products[j] = found


@kernel
def take_columns(columns, chosen):
    """Return values, rows and starts of the chosen columns, copied side by side; 1 ns per non-zero."""
    values, rows, starts = columns
    count = chosen.shape[0]
    new_starts = np.zeros(count + 1, np.int64)
    for position in range(count):
        j = chosen[position]
        new_starts[position + 1] = new_starts[position] + starts[j + 1] - starts[j]
    new_values = np.empty(new_starts[count], values.dtype)
    new_rows = np.empty(new_starts[count], rows.dtype)
    for position in range(count):
        source, target = np.uint64(starts[chosen[position]]), np.uint64(new_starts[position])
        for offset in range(np.uint64(new_starts[position + 1]) - target):
            new_values[target + offset] = values[source + offset]
            new_rows[target + offset] = rows[source + offset]
    return new_values, new_rows, new_starts


@inlined
def fold_shift(residual, shift, weights):
    """Add shift·w to the stored residual."""
    if shift != 0.0:
        if weights.shape[0] > 0:
            for i in range(residual.shape[0]):
                residual[i] += shift * weights[i]
        else:
            for i in range(residual.shape[0]):
                residual[i] += shift


@inlined
def _descend(columns, quadratic, coef, residual, penalty):
    """Make one cyclic pass over all columns."""
    values, rows, starts = columns
    shift = 0.0
    norms, means, sums, weights, _ = quadratic
    weighted = weights.shape[0] > 0
    for j in range(coef.shape[0]):
        norm = norms[j]
        if norm <= 0.0:
            continue
        start, stop = starts[j], starts[j + 1]
        gradient = column_dot(values, rows, start, stop, residual) + shift * sums[j]
        old = coef[j]
        new = prox(penalty, j, gradient + norm * old, norm)
        change = new - old
        if change != 0.0:
            coef[j] = new
            shift += change * means[j]
            if weighted:
                add_weighted_column(values, rows, start, stop, -change, weights, residual)
            else:
                add_column(values, rows, start, stop, -change, residual)
    fold_shift(residual, shift, weights)


@maker
def anderson_weights(changes):
    """Return the weights c, Σc = 1, that minimise ‖Σ_k c_k changes[k]‖, and whether they exist; `changes` (K, m)."""
    count = changes.shape[0]
    products = np.empty((count, count))
    for a in range(count):
        for b in range(a + 1):
            products[a, b] = dot(changes[a], changes[b])
            products[b, a] = products[a, b]
    trace = 0.0
    for a in range(count):
        trace += products[a, a]
    if not trace > 0.0:
        return np.zeros(count), False
    for a in range(count):
        products[a, a] += 1e-11 * trace
    # the matrix is positive definite; compiling `np.linalg.solve` with its checks would take 4
    # seconds
    solution = np.ones(count)
    for a in range(count):
        if not products[a, a] > 0.0:
            return np.zeros(count), False
        for b in range(a + 1, count):
            factor = products[b, a] / products[a, a]
            solution[b] -= factor * solution[a]
            for c in range(a + 1, count):
                products[b, c] -= factor * products[a, c]
    for a in range(count - 1, -1, -1):
        for b in range(a + 1, count):
            solution[a] -= products[a, b] * solution[b]
        solution[a] /= products[a, a]
    total = solution.sum()
    return solution / total, abs(total) > 1e-300


@inlined
def difference(left, right, out):
    """Set out = left − right."""
    for j in range(out.shape[0]):
        out[j] = left[j] - right[j]


@inlined
def add_multiple(factor, values, out):
    """Add factor·values to `out`."""
    for j in range(out.shape[0]):
        out[j] += factor * values[j]


@inlined
def allowed(positive, coef):
    """Return whether the penalty allows the signs of β."""
    feasible = True
    for j in range(coef.shape[0]):
        feasible &= not positive or coef[j] >= 0.0
    return feasible


@kernel
def sparse_passes(columns, quadratic, coef, residual, penalty, positive, passes, memory):
    """Run cyclic coordinate descent on ½ Σ w r² + P(β); `coef` (k,) and `residual` v (n,) are updated.

    `columns` and `quadratic` have the same k columns.  It takes about 2 ns per non-zero of a column
    that changes.

    With `memory`, for w = 1 only, β and r are extrapolated every `memory` + 1 passes.  The result
    is kept if the objective falls and the penalty allows the signs.  Bertrand and Massias,
    "Anderson acceleration of coordinate descent", AISTATS 2021, section 3.
    """
    count, n_rows = coef.shape[0], residual.shape[0]
    coefs = np.empty((memory + 1, count))
    residuals = np.empty((memory + 1, n_rows))
    changes = np.empty((memory, count))
    held = 0
    for _ in range(passes):
        if memory > 0:
            copy_to(coef, coefs[held])
            copy_to(residual, residuals[held])
            held += 1
        if held == memory + 1:
            held = 0
            for k in range(memory):
                difference(coefs[k + 1], coefs[k], changes[k])
            mixture, exists = anderson_weights(changes)
            if exists:
                new_coef = np.zeros(count)
                new_residual = np.zeros(n_rows)
                for k in range(memory):
                    add_multiple(mixture[k], coefs[k + 1], new_coef)
                    add_multiple(mixture[k], residuals[k + 1], new_residual)
                new_value = 0.5 * dot(new_residual, new_residual) + value(penalty, new_coef)
                if allowed(positive, new_coef) and new_value < 0.5 * dot(
                    residual, residual
                ) + value(penalty, coef):
                    copy_to(new_coef, coef)
                    copy_to(new_residual, residual)
        _descend(columns, quadratic, coef, residual, penalty)
