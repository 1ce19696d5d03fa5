"""Which cases of a test of many every change runs: all values of all parameters, and few cases."""

from itertools import product

import pytest
from covering import fewest
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_all_combinations_need_as_many_cases_as_the_longest_parameter_has_values(sizes):
    cases = [set(enumerate(values)) for values in product(*map(range, sizes))]
    chosen = fewest(cases)
    assert set().union(*(cases[number] for number in chosen)) == set().union(*cases)
    assert len(chosen) == max(sizes)


def test_values_take_turns():
    cases = [set(enumerate(values)) for values in product(range(8), range(2), range(4))]
    chosen = [dict(cases[number]) for number in fewest(cases)]
    assert [sum(case[1] == value for case in chosen) for value in range(2)] == [4, 4]
    assert [sum(case[2] == value for case in chosen) for value in range(4)] == [2, 2, 2, 2]


@pytest.fixture(params=["of a fixture", "another"])
def given_by_fixture(request):
    return request.param


@pytest.mark.covering
@pytest.mark.parametrize(("left", "right"), [(1, 2), (2, 1), (1, 1), pytest.param(3, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [0, 1])
def test_cases(given_by_fixture, number, left, right):
    assert given_by_fixture and number < left * right + 1


def test_what_is_parametrized_together_stays_together(request):
    """The others are slow, or were not asked for."""
    here = [item for item in request.session.items if item.nodeid.partition("[")[0].endswith("py::test_cases")]
    if len(here) == 3:
        values = [item.callspec.params for item in here]
        assert {(one["left"], one["right"]) for one in values} == {(1, 2), (2, 1), (1, 1)}
        assert {one["number"] for one in values} == {0, 1}
        assert len({one["given_by_fixture"] for one in values}) == 2
