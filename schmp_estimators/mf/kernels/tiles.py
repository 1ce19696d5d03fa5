"""Small systems of many rows, solved side by side: one row in each lane, so that additions of different rows overlap.

As in `core.lanes`, the order of all additions is fixed, so that the bits are the same on every processor.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.jit import kernel, pasted
from schmp_estimators.core.lanes import INDEX, LANES, PRODUCTS, VECTOR, instruction, load_register, register_pointer

#: Registers per row of sums: the products, then the numerators.
SUMS = PRODUCTS + 1
#: Passes over the coordinates of a chunk; more lowered the objective after an epoch by less than 1e-5.
PASSES = 2
#: Number of rows that are solved side by side: their sums fill a quarter of the first cache.
TILE = 32
#: Registers that hold one number of each row of a tile; their chains of additions hide each other's latency.
_ACROSS = TILE // LANES

#: Orders of lanes that processors can mix in one instruction; lanes of the second register count from `LANES`.
LOW_HALVES, HIGH_HALVES = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
LOW_PAIRS, HIGH_PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
_LOW_ONES, _HIGH_ONES = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]


def _constant(number: int) -> Any:
    return ir.Constant(INDEX, number)


def mixed(builder: Any, left: Any, right: Any, lanes: list[int]) -> Any:
    """Return a register of lanes of two others; those of the second count from `LANES`."""
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes))


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


@instruction
def copy_register(typing_context, target, at, source, row):
    """Copy register `row` of `source` to register `at` of `target`, both C-contiguous float32; checks no bounds."""

    def generate(context, builder, signature, arguments):
        origin = register_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        into = register_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        _store(builder, load_register(builder, origin, _constant(0)), into)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


@instruction
def transpose(typing_context, target, at, step, source, first, stride):
    """Transpose `LANES` registers of `source`, `stride` apart from `first` on, to `target`, `step` apart from `at` on.

    Lane l of register n becomes lane n of register l.  Both are C-contiguous float32 arrays; no bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        def pointer(array, start, distance, number):
            index = builder.add(arguments[start], builder.mul(arguments[distance], _constant(number)))
            return register_pointer(context, builder, signature.args[array], arguments[array], index)

        rows = [load_register(builder, pointer(3, 4, 5, number), _constant(0)) for number in range(LANES)]
        ones = [
            [mixed(builder, rows[pair], rows[pair + 1], lanes) for lanes in (_LOW_ONES, _HIGH_ONES)]
            for pair in range(0, LANES, 2)
        ]
        fours = [
            mixed(builder, ones[pair][part], ones[pair + 1][part], lanes)
            for pair in (0, 2)
            for part in (0, 1)
            for lanes in (LOW_PAIRS, HIGH_PAIRS)
        ]
        for number in range(LANES):
            halves = fours[number % 4], fours[number % 4 + 4]
            turned = mixed(builder, *halves, LOW_HALVES if number < LANES // 2 else HIGH_HALVES)
            _store(builder, turned, pointer(0, 1, 2, number))
        return context.get_dummy_value()

    return types.void(target, types.intp, types.intp, source, types.intp, types.intp), generate


@instruction
def _improve_columns(typing_context, turned, weights, chunk, first, stop, positive):
    """Do one pass of coordinate descent over coordinates ``first … stop - 1`` of the columns of `chunk` (mutated).

    Arrays as in `solve_tile`.
    """

    def generate(context, builder, signature, arguments):
        zero = ir.Constant(VECTOR, [0.0] * LANES)

        def place(number, row, across):
            index = builder.add(builder.mul(row, _constant(_ACROSS)), _constant(across))
            return register_pointer(context, builder, signature.args[number], arguments[number], index)

        def load(number, row, across):
            return load_register(builder, place(number, row, across), _constant(0))

        def row_of(register, lane):
            return builder.add(_constant(register * LANES), lane)

        with cgutils.for_range_slice(builder, arguments[3], arguments[4], _constant(1), INDEX) as (k, _):
            fresh = [load(0, row_of(PRODUCTS, k), across) for across in range(_ACROSS)]
            for distance in range(1, PRODUCTS):
                ring = _constant(LANES - 1)
                after = builder.and_(builder.add(k, _constant(distance)), ring)
                before = builder.and_(builder.add(k, _constant(LANES - distance)), ring)
                terms = [(row_of(distance, k), after), (row_of(distance, before), before)]
                for product, other in terms if distance < PRODUCTS - 1 else terms[:1]:  # at LANES / 2 both are equal
                    for across in range(_ACROSS):
                        term = builder.fmul(load(0, product, across), load(2, other, across))
                        fresh[across] = builder.fsub(fresh[across], term)
            for across in range(_ACROSS):
                denominator = builder.fadd(load(0, k, across), load(1, _constant(0), across))
                is_free = builder.fcmp_ordered(">", denominator, zero)
                value = builder.select(is_free, builder.fdiv(fresh[across], denominator), zero)
                above = builder.select(builder.fcmp_ordered(">", value, zero), value, zero)
                _store(builder, builder.select(arguments[5], above, value), place(2, k, across))
        return context.get_dummy_value()

    return types.void(turned, weights, chunk, types.intp, types.intp, types.boolean), generate


@pasted
def solve_tile(sums, start, size, penalties, first, stop, positive, rows, turned, chunk, weights):
    """Improve coordinates ``first … stop - 1`` of ``rows[start : start + size]``; mutates `rows`.

    Coordinate descent never raises the objective, whatever the sums are.  The rows of a tile are solved side by side,
    so that a register holds one number of several rows.  This takes a fifth of the time of one row after the other,
    whose additions are a chain.  `sums` (size * SUMS, LANES) begins with those of row `start`.  `turned` (SUMS * LANES,
    TILE), `chunk` (LANES, TILE) and `weights` (TILE,) are work space, zeros at first.
    """
    whole = size - size % LANES
    for position in range(0, whole, LANES):
        across = position // LANES
        for register in range(SUMS):
            transpose(turned, register * TILE + across, _ACROSS, sums, position * SUMS + register, SUMS)
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
    """Copy `chunk` (n, LANES) to the register `at`, 0 or 1, of each row of `out` (n, 2 * LANES), mutated; float32."""
    for row in range(chunk.shape[0]):
        copy_register(out, 2 * row + at, chunk, row)
