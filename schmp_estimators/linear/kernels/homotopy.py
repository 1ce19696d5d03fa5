"""The Lasso and the elastic net for falling penalties in one call.

The problem is min ½‖t − X̃β‖² + λ Σ_j (f_j|β_j| + ½ρ_j β_j²) for one λ after the other.  A solution
starts from the previous ones: between two changes of the support β is linear in λ.  Columns join
the working set unless the strong rule discards them (Tibshirani et al., "Strong rules for
discarding predictors in lasso-type problems", JRSS-B 2012, section 2), or if they violate their
optimality condition.  On the Gram matrix H of the working set, coordinate descent finds the
support, and Cholesky steps solve exactly on it.  The gradient over all columns gives the gap of
each point.

The squared part of a penalty is like additional rows of X̃: with c = X̃ᵀt and the gradient q = c −
(H + λρ)β, ‖r‖² = ‖t‖² − βᵀ(c + q).
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.addresses import address_of
from schmp_estimators.core.jit import copy_to, kernel, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.working_set import (
    AIM,
    COEF,
    EARLIER,
    FACTOR,
    RIDGE,
    SLOPE,
    add,
    descend,
    excess_of,
    find_support,
    gap_of,
    larger,
    objective_of,
    size_of,
    square_of,
)

#: Part of the goal to which the working set is solved.
_INNER = 0.5
#: Part of ‖t‖², or of the loss without coefficients, below which gaps are rounding errors.
ROUNDING = 1e-13
#: Number of columns that may join at a time, in addition to twice the present number.
JOINING = 10
#: If the working set fills more than this part of its arrays, columns without a coefficient leave
#: before the next penalty; many would come back.
_CROWDED = 0.75
#: If X has more columns than rows, and the support is more than this part of the number of rows,
#: small changes of the penalty change most of it.  Then penalties are inserted: ratio of one to the
#: one before, and part of the gap of that one that is left.
_CLOSE, _STRIDE, _BETWEEN = 0.25, 0.85, 0.1
#: Columns of a record of `follow_path`.
GAP, OBJECTIVE, STEPS, WORK, SUPPORT = range(5)


class Columns(NamedTuple):
    """Centred columns or their products, all arrays float64."""

    #: (p, p), or (0, 0) if `values` (p, n), `target` t (n,) and room for `residual` r (n,) are
    #: given
    gram: np.ndarray
    values: np.ndarray
    target: np.ndarray
    residual: np.ndarray
    #: (p,) c = X̃ᵀt
    aims: np.ndarray
    #: (p,) f > 0 and ρ ≥ 0
    factors: np.ndarray
    ridges: np.ndarray
    #: whether coefficients are ≥ 0
    positive: bool


@part
def _begin(room, penalty, count):
    """Compute the slopes of the working set from scratch."""
    coef, slopes, aims, ridges = (
        room.vectors[COEF],
        room.vectors[SLOPE],
        room.vectors[AIM],
        room.vectors[RIDGE],
    )
    for a in range(count):
        slopes[a] = aims[a]
    for a in range(count):
        if coef[a] != 0.0:
            add(-coef[a], room.matrix[a], slopes, 0, count)
            slopes[a] -= penalty * ridges[a] * coef[a]


@part
def _look(columns, room, penalty, count):
    """Compute the gradient over all columns, and copy that of members into their slopes."""
    coef, slopes, ridges = room.vectors[COEF], room.vectors[SLOPE], room.vectors[RIDGE]
    gradient, residual, products = room.gradient, columns.residual, columns.gram.shape[0] > 0
    if products:
        copy_to(columns.aims, gradient)
    else:
        copy_to(columns.target, residual)
    for a in range(count):
        if coef[a] != 0.0:
            if products:
                add(-coef[a], columns.gram[room.members[a]], gradient, 0, gradient.shape[0])
            else:
                add(-coef[a], columns.values[room.members[a]], residual, 0, residual.shape[0])
    if not products:
        for j in range(gradient.shape[0]):
            gradient[j] = dot(columns.values[j], residual)
    for a in range(count):
        gradient[room.members[a]] -= penalty * ridges[a] * coef[a]
        slopes[a] = gradient[room.members[a]]


@part
def limit_of(factors, room, bound, most, positive):
    """Return the gradient above which columns join, so that about `most` of them do.

    It is in units of the factors.
    """
    gradient, places = room.gradient, room.places
    while True:
        found, largest = 0, 0.0
        for j in range(gradient.shape[0]):
            size = size_of(gradient[j], positive)
            if places[j] < 0 and size > bound * factors[j]:
                found += 1
                if size > largest * factors[j]:
                    largest = size / factors[j]
        higher = 0.5 * (bound + largest)
        if found <= most or not bound < higher < largest:
            return bound
        bound = higher


@part
def _join(columns, room, limit, count):
    """Add columns with gradients above the limit.

    Returns the number of members, or −1 if the arrays are full.
    """
    gram, matrix, members, vectors = columns.gram, room.matrix, room.members, room.vectors
    for j in range(columns.aims.shape[0]):
        if (
            room.places[j] >= 0
            or not size_of(room.gradient[j], columns.positive) > limit * columns.factors[j]
        ):
            continue
        if count == members.shape[0]:
            return -1
        members[count], room.places[j] = j, count
        for a in range(count + 1):
            other = members[a]
            product = (
                gram[j, other]
                if gram.shape[0] > 0
                else dot(columns.values[j], columns.values[other])
            )
            matrix[count, a] = product
            matrix[a, count] = product
        vectors[COEF, count], vectors[EARLIER, count], vectors[AIM, count] = (
            0.0,
            0.0,
            columns.aims[j],
        )
        vectors[FACTOR, count], vectors[RIDGE, count] = columns.factors[j], columns.ridges[j]
        if matrix[count, count] > 0.0:
            count += 1
    return count


@part
def leave(room, count):
    """Remove members without a coefficient; returns the number of remaining members."""
    matrix, members, support, places, vectors = (
        room.matrix,
        room.members,
        room.support,
        room.places,
        room.vectors,
    )
    size = find_support(room, count)
    for a in range(count):
        places[members[a]] = -1
    for i in range(size):
        a = support[i]
        members[i], places[members[a]] = members[a], i
        for k in range(i + 1):
            product = matrix[a, support[k]]
            matrix[i, k] = product
            matrix[k, i] = product
        for v in range(vectors.shape[0]):
            vectors[v, i] = vectors[v, a]
    return size


@part
def _predict(vectors, ahead, count):
    """Extrapolate the line through the last two solutions, without changing signs."""
    coef, earlier = vectors[COEF], vectors[EARLIER]
    for a in range(count):
        old = coef[a]
        guess = old + ahead * (old - earlier[a])
        coef[a], earlier[a] = guess if guess * old > 0.0 else 0.0, old


@part
def _solve_for(columns, room, energy, penalty, bound, goal, max_iter, count, record):
    """Solve for one penalty, given an approximate gradient.

    Returns the number of members, or −1 if arrays are full.
    """
    record[WORK], record[STEPS] = 0.0, 0.0
    while True:
        before = count
        joining, free = JOINING + 2 * count, room.members.shape[0] - count
        joining = free if JOINING < free < joining else joining
        limit = limit_of(columns.factors, room, bound, joining, columns.positive)
        count = _join(columns, room, limit, count)
        if count < 0 or (count == before and record[STEPS] > 0.0):
            return count
        _begin(room, penalty, count)
        record[WORK] += descend(room, energy, penalty, _INNER * goal, count, columns.positive)
        record[STEPS] += 1.0
        _look(columns, room, penalty, count)
        square = square_of(room.vectors, energy, count)
        excess = excess_of(
            room.gradient, columns.factors, penalty, room.gradient.shape[0], columns.positive
        )
        record[GAP] = gap_of(room.vectors, square, excess, penalty, count)
        record[OBJECTIVE] = objective_of(room.vectors, square, penalty, count)
        if record[GAP] <= goal or record[STEPS] >= max_iter:
            return count
        bound = penalty


@part
def _follow(columns, room, energy, asked, part_of_step, most, start, coefs, records):
    n_rows, n_columns, vectors, count = (
        columns.residual.shape[0],
        columns.aims.shape[0],
        room.vectors,
        0,
    )
    previous, last, square = asked[0, 0], asked[0, 0], energy
    for j in range(n_columns):
        room.places[j] = -1
        room.gradient[j] = abs(start[j])
    count = _join(columns, room, 0.0, count)
    if count < 0:
        return 0
    for a in range(count):
        vectors[COEF, a] = vectors[EARLIER, a] = start[room.members[a]]
    if count > 0:
        _look(columns, room, last, count)
    else:
        copy_to(columns.aims, room.gradient)
    size = 0
    for t in range(asked.shape[1]):
        record, between, work = records[t], True, 0.0
        while between:
            penalty, goal = asked[0, t], asked[1, t]
            between = 0 < n_rows < n_columns and size > _CLOSE * n_rows and penalty < _STRIDE * last
            if between:
                penalty, goal = _STRIDE * last, np.inf
            if room.members.shape[0] < n_columns and count > _CROWDED * room.members.shape[0]:
                count = leave(room, count)
            # an exact solution at λ' has the gap ½(1 − λ/λ')²‖r‖² at λ
            nearer = 1.0 - penalty / last
            nearer *= 0.5 * nearer * square * (_BETWEEN if between else part_of_step)
            nearer = larger(nearer, ROUNDING * energy)
            if penalty < last and nearer < goal:
                goal = nearer
            _predict(
                vectors, (penalty - last) / (last - previous) if last < previous else 0.0, count
            )
            bound = larger(2.0 * penalty - last, 0.5 * penalty)
            most_here = 1 if between else most[t]
            count = _solve_for(
                columns, room, energy, penalty, bound, goal, most_here, count, record
            )
            if count < 0:
                return t
            size = find_support(room, count)
            square = square_of(vectors, energy, count)
            previous, last = last, penalty
            work += record[WORK]
        record[SUPPORT], record[WORK] = size, work
        for a in range(count):
            coefs[t, room.members[a]] = vectors[COEF, a]
    return asked.shape[1]


@kernel
def follow_path(columns, room, energy, asked, part_of_step, most, start, coefs, records):
    """Solve for falling penalties λ > 0.

    Returns the number of solved penalties, fewer than all if arrays are full.  `energy` is ‖t‖².
    `asked` (2, n_penalties) has λ and goals of the gap.  A gap must also be at most `part_of_step`
    times the gap of the previous exact solution at this λ.  Where the support nears the number of
    rows, penalties are inserted between two of them; their multiply–adds count for the next one,
    their gradients do not.  ``most[t]`` limits the number of gradients.  `start` (p,) are the first
    coefficients.  Overwritten are `room`, ``columns.residual``, rows of `coefs` (n_penalties, p),
    which are zero before, and of `records`: gap, objective, number of gradients, multiply–adds,
    size of the support.
    """
    return _follow(
        address_of(columns),
        address_of(room),
        energy,
        asked,
        part_of_step,
        most,
        start,
        coefs,
        records,
    )
