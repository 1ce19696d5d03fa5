"""What the engine refuses of coroutines, before work or as soon as it is seen."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from schmp_estimators import schmp
from schmp_estimators.core.engine.dynamic import (
    Overlapping,
    Report,
    Save,
    Sum,
    run_coroutine,
    saves,
)
from schmp_estimators.core.engine.rounds import Keeper, Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Place

NUMBERS = [np.array([5.0, 9.0, 2.5]), np.array([1.0, 7.0]), np.array([30.0])]


class NotAbove(NamedTuple):
    """Counts numbers, which shrink each time, so that partitions have a state."""

    threshold: float

    def __call__(self, partition):
        return 0.9 * partition, np.count_nonzero(partition <= self.threshold)


class Halfway(NamedTuple):
    low: float
    high: float
    counts: list


@saves(Halfway)
def bisect(rank, state):
    """A threshold for numbers that shrink, with what each partition answered."""
    low, high, counts = state or Halfway(0.0, 64.0, [])
    while high - low > 1.0:
        middle = (low + high) / 2
        partials = yield NotAbove(middle)
        counts = [*counts, partials]
        low, high = (middle, high) if sum(partials) < rank else (low, middle)
        if (yield Report({"width": high - low})):
            break
        yield Save(Halfway(low, high, counts))
    return low, high, counts


def keep(partition):
    return partition


def put_back(partition, saved):
    return saved


KEEPER = Keeper(keep, put_back)


def places(client):
    yield Rounds(Place(), NUMBERS, keeper=KEEPER)
    yield Rounds(Place(2), NUMBERS, keeper=KEEPER)
    yield Rounds(DaskPlace(client), NUMBERS, "bisect", KEEPER)


@pytest.mark.parametrize("declared", [None, dict])
def test_what_is_saved_must_be_what_was_declared(declared):
    def program(state):
        yield Save((1.0, 2.0))

    if declared is not None:
        program = saves(declared)(program)
    with pytest.raises(TypeError, match=f"saves a tuple, and has declared {'dict' if declared else 'no state'}"):
        run_coroutine(program, Rounds(Place(), NUMBERS))


def forgetful(piece):
    """Return nothing, as beginners do."""


class Counting:
    """Rounds that return an answer alone."""

    def schedule(self, model):
        return model

    @staticmethod
    def update(piece, job):
        return np.arange(2)

    def aggregate(self, model, job, answers):
        raise AssertionError("nothing has been answered")


def bare(state):
    yield Overlapping(Counting(), 1)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda state: (yield forgetful), "the job forgetful returned None"),
        (lambda state: (yield Sum(forgetful)), "the job forgetful returned None"),
        (lambda state: (yield partial(max, 3)), "the job max returned one int"),
        (lambda state: (yield lambda piece: (piece, 1, 2)), "the job <lambda> returned a tuple of 3"),
        (bare, "the job update returned one ndarray"),
    ],
)
@pytest.mark.parametrize("guarded", [False, True], ids=["rounds", "schmp.run"])
def test_a_job_that_does_not_return_piece_and_answer_is_named(program, message, guarded):
    with pytest.raises(TypeError, match=rf"{message}.*; a job returns \(piece, answer\)"):
        if guarded:
            schmp.run(program, list(np.arange(3)))
        else:
            run_coroutine(program, Rounds(Place(), list(np.arange(3))))


def test_what_is_no_job_is_refused_and_the_coroutine_is_closed():
    closed, kept = [], []

    def steps():
        try:
            yield NotAbove(1.0)
            yield "next"
        finally:
            closed.append(True)

    def program(state):
        kept.append(steps())  # as long as somebody has it, Python does not close it
        return kept[-1]

    with pytest.raises(TypeError, match="program yields 'next'; a job is a function of a partition"):
        run_coroutine(program, Rounds(Place(), NUMBERS))
    assert closed == [True]
