"""How the statements of kernels become instructions of LLVM: as numba has it, but loops and items of arrays in few.

numba writes 160 instructions for a loop over a range and 30 for an item of an array, nearly all of which LLVM removes
again: to write, read and remove them took half of the time of compilation.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler_machinery import register_pass
from numba.core.imputils import impl_ret_borrowed
from numba.core.ir import Expr
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering
from numba.np.arrayobj import load_item, store_item

#: Members of an array, and of the iterator of a range, as LLVM has them.
_MEMINFO, _PARENT, _NITEMS, _ITEMSIZE, DATA, SHAPE, _STRIDES = range(7)
_COUNTER, _STOP, _STEP = range(3)


def array_of(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any], owners: Any = (None, None)) -> Any:
    """Return an array whose numbers are neighbours in memory; if nobody owns it, no references are counted."""
    struct = context.get_value_type(kind)
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [ir.Constant(shape[0].type, size)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    count = shape[0]
    for length in shape[1:]:
        count = builder.mul(count, length)
    found = ir.Constant(struct, ir.Undefined)
    for place, owner in zip((_MEMINFO, _PARENT), owners, strict=True):
        found = builder.insert_value(found, owner or ir.Constant(struct.elements[place], None), place)
    found = builder.insert_value(found, ir.Constant(shape[0].type, size), _ITEMSIZE)
    for place, value in ((_NITEMS, count), (DATA, data)):
        found = builder.insert_value(found, value, place)
    for axis, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        found = builder.insert_value(found, length, (SHAPE, axis))
        found = builder.insert_value(found, stride, (_STRIDES, axis))
    return found


def _is_plain(kind: Any, index: Any) -> bool:
    """Return whether an index is one of integers, of an array whose numbers are neighbours in memory."""
    plain = isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned
    parts = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    return plain and 0 < len(parts) <= kind.ndim and all(isinstance(part, types.Integer) for part in parts)


class _Lower(Lower):
    """numba's own, with shorter code for ``range`` and items of arrays."""

    _counts_up = False

    def lower(self) -> None:
        """Lower the function."""
        self._counts_up = self._are_simple()
        super().lower()  # type: ignore[no-untyped-call]

    def _are_simple(self) -> bool:
        """Return whether all ranges of the function have steps that are known to be positive."""
        for block in self.blocks.values():
            for call in block.find_exprs("call"):
                kind = self.typeof(call.func.name)
                if isinstance(kind, types.Function) and kind.typing_key is range and len(call.args) == 3:
                    step = self.typeof(call.args[2].name)
                    if not isinstance(step, types.IntegerLiteral) or step.literal_value <= 0:
                        return False
        return True

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Emit the store of a variable."""
        single = name in self._singly_assigned_vars and not self._disable_sroa_like_opt
        if self.context.enable_nrt or single or argidx is not None:
            super().storevar(value, name, argidx)  # type: ignore[no-untyped-call]
            return
        self._alloca_var(name, self.typeof(name))  # type: ignore[no-untyped-call]
        self.builder.store(value, self.getvar(name))  # type: ignore[no-untyped-call]

    def delvar(self, name: str) -> None:
        """Forget a variable."""
        if self.context.enable_nrt:
            super().delvar(name)  # type: ignore[no-untyped-call]
        elif name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)

    def lower_expr(self, resty: Any, expr: Expr) -> Any:
        """Emit an expression."""
        if expr.op == "getattr" and expr.attr == "shape" and isinstance(self.typeof(expr.value.name), types.Array):
            return self.builder.extract_value(self.loadvar(expr.value.name), SHAPE)
        if self._counts_up and expr.op in _OF_RANGES:
            kind = self.typeof(expr.value.name)
            if expr.op == "getiter" and kind == types.range_state64_type:
                return self._begin(self.loadvar(expr.value.name))
            if expr.op == "iternext" and kind == types.range_iter64_type:
                return self._next(self.loadvar(expr.value.name))
            if isinstance(kind, types.Pair) and kind.first_type == types.int64:
                return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        return super().lower_expr(resty, expr)  # type: ignore[no-untyped-call]

    def _begin(self, state: Any) -> Any:
        builder = self.builder
        start, stop, step = (builder.extract_value(state, place) for place in range(3))
        counter = cgutils.alloca_once(builder, start.type)
        builder.store(start, counter)
        found = ir.Constant(self.context.get_value_type(types.range_iter64_type), ir.Undefined)
        for place, value in ((_COUNTER, counter), (_STOP, stop), (_STEP, step)):
            found = builder.insert_value(found, value, place)
        return found

    def _next(self, iterator: Any) -> Any:
        builder = self.builder
        counter, stop, step = (builder.extract_value(iterator, place) for place in (_COUNTER, _STOP, _STEP))
        number = builder.load(counter)
        builder.store(builder.add(number, step, flags=["nsw"]), counter)
        pair = ir.Constant(ir.LiteralStructType([number.type, ir.IntType(1)]), ir.Undefined)
        return builder.insert_value(builder.insert_value(pair, number, 0), builder.icmp_signed("<", number, stop), 1)

    def lower_getitem(self, resty: Any, expr: Expr, value: Any, index: Any, signature: Any) -> Any:
        """Emit the load of an item, or a view."""
        kind = self.typeof(value.name)
        if not _is_plain(kind, self.typeof(index.name)):
            return super().lower_getitem(resty, expr, value, index, signature)  # type: ignore[no-untyped-call]
        array = self.loadvar(value.name)
        pointer, shape = self._place(array, kind, index)
        if not shape:
            found = load_item(self.context, self.builder, kind, pointer)  # type: ignore[no-untyped-call]
            return self.context.cast(self.builder, found, kind.dtype, resty)
        return self._view(array, kind, resty, pointer, shape)

    def _place(self, array: Any, kind: Any, index: Any) -> tuple[Any, list[Any]]:
        """Emit the address of an item, or of the first of some; return it with their shape."""
        builder = self.builder
        indices, found = self.typeof(index.name), self.loadvar(index.name)
        parts, values = [indices], [found]
        if isinstance(indices, types.BaseTuple):
            parts, values = list(indices), cgutils.unpack_tuple(builder, found)
        lengths = cgutils.unpack_tuple(builder, builder.extract_value(array, SHAPE))
        offset = None
        for axis, length in enumerate(lengths):
            if offset is not None:
                offset = builder.mul(offset, length)
            if axis < len(parts):
                place = self._positive(parts[axis], values[axis], length)
                offset = place if offset is None else builder.add(offset, place)
        return builder.gep(builder.extract_value(array, DATA), [offset], inbounds=True), lengths[len(parts) :]

    def _positive(self, kind: Any, index: Any, length: Any) -> Any:
        """Emit an index counted from the beginning."""
        signed = kind.signed
        index = self.context.cast(self.builder, index, kind, types.intp if signed else types.uintp)
        if not signed or (isinstance(index, ir.Constant) and index.constant >= 0):
            return index
        behind = self.builder.icmp_signed("<", index, index.type(0))
        return self.builder.select(behind, self.builder.add(index, length), index)

    def _view(self, array: Any, kind: Any, resty: Any, pointer: Any, shape: list[Any]) -> Any:
        if not self.context.enable_nrt:
            return array_of(self.context, self.builder, resty, pointer, shape)
        owners = [self.builder.extract_value(array, place) for place in (_MEMINFO, _PARENT)]
        found = array_of(self.context, self.builder, resty, pointer, shape, owners)
        return impl_ret_borrowed(self.context, self.builder, resty, found)  # type: ignore[no-untyped-call]

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Emit the store of an item."""
        kind, index = self.typeof(target_var.name), self.typeof(index_var.name)
        parts = len(index) if isinstance(index, types.BaseTuple) else 1
        if not _is_plain(kind, index) or parts < kind.ndim:
            return super().lower_setitem(target_var, index_var, value_var, signature)  # type: ignore[no-untyped-call]
        pointer, _ = self._place(self.loadvar(target_var.name), kind, index_var)
        value = self._cast_var(value_var, kind.dtype)  # type: ignore[no-untyped-call]
        store_item(self.context, self.builder, kind, value, pointer)  # type: ignore[no-untyped-call]
        return None


_OF_RANGES = ("getiter", "iternext", "pair_first", "pair_second")


@register_pass(mutates_CFG=True, analysis_only=False)
class ShortLowering(BaseNativeLowering):
    """numba's pass that emits code, with ours."""

    _name = "short_lowering"

    @property
    def lowering_class(self) -> Any:
        """Return what emits code."""
        return _Lower
