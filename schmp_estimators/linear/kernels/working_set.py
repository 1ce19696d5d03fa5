"""The Lasso and the elastic net on a working set, whose Gram matrix is known: descent, and exact steps on the support.

Coordinate descent finds the support; a step by a Cholesky factorisation is made once passes have cost as much.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import inlined, part

#: Part of the diagonal that is added to a matrix before its factorisation, because columns may be dependent.
LIFT = 1e-10
#: Maximum number of steps on the working set between two gradients over all columns, and of consecutive steps without
#: gain.
_MOST_STEPS, _IDLE = 20_000, 100
#: Largest support on which an exact step that was cut off is followed by another one; on a larger one passes come
#: first.
_CHEAP = 200
#: A step to a smaller part of a coefficient than this counts as a step to zero.
NOTHING = 1e-14
#: Rows of `Room.vectors`.
N_VECTORS = 9
COEF, EARLIER, SLOPE, AIM, FACTOR, RIDGE, _STEP, _MOVE, _TRIAL = range(N_VECTORS)


class Room(NamedTuple):
    """Arrays for a working set of m columns."""

    #: (m, m) H, and the part of it that is factorised
    matrix: np.ndarray
    upper: np.ndarray
    #: (m,) columns in the order in which they joined, and (m,) positions among them
    members: np.ndarray
    support: np.ndarray
    #: (p,) positions among members, −1 for other columns
    places: np.ndarray
    #: (N_VECTORS, m) arrays over members
    vectors: np.ndarray
    #: (p,) X̃ᵀr minus the slope of ridges
    gradient: np.ndarray


@inlined
def add(factor, row, out, start, stop):
    """Add factor·row to `out` between two positions."""
    for k in range(start, stop):
        out[k] += factor * row[k]


@inlined
def larger(one, other):
    """Return the larger number; Python's function takes numba five times as long."""
    return one if one > other else other


@inlined
def size_of(slope, positive):
    """Return the number that the optimality condition compares with a penalty."""
    return slope if positive else abs(slope)


@part
def square_of(vectors, energy, count):
    """Return ‖r‖² with the additional rows for ridges."""
    coef, aims, slopes = vectors[COEF], vectors[AIM], vectors[SLOPE]
    for a in range(count):
        if coef[a] != 0.0:
            energy -= coef[a] * (aims[a] + slopes[a])
    return energy if energy > 0.0 else 0.0


@part
def gap_of(vectors, square, excess, penalty, count):
    """Return the duality gap at the dual point r/excess: a sum of terms that are not negative, except for rounding."""
    coef, slopes, factors = vectors[COEF], vectors[SLOPE], vectors[FACTOR]
    scale = 1.0 / excess
    gap = 0.5 * (1.0 - scale) * (1.0 - scale) * square
    for a in range(count):
        if coef[a] != 0.0:
            gap += penalty * factors[a] * abs(coef[a]) - scale * coef[a] * slopes[a]
    return gap


@part
def objective_of(vectors, square, penalty, count):
    """Return the objective."""
    total, coef, factors = 0.5 * square, vectors[COEF], vectors[FACTOR]
    for a in range(count):
        total += penalty * factors[a] * abs(coef[a])
    return total


@part
def penalty_of(vectors, penalty, count):
    """Return the penalty of the coefficients, with ridges."""
    total, coef, factors, ridges = 0.0, vectors[COEF], vectors[FACTOR], vectors[RIDGE]
    for a in range(count):
        total += penalty * (factors[a] * abs(coef[a]) + 0.5 * ridges[a] * coef[a] * coef[a])
    return total


@inlined
def excess_of(slopes, factors, penalty, count, positive):
    """Return the largest ratio of a slope to its limit, at least 1."""
    largest = 1.0
    for j in range(count):
        size = size_of(slopes[j], positive)
        if size > largest * penalty * factors[j]:
            largest = size / (penalty * factors[j])
    return largest


@part
def _pass(matrix, vectors, penalty, count, positive):
    """Make a pass over the working set; returns how many coordinates have changed."""
    coef, slopes, factors, ridges = vectors[COEF], vectors[SLOPE], vectors[FACTOR], vectors[RIDGE]
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
            add(old - new, row, slopes, 0, count)
            slopes[a] += ridge * (old - new)
            moved += 1
    return moved


@part
def solve(upper, right, count):
    """Solve in place with the matrix whose upper triangle is `upper`; returns whether it is positive definite."""
    for i in range(count):
        row = upper[i]
        if not row[i] > 0.0:
            return False
        root = np.sqrt(row[i])
        for k in range(i, count):
            row[k] /= root
        right[i] /= root
        add(-right[i], row, right, i + 1, count)
        for j in range(i + 1, count):
            add(-row[j], row, upper[j], j, count)
    for back in range(count):
        i = count - 1 - back
        row, total = upper[i], right[i]
        for k in range(i + 1, count):
            total -= row[k] * right[k]
        right[i] = total / row[i]
    return True


@part
def _newton(room, penalty, count, size):
    """Set the step to the minimiser over the support for the present signs; returns whether there is one."""
    matrix, upper, support = room.matrix, room.upper, room.support
    coef, slopes, factors, ridges = (
        room.vectors[COEF], room.vectors[SLOPE], room.vectors[FACTOR], room.vectors[RIDGE],
    )  # fmt: skip
    step = room.vectors[_STEP]
    for i in range(size):
        a = support[i]
        row, out = matrix[a], upper[i]
        step[i] = slopes[a] - (penalty * factors[a] if coef[a] > 0.0 else -penalty * factors[a])
        for k in range(i, size):
            out[k] = row[support[k]]
        out[i] += penalty * ridges[a] + LIFT * row[a]
    return solve(upper, step, size)


@part
def _try(room, part_of_step, penalty, count, size):
    """Compute a part of the step, without changing signs, and the slopes at its end.

    Returns the decrease of the objective.
    """
    matrix, support, vectors = room.matrix, room.support, room.vectors
    coef, slopes, factors, ridges = vectors[COEF], vectors[SLOPE], vectors[FACTOR], vectors[RIDGE]
    step, moves, trial, fall = vectors[_STEP], vectors[_MOVE], vectors[_TRIAL], 0.0
    for k in range(count):
        trial[k] = slopes[k]
    for i in range(size):
        a = support[i]
        moves[i] = part_of_step * step[i]
        if (coef[a] + moves[i]) * coef[a] <= NOTHING * coef[a] * coef[a]:
            moves[i] = -coef[a]
        add(-moves[i], matrix[a], trial, 0, count)
        trial[a] -= penalty * ridges[a] * moves[i]
    for i in range(size):
        a = support[i]
        strength = penalty * factors[a] if coef[a] > 0.0 else -penalty * factors[a]
        fall += moves[i] * (0.5 * (slopes[a] + trial[a]) - strength)
    return fall


@part
def _exact_step(room, penalty, count, size):
    """Minimise over the support with fixed signs.

    If coordinates would cross zero, either they end at zero, or the first of them ends the step.  Returns whether this
    happened and the support became smaller.
    """
    if not _newton(room, penalty, count, size):
        return False
    coef, slopes, step, first = room.vectors[COEF], room.vectors[SLOPE], room.vectors[_STEP], 1.0
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
def find_support(room, count):
    """Set the support, and return its size."""
    size, coef = 0, room.vectors[COEF]
    for a in range(count):
        if coef[a] != 0.0:
            room.support[size] = a
            size += 1
    return size


@part
def descend(room, energy, penalty, goal, count, positive):
    """Solve on the working set until its gap is at most `goal`; returns multiply–adds.

    An exact step is made once passes have cost as much, or after one on a small support was cut off.
    """
    vectors, work, spent, least, lowest, idle = room.vectors, 0.0, 0.0, np.inf, np.inf, 0
    for _ in range(_MOST_STEPS):
        excess = excess_of(vectors[SLOPE], vectors[FACTOR], penalty, count, positive)
        square = square_of(vectors, energy, count)
        gap, objective = gap_of(vectors, square, excess, penalty, count), objective_of(vectors, square, penalty, count)
        idle = 0 if gap < least or objective < lowest else idle + 1
        if gap <= goal or idle > _IDLE:
            break
        least, lowest = gap if gap < least else least, objective if objective < lowest else lowest
        size = find_support(room, count)
        cost = size * size * (size / 6.0 + 1.0)
        if size and spent >= cost:
            spent = spent if _exact_step(room, penalty, count, size) and size <= _CHEAP else 0.0
        else:
            cost = count * (1.0 + _pass(room.matrix, vectors, penalty, count, positive))
            spent += cost
        work += cost
    return work
