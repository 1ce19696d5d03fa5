"""A smooth loss with an L1 penalty or elastic net for falling penalties in one call: proximal Newton steps.

The problem is min Σ s_i ℓ(y_i, u_i) + λ Σ_j (f_j|β_j| + ½ρ_j β_j²), u = Zc + Xβ, for one λ after the other.  The
directions Z, an intercept among them, are not penalised.  A step minimises the quadratic model of the loss on a working
set, as for the squared loss: on the Gram matrix of √w⊙x less what √w⊙Z explains of it (Friedman, Hastie, Tibshirani,
"Regularization paths for generalized linear models via coordinate descent", J. Stat. Software 2010, section 3).  The
weights w of a step may be those of an earlier point: the gradient is exact, and the objective never rises.

With θ_i = −s_i ℓ'(y_i, u_i), Zθ = 0 and a factor κ ≤ 1 for which κθ meets all conditions, the duality gap is a sum of
terms that are not negative: Σ_i s_i(ℓ + ℓ* + κθ_iu_i/s_i) over rows, and λf_j|β_j| − κβ_j x_jᵀθ over columns.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import copy_to, kernel, part
from schmp_estimators.core.lanes import dot
from schmp_estimators.linear.kernels.homotopy import GAP, OBJECTIVE, STEPS, SUPPORT, WORK, leave, limit_of
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
    solve,
)
from schmp_estimators.linear.losses.base import conjugate, row

#: Part of the goal to which the working set is solved, and the quadratic model on it; of its gap before that suffices.
_INNER, _MODEL, _ENOUGH = 0.3, 0.1, 1e-3
#: Part of the loss without coefficients below which gaps are rounding.
_ROUNDING = 1e-13
#: Columns that may join at a time, beside twice as many as there are; and that stay without a coefficient.
_JOINING = 10
#: Change of the curvatures, as a part of their sum, from which a step takes the present ones.
_CHANGED = 0.1
#: Newton steps on the directions that are not penalised, halvings of a step, and steps on a working set.
_MOST_SETTLING, _MOST_HALVINGS = 50, 30
#: Part of its gap that a step is to leave for the model to be used again, and steps in a row that may gain nothing.
_SLOW, _IDLE = 0.2, 5
#: Slope along a direction, as a part of all weights, that is rounding, and as a part of the goal of the gap.
_SETTLED, _OF_GOAL = 1e-15, 0.01
#: Part by which the objective may rise: that is rounding.
_RISE = 1e-13
#: Part of the squared length of a column that weights leave at least.
_FLAT = 1e-12
#: Goals of the working set, each a part of the one before, where its gap does not tell that of all columns.
_MOST_GOALS = 5


class SmoothColumns(NamedTuple):
    """Columns at hand, and what belongs to rows, all arrays float64."""

    #: (p, n) X, and (k, n) Z
    values: np.ndarray
    free: np.ndarray
    #: (n,) y and s
    target: np.ndarray
    weights: np.ndarray
    #: (p,) f > 0, ρ ≥ 0, and Σ s x²
    factors: np.ndarray
    ridges: np.ndarray
    squares: np.ndarray


class Rows(NamedTuple):
    """Room for what belongs to rows."""

    #: (n,) u, θ and w
    decision: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray
    #: (n,) weights of the quadratic model, and their roots
    lagged: np.ndarray
    roots: np.ndarray
    #: (n,) Xd + Zc of a step, and u before it
    image: np.ndarray
    kept: np.ndarray
    #: (m, n) √w⊙x less its projection, and (k, n) √w⊙Z, orthonormal
    scaled: np.ndarray
    frame: np.ndarray
    #: (k,) c, its change and its slope, and (k, k)
    level: np.ndarray
    moves: np.ndarray
    right: np.ndarray
    matrix: np.ndarray


def make_rows(size, n_rows, level):
    """Return room for rows and a working set of so many columns, at coefficients along Z."""
    count = len(level)
    vectors = [np.empty(n_rows) for _ in range(7)]
    return Rows(*vectors, np.empty((size, n_rows)), np.empty((count, n_rows)), level.copy(), np.empty(count), np.empty(count), np.empty((count, count)))


@part
def _derive(loss, columns, rows):
    """Set slopes and curvatures at the decision values; returns the loss."""
    total = 0.0
    for i in range(rows.decision.shape[0]):
        value, slope, curvature = row(loss, columns.target[i], rows.decision[i])
        weight = columns.weights[i]
        rows.slope[i], rows.curvature[i] = weight * slope, weight * curvature
        total += weight * value
    return total


@part
def _rest(loss, columns, rows, scale):
    """Return Σ s(ℓ + ℓ* + κθu/s), which κ = 1 makes zero."""
    total = 0.0
    for i in range(rows.decision.shape[0]):
        u, y = rows.decision[i], columns.target[i]
        value, slope, _ = row(loss, y, u)
        total += columns.weights[i] * (value + conjugate(loss, y, scale * slope) + scale * slope * u)
    return total if total > 0.0 else 0.0


@part
def _free_step(columns, rows, weights):
    """Set the moves along Z to those that the model with these weights has from the slopes in `right`."""
    free, matrix, moves = columns.free, rows.matrix, rows.moves
    count = free.shape[0]
    for a in range(count):
        moves[a] = rows.right[a]
        for b in range(a, count):
            total = 0.0
            for i in range(free.shape[1]):
                total += weights[i] * free[a, i] * free[b, i]
            matrix[a, b] = total
    return solve(matrix, moves, count)


@part
def _settle(loss, columns, rows, value, goal):
    """Make Newton steps along Z until its slopes are at most `goal`; returns the loss, and what is left of slopes."""
    free, decision, kept, left = columns.free, rows.decision, rows.kept, 0.0
    count = free.shape[0]
    for _ in range(_MOST_SETTLING):
        left = 0.0
        for a in range(count):
            rows.right[a] = dot(free[a], rows.slope)
            left = max(left, abs(rows.right[a]))
        if left <= goal or not _free_step(columns, rows, rows.curvature):
            break
        copy_to(decision, kept)
        length, before = 1.0, value
        for _ in range(_MOST_HALVINGS):
            for i in range(decision.shape[0]):
                decision[i] = kept[i]
            for a in range(count):
                add(length * rows.moves[a], free[a], decision, 0, decision.shape[0])
            value = _derive(loss, columns, rows)
            if value <= before * (1.0 + _RISE):
                break
            length *= 0.5
        for a in range(count):
            rows.level[a] += length * rows.moves[a]
        if not value < before:
            break
    return value, left


@part
def _weigh(columns, room, rows, a, count):
    """Set √w⊙x of member a less its projection, and its products with the members up to itself."""
    values, scaled = columns.values[room.members[a]], rows.scaled[a]
    for i in range(values.shape[0]):
        scaled[i] = rows.roots[i] * values[i]
    for b in range(rows.frame.shape[0]):
        add(-dot(rows.frame[b], scaled), rows.frame[b], scaled, 0, scaled.shape[0])
    for b in range(a + 1):
        product = dot(scaled, rows.scaled[b])
        room.matrix[a, b] = product
        room.matrix[b, a] = product
    least = _FLAT * columns.squares[room.members[a]]
    room.matrix[a, a] = max(room.matrix[a, a], least)


@part
def _refresh(columns, room, rows, count):
    """Let the model have the present curvatures."""
    frame = rows.frame
    for i in range(rows.roots.shape[0]):
        rows.lagged[i] = rows.curvature[i]
        rows.roots[i] = np.sqrt(rows.curvature[i])
    for a in range(frame.shape[0]):
        for i in range(rows.roots.shape[0]):
            frame[a, i] = rows.roots[i] * columns.free[a, i]
        for _ in range(2):
            for b in range(a):
                add(-dot(frame[b], frame[a]), frame[b], frame[a], 0, rows.roots.shape[0])
        length = np.sqrt(dot(frame[a], frame[a]))
        for i in range(rows.roots.shape[0]):
            frame[a, i] = frame[a, i] / length if length > 0.0 else 0.0
    for a in range(count):
        _weigh(columns, room, rows, a, count)


@part
def _is_stale(rows):
    """Return whether the curvatures of the model are others than those of the point."""
    apart, total = 0.0, 0.0
    for i in range(rows.lagged.shape[0]):
        apart += abs(rows.curvature[i] - rows.lagged[i])
        total += rows.lagged[i]
    return apart > _CHANGED * total


@part
def _join(columns, room, rows, limit, count, positive):
    """Let columns with larger gradients join; returns how many there are then, or −1 if there is no room."""
    vectors = room.vectors
    for j in range(columns.factors.shape[0]):
        if room.places[j] >= 0 or not size_of(room.gradient[j], positive) > limit * columns.factors[j]:
            continue
        if count == room.members.shape[0]:
            return -1
        room.members[count], room.places[j] = j, count
        vectors[COEF, count], vectors[FACTOR, count], vectors[RIDGE, count] = 0.0, columns.factors[j], columns.ridges[j]
        _weigh(columns, room, rows, count, count)
        count += 1
    return count


@part
def _take_slopes(columns, room, rows, penalty, count):
    """Set the slopes of the members; returns Σ θ²/w and what ridges add to it."""
    coef, slopes, ridges, square = room.vectors[COEF], room.vectors[SLOPE], room.vectors[RIDGE], 0.0
    for a in range(count):
        slopes[a] = dot(columns.values[room.members[a]], rows.slope) - penalty * ridges[a] * coef[a]
        square += penalty * ridges[a] * coef[a] * coef[a]
    for i in range(rows.slope.shape[0]):
        if rows.slope[i] != 0.0:
            square += rows.slope[i] * rows.slope[i] / rows.curvature[i]
    return square


@part
def _penalty_of(vectors, penalty, count):
    """Return the penalty of the coefficients."""
    total, coef, ridges = objective_of(vectors, 0.0, penalty, count), vectors[COEF], vectors[RIDGE]
    for a in range(count):
        total += 0.5 * penalty * ridges[a] * coef[a] * coef[a]
    return total


@part
def _move(loss, columns, room, rows, penalty, best, goal, count):
    """Go from the coefficients before to those that the model has, or a part of the way; returns loss and penalty.

    It is that before, and so is the point, where no part of the way lowers it.
    """
    vectors, decision = room.vectors, rows.decision
    coef, earlier, trial = vectors[COEF], vectors[EARLIER], vectors[AIM]
    n_rows, n_free = decision.shape[0], columns.free.shape[0]
    for i in range(n_rows):
        rows.image[i] = 0.0
    for a in range(count):
        trial[a] = coef[a]
        if coef[a] != earlier[a]:
            add(coef[a] - earlier[a], columns.values[room.members[a]], rows.image, 0, n_rows)
    for i in range(n_rows):
        rows.kept[i] = rows.slope[i] - rows.lagged[i] * rows.image[i]
    for a in range(n_free):
        rows.right[a] = dot(columns.free[a], rows.kept)
    if not _free_step(columns, rows, rows.lagged):
        for a in range(n_free):
            rows.moves[a] = 0.0
    for a in range(n_free):
        add(rows.moves[a], columns.free[a], rows.image, 0, n_rows)
    copy_to(decision, rows.kept)
    length = 1.0
    for _ in range(_MOST_HALVINGS):
        for i in range(n_rows):
            decision[i] = rows.kept[i] + length * rows.image[i]
        for a in range(count):
            coef[a] = earlier[a] + length * (trial[a] - earlier[a]) if length < 1.0 else trial[a]
        value = _derive(loss, columns, rows)
        if value + _penalty_of(vectors, penalty, count) <= best * (1.0 + _RISE):
            for a in range(n_free):
                rows.level[a] += length * rows.moves[a]
            value, _ = _settle(loss, columns, rows, value, goal)
            return value + _penalty_of(vectors, penalty, count), True
        length *= 0.5
    copy_to(rows.kept, decision)
    for a in range(count):
        coef[a] = earlier[a]
    _derive(loss, columns, rows)
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
        if gap > _SLOW * previous or _is_stale(rows):
            _refresh(columns, room, rows, count)
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
    """Compute decision values and the gradient over all columns anew; returns the loss, and what is left of slopes."""
    decision = rows.decision
    for i in range(decision.shape[0]):
        decision[i] = 0.0
    for a in range(columns.free.shape[0]):
        add(rows.level[a], columns.free[a], decision, 0, decision.shape[0])
    for a in range(count):
        if room.vectors[COEF, a] != 0.0:
            add(room.vectors[COEF, a], columns.values[room.members[a]], decision, 0, decision.shape[0])
    value, left = _settle(loss, columns, rows, _derive(loss, columns, rows), settled)
    for j in range(room.gradient.shape[0]):
        room.gradient[j] = dot(columns.values[j], rows.slope)
    return value, left


@part
def _certify(loss, columns, room, rows, penalty, value, left, count, positive, record):
    """Record objective and gap, from the gradient over all columns."""
    vectors, gradient, ridged, furthest = room.vectors, room.gradient, 0.0, 1.0
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
        furthest = max(furthest, abs(rows.level[a]))
    gap = gap_of(vectors, (1.0 if excess > 1.0 else 0.0) * ridged, excess, penalty, count)
    if excess > 1.0:
        gap += _rest(loss, columns, rows, 1.0 / excess)
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
def _solve_for(loss, columns, room, rows, positive, penalty, bound, goal, most, count, record):
    """Solve for one penalty from a point that has been looked at; returns the number of members, −1 if full."""
    inner, goals = _INNER * goal, 0
    while record[GAP] > goal and record[STEPS] < most and goals < _MOST_GOALS:
        before = count
        limit = limit_of(columns, room, bound, _JOINING + 2 * count, positive)
        count = _join(columns, room, rows, limit, count, positive)
        if count < 0:
            return count
        if count == before and bound == penalty:
            inner, goals = 0.1 * inner, goals + 1
        settled, best = _settled_for(columns, rows, goal), record[OBJECTIVE]
        _improve(loss, columns, room, rows, penalty, best, inner, settled, most, count, positive, record)
        value, left = _look(loss, columns, room, rows, settled, count)
        record[WORK] += float(columns.values.size)
        _certify(loss, columns, room, rows, penalty, value, left, count, positive, record)
        bound = penalty
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
    _refresh(columns, room, rows, 0)
    for j in range(start.shape[0]):
        room.places[j] = -1
        room.gradient[j] = start[j]
    count = _join(columns, room, rows, 0.0, 0, False)
    if count < 0:
        return 0
    for a in range(count):
        vectors[COEF, a] = start[room.members[a]]
    value, left = _look(loss, columns, room, rows, _settled_for(columns, rows, goals[0]), count)
    for t in range(penalties.shape[0]):
        penalty, record, goal = penalties[t], records[t], goals[t]
        record[STEPS], record[WORK] = 0.0, 0.0
        if count > 2 * find_support(room, count) + _JOINING:
            count = leave(room, count)
            for i in range(count):
                copy_to(rows.scaled[room.support[i]], rows.scaled[i])
        _certify(loss, columns, room, rows, penalty, value, left, count, positive, record)
        if penalty < last:
            goal = min(goal, max(part_of_step * record[GAP], _ROUNDING * energy))
        bound = max(2.0 * penalty - last, 0.5 * penalty)
        count = _solve_for(loss, columns, room, rows, positive, penalty, bound, goal, most[t], count, record)
        if count < 0:
            return t
        record[SUPPORT] = find_support(room, count)
        for a in range(count):
            coefs[t, room.members[a]] = vectors[COEF, a]
        copy_to(rows.level, levels[t])
        value = record[OBJECTIVE] - _penalty_of(vectors, penalty, count)
        last = penalty
    return penalties.shape[0]


@kernel
def rows_derivatives(loss, decision, target, weights, intercept, slope, curvature):
    """Set slope = −s ℓ' and curvature = s ℓ'' at u + b; return Σ s ℓ, Σ slope and Σ curvature.  s is (n,) or (0,)."""
    total, slopes, curvatures = 0.0, 0.0, 0.0
    for i in range(decision.shape[0]):
        value, along, curved = row(loss, target[i], decision[i] + intercept)
        weight = weights[i] if weights.shape[0] > 0 else 1.0
        slope[i], curvature[i] = weight * along, weight * curved
        total += weight * value
        slopes += slope[i]
        curvatures += curvature[i]
    return total, slopes, curvatures


@kernel
def rows_dual(loss, decision, target, weights, intercept, scale):
    """Return −Σ s ℓ*(y, −q) at q = −scale·ℓ'(y, u + b)."""
    total = 0.0
    for i in range(decision.shape[0]):
        _, along, _ = row(loss, target[i], decision[i] + intercept)
        weight = weights[i] if weights.shape[0] > 0 else 1.0
        total -= weight * conjugate(loss, target[i], scale * along)
    return total
