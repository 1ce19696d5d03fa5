"""Rounds on partitions, wherever these live: the same answers whatever is lost.

And what is refused of coroutines.
"""

import pickle
from functools import partial

import numpy as np
import pytest
from clusters import keys_left
from ranks import in_ranks
from toys import bits

from schmp_estimators import schmp
from schmp_estimators.core.cluster import service
from schmp_estimators.core.engine import rounds as module
from schmp_estimators.core.engine.communicator import Alone
from schmp_estimators.core.engine.dynamic import (
    Overlapping,
    Save,
    Sum,
    apply_job,
    run_coroutine,
    saves,
)
from schmp_estimators.core.engine.rounds import (
    Answers,
    Do,
    Keeper,
    Partitions,
    Piece,
    Restore,
    Rounds,
    serve,
)
from schmp_estimators.core.errors import WorkerLostError, WorkLostError
from schmp_estimators.core.places import place as places
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.reduction import tree_sum


def partitions_of(count):
    return [np.arange(3.0) * (p + 1) for p in range(count)]


def read(partition, number):
    return partition, partition.sum() * number


def grow(partition, number):
    return partition * 1.1 + number, (partition.sum(), partition.copy())


def read_or_grow(partition, number):
    return read(partition, number) if number % 5 else grow(partition, number)


KEEPER = Keeper(lambda partition: partition, lambda partition, saved: saved)


def by_hand(function, count, n_rounds):
    """Return what each round answers, from a loop over a list."""
    partitions, found = partitions_of(count), []
    for number in range(n_rounds):
        answers = [function(one, number) for one in partitions]
        partitions = [one for one, _ in answers]
        found.append([one for _, one in answers])
    return found


def go(place, function, count, n_rounds=11, *, depth=1, keeper=None, is_sum=False):
    """Return what each round answers; `depth` of them are under way at a time."""
    found, tickets = [], []
    with Rounds(place, partitions_of(count), "count", keeper) as rounds:
        for number in range(n_rounds):
            tickets.append(rounds.submit(function, number, is_sum=is_sum))
            if len(tickets) == depth:
                found.append(rounds.collect(tickets.pop(0)))
                assert all(
                    answer[1].flags.writeable for answer in found[-1] if isinstance(answer, tuple)
                )
        found += [rounds.collect(ticket) for ticket in tickets]
        assert rounds.n_rounds == n_rounds
    return found


class Forgetful(Place):
    """Answers travel, and at some messages, counted from one, all that is there is lost.

    Notes what is done.
    """

    is_local = False

    def __init__(self, losses=()):
        super().__init__()
        self.losses, self.n_messages, self.n_done, self.begun, self.moves = set(losses), 0, [], 0, 0

    def serve(self, name, pieces):
        self.begun += 1
        made = [
            piece.function(*piece.parts) if isinstance(piece, Piece) else piece for piece in pieces
        ]
        return Lossy(self, Partitions(Alone(self.each), [range(len(made))], made))

    def lose(self):
        self.n_messages += 1
        if self.n_messages in self.losses:
            raise WorkLostError("on purpose")


def travelled(value):
    """Return a value whose arrays a journey has left at odd addresses, where nobody may write."""
    buffers = []
    found = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(found, buffers=[memoryview(b"x" + bytes(one.raw()))[1:] for one in buffers])


class Lossy:
    def __init__(self, place, here):
        self.place, self.here = place, here

    def ask(self, command):
        self.place.lose()
        self.place.n_done.append(command)
        return Lossy(self.place, self.here.work(command))

    def __call__(self):
        self.place.lose()
        return travelled(self.here)

    def close(self):
        self.place, self.here = None, None


@pytest.fixture
def often(monkeypatch):
    """Partitions are kept after every fourth round, and lost work is begun again at once."""
    monkeypatch.setattr(module, "KEEP_EVERY", 4)
    monkeypatch.setattr(places, "PAUSE", 0.0)


@pytest.fixture(
    params=["here", "threads", "lossless", pytest.param("dask", marks=pytest.mark.cluster)]
)
def make_place(request, often):
    kind = request.param
    if kind == "dask":
        client = request.getfixturevalue("client")
        yield lambda: DaskPlace(client)
        assert keys_left(client) == []
        assert service._desks == {}
    else:
        yield {"here": Place, "threads": lambda: Place(3), "lossless": Forgetful}[kind]


@pytest.mark.covering
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("function", [read, grow, read_or_grow])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("keeper", [None, KEEPER], ids=["no keeper", "keeper"])
@pytest.mark.parametrize("is_sum", [False, True], ids=["all", "sum"])
def test_answers_are_those_of_a_loop(make_place, count, function, depth, keeper, is_sum):
    expected = by_hand(function, count, 11)
    found = go(make_place(), function, count, depth=depth, keeper=keeper, is_sum=is_sum)
    if is_sum:
        found, expected = map(tree_sum, found), map(tree_sum, expected)
    assert bits(list(found)) == bits(list(expected))


@pytest.mark.covering
@pytest.mark.parametrize("function", [read, grow, read_or_grow])
@pytest.mark.parametrize("keeper", [None, KEEPER], ids=["no keeper", "keeper"])
@pytest.mark.parametrize("depth", [1, 3])
def test_work_lost_at_any_moment_changes_nothing(often, function, keeper, depth):
    expected, whole = bits(by_hand(function, 3, 11)), Forgetful()
    assert bits(go(whole, function, 3, depth=depth, keeper=keeper)) == expected
    for loss in range(1, whole.n_messages + 1):
        place = Forgetful([loss, loss + 3])
        assert bits(go(place, function, 3, depth=depth, keeper=keeper)) == expected
        assert len(place.n_done) <= len(whole.n_done) + 2 * (
            4 + depth + 1
        )  # few rounds are done again
    place = Forgetful(range(25, 999, 25))
    assert bits(go(place, function, 3, 99, depth=depth, keeper=keeper)) == bits(
        by_hand(function, 3, 99)
    )
    assert place.begun > 7
    with pytest.raises(WorkerLostError, match="6 times, each time before a further round was done"):
        go(Forgetful(range(5, 99)), function, 3, depth=depth, keeper=keeper)


def test_pieces_that_no_job_changes_stay_where_they_are(often):
    for function, n_fetched in (read, 0), (grow, 2):
        place = Forgetful()
        go(place, function, 3)
        assert sum(command.job is module.itself for command in place.n_done) == n_fetched


def add_to_state(piece, job):
    first, state = piece
    return (first, state + first * job), float(state.sum())


def make_piece(number):
    return np.full(3, float(number)), np.zeros(3)


@pytest.mark.parametrize("count", [1, 3])
def test_partitions_are_made_and_restored_where_they_live(make_place, count):
    """What never changes of a piece is not saved, so it must come from the same piece."""
    keeper = Keeper(lambda piece: piece[1], lambda piece, state: (piece[0], state))
    pieces = [Piece(make_piece, (number,)) for number in range(1, count + 1)]
    with Rounds(make_place(), pieces, "grow", keeper) as rounds:
        rounds.restore([np.full(3, 100.0 * number) for number in range(1, count + 1)])
        found = [rounds.collect(rounds.submit(add_to_state, job)) for job in (1, 1, 1, 1, 1, 1)]
        saved = rounds.save()
    assert found == [[3 * (100.0 + done) * n for n in range(1, count + 1)] for done in range(6)]
    assert [one.tolist() for one in saved] == [[106.0 * n] * 3 for n in range(1, count + 1)]


def fail(partition, number):
    if number == 3 and partition[1] > 1.0:  # not the first one
        raise ZeroDivisionError("the job itself is wrong")
    return partition, None


@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.parametrize("depth", [1, 3])
def test_errors_of_jobs_are_raised_as_they_are(make_place, depth):
    with pytest.raises(ZeroDivisionError, match="the job itself is wrong"):
        go(make_place(), fail, 3, depth=depth)


# Ranks that serve


def share(partition):
    return partition, (partition * 1.7, float(partition.sum()))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_answer_in_the_order_of_partitions_and_add_up_as_one_sum(size):
    rng = np.random.default_rng(0)
    for n in (5, 6, 11, 16, 23):
        parts = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(n)]
        groups = [[p for p in range(n) if p * size // n == rank] for rank in range(size)]
        restore = Restore(KEEPER.restore, dict(enumerate(parts)))
        commands = [
            Do(apply_job, share, True),
            Do(grow, 2),
            Do(read, 3),
            restore,
            Do(read, 5),
            None,
        ]

        def talk(communicator, parts=parts, groups=groups, commands=commands):
            answers, given = [], iter(commands)
            mine = [parts[p] for p in groups[communicator.rank]]
            serve(communicator, lambda: next(given), answers.append, groups, *mine)
            return answers

        (summed, grown, after, restored, again), *others = in_ranks(size, talk, n_threads=2)
        assert others == [[]] * (size - 1)
        assert bits(summed) == bits(Answers([tree_sum([share(part)[1] for part in parts])], False))
        assert bits(grown) == bits(Answers([grow(part, 2)[1] for part in parts], True))
        assert bits(after) == bits(Answers([read(grow(part, 2)[0], 3)[1] for part in parts], False))
        assert restored == Answers([], True)
        assert bits(again) == bits(Answers([read(part, 5)[1] for part in parts], False))


@pytest.mark.parametrize("declared", [None, dict])
def test_what_is_saved_must_be_what_was_declared(declared):
    def program(state):
        yield Save((1.0, 2.0))

    if declared is not None:
        program = saves(declared)(program)
    with pytest.raises(
        TypeError, match=f"saves a tuple, and has declared {'dict' if declared else 'no state'}"
    ):
        run_coroutine(program, Rounds(Place(), partitions_of(3)))


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
        (
            lambda state: (yield lambda piece: (piece, 1, 2)),
            "the job <lambda> returned a tuple of 3",
        ),
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
            yield partial(read, number=1)
            yield "next"
        finally:
            closed.append(True)

    def program(state):
        kept.append(steps())  # as long as somebody has it, Python does not close it
        return kept[-1]

    with pytest.raises(
        TypeError, match="program yields 'next'; a job is a function of a partition"
    ):
        run_coroutine(program, Rounds(Place(), partitions_of(3)))
    assert closed == [True]
