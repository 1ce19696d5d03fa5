import numpy as np
import pytest
from oracles import mf as oracle

from schmp_estimators.core.lanes import LANES, PRODUCTS
from schmp_estimators.mf.kernels.ccd import UserRatings, close_round, improve_users, solve_rows
from schmp_estimators.mf.kernels.tiles import PASSES, SUMS

#: No earlier ratings.
NOTHING = np.empty((0, LANES), np.float32)
#: All weights are 1.
EVEN = np.empty(0, np.float32)


def problem(seed=0, n_users=30, n_items=20, density=0.4):
    generator = np.random.default_rng(seed)
    observed = generator.random((n_users, n_items)) < density
    observed[3], observed[:, 4] = False, False
    dense = np.where(observed, generator.normal(3, 1, observed.shape), np.nan).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
    return dense, UserRatings(indptr, np.nonzero(observed)[1].astype(np.int32), dense[observed]), generator


class Descent:
    """The rounds of one shard or several, as the program runs them, but all in one place."""

    def __init__(self, ratings, n_users, n_items, n_components, generator, penalty, positive=False, weights=EVEN):
        self.ratings, self.positive, self.weights = ratings, positive, weights
        n_chunks = -(-n_components // LANES)
        self.free = [min(LANES, n_components - LANES * c) for c in range(n_chunks)]
        self.users = [np.zeros((n_users, LANES), np.float32) for _ in self.free]
        self.items = [np.zeros((n_items, LANES), np.float32) for _ in self.free]
        for chunk, stop in zip(self.items, self.free, strict=True):
            chunk[:, :stop] = np.abs(generator.normal(size=(n_items, stop)))
        self.penalties = np.full(n_users, penalty, np.float32), np.full(n_items, penalty, np.float32)
        self.residuals = ratings.values.copy()

    def epoch(self):
        before = np.zeros_like(self.users[0]), np.zeros_like(self.items[0])
        for stop, users, items in zip(self.free, self.users, self.items, strict=True):
            beside = np.hstack([-before[1], items])
            sums = np.full((len(items) * SUMS, LANES), np.nan, np.float32)
            improve_users(
                self.ratings,
                self.weights,
                self.residuals,
                before[0],
                users,
                beside,
                self.penalties[0],
                NOTHING,
                NOTHING,
                0,
                stop,
                self.positive,
                sums,
            )
            solve_rows(sums, self.penalties[1], 0, stop, self.positive, items)
            before = users, items
        loss = close_round(self.ratings, self.weights, self.residuals, *before)
        penalty = sum((c.astype(float) ** 2).sum() for c in self.users + self.items) * self.penalties[0][0]
        return loss + penalty

    def product(self):
        return np.hstack(self.users) @ np.hstack(self.items).T


@pytest.mark.covering
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("n_components", [1, 5, 8, 19])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_epoch_equals_brute_force_on_the_dense_matrix(n_components, positive, weighted):
    dense, ratings, generator = problem()
    weights = np.where(np.isnan(dense), 0, generator.integers(0, 4, dense.shape)) if weighted else 1.0
    of_ratings = weights[~np.isnan(dense)].astype(np.float32) if weighted else EVEN
    descent = Descent(ratings, *dense.shape, n_components, generator, 0.7, positive, of_ratings)
    expected_users = np.hstack(descent.users)[:, :n_components].astype(float)
    expected_items = np.hstack(descent.items)[:, :n_components].astype(float)
    for _ in range(3):
        value = descent.epoch()
        expected = oracle.chunk_epoch(dense, expected_users, expected_items, 0.7, LANES, PASSES, positive, weights)
        np.testing.assert_allclose(np.hstack(descent.users)[:, :n_components], expected_users, atol=2e-4)
        np.testing.assert_allclose(np.hstack(descent.items)[:, :n_components], expected_items, atol=2e-4)
        assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1.0, 100.0])
def test_objective_never_rises(penalty, positive):
    dense, ratings, generator = problem(1, 60, 40, 0.5)
    descent = Descent(ratings, *dense.shape, 20, generator, penalty, positive)
    values = [descent.epoch() for _ in range(15)]
    assert (np.diff(values) <= 1e-5 * values[0]).all()
    assert np.isfinite(values).all()


def test_residuals_stay_true():
    dense, ratings, generator = problem(2)
    descent = Descent(ratings, *dense.shape, 12, generator, 0.1)
    for _ in range(30):
        descent.epoch()
    np.testing.assert_allclose(descent.residuals, (dense - descent.product())[~np.isnan(dense)], atol=1e-4)


def test_sums_of_two_shards_are_the_sums_of_one():
    dense, ratings, generator = problem(3)
    whole = Descent(ratings, *dense.shape, 8, generator, 0.1)
    cut = ratings.indptr[15]
    halves = (
        (slice(0, 15), UserRatings(ratings.indptr[:16], ratings.items[:cut], ratings.values[:cut])),
        (slice(15, 30), UserRatings(ratings.indptr[15:] - cut, ratings.items[cut:], ratings.values[cut:])),
    )
    sums = []
    for rows, part in [(slice(0, 30), ratings), *halves]:
        chunk, total = whole.users[0][rows].copy(), np.zeros((20 * SUMS, LANES), np.float32)
        items = np.hstack([np.zeros_like(whole.items[0]), whole.items[0]])
        penalties = whole.penalties[0][rows]
        rest = NOTHING, NOTHING, 0, LANES, False, total
        improve_users(part, EVEN, part.values.copy(), np.zeros_like(chunk), chunk, items, penalties, *rest)
        sums.append(total)
    np.testing.assert_allclose(sums[0], sums[1] + sums[2], rtol=1e-4, atol=1e-5)


def test_planted_low_rank_is_recovered():
    generator = np.random.default_rng(4)
    truth = generator.normal(size=(120, 3)) @ generator.normal(size=(3, 80))
    observed = generator.random(truth.shape) < 0.5
    indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
    ratings = UserRatings(indptr, np.nonzero(observed)[1].astype(np.int32), truth[observed].astype(np.float32))
    descent = Descent(ratings, *truth.shape, 3, generator, 1e-3)
    for _ in range(200):
        descent.epoch()
    assert np.abs(descent.product() - truth).max() < 0.01


def test_products_hold_every_pair_once():
    pairs = {(k, (k + d) % LANES) for d in range(PRODUCTS - 1) for k in range(LANES)}
    pairs |= {(k, (k + PRODUCTS - 1) % LANES) for k in range(LANES)}
    assert {frozenset(pair) for pair in pairs} == {frozenset((k, j)) for k in range(LANES) for j in range(LANES)}
