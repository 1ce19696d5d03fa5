"""The best items against a sort of all scores.

With ties, items that are out, users without any item, and threads.
"""

import numpy as np
import pytest
from oracles.mf import lane_dot

from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.values import offsets_of
from schmp_estimators.mf.factor_ranking import _best, _biases, _longest_first

N_ITEMS = 150


def case(n_users, width, with_bias, seed=0):
    """Return users, items and biases.

    Lengths differ much, and some items are equal, nearly equal, opposite or zero.
    """
    rng = np.random.default_rng(seed)
    users, items = (rng.normal(size=(n, width)).astype(np.float32) for n in (n_users, N_ITEMS))
    items *= (1 / (1 + rng.permutation(N_ITEMS)))[:, None].astype(np.float32)
    items[60:100] = items[40] * (1 + 1e-7 * rng.normal(size=(40, width)))
    items[100:110], items[110:120], items[120:125] = items[40], -items[40], 0
    users[0], users[1], users[2] = 0, items[40], items[110]
    bias = with_bias * rng.normal(size=N_ITEMS).astype(np.float32).round(1)
    return users, items, bias


def best_of_all(users, items, bias, may_be, lists, n):
    """Sort all scores: the largest first, of equal ones the lower number first."""
    found = np.full((len(users), n), -1), np.full((len(users), n), -np.inf)
    padded_users, padded_items = pad_rows(users), pad_rows(items)
    for row, user in enumerate(padded_users):
        scores = bias + np.array([lane_dot(user, item) for item in padded_items])
        left = np.setdiff1d(np.flatnonzero(may_be), lists[row])
        order = left[np.lexsort((left, -scores[left]))][:n]
        found[0][row, : order.size], found[1][row, : order.size] = order, scores[order]
    return found


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("width", [3, 20, 70])
@pytest.mark.parametrize("n", [1, 9, N_ITEMS + 5])
def test_the_best_items_are_those_of_a_sort_of_all_scores(n, width, with_bias):
    users, items, bias = case(11, width, with_bias)
    rng = np.random.default_rng(1)
    may_be = rng.random(N_ITEMS) < 0.9
    lists = [np.sort(rng.choice(N_ITEMS, size, replace=False)) for size in rng.integers(0, 60, 11)]
    lists[3], lists[4] = np.arange(N_ITEMS), np.delete(np.arange(N_ITEMS), 7)
    as_arrays = offsets_of([len(one) for one in lists]), np.concatenate(lists).astype(np.int32)
    others = _longest_first(items.T)
    found = _best(users, others, _biases(others[1], bias, may_be), as_arrays, n, None)
    for one, expected in zip(found, best_of_all(users, items, bias, may_be, lists, n), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_batches_and_threads_do_not_change_what_is_found():
    users, items, bias = case(300, 20, True)
    others = _longest_first(items.T)
    given = others, _biases(others[1], bias, np.ones(N_ITEMS, bool))

    def find(rows, n_jobs):
        nothing = np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32)
        return _best(rows, *given, nothing, 7, n_jobs)

    together = find(users, 1)
    alone = [
        np.concatenate(parts)
        for parts in zip(*(find(user[None], 1) for user in users), strict=True)
    ]
    for found in (find(users, 3), alone):
        for one, expected in zip(found, together, strict=True):
            np.testing.assert_array_equal(one, expected)
