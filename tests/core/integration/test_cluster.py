"""Runs on clusters: workers that die, leave, come or are busy, fits side by side, and what is left behind."""

import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from clusters import keys_left, kill_workers
from definition import run_serial
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st
from toys import Exchanging, Merging, Remade, Ring, bits, make_shards, make_sources

from schmp_estimators.core.cluster import group
from schmp_estimators.core.cluster.group import Group, RankLostError, Ranks, as_rank, prepare
from schmp_estimators.core.engine import static
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.cluster import Dealt, Worker
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.program import Source

N_SWEEPS = 12
NO_TEARS = pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")


def expected(program, n_shards, n_sweeps=N_SWEEPS):
    found = list(run_serial(program, make_shards(n_shards), n_sweeps))
    return bits(([record for record, *_ in found], found[-1][1]))


def finish(program, client, n_shards, n_sweeps=N_SWEEPS, look=lambda record: None, **options):
    """Return records and harvest of a run that may be asked at its end only."""
    options = {"n_sweeps": n_sweeps, "may_ask": lambda sweep: sweep + 1 == n_sweeps} | options
    place, records = DaskPlace(client), []
    with static_run(program, make_sources(n_shards), place, **options) as run:
        for record in run:
            records.append(record)
            look(record)
        return bits((records, run.harvest()))


# What is left


def assert_nothing_is_left(client):
    deadline = time.monotonic() + 20
    while group._boxes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keys_left(client) == []
    assert group._boxes == {}


@pytest.mark.parametrize("end", ["success", "failure", "abandoned", "interrupt"])
@NO_TEARS
def test_nothing_is_left_on_the_cluster(client, end, monkeypatch):
    monkeypatch.setattr(group, "KEPT", 0.1)
    program = Ring(fail_at=3 if end == "failure" else -1)
    raised = {"failure": ZeroDivisionError, "interrupt": KeyboardInterrupt}.get(end, ())
    try:
        with static_run(program, make_sources(3), DaskPlace(client), n_sweeps=6) as run:
            for record in run:
                if record["sweep"] == 1:
                    if end == "interrupt":
                        raise KeyboardInterrupt
                    if end == "abandoned":
                        break
    except raised as error:
        assert (end == "failure") == any(
            "in Ring.turn, sweep 3, shard" in one for one in getattr(error, "__notes__", ())
        )
    assert_nothing_is_left(client)


def test_the_scheduler_does_not_grow_with_the_number_of_sweeps(client):
    sizes = []
    with static_run(Ring(), make_sources(2), DaskPlace(client), n_sweeps=18) as run:
        for record in run:
            if record["sweep"] % 10 == 7:
                sizes.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
    assert max(sizes) <= sizes[0] + 4


def test_large_messages_arrive(client):
    assert finish(Wide(), client, 2, 3) == expected(Wide(), 2, 3)


class Wide(Ring):
    """Blocks of some megabytes, which are worked on for as good as no time."""

    name = "wide"

    def init(self, at):
        return np.array(at.shard), {at.number: np.full((250_000, 4), at.number + 1.0)}

    def turn(self, at, state, block):
        state += block[::50_000].sum(0).astype(np.int64) % 1_000
        block += state
        return state, block

    def harvest_block(self, block):
        return block.sum(0).tolist()


# Who is there


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 20), st.randoms())
def test_no_worker_has_more_than_its_share_and_wishes_count_until_then(threads, n_shards, random):
    names = [f"worker {number}" for number in range(len(threads))]
    shares = {name: -(-n_shards * one // sum(threads)) for name, one in zip(names, threads, strict=True)}
    liked = random.choice(names)
    wishes = [random.choice([[], [liked], [random.choice(names)]]) for _ in range(n_shards)]
    dealt = Dealt([Worker(name, one, 0) for name, one in zip(names, threads, strict=True)])
    dealt.settle(wishes)
    found = [dealt.address(place) for place in range(n_shards)]
    assert all(n <= shares[name] for name, n in Counter(found).items())
    assert dealt.is_even()
    for place, wished in enumerate(wishes):
        if wished and shares[wished[0]]:
            assert found[place] == wished[0]
            shares[wished[0]] -= 1
    dealt.n_places = n_shards + sum(threads)
    for place in range(n_shards, dealt.n_places):
        dealt.address(place)
    dealt.update(dealt.workers[1:] or dealt.workers)  # one has gone
    alive = {worker.address for worker in dealt.workers}
    assert {dealt.address(place) for place in range(n_shards)} <= alive
    dealt.update([*dealt.workers, Worker("new", max(threads) + sum(threads), 0)])
    assert not dealt.is_even()


@pytest.mark.parametrize(
    ("threads", "wishes", "first"), [([2, 1, 1], [[], ["0"]], "1"), ([1, 1, 8], [[]] * 9 + [["0"]], "2")]
)
def test_a_shard_whose_worker_has_its_share_goes_where_most_threads_are_free(threads, wishes, first):
    dealt = Dealt([Worker(str(number), one, 0) for number, one in enumerate(threads)])
    dealt.settle(wishes)
    assert dealt.address(0) == first


@pytest.mark.cluster
def test_five_workers_do_the_same_as_one_process():
    with (
        LocalCluster(n_workers=5, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for program in (Ring(), Merging()):
            assert finish(program, client, 7, 4) == expected(program, 7, 4)


def test_fits_at_once_have_their_own_results(client):
    """Each worker has one thread: ranks that wait for each other must not hold what others need."""
    found, programs = {}, {"one": Ring(), "two": Remade(), "three": Merging(), "four": Exchanging()}

    def fit(name, n_shards):
        found[name] = finish(programs[name], client, n_shards)

    threads = [threading.Thread(target=fit, args=(name, n + 2)) for n, name in enumerate(programs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {name: expected(program, n + 2) for n, (name, program) in enumerate(programs.items())}
    assert keys_left(client) == []


_BEGUN, _GO_ON = threading.Event(), threading.Event()


def _other_work():
    _BEGUN.set()
    return _GO_ON.wait(60)


def test_a_worker_that_has_other_work_is_waited_for(client, monkeypatch):
    monkeypatch.setattr(group, "SILENCE", 0.1)
    monkeypatch.setattr(group, "LOOK", 0.05)
    [address, *_] = client.scheduler_info(n_workers=-1)["workers"]
    work = client.submit(_other_work, workers=[address], pure=False)
    _BEGUN.wait(60)
    timer = threading.Timer(0.4, _GO_ON.set)
    timer.start()
    assert finish(Exchanging(), client, 2, 4) == expected(Exchanging(), 2, 4)
    timer.join()
    assert work.result()


# Losses


class Wrong(Exchanging):
    """The last shard fails, and all others wait for it."""

    def take(self, at, state, answers, summand):
        if (at.sweep, at.number) == (2, 1):
            raise ZeroDivisionError
        return super().take(at, state, answers, summand)


@NO_TEARS
def test_the_error_of_a_program_counts_although_other_ranks_lose_each_other(client):
    with pytest.raises(ZeroDivisionError) as caught:
        finish(Wrong(), client, 2, 5)
    assert caught.value.__notes__[0] == "in Wrong.take, sweep 2, shard 1"
    assert keys_left(client) == []


@pytest.mark.cluster
def test_a_worker_that_is_to_retire_keeps_its_rank():
    """Dask finds no other worker for what a rank holds, and so lets it work on."""
    with (
        LocalCluster(2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        first, *_ = client.scheduler_info(n_workers=-1)["workers"]

        def retire(record):
            if record["sweep"] == 1:
                client.retire_workers([first])

        assert finish(Ring(), client, 3, 4, retire, may_ask=lambda sweep: True) == expected(Ring(), 3, 4)
        assert keys_left(client) == []


class Slow:
    """Takes its time, and writes down that it has come to sweep 8."""

    def __init__(self, note):
        super().__init__()
        object.__setattr__(self, "note", note)

    def report(self, at, state):
        time.sleep(0.05)
        if at.sweep == 8 and at.number == 0:
            Path(self.note).touch()
        return super().report(at, state)


class SlowRing(Slow, Ring): ...


class SlowRemade(Slow, Remade): ...


class SlowExchange(Slow, Exchanging): ...


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n_killed", "snapshots"),
    [(SlowRing, 1, False), (SlowRing, 3, True), (SlowRemade, 3, False), (SlowExchange, 1, True)],
)
@NO_TEARS
def test_workers_killed_within_a_batch_change_nothing(processes, tmp_path, monkeypatch, kind, n_killed, snapshots):
    note = tmp_path / "note"
    if snapshots:
        monkeypatch.setattr(static, "SNAPSHOT_EVERY", 0.2)
        monkeypatch.setattr(static, "LONGEST_BATCH", 0.2)

    def kill():
        deadline = time.monotonic() + 60
        while not note.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        kill_workers(processes, n_killed)

    killer = threading.Thread(target=kill)
    killer.start()
    found = finish(kind(str(note)), processes, 5)
    killer.join()
    assert found == expected(kind(str(note)), 5)
    assert keys_left(processes) == []


# Ranks that are silent


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(group, "LOOK", 0.02)
    monkeypatch.setattr(group, "SILENCE", 0.1)
    monkeypatch.setattr(group, "ANSWER", 1.0)
    monkeypatch.setattr(group, "KEPT", 0.1)


def wait_for_other(communicator, other):
    return communicator.receive(other)


def nothing():
    return None


def send_rank(client, addresses, keys, rank, function, *args):
    """Let one rank of a group run; the other one is what the test says."""
    ranks = Ranks(tuple(addresses), tuple(keys), rank, "a-group")
    return client.submit(as_rank, ranks, function, *args, key=keys[rank], workers=[addresses[rank]])


@pytest.mark.parametrize("other", ["has gone", "has ended", "has failed", "never begins"])
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_who_waits_for_a_rank_that_will_not_speak_is_told(client, hasty, other):
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    client.run(prepare, workers=list(addresses))
    keys, message = [("first", 0), ("second", 1)], r"rank 1 on .* has ended"
    ended = None
    if other == "has gone":
        addresses[1], message = "tcp://127.0.0.1:1", r"rank 1 on tcp://127.0.0.1:1 cannot be reached"
    elif other == "has ended":
        ended = client.submit(nothing, key=keys[1], workers=addresses[1:])
        ended.result()
    elif other == "has failed":
        ended = client.submit(divmod, 1, 0, key=keys[1], workers=addresses[1:])
        assert ended.exception()
    waiting = send_rank(client, addresses, keys, 0, wait_for_other, 1)
    with pytest.raises(WorkLostError, match=f"ranks lost each other: {message}"):
        waiting.result(30)
    waiting.release()
    assert ended is None or ended.release() is None
    assert_nothing_is_left(client)


SAID = []


def note_what_ends(communicator, other):
    SAID.append("began")
    try:
        communicator.receive(other)
    except RankLostError as error:
        SAID.append(str(error))
        raise


def test_who_is_not_wanted_any_more_ends(client, hasty):
    addresses, keys = list(client.scheduler_info(n_workers=-1)["workers"]), [("waits", 0), ("waits", 1)]
    client.run(prepare, workers=list(addresses))
    SAID.clear()
    waiting = send_rank(client, addresses, keys, 0, note_what_ends, 1)
    for n, leave in ((1, waiting.release), (2, nothing)):
        deadline = time.monotonic() + 20
        while len(SAID) < n:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        leave()
    assert SAID == ["began", "nobody waits for this rank any more"]
    assert_nothing_is_left(client)


def test_a_rank_that_begins_late_is_waited_for(client, hasty, monkeypatch):
    addresses, keys = list(client.scheduler_info(n_workers=-1)["workers"]), [("early", 0), ("early", 1)]
    client.run(prepare, workers=list(addresses))
    ask, asked, begun = Group._check_there, threading.Event(), threading.Event()

    def ask_before_it_begins(self, other, known):
        found = ask(self, other, known)
        asked.set()
        begun.wait(10)
        return found

    monkeypatch.setattr(Group, "_check_there", ask_before_it_begins)
    waiting = send_rank(client, addresses, keys, 0, wait_for_other, 1)
    assert asked.wait(10)
    late = send_rank(client, addresses, keys, 1, Group.send, 0, "here I am")
    begun.set()
    assert waiting.result(30) == "here I am"
    assert late.result(30) is None
    for one in waiting, late:
        one.release()
    assert_nothing_is_left(client)


def load_and_fail(shard):
    raise FileNotFoundError(f"no shard {shard[1]}")


@NO_TEARS
def test_a_source_that_cannot_be_read_is_an_error_of_its_own(client):
    sources = [Source(load_and_fail, one.pieces) for one in make_sources(3)]
    with pytest.raises(FileNotFoundError, match="no shard"), static_run(Ring(), sources, DaskPlace(client), n_sweeps=2):
        pass
    assert keys_left(client) == []
