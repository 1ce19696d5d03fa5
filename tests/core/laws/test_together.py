"""Coroutines side by side: each gets the answers that it would get alone, in fewer rounds."""

import numpy as np
import pytest

from schmp_estimators.core.engine.dynamic import Sum, abreast, run_coroutine, run_together
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.reduction import tree_sum

PIECES = [{name: np.arange(3.0) + shift for name in range(6)} for shift in (0.1, 10.3, 200.7)]


def grow(name, part, piece):
    """Change the one entry that belongs to a run; pieces with small numbers have nothing to say."""
    grown = piece[name] * (1.0 + 0.1 * part)
    return {**piece, name: grown}, None if grown.sum() < 4.0 else float(grown.sum())


class Grow:
    def __init__(self, name, part):
        self.name, self.part = name, part

    def __call__(self, piece):
        return grow(self.name, self.part, piece)


def wander(name, length):
    """As many rounds as wanted, each of which depends on the answers before."""
    found, part = [], 1.0
    for number in range(length):
        job = Grow(name, part)
        answer = yield Sum(job) if (number + name) % 2 else job
        found.append(answer)
        part = tree_sum(answer) % 1.0 if isinstance(answer, list) else answer % 1.0
    return name, found


LENGTHS = [3, 0, 7, 1, 4, 2]


def alone(name):
    with Rounds(Place(), PIECES) as rounds:
        return run_coroutine(lambda _: wander(name, LENGTHS[name]), rounds)


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 6, 9])
def test_answers_are_those_of_each_alone(place, at_a_time):
    with Rounds(Place() if place is None else DaskPlace(place), PIECES) as rounds:
        found = run_together([lambda name=name: wander(name, LENGTHS[name]) for name in range(6)], rounds, at_a_time)
        assert rounds.n_rounds <= sum(LENGTHS)
        if at_a_time == 6:
            assert rounds.n_rounds <= 2 * max(LENGTHS)
    assert found == [alone(name) for name in range(6)]


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 5])
def test_no_more_are_under_way_than_asked_for(at_a_time):
    under_way, most = set(), []

    def one(name):
        under_way.add(name)
        most.append(len(under_way))
        found = yield from wander(name, 3)
        under_way.remove(name)
        return found

    with Rounds(Place(), PIECES) as rounds:
        run_together([lambda name=name: one(name) for name in range(6)], rounds, at_a_time)
    assert max(most) == at_a_time


def test_one_coroutine_of_several():
    def outer(_):
        first = yield from abreast([wander(0, 3), wander(1, 5)])
        second = yield from abreast([wander(2, 1)])
        assert (yield from abreast([])) == []
        return [*first, *second]

    lengths = {0: 3, 1: 5, 2: 1}
    with Rounds(Place(), PIECES) as rounds:
        found = run_coroutine(outer, rounds)
        assert rounds.n_rounds == 6
    for name, answers in found:
        with Rounds(Place(), PIECES) as rounds:
            assert run_coroutine(lambda _, name=name: wander(name, lengths[name]), rounds) == (name, answers)


def test_an_error_ends_all_of_them():
    ended = []

    def patient(name):
        try:
            while True:
                yield Grow(name, 0.5)
        finally:
            ended.append(name)

    def failing():
        yield Grow(0, 0.5)
        raise ArithmeticError("enough")

    with Rounds(Place(), PIECES) as rounds, pytest.raises(ArithmeticError, match="enough"):
        run_together([lambda: patient(1), failing, lambda: patient(2)], rounds, 3)
    assert sorted(ended) == [1, 2]
    with Rounds(Place(), PIECES) as rounds, pytest.raises(ArithmeticError):
        run_coroutine(lambda _: abreast([patient(3), failing()]), rounds)
    assert 3 in ended


def test_none_adds_nothing():
    parts = [None, 1.0, None, None, 3.0]
    assert tree_sum(parts) == 4.0 and tree_sum([None, None]) is None
    assert tree_sum([(1.0, None), (2.0, 5.0)]) == (3.0, 5.0)
