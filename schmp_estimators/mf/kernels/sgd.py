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

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.lanes import row_dot

_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)


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


@inlined
def _squared_length(shrink, push, own_norm, product, other_norm):
    """Return ‖shrink·w + push·h‖² from ‖w‖², w·h and ‖h‖²."""
    length = shrink * shrink * own_norm + _TWO * shrink * push * product + push * push * other_norm
    return max(length, _ZERO)


@inlined
def _mean_square(error, penalty, own_norm, product, other_norm, inverse_rank):
    """Return ‖error·h − penalty·w‖² / rank from ‖w‖², w·h and ‖h‖²."""
    square = error * error * other_norm - _TWO * error * penalty * product + penalty * penalty * own_norm
    return max(square, _ZERO) * inverse_rank


@inlined
def _move_bias(side, row, error, penalty, bias_rate):
    """Take one gradient step on the bias of `row`; mutates `side.biases` and `side.bias_squares`."""
    step = bias_rate / np.sqrt(side.bias_squares[row])
    gradient = error - penalty * side.biases[row]
    side.biases[row] = max(_ZERO, _ONE - step * penalty) * side.biases[row] + step * error
    side.bias_squares[row] += gradient * gradient


@inlined
def _clip_row(side, row):
    """Set negative factors of `row` to zero; mutates `side.factors` and `side.norms`."""
    factors = side.factors[row]
    for k in range(factors.size):
        factors[k] = max(_ZERO, factors[k])
    side.norms[row] = row_dot(side.factors, row, side.factors, row)


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
    for position in range(ratings.values.size):
        user, item = ratings.users[position], ratings.items[position]
        user_penalty, item_penalty = users.penalties[user], items.penalties[item]
        user_step = steps.rate / np.sqrt(users.squares[user])
        item_step = steps.rate / np.sqrt(items.squares[item])
        product = row_dot(users.factors, user, items.factors, item)
        error = ratings.values[position] - steps.mean - users.biases[user] - items.biases[item] - product
        total += error * error

        if steps.bias_rate > _ZERO:
            _move_bias(users, user, error, user_penalty, steps.bias_rate)
            _move_bias(items, item, error, item_penalty, steps.bias_rate)
        user_norm, item_norm = users.norms[user], items.norms[item]
        users.squares[user] += _mean_square(error, user_penalty, user_norm, product, item_norm, steps.inverse_rank)
        items.squares[item] += _mean_square(error, item_penalty, item_norm, product, user_norm, steps.inverse_rank)

        # A shrinkage below zero would make a large penalty diverge.
        user_shrink = max(_ZERO, _ONE - user_step * user_penalty)
        item_shrink = max(_ZERO, _ONE - item_step * item_penalty)
        user_push, item_push = user_step * error, item_step * error
        user_row, item_row = users.factors[user], items.factors[item]
        for k in range(user_row.size):
            w, h = user_row[k], item_row[k]
            user_row[k] = user_shrink * w + user_push * h
            item_row[k] = item_shrink * h + item_push * w
        users.norms[user] = _squared_length(user_shrink, user_push, user_norm, product, item_norm)
        items.norms[item] = _squared_length(item_shrink, item_push, item_norm, product, user_norm)
        if positive:
            _clip_row(users, user)
            _clip_row(items, item)
    return total
