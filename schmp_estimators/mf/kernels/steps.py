"""A step of stochastic gradient descent on a user and an item at once, in registers.

All numbers of a row except its factors are neighbours in memory, and those of a user and an item fill half a register.
So the roots, quotients and products of a rating, or of two ratings without a common row, take only a few instructions.
The bits are those of one number after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.lanes import (
    INDEX,
    LANES,
    UNROLLED,
    VECTOR,
    fold_sums,
    instruction,
    register_pointer,
    row_pointer,
    zero_rows,
)

#: Columns of the numbers of a row, in the order that `take_step` needs: the sum of its mean squared gradients so far,
#: and that of its bias, both > 0; its squared length; its bias; the penalty of each rating, for the row and the bias.
SQUARE, BIAS_SQUARE, NORM, BIAS, PENALTY, BIAS_PENALTY = range(6)
#: Number of columns, which keeps each row within one cache line.
NUMBERS = LANES

_HALF = LANES // 2
_QUAD = ir.VectorType(ir.FloatType(), _HALF)
_LANE = ir.IntType(32)


def numbers_of(factors: np.ndarray, penalty: Any) -> np.ndarray:
    """Return (n, NUMBERS) the numbers of rows that no rating has moved yet; `penalty` is a number or (n,)."""
    numbers = zero_rows(len(factors), NUMBERS)
    numbers[:, SQUARE] = numbers[:, BIAS_SQUARE] = 1
    numbers[:, NORM] = (factors**2).sum(axis=1)
    numbers[:, PENALTY] = numbers[:, BIAS_PENALTY] = penalty
    return numbers


class _Numbers:
    """Emits arithmetic on four float32 of each rating: of the rows of user and item, and of their biases."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.builder, self.builder.fmul(self.value, other.value))

    def __truediv__(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.builder, self.builder.fdiv(self.value, other.value))

    def mixed(self, other: _Numbers, order: list[int]) -> _Numbers:
        """Return lanes of both, in an order where those of `other` count from 4; the same for every rating."""
        count = self.value.type.count
        lanes = [first + lane + (count - _HALF) * (lane >= _HALF) for first in range(0, count, _HALF) for lane in order]
        return self._shuffled(other, lanes)

    def rows_of(self, biases: _Numbers) -> _Numbers:
        """Return the lanes of the rows of self, and the lanes of the biases of the other."""
        return self.mixed(biases, [0, 1, 6, 7])

    def beside(self, other: _Numbers) -> _Numbers:
        """Return the lanes of one rating beside those of another."""
        return self._shuffled(other, list(range(LANES)))

    def of(self, rating: int) -> _Numbers:
        """Return the lanes of one of the ratings."""
        return self._shuffled(self, list(range(rating * _HALF, (rating + 1) * _HALF)))

    def root(self) -> _Numbers:
        vector = self.value.type
        kind = ir.FunctionType(vector, [vector])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.sqrt.v{vector.count}f32")
        return _Numbers(self.builder, self.builder.call(function, [self.value]))

    def from_zero(self) -> _Numbers:
        """Return max(x, 0) in each lane; NaN stays NaN."""
        zeros = ir.Constant(self.value.type, [0.0] * self.value.type.count)
        return self.where(self.builder.fcmp_ordered("<", self.value, zeros), zeros)

    def where(self, condition: Any, other: Any) -> _Numbers:
        """Return `other` where a condition holds, and self elsewhere."""
        return _Numbers(self.builder, self.builder.select(condition, other, self.value))

    def lane(self, number: int) -> Any:
        return self.builder.extract_element(self.value, ir.Constant(_LANE, number))

    def _shuffled(self, other: _Numbers, lanes: list[int]) -> _Numbers:
        mask = ir.Constant(ir.VectorType(_LANE, len(lanes)), lanes)
        return _Numbers(self.builder, self.builder.shuffle_vector(self.value, other.value, mask))


def _spread(builder: Any, number: Any, n_lanes: int) -> Any:
    kind = ir.VectorType(ir.FloatType(), n_lanes)
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(_LANE, 0))
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_LANE, n_lanes), [0] * n_lanes))


def _take(builder: Any, places: list[tuple[Any, Any]], sizes: list[Any], errors: list[Any], products: list[Any]) -> Any:
    """Emit the steps of ratings without a common row; return a list of four factors for each rating."""

    def load(place, first):
        pointer = builder.bitcast(builder.gep(place, [ir.Constant(INDEX, first)]), _QUAD.as_pointer())
        return _Numbers(builder, builder.load(pointer, align=4))

    def together(numbers):
        return numbers[0] if len(numbers) == 1 else numbers[0].beside(numbers[1])

    def constant(number):
        return _Numbers(builder, ir.Constant(ir.VectorType(ir.FloatType(), n_lanes), [number] * n_lanes))

    n_lanes = _HALF * len(places)
    user_sums, item_sums = (together([load(place[side], 0) for place in places]) for side in (0, 1))
    user_penalty, item_penalty = (together([load(place[side], _HALF) for place in places]) for side in (0, 1))
    squares, own = user_sums.mixed(item_sums, [0, 4, 1, 5]), user_sums.mixed(item_sums, [2, 6, 3, 7])
    penalty, other = user_penalty.mixed(item_penalty, [0, 4, 1, 5]), own.mixed(own, [1, 0, 3, 2])
    rate, bias_rate, inverse_rank = (_Numbers(builder, _spread(builder, number, n_lanes)) for number in sizes)
    error, product = (
        together([_Numbers(builder, _spread(builder, number, _HALF)) for number in numbers])
        for numbers in (errors, products)
    )
    one, two = constant(1.0), constant(2.0)

    step = rate.rows_of(bias_rate) / squares.root()
    shrink = (one - step * penalty).from_zero()  # if it were negative, a large penalty would diverge
    push = step * error
    # ‖shrink·w + push·h‖² from ‖w‖², w·h and ‖h‖², and in the same way the mean squared gradient of the row.
    length = shrink * shrink * own + two * shrink * push * product + push * push * other
    square = error * error * other - two * error * penalty * product + penalty * penalty * own
    gradient = error - penalty * own  # of the bias
    added = (square.from_zero() * inverse_rank).rows_of(gradient * gradient)
    has_biases = builder.fcmp_ordered(">", sizes[1], ir.Constant(ir.FloatType(), 0.0))
    grown = squares + added
    grown = grown.rows_of(squares).where(has_biases, grown.value)
    moved = length.from_zero().rows_of(shrink * own + push)
    for side, order in enumerate(([0, 2, 4, 6], [1, 3, 5, 7])):
        mixed = grown.mixed(moved, order)
        for rating, place in enumerate(places):
            builder.store(mixed.of(rating).value, builder.bitcast(place[side], _QUAD.as_pointer()), align=4)
    starts = range(0, n_lanes, _HALF)
    return [[shrink.lane(at), push.lane(at), shrink.lane(at + 1), push.lane(at + 1)] for at in starts]


_STEP = types.UniTuple(types.float32, 4)


@instruction
def take_step(typing_context, users, user, items, item, rate, bias_rate, inverse_rank, error, product):
    """Change all numbers of a user and an item, except their factors, by the step of one of their ratings.

    Parameters
    ----------
    users, items : (n, NUMBERS) float32, C-contiguous
        Mutated.  No bounds are checked.
    user, item : int
    rate, bias_rate, inverse_rank : float32
        As in `sgd.StepSizes`.
    error, product : float32
        Error of the rating, and product of the two rows of factors.

    Returns
    -------
    tuple of four float32
        Multipliers for the new factors of the user: that of the user's own factors, and that of the item's factors,
        which are added; then the same two for the item.
    """

    def generate(context, builder, signature, arguments):
        place = [register_pointer(context, builder, signature.args[at], *arguments[at : at + 2]) for at in (0, 2)]
        (factors,) = _take(builder, [place], arguments[4:7], [arguments[7]], [arguments[8]])
        return context.make_tuple(builder, signature.return_type, factors)

    return _STEP(users, types.intp, items, types.intp, *[types.float32] * 5), generate


@instruction
def take_two_steps(typing_context, users, pair, items, other_pair, rate, bias_rate, inverse_rank, errors, products):
    """Do for two ratings, which share neither a user nor an item, what `take_step` does for one; return both results.

    `pair` has the users and `other_pair` the items; `errors` and `products` are tuples of two, too.
    """

    def generate(context, builder, signature, arguments):
        def both(number):
            return [builder.extract_value(arguments[number], at) for at in (0, 1)]

        sides = [
            [register_pointer(context, builder, signature.args[at], arguments[at], row) for row in both(at + 1)]
            for at in (0, 2)
        ]
        steps = _take(builder, list(zip(*sides, strict=True)), arguments[4:7], both(7), both(8))
        made = [context.make_tuple(builder, _STEP, factors) for factors in steps]
        return context.make_tuple(builder, signature.return_type, made)

    rows, numbers = types.UniTuple(types.uint64, 2), types.UniTuple(types.float32, 2)
    sizes = [types.float32] * 3
    return types.UniTuple(_STEP, 2)(users, rows, items, rows, *sizes, numbers, numbers), generate


@instruction
def move_rows(typing_context, left, i, right, j, factors, k, l):  # noqa: E741
    """Set ``left[i]`` to ``factors[0] * left[i] + factors[1] * right[j]``, and ``right[j]`` at once with the other two.

    Return the product of rows k and l as `row_dot` would, if neither of them changes; otherwise the result has no
    meaning.  The product is computed here because a processor looks ahead only so far: it would not begin it by itself
    after rows that wait for their factors.  All rows are C-contiguous float32 of the same padded width; no bounds are
    checked.
    """

    def generate(context, builder, signature, arguments):
        (w_row, width), (h_row, _), (left_row, _), (right_row, _) = (
            row_pointer(context, builder, signature.args[at], arguments[at], arguments[to])
            for at, to in ((0, 1), (2, 3), (0, 5), (2, 6))
        )
        numbers = [builder.extract_value(arguments[4], at) for at in range(4)]
        stride, zeros = LANES * UNROLLED, ir.Constant(VECTOR, [0.0] * LANES)
        totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(UNROLLED)]
        shrink_left, push_left, shrink_right, push_right = [_spread(builder, number, LANES) for number in numbers]

        def move(offset, total):
            rows = w_row, h_row, left_row, right_row
            places = [builder.bitcast(builder.gep(row, [offset]), VECTOR.as_pointer()) for row in rows]
            w, h, x, y = (builder.load(place, align=4) for place in places)
            builder.store(builder.fadd(builder.load(total), builder.fmul(x, y)), total)
            w_moved = builder.fadd(builder.fmul(shrink_left, w), builder.fmul(push_left, h))
            h_moved = builder.fadd(builder.fmul(shrink_right, h), builder.fmul(push_right, w))
            for place, moved in zip(places[:2], (w_moved, h_moved), strict=True):
                builder.store(moved, place, align=4)

        whole = builder.and_(width, ir.Constant(INDEX, -stride))
        with cgutils.for_range_slice(builder, ir.Constant(INDEX, 0), whole, ir.Constant(INDEX, stride)) as (start, _):
            for number, total in enumerate(totals):
                move(builder.add(start, ir.Constant(INDEX, LANES * number)), total)
        with cgutils.for_range_slice(builder, whole, width, ir.Constant(INDEX, LANES)) as (start, _):
            move(start, totals[0])
        return fold_sums(builder, [builder.load(total) for total in totals])

    return types.float32(left, types.intp, right, types.intp, _STEP, types.intp, types.intp), generate
