"""Matrix factorisation: an epoch of both solvers on 50,000 ratings, and the best items of users."""

from functools import cache

import numpy as np

from schmp_estimators.core.lanes import LANES, pad_rows
from schmp_estimators.core.values import freeze, own
from schmp_estimators.mf.kernels.ccd import SUMS, UserRatings, improve_users
from schmp_estimators.mf.kernels.ranking import as_vectors, top_items
from schmp_estimators.mf.kernels.sgd import FactorBlock, RatingBlock, StepSizes, sgd_block
from schmp_estimators.mf.kernels.steps import numbers_of

from .one_kernel import OneKernel

N_USERS, N_ITEMS, N_RATINGS, N_COMPONENTS = 1000, 600, 50_000, 40


@cache
def ratings():
    """Return users, items and values of ratings, by user, then by item."""
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.choice(N_USERS * N_ITEMS, N_RATINGS, replace=False))
    return *np.divmod(pairs, N_ITEMS), rng.normal(0, 1, N_RATINGS).astype(np.float32)


@cache
def factors(n_rows, seed):
    """Return rows of a factor with what "sgd" keeps about them."""
    rows = pad_rows(np.random.default_rng(seed).normal(0, 0.3, (n_rows, N_COMPONENTS)))
    return FactorBlock(rows, numbers_of(rows, 0.05), np.full(n_rows, N_RATINGS // n_rows, np.int32))


class SgdBlock(OneKernel):
    """All ratings as one block, 40 components and biases."""

    kernel = staticmethod(sgd_block)

    def fresh(self):
        users, items, values = ratings()
        order = np.random.default_rng(1).permutation(N_RATINGS)  # as a fit visits them
        block = RatingBlock(
            users[order].astype(np.int32), items[order].astype(np.int32), values[order]
        )
        steps = StepSizes(*(np.float32(number) for number in (0.1, 0.1, 1 / N_COMPONENTS)))
        return freeze(block), own(factors(N_USERS, 2)), own(factors(N_ITEMS, 3)), steps, False


class CcdRound(OneKernel):
    """One round of eight components for all users, with the sums that the items need."""

    kernel = staticmethod(improve_users)

    def fresh(self):
        users, items, values = ratings()
        indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=N_USERS))])
        rng = np.random.default_rng(4)
        before, now = (rng.normal(0, 0.3, (N_USERS, LANES)).astype(np.float32) for _ in range(2))
        beside = rng.normal(0, 0.3, (N_ITEMS, 2 * LANES)).astype(np.float32)
        return (
            freeze(UserRatings(indptr, items.astype(np.uint16), values)), np.empty(0, np.float32),
            own(values), freeze(before), now,
            freeze(beside), freeze(np.full(N_USERS, 0.5, np.float32)),
            *freeze(2 * (np.empty((0, LANES), np.float32),)),
            0, LANES, False,
            np.zeros((N_ITEMS * SUMS, LANES), np.float32),
        )  # fmt: skip


class TopItems(OneKernel):
    """The ten best items of every user, without those it has rated."""

    kernel = staticmethod(top_items)

    def fresh(self):
        users, items, _ = ratings()
        indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=N_USERS))])
        of_users, of_items = factors(N_USERS, 2), factors(N_ITEMS, 3)
        given = as_vectors(of_users.factors), as_vectors(of_items.factors), np.arange(N_ITEMS)
        given = *given, of_items.biases.copy()
        best, scores = np.zeros((N_USERS, 10), np.int64), np.zeros((N_USERS, 10), np.float32)
        return *freeze(given), *freeze((indptr, items.astype(np.int32))), best, scores
