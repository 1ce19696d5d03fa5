"""What schedules promise: who is drawn and who meets whom, against laws and NumPy."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from schmp_estimators.core.schedules.dynamic import SCHEDULES
from schmp_estimators.core.schedules.dynamic_regression import Check, RowSample, independent_set
from schmp_estimators.core.schedules.samplers import (
    PrioritySampler,
    RandomSampler,
    RoundRobinSampler,
)
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.jobs import Sums
from schmp_estimators.linear.programs.joint_jobs import Begin
from schmp_estimators.linear.programs.rounds import Round, _correlations
from schmp_estimators.schmp import Priority, Random, schedule_from_costs, schedule_rotation

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
    turns = RoundRobinSampler(5)
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
    begin = Begin(1, 0.0, False, None, 1.0)
    rows = [begin(one)[0] for one in split_rows(form(X), np.zeros(60), weights, n_partitions)]
    job = Round(NONE, np.empty(0), np.empty((1, 0)), NONE, check, np.empty(0), Squared())
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


def make(n_schedulers, n_parameters=14, n_parallel=1, order="priority", **options):
    schedule = SCHEDULES[order](n_parallel, n_schedulers=n_schedulers, **options)
    return schedule.start(n_parameters, random_state=0)


def rounds(schedule, count, correlation=None):
    """Yield what is chosen, and the check, of rounds one after the other."""
    for _ in range(count):
        chosen, check = schedule.next_round()
        yield chosen, check
        schedule.answer(
            check, None if check is None else correlation[np.ix_(check.candidates, check.both)]
        )


# What is drawn


@pytest.mark.covering
@pytest.mark.parametrize("told", ["refresh", "record"])
@pytest.mark.parametrize("n_schedulers", [1, 2, 4])
def test_each_scheduler_draws_by_the_priorities_of_its_slice(n_schedulers, told):
    schedule = make(n_schedulers, max_correlation=None)
    if told == "refresh":
        schedule.refresh(CHANGES)
    else:  # in another order, in two parts
        order = np.random.default_rng(0).permutation(len(CHANGES))
        for part in (order[:5], order[5:]):
            schedule.record(part, CHANGES[part])
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
    schedule.refresh(np.zeros(n_parameters))
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
        schedule = Priority(3, max_correlation=None, n_schedulers=3).start(39, random)
        return [chosen.tolist() for chosen, _ in rounds(schedule, 20)]

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
        schedule.answer(check, correlation[np.ix_(check.candidates, check.both)])
    assert counts.min() > 0
    assert counts.sum() > 300
    assert n_left_out > 0


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *[({name: 0}, f"'{name}' parameter of Priority must be") for name in (
            "n_schedulers", "n_parallel", "pipeline_depth", "oversample", "correlation_rows",
            "refresh", "weight",
        )],
        ({"n_schedulers": 2.0}, "'n_schedulers' parameter"),
        ({"max_correlation": 1.0}, "'max_correlation' parameter"),
        ({"moved_above": -1.0}, "'moved_above' parameter"),
        ({"refresh": "never"}, "'refresh' parameter"),
        ({"n_parameters": 0}, "n_parameters=0 must be an integer of at least 1"),
        (
            {"max_correlation": None, "oversample": 3.0},
            "oversample=3.0 of Priority needs max_correl",
        ),
        ({"max_correlation": None, "correlation_rows": 9}, "correlation_rows=9 of Priority needs"),
    ],
)  # fmt: skip
def test_bad_arguments(change, message):
    arguments = {"n_parameters": 10, **change}
    n_parameters = arguments.pop("n_parameters")
    with pytest.raises(ValueError, match=message):
        Priority(**arguments).start(n_parameters)


@pytest.mark.parametrize(
    "returned",
    [
        [1.0, np.nan],
        [1.0, -1.0],
        [1.0],
        1.0,
        [[1.0, 2.0]],
        ["a", "b"],
        [None, None],
        [1j, 2.0],
        None,
    ],
)
def test_weights_that_are_no_priorities_are_refused(returned):
    schedule = Priority(1, weight=lambda changes: returned).start(2)
    with pytest.raises(ValueError, match=r"weight=<lambda> must return a number of at least 0 for"):
        schedule.record(np.arange(2), np.ones(2))


@pytest.mark.parametrize("changes", [[1.0, np.nan], [1.0], 1.0, np.ones((2, 1))])
def test_changes_that_are_no_numbers_for_the_parameters_are_refused(changes):
    schedule = Priority(1).start(2)
    with pytest.raises(ValueError, match=r"changes must be numbers of shape \(2,\); got"):
        schedule.record(np.arange(2), changes)
    with pytest.raises(ValueError, match=r"changes must be numbers of shape \(2,\); got"):
        schedule.refresh(changes)


def test_correlations_of_another_shape_are_refused():
    schedule = Priority(2).start(6, random_state=0)
    _, check = schedule.next_round()
    n_candidates = len(check.candidates)
    for shape in ((n_candidates,), (n_candidates, 99), (6, 6)):
        with pytest.raises(
            ValueError, match=rf"correlations of shape {re.escape(str(shape))} do not"
        ):
            schedule.answer(check, np.zeros(shape))
    with pytest.raises(ValueError, match="correlations of shape None do not answer"):
        schedule.answer(check, None)


# Options of the papers


def test_priorities_of_ones_own_are_the_law_of_draws():
    """Not squares but roots: by definition of the sampler, a tenth of the draws is uniform."""
    schedule = make(1, max_correlation=None, weight=lambda changes: np.sqrt(np.abs(changes)))
    schedule.refresh(CHANGES)
    drawn = [int(chosen[0]) for chosen, _ in rounds(schedule, N_DRAWS)]
    roots = np.sqrt(np.abs(CHANGES))
    law = 0.9 * roots / roots.sum() + 0.1 / len(CHANGES)
    counts = np.bincount(drawn, minlength=len(CHANGES))
    assert chisquare(counts, N_DRAWS * law).pvalue > 1e-3


def test_functions_of_users_change_nothing_and_huge_weights_keep_their_order():
    def spoiled(changes):
        changes *= 0.0
        return np.array([1e308, 1e308, 0.0])

    whether = make(1, 4, max_correlation=None, weight=lambda changes: changes > 0)
    whether.refresh(np.array([0.0, 1.0, 0.0, 2.0]))
    assert np.mean([int(chosen[0]) % 2 for chosen, _ in rounds(whether, 200)]) > 0.85
    schedule, changes = make(1, 3, max_correlation=None, weight=spoiled), np.ones(3)
    schedule.refresh(changes)
    assert (changes == 1.0).all()
    drawn = np.bincount([int(chosen[0]) for chosen, _ in rounds(schedule, 500)], minlength=3)
    assert drawn[:2].min() > 150 and drawn[2] < 60


@pytest.mark.parametrize(("oversample", "wanted"), [(1.0, 4), (1.3, 6), (2.0, 8), (5, 20)])
def test_so_many_candidates_are_drawn(oversample, wanted):
    schedule = make(1, 50, 4, order="random", max_correlation=0.5, oversample=oversample)
    for chosen, check in list(rounds(schedule, 20, np.eye(50)))[3:]:
        assert len(chosen) <= 4
        assert wanted - len(check.others) <= len(check.candidates) <= wanted


@given(key=st.integers(0, 2**64 - 1), cut=st.integers(0, 40), n_drawn=st.integers(1, 60))
def test_each_drawn_row_is_in_one_part(key, cut, n_drawn):
    sample = RowSample(key, n_drawn)
    whole = sample.within(40, 0, 40)
    parts = np.concatenate([sample.within(40, 0, cut), cut + sample.within(40, cut, 40)])
    assert len(whole) == n_drawn and sorted(whole) == sorted(parts)


def test_rows_are_drawn_anew_for_each_check_and_uniformly():
    schedule = make(1, 20, 2, correlation_rows=50, order="random", max_correlation=0.5)
    samples = [check.rows for _, check in rounds(schedule, 100, np.eye(20))]
    counts = np.sum([np.bincount(one.within(10, 0, 10), minlength=10) for one in samples], axis=0)
    assert len(set(samples)) == 100 and chisquare(counts).pvalue > 1e-3


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray, sp.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_sampled_correlations_are_unbiased_and_within_their_bound(form, weighted):
    """The bound is that of `Priority`; with weights s values are √(s n / Σs) times as large."""
    rng, n_drawn, n_samples = np.random.default_rng(0), 200, 300
    X = rng.normal(size=(500, 6)) * (rng.random((500, 6)) < 0.8) + 1.0
    X[:, 1] += X[:, 0]
    weights = rng.random(500) + 0.5 if weighted else np.empty(0)
    given, check = weights if weighted else np.ones(500), Check(np.arange(3), np.arange(3, 6))
    begin, design = Begin(1, 0.0, False, None, 1.0), Design(500)
    rows = [begin(one)[0] for one in split_rows(form(X), np.zeros(500), weights, 3)]
    means = np.average(X, axis=0, weights=given)
    spread = given @ (X - means) ** 2
    design.means, design.norms, design.total_weight = means, spread, given.sum()
    z = (X - means) * np.sqrt(given[:, None] * 500 / spread)
    exact = (z.T @ z / 500)[:3]
    found = []
    for key in range(n_samples):
        one = check._replace(rows=RowSample(key, n_drawn))
        job = Round(NONE, np.empty(0), np.empty((1, 0)), NONE, one, means, Squared(), 500)
        found.append(_correlations(design, one, sum(job(part)[1][2] for part in rows)))
    [whole] = split_rows(form(X), np.zeros(500), weights, 1)  # whose rows have the same numbers
    whole, _ = begin(whole)
    np.testing.assert_allclose(found[-1], _correlations(design, one, job(whole)[1][2]), rtol=1e-9)
    errors, most = np.array(found) - exact, np.abs(z).max()
    spreads = most / np.sqrt(n_drawn)
    assert errors.std(axis=0).max() <= spreads
    assert np.abs(errors.mean(axis=0)).max() <= 5 * spreads / np.sqrt(n_samples)
    far = most**2 * np.sqrt(2 * np.log(20) / n_drawn)  # exceeded with a probability of a tenth
    assert (np.abs(errors) > far).mean() <= 0.1


def test_moves_count_updates_and_know_the_last_large_change():
    schedule = make(1, 4, 2, order="round_robin", moved_above=0.5)
    told = [np.array([1.0, 0.4]), np.array([-0.6, 0.5]), np.array([0.1, 0.9]), np.array([0.0, 0.0])]
    for (chosen, _), changes in zip(rounds(schedule, 4), told, strict=True):
        schedule.record(chosen, changes)
    assert schedule.moves.n_updates.tolist() == [2, 2, 2, 2]
    assert schedule.moves.last_moved.tolist() == [0.5, 1.5, 1.0, 0.0]
    assert make(1).moves is None


def test_rounds_become_smaller_only_if_their_size_is_not_given():
    free, given = Random().start(100), Random(64).start(100)
    sizes = []
    while free.halve():
        sizes.append(free.n_parallel)
    assert sizes == [32, 16, 8, 4, 2, 1] and not given.halve() and given.n_parallel == 64
    again = Random().start(100)
    again.restore(free.save())
    assert again.n_parallel == 1
    assert Random().start(3).n_parallel == 3


# Rotations, and orders from costs


def meetings(order):
    """Return all pairs in the order of steps.

    Fail where two shards meet one block, or a line has another form.
    """
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
