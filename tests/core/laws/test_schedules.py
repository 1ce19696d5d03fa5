"""What schedules promise: who is drawn and who meets whom, against laws and NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from schmp_estimators.core.schedules.dynamic_regression import (
    Check,
    PrioritySampler,
    RandomSampler,
    RoundRobin,
    independent_set,
)
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.jobs import Sums
from schmp_estimators.linear.programs.rounds import Round, _correlations
from schmp_estimators.schmp import (
    schedule_dynamic_regression,
    schedule_from_costs,
    schedule_rotation,
)

NONE = np.empty(0, np.int64)


def test_conflicts_have_either_sign():
    apart = np.array([[1.0, -0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert independent_set(apart, 0.5, 3).tolist() == [0, 2]
    in_flight = np.array(
        [[0.0, 0.1], [-0.9, 0.0], [0.2, 0.7]]
    )  # with two that are under way: each may forbid
    assert independent_set(np.eye(3), 0.5, 3, in_flight).tolist() == [0]
    for most in (1, 2, 3):
        assert len(independent_set(np.eye(4), 0.5, most)) == most


@given(seed=st.integers(0, 1000), threshold=st.floats(0.05, 0.9), most=st.integers(1, 20))
def test_independent_sets_are_independent_and_start_with_the_most_urgent(seed, threshold, most):
    rng = np.random.default_rng(seed)
    correlations = np.corrcoef(rng.normal(size=(20, 10)))
    chosen = independent_set(correlations, threshold, most)
    assert chosen[0] == 0 and len(chosen) <= most
    between = np.abs(correlations[np.ix_(chosen, chosen)] - np.eye(len(chosen)))
    assert between.max() <= threshold + 1e-12
    guarded = independent_set(correlations, threshold, most, correlations[:, :1])
    assert not len(guarded) or np.abs(correlations[guarded, 0]).max() <= threshold


def test_draws_come_in_their_own_order_or_the_most_urgent_first():
    none, random = np.empty(0, int), np.random.default_rng(0)
    first = {
        "random": RandomSampler(1000, random),
        "priority": PrioritySampler(1000, random, uniform_part=1.0),
    }
    for sampler in first.values():
        leaders = [int(sampler.draw(50, none)[0]) for _ in range(200)]
        assert 300 < np.mean(leaders) < 700
    first["priority"].refresh(np.arange(1000.0))
    assert (np.diff(first["priority"].draw(50, none)) < 0).all()
    turns = RoundRobin(5)
    assert turns.draw(4, none).tolist() == [0, 1, 2, 3]
    assert turns.draw(4, np.array([0])).tolist() == [4, 1, 2]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("n_partitions", [1, 3])
def test_correlations_are_those_of_weighted_columns_less_their_means(form, weighted, n_partitions):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 8)) + 3.0) * (rng.random((60, 8)) < 0.7)
    X[:, 7] = 2.0  # correlates with nothing
    weights = rng.random(60) + 0.1 if weighted else np.empty(0)
    check = Check(np.array([1, 4, 7]), np.array([0, 2, 6]))
    design = Design(60)
    rows = split_rows(form(X), np.zeros(60), weights, n_partitions)
    job = Round(NONE, np.empty(0), 0.0, NONE, check, np.empty(0), None)
    products = sum(job(one)[1][2] for one in rows)
    moments = [one.matrix.moments(one.weights, np.zeros(one.matrix.n_rows)) for one in rows]
    total = weights.sum() if weighted else 60.0
    sums, squares, _ = map(sum, zip(*moments, strict=True))
    design.set_moments(Sums(total, 0.0, sums, squares, 0.0))
    both = [1, 4, 7, 0, 2, 6]
    expected = np.zeros((3, 6))
    known = [both.index(column) for column in both if column != 7]
    covariance = np.cov(X[:, both].T, aweights=weights if weighted else None)
    scale = np.sqrt(np.diag(covariance))
    expected[np.ix_([0, 1], known)] = (covariance[:2] / np.outer(scale[:2], scale + (scale == 0)))[
        :, known
    ]
    np.testing.assert_allclose(_correlations(design, check, products), expected, atol=1e-12)


N_DRAWS = 2_000
CHANGES = np.array([0.0, 0.5, -1.0, 2.0, 3.0, 0.1, -0.4, 1.5, 2.5, 0.7, 0.0, 1.0, -2.0, 0.3])
ORDERS = ["priority", "random", "round_robin"]


def make(n_schedulers, n_parameters=14, n_parallel=1, **options):
    return schedule_dynamic_regression(
        n_parameters, n_parallel=n_parallel, n_schedulers=n_schedulers, random_state=0, **options
    )


def rounds(schedule, count, correlation=None):
    """Yield what is chosen, and the check, of rounds one after the other."""
    for _ in range(count):
        chosen, check = schedule.next_round()
        yield chosen, check
        both = None if check is None else np.concatenate([check.candidates, check.others])
        schedule.answer(
            check, None if check is None else correlation[np.ix_(check.candidates, both)]
        )


# What is drawn


@pytest.mark.covering
@pytest.mark.parametrize("told", ["refresh", "record"])
@pytest.mark.parametrize("n_schedulers", [1, 2, 4])
def test_each_scheduler_draws_by_the_priorities_of_its_slice(n_schedulers, told):
    schedule = make(n_schedulers, max_correlation=None)
    if told == "refresh":
        schedule.sampler.refresh(CHANGES)
    else:  # in another order, in two parts
        order = np.random.default_rng(0).permutation(len(CHANGES))
        for part in (order[:5], order[5:]):
            schedule.sampler.record(part, CHANGES[part])
    drawn = np.array([int(chosen[0]) for chosen, _ in rounds(schedule, N_DRAWS)])
    for number in range(n_schedulers):
        own, turns = np.arange(number, len(CHANGES), n_schedulers), drawn[number::n_schedulers]
        assert set(turns.tolist()) <= set(own.tolist())
        squares = CHANGES[own] ** 2
        law = 0.9 * squares / squares.sum() + 0.1 / len(own)  # by definition of the sampler
        counts = np.bincount(turns, minlength=len(CHANGES))[own]
        assert chisquare(counts, len(turns) * law).pvalue > 1e-3


@pytest.mark.covering
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("max_correlation", [None, 0.5])
@pytest.mark.parametrize(("n_schedulers", "n_parameters"), [(1, 8), (2, 13), (4, 30), (5, 10)])
def test_every_parameter_is_drawn_in_the_turn_of_its_scheduler(
    n_schedulers, n_parameters, max_correlation, order
):
    schedule = make(n_schedulers, n_parameters, 2, max_correlation=max_correlation, order=order)
    schedule.sampler.refresh(np.zeros(n_parameters))
    lag, seen = max_correlation is not None, set()
    for turn, (chosen, check) in enumerate(rounds(schedule, 600, np.eye(n_parameters))):
        assert set((chosen % n_schedulers).tolist()) <= {(turn - lag) % n_schedulers}
        if lag:
            assert set((check.candidates % n_schedulers).tolist()) <= {turn % n_schedulers}
        assert len(set(chosen.tolist())) == len(chosen) <= 2
        seen |= set(chosen.tolist())
    assert seen == set(range(n_parameters))


def test_the_same_seed_draws_the_same_and_generators_of_any_kind_will_do():
    def draws(random):
        options = {
            "n_parallel": 3,
            "max_correlation": None,
            "n_schedulers": 3,
            "random_state": random,
        }
        return [
            chosen.tolist() for chosen, _ in rounds(schedule_dynamic_regression(39, **options), 20)
        ]

    assert draws(7) == draws(7) == draws(np.random.default_rng(7)) != draws(8)
    once, again = (np.random.Generator(np.random.MT19937(1)) for _ in range(2))
    again.bit_generator.state = once.bit_generator.state
    assert draws(once) == draws(again)
    apart = [[[j // 3 for j in chosen] for chosen in draws(7)[number::3]] for number in range(3)]
    assert apart[0] != apart[1] != apart[2]  # each scheduler has draws of its own


# What is under way


@pytest.mark.covering
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("n_schedulers", [2, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_no_two_correlated_parameters_are_under_way_whoever_chose_them(order, n_schedulers, depth):
    """Three neighbours are correlated with each other; they belong to different schedulers."""
    groups = np.arange(36) // 3
    correlation = np.where(np.equal.outer(groups, groups), -0.8, 0.0)
    schedule = make(n_schedulers, 36, 3, max_correlation=0.5, order=order, pipeline_depth=depth)
    under_way, n_left_out = [], 0
    counts = np.zeros(36, int)
    for _ in range(300):
        while len(under_way) < depth:
            chosen, check = schedule.next_round()
            under_way.append((chosen, check))
            flying = np.concatenate([chosen for chosen, _ in under_way])
            assert len(set(groups[flying].tolist())) == len(flying)
            # draws know what is under way or waits for its turn
            assert not set(check.candidates.tolist()) & set(check.others.tolist())
            assert set(flying.tolist()) <= set(check.others.tolist())
        chosen, check = under_way.pop(0)
        counts[chosen] += 1
        n_left_out += len(chosen) < 3
        schedule.answer(check, correlation[np.ix_(check.candidates, np.concatenate(check))])
    assert counts.min() > 0
    assert counts.sum() > 300
    assert n_left_out > 0


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_schedulers": 0}, "n_schedulers=0 must be an integer of at least 1"),
        ({"n_schedulers": 2.0}, "n_schedulers=2.0 must be an integer"),
        (
            {"n_schedulers": 4, "n_parallel": 3},
            "n_schedulers=4 leaves less than n_parallel=3 .*; take at most 3",
        ),
        ({"n_parameters": 0}, "n_parameters=0 must be"),
        ({"n_parallel": True}, "n_parallel=True must be"),
        ({"n_parallel": 11}, "n_parallel=11 is more than n_parameters=10"),
        ({"max_correlation": 1.5}, "max_correlation=1.5 must be from 0 to 1, or None"),
        ({"order": "best"}, "order='best' is unknown; use one of"),
        ({"pipeline_depth": 0}, "pipeline_depth=0 must be"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"n_parameters": 10, "n_parallel": 2, **change}
    with pytest.raises(ValueError, match=message):
        schedule_dynamic_regression(arguments.pop("n_parameters"), **arguments)


# Rotations, and orders from costs


def meetings(order):
    """Return all pairs in the order of steps; fail where two shards meet one block, or a line has another form."""
    for step in order:
        blocks = [block for block in step if block != -1]
        assert len(set(blocks)) == len(blocks)
        assert type(step) is tuple and all(type(block) is int for block in step)
    assert type(order) is tuple
    return [(shard, block) for step in order for shard, block in enumerate(step) if block != -1]


@given(n_shards=st.integers(1, 12), n_blocks=st.integers(1, 12))
def test_in_a_rotation_every_shard_meets_every_block_once(n_shards, n_blocks):
    order, n = schedule_rotation(n_shards, n_blocks), max(n_shards, n_blocks)
    asked = [[(shard + step) % n for shard in range(n_shards)] for step in range(n)]
    assert [[*step] for step in order] == [
        [b if b < n_blocks else -1 for b in step] for step in asked
    ]
    assert sorted(meetings(order)) == [(p, b) for p in range(n_shards) for b in range(n_blocks)]


@st.composite
def costs(draw):
    """Sparse and full patterns of all shapes, with costs that are equal, alike or far apart."""
    n_shards, n_blocks = draw(
        st.sampled_from([(1, 9), (9, 1), (3, 60), (60, 3), (5, 5), (8, 7), (13, 13)])
    )
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    law = draw(st.sampled_from(["one", "few", "exponential"]))
    shape = (n_shards, n_blocks)
    values = {
        "one": np.ones(shape),
        "few": rng.integers(1, 4, shape),
        "exponential": rng.exponential(size=shape) + 0.1,
    }
    return values[law] * (rng.random(shape) < draw(st.sampled_from([0.05, 0.3, 0.8, 1.0])))


@given(cost=costs())
def test_every_positive_pair_meets_once_in_as_few_steps_as_there_can_be(cost):
    order = schedule_from_costs(cost)
    assert sorted(meetings(order)) == list(
        zip(*(index.tolist() for index in np.nonzero(cost)), strict=True)
    )
    assert len(order) == max((cost > 0).sum(axis=0).max(), (cost > 0).sum(axis=1).max())
    assert {len(step) for step in order} <= {len(cost)}
    dearest = [max(cost[p, b] for p, b in enumerate(step) if b >= 0) for step in order]
    assert dearest == sorted(dearest, reverse=True)


@settings(max_examples=25)
@given(cost=costs())
def test_the_form_of_the_costs_and_their_unit_do_not_matter(cost):
    expected = schedule_from_costs(cost)
    for form in (
        sp.csr_array,
        sp.csc_matrix,
        sp.coo_array,
        sp.lil_array,
        np.asfortranarray,
        np.ndarray.tolist,
    ):
        assert schedule_from_costs(form(cost)) == expected
    assert schedule_from_costs(4 * cost) == expected
    # each entry in two parts, which stay apart in what the caller has
    once = sp.csr_array(cost)
    shares = 1.0 / (1 + np.arange(once.nnz) % 2)
    parts = np.column_stack([shares * once.data, (1.0 - shares) * once.data]).ravel()
    twice = sp.csr_array((parts, np.repeat(once.indices, 2), 2 * once.indptr), cost.shape)
    assert schedule_from_costs(twice) == expected
    assert twice.nnz == 2 * once.nnz


def test_pairs_of_similar_cost_share_a_step():
    assert schedule_from_costs([[5, 0, 1], [0, 5, 0], [1, 0, 5]]) == ((0, 1, 2), (2, -1, 0))
    # the most expensive of three steps cost 5, 4 and 2: no order has a smaller sum
    assert schedule_from_costs([[2, 4, 1], [2, 1, 1], [5, 4, 0]]) == (
        (1, 2, 0),
        (2, 0, 1),
        (0, 1, -1),
    )


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


def test_bad_sizes_of_a_rotation():
    for sizes, message in (
        ((0,), "n_shards is 0; .* at least 1"),
        ((2, 0), "n_blocks is 0; .* None for"),
        ((0, 2), "n_shards is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            schedule_rotation(*sizes)
