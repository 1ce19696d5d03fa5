"""Named tuples that kernels pass to their parts by address.

numba passes a tuple number by number, in every call and again in every function: seven numbers for
an array, two hundred for some tuples of arrays.  This takes most of the compilation time.  A tuple
that is passed by its address is one argument, and a part loads only what it uses.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

#: Positions of an array's members in LLVM's struct.
_MEMINFO, _PARENT, _NITEMS, _ITEMSIZE, _DATA, _SHAPE, _STRIDES = range(7)


class Handed(types.Type):
    """A named tuple of numbers and C-contiguous arrays that is passed by its address."""

    def __init__(self, kind: types.NamedTuple) -> None:
        self.kind = kind
        super().__init__(f"Handed({kind})")


register_model(Handed)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Handed

    def generic_resolve(self, handed: Handed, name: str) -> Any:  # type: ignore[override]
        """Return the type of a field."""
        fields = handed.kind.fields
        return handed.kind.types[fields.index(name)] if name in fields else None


def _suits(kind: types.Type) -> bool:
    return isinstance(kind, types.Number | types.Boolean) or (
        isinstance(kind, types.Array) and kind.layout == "C"
    )


@intrinsic
def handed(typing_context: Any, values: Any) -> Any:
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

    return Handed(values)(values), generate


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


@lower_getattr_generic(Handed)  # type: ignore[untyped-decorator]
def _load(context: Any, builder: Any, handed: Handed, address: Any, name: str) -> Any:
    """Emit the loads of a field."""
    kind = handed.kind
    place = handed.kind.fields.index(name)
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
