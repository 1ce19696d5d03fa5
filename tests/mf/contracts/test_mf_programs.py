"""Programs of matrix factorisation: numbers that an oracle confirms."""

import numpy as np
import pytest
import scipy.sparse as sp
from definition import run_serial
from oracles import mf as oracle

from schmp_estimators.mf.data.ratings import (
    HoldOut,
    ShardPlan,
    count_and_measure,
    held_out_mask,
    make_shard,
    split_ratings,
)
from schmp_estimators.mf.data.scale import Grid
from schmp_estimators.mf.kernels.layout import deal
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.kernels.steps import NORM
from schmp_estimators.mf.programs.ccd import CcdFactorization
from schmp_estimators.mf.programs.implicit import ImplicitFactorization
from schmp_estimators.mf.programs.sgd import BspFactorization, SgdFactorization

N_SWEEPS = 4
N_USERS, N_ITEMS = 60, 45


def make_ratings(seed, density):
    generator = np.random.default_rng(seed)
    matrix = sp.random_array((N_USERS, N_ITEMS), density=density, rng=generator, dtype=np.float32).tocoo()
    order = generator.permutation(matrix.nnz)
    users, items = (ids[order].astype(np.int32) for ids in matrix.coords)
    return RatingBlock(users, items, np.rint(4 * matrix.data[order] - 1.6).astype(np.float32))


RATINGS = make_ratings(0, 0.3)
HOLD_OUT = HoldOut(np.uint64(5), np.uint64(2**61))
HELD_OUT, TRAIN = (
    RatingBlock(*(array[mask] for array in RATINGS))
    for mask in (held_out_mask(RATINGS, HOLD_OUT), ~held_out_mask(RATINGS, HOLD_OUT))
)

SHARED = {"n_components": 11, "mean": float(TRAIN.values.mean()), "penalty": 0.05}


def make_shards(n_shards, program):
    counts = count_and_measure(RATINGS, N_USERS, N_ITEMS, HOLD_OUT, Grid(0.0, 1.0)).counts
    users = deal(counts[:N_USERS], n_shards)
    items = deal(counts[N_USERS:], n_shards if program is SgdFactorization else 1)
    blocks = not issubclass(program, CcdFactorization)
    form = {"keep_seen": True, "twice": program is ImplicitFactorization, "draws": blocks}
    plan = ShardPlan(users, items, counts[N_USERS:], HOLD_OUT, blocks, **form)
    split = split_ratings(RATINGS, users, N_ITEMS)
    return [make_shard(p, plan, split[p])[0] for p in range(n_shards)]


def sgd_case(n_shards, kind=SgdFactorization, **changes):
    program = kind(**{**SHARED, "evaluate_every": 1, "validates": True, **changes})
    return program, make_shards(n_shards, kind)


def bsp_case(n_shards, **changes):
    return sgd_case(n_shards, BspFactorization, **{"learning_rate": 0.1 / n_shards, **changes})


def ccd_case(n_shards, **changes):
    return CcdFactorization(**{**SHARED, **changes}), make_shards(n_shards, CcdFactorization)


def fitted(case, harvest):
    """User factors, item factors and both biases, in the order of the data."""
    program, shards = case
    users, items = program.sides(harvest)
    ids = [shard.user_ids for shard in shards], [shards[0].item_ids]
    if type(program) is SgdFactorization:
        ids = ids[0], [shard.item_ids for shard in shards]
    elif type(program) is CcdFactorization:
        assert all((shard.item_ids == ids[1][0]).all() for shard in shards)
    sides = []
    for groups, numbers in zip((users, items), ids, strict=True):
        order = np.argsort(np.concatenate(numbers))
        sides.append([np.concatenate(parts)[order] for parts in zip(*groups, strict=True)])
    (users, user_bias), (items, item_bias) = sides
    return users, items, user_bias, item_bias


def serial(case):
    program, shards = case
    results = list(run_serial(program, shards, N_SWEEPS))
    return [record for record, _, _ in results], results[-1][1]


@pytest.mark.parametrize("make", [sgd_case, bsp_case, ccd_case])
@pytest.mark.parametrize("per_rating", [True, False])
@pytest.mark.parametrize("fit_bias", [True, False])
def test_recorded_objective_is_that_of_the_factors(make, per_rating, fit_bias):
    case = make(3, per_rating=per_rating, fit_bias=fit_bias)
    records, harvest = serial(case)
    users, items, user_bias, item_bias = fitted(case, harvest)
    counts = np.bincount(TRAIN.users, minlength=N_USERS), np.bincount(TRAIN.items, minlength=N_ITEMS)
    weights = [0.05 * (c if per_rating else np.ones(c.size)) for c in counts]
    if not per_rating and make is not ccd_case:  # rows without ratings are not moved, nor penalised
        weights = [w * (c > 0) for w, c in zip(weights, counts, strict=True)]
    factors = users, items, user_bias, item_bias, 0.0
    loss, penalty = oracle.objective(TRAIN, *factors, *weights)
    assert records[-1]["objective"] == pytest.approx(loss + penalty, rel=1e-4)
    assert records[-1]["train_rmse"] == pytest.approx(np.sqrt(loss / TRAIN.values.size), rel=1e-4)
    loss, _ = oracle.objective(HELD_OUT, *factors, *weights)
    assert records[-1]["validation_rmse"] == pytest.approx(np.sqrt(loss / HELD_OUT.values.size), rel=1e-4)
    assert np.any(user_bias) == np.any(item_bias) == fit_bias


@pytest.mark.parametrize("changes", [{}, {"positive": True}, {"fit_bias": False}, {"per_rating": False}])
def test_gradient_descent_falls_and_hardly_depends_on_shards(changes):
    last = []
    for n_shards in (1, 8):
        values = [entry["objective"] for entry in serial(sgd_case(n_shards, **changes))[0]]
        assert values[-1] < values[0]
        last.append(values[-1])
    assert last[0] == pytest.approx(last[1], rel=0.03)


@pytest.mark.parametrize("make", [sgd_case, bsp_case])
def test_lengths_of_rows_stay_true(make):
    program, shards = make(3)
    *_, (_, _, saved) = run_serial(program, shards, 3)
    for block in [*saved.shards, *(saved.blocks or [saved.model.items])]:
        np.testing.assert_allclose(block.numbers[:, NORM], (block.factors**2).sum(axis=1), rtol=1e-3, atol=1e-5)


def test_copies_need_a_smaller_step_than_rotation():
    def last(make, rate):
        return serial(make(15, learning_rate=rate))[0][-1]["objective"]

    assert last(sgd_case, 0.4) < 1.05 * last(lambda _, **changes: sgd_case(1, **changes), 0.4)
    assert not last(bsp_case, 0.4) < 1.5 * last(sgd_case, 0.4)  # or no number at all
    assert last(bsp_case, 0.05) < 1.05 * last(sgd_case, 0.05)
