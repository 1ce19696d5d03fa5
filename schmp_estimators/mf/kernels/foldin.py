"""Uses of a fitted factorisation: fold in new users, predict ratings, recommend items.

The result for a user depends only on the ratings of this user and on the item factors, never on
other rows.
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel
from schmp_estimators.core.lanes import ZERO, row_dot


@inlined
def _solve_cholesky(gram, size):
    """Solve ``gram[:size] @ x = gram[size]`` in place: x replaces the last row.

    Reads and overwrites the lower triangle.  Directions that the ratings do not determine get zero.
    """
    target = gram[size]
    for k in range(size):
        diagonal = gram[k, k]
        pivot = diagonal
        for column in range(k):
            pivot -= gram[k, column] * gram[k, column]
        known = pivot > 1e-12 * diagonal  # else the direction is not determined
        gram[k, k] = np.sqrt(pivot) if known else np.inf
        for row in range(
            k + 1, size + 1
        ):  # the last one becomes the solution of the lower triangle
            entry = gram[row, k]
            for column in range(k):
                entry -= gram[row, column] * gram[k, column]
            gram[row, k] = entry / gram[k, k]
    for k in range(size - 1, -1, -1):
        for row in range(k + 1, size):
            target[k] -= gram[row, k] * target[row]
        target[k] /= gram[k, k]


@inlined
def _solve_positive(gram, target, free_from, size, out):
    """Minimise ``xᵀ gram x − 2 xᵀ target`` with ``x[k] >= 0`` for k below `free_from`.

    Only the lower triangle of `gram` is read.
    """
    out[:] = 0.0
    for _ in range(1000):
        moved, largest = 0.0, 0.0
        for k in range(size):
            value = target[k]
            for column in range(k):
                value -= gram[k, column] * out[column]
            for row in range(k + 1, size):
                value -= gram[row, k] * out[row]
            value = value / gram[k, k] if gram[k, k] > 0 else 0.0
            if k < free_from:
                value = max(value, 0.0)
            moved = max(moved, abs(value - out[k]))
            largest = max(largest, abs(value))
            out[k] = value
        if moved <= 1e-9 * largest:
            break


@kernel
def fold_in(ratings, weights, features, penalties, start, n_penalised, positive, out):
    """Solve the ridge problem of every user with the items fixed.

    Minimises ``Σ c (w·f_i)² − 2 Σ a w·f_i + wᵀ start w + penalty ‖w‖²`` over w for each user,
    exactly.

    Parameters
    ----------
    ratings : UserRatings
        The values a are what remains without the global mean and the items' biases, times their
        confidences.
    weights : (n_ratings,) float64
        Their confidences, minus what `start` has counted of them.
    features : (n_items, n_features) float64
        Item factors; a column of ones after them makes the user's bias.
    penalties : (n_users,) float64
    start : (n_features, n_features) float64
        Zeros, or the contribution of all items, whether in `ratings` or not; only the lower
        triangle is read.
    n_penalised : int
        Features below this number are kept at or above zero if `positive`.
    positive : bool
    out : (n_users, n_features) float64
        Mutated.

    Notes
    -----
    n_features² / 2 multiply-adds per rating, n_features³ / 6 per user, by Cholesky decomposition.
    """
    size = features.shape[1]
    gram = np.empty((size + 1, size))
    target = gram[size]
    for user in range(out.shape[0]):
        for k in range(size):
            copy_to(start[k], gram[k])
        target[:] = 0.0
        for position in range(ratings.indptr[user], ratings.indptr[user + 1]):
            feature = features[ratings.items[position]]
            value = np.float64(ratings.values[position])
            for k in range(size):
                target[k] += value * feature[k]
                row = gram[k]
                scaled = weights[position] * feature[k]
                for column in range(k + 1):
                    row[column] += scaled * feature[column]
        for k in range(size):
            gram[k, k] += penalties[user]
        if positive:
            _solve_positive(gram, target, n_penalised, size, out[user])
        else:
            _solve_cholesky(gram, size)
            copy_to(target, out[user])


@kernel
def predict_pairs(users, items, user_factors, item_factors, user_bias, item_bias, mean, out):
    """Predict ratings of pairs; an unknown user or item contributes neither a bias nor a product.

    Parameters
    ----------
    users, items : (n,) int64, not negative
    user_factors, item_factors : (n_users or n_items, width) float32, padded to the same width
    user_bias, item_bias : (n_users,), (n_items,) float32
    mean : float
        Added last, in float64, because it may be much larger than the rest.
    out : (n,) float64
        Mutated.
    """
    for position in range(out.size):
        user, item = users[position], items[position]
        value = ZERO
        if user < user_bias.size:
            value += user_bias[user]
        if item < item_bias.size:
            value += item_bias[item]
            if user < user_bias.size:
                value += row_dot(user_factors, user, item_factors, item)
        out[position] = mean + np.float64(value)


@inlined
def insert(score, item, scores, items):
    """Put an item in its place among the best, in place of the last one.

    The best are in the order of falling score, then of rising number.
    """
    place = scores.size - 1
    while place > 0 and (
        score > scores[place - 1] or (score == scores[place - 1] and item < items[place - 1])
    ):
        scores[place] = scores[place - 1]
        items[place] = items[place - 1]
        place -= 1
    scores[place], items[place] = score, item
