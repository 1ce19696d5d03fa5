"""Both programs of matrix factorisation: the same bits on every runtime, and numbers that an oracle confirms."""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles import mf as oracle

from schmp_estimators.data.ratings import (
    Ratings,
    cut_rotation_shard,
    cut_sorted_shard,
    no_ratings,
    place,
)
from schmp_estimators.engines.serial import run_serial
from schmp_estimators.engines.static import Source, StaticRun
from schmp_estimators.programs.mf_ccd import CcdFactorization, tree_sum
from schmp_estimators.programs.mf_sgd import SgdFactorization
from schmp_estimators.runtime.dask import DaskRuntime
from schmp_estimators.runtime.local import LocalRuntime

N_SWEEPS = 4
N_USERS, N_ITEMS = 60, 45


def make_ratings(seed, density):
    generator = np.random.default_rng(seed)
    matrix = sp.random_array((N_USERS, N_ITEMS), density=density, rng=generator, format="csr", dtype=np.float32)
    matrix.sort_indices()
    values = np.rint(1 + 4 * matrix.data).astype(np.float32)
    return Ratings(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), values, N_ITEMS)


TRAIN, HELD_OUT = make_ratings(0, 0.3), make_ratings(1, 0.05)
SHARED = {"n_components": 11, "mean": float(TRAIN.values.mean()), "scale": float(TRAIN.values.std()), "penalty": 0.05}


def sgd_case(n_shards, held_out=HELD_OUT, **changes):
    program = SgdFactorization(**{**SHARED, "evaluate_every": 1, "validates": True, **changes})
    placements = place(TRAIN, n_shards)
    shards = [cut_rotation_shard(TRAIN, held_out, placements, number) for number in range(n_shards)]
    return program, shards


def ccd_case(n_shards, held_out=HELD_OUT, **changes):
    program = CcdFactorization(n_items=N_ITEMS, **{**SHARED, **changes})
    users = place(TRAIN, n_shards).users
    return program, [cut_sorted_shard(TRAIN, held_out, users, number) for number in range(n_shards)]


def fitted(case, n_shards, harvest):
    """User factors, item factors and both biases, in the order of the data."""
    program, shards = case
    users = [None] * 2
    for array in range(2):
        parts = [(h.factors[:, :11], h.biases)[array] if hasattr(h, "factors") else h[array] for h in harvest.shards]
        users[array] = np.concatenate(parts)[np.argsort(np.concatenate([s.user_ids for s in shards]))]
    if isinstance(program, CcdFactorization):
        items = program.unchunk(harvest.model.items, is_item=True)
    else:
        order = np.argsort(np.concatenate([s.item_ids for s in shards]))
        items = [np.concatenate([b.factors[:, :11] for b in harvest.blocks])[order]]
        items.append(np.concatenate([b.biases for b in harvest.blocks])[order])
    return users[0], items[0], users[1], items[1]


def flat(value):
    return [array for part in value for array in flat(part)] if isinstance(value, tuple | list) else [np.asarray(value)]


def run(case, runtime):
    program, shards = case
    sources = [Source(_pass, (lambda shard=shard: shard,)) for shard in shards]
    with StaticRun(program, sources, runtime, n_sweeps=N_SWEEPS) as going:
        return list(going), going.harvest()


def _pass(shard):
    return shard


def serial(case):
    program, shards = case
    results = list(run_serial(program, shards, N_SWEEPS))
    return [record for record, _, _ in results], results[-1][1]


@pytest.fixture(params=["one thread", "three threads", "dask", "dask, cut every 2 sweeps"])
def runtime(request):
    if "dask" in request.param:
        return DaskRuntime(request.getfixturevalue("client"), cut_every=2 if "cut" in request.param else 25)
    return LocalRuntime(3 if "three" in request.param else 1)


@pytest.mark.parametrize("make", [sgd_case, ccd_case])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_every_runtime_has_the_bits_of_the_serial_engine(runtime, make, n_shards):
    records, harvest = run(make(n_shards), runtime)
    expected_records, expected = serial(make(n_shards))
    assert records == expected_records
    for actual, wanted in zip(flat(tuple(harvest)), flat(tuple(expected)), strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("make", [sgd_case, ccd_case])
@pytest.mark.parametrize("per_rating", [True, False])
@pytest.mark.parametrize("fit_bias", [True, False])
def test_recorded_objective_is_that_of_the_factors(make, per_rating, fit_bias):
    case = make(3, per_rating=per_rating, fit_bias=fit_bias)
    records, harvest = serial(case)
    users, items, user_bias, item_bias = fitted(case, 3, harvest)
    mean = case[0].mean if fit_bias else 0.0
    rows = np.repeat(np.arange(N_USERS), np.diff(TRAIN.indptr))
    counts = np.diff(TRAIN.indptr), np.bincount(TRAIN.items, minlength=N_ITEMS)
    weights = [0.05 * (c if per_rating else np.ones(c.size)) for c in counts]
    if not per_rating and make is sgd_case:  # rows without ratings are not moved, nor penalised
        weights = [w * (c > 0) for w, c in zip(weights, counts, strict=True)]
    factors = users, items, user_bias, item_bias, mean
    loss, penalty = oracle.objective((rows, TRAIN.items, TRAIN.values), *factors, *weights)
    assert records[-1]["objective"] == pytest.approx(loss + penalty, rel=1e-4)
    assert records[-1]["train_rmse"] == pytest.approx(np.sqrt(loss / TRAIN.values.size), rel=1e-4)
    rows = np.repeat(np.arange(N_USERS), np.diff(HELD_OUT.indptr))
    loss, _ = oracle.objective((rows, HELD_OUT.items, HELD_OUT.values), *factors, *weights)
    assert records[-1]["validation_rmse"] == pytest.approx(np.sqrt(loss / HELD_OUT.values.size), rel=1e-4)
    assert np.any(user_bias) == np.any(item_bias) == fit_bias


@pytest.mark.parametrize("changes", [{}, {"positive": True}, {"fit_bias": False}, {"per_rating": False}])
def test_coordinate_descent_never_rises_and_hardly_depends_on_shards(changes):
    records = [serial(ccd_case(n_shards, **changes))[0] for n_shards in (1, 4)]
    for record in records:
        values = [entry["objective"] for entry in record]
        assert (np.diff(values) <= 1e-6 * values[0]).all()
    assert records[0][-1]["objective"] == pytest.approx(records[1][-1]["objective"], rel=1e-4)


@pytest.mark.parametrize("changes", [{}, {"positive": True}, {"fit_bias": False}, {"per_rating": False}])
def test_gradient_descent_falls_and_hardly_depends_on_shards(changes):
    last = []
    for n_shards in (1, 8):
        values = [entry["objective"] for entry in serial(sgd_case(n_shards, **changes))[0]]
        assert values[-1] < values[0]
        last.append(values[-1])
    assert last[0] == pytest.approx(last[1], rel=0.03)


@pytest.mark.parametrize("make", [sgd_case, ccd_case])
def test_resumed_run_equals_uninterrupted_run(make):
    program, shards = make(3)
    saved = list(run_serial(program, shards, 2))[-1][2]
    records = [record for record, _, _ in run_serial(program, shards, N_SWEEPS, saved, 2)]
    assert records == serial(make(3))[0][2:]


def test_positive_factors_are_not_negative():
    for make in (sgd_case, ccd_case):
        for fit_bias in (True, False):
            case = make(2, positive=True, fit_bias=fit_bias)
            users, items, _, _ = fitted(case, 2, serial(case)[1])
            assert users.min() >= 0 and items.min() >= 0 and users.max() > 0


def test_first_factors_do_not_depend_on_shards():
    def start(n_shards):
        program, shards = sgd_case(n_shards)
        outs = [program.start(shard, None, None) for shard in shards]
        order = np.argsort(np.concatenate([shard.user_ids for shard in shards]))
        return np.concatenate([out.state.users.factors for out in outs])[order]

    np.testing.assert_array_equal(start(1), start(5))


def test_without_held_out_ratings_nothing_is_evaluated():
    case = sgd_case(2, no_ratings(N_USERS, N_ITEMS), validates=False, evaluate_every=0)
    records, _ = serial(case)
    assert set(records[0]) == {"running_rmse"}


def test_tree_sum_adds_everything_once():
    assert [tree_sum([np.arange(2) + n for n in range(size)])[0] for size in (1, 2, 5, 8)] == [0, 1, 10, 28]
