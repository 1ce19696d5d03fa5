"""Sums and products whose order is fixed by construction, at the speed of vector instructions.

A compiler may only vectorise a sum if it is allowed to reorder it, and then the bits depend on the instruction set.
Here the order is written down: registers of `LANES` numbers, `UNROLLED` of them side by side, folded as a binary tree.
LLVM maps them onto whatever registers the processor has; the additions, and so the bits, are the same everywhere.

`dot` sums in float64 over vectors of any length and dtype: on 463 × 50,000 float64 4.1 G multiply–adds per second
beside 2.4 of OpenBLAS's matrix–vector product, and 8.2 on int8 columns, converted on the fly.  `row_dot` and the
functions after it are for float32 rows that are padded to whole registers.  (A loop with eight scalar accumulators is
the same sum, but the compiler leaves it scalar: 12 against 37 million ratings per second at rank 128.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from schmp_estimators.core.jit import inlined

#: Numbers of a register; float32 rows are padded with zeros to a multiple of it (one AVX register).
LANES = 8
#: Registers of partial sums; four hide the latency of an addition.
UNROLLED = 4
#: Registers that hold all products of two numbers of one register.
PRODUCTS = LANES // 2 + 1

_STRIDE = LANES * UNROLLED
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INDEX = ir.IntType(64)


def _fold_pairs(builder: Any, values: list[Any]) -> Any:
    """Emit the pairwise sum of `values`, whose number is a power of two."""
    while len(values) > 1:
        values = [builder.fadd(left, right) for left, right in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _load_lanes(context: Any, builder: Any, array: Any, dtype: Any, index: Any) -> Any:
    """Emit the load of `LANES` neighbours, converted to doubles."""
    element = context.get_data_type(dtype)
    pointer = builder.bitcast(builder.gep(array.data, [index]), ir.VectorType(element, LANES).as_pointer())
    loaded = builder.load(pointer, align=context.get_abi_alignment(element))
    doubles = ir.VectorType(ir.DoubleType(), LANES)
    if dtype == types.float64:
        return loaded
    if dtype == types.float32:
        return builder.fpext(loaded, doubles)
    return (builder.sitofp if dtype.signed else builder.uitofp)(loaded, doubles)


@intrinsic
def _strided_dot(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the dot product of two contiguous vectors up to the last multiple of `_STRIDE`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        index_type = context.get_value_type(types.intp)
        length = builder.extract_value(arrays[0].shape, 0)
        stride = ir.Constant(index_type, _STRIDE)
        stop = builder.sub(length, builder.srem(length, stride))
        zeros = ir.Constant(ir.VectorType(ir.DoubleType(), LANES), [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(UNROLLED)]
        with cgutils.for_range_slice(builder, ir.Constant(index_type, 0), stop, stride, index_type) as (start, _):
            for number, total in enumerate(sums):
                index = builder.add(start, ir.Constant(index_type, number * LANES))
                factors = [
                    _load_lanes(context, builder, array, kind.dtype, index)
                    for array, kind in zip(arrays, signature.args, strict=True)
                ]
                builder.store(builder.fadd(builder.load(total), builder.fmul(*factors)), total)
        folded = _fold_pairs(builder, [builder.load(total) for total in sums])
        lanes = [builder.extract_element(folded, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES)]
        return _fold_pairs(builder, lanes)

    return types.float64(left, right), generate


@inlined
def dot(left, right):
    """Return the dot product of two contiguous vectors of one length, in float64; nothing is mutated.

    Either may hold float64, float32 or integers.  0.12–0.3 ns per element while they fit a cache.
    """
    total = _strided_dot(left, right)
    length = left.shape[0]
    for index in range(length - length % _STRIDE, length):  # the remainder
        total += left[index] * right[index]
    return total


def _instruction(generator: Callable[..., Any]) -> Any:
    """Make `generator` an intrinsic of numba; its first parameter is not one of the kernel's call."""
    return intrinsic(generator)


def padded_width(n_components: int) -> int:
    """Return the row length, a multiple of `LANES`, that holds `n_components` numbers."""
    return -(-n_components // LANES) * LANES


def pad_rows(factors: np.ndarray) -> np.ndarray:
    """Return `factors` (n, k) as C-contiguous float32 of shape (n, padded_width(k)); the added columns are zero."""
    padded = np.zeros((factors.shape[0], padded_width(factors.shape[1])), np.float32)
    padded[:, : factors.shape[1]] = factors
    return padded


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> tuple[Any, Any]:
    struct = context.make_array(array_type)(context, builder, array)
    width = cgutils.unpack_tuple(builder, struct.shape, 2)[1]
    return builder.gep(struct.data, [builder.mul(row, width)]), width


def _load(builder: Any, row: Any, offset: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(row, [offset]), _VECTOR.as_pointer()), align=4)


def _fold(builder: Any, vector: Any) -> Any:
    """Add the upper half of `vector` to its lower half until one number is left."""
    length = LANES
    while length > 1:
        length //= 2
        mask = ir.VectorType(ir.IntType(32), length)
        lower = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(length))))
        upper = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(length, 2 * length))))
        vector = builder.fadd(lower, upper)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@_instruction
def row_dot(typing_context, left, i, right, j):
    """Return ``left[i] @ right[j]`` as float32, for C-contiguous float32 matrices of the same padded width.

    No bounds are checked.  0.15 ns per product from L1 on a 256-bit machine.
    """
    for matrix in (left, right):
        if not (isinstance(matrix, types.Array) and matrix.layout == "C" and matrix.dtype == types.float32):
            return None
    signature = types.float32(left, types.intp, right, types.intp)

    def generate(context, builder, signature, arguments):
        first, width = _row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        second, _ = _row_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(UNROLLED)]

        def accumulate(start, register):
            offset = builder.add(start, ir.Constant(_INDEX, LANES * register))
            product = builder.fmul(_load(builder, first, offset), _load(builder, second, offset))
            builder.store(builder.fadd(builder.load(sums[register]), product), sums[register])

        stride = ir.Constant(_INDEX, LANES * UNROLLED)
        whole = builder.and_(width, ir.Constant(_INDEX, -LANES * UNROLLED))
        with cgutils.for_range_slice(builder, ir.Constant(_INDEX, 0), whole, stride) as (start, _):
            for register in range(UNROLLED):
                accumulate(start, register)
        with cgutils.for_range_slice(builder, whole, width, ir.Constant(_INDEX, LANES)) as (start, _):
            accumulate(start, 0)
        a, b, c, d = (builder.load(partial) for partial in sums)
        return _fold(builder, builder.fadd(builder.fadd(a, c), builder.fadd(b, d)))

    return signature, generate


def _register(context: Any, builder: Any, array_type: Any, array: Any, number: Any) -> Any:
    """Return a pointer to the `number`-th group of `LANES` consecutive numbers of a C-contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [builder.mul(number, ir.Constant(_INDEX, LANES))])


def _add_to(builder: Any, target: Any, addend: Any) -> None:
    pointer = builder.bitcast(target, _VECTOR.as_pointer())
    builder.store(builder.fadd(builder.load(pointer, align=4), addend), pointer, align=4)


def _rotated(builder: Any, vector: Any, distance: int) -> Any:
    order = [(lane + distance) % LANES for lane in range(LANES)]
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))


@_instruction
def add_scaled(typing_context, target, at, source, row, scale):
    """Add ``scale`` times register `row` of `source` to register `at` of `target`, both C-contiguous float32 arrays.

    A register is `LANES` consecutive numbers.  No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        into = _register(context, builder, signature.args[0], arguments[0], arguments[1])
        vector = _load(
            builder,
            _register(context, builder, signature.args[2], arguments[2], arguments[3]),
            ir.Constant(_INDEX, 0),
        )
        factor = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(LANES):
            factor = builder.insert_element(factor, arguments[4], ir.Constant(ir.IntType(32), lane))
        _add_to(builder, into, builder.fmul(vector, factor))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.float32), generate


@_instruction
def add_products(typing_context, target, at, source, row):
    """Add all products of two numbers of register `row` of `source` to `PRODUCTS` registers of `target` from `at`.

    Product k·l of numbers k and l = (k + d) mod `LANES` is added to lane k of register d, for d = 0 … `LANES` / 2.
    No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        first = _register(context, builder, signature.args[0], arguments[0], arguments[1])
        place = _register(context, builder, signature.args[2], arguments[2], arguments[3])
        vector = _load(builder, place, ir.Constant(_INDEX, 0))
        for distance in range(PRODUCTS):
            into = builder.gep(first, [ir.Constant(_INDEX, LANES * distance)])
            _add_to(builder, into, builder.fmul(vector, _rotated(builder, vector, distance)))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate


def _scaled_register(builder: Any, vector: Any, scale: Any) -> Any:
    factor = ir.Constant(_VECTOR, ir.Undefined)
    for lane in range(LANES):
        factor = builder.insert_element(factor, scale, ir.Constant(ir.IntType(32), lane))
    return builder.fmul(vector, factor)


def _repeated(builder: Any, vector: Any, lane: int) -> Any:
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [lane] * LANES))


@_instruction
def add_scaled_products(typing_context, target, at, source, row, scale):
    """Do what `add_products` does, with every product times ``scale``, a float32."""

    def generate(context, builder, signature, arguments):
        first = _register(context, builder, signature.args[0], arguments[0], arguments[1])
        place = _register(context, builder, signature.args[2], arguments[2], arguments[3])
        vector = _load(builder, place, ir.Constant(_INDEX, 0))
        scaled = _scaled_register(builder, vector, arguments[4])
        for distance in range(PRODUCTS):
            into = builder.gep(first, [ir.Constant(_INDEX, LANES * distance)])
            _add_to(builder, into, builder.fmul(scaled, _rotated(builder, vector, distance)))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.float32), generate


@_instruction
def add_outer(typing_context, target, at, left, left_at, right, right_at, step, size):
    """Add ``Σ_n left[left_at + n]ᵀ right[right_at + step n]``, n < size, to `LANES` registers of `target` from `at`.

    All are C-contiguous float32 arrays, taken as registers.  Number l of a register on the left makes register l of
    the sum, which is added up for itself, in the order of n, before it goes to `target`.  No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(LANES)]
        for total in sums:  # the code may be in a loop
            builder.store(zero, total)
        origin = ir.Constant(_INDEX, 0)
        one = ir.Constant(_INDEX, 1)
        with cgutils.for_range_slice(builder, origin, arguments[7], one, _INDEX) as (number, _):
            on_left = builder.add(arguments[3], number)
            on_right = builder.add(arguments[5], builder.mul(number, arguments[6]))
            first = _load(builder, _register(context, builder, signature.args[2], arguments[2], on_left), origin)
            second = _load(builder, _register(context, builder, signature.args[4], arguments[4], on_right), origin)
            for lane, total in enumerate(sums):
                product = builder.fmul(_repeated(builder, first, lane), second)
                builder.store(builder.fadd(builder.load(total), product), total)
        into = _register(context, builder, signature.args[0], arguments[0], arguments[1])
        for lane, total in enumerate(sums):
            _add_to(builder, builder.gep(into, [ir.Constant(_INDEX, LANES * lane)]), builder.load(total))
        return context.get_dummy_value()

    return types.void(
        target, types.intp, left, types.intp, right, types.intp, types.intp, types.intp
    ), generate  # fmt: skip


def _combiner(count: int) -> Any:
    """Make an instruction that combines the registers of a matrix for `count` neighbouring rows at once."""

    def subtract_combinations(typing_context, target, at, distance, rows, first, stride, matrix, size):
        def generate(context, builder, signature, arguments):
            origin, one = ir.Constant(_INDEX, 0), ir.Constant(_INDEX, 1)
            zero = ir.Constant(_VECTOR, [0.0] * LANES)
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(count)]
            for total in sums:
                builder.store(zero, total)
            with cgutils.for_range_slice(builder, origin, arguments[7], one, _INDEX) as (number, _):
                of_rows = builder.add(arguments[4], builder.mul(number, arguments[5]))
                place = _register(context, builder, signature.args[3], arguments[3], of_rows)
                loaded = [_load(builder, place, ir.Constant(_INDEX, LANES * row)) for row in range(count)]
                start = builder.mul(number, ir.Constant(_INDEX, LANES))
                block = _register(context, builder, signature.args[6], arguments[6], start)
                for lane in range(LANES):
                    register = _load(builder, block, ir.Constant(_INDEX, LANES * lane))
                    for row, total in zip(loaded, sums, strict=True):
                        product = builder.fmul(_repeated(builder, row, lane), register)
                        builder.store(builder.fadd(builder.load(total), product), total)
            for row, total in enumerate(sums):
                place = builder.add(arguments[1], builder.mul(arguments[2], ir.Constant(_INDEX, row)))
                into = _register(context, builder, signature.args[0], arguments[0], place)
                pointer = builder.bitcast(into, _VECTOR.as_pointer())
                difference = builder.fsub(builder.load(pointer, align=4), builder.load(total))
                builder.store(difference, pointer, align=4)
            return context.get_dummy_value()

        return types.void(
            target, types.intp, types.intp, rows, types.intp, types.intp, matrix, types.intp
        ), generate  # fmt: skip

    return _instruction(subtract_combinations)


#: Rows that `subtract_four_combinations` works on: so many chains of additions hide each other's latency.
SIDE_BY_SIDE = 4
#: ``subtract_combination(target, at, distance, rows, first, stride, matrix, size)`` subtracts from register `at` of
#: `target` the sum of ``rows[first + number * stride][l] * matrix[number * LANES + l]`` over l and all numbers below
#: `size`, in this order; all are C-contiguous float32 arrays, taken as registers.  No bounds are checked.
subtract_combination = _combiner(1)
#: The same for rows ``first … first + 3``, into registers that are `distance` apart, with the same bits.
subtract_four_combinations = _combiner(SIDE_BY_SIDE)
