"""Matrix factorisation written out in plain NumPy: slow and obvious."""

import numpy as np
from oracles.lda_warp import bits_at

from schmp_estimators.mf.kernels.steps import NORM

LANES, UNROLLED = 8, 4


def lane_dot(left, right):
    """Dot product of float32 vectors in the order that `row_dot` documents."""
    sums = np.zeros((UNROLLED, LANES), np.float32)
    products = (left * right).reshape(-1, LANES)
    whole = len(products) // UNROLLED * UNROLLED
    for number, product in enumerate(products):
        sums[number % UNROLLED if number < whole else 0] += product
    folded = (sums[0] + sums[2]) + (sums[1] + sums[3])
    while folded.size > 1:
        half = folded.size // 2
        folded = folded[:half] + folded[half:]
    return folded[0]


def length_after(shrink, push, own, product, other):
    two = np.float32(2)
    return max(
        shrink * shrink * own + two * shrink * push * product + push * push * other, np.float32(0)
    )


def mean_square(error, penalty, own, product, other, inverse_rank):
    square = (
        error * error * other - np.float32(2) * error * penalty * product + penalty * penalty * own
    )
    return max(square, np.float32(0)) * inverse_rank


def sgd_block(ratings, users, items, steps, positive):
    """One pass of stochastic gradient descent.

    Returns the sum of squared errors, mutates `users` and `items`.
    """
    total = 0.0
    for u, i, value in zip(*ratings, strict=True):
        product = lane_dot(users.factors[u], items.factors[i])
        error = value - users.biases[u] - items.biases[i] - product
        total += float(error * error)
        sgd_step(users, u, items, i, error, steps, positive)
    return total


def sgd_step(users, u, items, i, error, steps, positive):
    """The step of user `u` and item `i` for an error, or what a loss pulls with at their score."""
    zero, one, moved = np.float32(0), np.float32(1), []
    product = lane_dot(users.factors[u], items.factors[i])
    for side, row, other, other_row in ((users, u, items, i), (items, i, users, u)):
        square, bias_square, norm, bias, penalty, *_ = side.numbers[row]
        other_norm = other.numbers[other_row, NORM]
        step = steps.rate / np.sqrt(square)
        shrink, push = max(zero, one - step * penalty), step * error
        factors = shrink * side.factors[row] + push * other.factors[other_row]
        norm_after = length_after(shrink, push, norm, product, other_norm)
        if positive:
            factors = np.maximum(factors, zero)
            norm_after = lane_dot(factors, factors)
        square = square + mean_square(error, penalty, norm, product, other_norm, steps.inverse_rank)
        if steps.bias_rate > 0:
            bias_step = steps.bias_rate / np.sqrt(bias_square)
            gradient = error - penalty * bias
            bias = max(zero, one - bias_step * penalty) * bias + bias_step * error
            bias_square = bias_square + gradient * gradient
        moved.append((side, row, factors, (square, bias_square, norm_after, bias)))
    for side, row, factors, numbers in moved:
        side.factors[row], side.numbers[row, : len(numbers)] = factors, numbers


def draw_item(candidates, taken, key, user, item, attempts):
    """The first of `attempts` draws that is not among the items taken; else None.

    Draws are addressed by user and item.
    """
    address = bits_at(bits_at(key, int(user) + 1), int(item) + 1)
    bits = (bits_at(address, attempt + 1) for attempt in range(attempts))
    found = (candidates[(one >> 32) * len(candidates) >> 32] for one in bits)
    return next((drawn for drawn in found if drawn not in taken), None)


def rank_pull(loss, taken, drawn):
    """A loss, and its negative derivatives by two scores.

    They are those of an item that was taken and of one that was drawn.
    """
    missed, wrong = np.logaddexp(0, -taken), np.logaddexp(0, drawn)
    if loss == "logistic":
        return missed + wrong, -np.expm1(-missed), np.expm1(-wrong)
    value = np.logaddexp(0, drawn - taken)
    return value, -np.expm1(-value), np.expm1(-value)


def rank_block(
    loss, pairs, taken, candidates, user_ids, key, users, items, steps, positive, attempts
):
    """One pass over pairs, each beside an item that is drawn.

    Returns the sum of the losses, mutates both sides.
    """
    total = 0.0
    for u, i, _ in zip(*pairs, strict=True):
        j = draw_item(candidates, taken[u], key, user_ids[u], i, attempts)
        if j is None:
            continue
        scores = (
            items.biases[row] + lane_dot(users.factors[u], items.factors[row]) for row in (i, j)
        )
        value, *pulls = rank_pull(loss, *map(float, scores))
        total += value
        for row, pull in zip((i, j), pulls, strict=True):
            sgd_step(users, u, items, row, np.float32(pull), steps, positive)
    users.biases[:] = 0
    return total


def objective(
    ratings, user_factors, item_factors, user_bias, item_bias, mean, user_penalty, item_penalty
):
    """Squared error and penalty; penalties are per row, for the whole fit."""
    users, items, values = ratings
    errors = values - mean - user_bias[users] - item_bias[items]
    errors = errors - np.einsum("nk,nk->n", user_factors[users], item_factors[items])
    loss = np.sum(errors.astype(np.float64) ** 2)
    user_term = np.sum(
        user_penalty * ((user_factors.astype(np.float64) ** 2).sum(axis=1) + user_bias**2)
    )
    item_term = np.sum(
        item_penalty * ((item_factors.astype(np.float64) ** 2).sum(axis=1) + item_bias**2)
    )
    return loss, user_term + item_term


def descend(gram, target, start, passes, positive):
    """Coordinate descent on ``xᵀ gram x − 2 xᵀ target``."""
    x = start.copy()
    for _ in range(passes):
        for k in range(x.size):
            rest = target[k] - gram[k] @ x + gram[k, k] * x[k]
            x[k] = rest / gram[k, k] if gram[k, k] > 0 else 0.0
            if positive:
                x[k] = max(x[k], 0.0)
    return x


def dense_objective(targets, weights, users, items, user_penalty, item_penalty):
    """Objective of all pairs: `weights` (n_users, n_items) has those of missing pairs, too."""
    loss = np.sum(weights * (targets - users @ items.T) ** 2)
    return (
        loss
        + np.sum(user_penalty * (users**2).sum(axis=1))
        + np.sum(item_penalty * (items**2).sum(axis=1))
    )


def turned(seen, items, width, spread):
    """Items after a power iteration on the clicks, divided by roots of counts.

    Its first direction is one component.
    """
    per_user, per_item = seen.sum(axis=1), seen.sum(axis=0)
    clicks = seen / np.sqrt(np.outer(np.maximum(per_user, 1), np.maximum(per_item, 1)))
    first = np.sqrt(per_item / per_item.sum())
    out = clicks.T @ (clicks @ items)
    out = np.sqrt(per_item)[:, None] * (out - np.outer(first, first @ out))
    for start in range(0, items.shape[1], width):
        chunk = out[:, start : start + width]
        if not start:
            chunk[:, 0] = per_item * np.sqrt(np.mean(chunk[:, 1:] ** 2) / np.mean(per_item**2))
        chunk *= spread / np.sqrt(np.mean(chunk**2))
    return out


def epoch(targets, weights, users, items, penalties, width, passes, positive, *, by_chunk=False):
    """One epoch on the complete matrix of targets; changes `users` and `items`.

    Targets of missing pairs are zeros.

    All chunks of `users` come first, then those of `items`; or, by chunk, both sides of each chunk.
    """
    sides = (
        (targets, weights, users, items, penalties[0]),
        (targets.T, weights.T, items, users, penalties[1]),
    )
    chunks = [slice(first, first + width) for first in range(0, users.shape[1], width)]
    turns = [(side, chunk) for side in sides for chunk in chunks]
    for (goal, weight, own, other, penalty), chunk in sorted(
        turns, key=lambda turn: by_chunk * turn[1].start
    ):
        rest = goal - own @ other.T + own[:, chunk] @ other[:, chunk].T
        features = other[:, chunk]
        for row in range(len(own)):
            weighted = features.T * weight[row]
            gram = weighted @ features + penalty[row] * np.eye(features.shape[1])
            own[row, chunk] = descend(gram, weighted @ rest[row], own[row, chunk], passes, positive)


def implicit_fold_in(targets, weights, items, penalty):
    """Closed form of one user's vector."""
    gram = (items.T * weights) @ items + penalty * np.eye(items.shape[1])
    return np.linalg.solve(gram, (items.T * weights) @ targets)


def anchored_gradient(features, targets, penalty, row, earlier, pull):
    """Half the gradient of a ridge regression on some ratings.

    It begins with what earlier ratings said of the row.
    """
    return features.T @ (features @ row - targets) + penalty * row + pull * (row - earlier)
