"""Which cases of a test of many every change runs: all values of all parameters, and few cases."""

from itertools import product

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
