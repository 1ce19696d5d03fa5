"""Sums and products whose order is fixed by construction, at the speed of vector instructions.

A compiler may vectorise a sum only if it may reorder it, and then the bits depend on the instruction set.  Here the
order is fixed: `UNROLLED` registers of `LANES` numbers side by side, added up as a binary tree.  LLVM maps them onto
the registers of the processor; the additions, and so the bits, are the same on all processors.

`dot` sums in float64 over vectors of any length and dtype.  On 463 × 50,000 float64 it does 4.1 G multiply–adds per
second, where OpenBLAS's matrix–vector product does 2.4; on int8 columns, which it converts, it does 8.2.  `row_dot` and
the functions after it are for float32 rows that are padded to whole registers.  (A loop with eight scalar accumulators
is the same sum, but the compiler does not vectorise it: 12 against 37 million ratings per second at rank 128.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from schmp_estimators.core.jit import inlined

#: Numbers in a register; float32 rows are padded with zeros to a multiple of it (one AVX register).
LANES = 8
#: Registers of partial sums; four hide the latency of an addition.
UNROLLED = 4
#: Registers that hold the products of all pairs of numbers of one register.
PRODUCTS = LANES // 2 + 1

_STRIDE = LANES * UNROLLED
#: float32 numbers in a cache line.
_LINE = 16
VECTOR = ir.VectorType(ir.FloatType(), LANES)
INDEX = ir.IntType(64)


def _fold_pairs(builder: Any, values: list[Any]) -> Any:
    """Emit the pairwise sum of `values`, whose number is a power of two."""
    while len(values) > 1:
        values = [builder.fadd(left, right) for left, right in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _folded(builder: Any, sums: list[Any]) -> Any:
    """Emit the sum of all numbers in some registers."""
    folded = _fold_pairs(builder, [builder.load(total) for total in sums])
    lanes = [builder.extract_element(folded, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES)]
    return _fold_pairs(builder, lanes)


def _load_lanes(context: Any, builder: Any, array: Any, dtype: Any, index: Any) -> Any:
    """Emit the load of `LANES` consecutive numbers, converted to doubles."""
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
        given = zip(signature.args, arguments, strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in given]
        length = builder.extract_value(arrays[0].shape, 0)
        stop = builder.sub(length, builder.srem(length, INDEX(_STRIDE)))
        zeros = ir.Constant(ir.VectorType(ir.DoubleType(), LANES), [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(UNROLLED)]
        with cgutils.for_range_slice(builder, INDEX(0), stop, INDEX(_STRIDE), INDEX) as (start, _):
            for number, total in enumerate(sums):
                index = builder.add(start, INDEX(number * LANES))
                factors = [
                    _load_lanes(context, builder, array, kind.dtype, index)
                    for array, kind in zip(arrays, signature.args, strict=True)
                ]
                builder.store(builder.fadd(builder.load(total), builder.fmul(*factors)), total)
        return _folded(builder, sums)

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


def instruction(generator: Callable[..., Any]) -> Any:
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


def empty_rows(n_rows: int, n_components: int) -> np.ndarray:
    """Return C-contiguous float32 of shape (n_rows, padded_width(n_components)), at the start of a cache line.

    NumPy puts large arrays at other addresses, where every second register of a row would be in two cache lines.  Only
    the added columns are set, to zero.
    """
    width = padded_width(n_components)
    room = np.empty(n_rows * width + _LINE, np.float32)
    first = -room.ctypes.data // room.itemsize % _LINE
    rows = room[first : first + n_rows * width].reshape(n_rows, width)
    rows[:, n_components:] = 0.0
    return rows


def zero_rows(n_rows: int, n_components: int) -> np.ndarray:
    """Return `empty_rows` that are all zeros."""
    rows = empty_rows(n_rows, n_components)
    rows[:] = 0.0
    return rows


def row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> tuple[Any, Any]:
    """Return a pointer to a row of a C-contiguous matrix, and the length of rows."""
    struct = context.make_array(array_type)(context, builder, array)
    width = cgutils.unpack_tuple(builder, struct.shape, 2)[1]
    return builder.gep(struct.data, [builder.mul(row, width)]), width


def load_register(builder: Any, row: Any, offset: Any) -> Any:
    """Emit the load of `LANES` float32 numbers that begin `offset` numbers after a pointer."""
    return builder.load(builder.bitcast(builder.gep(row, [offset]), VECTOR.as_pointer()), align=4)


def over_registers(builder: Any, width: Any, together: int, accumulate: Callable[[Any, int], None]) -> None:
    """Emit ``accumulate(start, register)`` for all registers of a row, in groups of `together`, then one by one."""
    whole = builder.and_(width, ir.Constant(INDEX, -LANES * together))
    stride = ir.Constant(INDEX, LANES * together)
    with cgutils.for_range_slice(builder, ir.Constant(INDEX, 0), whole, stride) as (start, _):
        for register in range(together):
            accumulate(start, register)
    with cgutils.for_range_slice(builder, whole, width, ir.Constant(INDEX, LANES)) as (start, _):
        accumulate(start, 0)


def fold_register(builder: Any, vector: Any) -> Any:
    """Add the upper half of `vector` to its lower half until one number is left."""
    length = LANES
    while length > 1:
        length //= 2
        mask = ir.VectorType(ir.IntType(32), length)
        lower = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(length))))
        upper = builder.shuffle_vector(vector, vector, ir.Constant(mask, list(range(length, 2 * length))))
        vector = builder.fadd(lower, upper)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def fold_sums(builder: Any, sums: list[Any]) -> Any:
    """Add `UNROLLED` registers of partial sums, and then the numbers of the resulting register."""
    a, b, c, d = sums
    return fold_register(builder, builder.fadd(builder.fadd(a, c), builder.fadd(b, d)))


@instruction
def row_dot(typing_context, left, i, right, j):
    """Return ``left[i] @ right[j]`` as float32, for C-contiguous float32 matrices of the same padded width.

    No bounds are checked.  0.15 ns per product from L1 on a 256-bit machine.
    """
    for matrix in (left, right):
        if not (isinstance(matrix, types.Array) and matrix.layout == "C" and matrix.dtype == types.float32):
            return None
    signature = types.float32(left, types.intp, right, types.intp)

    def generate(context, builder, signature, arguments):
        first, width = row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        second, _ = row_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(UNROLLED)]

        def accumulate(start, register):
            offset = builder.add(start, ir.Constant(INDEX, LANES * register))
            product = builder.fmul(load_register(builder, first, offset), load_register(builder, second, offset))
            builder.store(builder.fadd(builder.load(sums[register]), product), sums[register])

        over_registers(builder, width, UNROLLED, accumulate)
        return fold_sums(builder, [builder.load(partial) for partial in sums])

    return signature, generate


@instruction
def row_moments(typing_context, values, j, others, weights, vector):
    """Return Σ x w, Σ x² w and Σ x v: x is row j of `values`, w and v are rows of `others`, all float32.

    The rows are C-contiguous and of one padded width; no bounds are checked.
    """
    result = types.UniTuple(types.float32, 3)

    def generate(context, builder, signature, arguments):
        column, width = row_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        first, _ = row_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        second, _ = row_pointer(context, builder, signature.args[2], arguments[2], arguments[4])
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(2)] for _ in range(3)]

        def accumulate(start, register):
            offset = builder.add(start, ir.Constant(INDEX, LANES * register))
            x, w, v = (load_register(builder, row, offset) for row in (column, first, second))
            weighed = builder.fmul(x, w)
            for total, addend in zip(sums, (weighed, builder.fmul(x, weighed), builder.fmul(x, v)), strict=True):
                builder.store(builder.fadd(builder.load(total[register]), addend), total[register])

        over_registers(builder, width, 2, accumulate)
        folded = [fold_register(builder, builder.fadd(builder.load(one), builder.load(two))) for one, two in sums]
        return context.make_tuple(builder, result, folded)

    return result(values, types.intp, others, types.intp, types.intp), generate


def register_pointer(context: Any, builder: Any, array_type: Any, array: Any, number: Any) -> Any:
    """Return a pointer to the `number`-th group of `LANES` consecutive numbers of a C-contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [builder.mul(number, ir.Constant(INDEX, LANES))])


def add_to_register(builder: Any, target: Any, addend: Any) -> None:
    """Emit the addition of a register to the numbers at a pointer."""
    pointer = builder.bitcast(target, VECTOR.as_pointer())
    builder.store(builder.fadd(builder.load(pointer, align=4), addend), pointer, align=4)


def rotated(builder: Any, vector: Any, distance: int) -> Any:
    """Return a register whose lane k is lane k + `distance`, modulo `LANES`."""
    order = [(lane + distance) % LANES for lane in range(LANES)]
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))


@instruction
def add_scaled(typing_context, target, at, source, row, scale):
    """Add ``scale`` times register `row` of `source` to register `at` of `target`, both C-contiguous float32 arrays.

    A register is `LANES` consecutive numbers.  No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        into = register_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        vector = load_register(
            builder,
            register_pointer(context, builder, signature.args[2], arguments[2], arguments[3]),
            ir.Constant(INDEX, 0),
        )
        factor = ir.Constant(VECTOR, ir.Undefined)
        for lane in range(LANES):
            factor = builder.insert_element(factor, arguments[4], ir.Constant(ir.IntType(32), lane))
        add_to_register(builder, into, builder.fmul(vector, factor))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.float32), generate


@instruction
def add_products(typing_context, target, at, source, row):
    """Add all products of two numbers of register `row` of `source` to `PRODUCTS` registers of `target` from `at`.

    Product k·l of numbers k and l = (k + d) mod `LANES` is added to lane k of register d, for d = 0 … `LANES` / 2.
    No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        first = register_pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        place = register_pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        vector = load_register(builder, place, ir.Constant(INDEX, 0))
        for distance in range(PRODUCTS):
            into = builder.gep(first, [ir.Constant(INDEX, LANES * distance)])
            add_to_register(builder, into, builder.fmul(vector, rotated(builder, vector, distance)))
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp), generate
