"""Arrays at given addresses in kernels: many arrays without copies.

Their number is part of no type.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array


@intrinsic
def array_at(typing: Any, address: Any, size: Any, like: Any) -> Any:
    """Return the contiguous array of `size` elements at an address, with the dtype of `like`.

    If `size` is a pair, the array has so many rows, and so many elements in each.  Kernels call it.
    The caller of the kernel must keep the memory, and let nobody else write to it.
    """
    has_rows = isinstance(size, types.BaseTuple)
    kind = types.Array(like.dtype, 1 + has_rows, "C")
    given = types.UniTuple(types.int64, 2) if has_rows else types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = context.get_data_type(like.dtype)
        nbytes = context.get_constant(types.intp, context.get_abi_sizeof(element))
        data = builder.inttoptr(arguments[0], element.as_pointer())
        array = make_array(kind)(context, builder)
        shape = cgutils.unpack_tuple(builder, arguments[1]) if has_rows else [arguments[1]]
        strides = [*(builder.mul(nbytes, size) for size in shape[1:]), nbytes]
        populate_array(
            array, data=data, shape=shape, strides=strides, itemsize=nbytes, meminfo=None
        )
        return array._getvalue()

    return kind(types.int64, given, like), generate
