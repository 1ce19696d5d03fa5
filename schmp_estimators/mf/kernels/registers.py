"""Sums over many rows with running totals in registers: most of the work for implicit feedback.

As in `core.lanes`, the order of all additions is fixed, so that the bits are the same on every processor.
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
from schmp_estimators.mf.kernels.tiles import HIGH_HALVES, HIGH_PAIRS, LOW_HALVES, LOW_PAIRS, mixed

_ZERO = ir.Constant(VECTOR, [0.0] * LANES)
_EVEN, _ODD = [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]


#: Number of clicks between the current one and the one whose rows are prefetched.
_AHEAD = 12


def _constant(number: int) -> Any:
    return ir.Constant(INDEX, number)


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

    All are C-contiguous float32 arrays, used as registers.  Number l of a left register contributes to register l of
    the sum.  Each register of the sum is added up in the order of n, then added to `target`.  No bounds are checked.
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


#: Number of rows of `subtract_four_combinations`: this many chains of additions hide each other's latency.
SIDE_BY_SIDE = 4
#: ``subtract_combination(target, at, distance, rows, first, stride, matrix, size)`` subtracts from register `at` of
#: `target` the sum of ``rows[first + number * stride][l] * matrix[number * LANES + l]`` over l and all numbers below
#: `size`, in this order; all are C-contiguous float32 arrays, used as registers.  No bounds are checked.
subtract_combination = _combiner(1)
#: The same for rows ``first … first + 3``, into registers that are `distance` apart, with the same bits.
subtract_four_combinations = _combiner(SIDE_BY_SIDE)


#: Number of clicks that `add_clicks` processes at a time, side by side.
TOGETHER = LANES


def _fold_eight(builder: Any, vectors: list[Any]) -> Any:
    """Return a register with the sums of eight registers, each as `fold_register` would compute it."""
    pairs = [(vectors[number], vectors[number + LANES // 2]) for number in range(LANES // 2)]
    for lower, upper in ((LOW_HALVES, HIGH_HALVES), (LOW_PAIRS, HIGH_PAIRS), (_EVEN, _ODD)):
        sums = [builder.fadd(mixed(builder, *pair, lower), mixed(builder, *pair, upper)) for pair in pairs]
        pairs = list(zip(sums[::2], sums[1::2], strict=False))
    return sums[0]


class _Clicks:
    """Emits the code of `add_clicks`, given its arguments, with the sums of a row in registers."""

    def __init__(self, context: Any, builder: Any, kinds: Any, arguments: Any, *, are_weighted: bool) -> None:
        self._context, self._builder, self._kinds, self._arguments = context, builder, kinds, arguments
        self._are_weighted = are_weighted
        own = self._at_register(2, builder.mul(arguments[3], _constant(2)))
        self._old, self._new = load_register(builder, own, _constant(0)), load_register(builder, own, _constant(LANES))
        self._plain = builder.fsub(ir.Constant(ir.FloatType(), 1.0), arguments[8])
        self._size = builder.extract_value(context.make_array(kinds[5])(context, builder, arguments[5]).shape, 0)
        self.sums = [cgutils.alloca_once_value(builder, _ZERO) for _ in range(PRODUCTS + 1)]

    def eight(self, click: Any) -> None:
        """Emit the sums for eight clicks."""
        builder = self._builder
        self._call(click, TOGETHER)
        others = [self._other_row(builder.add(click, _constant(position))) for position in range(TOGETHER)]
        change = _fold_eight(builder, [self._product(other) for other in others])
        extra, pull = self._pulls(click, change, lambda number: _spread(builder, number))
        for position, other in enumerate(others):
            own_extra = _repeated(builder, extra, position) if self._are_weighted else extra
            self._add(other, own_extra, _repeated(builder, pull, position))

    def one(self, click: Any) -> None:
        """Emit the sums for one click."""
        self._call(click, 1)
        other = self._other_row(click)
        extra, pull = self._pulls(click, fold_register(self._builder, self._product(other)), lambda number: number)
        self._add(other, _spread(self._builder, extra), _spread(self._builder, pull))

    def _pointer(self, number: int, index: Any) -> Any:
        array = self._context.make_array(self._kinds[number])(self._context, self._builder, self._arguments[number])
        return self._builder.gep(array.data, [index])

    def _at_register(self, number: int, index: Any) -> Any:
        return register_pointer(self._context, self._builder, self._kinds[number], self._arguments[number], index)

    def _other_row(self, click: Any) -> Any:
        builder, dtype = self._builder, self._kinds[5].dtype
        number = builder.load(self._pointer(5, click))
        if number.type.width < INDEX.width:
            number = (builder.sext if dtype.signed else builder.zext)(number, INDEX)
        return self._at_register(4, builder.mul(number, _constant(2)))

    def _call(self, click: Any, count: int) -> None:
        """Prefetch the rows of later clicks into the cache."""
        builder = self._builder
        ahead = builder.add(click, _constant(_AHEAD))
        is_inside = builder.icmp_signed("<=", builder.add(ahead, _constant(count)), self._size)
        ahead = builder.select(is_inside, ahead, click)
        for position in range(count):
            _prefetch(builder, self._other_row(builder.add(ahead, _constant(position))))

    def _product(self, other: Any) -> Any:
        builder = self._builder
        before, now = load_register(builder, other, _constant(0)), load_register(builder, other, _constant(LANES))
        return builder.fadd(builder.fmul(self._old, before), builder.fmul(self._new, now))

    def _pulls(self, click: Any, change: Any, spread: Any) -> tuple[Any, Any]:
        """Add `change` to `left`; return d and ``c r + d p``, see `add_clicks`, as a number each or as registers."""
        builder, kind = self._builder, change.type.as_pointer()

        def place(number: int) -> Any:
            return builder.bitcast(self._pointer(number, click), kind)

        rest = builder.fadd(builder.load(place(9), align=4), change)
        builder.store(rest, place(9), align=4)
        extra, pull = spread(self._plain), builder.load(place(6), align=4)
        if self._are_weighted:
            confidence = builder.load(place(7), align=4)
            extra = builder.fsub(confidence, spread(self._arguments[8]))
            pull = builder.fmul(pull, confidence)
        return extra, builder.fadd(pull, builder.fmul(extra, rest))

    def _add(self, other: Any, extra: Any, pull: Any) -> None:
        builder, now = self._builder, load_register(self._builder, other, _constant(LANES))
        scaled = builder.fmul(extra, now)
        terms = [builder.fmul(scaled, rotated(builder, now, distance)) for distance in range(PRODUCTS)]
        for total, term in zip(self.sums, [*terms, builder.fmul(pull, now)], strict=True):
            builder.store(builder.fadd(builder.load(total), term), total)


def _adder(are_weighted: bool) -> Any:
    """Make an instruction that adds up what the clicks of one user or item contribute to its chunk."""

    def add_clicks(typing_context, target, at, ends, row, others, ids, values, confidences, missing, left, start, stop):
        if not isinstance(ids.dtype, types.Integer):
            return None

        def generate(context, builder, signature, arguments):
            clicks = _Clicks(context, builder, signature.args, arguments, are_weighted=are_weighted)
            start, stop, stride = arguments[10], arguments[11], _constant(TOGETHER)
            whole = builder.add(start, builder.and_(builder.sub(stop, start), _constant(-TOGETHER)))
            with cgutils.for_range_slice(builder, start, whole, stride, INDEX) as (click, _):
                clicks.eight(click)
            with cgutils.for_range_slice(builder, whole, stop, _constant(1), INDEX) as (click, _):
                clicks.one(click)
            into = register_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
            for register, total in enumerate(clicks.sums):
                add_to_register(builder, builder.gep(into, [_constant(LANES * register)]), builder.load(total))
            return context.get_dummy_value()

        index, number = types.intp, types.float32
        return types.void(
            target, index, ends, index, others, ids, values, confidences, number, left, index, index
        ), generate  # fmt: skip

    return instruction(add_clicks)


#: ``add_clicks(target, at, ends, row, others, ids, values, confidences, missing, left, start, stop)`` processes the
#: clicks of one row in their order.  First, p = ``left[click]`` is raised by the product of row `row` of `ends` with
#: row ``ids[click]`` of `others`, which have two registers per row.  Let h be the second register of the latter row, r
#: the value, c = 1 and d = c - `missing`.  Then ``d h hᵀ``, in the layout of `add_products`, is added to `target` from
#: register `at`, and ``(c r + d p) h`` to the next register.  No bounds are checked.
add_clicks = _adder(are_weighted=False)
#: The same where ``c = confidences[click]``.
add_weighted_clicks = _adder(are_weighted=True)
