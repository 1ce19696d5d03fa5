"""Runs on clusters.

Workers that die, leave, come or are busy, fits side by side, and what is left behind.
"""

import asyncio
import gc
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import keys_left, own_cluster
from definition import run_serial
from distributed import Client, LocalCluster, futures_of
from hypothesis import given
from hypothesis import strategies as st
from toys import Exchanging, Merging, Remade, Ring, bits, changed, make_shards, make_sources

from schmp_estimators import DistributedLDA, ModelParallelMF, PrioritizedLasso
from schmp_estimators.core.cluster import group, wire
from schmp_estimators.core.cluster.group import Group, RankLostError, Ranks, as_rank, prepare
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.errors import WorkerLostError, WorkLostError
from schmp_estimators.core.places import watch
from schmp_estimators.core.places.cluster import Dealt, Worker
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import retry
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


# What is under way


def exchange_three_times(communicator, n_bytes):
    """Return the sums of what other ranks have sent."""
    found = []
    for again in range(3):
        values = [np.full(n_bytes, communicator.rank + again, np.uint8) for _ in range(5)]
        found.append([int(one[-1]) for one in communicator.alltoall(values)])
    return found


@pytest.mark.parametrize("part", [1, 10])
def test_no_more_is_under_way_to_a_rank_or_from_it_than_the_limit_allows(part, monkeypatch):
    n_bytes = 100_000
    limit, most = 8 * n_bytes // part, Counter()
    admits, send = group._Inbox.admits, Group.send

    def watched_admits(self, *args):
        found = admits(self, *args)
        most["to"] = max(most["to"], self.n_bytes)
        return found

    def watched_send(self, *args):
        send(self, *args)
        most["from"] = max(most["from"], sum(one.n_bytes for one in self._leaving))

    monkeypatch.setattr(wire, "LARGE", n_bytes // part)  # the form travels in both ways
    monkeypatch.setattr(group._Inbox, "admits", watched_admits)
    monkeypatch.setattr(Group, "send", watched_send)
    options = {"n_workers": 5, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(**options, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
        dask.config.set({"schmp-estimators.exchange-limit": limit}),
    ):
        place = DaskPlace(client)
        found = place.call_ranks("exchange", exchange_three_times, [[n_bytes]] * 5, range(5))
        place.close()
    assert found == [[[0 + a, 1 + a, 2 + a, 3 + a, 4 + a] for a in range(3)]] * 5
    n_sent = n_bytes + 500
    assert 0 < most["to"] <= max(limit // 2, n_sent) + n_sent  # one is awaited
    assert 0 < most["from"] <= limit // 2 + n_sent


# What is left


def assert_nothing_is_left(client):
    deadline = time.monotonic() + 20
    while group._inboxes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert keys_left(client) == []
    assert group._inboxes == {}


@pytest.mark.parametrize("end", ["success", "failure", "abandoned", "interrupt"])
@NO_TEARS
def test_nothing_is_left_on_the_cluster(client, end, monkeypatch):
    monkeypatch.setattr(group, "KEPT", 0.1)
    program = Ring(fail_at=3 if end == "failure" else -1)
    raised = {"failure": ZeroDivisionError, "interrupt": KeyboardInterrupt}.get(end)
    with (
        pytest.raises(raised) if raised else nullcontext() as caught,
        static_run(program, make_sources(3), DaskPlace(client), n_sweeps=6) as run,
    ):
        for record in run:
            if record["sweep"] == 1 and end == "interrupt":
                raise KeyboardInterrupt
            if record["sweep"] == 1 and end == "abandoned":
                break
    if end == "failure":
        assert any("in Ring.turn, sweep 3, shard" in one for one in caught.value.__notes__)
    assert_nothing_is_left(client)


def test_the_scheduler_does_not_grow_with_the_number_of_sweeps(client):
    sizes = []
    with static_run(Ring(), make_sources(2), DaskPlace(client), n_sweeps=18) as run:
        for record in run:
            if record["sweep"] % 10 == 7:
                sizes.append(
                    client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
                )
    assert max(sizes) <= sizes[0] + 4


# Who is there


@given(st.lists(st.integers(1, 8), min_size=1, max_size=5), st.integers(1, 20), st.randoms())
def test_no_worker_has_more_than_its_share_and_wishes_count_until_then(threads, n_shards, random):
    names = [f"worker {number}" for number in range(len(threads))]
    shares = {
        name: -(-n_shards * one // sum(threads)) for name, one in zip(names, threads, strict=True)
    }
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
    ("threads", "wishes", "first"),
    [([2, 1, 1], [[], ["0"]], "1"), ([1, 1, 8], [[]] * 9 + [["0"]], "2")],
)
def test_a_shard_whose_worker_has_its_share_goes_where_most_threads_are_free(
    threads, wishes, first
):
    dealt = Dealt([Worker(str(number), one, 0) for number, one in enumerate(threads)])
    dealt.settle(wishes)
    assert dealt.address(0) == first


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
    assert found == {
        name: expected(program, n + 2) for n, (name, program) in enumerate(programs.items())
    }
    assert keys_left(client) == []


_BEGUN, _GO_ON = threading.Event(), threading.Event()


def _other_work():
    _BEGUN.set()
    return _GO_ON.wait(60)


def test_a_worker_that_has_other_work_is_waited_for(client, monkeypatch):
    monkeypatch.setattr(group, "SILENCE", 0.1)
    monkeypatch.setattr(group, "LOOK", 0.05)
    [address, *_] = client.nthreads()
    work = client.submit(_other_work, workers=[address], pure=False)
    _BEGUN.wait(60)
    timer = threading.Timer(0.4, _GO_ON.set)
    timer.start()
    assert finish(Exchanging(), client, 2, 4) == expected(Exchanging(), 2, 4)
    timer.join()
    assert work.result()


# One error for each cause


@contextmanager
def said(*names):
    """Give the messages of loggers of Dask, which do not pass them on."""
    found, handler = [], logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield found
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@contextmanager
def tracebacks(client, most):
    """Look at the logs of workers and scheduler in the end, once all tasks are gone."""
    with said("distributed.worker", "distributed.scheduler", "distributed.core") as found:
        yield
        assert keys_left(client) == []
        client.run(nothing)  # after what workers had to say
    assert len([one for one in found if "Traceback" in one or "Failed" in one]) <= most


def spoilt(entry):
    """A table with an entry in column "d" of each partition but the first.

    Other entries are counts.
    """
    table = pd.DataFrame(np.ones((40, 6)), columns=[*"abcdef"]).astype({"d": type(entry)})
    table.loc[[15, 25, 35], "d"] = entry
    return dd.from_pandas(table, npartitions=4)


def fit_lasso(entry):
    PrioritizedLasso(alpha=0.1).fit(spoilt(entry), np.arange(40.0))


def fit_topics(entry):
    DistributedLDA(2).fit(spoilt(entry))


def fit_ratings(entry):
    ratings = spoilt(entry)["d"].astype(float)
    ModelParallelMF(2).fit(spoilt(1)[["a", "b"]], ratings)


def fit_weights(entry):
    X = da.eye(40, chunks=10)[:, :6] + da.ones((40, 6), chunks=(10, 6))
    weights = np.ones(240)
    weights[[70, 130]] = entry
    ModelParallelMF(2).fit(
        X.map_blocks(lambda block: np.where(block > 1, np.nan, block)), sample_weight=weights[:234]
    )


@pytest.mark.parametrize(
    ("fit", "entry", "message"),
    [
        (fit_lasso, np.nan, "Input X contains NaN: 1 in column 'd'"),
        (fit_lasso, np.inf, "Input X contains infinity .*: 1 in column 'd'"),
        (fit_lasso, "five", r"no number: .*'five' \(column 'd'\)"),
        (fit_topics, "five", r"no number: .*'five' \(column 'd'\)"),
        (fit_ratings, np.nan, "rating nan in row 5"),
        (fit_weights, np.nan, "sample_weight"),
    ],
)
def test_what_many_partitions_hold_is_one_error_with_the_first_of_them(client, fit, entry, message):
    with (
        tracebacks(client, most=0),
        client.as_current(),
        pytest.raises(ValueError, match=rf"in partition 1 of the input \(.*\): .*{message}"),
    ):
        fit(entry)


@pytest.mark.filterwarnings("error")
def test_who_waits_for_long_leaves_no_line_for_each_look_in_the_log_of_the_scheduler(monkeypatch):
    _BEGUN.clear(), _GO_ON.clear()
    asked, ask = [], watch.unrunnable
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.02)
    monkeypatch.setattr(watch, "unrunnable", lambda *given: asked.append(1) or ask(*given))
    monkeypatch.setattr(logging.getLogger("distributed.worker"), "level", logging.INFO)
    timer = threading.Timer(0.5, _GO_ON.set)
    with own_cluster(set_as_default=False) as client, said("distributed.worker") as found:
        work = client.submit(_other_work, pure=False)
        _BEGUN.wait(60)
        timer.start()
        assert watch.gather(client, [work]) == [True]
    timer.join()
    assert len(asked) > 5
    assert len([one for one in found if "out-of-band" in one]) == 1


@pytest.mark.parametrize("fit", ["static", "dynamic"])
def test_no_coroutine_is_left_when_a_client_is_closed_after_a_fit(fit, recwarn):
    fitted = DistributedLDA(2, max_iter=3) if fit == "static" else PrioritizedLasso(alpha=0.1)
    with own_cluster(set_as_default=False) as client:
        with client.as_current():
            fitted.fit(da.ones((20, 4), chunks=(5, 4)), np.arange(20.0))
        client.close()
    gc.collect()  # a coroutine that was never awaited says so when it goes
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []


# Losses


def fail(at, *_):
    if (at.sweep, at.number) == (2, 1):
        raise ZeroDivisionError


@NO_TEARS
def test_the_error_of_a_program_counts_although_other_ranks_lose_each_other(client):
    with tracebacks(client, most=1), pytest.raises(ZeroDivisionError) as caught:
        finish(changed(Exchanging, "take", fail), client, 2, 5)
    assert caught.value.__notes__[0] == "in Changed.take, sweep 2, shard 1"
    assert keys_left(client) == []


def die_once(mark, at, *_):
    if (at.sweep, at.number) == (5, 1) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@NO_TEARS
def test_a_worker_that_is_killed_inside_a_batch_changes_nothing(processes, tmp_path):
    mark = tmp_path / "dead"
    assert finish(changed(Ring, "turn", partial(die_once, mark)), processes, 3) == expected(
        Ring(), 3
    )
    assert mark.exists()
    assert keys_left(processes) == []


# Ranks that are silent


@pytest.fixture
def start(client, monkeypatch, request):
    """Addresses of two workers, and a function that lets one rank of a hasty group run there.

    Nothing may be left.
    """
    for name, value in {"LOOK": 0.02, "SILENCE": 0.1, "KEPT": 0.1}.items():
        monkeypatch.setattr(group, name, value)
    group._inboxes.clear()  # what other clusters of this process have left
    addresses, tasks = list(client.nthreads()), []
    client.run(prepare, workers=list(addresses))
    keys = [(request.node.name, 0), (request.node.name, 1)]

    def start(rank, function, *args, is_rank=True):
        if is_rank:
            function, args = (
                as_rank,
                (Ranks(tuple(addresses), tuple(keys), rank, "a-group", 1 << 20), function, *args),
            )
        tasks.append(client.submit(function, *args, key=keys[rank], workers=[addresses[rank]]))
        return tasks[-1]

    yield addresses, start
    for task in tasks:
        task.release()
    assert_nothing_is_left(client)


def wait_for_other(communicator, other):
    return communicator.receive(other)


def nothing():
    return None


@pytest.mark.parametrize("other", ["has gone", "has ended", "has failed", "never begins"])
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_who_waits_for_a_rank_that_will_not_speak_is_told(start, other, monkeypatch):
    addresses, start = start
    message = r"rank 1 on .* has ended"
    if other == "has gone":
        monkeypatch.setattr(
            group, "ANSWER", 1.0
        )  # others may need longer where the machine is busy
        addresses[1], message = (
            "tcp://127.0.0.1:1",
            r"rank 1 on tcp://127.0.0.1:1 does not answer",
        )
    elif other == "has ended":
        start(1, nothing, is_rank=False).result()
    elif other == "has failed":
        assert start(1, divmod, 1, 0, is_rank=False).exception()
    lost = start(0, wait_for_other, 1).result(30)
    assert isinstance(lost, WorkLostError)
    assert re.match(f"ranks lost each other: {message}", str(lost))


def wait_in_vain(communicator, other, has_left):
    """Send a message that does not arrive, and wait for the answer.

    It is lost before the connection is open or after it.
    """
    pool = communicator._worker.rpc

    async def fail(*args, **options):
        vars(pool).pop("connect", None)
        raise OSError("no way")

    if not has_left:
        pool.connect = fail
    communicator.send(other, "is anybody there?")
    if has_left:
        communicator._leaving[-1].sent.result()
        communicator._loop.call_soon_threadsafe(communicator._comms[other].abort)
    communicator.receive(other)


@pytest.mark.parametrize(
    ("has_left", "message"),
    [(False, "rank 1 cannot be reached"), (True, "connection to rank 1 has closed")],
)
def test_who_waits_is_told_that_its_own_messages_do_not_arrive(start, has_left, message):
    _BEGUN.clear(), _GO_ON.clear()
    start[1](1, _other_work, is_rank=False)
    waiting, deadline = start[1](0, wait_in_vain, 1, has_left), time.monotonic() + 20
    while waiting.status == "pending" and time.monotonic() < deadline:
        time.sleep(0.01)
    status = waiting.status
    _GO_ON.set()
    assert status == "finished" and message in str(waiting.result())


def test_a_rank_that_is_not_where_it_was_is_lost_work(client):
    rank = client.submit(as_rank, None, max, group.InPlace("nowhere"), pure=False)
    assert "no longer has the result of its rank" in str(rank.result())
    rank.release()


def send_some(communicator, other):
    """Send messages, the first of which takes long to leave."""
    pool, connect = communicator._worker.rpc, communicator._worker.rpc.connect

    async def late(*args, **options):
        vars(pool).pop("connect", None)  # the worker may begin other connections at the same time
        await asyncio.sleep(0.1)
        return await connect(*args, **options)

    pool.connect = late
    for number in range(4):
        communicator.send(other, number)


def receive_some(communicator, other):
    return [communicator.receive(other) for _ in range(4)]


def test_messages_arrive_in_the_order_in_which_they_were_sent(start):
    sent, received = start[1](0, send_some, 1), start[1](1, receive_some, 0)
    assert (received.result(30), sent.result(30)) == ([0, 1, 2, 3], None)


def test_messages_to_a_rank_that_never_begins_are_forgotten(start):
    assert start[1](0, Group.send, 1, "is anybody there?").result(30) is None


def note_much(communicator):
    for _ in range(3 * group.MESSAGES_A_SECOND * group.SPANS_OF_A_MESSAGE):
        communicator.note("work", 0.0)


def test_a_rank_with_much_to_tell_tells_the_scheduler_a_part(client, start):
    before = len(client.get_events(group.SPANS))
    start[1](0, note_much).result(30)
    time.sleep(0.2)  # messages are under way
    assert (
        0 < len(client.get_events(group.SPANS)) - before <= 2 * group.MESSAGES_A_SECOND
    )  # within two seconds


SAID = []


def note_what_ends(communicator, other):
    SAID.append("began")
    try:
        communicator.receive(other)
    except RankLostError as error:
        SAID.append(str(error))
        raise


def test_who_is_not_wanted_any_more_ends(start):
    SAID.clear()
    waiting = start[1](0, note_what_ends, 1)
    for n, leave in ((1, waiting.release), (2, nothing)):
        deadline = time.monotonic() + 20
        while len(SAID) < n:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        leave()
    assert SAID == ["began", "nobody waits for this rank any more"]


def test_a_rank_that_begins_late_is_waited_for(start, monkeypatch):
    ask, asked, begun = Group._check_there, threading.Event(), threading.Event()

    def ask_before_it_begins(self, other, known):
        found = ask(self, other, known)
        asked.set()
        begun.wait(10)
        return found

    monkeypatch.setattr(Group, "_check_there", ask_before_it_begins)
    waiting = start[1](0, wait_for_other, 1)
    assert asked.wait(10)
    late = start[1](1, Group.send, 0, "here I am")
    begun.set()
    assert (waiting.result(30), late.result(30)) == ("here I am", None)


def load_and_fail(shard):
    raise FileNotFoundError(f"no shard {shard[1]}")


@NO_TEARS
def test_a_source_that_cannot_be_read_is_an_error_of_its_own(client):
    sources = [Source(load_and_fail, one.pieces) for one in make_sources(3)]
    with (
        pytest.raises(FileNotFoundError, match="no shard"),
        static_run(Ring(), sources, DaskPlace(client), n_sweeps=2),
    ):
        pass
    assert keys_left(client) == []


@pytest.mark.parametrize(
    "lazy",
    [lambda: da.ones((4, 2), chunks=(2, 2)), lambda: list(map(dask.delayed(abs), (1, 2)))],
    ids=["array", "list"],
)
def test_persisted_chunks_that_are_gone_end_the_fit_at_once(client, lazy):
    held = client.persist(lazy())
    place = DaskPlace(client)
    assert len(retry(place, lambda: place.gather(place.hold(held)))) == 2
    client.cancel(futures_of(held))
    with pytest.raises(
        WorkerLostError, match=r"persist it again, or use the collection from before persist\(\)"
    ):
        retry(place, lambda: place.gather(place.hold(held)))
    place.close()
