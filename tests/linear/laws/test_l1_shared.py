"""Sparse working sets solved where their rows are: the certificate is true, and bits depend on partitions alone."""

import time

import dask.array as da
import numpy as np
import pytest
from clusters import keys_left, kill_workers
from oracles.l1 import lasso_gap
from scipy import sparse
from sklearn.linear_model import Lasso

from schmp_estimators.core.engines.leading import Told
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.engines.team import Alone, add_up
from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places.cluster import live_workers
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.kernels.groups import Blocks
from schmp_estimators.linear.lasso import PrioritizedLasso
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.programs import choose, shared_residual
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.shared_quadratic import LARGE

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def every_set_is_large(monkeypatch):
    """Models say so, wherever they are: a worker, above all one that replaces another, has modules of its own."""
    monkeypatch.setattr(choose, "Model", lambda **given: Model(**given | {"per_column": float(LARGE)}))


def problem(case):
    """Sparse X, y, and weights or None."""
    rng = np.random.default_rng(0)
    shape = {"wide": (200, 3000), "tall": (6000, 150)}.get(case, (900, 700))
    X = sparse.random(*shape, density=0.02, format="csc", rng=rng).toarray()
    if case == "copies":
        X[:, 350:] = X[:, :350] * (1.0 + 0.01 * (rng.random((900, 350)) < 0.1))
        X[:, 100:110] = X[:, :10]
    if case == "offset":
        X[:, :40] += 1e4
    if case == "empty partition":
        X[:300, :] = 0.0
    if case == "scales":
        X *= np.exp(3.0 * rng.normal(size=shape[1]))
    weights = rng.random(shape[0]) + 0.05 if case == "weights" else None
    y = X[:, :30] / np.maximum(X[:, :30].std(axis=0), 1e-9) @ rng.normal(size=30) + rng.normal(size=shape[0])
    return sparse.csr_array(X), y, weights


def largest(X, y, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    centred = weights * (y - np.average(y, weights=weights))
    return np.abs(X.T @ centred - (X.T @ weights) * centred.sum() / weights.sum()).max() / weights.sum()


CASES = ("plain", "wide", "tall", "copies", "offset", "empty partition", "scales", "weights")


@pytest.mark.covering
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("part", [5, 100])
def test_certificate_is_true(case, part):
    X, y, weights = problem(case)
    lasso = PrioritizedLasso(largest(X, y, weights) / part, tol=1e-9, n_shards=3, positive=part == 5)
    lasso.fit(X, y, weights)
    means = np.average(X.toarray(), axis=0, weights=weights)  # the oracle must not lose its digits to offsets
    level = lasso.intercept_ + means @ lasso.coef_
    gap = lasso_gap(X.toarray() - means, y, lasso.coef_, level, lasso.alpha, weights, lasso.positive)
    null = lasso.tol * np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    assert gap <= 1.1 * null
    alone = lasso.set_params(n_shards=1)
    steps = lasso.n_iter_
    assert steps <= alone.fit(X, y, weights).n_iter_ + 3


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_minimiser_is_that_of_scikit_learn(fit_intercept):
    X, y, _ = problem("plain")
    lasso = PrioritizedLasso(largest(X, y) / 20, tol=1e-12, n_shards=4, fit_intercept=fit_intercept).fit(X, y)
    other = Lasso(lasso.alpha, tol=1e-12, max_iter=10**5, fit_intercept=fit_intercept).fit(X.toarray(), y)
    np.testing.assert_allclose(lasso.coef_, other.coef_, atol=1e-6)
    warm = lasso.set_params(warm_start=True, alpha=1.02 * lasso.alpha).fit(X, y)
    other.set_params(alpha=lasso.alpha).fit(X.toarray(), y)
    np.testing.assert_allclose(warm.coef_, other.coef_, atol=1e-6)


@pytest.fixture
def together(monkeypatch):
    """What came of each time that partitions were to talk to each other."""
    answers, ask = [], DaskPlace.together

    def asked(*arguments):
        answers.append(ask(*arguments))
        return answers[-1]

    monkeypatch.setattr(DaskPlace, "together", asked)
    return answers


def chunked(X, rows):
    def cut(block_info=None):
        [(start, stop), _] = block_info[None]["array-location"]
        return X[start:stop]

    n, p = X.shape
    lengths = tuple(len(range(start, min(start + rows, n))) for start in range(0, n, rows))
    return da.map_blocks(cut, chunks=(lengths, (p,)), meta=sparse.csr_array((1, 1)), dtype=float)


def assert_same(one, other):
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert (one.intercept_, one.dual_gap_, one.n_iter_) == (other.intercept_, other.dual_gap_, other.n_iter_)


@pytest.mark.parametrize("rows", [pytest.param(180, marks=pytest.mark.slow), 450])
def test_same_bits_with_any_team_and_without_one(monkeypatch, client, processes, together, rows):
    X, y, _ = problem("plain")
    alpha, X = largest(X, y) / 5, chunked(X, rows)

    def fit():
        return PrioritizedLasso(alpha, tol=1e-6).fit(X, y)

    here = fit()
    for where in (client, processes):
        together.clear()
        with where.as_current():
            assert_same(fit(), here)
        assert together and all(answer is not None for answer in together)
    monkeypatch.setattr(DaskPlace, "together", lambda *_: None)
    with processes.as_current():
        assert_same(fit(), here)
    assert keys_left(processes) == []


def kill_one(client, noticed):
    """Kill a worker, and wait until the scheduler knows, if it is to."""
    before = {worker.address for worker in live_workers(client)}
    kill_workers(client, 1)
    while noticed and before <= {worker.address for worker in live_workers(client)}:
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "noticed", "first"),
    [("_meet", False, type(None)), ("_meet", True, Told), ("lead", True, Told)],
    ids=["unnoticed", "noticed", "noticed before all"],
)
def test_a_member_that_dies_changes_no_bit(monkeypatch, processes, together, when, noticed, first):
    X, y, _ = problem("plain")
    alpha, X = largest(X, y) / 5, chunked(X, 180)
    here, go_on, killed = PrioritizedLasso(alpha, tol=1e-9).fit(X, y), getattr(Rounds, when), []

    def killing(self, *arguments):
        if not killed:
            kill_one(processes, noticed)
            killed.append(when)
        return go_on(self, *arguments)

    monkeypatch.setattr(Rounds, when, killing)
    if noticed:
        monkeypatch.setattr(dask_place, "WATCH_EVERY", 0.0)  # the fit looks who is there before it sends anything
    with processes.as_current():
        assert_same(PrioritizedLasso(alpha, tol=1e-9).fit(X, y), here)
    assert killed and type(together[0]) is first
    assert keys_left(processes) == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11, 16])
def test_sums_have_the_bits_of_the_tree_whoever_has_what(count):
    rng = np.random.default_rng(count)
    for _ in range(20):
        parts = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(count)]
        owners = rng.integers(0, 4, count)
        said = {}
        for owner in range(4):
            said |= add_up({(0, place): parts[place] for place in range(count) if owners[place] == owner}, count)
        [total] = add_up(said, count).values()
        np.testing.assert_array_equal(total, tree_sum(parts))


def test_blocks_are_parts_of_the_matrix_of_products():
    X, weights = problem("copies")[0], np.random.default_rng(1).random(900) + 0.1
    means = np.average(X.toarray(), axis=0, weights=weights)
    centred = X.toarray() - means
    H = centred.T @ (weights[:, None] * centred)
    pieces = []
    for rows in (slice(0, 400), slice(400, 900)):
        by_columns = sparse.csc_array(X[rows])
        columns = shared_residual.Columns(
            by_columns.data, by_columns.indices.astype(np.int32), by_columns.indptr.astype(np.int64)
        )
        frozen = map(shared_residual.frozen, (columns, weights[rows]))
        pieces.append(shared_residual.Piece(*frozen, by_columns.shape[0]))
    shared = shared_residual.SharedProblem(
        pieces, Alone(), np.diag(H).copy(), means, weights.sum(), np.zeros(700), np.zeros(700), 0.0, L1(1.0),
        shared_residual.Effort(4, 0.3),
    )  # fmt: skip
    change = np.random.default_rng(2).normal(size=700)
    np.testing.assert_allclose(shared.product(change), H @ change, rtol=1e-9, atol=1e-9 * np.abs(H).max())
    blocks: Blocks = shared._blocks()
    assert len(blocks.starts) > 100  # the copies are found
    support = np.flatnonzero(np.random.default_rng(3).random(700) < 0.8)
    for found, place in ((blocks, np.arange(700)), (shared._restricted(blocks, support), support)):
        offset = 0
        for first, last in zip(found.starts[:-1], found.starts[1:], strict=True):
            group, size = place[found.members[first:last]], last - first
            square = found.grams[offset : offset + size**2].reshape(size, size)
            np.testing.assert_allclose(square, H[np.ix_(group, group)], rtol=1e-9, atol=1e-9)
            offset += size**2
