"""Vector instructions for kernels, and sums and products whose order is fixed by construction.

A compiler may vectorise a sum only if it may reorder it, and then the bits depend on the
instruction set.  Here the order is fixed: `UNROLLED` registers of `LANES` numbers side by side,
added up as a binary tree.  LLVM maps them onto the registers of the processor; the additions, and
so the bits, are the same on all processors.

A function decorated with `emitted` runs while a kernel is compiled.  Its operators emit vector
instructions.  No bounds are checked.

`dot` sums in float64 over vectors of any length and dtype.  On 463 × 50,000 float64 it does 4.1 G
multiply–adds per second, where OpenBLAS's matrix–vector product does 2.4; on int8 columns, which it
converts, it does 8.2.  `row_dot` and the functions after it are for float32 rows that are padded to
whole registers.  (A loop with eight scalar accumulators is the same sum, but the compiler does not
vectorise it: 12 against 37 million ratings per second at rank 128.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from schmp_estimators.core.jit import inlined
from schmp_estimators.core.typing import Function

#: Numbers in a register; float32 rows are padded with zeros to a multiple of it (one AVX register).
LANES = 8
#: Registers of partial sums; four hide the latency of an addition.
UNROLLED = 4
#: Registers that hold the products of all pairs of numbers of one register.
PRODUCTS = LANES // 2 + 1

_STRIDE = LANES * UNROLLED
#: Bytes of a cache line.
_LINE = 64
ZERO, ONE = np.float32(0), np.float32(1)
NUMBER, SHORT, _INDEX = ir.FloatType(), ir.IntType(32), ir.IntType(64)
#: Types of registers of float32, of float64, and of words of 64 bits.
WORDS = ir.VectorType(_INDEX, LANES)
VECTOR, DOUBLES = (ir.VectorType(kind, LANES) for kind in (NUMBER, ir.DoubleType()))


def _operator(name: str) -> Any:
    """Make a method that emits an instruction for two values, or for an index and a number."""

    def operate(self: Value, other: Value | int) -> Value:
        kind = getattr(self.value.type, "element", self.value.type)
        of_kind = name if isinstance(kind, ir.IntType) else f"f{name}"
        return Value(self.builder, getattr(self.builder, of_kind)(self.value, _operand(other)))

    return operate


def _operand(value: Value | int) -> Any:
    return _INDEX(value) if isinstance(value, int) else value.value


class Value:
    """A number or a register, with operators that emit code."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    __add__ = _operator("add")
    __sub__ = _operator("sub")
    __mul__ = _operator("mul")
    __truediv__ = _operator("div")
    __and__ = _operator("and_")

    def constant(self, number: float) -> Value:
        """Return a value of the same type with one number everywhere."""
        kind = self.value.type
        return Value(
            self.builder, kind([number] * kind.count if isinstance(kind, ir.VectorType) else number)
        )

    def mixed(self, other: Value, lanes: list[int]) -> Value:
        """Return lanes of both; those of `other` count from the length of self."""
        mask = ir.VectorType(SHORT, len(lanes))(lanes)
        return Value(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))

    def repeated(self, lane: int) -> Value:
        """Return a register with one lane of self in all lanes."""
        return self.mixed(self, [lane] * LANES)

    def rotated(self, distance: int) -> Value:
        """Return a register whose lane k is lane k + `distance`, modulo `LANES`."""
        return self.mixed(self, [(lane + distance) % LANES for lane in range(LANES)])

    def spread(self, n_lanes: int = LANES) -> Value:
        """Return a register with this number in all lanes."""
        empty = ir.VectorType(self.value.type, n_lanes)(ir.Undefined)
        first = Value(self.builder, self.builder.insert_element(empty, self.value, SHORT(0)))
        return first.mixed(first, [0] * n_lanes)

    def lane(self, number: int) -> Value:
        """Return the number in a lane."""
        return Value(self.builder, self.builder.extract_element(self.value, SHORT(number)))

    def folded(self) -> Value:
        """Add the upper half of the lanes to the lower half until one number is left.

        Return this number.
        """
        half, sums = LANES, self
        while half > 1:
            half //= 2
            sums = sums.mixed(sums, list(range(half))) + sums.mixed(
                sums, list(range(half, 2 * half))
            )
        return sums.lane(0)

    def exceeds(self, other: Value) -> Value:
        """Return where self is larger."""
        return Value(self.builder, self.builder.fcmp_ordered(">", self.value, other.value))

    def all(self) -> Value:
        """Return whether a comparison holds for all lanes."""
        bits = self.builder.bitcast(self.value, ir.IntType(self.value.type.count))
        return Value(self.builder, self.builder.icmp_signed("==", bits, bits.type(-1)))

    def equals(self, other: Value) -> Value:
        """Return where integers are equal."""
        return Value(self.builder, self.builder.icmp_unsigned("==", self.value, other.value))

    def narrowed(self, kind: Any) -> Value:
        """Return an integer as a narrower type."""
        return Value(self.builder, self.builder.trunc(self.value, kind))

    def where(self, condition: Value, other: Value) -> Value:
        """Return `other` where a condition holds, and self elsewhere."""
        return Value(self.builder, self.builder.select(condition.value, other.value, self.value))


class Registers:
    """A C-contiguous array as a sequence of registers."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any) -> None:
        struct = context.make_array(kind)(context, builder, array)
        self._dtype = kind.dtype
        self._builder = builder
        self._data = struct.data
        self.element = context.get_data_type(kind.dtype)
        self._align = context.get_abi_alignment(self.element)
        self.shape = [
            Value(builder, size) for size in cgutils.unpack_tuple(builder, struct.shape, kind.ndim)
        ]

    def __getitem__(self, register: Value) -> Value:
        return self.load(register * LANES)

    def __setitem__(self, register: Value, value: Value) -> None:
        self.store(register * LANES, value)

    def load(self, element: Value, kind: Any = VECTOR) -> Value:
        """Return what begins at an element, as float32 or a vector of these."""
        return Value(
            self._builder, self._builder.load(self._pointer(element, kind), align=self._align)
        )

    def store(self, element: Value, value: Value) -> None:
        """Store a value that begins at an element."""
        self._builder.store(
            value.value, self._pointer(element, value.value.type), align=self._align
        )

    def index(self, element: Value) -> Value:
        """Return an element that is an integer, as an index."""
        number = self.load(element, self.element)
        extend = self._builder.sext if self._dtype.signed else self._builder.zext
        return Value(self._builder, extend(number.value, _INDEX))

    def doubles(self, element: Value) -> Value:
        """Return `LANES` numbers from an element on, as float64."""
        numbers = self.load(element, ir.VectorType(self.element, LANES))
        build = self._builder
        of_integers = build.sitofp if getattr(self._dtype, "signed", False) else build.uitofp
        convert = build.fpext if isinstance(self._dtype, types.Float) else of_integers
        return Value(build, convert(numbers.value, DOUBLES))

    def alone(self, element: Value) -> Any:
        """Emit a load of one element that LLVM does not join with others."""
        return self._builder.load_atomic(
            self._pointer(element, self.element), "monotonic", self._align
        )

    def prefetch(self, element: Value) -> None:
        """Let the processor load the cache line of an element, which may be out of bounds."""
        kinds = [cgutils.voidptr_t, SHORT, SHORT, SHORT]
        module = self._builder.module
        hint = module.declare_intrinsic(
            "llvm.prefetch", kinds[:1], ir.FunctionType(ir.VoidType(), kinds)
        )
        # For reading (0), into all levels of the cache (3), data (1).
        self._builder.call(hint, [self._pointer(element, ir.IntType(8)), *map(SHORT, (0, 3, 1))])

    def _pointer(self, element: Value, kind: Any) -> Any:
        return self._builder.bitcast(
            self._builder.gep(self._data, [_operand(element)]), kind.as_pointer()
        )


class Total:
    """A register that loops add to."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self._builder = builder
        self._place = cgutils.alloca_once_value(builder, kind([0.0] * kind.count))

    @property
    def value(self) -> Value:
        """The sum so far."""
        return Value(self._builder, self._builder.load(self._place))

    def add(self, addend: Value) -> None:
        """Add a register."""
        self._builder.store((self.value + addend).value, self._place)

    def add_exact(self, left: Value, right: Value) -> None:
        """Add a product that needs no rounding, in one instruction where the processor has one."""
        given = [left.value, right.value, self.value.value]
        function = ir.FunctionType(DOUBLES, [DOUBLES] * 3)
        name = f"llvm.fmuladd.v{LANES}f64"
        fused = cgutils.get_or_insert_function(self._builder.module, function, name)
        self._builder.store(self._builder.call(fused, given), self._place)


class Code:
    """What an emitting function needs besides its arguments."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def totals(self, count: int, kind: Any = VECTOR) -> list[Total]:
        """Return some sums that are zero."""
        return [Total(self.builder, kind) for _ in range(count)]

    @contextmanager
    def loop(self, start: Value | int, stop: Value, step: int = 1) -> Iterator[Value]:
        """Emit a loop over indices."""
        limits = _operand(start), _operand(stop), _INDEX(step)
        with cgutils.for_range_slice(self.builder, *limits, _INDEX) as (index, _):
            yield Value(self.builder, index)

    def over_row(self, width: Value, together: int, visit: Callable[[Value, int], None]) -> None:
        """Emit ``visit(offset, number)`` for all registers of a row.

        They come in groups, with their numbers, then one by one.
        """
        whole = width & -LANES * together
        with self.loop(0, whole, LANES * together) as start:
            for number in range(together):
                visit(start + LANES * number, number)
        with self.loop(whole, width, LANES) as start:
            visit(start, 0)


def emitted(
    returns: Function = lambda *kinds: types.void,
) -> Callable[[Function], Any]:
    """Make an instruction of ``emit(code, *arguments)``.

    `returns` gives the type of its result for those of arguments.

    Arrays become `Registers`, tuples lists of values, and other arguments values; integers are
    indices, and other numbers are float32.
    """

    def decorate(emit: Function) -> Any:
        def typed(typing_context: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                wrapped = [
                    _wrapped(context, builder, *one)
                    for one in zip(signature.args, arguments, strict=True)
                ]
                return _unwrapped(
                    context, builder, signature.return_type, emit(Code(builder), *wrapped)
                )

            return returns(*given)(*map(_converted, given)), generate

        typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]
        typed.__name__ = emit.__name__
        typed.__doc__ = emit.__doc__
        return intrinsic(typed)

    return decorate


def _converted(kind: Any) -> Any:
    if isinstance(kind, types.Integer):
        return types.intp
    return types.float32 if isinstance(kind, types.Float) else kind


def _wrapped(context: Any, builder: Any, kind: Any, argument: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        return [Value(builder, part) for part in cgutils.unpack_tuple(builder, argument)]
    return (
        Registers(context, builder, kind, argument)
        if isinstance(kind, types.Array)
        else Value(builder, argument)
    )


def _unwrapped(context: Any, builder: Any, kind: Any, found: Any) -> Any:
    if isinstance(found, list):
        parts = [_unwrapped(context, builder, *pair) for pair in zip(kind, found, strict=True)]
        return context.make_tuple(builder, kind, parts)
    return context.get_dummy_value() if found is None else found.value


def _sum_pairs(values: list[Any]) -> Any:
    """Return the pairwise sum of values, whose number is a power of two."""
    while len(values) > 1:
        values = [left + right for left, right in zip(values[::2], values[1::2], strict=True)]
    return values[0]


@emitted(lambda *kinds: types.float64)
def _strided_dot(code, left, right):
    """Return the dot product of two contiguous vectors up to the last multiple of `_STRIDE`."""
    totals = code.totals(UNROLLED, DOUBLES)
    with code.loop(0, left.shape[0] & -_STRIDE, _STRIDE) as start:
        for number, total in enumerate(totals):
            total.add(left.doubles(start + LANES * number) * right.doubles(start + LANES * number))
    sums = _sum_pairs([total.value for total in totals])
    return _sum_pairs([sums.lane(number) for number in range(LANES)])


@inlined
def dot(left, right):
    """Return the dot product of two contiguous vectors of one length, in float64.

    Nothing is mutated.

    Either may hold float64, float32 or integers.  0.12–0.3 ns per element while they fit a cache.
    """
    total = _strided_dot(left, right)
    length = left.shape[0]
    for index in range(length - length % _STRIDE, length):  # the remainder
        total += left[index] * right[index]
    return total


@emitted(lambda *kinds: types.UniTuple(types.float64, 3))
def _whole_moments(code, column, weights, vector):
    """Do what `moments` does, up to the last multiple of `LANES`."""
    totals = code.totals(3, DOUBLES)
    with code.loop(0, column.shape[0] & -LANES, LANES) as start:
        x, w, v = (numbers.doubles(start) for numbers in (column, weights, vector))
        for total, addend in zip(totals, (x * w, x * x * w, x * v), strict=True):
            total.add(addend)
    return [_sum_pairs([total.value.lane(at) for at in range(LANES)]) for total in totals]


@inlined
def moments(column, weights, vector):
    """Return Σ x w, Σ x² w and Σ x v in float64: x is `column`, w `weights`, v `vector`.

    They are contiguous, of one length, and hold what those of `dot` may hold.
    """
    first, second, product = _whole_moments(column, weights, vector)
    length = column.shape[0]
    for index in range(length - length % LANES, length):
        x = float(column[index])
        first += x * weights[index]
        second += x * x * weights[index]
        product += x * vector[index]
    return first, second, product


def padded_width(n_components: int) -> int:
    """Return the row length, a multiple of `LANES`, that holds `n_components` numbers."""
    return -(-n_components // LANES) * LANES


def pad_rows(factors: np.ndarray) -> np.ndarray:
    """Return `factors` (n, k) as C-contiguous float32 of shape (n, padded_width(k)).

    The added columns are zero.
    """
    padded = empty_rows(*factors.shape)
    padded[:, : factors.shape[1]] = factors
    return padded


def empty_rows(n_rows: int, n_components: int) -> np.ndarray:
    """Return C-contiguous float32 of shape (n_rows, padded_width(n_components)).

    It is at the start of a cache line.

    NumPy puts large arrays at other addresses, where every second register of a row would be in two
    cache lines.  Only the added columns are set, to zero.
    """
    rows = at_line((n_rows, padded_width(n_components)), np.float32)
    rows[:, n_components:] = 0.0
    return rows


def at_line(shape: tuple[int, int], dtype: Any = np.float64) -> np.ndarray:
    """Return an empty array at the start of a cache line."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    found: np.ndarray = room[first : first + size].view(dtype).reshape(shape)
    return found


def zero_rows(n_rows: int, n_components: int) -> np.ndarray:
    """Return `empty_rows` that are all zeros."""
    rows = empty_rows(n_rows, n_components)
    rows[:] = 0.0
    return rows


def fold_sums(totals: list[Total]) -> Any:
    """Add `UNROLLED` registers of partial sums, and then the numbers of the resulting register."""
    a, b, c, d = (total.value for total in totals)
    return ((a + c) + (b + d)).folded()


@emitted(lambda *kinds: types.float32)
def row_dot(code, left, i, right, j):
    """Return ``left[i] @ right[j]`` as float32, for C-contiguous float32 matrices.

    They have the same padded width.

    0.15 ns per product from L1 on a 256-bit machine.
    """
    width = left.shape[1]
    totals = code.totals(UNROLLED)
    first, second = i * width, j * width
    code.over_row(
        width,
        UNROLLED,
        lambda at, n: totals[n].add(left.load(first + at) * right.load(second + at)),
    )
    return fold_sums(totals)


@emitted()
def add_scaled(code, target, at, source, row, scale):
    """Add ``scale`` times register `row` of `source` to register `at` of `target`.

    Both are C-contiguous float32 arrays.

    A register is `LANES` consecutive numbers.
    """
    target[at] += source[row] * scale.spread()


@emitted()
def add_products(code, target, at, source, row):
    """Add all products of two numbers of register `row` of `source` to `target`.

    The target is `PRODUCTS` registers from `at`.

    Product k·l of numbers k and l = (k + d) mod `LANES` is added to lane k of register d, for d = 0
    … `LANES` / 2.
    """
    numbers = source[row]
    for distance in range(PRODUCTS):
        target[at + distance] += numbers * numbers.rotated(distance)


@emitted()
def prefetch(code, array, index):
    """Start to fetch the cache line of ``array[index]``, 1-d and contiguous.

    The index may be out of bounds.
    """
    array.prefetch(index)
