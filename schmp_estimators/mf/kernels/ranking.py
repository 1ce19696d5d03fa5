"""Stochastic gradient descent for ranking losses: each observed pair is compared with an item that is drawn.

A user took item i, and item j is drawn from the items that the user has not taken.  With the scores s = c_i + w·h_i and
t = c_j + w·h_j, a loss returns its value and its pull on each score, which is a negative derivative.  The steps are
those of `sgd`, with the pulls as errors: first that of i, then that of j, whose product uses the user's row after the
first step.  Both pulls are computed before the steps.

Draws are addressed: they depend only on a key, the user's number in the whole data, the item and the attempt.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from schmp_estimators.core.jit import by_types, inlined, kernel, part
from schmp_estimators.core.lanes import row_dot
from schmp_estimators.core.rng import GAMMA, below, mix
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.sgd import clip_row
from schmp_estimators.mf.kernels.steps import BIAS, move_rows, take_steps

#: Number of draws for a pair; the first item that the user has not taken is used, and without one the pair is skipped.
ATTEMPTS = 8
_BIAS, _ONE = np.uint64(BIAS), np.uint64(1)


def pull(loss: Any, taken: float, drawn: float) -> tuple[float, float, float]:
    """Return ``loss.pull(taken, drawn)``; in kernels a named tuple has no methods."""
    found: tuple[float, float, float] = loss.pull(taken, drawn)
    return found


@by_types(pull, copied=True, strict=False)
def _pull(loss: Any, taken: Any, drawn: Any) -> Callable[..., Any] | None:
    return getattr(getattr(loss, "instance_class", None), "pull", None)


@inlined
def log_odds(x):
    """Return ln(1 + eˣ) and its derivative σ(x) = 1/(1 + e^−x)."""
    small = math.exp(-abs(x))
    return math.log1p(small) + max(x, 0.0), (1.0 if x > 0.0 else small) / (1.0 + small)


@inlined
def _has_taken(items, start, stop, item):
    """Return whether `item` is among ``items[start:stop]``, which are in ascending order."""
    end = stop
    while start < stop:
        middle = (start + stop) >> 1
        if items[middle] < item:
            start = middle + 1
        else:
            stop = middle
    return start < end and items[start] == item


def candidates_of(counts: np.ndarray) -> np.ndarray:
    """Return (n,) int64 the rows that may be drawn, each as often as the root of its number of pairs, rounded up.

    If all were drawn equally often, most draws would be items that few users take, which teach little about the first
    places of a ranking.
    """
    return freeze(np.repeat(np.arange(counts.size), np.ceil(np.sqrt(counts)).astype(np.int64)))


@part
def draw_item(candidates, items, start, stop, key, user_number, item):
    """Return one of `candidates` that is not among ``items[start:stop]``, or -1 if no attempt finds one."""
    address = mix(mix(key + GAMMA * (np.uint64(user_number) + _ONE)) + GAMMA * (np.uint64(item) + _ONE))
    for attempt in range(ATTEMPTS):
        drawn = candidates[np.int64(below(mix(address + GAMMA * np.uint64(attempt + 1)), candidates.size))]
        if not _has_taken(items, start, stop, drawn):
            return np.int64(drawn)
    return np.int64(-1)


@kernel
def rank_block(loss, pairs, taken, candidates, user_ids, key, users, items, steps, positive):
    """Visit each pair once in the order of storage; move the rows of its user, its item and an item that is drawn.

    Parameters
    ----------
    loss : NamedTuple
        A loss with a method `pull`.
    pairs : RatingBlock
        The pairs; their values are not used.
    taken : tuple of (n_users + 1,) int64 and (n,) int32
        Offsets, and the items of each user in this block, ascending.
    candidates : (n_candidates,) int64
        Items that may be drawn, from `candidates_of`.
    user_ids : (n_users,) int64
        Numbers of the users in the whole data.
    key : uint64
        From `rng.stream_key`.
    users, items : FactorBlock
        Mutated.  Users have no biases.
    steps : StepSizes
    positive : bool
        Whether to clip the factors at zero after every step.

    Returns
    -------
    float
        Sum of the losses, each computed just before its steps; a skipped pair adds nothing.
    """
    user_numbers, item_numbers, total = users.numbers, items.numbers, 0.0
    (offsets, own), sizes = taken, (steps.rate, steps.bias_rate, steps.inverse_rank)
    for position in range(pairs.users.size):
        user, item = np.uint64(pairs.users[position]), np.uint64(pairs.items[position])
        start, stop = offsets[user], offsets[user + _ONE]
        other = draw_item(candidates, own, start, stop, key, user_ids[user], item)
        if other < 0:
            continue
        drawn = np.uint64(other)
        products = row_dot(users.factors, user, items.factors, item), row_dot(users.factors, user, items.factors, drawn)
        scores = item_numbers[item, _BIAS] + products[0], item_numbers[drawn, _BIAS] + products[1]
        value, up, down = pull(loss, np.float64(scores[0]), np.float64(scores[1]))
        total += value
        (factors,) = take_steps(user_numbers, (user,), item_numbers, (item,), *sizes, (np.float32(up),), products[:1])
        move_rows(users.factors, user, items.factors, item, factors, user, drawn)
        if positive:
            clip_row(users, user, user_numbers)
            clip_row(items, item, item_numbers)
        product = row_dot(users.factors, user, items.factors, drawn)
        (factors,) = take_steps(user_numbers, (user,), item_numbers, (drawn,), *sizes, (np.float32(down),), (product,))
        move_rows(users.factors, user, items.factors, drawn, factors, user, item)
        if positive:
            clip_row(users, user, user_numbers)
            clip_row(items, drawn, item_numbers)
    for row in range(user_numbers.shape[0]):
        user_numbers[row, BIAS] = np.float32(0)
    return total


@kernel
def fold_in_drawn(loss, pairs, candidates, features, biases, numbers, n_epochs, key, positive, out):
    """Take the steps of the users alone, while the items stay as they are.

    Parameters
    ----------
    loss, candidates, key, positive
        As in `rank_block`.
    pairs : UserRatings
        The pairs; their values are not used.
    features : (n_items, K) float64
    biases : (n_items,) float64
    numbers : tuple of two float
        Rate of the steps, and the penalty of each step.
    n_epochs : int
    out : (n_users, K) float64
        Zeros; mutated.  A row depends only on the pairs of its user.
    """
    (rate, penalty), size = numbers, features.shape[1]
    gradient = np.empty(size)
    for user in range(out.shape[0]):
        row, start, stop, square = out[user], pairs.indptr[user], pairs.indptr[user + 1], 1.0
        for epoch in range(n_epochs):
            own_key = mix(key + GAMMA * np.uint64(epoch + 1))
            for position in range(start, stop):
                item = pairs.items[position]
                drawn = draw_item(candidates, pairs.items, start, stop, own_key, 0, item)
                if drawn < 0:
                    continue
                scores, squares = (biases[item], biases[drawn]), 0.0
                taken, other = scores
                for k in range(size):
                    taken += row[k] * features[item, k]
                    other += row[k] * features[drawn, k]
                _, up, down = pull(loss, taken, other)
                for k in range(size):
                    gradient[k] = up * features[item, k] + down * features[drawn, k] - 2 * penalty * row[k]
                    squares += gradient[k] * gradient[k]
                step = rate / np.sqrt(square)
                for k in range(size):
                    row[k] += step * gradient[k]
                    if positive:
                        row[k] = max(row[k], 0.0)
                square += squares / size
