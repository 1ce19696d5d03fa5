"""Instructions on registers of `LANES` float32, written with operators instead of calls that build LLVM code.

A function decorated with `emitted` runs while a kernel is compiled.  Its operators emit vector instructions, whose
order is fixed, so that the bits are the same on every processor.  No bounds are checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.lanes import INDEX, LANES, VECTOR, fold_register, instruction

NUMBER = ir.FloatType()
_SHORT = ir.IntType(32)


class Value:
    """A number or a register, with operators that emit code."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Value | int) -> Value:
        return self._emit("add", other)

    def __sub__(self, other: Value) -> Value:
        return self._emit("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._emit("mul", other)

    def __truediv__(self, other: Value) -> Value:
        return self._emit("div", other)

    def __and__(self, other: int) -> Value:
        return self._emit("and_", other)

    def _emit(self, name: str, other: Value | int) -> Value:
        operand = self.value.type(other) if isinstance(other, int) else other.value
        name = name if isinstance(self.value.type, ir.IntType) else f"f{name}"
        return Value(self.builder, getattr(self.builder, name)(self.value, operand))

    def constant(self, number: float) -> Value:
        """Return a value of the same type with one number everywhere."""
        kind = self.value.type
        return Value(self.builder, kind([number] * kind.count if isinstance(kind, ir.VectorType) else number))

    def mixed(self, other: Value, lanes: list[int]) -> Value:
        """Return lanes of both; those of `other` count from the length of self."""
        mask = ir.VectorType(_SHORT, len(lanes))(lanes)
        return Value(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))

    def repeated(self, lane: int) -> Value:
        """Return a register with one lane of self in all lanes."""
        return self.mixed(self, [lane] * LANES)

    def spread(self, n_lanes: int = LANES) -> Value:
        """Return a register with this number in all lanes."""
        empty = ir.VectorType(NUMBER, n_lanes)(ir.Undefined)
        first = Value(self.builder, self.builder.insert_element(empty, self.value, _SHORT(0)))
        return first.mixed(first, [0] * n_lanes)

    def lane(self, number: int) -> Value:
        """Return the number in a lane."""
        return Value(self.builder, self.builder.extract_element(self.value, _SHORT(number)))

    def folded(self) -> Value:
        """Return the sum of all lanes, as `fold_register` computes it."""
        return Value(self.builder, fold_register(self.builder, self.value))

    def exceeds(self, other: Value) -> Value:
        """Return where self is larger."""
        return Value(self.builder, self.builder.fcmp_ordered(">", self.value, other.value))

    def where(self, condition: Value, other: Value) -> Value:
        """Return `other` where a condition holds, and self elsewhere."""
        return Value(self.builder, self.builder.select(condition.value, other.value, self.value))


class Registers:
    """A C-contiguous array as a sequence of registers."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        self._builder, self._dtype, struct = builder, kind.dtype, context.make_array(kind)(context, builder, array)
        self._data, sizes = struct.data, cgutils.unpack_tuple(builder, struct.shape, kind.ndim)
        self.shape = [Value(builder, size) for size in sizes]

    def __getitem__(self, register: Value) -> Value:
        return self.load(register * LANES, VECTOR)

    def __setitem__(self, register: Value, value: Value) -> None:
        self.store(register * LANES, value)

    def load(self, element: Value, kind: Any) -> Value:
        """Return what begins at an element, as float32 or a vector of these."""
        return Value(self._builder, self._builder.load(self._pointer(element, kind), align=4))

    def store(self, element: Value, value: Value) -> None:
        """Store a value that begins at an element."""
        self._builder.store(value.value, self._pointer(element, value.value.type), align=4)

    def index(self, element: Value) -> Value:
        """Return an element that is an integer, as an index."""
        number = self._builder.load(self._pointer(element, ir.IntType(self._dtype.bitwidth)))
        if number.type.width < INDEX.width:
            number = (self._builder.sext if self._dtype.signed else self._builder.zext)(number, INDEX)
        return Value(self._builder, number)

    def prefetch(self, register: Value) -> None:
        """Let the processor load a register into the cache."""
        byte, flags = ir.IntType(8), [_SHORT(flag) for flag in (0, 3, 1)]  # for reading, soon, data
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), *(flag.type for flag in flags)])
        function = self._builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], kind)
        self._builder.call(function, [self._pointer(register * LANES, byte), *flags])

    def _pointer(self, element: Value, kind: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._data, [element.value]), kind.as_pointer())


class Total:
    """A register that loops add to."""

    def __init__(self, builder: Any) -> None:
        self._builder, self._place = builder, cgutils.alloca_once_value(builder, VECTOR([0.0] * LANES))

    @property
    def value(self) -> Value:
        """The sum so far."""
        return Value(self._builder, self._builder.load(self._place))

    def add(self, addend: Value) -> None:
        """Add a register."""
        self._builder.store((self.value + addend).value, self._place)


class Code:
    """What an emitting function needs besides its arguments."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def index(self, number: int) -> Value:
        """Return a constant as an index."""
        return Value(self.builder, INDEX(number))

    def totals(self, count: int) -> list[Total]:
        """Return some sums that are zero."""
        return [Total(self.builder) for _ in range(count)]

    @contextmanager
    def loop(self, start: Value, stop: Value, step: int = 1) -> Iterator[Value]:
        """Emit a loop over indices."""
        with cgutils.for_range_slice(self.builder, start.value, stop.value, INDEX(step), INDEX) as (index, _):
            yield Value(self.builder, index)


def emitted(returns: Callable[..., Any] = lambda *kinds: types.void) -> Callable[[Callable[..., Any]], Any]:
    """Make an instruction of ``emit(code, *arguments)``; `returns` gives the type of its result for those of arguments.

    Arrays become `Registers`, tuples lists of values, and other arguments values; integers are indices, and other
    numbers are float32.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(typing_context: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                wrapped = [_wrapped(context, builder, *one) for one in zip(signature.args, arguments, strict=True)]
                return _unwrapped(context, builder, signature.return_type, emit(Code(builder), *wrapped))

            return returns(*given)(*map(_converted, given)), generate

        typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return instruction(typed)

    return decorate


def _converted(kind: Any) -> Any:
    if isinstance(kind, types.Integer):
        return types.intp
    return types.float32 if isinstance(kind, types.Float) else kind


def _wrapped(context: Any, builder: Any, kind: Any, argument: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        return [Value(builder, part) for part in cgutils.unpack_tuple(builder, argument)]
    return Registers(context, builder, kind, argument) if isinstance(kind, types.Array) else Value(builder, argument)


def _unwrapped(context: Any, builder: Any, kind: Any, found: Any) -> Any:
    if isinstance(found, list):
        parts = [_unwrapped(context, builder, *pair) for pair in zip(kind, found, strict=True)]
        return context.make_tuple(builder, kind, parts)
    return context.get_dummy_value() if found is None else found.value
