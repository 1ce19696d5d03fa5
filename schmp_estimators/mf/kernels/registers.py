"""Sums and small systems of many rows in registers: most of the work of coordinate descent.

Rows of a small system are solved side by side, one row in each lane, so that additions of different
rows overlap.
"""

from typing import Any

import numpy as np

from schmp_estimators.core.jit import kernel, maker, pasted
from schmp_estimators.core.lanes import (
    DOUBLES,
    LANES,
    NUMBER,
    PRODUCTS,
    VECTOR,
    Registers,
    Value,
    emitted,
)

#: Registers per row of sums: the products, then the numerators.
SUMS = PRODUCTS + 1
#: Passes over the coordinates of a chunk; more lowered the objective after an epoch by less than
#: 1e-5.
PASSES = 2
#: Number of rows that are solved side by side: their sums fill a quarter of the first cache.
TILE = 32
#: Registers that hold one number of each row of a tile; their chains of additions hide each other's
#: latency.
_ACROSS = TILE // LANES
#: Number of clicks between those that are processed and those whose rows are prefetched.
_AHEAD = 12

#: Orders of lanes that processors can mix in one instruction; lanes of the second register count
#: from `LANES`.
_LOW_HALVES, _HIGH_HALVES = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
_LOW_PAIRS, _HIGH_PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
_LOW_ONES, _HIGH_ONES = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
_EVEN, _ODD = [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]


@emitted()
def copy_register(code, target, at, source, row):
    """Copy register `row` of `source` to register `at` of `target`."""
    target[at] = source[row]


@emitted()
def transpose(code, target, at, step, source, first, stride):
    """Transpose `LANES` registers of `source` to `target`.

    They are `stride` apart from `first` on, and then `step` apart from `at` on.

    Lane l of register n becomes lane n of register l.
    """
    rows = [source[first + stride * number] for number in range(LANES)]
    pairs = zip(rows[::2], rows[1::2], strict=True)
    ones = [[one.mixed(other, lanes) for lanes in (_LOW_ONES, _HIGH_ONES)] for one, other in pairs]
    fours = [
        ones[pair][part].mixed(ones[pair + 1][part], lanes)
        for pair in (0, 2)
        for part in (0, 1)
        for lanes in (_LOW_PAIRS, _HIGH_PAIRS)
    ]
    for number in range(LANES):
        lanes = _LOW_HALVES if number < LANES // 2 else _HIGH_HALVES
        target[at + step * number] = fours[number % 4].mixed(fours[number % 4 + 4], lanes)


@emitted()
def add_outer(code, target, at, left, left_at, right, right_at, step, size):
    """Add ``Σ_n left[left_at + n]ᵀ right[right_at + step n]``, n < size, to `target`.

    The sum has `LANES` registers from `at` on.

    Number l of a left register contributes to register l of the sum.  Each register of the sum is
    added up in the order of n in float32, then added to `target`, which is float64.
    """
    sums = code.totals(LANES)
    with code.loop(0, size) as number:
        first = left[left_at + number]
        second = right[right_at + step * number]
        # in the following matrix of `left`: processors do not foresee its address
        left.prefetch((left_at + number + left.shape[1]) * LANES)
        for lane, total in enumerate(sums):
            total.add(first.repeated(lane) * second)
    for lane, total in enumerate(sums):
        place = (at + lane) * LANES
        wide = Value(code.builder, code.builder.fpext(total.value.value, DOUBLES))
        target.store(place, target.doubles(place) + wide)


def _combiner(count: int) -> Any:
    """Make an instruction that combines the registers of a matrix.

    It does so for `count` neighbouring rows at once.
    """

    def subtract_combinations(code, target, at, distance, rows, first, stride, matrix, size):
        sums = code.totals(count)
        with code.loop(0, size) as number:
            place = first + stride * number
            for row in range(2 * count, 3 * count, 2):
                rows.prefetch((place + row) * LANES)  # two rows are a cache line
            for lane in range(LANES):
                register = matrix[number * LANES + lane]
                for row, total in enumerate(sums):
                    number_of_row = rows.load((place + row) * LANES + lane, NUMBER)
                    total.add(number_of_row.spread() * register)
        for row, total in enumerate(sums):
            target[at + distance * row] -= total.value

    return emitted()(subtract_combinations)


#: ``subtract_combination(target, at, distance, rows, first, stride, matrix, size)`` subtracts from
#: register `at` of `target` the sum of
#: ``rows[first + number * stride][l] * matrix[number * LANES + l]`` over l and all numbers below
#: `size`, in this order.
subtract_combination = _combiner(1)
#: The same for rows ``first … first + LANES - 1``, into registers that are `distance` apart, with
#: the same bits; their chains of additions hide each other's latency.
subtract_some_combinations = _combiner(LANES)


def fold_eight(vectors: list[Value]) -> Value:
    """Return a register with the sums of eight registers, as `Value.folded` would compute them."""
    pairs = [(vectors[number], vectors[number + LANES // 2]) for number in range(LANES // 2)]
    for lower, upper in ((_LOW_HALVES, _HIGH_HALVES), (_LOW_PAIRS, _HIGH_PAIRS), (_EVEN, _ODD)):
        sums = [one.mixed(other, lower) + one.mixed(other, upper) for one, other in pairs]
        pairs = list(zip(sums[::2], sums[1::2], strict=False))
    return sums[0]


@emitted()
def add_clicks(
    code, target, at, ends, row, others, ids, values, confidences, missing, left, start, stop
):
    """Process the clicks of one row in their order.

    First, p = ``left[click]`` is raised by the product of row `row` of `ends` with row
    ``ids[click]`` of `others`, which have two registers per row.  Let h be the second register of
    the latter row, r the value, d = c - `missing` and c = ``confidences[click]``, or 1 if they are
    None.  Then ``d h hᵀ``, in the layout of `add_products`, is added to `target` from register
    `at`, and ``(c r + d p) h`` to the next register.
    """
    old = ends[row * 2]
    new = ends[row * 2 + 1]
    sums = code.totals(SUMS)
    plain = missing.constant(1.0) - missing
    last = ids.shape[0]

    def add(click, count):
        """Emit the sums for `count` clicks side by side, one or eight: numbers or registers."""
        kind, many = (VECTOR, Value.spread) if count > 1 else (NUMBER, lambda number: number)
        one_of = Value.repeated if count > 1 else lambda number, position: number.spread()
        ahead = click + _AHEAD
        is_inside = Value(
            code.builder, code.builder.icmp_signed("<=", (ahead + count).value, last.value)
        )
        ahead = click.where(is_inside, ahead)
        for position in range(count):
            others.prefetch(ids.index(ahead + position) * (2 * LANES))
        rows = [ids.index(click + position) * 2 for position in range(count)]
        products = [old * others[other] + new * others[other + 1] for other in rows]
        rest = left.load(click, kind) + (
            fold_eight(products) if count > 1 else products[0].folded()
        )
        left.store(click, rest)
        extra = many(plain)
        pull = values.load(click, kind)
        if isinstance(confidences, Registers):
            confidence = confidences.load(click, kind)
            extra = confidence - many(missing)
            pull = pull * confidence
        pull = pull + extra * rest
        for position, other in enumerate(rows):
            now = others[other + 1]
            scaled = one_of(extra, position) * now
            turned = [now.rotated(turn) for turn in range(PRODUCTS)]
            terms = [*(scaled * one for one in turned), one_of(pull, position) * now]
            for total, term in zip(sums, terms, strict=True):
                total.add(term)

    whole = start + ((stop - start) & -LANES)
    with code.loop(start, whole, LANES) as click:
        add(click, LANES)
    with code.loop(whole, stop) as click:
        add(click, 1)
    for register, total in enumerate(sums):
        target[at + register] += total.value


@emitted()
def _improve_columns(code, turned, weights, chunk, first, stop, positive):
    """Do one pass of coordinate descent over coordinates ``first … stop - 1``.

    They are those of the columns of `chunk` (mutated).

    Arrays as in `solve_tile`.
    """
    across = range(_ACROSS)
    ring = LANES - 1
    with code.loop(first, stop) as k:
        fresh = [turned[(k + PRODUCTS * LANES) * _ACROSS + part] for part in across]
        for distance in range(1, PRODUCTS):
            after = (k + distance) & ring
            before = (k + (LANES - distance)) & ring
            terms = [(k, after), (before, before)]
            for row, other in (
                terms if distance < PRODUCTS - 1 else terms[:1]
            ):  # at LANES / 2 both are equal
                products = [(row + distance * LANES) * _ACROSS + part for part in across]
                fresh = [
                    value - turned[product] * chunk[other * _ACROSS + part]
                    for part, (value, product) in enumerate(zip(fresh, products, strict=True))
                ]
        for part, value in enumerate(fresh):
            denominator = turned[k * _ACROSS + part] + weights[part]
            zero = value.constant(0.0)
            best = zero.where(denominator.exceeds(zero), value / denominator)
            above = zero.where(best.exceeds(zero), best)
            chunk[k * _ACROSS + part] = best.where(positive, above)


@maker
def room_of_tile():
    """Return arrays that `solve_tile` works in.

    They are the sums and a chunk of the rows of a tile, and their penalties.
    """
    turned = np.zeros((SUMS * LANES, TILE), np.float32)
    chunk = np.zeros((LANES, TILE), np.float32)
    return turned, chunk, np.zeros(TILE, np.float32)


@pasted
def solve_tile(sums, start, size, penalties, first, stop, positive, rows, room):
    """Improve coordinates ``first … stop - 1`` of ``rows[start : start + size]``; mutates `rows`.

    Coordinate descent never raises the objective, whatever the sums are.  The rows of a tile are
    solved side by side, so that a register holds one number of several rows.  This takes a fifth of
    the time of one row after the other, whose additions are a chain.  `sums` (size * SUMS, LANES)
    begins with those of row `start`.  `room` is that of `room_of_tile`.
    """
    turned, chunk, weights = room
    whole = size - size % LANES
    for position in range(0, whole, LANES):
        across = position // LANES
        for register in range(SUMS):
            transpose(
                turned, register * TILE + across, _ACROSS, sums, position * SUMS + register, SUMS
            )
        transpose(chunk, across, _ACROSS, rows, start + position, 1)
    for position in range(whole, size):
        for register in range(SUMS):
            for lane in range(LANES):
                turned[register * LANES + lane, position] = sums[position * SUMS + register, lane]
        for k in range(LANES):
            chunk[k, position] = rows[start + position, k]
    for position in range(size):
        weights[position] = penalties[start + position]
    for _ in range(PASSES):
        _improve_columns(turned, weights, chunk, first, stop, positive)
    for position in range(0, whole, LANES):
        transpose(rows, start + position, 1, chunk, position // LANES, _ACROSS)
    for position in range(whole, size):
        for k in range(first, stop):
            rows[start + position, k] = chunk[k, position]


@kernel
def lay_beside(chunk, at, out):
    """Copy `chunk` (n, LANES) to the register `at` of each row of `out`, mutated; float32.

    `at` is 0 or 1, and `out` has the shape (n, 2 * LANES).
    """
    for row in range(chunk.shape[0]):
        copy_register(out, 2 * row + at, chunk, row)
