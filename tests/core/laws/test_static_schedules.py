"""What static schedules promise: who meets whom, once, in how many steps."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from schmp_estimators.schmp import schedule_from_costs, schedule_rotation


def meetings(order):
    """Return all pairs in the order of steps; fail where two shards meet one block, or a line has another form."""
    for step in order:
        blocks = [block for block in step if block != -1]
        assert len(set(blocks)) == len(blocks)
        assert type(step) is tuple and all(type(block) is int for block in step)
    assert type(order) is tuple
    return [(shard, block) for step in order for shard, block in enumerate(step) if block != -1]


# Rotations


@given(n_shards=st.integers(1, 12), n_blocks=st.integers(1, 12))
def test_in_a_rotation_every_shard_meets_every_block_once(n_shards, n_blocks):
    order = schedule_rotation(n_shards, n_blocks)
    assert len(order) == max(n_shards, n_blocks)
    assert {len(step) for step in order} == {n_shards}
    assert sorted(meetings(order)) == [(p, b) for p in range(n_shards) for b in range(n_blocks)]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((0,), "n_shards is 0; .* at least 1"), ((2, 0), "n_blocks is 0; .* None for"), ((0, 2), "n_shards is 0")],
)
def test_bad_sizes_of_a_rotation(sizes, message):
    with pytest.raises(ValueError, match=message):
        schedule_rotation(*sizes)


# Orders from costs


@st.composite
def costs(draw):
    """Sparse and full patterns of all shapes, with costs that are equal, alike or far apart."""
    n_shards, n_blocks = draw(st.sampled_from([(1, 9), (9, 1), (3, 60), (60, 3), (5, 5), (8, 7), (13, 13)]))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    law = draw(st.sampled_from(["one", "few", "exponential"]))
    shape = (n_shards, n_blocks)
    values = {"one": np.ones(shape), "few": rng.integers(1, 4, shape), "exponential": rng.exponential(size=shape) + 0.1}
    return values[law] * (rng.random(shape) < draw(st.sampled_from([0.05, 0.3, 0.8, 1.0])))


@given(cost=costs())
def test_every_positive_pair_meets_once_in_as_few_steps_as_there_can_be(cost):
    order = schedule_from_costs(cost)
    assert sorted(meetings(order)) == list(zip(*(index.tolist() for index in np.nonzero(cost)), strict=True))
    assert len(order) == max((cost > 0).sum(axis=0).max(), (cost > 0).sum(axis=1).max())
    assert {len(step) for step in order} <= {len(cost)}
    dearest = [max(cost[p, b] for p, b in enumerate(step) if b >= 0) for step in order]
    assert dearest == sorted(dearest, reverse=True)


@settings(max_examples=25)
@given(cost=costs(), seed=st.integers(0, 100))
def test_the_form_of_the_costs_and_their_unit_do_not_matter(cost, seed):
    expected = schedule_from_costs(cost)
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_array, np.asfortranarray, np.ndarray.tolist):
        assert schedule_from_costs(form(cost)) == expected
    assert schedule_from_costs(4 * cost) == expected
    # entries in any order, some of them in two parts
    coo, rng = sp.coo_array(cost), np.random.default_rng(seed)
    mixed = rng.permutation(2 * coo.nnz) % max(coo.nnz, 1)
    halves = sp.coo_array((coo.data[mixed] / 2, (coo.row[mixed], coo.col[mixed])), cost.shape)
    assert schedule_from_costs(halves) == expected


def test_what_is_stored_twice_is_added_and_costs_stay_as_they_were():
    data, columns = np.array([1.0, 2.0, 0.0, 3.0, 2.0]), np.array([1, 0, 2, 1, 1])
    stored = sp.csr_array((data, columns, np.array([0, 3, 5])), (2, 3))
    for part in (stored.data, stored.indices, stored.indptr):
        part.flags.writeable = False
    assert schedule_from_costs(stored) == ((0, 1), (1, -1))
    assert stored.indices.tolist() == [1, 0, 2, 1, 1] and stored.nnz == 5
    # together, what stands twice is the dearest: it goes first, and with it the other pair that is apart
    twice = sp.csr_array((np.array([2.0, 2.0, 3.0, 1.0]), np.array([0, 0, 1, 1]), np.array([0, 3, 4])), (2, 2))
    assert schedule_from_costs(twice) == ((0, 1), (1, -1))


def waits(cost, order):
    return sum(max(cost[p, b] for p, b in enumerate(step) if b >= 0) for step in order)


def least_wait(cost):
    """Return a bound for all orders: if somebody has k pairs of cost c or more, then k steps cost c or more."""
    size = max(cost.shape)
    square = np.zeros((size, size))
    square[: cost.shape[0], : cost.shape[1]] = cost
    return np.maximum(np.sort(square, axis=0).T, np.sort(square, axis=1)).max(axis=0).sum()


@pytest.mark.parametrize(("shape", "share"), [((20, 20), 0.2), ((12, 60), 0.2), ((60, 12), 0.2), ((32, 32), 1.0)])
def test_what_steps_wait_for_is_near_the_least_that_any_order_waits_for(shape, share):
    ratios = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cost = rng.exponential(size=shape) * (rng.random(shape) < share)
        waited, least = waits(cost, schedule_from_costs(cost)), least_wait(cost)
        assert least * (1 - 1e-12) <= waited <= waits(cost, schedule_rotation(*shape))
        ratios.append(waited / least)
    assert np.median(ratios) < (1.03 if share < 1 else 1.3)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([1.0, 2.0], r"cost has shape \(2,\); give a table with a row for each shard"),
        (np.ones((2, 2, 2)), r"cost has shape \(2, 2, 2\)"),
        (np.ones((0, 3)), r"cost has shape \(0, 3\)"),
        (sp.csr_array((3, 0)), r"cost has shape \(3, 0\)"),
        ([["a", "b"]], "cost has dtype <U1; give real numbers"),
        ([[1j]], "cost has dtype complex128; give real numbers"),
        ([[0.0, 1.0], [2.0, -3.0]], r"cost\[1, 1\] is -3.0; costs must be finite and at least 0"),
        ([[0.0, np.nan]], r"cost\[0, 1\] is nan; "),
        (sp.csr_array([[0.0, 1.0], [np.inf, 0.0]]), r"cost\[1, 0\] is inf; "),
    ],
)
def test_bad_costs(cost, message):
    with pytest.raises(ValueError, match=message):
        schedule_from_costs(cost)
