"""Arrays and named tuples that kernels use by their addresses.

`array_at` makes many arrays without copies; their number is part of no type.

`address_of` passes a named tuple to a part of a kernel as one argument, and the part loads only
what it uses.  numba passes a tuple number by number, in every call and again in every function:
seven numbers for an array, two hundred for some tuples.  This takes most of the compilation time.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array

#: Positions of an array's members in LLVM's struct.
_MEMINFO, _PARENT, _NITEMS, _ITEMSIZE, _DATA, _SHAPE, _STRIDES = range(7)


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


class Addressed(types.Type):
    """A named tuple of numbers and C-contiguous arrays that is passed by its address."""

    def __init__(self, kind: types.NamedTuple) -> None:
        self.kind = kind
        super().__init__(f"Addressed({kind})")


register_model(Addressed)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Addressed

    def generic_resolve(self, addressed: Addressed, name: str) -> Any:  # type: ignore[override]
        """Return the type of a field."""
        fields = addressed.kind.fields
        return addressed.kind.types[fields.index(name)] if name in fields else None


def _suits(kind: types.Type) -> bool:
    return isinstance(kind, types.Number | types.Boolean) or (
        isinstance(kind, types.Array) and kind.layout == "C"
    )


@intrinsic
def address_of(typing_context: Any, values: Any) -> Any:
    """Return the address of a named tuple, which is valid while the calling kernel runs.

    The members are stored only once, so loads of them may be moved before any other store.
    """
    if not all(_suits(kind) for kind in values.types):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, arguments[0].type)
        builder.store(arguments[0], place)
        address = builder.bitcast(place, cgutils.voidptr_t)
        # no load can be moved before this, because only this returns the address
        same = ir.InlineAsm(
            ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t]), "", "=r,0,~{memory}", True
        )
        return builder.call(same, [address])

    return Addressed(values)(values), generate


def _array_of(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    """Return a C-contiguous array that nobody owns, and whose references are not counted."""
    struct = context.get_value_type(kind)
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [ir.Constant(shape[0].type, size)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    count = shape[0]
    for length in shape[1:]:
        count = builder.mul(count, length)
    found = ir.Constant(struct, ir.Undefined)
    nobody = [(place, ir.Constant(struct.elements[place], None)) for place in (_MEMINFO, _PARENT)]
    whole = (_NITEMS, count), (_ITEMSIZE, ir.Constant(shape[0].type, size)), (_DATA, data)
    for place, value in (*nobody, *whole):
        found = builder.insert_value(found, value, place)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        found = builder.insert_value(found, length, (_SHAPE, axis))
        found = builder.insert_value(found, stride, (_STRIDES, axis))
    return found


@lower_getattr_generic(Addressed)  # type: ignore[untyped-decorator]
def _load(context: Any, builder: Any, addressed: Addressed, address: Any, name: str) -> Any:
    """Emit the loads of a field."""
    kind = addressed.kind
    place = addressed.kind.fields.index(name)
    whole = builder.bitcast(address, context.get_value_type(kind).as_pointer())
    field = cgutils.gep_inbounds(builder, whole, 0, place)
    array = kind.types[place]
    if not isinstance(array, types.Array):
        return builder.load(field)  # a number

    def load(*indices: int) -> Any:
        value = builder.load(cgutils.gep_inbounds(builder, field, 0, *indices))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    shape = [load(_SHAPE, axis) for axis in range(array.ndim)]
    return _array_of(context, builder, array, load(_DATA), shape)
