"""A smooth loss with an L1 penalty or elastic net for falling penalties in one call: proximal Newton steps.

The problem is min Σ s_i ℓ(y_i, u_i) + λ Σ_j (f_j|β_j| + ½ρ_j β_j²), u = Zc + Xβ, for one λ after the other.  The
directions Z, an intercept among them, are not penalised.  A step minimises the quadratic model of the loss on a working
set, as for the squared loss: on the Gram matrix of √w⊙x less what √w⊙Z explains of it (Friedman, Hastie, Tibshirani,
"Regularization paths for generalized linear models via coordinate descent", J. Stat. Software 2010, section 3).  The
weights w of a step may be those of an earlier point: the gradient is exact, and the objective never rises.

With θ_i = −s_i ℓ'(y_i, u_i), Zθ = 0 and a factor κ ≤ 1 for which κθ meets all conditions, the duality gap is a sum of
terms that are not negative: Σ_i s_i(ℓ + ℓ* + κθ_iu_i/s_i) over rows, and λf_j|β_j| − κβ_j x_jᵀθ over columns.
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, kernel, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.homotopy import GAP, OBJECTIVE, STEPS, SUPPORT, WORK, leave, limit_of
from schmp_estimators.linear.kernels.smooth import (
    MOST_HALVINGS,
    RISE,
    derive,
    free_step,
    is_stale,
    multiply_columns,
    refresh_model,
    rest_of,
    scale_column,
    settle,
    slopes_square,
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
    objective_of,
    size_of,
)

#: Part of the goal to which the working set is solved, or of the gap over all columns while that is large, and of its
#: goal to which the quadratic model is, and of its gap before.
_INNER, _OF_GAP, _MODEL, _ENOUGH = 0.3, 0.01, 0.1, 1e-3
#: Part of the loss without coefficients below which gaps are rounding.
_ROUNDING = 1e-13
#: Columns that may join at a time, beside twice as many as there are; and that stay without a coefficient.
_JOINING = 10
#: Part of its gap that a step is to leave for the model to be used again, and steps in a row that may gain nothing.
_SLOW, _IDLE = 0.2, 5
#: Slope along a direction, as a part of all weights, that is rounding, and as a part of the goal of the gap.
_SETTLED, _OF_GOAL = 1e-15, 0.01
#: Goals of the working set, where its gap does not tell that of all columns, and which part of the one before each is.
_MOST_GOALS, _CLOSER = 5, 0.1


@part
def _join(columns, room, rows, limit, count, positive):
    """Let columns with larger gradients join; returns how many there are then, or −1 if there is no room."""
    vectors, before = room.vectors, count
    for j in range(columns.factors.shape[0]):
        if room.places[j] >= 0 or not size_of(room.gradient[j], positive) > limit * columns.factors[j]:
            continue
        if count == room.members.shape[0]:
            return -1
        room.members[count], room.places[j] = j, count
        vectors[COEF, count], vectors[FACTOR, count], vectors[RIDGE, count] = 0.0, columns.factors[j], columns.ridges[j]
        scale_column(columns, room, rows, count)
        count += 1
    multiply_columns(columns, room, rows, before, count)
    return count


@part
def _take_slopes(columns, room, rows, penalty, count):
    """Set the slopes of the members; returns Σ θ²/w and what ridges add to it."""
    coef, slopes, ridges, square = room.vectors[COEF], room.vectors[SLOPE], room.vectors[RIDGE], 0.0
    for a in range(count):
        slopes[a] = dot(columns.values[room.members[a]], rows.slope) - penalty * ridges[a] * coef[a]
        square += penalty * ridges[a] * coef[a] * coef[a]
    return square + slopes_square(rows)


@part
def _penalty_of(vectors, penalty, count):
    """Return the penalty of the coefficients."""
    total, coef, ridges = objective_of(vectors, 0.0, penalty, count), vectors[COEF], vectors[RIDGE]
    for a in range(count):
        total += 0.5 * penalty * ridges[a] * coef[a] * coef[a]
    return total


@part
def _aim(columns, room, rows, count):
    """Set the image in the decision values of a step to the coefficients that the model has, and the moves along Z."""
    vectors, image, n_rows = room.vectors, rows.image, rows.decision.shape[0]
    coef, earlier, trial = vectors[COEF], vectors[EARLIER], vectors[AIM]
    for i in range(n_rows):
        image[i] = 0.0
    for a in range(count):
        trial[a] = coef[a]
        if coef[a] != earlier[a]:
            add(coef[a] - earlier[a], columns.values[room.members[a]], image, 0, n_rows)
    for i in range(n_rows):
        rows.kept[i] = rows.slope[i] - rows.lagged[i] * image[i]
    for a in range(columns.free.shape[0]):
        rows.right[a] = dot(columns.free[a], rows.kept)
    solved = free_step(columns, rows, rows.lagged)
    for a in range(columns.free.shape[0]):
        rows.moves[a] = rows.moves[a] if solved else 0.0
        add(rows.moves[a], columns.free[a], image, 0, n_rows)


@part
def _move(loss, columns, room, rows, penalty, best, goal, count):
    """Go from the coefficients before to those that the model has, or a part of the way.

    Returns loss and penalty, and whether they are not higher; the point is that before where no part of the way does.
    """
    decision, coef, earlier, trial = rows.decision, room.vectors[COEF], room.vectors[EARLIER], room.vectors[AIM]
    _aim(columns, room, rows, count)
    copy_to(decision, rows.kept)
    length = 1.0
    for _ in range(MOST_HALVINGS):
        for i in range(decision.shape[0]):
            decision[i] = rows.kept[i] + length * rows.image[i]
        for a in range(count):
            coef[a] = earlier[a] + length * (trial[a] - earlier[a]) if length < 1.0 else trial[a]
        value = derive(loss, columns, rows)
        if value + _penalty_of(room.vectors, penalty, count) <= best * (1.0 + RISE):
            for a in range(rows.level.shape[0]):
                rows.level[a] += length * rows.moves[a]
            value = settle(loss, columns, rows, value, goal)
            return value + _penalty_of(room.vectors, penalty, count), True
        length *= 0.5
    copy_to(rows.kept, decision)
    copy_to(earlier[:count], coef[:count])
    derive(loss, columns, rows)
    return best, False


@part
def _set_model(room, penalty, square, count):
    """Set what descent needs of the quadratic model at the coefficients; returns its energy."""
    vectors, energy = room.vectors, square
    coef, aims, slopes, ridges = vectors[COEF], vectors[AIM], vectors[SLOPE], vectors[RIDGE]
    for a in range(count):
        vectors[EARLIER, a] = coef[a]
        aims[a] = slopes[a] + penalty * ridges[a] * coef[a]
    for a in range(count):
        if coef[a] != 0.0:
            add(coef[a], room.matrix[a], aims, 0, count)
    for a in range(count):
        energy += coef[a] * (aims[a] + slopes[a])
    return energy


@part
def _improve(loss, columns, room, rows, penalty, best, goal, settled, most, count, positive, record):
    """Make Newton steps on the working set until its gap, about, is at most `goal`, or falls no more."""
    vectors, n_rows = room.vectors, rows.slope.shape[0]
    previous, least, idle, fresh = np.inf, np.inf, 0, False
    while record[STEPS] < most and idle < _IDLE:
        square = _take_slopes(columns, room, rows, penalty, count)
        record[WORK] += float(count * n_rows)
        excess = excess_of(vectors[SLOPE], vectors[FACTOR], penalty, count, positive)
        gap = gap_of(vectors, square, excess, penalty, count)
        if gap <= goal:
            break
        idle = 0 if gap < least else idle + 1
        least = min(gap, least)
        if gap > _SLOW * previous or is_stale(rows):
            refresh_model(columns, room, rows, count)
            record[WORK] += 0.5 * float(count) * float(count * n_rows)
            fresh = True
        energy = _set_model(room, penalty, square, count)
        record[WORK] += descend(room, energy, penalty, max(_MODEL * goal, _ENOUGH * gap), count, positive)
        best, moved = _move(loss, columns, room, rows, penalty, best, settled, count)
        record[STEPS] += 1.0
        if not moved and fresh:
            break
        previous, fresh = gap if moved else 0.0, False


@part
def _look(loss, columns, room, rows, settled, count):
    """Compute decision values and the gradient over all columns anew; returns the loss."""
    decision = rows.decision
    for i in range(decision.shape[0]):
        decision[i] = 0.0
    for a in range(columns.free.shape[0]):
        add(rows.level[a], columns.free[a], decision, 0, decision.shape[0])
    for a in range(count):
        if room.vectors[COEF, a] != 0.0:
            add(room.vectors[COEF, a], columns.values[room.members[a]], decision, 0, decision.shape[0])
    value = settle(loss, columns, rows, derive(loss, columns, rows), settled)
    for j in range(room.gradient.shape[0]):
        room.gradient[j] = dot(columns.values[j], rows.slope)
    return value


@part
def _certify(loss, columns, room, rows, penalty, value, count, positive, exactly, record):
    """Record objective and gap, from the gradient over all columns; a gap that need not be exact is of second order."""
    vectors, gradient, ridged, left, furthest = room.vectors, room.gradient, 0.0, 0.0, 1.0
    coef, slopes, ridges = vectors[COEF], vectors[SLOPE], vectors[RIDGE]
    for a in range(count):
        ridge = penalty * ridges[a] * coef[a]
        gradient[room.members[a]] -= ridge
        slopes[a] = gradient[room.members[a]]
        ridged += ridge * coef[a]
    excess = excess_of(gradient, columns.factors, penalty, gradient.shape[0], positive)
    for a in range(count):
        gradient[room.members[a]] += penalty * ridges[a] * coef[a]
    for a in range(rows.level.shape[0]):
        left = max(left, abs(dot(columns.free[a], rows.slope)))
        furthest = max(furthest, abs(rows.level[a]))
    if not exactly:
        gap = gap_of(vectors, ridged + slopes_square(rows), excess, penalty, count)
    elif excess > 1.0:
        gap = gap_of(vectors, ridged, excess, penalty, count) + rest_of(loss, columns, rows, 1.0 / excess)
    else:
        gap = gap_of(vectors, 0.0, excess, penalty, count)
    # slopes along Z that are not zero lower the bound by their product with c, of this point or of the best one
    record[GAP] = gap + 2.0 * left * furthest
    record[OBJECTIVE] = value + _penalty_of(vectors, penalty, count)


@part
def _settled_for(columns, rows, goal):
    """Return how small slopes along Z have to be beside a gap."""
    furthest, weight = 1.0, 0.0
    for a in range(rows.level.shape[0]):
        furthest = max(furthest, abs(rows.level[a]))
    for i in range(columns.weights.shape[0]):
        weight += columns.weights[i]
    return max(_OF_GOAL * goal / furthest, _SETTLED * weight)


@part
def _solve_for(loss, columns, room, rows, positive, penalty, bound, goal, most, value, count, record):
    """Solve for one penalty from a point that has been looked at; returns the number of members, −1 if full."""
    inner, settled = _INNER * goal, _settled_for(columns, rows, goal)
    for _ in range(_MOST_GOALS):
        while record[GAP] > goal and record[STEPS] < most:
            before = count
            limit = limit_of(columns, room, bound, _JOINING + 2 * count, positive)
            count = _join(columns, room, rows, limit, count, positive)
            if count < 0:
                return count
            if count == before and bound == penalty:
                break
            best = record[OBJECTIVE]
            enough = max(inner, _OF_GAP * record[GAP])
            _improve(loss, columns, room, rows, penalty, best, enough, settled, most, count, positive, record)
            value = _look(loss, columns, room, rows, settled, count)
            record[WORK] += float(columns.values.size)
            _certify(loss, columns, room, rows, penalty, value, count, positive, False, record)
            bound = penalty
        _certify(loss, columns, room, rows, penalty, value, count, positive, True, record)
        if record[GAP] <= goal or record[STEPS] >= most:
            break
        inner *= _CLOSER
        best = record[OBJECTIVE]
        _improve(loss, columns, room, rows, penalty, best, inner, settled, most, count, positive, record)
        value = _look(loss, columns, room, rows, settled, count)
    return count


@kernel
def follow_smooth_path(
    loss, columns, energy, positive, penalties, goals, part_of_step, most, room, rows, start, coefs, levels, records
):
    """Solve for falling penalties λ > 0; returns how many have been solved for: not all if there is no more room.

    `energy` is the loss without coefficients.  A gap is to be at most ``goals[t]``, and at most `part_of_step` of what
    the solution before has at this λ; ``most[t]`` limits Newton steps.  `start` (p,) and ``rows.level`` (k,) are the
    first coefficients.  Overwritten are `room` and `rows`, and rows of `coefs` (n_penalties, p), which are zero before,
    of `levels` (n_penalties, k), and of `records`: gap, objective, Newton steps, multiply–adds, size of the support.
    """
    vectors, last, count = room.vectors, penalties[0], 0
    for i in range(rows.decision.shape[0]):
        rows.curvature[i] = columns.weights[i]
    refresh_model(columns, room, rows, 0)
    for j in range(start.shape[0]):
        room.places[j] = -1
        room.gradient[j] = start[j]
    count = _join(columns, room, rows, 0.0, 0, False)
    if count < 0:
        return 0
    for a in range(count):
        vectors[COEF, a] = start[room.members[a]]
    value = _look(loss, columns, room, rows, _settled_for(columns, rows, goals[0]), count)
    for t in range(penalties.shape[0]):
        penalty, record, goal = penalties[t], records[t], goals[t]
        record[STEPS], record[WORK] = 0.0, 0.0
        if count > 2 * find_support(room, count) + _JOINING:
            count = leave(room, count)
            for i in range(count):
                copy_to(rows.scaled[room.support[i]], rows.scaled[i])
        _certify(loss, columns, room, rows, penalty, value, count, positive, False, record)
        if penalty < last:
            goal = min(goal, max(part_of_step * record[GAP], _ROUNDING * energy))
        bound = max(2.0 * penalty - last, 0.5 * penalty)
        given = penalty, bound, goal, most[t], value, count
        count = _solve_for(loss, columns, room, rows, positive, *given, record)
        if count < 0:
            return t
        record[SUPPORT] = find_support(room, count)
        for a in range(count):
            coefs[t, room.members[a]] = vectors[COEF, a]
        copy_to(rows.level, levels[t])
        value = record[OBJECTIVE] - _penalty_of(vectors, penalty, count)
        last = penalty
    return penalties.shape[0]
