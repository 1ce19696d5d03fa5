"""What runtimes hold, and for how long; what they promise to those who write."""

import gc
import threading
import time
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from schmp_estimators.core.engines import updates

from schmp_estimators.core.engine.dynamic import apply_job, run_rounds
from schmp_estimators.core.engine.rounds import Keeper, Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Mode, Ref, Task, in_turn, quick
from schmp_estimators.core.reduction import tree_sum


@pytest.mark.parametrize("n_threads", [1, 3])
def test_results_are_held_until_the_last_reader_is_done_and_no_longer(n_threads):
    watched = {}

    def make(name, *inputs):
        if name == "last":
            gc.collect()
            assert [one() is None for one in watched.values()] == [
                True,
                True,
                False,
                False,
            ]  # first, other; wanted, own
        array = np.array([1.0, *(one.sum() for one in inputs)])
        watched[name] = weakref.ref(array)
        return array

    def task(name, place, *needed):
        return Task((name,), make, (name, *(Ref((one,)) for one in needed)), place)

    # "first" is read twice, the second time by "wanted"; places differ, so that threads do the work
    tasks = [task("first", 0), task("other", 1, "first"), task("wanted", 0, "first", "other")]
    tasks += [task("own", 1, "wanted"), task("last", 0, "own")]
    runtime = LocalPlace(n_threads)
    runtime.submit(tasks, [("wanted",), ("last",)])
    wanted, last = runtime.fetch([("wanted",), ("last",)])
    assert wanted.tolist() == [1.0, 1.0, 2.0] and last.tolist() == [1.0, 5.0]
    runtime.close()


def test_what_takes_no_time_does_not_wait_for_a_thread():
    ran = {}

    def note(name, *inputs):
        ran[name] = threading.current_thread()
        return name

    @quick
    def pass_on(name, *inputs):
        return note(name)

    tasks = [Task(("own", place), note, (("own", place),), place) for place in range(3)]
    tasks += [Task(("on", place), pass_on, (("on", place), Ref(("own", place))), place) for place in range(3)]
    tasks += [Task(("next", place), note, (("next", place), Ref(("on", place))), place) for place in range(3)]
    runtime = LocalPlace(2)
    runtime.submit(tasks, [("next", place) for place in range(3)])
    runtime.close()
    here = {name for name, thread in ran.items() if thread is threading.current_thread()}
    assert here == {("on", place) for place in range(3)} and len(ran) == 9


def test_a_result_that_nobody_asks_for_is_let_go_at_once():
    watched, found = [], []

    def make():
        array = np.ones(3)
        watched.append(weakref.ref(array))
        return array

    def look():
        gc.collect()
        found.extend(one() for one in watched)

    LocalPlace().submit([Task(("unread",), make, (), 0), Task(("look",), look, (), 0)], [("look",)])
    assert found == [None]


def test_an_error_is_raised_when_all_threads_have_stopped():
    begun, done = threading.Event(), []

    def work():
        begun.set()
        time.sleep(0.3)
        done.append(True)

    def fail():
        begun.wait(60)
        raise ZeroDivisionError

    runtime = LocalPlace(2)
    with pytest.raises(ZeroDivisionError):
        runtime.submit([Task(("work",), work, (), 0), Task(("fail",), fail, (), 1)], [])
    assert done  # else it could still write into arrays that the caller has back
    runtime.close()


class Count:
    """A program of some rounds in which each partition adds up; it writes into what it gets back."""

    def __init__(self, n_rounds, look=lambda: None):
        self.n_rounds, self.look, self.totals = n_rounds, look, []

    def schedule(self, model):
        return len(self.totals) + 1 if len(self.totals) < self.n_rounds else None

    @staticmethod
    def update(partition, job):
        new = partition + job
        return new, new

    def aggregate(self, model, job, partials):
        for number in range(len(partials)):
            partials[number] *= 10**number  # in place
        self.totals.append(float(sum(partial[0] for partial in partials)))
        for partial in partials:
            partial[:] = np.nan
        self.look()


PARTITIONS = [np.zeros(3), np.ones(3), np.full(3, 2.0)]
#: Sums 1 + … + r of the rounds so far, above what each partition began with.
TOTALS = [sum((start + r * (r + 1) / 2) * 10**start for start in range(3)) for r in range(1, 13)]


def add(partition, saved):
    return saved


def keep(partition):
    return partition


def wait_for_at_most(n, things):
    """Wait, a minute at most: a scheduler forgets in its own time what has been let go of."""
    deadline = time.monotonic() + 60
    while len(things()) > n:
        assert time.monotonic() < deadline, things()
        time.sleep(0.01)


@pytest.mark.parametrize("keeper", [None, Keeper(keep, add)])
def test_rounds_hold_one_state_of_each_partition_and_the_scheduler_no_long_history(client, keeper):
    tasks = client.cluster.scheduler.tasks
    before, held, known = set(tasks), [], []

    def mine():
        return [task for key, task in list(tasks.items()) if key not in before]

    def look():
        if keeper and len(known) >= 4:
            wait_for_at_most(max(known[:4]) + 3, mine)
        held.append(sum(task.state == "memory" for task in mine()))
        known.append(len(mine()))

    program = Count(12, look)
    rounds = Rounds(DaskPlace(client, cut_every=4), PARTITIONS, "count", keeper)
    with rounds:
        run_rounds(program, None, rounds)
    assert program.totals == TOTALS
    # the first form of three partitions, their present state, and what may be on its way out
    assert max(held) <= 12


@pytest.mark.parametrize("count", [1, 3])
def test_partial_results_may_be_written_into_and_partitions_keep_theirs(count):
    program = Count(12)
    run_rounds(program, None, Rounds(LocalPlace(), [np.array(one) for one in PARTITIONS[-count:]]))
    assert program.totals == (TOTALS if count == 3 else [2.0 + r * (r + 1) / 2 for r in range(1, 13)])


def test_a_lone_partition_is_held_once():
    watched, partition = [], np.zeros(3)

    def add(partition, job):
        gc.collect()
        assert all(one() is None for one in watched[:-1])
        new = partition + job
        watched.append(weakref.ref(new))
        return new, None

    watched.append(weakref.ref(partition))
    keeper = Keeper(keep, lambda _, saved: saved + 10.0)
    with Rounds(LocalPlace(), [partition], "count", keeper) as rounds:
        del partition
        for job in (1, 2, 3):
            rounds.collect(rounds.submit(add, job))
        [saved] = rounds.save()
        assert saved.tolist() == [6.0, 6.0, 6.0]
        rounds.restore([saved])
        assert rounds.collect(rounds.submit(lambda one, _: (one, one[0]), None)) == [16.0]


class Twice(DaskPlace):
    """A runtime that notes how many tasks have been sent; Dask may take two of one key for the same."""

    n_sent = 0

    def submit(self, tasks, wanted, *, soon=False):
        self.keys = {task.key for task in tasks} | getattr(self, "keys", set())
        self.n_sent += len(tasks)
        assert len(self.keys) == self.n_sent
        super().submit(tasks, wanted)


def test_after_a_cut_rounds_are_not_sent_again(client):
    plain, cut = Twice(client, cut_every=0), Twice(client, cut_every=4)
    for runtime in (plain, cut):
        program = Count(12)
        with Rounds(runtime, PARTITIONS, "count", Keeper(keep, add)) as rounds:
            run_rounds(program, None, rounds)
        assert program.totals == TOTALS
    assert plain.n_sent == 3 + 12 * 2 * 3
    assert cut.n_sent == plain.n_sent + 2 * 2 * 3  # two cuts, each of which saves and restores three partitions


class Pure(LocalPlace):
    """Works as a cluster does: nothing is written in place, and partial results travel."""

    n_fetched = 0

    def mode(self, n_shards):
        return Mode(in_place=False, each=in_turn)

    def fetch(self, keys):
        self.n_fetched = len(keys)
        return super().fetch(keys)


class Forgetful(Pure):
    """Cuts after every fourth round, loses what it has at some fetches, and notes what was done."""

    cut_every = 4

    def __init__(self, losses=()):
        super().__init__()
        self.losses, self.fetches, self.words = set(losses), 0, []

    def submit(self, tasks, wanted, *, soon=False):
        self.words += [task.key[0].split("-")[1] for task in tasks]
        super().submit(tasks, wanted)

    def fetch(self, keys):
        self.fetches += 1
        if self.fetches in self.losses:
            raise WorkLostError("on purpose")
        return super().fetch(keys)


def read(partition, number):
    return partition, partition.sum() * number


def read_or_count(partition, number):
    return read(partition, number) if number % 5 else grow_by_one(partition, number)


def grow_by_one(partition, number):
    return partition + 1, partition.sum()


def answers(place, function, n_rounds=23, is_sum=False):
    with Rounds(place, [np.arange(3.0) + p for p in range(10)], "count") as rounds:
        found = [tree_sum(rounds.collect(rounds.submit(function, n, is_sum=is_sum))) for n in range(n_rounds)]
        remembered = len(rounds._log)
    return found, remembered


@pytest.mark.covering
@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("function", [read, read_or_count, grow_by_one])
def test_without_a_keeper_few_rounds_are_remembered_and_any_loss_changes_nothing(function, is_sum):
    expected, _ = answers(LocalPlace(), function)
    whole = Forgetful()
    found, remembered = answers(whole, function, is_sum=is_sum)
    assert found == expected and remembered <= 4
    for loss in range(1, whole.fetches + 1):
        place = Forgetful([loss, loss + 3])
        assert answers(place, function, is_sum=is_sum)[0] == expected
        assert place.words.count("int") - whole.words.count("int") <= 2 * 4 * 10  # at most four rounds after each loss


def test_pieces_that_no_job_changes_stay_where_they_are():
    place = Forgetful()
    answers(place, read)
    assert place.words.count("load") == 10 and "save" not in place.words
    place = Forgetful()
    answers(place, grow_by_one)
    assert place.words.count("save") == place.words.count("load") - 10 == 5 * 10


def test_without_a_keeper_the_scheduler_keeps_no_long_history(client):
    tasks = client.cluster.scheduler.tasks
    known = []
    with Rounds(DaskPlace(client, cut_every=4), PARTITIONS, "bounded") as rounds:
        for number in range(40):
            rounds.collect(rounds.submit(grow_by_one, number))
            if number >= 8:
                wait_for_at_most(max(known[:8]) + 12, lambda: list(tasks))
            known.append(len(tasks))


class Share(NamedTuple):
    """Asks for what adds up to the sum of all numbers."""

    factor: float

    def __call__(self, partition):
        return partition, (partition * self.factor, float(partition.sum()))


def test_sums_on_their_way_have_the_bits_of_one_sum():
    rng = np.random.default_rng(0)
    for n in (*range(1, 41), 64, 65, 100):
        parts = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(n)]
        place = Pure()
        rounds = Rounds(place, parts)
        found = rounds.collect(rounds.submit(apply_job, Share(1.7), is_sum=True))
        assert len(found) == place.n_fetched <= 8
        summed, expected = tree_sum(found), tree_sum([Share(1.7)(part)[1] for part in parts])
        np.testing.assert_array_equal(summed[0], expected[0])
        assert summed[1] == expected[1]


def grow(piece, job):
    first, state = piece
    return (first, state + first * job), float(state.sum())


@pytest.mark.parametrize("count", [1, 3])
def test_partitions_are_restored_from_their_own_first_form(client, count):
    """What never changes of a piece is not saved, so it must come from the same piece."""
    keeper = Keeper(lambda piece: piece[1], lambda piece, state: (piece[0], state))
    for place in (LocalPlace(), DaskPlace(client, cut_every=2)):
        pieces = [(one + 1, np.array(one)) for one in PARTITIONS[:count]]
        with Rounds(place, pieces, "grow", keeper) as rounds:
            rounds.restore([np.full(3, 100.0 * (one[0] + 1)) for one in PARTITIONS[:count]])
            found = [rounds.collect(rounds.submit(grow, job)) for job in (1, 1, 1, 1, 1)]
        assert found == [[3 * (100.0 + done) * n for n in range(1, count + 1)] for done in range(5)]


def odd(values):
    """Return the same array at an odd address, as a journey may leave it."""
    found = np.frombuffer(b"x" + values.tobytes(), values.dtype, offset=1)
    assert not found.flags.aligned
    return found


def test_sums_do_not_depend_on_the_address_to_which_a_journey_has_led():
    """NumPy adds up more than 8,192 elements in another order, if they lie at an odd address."""
    values = np.random.default_rng(1).normal(size=50_000)
    assert odd(values).sum() != values.sum()

    def add_up(piece, job):
        return piece, (piece.sum(), job.sum())

    kept = updates.update_there(add_up, odd(values), odd(values))
    assert kept.partial == (values.sum(), values.sum()) and not kept.changed
    again = updates.update_there(add_up, kept, values)
    assert again.partition is kept.partition  # moved once
