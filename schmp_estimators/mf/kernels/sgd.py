"""Stochastic gradient descent over one block of ratings, with an adaptive step for every user and item.

The objective is ``Σ (a − μ − b_u − b_i − w_u·h_i)² + Σ_u λ_u (‖w_u‖² + b_u²) + Σ_i λ_i (‖h_i‖² + b_i²)``.  A rating
carries its share of the penalty: λ itself where the penalty is weighted by the number of ratings, λ divided by that
number where it is not (Kim et al., EuroSys 2016, §4.3).

The step is Chin et al., "A Learning-rate Schedule for Stochastic Gradient Methods to Matrix Factorization" (PAKDD
2015), §3: rate / √(sum of mean squared gradients of the row).  The squared gradient of a row follows from ‖w‖², ‖h‖²
and w·h, and the norms after a step follow from those before it, so that the schedule adds no pass over the rows.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import kernel, pasted
from schmp_estimators.core.lanes import row_dot
from schmp_estimators.mf.kernels.steps import (
    BIAS,
    BIAS_PENALTY,
    BIAS_SQUARE,
    NORM,
    NUMBERS,
    PENALTY,
    SQUARE,
    move_rows,
    take_step,
)

_ZERO = np.float32(0)


class RatingBlock(NamedTuple):
    """The ratings of one user shard on one item block, in the order in which they are visited."""

    users: np.ndarray  #: (n,) int32, row of the user in the shard's factors
    items: np.ndarray  #: (n,) int32, row of the item in the block's factors
    values: np.ndarray  #: (n,) float32


class FactorBlock(NamedTuple):
    """Rows of one factor with all that stochastic gradient descent keeps about them."""

    factors: np.ndarray  #: (n, width) float32; `width` is padded, see `lanes.padded_width`
    biases: np.ndarray  #: (n,) float32
    norms: np.ndarray  #: (n,) float32, squared length of each row of `factors`
    squares: np.ndarray  #: (n,) float32 > 0, sum of the mean squared gradients of the row so far
    bias_squares: np.ndarray  #: (n,) float32 > 0, sum of the squared gradients of the bias so far
    penalties: np.ndarray  #: (n,) float32, penalty of the row that one rating carries
    counts: np.ndarray  #: (n,) int64, ratings of the row


class StepSizes(NamedTuple):
    """Numbers that every rating of a fit shares, float32."""

    mean: np.float32  #: global mean, taken off each rating
    rate: np.float32  #: numerator of the factors' step
    bias_rate: np.float32  #: numerator of the biases' step; 0 keeps the biases as they are
    inverse_rank: np.float32  #: 1 / (number of components)


@pasted
def _numbers_of(side):
    """Return (n, NUMBERS) float32 all numbers of a row beside each other, as `take_step` needs them."""
    numbers = np.empty((side.biases.size, NUMBERS), np.float32)
    for row in range(side.biases.size):
        numbers[row, SQUARE], numbers[row, BIAS_SQUARE] = side.squares[row], side.bias_squares[row]
        numbers[row, NORM], numbers[row, BIAS] = side.norms[row], side.biases[row]
        numbers[row, PENALTY] = numbers[row, BIAS_PENALTY] = side.penalties[row]
    return numbers


@pasted
def _put_back(numbers, side):
    """Set the numbers of `side`, mutated, to those that `take_step` has changed."""
    for row in range(side.biases.size):
        side.squares[row], side.bias_squares[row] = numbers[row, SQUARE], numbers[row, BIAS_SQUARE]
        side.norms[row], side.biases[row] = numbers[row, NORM], numbers[row, BIAS]


@pasted
def _clip_row(side, row, numbers):
    """Set negative factors of `row` to zero; mutates `side.factors`, and the norm among the numbers."""
    factors = side.factors[row]
    for k in range(factors.size):
        factors[k] = max(_ZERO, factors[k])
    numbers[row, NORM] = row_dot(side.factors, row, side.factors, row)


@kernel
def sgd_block(ratings, users, items, steps, positive):
    """Visit each rating once in the order of storage, moving one user's and one item's row.

    Parameters
    ----------
    ratings : RatingBlock
    users, items : FactorBlock
        Mutated.
    steps : StepSizes
    positive : bool
        Clip the factors at zero after every step.

    Returns
    -------
    float
        Sum of the squared errors, each taken just before its step.

    Notes
    -----
    Kim et al., "STRADS" (EuroSys 2016), §4.3.  4·K flops on 2·K numbers per rating.
    """
    total = 0.0
    user_numbers, item_numbers = _numbers_of(users), _numbers_of(items)
    for position in range(ratings.values.size):
        # An index without a sign is one that need not be looked at, whether it counts from the end.
        user, item = np.uint64(ratings.users[position]), np.uint64(ratings.items[position])
        product = row_dot(users.factors, user, items.factors, item)
        biases = user_numbers[user, BIAS], item_numbers[item, BIAS]
        error = ratings.values[position] - steps.mean - biases[0] - biases[1] - product
        total += error * error
        user_shrink, user_push, item_shrink, item_push = take_step(
            user_numbers, user, item_numbers, item, steps.rate, steps.bias_rate, steps.inverse_rank, error, product
        )
        move_rows(users.factors, user, items.factors, item, user_shrink, user_push, item_shrink, item_push)
        if positive:
            _clip_row(users, user, user_numbers)
            _clip_row(items, item, item_numbers)
    _put_back(user_numbers, users)
    _put_back(item_numbers, items)
    return total
