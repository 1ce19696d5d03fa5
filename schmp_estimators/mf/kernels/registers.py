"""Sums over many rows whose running totals stay in registers: what implicit feedback spends its time in.

As in `core.lanes`, the order of all additions is written down, so that the bits are the same on every processor.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.lanes import (
    INDEX,
    LANES,
    PRODUCTS,
    VECTOR,
    add_to_register,
    fold_register,
    instruction,
    load_register,
    register_pointer,
    rotated,
)

_ZERO = ir.Constant(VECTOR, [0.0] * LANES)


#: Clicks ahead of the one in hand whose rows are called into the cache.
_AHEAD = 12


def _prefetch(builder: Any, pointer: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    numbers = [ir.IntType(32)] * 3
    function = builder.module.declare_intrinsic(
        "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, *numbers])
    )
    for_reading_soon = [ir.Constant(width, value) for width, value in zip(numbers, (0, 3, 1), strict=True)]
    builder.call(function, [builder.bitcast(pointer, byte), *for_reading_soon])


def _spread(builder: Any, number: Any) -> Any:
    """Return a register with a number in all lanes."""
    vector = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return _repeated(builder, vector, 0)


def _repeated(builder: Any, vector: Any, lane: int) -> Any:
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [lane] * LANES))


@instruction
def add_outer(typing_context, target, at, left, left_at, right, right_at, step, size):
    """Add ``Σ_n left[left_at + n]ᵀ right[right_at + step n]``, n < size, to `LANES` registers of `target` from `at`.

    All are C-contiguous float32 arrays, taken as registers.  Number l of a register on the left makes register l of
    the sum, which is added up for itself, in the order of n, before it goes to `target`.  No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(LANES)]
        origin = ir.Constant(INDEX, 0)
        one = ir.Constant(INDEX, 1)
        with cgutils.for_range_slice(builder, origin, arguments[7], one, INDEX) as (number, _):
            on_left = builder.add(arguments[3], number)
            on_right = builder.add(arguments[5], builder.mul(number, arguments[6]))
            first = load_register(
                builder, register_pointer(context, builder, signature.args[2], arguments[2], on_left), origin
            )
            second = load_register(
                builder, register_pointer(context, builder, signature.args[4], arguments[4], on_right), origin
            )
            for lane, total in enumerate(sums):
                product = builder.fmul(_repeated(builder, first, lane), second)
                builder.store(builder.fadd(builder.load(total), product), total)
        into = register_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        for lane, total in enumerate(sums):
            add_to_register(builder, builder.gep(into, [ir.Constant(INDEX, LANES * lane)]), builder.load(total))
        return context.get_dummy_value()

    return types.void(
        target, types.intp, left, types.intp, right, types.intp, types.intp, types.intp
    ), generate  # fmt: skip


def _combiner(count: int) -> Any:
    """Make an instruction that combines the registers of a matrix for `count` neighbouring rows at once."""

    def subtract_combinations(typing_context, target, at, distance, rows, first, stride, matrix, size):
        def generate(context, builder, signature, arguments):
            origin, one = ir.Constant(INDEX, 0), ir.Constant(INDEX, 1)
            sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(count)]
            with cgutils.for_range_slice(builder, origin, arguments[7], one, INDEX) as (number, _):
                of_rows = builder.add(arguments[4], builder.mul(number, arguments[5]))
                place = register_pointer(context, builder, signature.args[3], arguments[3], of_rows)
                loaded = [load_register(builder, place, ir.Constant(INDEX, LANES * row)) for row in range(count)]
                start = builder.mul(number, ir.Constant(INDEX, LANES))
                block = register_pointer(context, builder, signature.args[6], arguments[6], start)
                for lane in range(LANES):
                    register = load_register(builder, block, ir.Constant(INDEX, LANES * lane))
                    for row, total in zip(loaded, sums, strict=True):
                        product = builder.fmul(_repeated(builder, row, lane), register)
                        builder.store(builder.fadd(builder.load(total), product), total)
            for row, total in enumerate(sums):
                place = builder.add(arguments[1], builder.mul(arguments[2], ir.Constant(INDEX, row)))
                into = register_pointer(context, builder, signature.args[0], arguments[0], place)
                pointer = builder.bitcast(into, VECTOR.as_pointer())
                difference = builder.fsub(builder.load(pointer, align=4), builder.load(total))
                builder.store(difference, pointer, align=4)
            return context.get_dummy_value()

        return types.void(
            target, types.intp, types.intp, rows, types.intp, types.intp, matrix, types.intp
        ), generate  # fmt: skip

    return instruction(subtract_combinations)


#: Rows that `subtract_four_combinations` works on: so many chains of additions hide each other's latency.
SIDE_BY_SIDE = 4
#: ``subtract_combination(target, at, distance, rows, first, stride, matrix, size)`` subtracts from register `at` of
#: `target` the sum of ``rows[first + number * stride][l] * matrix[number * LANES + l]`` over l and all numbers below
#: `size`, in this order; all are C-contiguous float32 arrays, taken as registers.  No bounds are checked.
subtract_combination = _combiner(1)
#: The same for rows ``first … first + 3``, into registers that are `distance` apart, with the same bits.
subtract_four_combinations = _combiner(SIDE_BY_SIDE)


def _adder(is_weighted: bool) -> Any:
    """Make an instruction that sums up what one user's or item's clicks say about its chunk."""

    def add_clicks(typing_context, target, at, ends, row, others, ids, values, confidences, missing, left, start, stop):
        if not isinstance(ids.dtype, types.Integer):
            return None

        def generate(context, builder, signature, arguments):
            kinds, origin, one = signature.args, ir.Constant(INDEX, 0), ir.Constant(INDEX, 1)

            def pointer(number, index):
                return builder.gep(context.make_array(kinds[number])(context, builder, arguments[number]).data, [index])

            def at_register(number, index):
                return register_pointer(context, builder, kinds[number], arguments[number], index)

            second = ir.Constant(INDEX, LANES)
            own = at_register(2, builder.mul(arguments[3], ir.Constant(INDEX, 2)))
            old, new = load_register(builder, own, origin), load_register(builder, own, second)
            sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(PRODUCTS + 1)]
            plain = builder.fsub(ir.Constant(ir.FloatType(), 1.0), arguments[8])
            size = builder.extract_value(context.make_array(kinds[5])(context, builder, arguments[5]).shape, 0)

            def other_row(click):
                number = builder.load(pointer(5, click))
                if number.type.width < INDEX.width:
                    number = (builder.sext if kinds[5].dtype.signed else builder.zext)(number, INDEX)
                return at_register(4, builder.mul(number, ir.Constant(INDEX, 2)))

            with cgutils.for_range_slice(builder, arguments[10], arguments[11], one, INDEX) as (click, _):
                ahead = builder.add(click, ir.Constant(INDEX, _AHEAD))
                _prefetch(builder, other_row(builder.select(builder.icmp_signed("<", ahead, size), ahead, click)))
                other = other_row(click)
                before, now = load_register(builder, other, origin), load_register(builder, other, second)
                change = fold_register(builder, builder.fadd(builder.fmul(old, before), builder.fmul(new, now)))
                place = pointer(9, click)
                rest = builder.fadd(builder.load(place), change)
                builder.store(rest, place)
                extra, pull = plain, builder.load(pointer(6, click))
                if is_weighted:
                    confidence = builder.load(pointer(7, click))
                    extra = builder.fsub(confidence, arguments[8])
                    pull = builder.fmul(pull, confidence)
                scaled = builder.fmul(_spread(builder, extra), now)
                pull = _spread(builder, builder.fadd(pull, builder.fmul(extra, rest)))
                terms = [builder.fmul(scaled, rotated(builder, now, distance)) for distance in range(PRODUCTS)]
                for total, term in zip(sums, [*terms, builder.fmul(pull, now)], strict=True):
                    builder.store(builder.fadd(builder.load(total), term), total)
            into = at_register(0, arguments[1])
            for register, total in enumerate(sums):
                add_to_register(builder, builder.gep(into, [ir.Constant(INDEX, LANES * register)]), builder.load(total))
            return context.get_dummy_value()

        index, number = types.intp, types.float32
        return types.void(
            target, index, ends, index, others, ids, values, confidences, number, left, index, index
        ), generate  # fmt: skip

    return instruction(add_clicks)


#: ``add_clicks(target, at, ends, row, others, ids, values, confidences, missing, left, start, stop)`` takes the clicks
#: of one row in their order.  With h the second register of row ``ids[click]`` of `others`, it adds ``d h hᵀ``, as
#: `add_products` lays products out, to `target` from register `at`, and ``(c r + d p) h`` to the register behind, where
#: r is the value, c = 1 and d = c - `missing`.  Before, p = ``left[click]`` is raised by the product of row `row` of
#: `ends` with that of `others`.  `ends` and `others` have two registers a row.  No bounds are checked.
add_clicks = _adder(is_weighted=False)
#: The same where ``c = confidences[click]``.
add_weighted_clicks = _adder(is_weighted=True)
