"""The Lasso and the elastic net for falling penalties in one call: descent and exact steps on a growing working set.

The problem is min ½‖t − X̃β‖² + λ Σ_j (f_j|β_j| + ½ρ_j β_j²) for one λ after the other.  A solution starts from those
before: between two changes of the support β is linear in λ.  Columns join the working set unless the strong rule
discards them (Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section
2), and where they violate their optimality condition.  On the Gram matrix H of the working set coordinate descent finds
the support, and Cholesky steps end on it.  The gradient over all columns certifies each point.

A ridge stands for rows that are added to X̃: with c = X̃ᵀt and the gradient q = c − (H + λρ)β, ‖r‖² = ‖t‖² − βᵀ(c + q).
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel, part
from schmp_estimators.core.lanes import dot

#: Part of the diagonal that is added to a matrix before it is factorised, as columns may depend on each other.
_LIFT = 1e-10
#: Part of the goal to which the working set is solved.
_INNER = 0.5
#: Part of ‖t‖² below which gaps are rounding.
_ROUNDING = 1e-13
#: Columns that may join at a time, beside twice as many as there are.
_JOINING = 10
#: Steps on the working set between two gradients over all columns, and of these how many in a row may gain nothing.
_MOST_STEPS, _IDLE = 20_000, 100
#: Part of a coefficient that is but the rounding of a step to zero.
_NOTHING = 1e-14
#: Columns of a record of `follow_path`.
GAP, OBJECTIVE, STEPS, WORK, SUPPORT = range(5)
#: Rows of `Room.vectors`.
N_VECTORS = 9
_COEF, _EARLIER, _SLOPE, _AIM, _FACTOR, _RIDGE, _STEP, _MOVE, _TRIAL = range(N_VECTORS)


class Columns(NamedTuple):
    """Centred columns, all arrays float64: products of them, or themselves."""

    #: (p, p), or (0, 0) if `values` (p, n) and `target` t (n,) are given
    gram: np.ndarray
    values: np.ndarray
    target: np.ndarray
    #: (p,) c = X̃ᵀt
    aims: np.ndarray
    #: (p,) f > 0 and ρ ≥ 0
    factors: np.ndarray
    ridges: np.ndarray


class Room(NamedTuple):
    """Room for a working set of m columns."""

    #: (m, m) H, and a part of it that is factorised
    matrix: np.ndarray
    upper: np.ndarray
    #: (m,) columns in the order in which they joined, and (m,) positions among them
    members: np.ndarray
    support: np.ndarray
    #: (p,) places among members, −1 for none
    places: np.ndarray
    #: (N_VECTORS, m) what belongs to members
    vectors: np.ndarray
    #: (n,) r, and (p,) X̃ᵀr, less the slope of ridges
    residual: np.ndarray
    gradient: np.ndarray


@inlined
def _add(factor, row, out, start, stop):
    for k in range(start, stop):
        out[k] += factor * row[k]


@inlined
def _size(slope, positive):
    return slope if positive else abs(slope)


@part
def _square(vectors, energy, count):
    """Return ‖r‖² with the rows that stand for ridges."""
    coef, aims, slopes = vectors[_COEF], vectors[_AIM], vectors[_SLOPE]
    for a in range(count):
        if coef[a] != 0.0:
            energy -= coef[a] * (aims[a] + slopes[a])
    return energy if energy > 0.0 else 0.0


@part
def _gap(vectors, square, excess, penalty, count):
    """Return the duality gap at the dual point r/excess: a sum of terms that are not negative but for rounding."""
    coef, slopes, factors = vectors[_COEF], vectors[_SLOPE], vectors[_FACTOR]
    scale = 1.0 / excess
    gap = 0.5 * (1.0 - scale) ** 2 * square
    for a in range(count):
        if coef[a] != 0.0:
            gap += penalty * factors[a] * abs(coef[a]) - scale * coef[a] * slopes[a]
    return gap


@part
def _objective(vectors, square, penalty, count):
    total, coef, factors = 0.5 * square, vectors[_COEF], vectors[_FACTOR]
    for a in range(count):
        total += penalty * factors[a] * abs(coef[a])
    return total


@inlined
def _excess(slopes, factors, penalty, count, positive):
    """Return how many times as large as allowed the largest slope is, at least 1."""
    largest = 1.0
    for j in range(count):
        size = _size(slopes[j], positive)
        if size > largest * penalty * factors[j]:
            largest = size / (penalty * factors[j])
    return largest


@part
def _pass(matrix, vectors, penalty, count, positive):
    """Go through the working set once; returns how many coordinates have moved."""
    coef, slopes, factors, ridges = vectors[_COEF], vectors[_SLOPE], vectors[_FACTOR], vectors[_RIDGE]
    moved = 0
    for a in range(count):
        row, old, strength, ridge = matrix[a], coef[a], penalty * factors[a], penalty * ridges[a]
        norm, new = row[a] + ridge, 0.0
        aim = slopes[a] + norm * old
        if aim > strength:
            new = (aim - strength) / norm
        elif aim < -strength and not positive:
            new = (aim + strength) / norm
        if new != old:
            coef[a] = new
            _add(old - new, row, slopes, 0, count)
            slopes[a] += ridge * (old - new)
            moved += 1
    return moved


@part
def _solve(upper, right, count):
    """Solve in place with the matrix whose part right of the diagonal is `upper`; returns whether that has a factor."""
    for i in range(count):
        row = upper[i]
        if not row[i] > 0.0:
            return False
        root = np.sqrt(row[i])
        for k in range(i, count):
            row[k] /= root
        right[i] /= root
        _add(-right[i], row, right, i + 1, count)
        for j in range(i + 1, count):
            _add(-row[j], row, upper[j], j, count)
    for back in range(count):
        i = count - 1 - back
        row, total = upper[i], right[i]
        for k in range(i + 1, count):
            total -= row[k] * right[k]
        right[i] = total / row[i]
    return True


@part
def _newton(room, penalty, count, size):
    """Set the step to the minimiser over the support for the signs as they are; returns whether there is one."""
    matrix, upper, support = room.matrix, room.upper, room.support
    coef, slopes, factors, ridges = (
        room.vectors[_COEF], room.vectors[_SLOPE], room.vectors[_FACTOR], room.vectors[_RIDGE],
    )  # fmt: skip
    step = room.vectors[_STEP]
    for i in range(size):
        a = support[i]
        row, out = matrix[a], upper[i]
        step[i] = slopes[a] - (penalty * factors[a] if coef[a] > 0.0 else -penalty * factors[a])
        for k in range(i, size):
            out[k] = row[support[k]]
        out[i] += penalty * ridges[a] + _LIFT * row[a]
    return _solve(upper, step, size)


@part
def _try(room, part_of_step, penalty, count, size):
    """Set the moves that are a part of the step, but no coordinate beyond zero, and the slopes there.

    Returns by how much the objective falls.
    """
    matrix, support, vectors = room.matrix, room.support, room.vectors
    coef, slopes, factors, ridges = vectors[_COEF], vectors[_SLOPE], vectors[_FACTOR], vectors[_RIDGE]
    step, moves, trial, fall = vectors[_STEP], vectors[_MOVE], vectors[_TRIAL], 0.0
    for k in range(count):
        trial[k] = slopes[k]
    for i in range(size):
        a = support[i]
        moves[i] = part_of_step * step[i]
        if (coef[a] + moves[i]) * coef[a] <= _NOTHING * coef[a] * coef[a]:
            moves[i] = -coef[a]
        _add(-moves[i], matrix[a], trial, 0, count)
        trial[a] -= penalty * ridges[a] * moves[i]
    for i in range(size):
        a = support[i]
        strength = penalty * factors[a] if coef[a] > 0.0 else -penalty * factors[a]
        fall += moves[i] * (0.5 * (slopes[a] + trial[a]) - strength)
    return fall


@part
def _exact_step(room, penalty, count, size):
    """Minimise over the support within its signs.

    Where coordinates would cross zero, either they end there or the first of them ends the step.  Returns whether that
    is so, and the support smaller.
    """
    if not _newton(room, penalty, count, size):
        return False
    coef, slopes, step, first = room.vectors[_COEF], room.vectors[_SLOPE], room.vectors[_STEP], 1.0
    for i in range(size):
        old = coef[room.support[i]]
        if (old + first * step[i]) * old < 0.0:
            first = -old / step[i]
    fall = _try(room, first, penalty, count, size)
    if first < 1.0:
        whole = _try(room, 1.0, penalty, count, size)
        if not whole > fall:
            _try(room, first, penalty, count, size)
        else:
            fall = whole
    if not fall > 0.0:
        return False
    for i in range(size):
        coef[room.support[i]] += room.vectors[_MOVE, i]
    for k in range(count):
        slopes[k] = room.vectors[_TRIAL, k]
    return first < 1.0


@part
def _support(room, count):
    size, coef = 0, room.vectors[_COEF]
    for a in range(count):
        if coef[a] != 0.0:
            room.support[size] = a
            size += 1
    return size


@part
def _descend(room, energy, penalty, goal, count, positive):
    """Solve on the working set until its gap is at most `goal`; returns multiply–adds.

    An exact step is made once passes have cost as much.
    """
    vectors, work, spent, least, lowest, idle = room.vectors, 0.0, 0.0, np.inf, np.inf, 0
    for _ in range(_MOST_STEPS):
        excess = _excess(vectors[_SLOPE], vectors[_FACTOR], penalty, count, positive)
        square = _square(vectors, energy, count)
        gap, objective = _gap(vectors, square, excess, penalty, count), _objective(vectors, square, penalty, count)
        idle = 0 if gap < least or objective < lowest else idle + 1
        if gap <= goal or idle > _IDLE:
            break
        least, lowest = gap if gap < least else least, objective if objective < lowest else lowest
        size = _support(room, count)
        cost = size * size * (size / 6.0 + 1.0)
        if size and spent >= cost:
            spent = spent if _exact_step(room, penalty, count, size) else 0.0
        else:
            cost = count * (1.0 + _pass(room.matrix, vectors, penalty, count, positive))
            spent += cost
        work += cost
    return work


@part
def _begin(room, penalty, count):
    """Compute the slopes of the working set anew."""
    coef, slopes, aims, ridges = room.vectors[_COEF], room.vectors[_SLOPE], room.vectors[_AIM], room.vectors[_RIDGE]
    for a in range(count):
        slopes[a] = aims[a]
    for a in range(count):
        if coef[a] != 0.0:
            _add(-coef[a], room.matrix[a], slopes, 0, count)
            slopes[a] -= penalty * ridges[a] * coef[a]


@part
def _look(columns, room, penalty, count):
    """Take the gradient over all columns; that of members is in their slopes, too."""
    coef, slopes, ridges = room.vectors[_COEF], room.vectors[_SLOPE], room.vectors[_RIDGE]
    gradient, residual, products = room.gradient, room.residual, columns.gram.shape[0] > 0
    if products:
        copy_to(columns.aims, gradient)
    else:
        copy_to(columns.target, residual)
    for a in range(count):
        if coef[a] != 0.0:
            if products:
                _add(-coef[a], columns.gram[room.members[a]], gradient, 0, gradient.shape[0])
            else:
                _add(-coef[a], columns.values[room.members[a]], residual, 0, residual.shape[0])
    if not products:
        for j in range(gradient.shape[0]):
            gradient[j] = dot(columns.values[j], residual)
    for a in range(count):
        gradient[room.members[a]] -= penalty * ridges[a] * coef[a]
        slopes[a] = gradient[room.members[a]]


@part
def _limit(columns, room, bound, most, positive):
    """Return the gradient above which columns are to join, in units of their factors, so that `most` do, about."""
    gradient, factors = room.gradient, columns.factors
    while True:
        found, largest = 0, 0.0
        for j in range(gradient.shape[0]):
            size = _size(gradient[j], positive)
            if room.places[j] < 0 and size > bound * factors[j]:
                found += 1
                if size > largest * factors[j]:
                    largest = size / factors[j]
        higher = 0.5 * (bound + largest)
        if found <= most or not bound < higher < largest:
            return bound
        bound = higher


@part
def _join(columns, room, limit, count, positive):
    """Let columns with larger gradients join; returns how many there are then, or −1 if there is no room."""
    gram, matrix, members, vectors = columns.gram, room.matrix, room.members, room.vectors
    for j in range(columns.aims.shape[0]):
        if room.places[j] >= 0 or not _size(room.gradient[j], positive) > limit * columns.factors[j]:
            continue
        if count == members.shape[0]:
            return -1
        members[count], room.places[j] = j, count
        for a in range(count + 1):
            other = members[a]
            product = gram[j, other] if gram.shape[0] > 0 else dot(columns.values[j], columns.values[other])
            matrix[count, a] = product
            matrix[a, count] = product
        vectors[_COEF, count], vectors[_EARLIER, count], vectors[_AIM, count] = 0.0, 0.0, columns.aims[j]
        vectors[_FACTOR, count], vectors[_RIDGE, count] = columns.factors[j], columns.ridges[j]
        if matrix[count, count] > 0.0:
            count += 1
    return count


@part
def _predict(vectors, ahead, count):
    """Go on along the line through the last two solutions, but no coordinate beyond zero."""
    coef, earlier = vectors[_COEF], vectors[_EARLIER]
    for a in range(count):
        old = coef[a]
        guess = old + ahead * (old - earlier[a])
        coef[a], earlier[a] = guess if guess * old > 0.0 else 0.0, old


@part
def _take_start(room, start, count):
    for a in range(count):
        room.vectors[_COEF, a] = room.vectors[_EARLIER, a] = start[room.members[a]]


@part
def _solve_for(columns, room, energy, positive, penalty, bound, goal, max_iter, count, record):
    """Solve for one penalty from a point whose gradient is known, about; returns the number of members, −1 if full."""
    record[WORK], record[STEPS] = 0.0, 0.0
    while True:
        before = count
        limit = _limit(columns, room, bound, _JOINING + 2 * count, positive)
        count = _join(columns, room, limit, count, positive)
        if count < 0 or (count == before and record[STEPS] > 0.0):
            return count
        _begin(room, penalty, count)
        record[WORK] += _descend(room, energy, penalty, _INNER * goal, count, positive)
        record[STEPS] += 1.0
        _look(columns, room, penalty, count)
        square = _square(room.vectors, energy, count)
        excess = _excess(room.gradient, columns.factors, penalty, room.gradient.shape[0], positive)
        record[GAP] = _gap(room.vectors, square, excess, penalty, count)
        record[OBJECTIVE] = _objective(room.vectors, square, penalty, count)
        if record[GAP] <= goal or record[STEPS] >= max_iter:
            return count
        bound = penalty


@kernel
def follow_path(columns, energy, positive, penalties, goals, part_of_step, most, room, start, coefs, records):
    """Solve for falling penalties λ > 0; returns how many have been solved for: not all if there is no more room.

    `energy` is ‖t‖².  A gap is to be at most ``goals[t]``, and at most `part_of_step` of what the exact solution before
    would have at this λ; ``most[t]`` limits the gradients that are taken.  `start` (p,) are the first coefficients.
    Overwritten are the `room`, rows of `coefs` (n_penalties, p), which are zero before, and of `records`: gap,
    objective, gradients taken, multiply–adds, size of the support.
    """
    n_columns, vectors, count = columns.aims.shape[0], room.vectors, 0
    previous, last, square = penalties[0], penalties[0], energy
    for j in range(n_columns):
        room.places[j] = -1
        room.gradient[j] = start[j]
    count = _join(columns, room, 0.0, count, False)
    if count < 0:
        return 0
    _take_start(room, start, count)
    _look(columns, room, last, count)
    for t in range(penalties.shape[0]):
        penalty, record = penalties[t], records[t]
        # an exact solution at λ' has the gap ½(1 − λ/λ')²‖r‖² at λ
        goal = max(part_of_step * 0.5 * (1.0 - penalty / last) ** 2 * square, _ROUNDING * energy)
        goal = goals[t] if last == penalty else min(goals[t], goal)
        _predict(vectors, (penalty - last) / (last - previous) if last < previous else 0.0, count)
        bound = max(2.0 * penalty - last, 0.5 * penalty)
        count = _solve_for(columns, room, energy, positive, penalty, bound, goal, most[t], count, record)
        if count < 0:
            return t
        record[SUPPORT] = _support(room, count)
        for a in range(count):
            coefs[t, room.members[a]] = vectors[_COEF, a]
        square = _square(vectors, energy, count)
        previous, last = last, penalty
    return penalties.shape[0]
