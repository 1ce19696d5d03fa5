"""A step of stochastic gradient descent on a user and an item at once, in registers.

All numbers of a row except its factors are neighbours in memory, and those of a user and an item
fill half a register.  So the roots, quotients and products of a rating, or of two ratings without a
common row, take only a few instructions.  The bits are those of one number after the other.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from schmp_estimators.core.lanes import (
    LANES,
    NUMBER,
    UNROLLED,
    Value,
    emitted,
    fold_sums,
    zero_rows,
)

#: Columns of the numbers of a row, in the order that `take_steps` needs: the sum of its mean
#: squared gradients so far, and that of its bias, both > 0; its squared length; its bias; the
#: penalty of each rating, for the row and the bias.
SQUARE, BIAS_SQUARE, NORM, BIAS, PENALTY, BIAS_PENALTY = range(6)
#: Number of columns, which keeps each row within one cache line.
NUMBERS = LANES

_HALF = LANES // 2
_QUAD = ir.VectorType(NUMBER, _HALF)
#: Four multipliers, see `take_steps`.
_STEP = types.UniTuple(types.float32, 4)


def numbers_of(factors: np.ndarray, penalty: Any) -> np.ndarray:
    """Return (n, NUMBERS) the numbers of rows that no rating has moved yet.

    `penalty` is a number or (n,).
    """
    numbers = zero_rows(len(factors), NUMBERS)
    numbers[:, SQUARE] = numbers[:, BIAS_SQUARE] = 1
    numbers[:, NORM] = (factors**2).sum(axis=1)
    numbers[:, PENALTY] = numbers[:, BIAS_PENALTY] = penalty
    return numbers


def _mixed(one: Value, other: Value, order: list[int]) -> Value:
    """Return lanes of both, in an order where those of `other` count from 4.

    The order is the same for every rating.
    """
    count = one.value.type.count
    lanes = [
        first + lane + (count - _HALF) * (lane >= _HALF)
        for first in range(0, count, _HALF)
        for lane in order
    ]
    return one.mixed(other, lanes)


def _rows_of(rows: Value, biases: Value) -> Value:
    """Return the lanes of the rows of the one, and the lanes of the biases of the other."""
    return _mixed(rows, biases, [0, 1, 6, 7])


def _root(value: Value) -> Value:
    vector = value.value.type
    kind = ir.FunctionType(vector, [vector])
    function = cgutils.get_or_insert_function(
        value.builder.module, kind, f"llvm.sqrt.v{vector.count}f32"
    )
    return Value(value.builder, value.builder.call(function, [value.value]))


def _from_zero(value: Value) -> Value:
    """Return max(x, 0) in each lane; NaN stays NaN."""
    zero = value.constant(0.0)
    return value.where(zero.exceeds(value), zero)


def _together(values: list[Value]) -> Value:
    """Return the lanes of one rating, or those of two beside each other."""
    return values[0] if len(values) == 1 else values[0].mixed(values[1], list(range(LANES)))


@emitted(lambda users, rows, *others: types.UniTuple(_STEP, len(rows)))
def take_steps(
    code, users, rows, items, other_rows, rate, bias_rate, inverse_rank, errors, products
):
    """Change all numbers of a user and an item, except factors, by the step of a rating.

    It is done for one rating, or for two ratings without a common row.

    Parameters
    ----------
    users, items : (n, NUMBERS) float32, C-contiguous
        Mutated.
    rows, other_rows : tuple of int
        The user and the item of each rating.
    rate, bias_rate, inverse_rank : float32
        As in `sgd.StepSizes`.
    errors, products : tuple of float32
        Error of each rating, and product of the two rows of factors.

    Returns
    -------
    tuple of tuples of four float32
        For each rating multipliers for the new factors of the user: that of the user's own factors,
        and that of the item's factors, which are added; then the same two for the item.
    """
    n_lanes = _HALF * len(rows)
    ratings = range(len(rows))
    places = ((users, rows), (items, other_rows))

    def load(first):
        return [
            _together([side.load(row * LANES + first, _QUAD) for row in own])
            for side, own in places
        ]

    user_sums, item_sums = load(0)
    user_penalty, item_penalty = load(_HALF)
    squares = _mixed(user_sums, item_sums, [0, 4, 1, 5])
    own = _mixed(user_sums, item_sums, [2, 6, 3, 7])
    penalty = _mixed(user_penalty, item_penalty, [0, 4, 1, 5])
    other = _mixed(own, own, [1, 0, 3, 2])
    rates = _rows_of(rate.spread(n_lanes), bias_rate.spread(n_lanes))
    inverse_ranks = inverse_rank.spread(n_lanes)
    error, product = (
        _together([number.spread(_HALF) for number in numbers]) for numbers in (errors, products)
    )
    one, two = squares.constant(1.0), squares.constant(2.0)

    step = rates / _root(squares)
    shrink = _from_zero(one - step * penalty)  # if it were negative, a large penalty would diverge
    push = step * error
    # ‖shrink·w + push·h‖² from ‖w‖², w·h and ‖h‖², and in the same way the mean squared gradient of
    # the row.
    length = shrink * shrink * own + two * shrink * push * product + push * push * other
    square = error * error * other - two * error * penalty * product + penalty * penalty * own
    gradient = error - penalty * own  # of the bias
    grown = squares + _rows_of(_from_zero(square) * inverse_ranks, gradient * gradient)
    grown = _rows_of(grown, squares).where(bias_rate.exceeds(bias_rate.constant(0.0)), grown)
    moved = _rows_of(_from_zero(length), shrink * own + push)
    for (side, own_rows), order in zip(places, ([0, 2, 4, 6], [1, 3, 5, 7]), strict=True):
        changed = _mixed(grown, moved, order)
        for rating in ratings:
            lanes = list(range(rating * _HALF, (rating + 1) * _HALF))
            side.store(own_rows[rating] * LANES, changed.mixed(changed, lanes))
    starts = [rating * _HALF for rating in ratings]
    return [
        [shrink.lane(at), push.lane(at), shrink.lane(at + 1), push.lane(at + 1)] for at in starts
    ]


@emitted(lambda *kinds: types.float32)
def move_rows(code, left, i, right, j, factors, k, l):  # noqa: E741
    """Set ``left[i]`` to ``factors[0] * left[i] + factors[1] * right[j]``, and ``right[j]``.

    ``right[j]`` is set at once with the other two factors.

    Return the product of rows k and l as `row_dot` would, if neither of them changes; otherwise the
    result has no meaning.  The product is computed here because a processor looks ahead only so
    far: it would not begin it by itself after rows that wait for their factors.  All rows are
    C-contiguous float32 of the same padded width.
    """
    width = left.shape[1]
    totals = code.totals(UNROLLED)
    starts = [row * width for row in (i, j, k, l)]
    shrink_left, push_left, shrink_right, push_right = (factor.spread() for factor in factors)

    def move(offset, number):
        w, h, x, y = (
            side.load(start + offset) for side, start in zip((left, right) * 2, starts, strict=True)
        )
        totals[number].add(x * y)
        w_moved = shrink_left * w + push_left * h
        h_moved = shrink_right * h + push_right * w
        left.store(starts[0] + offset, w_moved)
        right.store(starts[1] + offset, h_moved)

    code.over_row(width, UNROLLED, move)
    return fold_sums(totals)
