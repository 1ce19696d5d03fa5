"""A processor instruction that numba does not offer: fetch memory that will soon be needed."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _prefetch(_context: Any, array: Any, index: Any) -> Any:
    """Start to fetch the cache line of ``array[index]``, 1-d and contiguous; the index may be out of bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], shape)
        # For reading (0), into all levels of the cache (3), data (1).
        builder.call(hint, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
