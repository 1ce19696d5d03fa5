"""What stochastic gradient descent does to a user and an item at once, in registers.

All numbers of a row but its factors are neighbours, and those of the user and of the item fill one register: so the
roots, quotients and products of a rating take a few instructions, and its bits are those of one number after the other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.lanes import INDEX, LANES, VECTOR, instruction, load_register, register_pointer, row_pointer

#: Where the numbers of a row are, in the order that `take_step` needs; the penalty is there twice, for row and bias.
SQUARE, BIAS_SQUARE, NORM, BIAS, PENALTY, BIAS_PENALTY = range(6)
#: Rows of numbers have this many, so that none of them is divided between two lines of the cache.
NUMBERS = LANES

_HALF = LANES // 2
_QUAD = ir.VectorType(ir.FloatType(), _HALF)
_LANE = ir.IntType(32)


class _Quad:
    """Emits arithmetic on four float32: of the user's row, the item's row, the user's bias, the item's bias."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: _Quad) -> _Quad:
        return _Quad(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: _Quad) -> _Quad:
        return _Quad(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: _Quad) -> _Quad:
        return _Quad(self.builder, self.builder.fmul(self.value, other.value))

    def __truediv__(self, other: _Quad) -> _Quad:
        return _Quad(self.builder, self.builder.fdiv(self.value, other.value))

    def mixed(self, other: _Quad, order: list[int]) -> _Quad:
        """Return numbers of both, of which those of the other count from 4."""
        mask = ir.Constant(ir.VectorType(_LANE, _HALF), order)
        return _Quad(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))

    def rows_of(self, biases: _Quad) -> _Quad:
        """Return what is said here of the rows, and there of the biases."""
        return self.mixed(biases, [0, 1, 6, 7])

    def root(self) -> _Quad:
        kind = ir.FunctionType(_QUAD, [_QUAD])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.sqrt.v{_HALF}f32")
        return _Quad(self.builder, self.builder.call(function, [self.value]))

    def from_zero(self) -> _Quad:
        """Return zero for what is below; what is no number stays so."""
        zeros = ir.Constant(_QUAD, [0.0] * _HALF)
        return _Quad(
            self.builder, self.builder.select(self.builder.fcmp_ordered("<", self.value, zeros), zeros, self.value)
        )

    def lane(self, number: int) -> Any:
        return self.builder.extract_element(self.value, ir.Constant(_LANE, number))


def _spread(builder: Any, number: Any, n_lanes: int) -> Any:
    kind = ir.VectorType(ir.FloatType(), n_lanes)
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_LANE, n_lanes), [0] * n_lanes))


@instruction
def take_step(typing_context, users, user, items, item, rate, bias_rate, inverse_rank, error, product):
    """Change all numbers of a user and an item as one rating of theirs does, but not their factors.

    Parameters
    ----------
    users, items : (n, NUMBERS) float32, C-contiguous
        Mutated.  No bounds are checked.
    user, item : int
    rate, bias_rate, inverse_rank : float32
        As in `sgd.StepSizes`.
    error, product : float32
        Of the rating, and of the rows of factors.

    Returns
    -------
    tuple of four float32
        What the factors of the user are to be multiplied by, and those of the item that are added to them; the same
        for the item.
    """

    def generate(context, builder, signature, arguments):
        places = [register_pointer(context, builder, signature.args[at], *arguments[at : at + 2]) for at in (0, 2)]

        def load(place, first):
            pointer = builder.bitcast(builder.gep(place, [ir.Constant(INDEX, first)]), _QUAD.as_pointer())
            return _Quad(builder, builder.load(pointer, align=4))

        (user_sums, item_sums), (user_penalty, item_penalty) = ([load(one, at) for one in places] for at in (0, _HALF))
        squares, own = user_sums.mixed(item_sums, [0, 4, 1, 5]), user_sums.mixed(item_sums, [2, 6, 3, 7])
        penalty, other = user_penalty.mixed(item_penalty, [0, 4, 1, 5]), own.mixed(own, [1, 0, 3, 2])
        rate, bias_rate, inverse_rank, error, product = (
            _Quad(builder, _spread(builder, number, _HALF)) for number in arguments[4:]
        )
        one, two = (_Quad(builder, ir.Constant(_QUAD, [number] * _HALF)) for number in (1.0, 2.0))

        step = rate.rows_of(bias_rate) / squares.root()
        shrink = (one - step * penalty).from_zero()  # below zero a large penalty would diverge
        push = step * error
        # ‖shrink·w + push·h‖² from ‖w‖², w·h and ‖h‖², and in the same way the mean squared gradient of the row.
        length = shrink * shrink * own + two * shrink * push * product + push * push * other
        square = error * error * other - two * error * penalty * product + penalty * penalty * own
        gradient = error - penalty * own  # of the bias
        added = (square.from_zero() * inverse_rank).rows_of(gradient * gradient)
        has_biases = builder.fcmp_ordered(">", arguments[5], ir.Constant(ir.FloatType(), 0.0))
        grown = squares + added
        grown = _Quad(builder, builder.select(has_biases, grown.value, grown.rows_of(squares).value))
        moved = length.from_zero().rows_of(shrink * own + push)
        for place, order in zip(places, ([0, 2, 4, 6], [1, 3, 5, 7]), strict=True):
            builder.store(grown.mixed(moved, order).value, builder.bitcast(place, _QUAD.as_pointer()), align=4)
        factors = [shrink.lane(0), push.lane(0), shrink.lane(1), push.lane(1)]
        return context.make_tuple(builder, signature.return_type, factors)

    number = types.float32
    signature = types.UniTuple(number, 4)(users, types.intp, items, types.intp, *[number] * 5)
    return signature, generate


@instruction
def move_rows(typing_context, left, i, right, j, shrink_left, push_left, shrink_right, push_right):
    """Set ``left[i]`` to ``shrink_left * left[i] + push_left * right[j]``, and ``right[j]`` likewise, at once.

    Both are C-contiguous float32 matrices of the same padded width.  No bounds are checked.
    """

    def generate(context, builder, signature, arguments):
        (first, width), (second, _) = (
            row_pointer(context, builder, signature.args[at], *arguments[at : at + 2]) for at in (0, 2)
        )
        shrink_left, push_left, shrink_right, push_right = (_spread(builder, number, LANES) for number in arguments[4:])
        with cgutils.for_range_slice(builder, ir.Constant(INDEX, 0), width, ir.Constant(INDEX, LANES)) as (start, _):
            w, h = (load_register(builder, row, start) for row in (first, second))
            left_moved = builder.fadd(builder.fmul(shrink_left, w), builder.fmul(push_left, h))
            right_moved = builder.fadd(builder.fmul(shrink_right, h), builder.fmul(push_right, w))
            for row, moved in ((first, left_moved), (second, right_moved)):
                builder.store(moved, builder.bitcast(builder.gep(row, [start]), VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(left, types.intp, right, types.intp, *[types.float32] * 4), generate
