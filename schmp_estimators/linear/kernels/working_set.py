"""The Lasso and the elastic net on a working set, whose Gram matrix is known: descent, and exact steps on the support.

Coordinate descent finds the support; a step by a Cholesky factorisation is made once passes have
cost as much.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel, part

#: Part of the diagonal that is added to a matrix before its factorisation, because columns may be
#: dependent.
LIFT = 1e-10
#: Maximum number of steps on the working set between two gradients over all columns, and of
#: consecutive steps without gain.
_MOST_STEPS, _IDLE = 20_000, 100
#: Largest support on which an exact step that was cut off is followed by another one; on a larger
#: one passes come first.
_CHEAP = 200
#: Rows of a factor that are subtracted at a time, because each element then moves through memory
#: only once.
_PANEL = 4
#: A step that sets more than one in this many coefficients to zero is cut off; maximum number of
#: times that coefficients are chosen for this.
PINNED, _MOST_PINNING = 6, 6
#: A step to a smaller part of a coefficient than this counts as a step to zero.
NOTHING = 1e-14
#: Rows of `Room.vectors`.
N_VECTORS = 10
COEF, EARLIER, SLOPE, AIM, FACTOR, RIDGE, _STEP, _MOVE, _TRIAL, _WHOLE = range(N_VECTORS)


class Room(NamedTuple):
    """Arrays for a working set of m columns."""

    #: (m, m) H, and the part of it that is factorised
    matrix: np.ndarray
    upper: np.ndarray
    #: (k, m) and (k, k) for k coefficients that a step sets to zero
    responses: np.ndarray
    products: np.ndarray
    #: (k,) their positions in the support
    pinned: np.ndarray
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
def _subtract_four(upper, first, count):
    """Subtract the products of four finished rows of the factor from all rows below them."""
    one, two, three, four = upper[first], upper[first + 1], upper[first + 2], upper[first + 3]
    for j in range(first + _PANEL, count):
        out, a, b, c, d = upper[j], one[j], two[j], three[j], four[j]
        for k in range(j, count):
            out[k] = (((out[k] - a * one[k]) - b * two[k]) - c * three[k]) - d * four[k]


@part
def factorise(upper, count):
    """Replace the upper triangle by a Cholesky factor; returns whether the matrix is positive definite."""
    for first in range(0, count, _PANEL):
        last = first + _PANEL if first + _PANEL < count else count
        for i in range(first, last):
            row = upper[i]
            if not row[i] > 0.0:
                return False
            root = np.sqrt(row[i])
            for k in range(i, count):
                row[k] /= root
            for j in range(i + 1, last):
                add(-row[j], row, upper[j], j, count)
        if last < count:
            _subtract_four(upper, first, count)
    return True


@part
def substitute(upper, right, count):
    """Solve in place with a factor of `factorise`."""
    for i in range(count):
        right[i] /= upper[i, i]
        add(-right[i], upper[i], right, i + 1, count)
    for back in range(count):
        i = count - 1 - back
        row, total = upper[i], right[i]
        for k in range(i + 1, count):
            total -= row[k] * right[k]
        right[i] = total / row[i]


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
    if not factorise(upper, size):
        return False
    substitute(upper, step, size)
    return True


@part
def _find_crossing(room, size, count):
    """Add positions in the support whose step crosses zero to `count` pinned ones; returns their number, −1 if many."""
    coef, support, step, pinned = room.vectors[COEF], room.support, room.vectors[_STEP], room.pinned
    for i in range(size):
        old = coef[support[i]]
        if (old + step[i]) * old < 0.0:
            if count == pinned.shape[0] or count * PINNED >= size:
                return -1
            pinned[count] = i
            count += 1
    return count


@part
def _hold(room, size, before, count):
    """Set the step to the minimiser with `count` coefficients at zero, of which the first `before` were held already.

    A Lagrange multiplier for each of them means one more right-hand side for the factor; returns
    whether there are multipliers.
    """
    responses, products, pinned = room.responses, room.products, room.pinned
    coef, step, free, right = (
        room.vectors[COEF],
        room.vectors[_STEP],
        room.vectors[_MOVE],
        room.vectors[_TRIAL],
    )
    for a in range(before, count):
        response = responses[a]
        for i in range(size):
            response[i] = 0.0
        response[pinned[a]] = 1.0
        substitute(room.upper, response, size)
    for a in range(count):
        i = pinned[a]
        right[a] = -coef[room.support[i]] - free[i]
        for b in range(a, count):
            products[a, b] = responses[b, i]
    if not factorise(products, count):
        return False
    substitute(products, right, count)
    for i in range(size):
        step[i] = free[i]
    for a in range(count):
        add(right[a], responses[a], step, 0, size)
    for a in range(count):
        step[pinned[a]] = -coef[room.support[pinned[a]]]
    return True


@part
def _pin(room, size):
    """Let the step minimise with the coefficients at zero that would cross it; returns whether these are few enough."""
    step, free, count = room.vectors[_STEP], room.vectors[_MOVE], 0
    for i in range(size):
        free[i] = step[i]
    for _ in range(_MOST_PINNING):
        before = count
        count = _find_crossing(room, size, before)
        if count < 0:
            return False
        if count == before:
            return True
        if not _hold(room, size, before, count):
            return False
    return False


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
def _first_crossing(room, size):
    """Return the part of the step at which the first coefficient becomes zero, at most 1."""
    coef, support, step, first = room.vectors[COEF], room.support, room.vectors[_STEP], 1.0
    for i in range(size):
        old = coef[support[i]]
        if (old + first * step[i]) * old < 0.0:
            first = -old / step[i]
    return first


@part
def _exact_step(room, penalty, count, size):
    """Minimise over the support with fixed signs.

    If coefficients would cross zero, the step is the best of three: the first of them ends it; all
    end at zero; all end at zero and the others minimise what remains.  Returns whether it was one
    of the first two.
    """
    if not _newton(room, penalty, count, size):
        return False
    coef, slopes, step, whole = (
        room.vectors[COEF],
        room.vectors[SLOPE],
        room.vectors[_STEP],
        room.vectors[_WHOLE],
    )
    length = _first_crossing(room, size)
    fall, cut = _try(room, length, penalty, count, size), length < 1.0
    if cut:
        for i in range(size):
            whole[i] = step[i]
        longer = _try(room, 1.0, penalty, count, size)
        if longer > fall:
            fall, length = longer, 1.0
        pinned = _try(room, 1.0, penalty, count, size) if _pin(room, size) else 0.0
        if pinned > fall:
            fall, cut = pinned, False
        else:
            for i in range(size):
                step[i] = whole[i]
            _try(room, length, penalty, count, size)
    if not fall > 0.0:
        return False
    for i in range(size):
        coef[room.support[i]] += room.vectors[_MOVE, i]
    for k in range(count):
        slopes[k] = room.vectors[_TRIAL, k]
    return cut


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

    An exact step is made once passes have cost as much, or after one on a small support was cut
    off.
    """
    vectors, work, spent, least, lowest, idle = room.vectors, 0.0, 0.0, np.inf, np.inf, 0
    for _ in range(_MOST_STEPS):
        excess = excess_of(vectors[SLOPE], vectors[FACTOR], penalty, count, positive)
        square = square_of(vectors, energy, count)
        gap, objective = (
            gap_of(vectors, square, excess, penalty, count),
            objective_of(vectors, square, penalty, count),
        )
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


@part
def set_model(room, penalty, square, count):
    """Compute the quadratic model for descent at the coefficients; returns its energy."""
    vectors, energy = room.vectors, square
    coef, aims, slopes, ridges = vectors[COEF], vectors[AIM], vectors[SLOPE], vectors[RIDGE]
    copy_to(coef, vectors[EARLIER])
    for a in range(count):
        aims[a] = slopes[a] + penalty * ridges[a] * coef[a]
    for a in range(count):
        if coef[a] != 0.0:
            add(coef[a], room.matrix[a], aims, 0, count)
    for a in range(count):
        energy += coef[a] * (aims[a] + slopes[a])
    return energy


@kernel
def solve_model(room, square, goal, part_of_first, count, positive):
    """Solve a quadratic model, at given coefficients and slopes; returns multiply–adds.

    Its gap is then at most `goal`, or at most a part of the first gap.  `square` is the sum of
    squares of slopes, each divided by its curvature, with that of ridges.
    """
    vectors = room.vectors
    excess = excess_of(vectors[SLOPE], vectors[FACTOR], 1.0, count, positive)
    goal = larger(goal, part_of_first * gap_of(vectors, square, excess, 1.0, count))
    energy = set_model(room, 1.0, square, count)
    return descend(room, energy, 1.0, goal, count, positive)
