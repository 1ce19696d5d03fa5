"""Several schedulers, each of which owns a slice of the parameters: what they draw, and that they do not clash."""

import numpy as np
import pytest
from scipy.stats import chisquare

from schmp_estimators.core.schedules.dynamic_regression import PrioritySampler, RandomSampler, RoundRobin
from schmp_estimators.schmp import schedule_dynamic_regression

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
        schedule.answer(check, None if check is None else correlation[np.ix_(check.candidates, both)])


def tell(schedule, told, changes=CHANGES):
    if told == "refresh":
        schedule.sampler.refresh(changes)
    else:  # in another order, in two parts
        order = np.random.default_rng(0).permutation(len(changes))
        for part in (order[:5], order[5:]):
            schedule.sampler.record(part, changes[part])


def expected_in(own):
    """Return the probabilities of the parameters `own`, a slice, in one draw: by definition of the sampler."""
    squares = CHANGES[own] ** 2
    return 0.9 * squares / squares.sum() + 0.1 / len(own)


def p_values(schedule, n_schedulers):
    """Return for each slice the p-value of the frequencies in the rounds of its scheduler."""
    drawn = np.array([int(chosen[0]) for chosen, _ in rounds(schedule, N_DRAWS)])
    values = []
    for number in range(n_schedulers):
        own = np.arange(number, len(CHANGES), n_schedulers)
        turns = drawn[number::n_schedulers]
        assert set(turns.tolist()) <= set(own.tolist())
        counts = np.bincount(turns, minlength=len(CHANGES))[own]
        values.append(chisquare(counts, len(turns) * expected_in(own)).pvalue)
    return np.array(values)


# What is drawn


@pytest.mark.covering
@pytest.mark.parametrize("told", ["refresh", "record"])
@pytest.mark.parametrize("n_schedulers", [2, 4])
def test_each_scheduler_draws_by_the_priorities_of_its_slice(n_schedulers, told):
    schedule = make(n_schedulers, max_correlation=None)
    tell(schedule, told)
    assert (p_values(schedule, n_schedulers) > 1e-3).all()


@pytest.mark.covering
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("max_correlation", [None, 0.5])
@pytest.mark.parametrize(("n_schedulers", "n_parameters"), [(1, 8), (2, 13), (4, 30), (5, 10)])
def test_every_parameter_is_drawn_in_the_turn_of_its_scheduler(n_schedulers, n_parameters, max_correlation, order):
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


@pytest.mark.parametrize("order", ORDERS)
def test_one_scheduler_draws_what_a_sampler_of_all_parameters_draws(order):
    random = np.random.default_rng(0)
    samplers = PrioritySampler(40, random), RandomSampler(40, random), RoundRobin(40)
    alone = samplers[ORDERS.index(order)]
    assert type(make(1, 40, order=order).sampler) is type(alone)
    for (default, _), (one, _) in zip(
        rounds(schedule_dynamic_regression(40, n_parallel=3, max_correlation=None, order=order, random_state=0), 50),
        rounds(make(1, 40, 3, max_correlation=None, order=order), 50),
        strict=True,
    ):
        expected = alone.draw(3, np.empty(0, np.int64))
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(default, expected)


def test_the_same_seed_draws_the_same_and_generators_of_any_kind_will_do():
    def draws(random):
        options = {"n_parallel": 3, "max_correlation": None, "n_schedulers": 3, "random_state": random}
        return np.concatenate([chosen for chosen, _ in rounds(schedule_dynamic_regression(40, **options), 20)]).tolist()

    assert draws(7) == draws(7) == draws(np.random.default_rng(7)) != draws(8)
    once, again = (np.random.Generator(np.random.MT19937(1)) for _ in range(2))
    again.bit_generator.state = once.bit_generator.state
    assert draws(once) == draws(again)


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


# A program


@pytest.mark.parametrize(
    ("n_schedulers", "message"),
    [
        (0, "n_schedulers=0 must be an integer of at least 1"),
        (2.0, "n_schedulers=2.0 must be an integer"),
        (4, "n_schedulers=4 leaves less than n_parallel=3 of n_parameters=10 to some; take at most 3"),
    ],
)
def test_bad_numbers_of_schedulers(n_schedulers, message):
    with pytest.raises(ValueError, match=message):
        make(n_schedulers, 10, 3)
