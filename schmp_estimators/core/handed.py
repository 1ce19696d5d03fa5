"""Named tuples that parts of kernels take by address.

numba hands a tuple over number by number: seven for an array, two hundred for some tuples of arrays, in every call and
once more in each function, which takes most of the time of compilation.  By its address a tuple is one argument, and a
part loads what it uses.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import OpaqueModel
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic

from schmp_estimators.core.lowering import DATA, SHAPE, array_of


class Handed(types.Type):
    """A named tuple of numbers and C-contiguous arrays that is known by its address."""

    def __init__(self, kind: types.NamedTuple) -> None:
        self.kind = kind
        super().__init__(f"Handed({kind})")


register_default(Handed)(OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Handed

    def generic_resolve(self, handed: Handed, name: str) -> Any:
        """Return the type of a field."""
        fields = handed.kind.fields
        return handed.kind.types[fields.index(name)] if name in fields else None


def _suits(kind: types.Type) -> bool:
    return isinstance(kind, types.Number | types.Boolean) or (isinstance(kind, types.Array) and kind.layout == "C")


@intrinsic
def handed(typing_context: Any, values: Any) -> Any:
    """Return the address of a named tuple, for as long as the kernel runs that calls this.

    What it consists of is stored once: loads from there may go before any other store.
    """
    if not all(_suits(kind) for kind in values.types):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, arguments[0].type)
        builder.store(arguments[0], place)
        address = builder.bitcast(place, cgutils.voidptr_t)
        # no load goes before this, as none knows another address
        same = ir.InlineAsm(ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t]), "", "=r,0,~{memory}", True)
        return builder.call(same, [address])

    return Handed(values)(values), generate


@lower_getattr_generic(Handed)
def _load(context: Any, builder: Any, handed: Handed, address: Any, name: str) -> Any:
    """Emit the loads of a field."""
    kind, place = handed.kind, handed.kind.fields.index(name)
    whole = builder.bitcast(address, context.get_value_type(kind).as_pointer())
    field, array = cgutils.gep_inbounds(builder, whole, 0, place), kind.types[place]
    if not isinstance(array, types.Array):
        return builder.load(field)  # a number

    def load(*indices: int) -> Any:
        value = builder.load(cgutils.gep_inbounds(builder, field, 0, *indices))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    shape = [load(SHAPE, axis) for axis in range(array.ndim)]
    return array_of(context, builder, array, load(DATA), shape)
