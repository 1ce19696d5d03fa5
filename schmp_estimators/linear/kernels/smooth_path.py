"""A smooth loss with an L1 penalty or elastic net for falling penalties: proximal Newton steps.

The problem is min Σ s_i ℓ(y_i, u_i) + λ Σ_j (f_j|β_j| + ½ρ_j β_j²), u = b + Xβ, for one λ after the
other; the intercept b, if there is one, is not penalised.  A step minimises the quadratic model of
the loss on a working set, as for the squared loss, on the Gram matrix of √w⊙(x − x̄) with the
weighted means x̄ (Friedman, Hastie, Tibshirani, "Regularization paths for generalized linear models
via coordinate descent", J. Stat. Software 2010, section 3).  The weights w of a step may be those
of an earlier point, because the gradient is exact and the objective never rises.  One call
solves for all penalties.

Let θ_i = −s_i ℓ'(y_i, u_i), Σθ = 0, and let κ ≤ 1 be a factor for which κθ is feasible.  The
duality gap is a sum of terms that are not negative: Σ_i s_i(ℓ + ℓ* + κθ_iu_i/s_i) over rows, and
λf_j|β_j| − κβ_j x_jᵀθ over columns.
"""

import numpy as np

from schmp_estimators.core.addresses import address_of
from schmp_estimators.core.jit import copy_to, kernel, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.homotopy import (
    GAP,
    JOINING,
    OBJECTIVE,
    ROUNDING,
    STEPS,
    SUPPORT,
    WORK,
    leave,
    limit_of,
)
from schmp_estimators.linear.kernels.smooth import (
    LEVEL,
    SHARE,
    derive,
    go_along,
    look_at_slopes,
    multiply_columns,
    refresh_model,
    rest_of,
    settle,
    total_of,
)
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
    penalty_of,
    set_model,
    size_of,
)

#: The working set is solved to this part of the goal, or of the gap over all columns while that is
#: large; the quadratic model to this part of its goal, or of its previous gap.
_INNER, _OF_GAP, _MODEL, _ENOUGH = 0.3, 0.01, 0.1, 1e-3
#: A model is used again if its step leaves at most this part of the gap; number of consecutive
#: steps that may gain nothing.
_SLOW, _IDLE = 0.2, 5
#: Slope in the intercept that counts as zero, relative to the loss without coefficients, and
#: relative to the goal.
_SETTLED, _OF_GOAL = 1e-15, 0.01
#: Number of further goals of the working set if its gap is not that of all columns, and ratio of
#: two goals.
_MOST_CLOSER, _CLOSER = 5, 0.1
#: Columns of a record of `follow_smooth_path`; the last is the intercept.
N_RECORDS = 6
INTERCEPT = N_RECORDS - 1


@part
def _join(columns, room, rows, limit, count):
    """Add columns with gradients above the limit.

    Returns the number of members, or −1 if the arrays are full.
    """
    vectors, gradient, places, factors, before = (
        room.vectors,
        room.gradient,
        room.places,
        columns.factors,
        count,
    )
    for j in range(factors.shape[0]):
        if places[j] >= 0 or not size_of(gradient[j], columns.positive) > limit * factors[j]:
            continue
        if count == room.members.shape[0]:
            return -1
        room.members[count], places[j] = j, count
        vectors[COEF, count], vectors[FACTOR, count], vectors[RIDGE, count] = (
            0.0,
            factors[j],
            columns.ridges[j],
        )
        count += 1
    multiply_columns(columns, room, rows, before, count)
    return count


@part
def _combine(columns, room, factors, out, count):
    """Add the combination of the members' columns to `out`."""
    for a in range(count):
        if factors[a] != 0.0:
            add(factors[a], columns.values[room.members[a]], out, 0, out.shape[0])


@part
def _move(loss, columns, room, rows, penalty, best, goal, count):
    """Make the step from the earlier coefficients to those of the model, or a part of it.

    Returns loss plus penalty, and whether it has not risen; if every part raises it, the point does
    not change.
    """
    image, slope, lagged, vectors, push = rows.image, rows.slope, rows.lagged, room.vectors, 0.0
    coef, earlier, change, aims = vectors[COEF], vectors[EARLIER], vectors[SLOPE], vectors[AIM]
    for i in range(image.shape[0]):
        image[i] = 0.0
    for a in range(count):
        change[a], aims[a] = coef[a] - earlier[a], coef[a]
    _combine(columns, room, change, image, count)
    for i in range(image.shape[0]):
        push += slope[i] - lagged[i] * image[i]
    push *= rows.level[SHARE]
    for i in range(image.shape[0]):
        image[i] += push
    value, length = go_along(loss, columns, room, rows, penalty, best, push, count)
    if length == 0.0:
        return best, False
    cost = penalty_of(vectors, penalty, count)
    return settle(loss, columns, room, rows, value - cost, goal) + cost, True


@part
def _improve(loss, columns, room, rows, penalty, best, goal, settled, most, count, record):
    """Make Newton steps on the working set until its estimated gap is at most `goal`.

    They also end when the gap does not fall any more.
    """
    vectors, n_rows = room.vectors, rows.slope.shape[0]
    coef, slopes, ridges = vectors[COEF], vectors[SLOPE], vectors[RIDGE]
    previous, least, idle, fresh = np.inf, np.inf, 0, False
    while record[STEPS] < most and idle < _IDLE:
        square, stale = look_at_slopes(rows)
        for a in range(count):
            ridge = penalty * ridges[a] * coef[a]
            slopes[a] = dot(columns.values[room.members[a]], rows.slope) - ridge
            square += ridge * coef[a]
        record[WORK] += float(count * n_rows)
        excess = excess_of(slopes, vectors[FACTOR], penalty, count, columns.positive)
        gap = gap_of(vectors, square, excess, penalty, count)
        if gap <= goal:
            break
        idle = 0 if gap < least else idle + 1
        least = gap if gap < least else least
        if stale or gap > _SLOW * previous:
            refresh_model(columns, room, rows, count)
            record[WORK] += 0.5 * float(count) * float(count * n_rows)
            fresh = True
        energy = set_model(room, penalty, square, count)
        record[WORK] += descend(
            room, energy, penalty, larger(_MODEL * goal, _ENOUGH * gap), count, columns.positive
        )
        best, moved = _move(loss, columns, room, rows, penalty, best, settled, count)
        record[STEPS] += 1.0
        if not moved and fresh:
            break
        previous, fresh = gap if moved else 0.0, False


@part
def _look(loss, columns, room, rows, penalty, settled, count, record):
    """Compute decision values and the gradient over all columns, without ridges.

    The objective is recorded.
    """
    decision, coef, gradient, ridges = (
        rows.decision,
        room.vectors[COEF],
        room.gradient,
        room.vectors[RIDGE],
    )
    for i in range(decision.shape[0]):
        decision[i] = rows.level[LEVEL]
    _combine(columns, room, coef, decision, count)
    value = settle(loss, columns, room, rows, derive(loss, columns, rows), settled)
    for j in range(gradient.shape[0]):
        gradient[j] = dot(columns.values[j], rows.slope)
    for a in range(count):
        gradient[room.members[a]] -= penalty * ridges[a] * coef[a]
    record[WORK] += float(columns.values.size)
    record[OBJECTIVE] = value + penalty_of(room.vectors, penalty, count)


@part
def _certify(loss, columns, room, rows, penalty, count, exactly, record):
    """Record the gap, from the gradient over all columns.

    Errors of the gradient change it only in second order.
    """
    vectors, gradient = room.vectors, room.gradient
    coef, slopes, ridges, square = vectors[COEF], vectors[SLOPE], vectors[RIDGE], 0.0
    for a in range(count):
        slopes[a] = gradient[room.members[a]]
        square += penalty * ridges[a] * coef[a] * coef[a]
    if not exactly:
        square += look_at_slopes(rows)[0]
    excess = excess_of(gradient, columns.factors, penalty, gradient.shape[0], columns.positive)
    gap = gap_of(vectors, square, excess, penalty, count)
    if exactly and excess > 1.0:
        gap += rest_of(loss, columns, rows, 1.0 / excess)
    if columns.fit_intercept:  # a nonzero slope lowers the bound by its product with b
        gap += 2.0 * abs(total_of(rows.slope)) * larger(1.0, abs(rows.level[LEVEL]))
    record[GAP] = gap


@part
def _solve_for(loss, columns, room, rows, penalty, bound, goal, settled, most, count, record):
    """Solve for one penalty from an evaluated point.

    Returns the number of members, or −1 if arrays are full.
    """
    inner, closer = _INNER * goal, 0
    while True:
        before = count
        if record[GAP] > goal:
            limit = limit_of(columns.factors, room, bound, JOINING + 2 * count, columns.positive)
            count = _join(columns, room, rows, limit, count)
            if count < 0:
                return count
        enough = larger(inner, _OF_GAP * record[GAP])
        if record[GAP] <= goal or record[STEPS] >= most or (count == before and bound == penalty):
            _certify(loss, columns, room, rows, penalty, count, True, record)
            if record[GAP] <= goal or record[STEPS] >= most or closer == _MOST_CLOSER:
                return count
            inner *= _CLOSER
            enough, closer = inner, closer + 1
        _improve(
            loss,
            columns,
            room,
            rows,
            penalty,
            record[OBJECTIVE],
            enough,
            settled,
            most,
            count,
            record,
        )
        _look(loss, columns, room, rows, penalty, settled, count, record)
        _certify(loss, columns, room, rows, penalty, count, False, record)
        bound = penalty


@part
def _begin(columns, room, rows, start):
    """Add columns with a coefficient; returns the number of members, or −1 if arrays are full."""
    copy_to(columns.weights, rows.curvature)
    refresh_model(columns, room, rows, 0)
    for j in range(start.shape[0]):
        room.places[j] = -1
        room.gradient[j] = abs(start[j])
    count = _join(columns, room, rows, 0.0, 0)
    for a in range(count):
        room.vectors[COEF, a] = start[room.members[a]]
    return count


@part
def _follow(loss, columns, room, rows, energy, asked, part_of_step, most, start, coefs, records):
    vectors, last, objective, settled = room.vectors, asked[0, 0], 0.0, np.inf
    if columns.fit_intercept:
        settled = larger(_OF_GOAL * asked[1, 0], _SETTLED * energy)
    count = _begin(columns, room, rows, start)
    if count < 0:
        return 0
    for t in range(asked.shape[1]):
        penalty, goal, record = asked[0, t], asked[1, t], records[t]
        if t == 0:
            _look(loss, columns, room, rows, penalty, settled, count, record)
            objective = record[OBJECTIVE]
        for a in range(count):
            room.gradient[room.members[a]] += (
                (last - penalty) * vectors[RIDGE, a] * vectors[COEF, a]
            )
        objective += penalty_of(vectors, penalty, count) - penalty_of(vectors, last, count)
        record[OBJECTIVE], record[STEPS], record[WORK] = objective, 0.0, 0.0
        if count > 2 * find_support(room, count) + JOINING:
            count = leave(room, count)
            for i in range(count):
                copy_to(rows.scaled[room.support[i]], rows.scaled[i])
        _certify(loss, columns, room, rows, penalty, count, False, record)
        if penalty < last:
            nearer = larger(part_of_step * record[GAP], ROUNDING * energy)
            goal = nearer if nearer < goal else goal
        if columns.fit_intercept:
            settled = larger(
                _OF_GOAL * goal / larger(1.0, abs(rows.level[LEVEL])), _SETTLED * energy
            )
        bound = larger(2.0 * penalty - last, 0.5 * penalty)
        count = _solve_for(
            loss, columns, room, rows, penalty, bound, goal, settled, most[t], count, record
        )
        if count < 0:
            return t
        record[SUPPORT], record[INTERCEPT] = find_support(room, count), rows.level[LEVEL]
        for a in range(count):
            coefs[t, room.members[a]] = vectors[COEF, a]
        last, objective = penalty, record[OBJECTIVE]
    return asked.shape[1]


@kernel
def follow_smooth_path(
    loss, columns, room, rows, energy, asked, part_of_step, most, start, coefs, records
):
    """Solve for falling penalties λ > 0.

    Returns the number of solved penalties, fewer than all if arrays are full.  `energy` is the loss
    without coefficients.  `asked` (2, n_penalties) has λ and goals of the gap.  A gap must also be
    at most `part_of_step` times the previous solution's gap at this λ.  ``most[t]`` limits Newton
    steps.  `start` (p,) and ``rows.level[0]`` are the first coefficients and intercept.
    Overwritten are `room` and `rows`, and rows of `coefs` (n_penalties, p), which are zero before,
    and of `records` (n_penalties, N_RECORDS): gap, objective, Newton steps, multiply–adds, size of
    the support, intercept.
    """
    given = energy, asked, part_of_step, most, start, coefs, records
    return _follow(loss, address_of(columns), address_of(room), address_of(rows), *given)
