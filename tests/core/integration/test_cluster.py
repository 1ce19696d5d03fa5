"""Clusters of real processes: workers that die, fits side by side, and what is left behind."""

import os
import signal
import threading
import time
from concurrent.futures import wait
from itertools import groupby

import numpy as np
import pytest
from clusters import keys_left, kill_workers
from definition import run_serial
from distributed import Client, LocalCluster, get_worker
from schmp_estimators.core.engines.static import StaticRun
from toys import Divided, Merging, Ring, make_shards

from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places.borrowing import borrowing
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.errors import WorkerLostError, WorkLostError
from schmp_estimators.core.places.place import Ref, Task
from schmp_estimators.core.program import Source

N_SWEEPS = 12


class SlowRing(Ring):
    """Slow enough that a worker dies in the middle of it."""

    def turn(self, at, state, block):
        time.sleep(0.02)
        return super().turn(at, state, block)


class SlowDivided(Divided):
    def visit(self, at, state, block):
        time.sleep(0.02)
        return super().visit(at, state, block)


class SlowMerging(Merging):
    def take(self, at, state, answers, summand):
        time.sleep(0.02)
        return super().take(at, state, answers, summand)


class Deadly(Ring):
    """Kills its worker every time."""

    def turn(self, at, state, block):
        if at.sweep == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().turn(at, state, block)


def identity(shard):
    return shard


def sources(n_shards):
    return [Source(identity, (lambda shard=shard: shard,)) for shard in make_shards(n_shards)]


def expected(program, n_shards):
    *_, (record, harvest, _) = run_serial(program, make_shards(n_shards), N_SWEEPS)
    return record, harvest.shards, harvest.blocks


@pytest.mark.parametrize(
    ("n_killed", "program"),
    [
        pytest.param(1, SlowRing(), marks=pytest.mark.slow, id="1-ring"),
        pytest.param(3, SlowRing(), marks=pytest.mark.slow, id="3-ring"),
        pytest.param(1, SlowDivided(), marks=pytest.mark.slow, id="1-divided"),
        pytest.param(3, SlowDivided(), marks=pytest.mark.slow, id="3-divided"),
    ],
)
def test_killed_workers_do_not_change_the_result(processes, program, n_killed):
    with StaticRun(program, sources(3), DaskPlace(processes, cut_every=4), n_sweeps=N_SWEEPS) as run:
        for record in run:
            if record["sweep"] == 5:
                kill_workers(processes, n_killed)
        harvest = run.harvest()
    assert (record, harvest.shards, harvest.blocks) == expected(program, 3)


@pytest.mark.slow
@pytest.mark.parametrize("n_killed", [1, 3])
@pytest.mark.parametrize("by_tasks", [16, 0])
def test_killed_workers_do_not_change_what_shards_exchange(processes, monkeypatch, by_tasks, n_killed):
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", by_tasks)
    monkeypatch.setattr(dask_place, "TASKS_OF_A_THREAD", 1)  # by post a task has two or three shards, then
    records = []
    with StaticRun(SlowMerging(), sources(8), DaskPlace(processes, cut_every=4), n_sweeps=N_SWEEPS) as run:
        for record in run:
            records.append(record)
            if len(records) == 6:
                kill_workers(processes, n_killed)
        harvest = run.harvest()
    assert (records[-1], harvest.shards, harvest.blocks) == expected(SlowMerging(), 8)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_what_is_shared_outlives_those_who_have_it(processes, size):
    place = DaskPlace(processes)
    shared = place.share(np.arange(size))
    sums = place.map(np.sum, [(shared,)] * 6, "sum")
    assert place.gather(sums) == [size * (size - 1) // 2] * 6
    [holder, *_] = processes.who_has([shared])[shared.key]
    pid = processes.run(os.getpid, workers=[holder])[holder]
    os.kill(pid, signal.SIGKILL)
    while holder in processes.scheduler_info()["workers"]:
        time.sleep(0.01)
    assert place.gather(place.map(np.max, [(shared,)] * 3, "max")) == [size - 1] * 3
    assert place.gather(sums) == [size * (size - 1) // 2] * 6
    place.close()


@pytest.mark.slow
def test_program_that_kills_its_workers_is_given_up(processes):
    with (
        pytest.raises(WorkerLostError, match="4 times without a sweep"),
        StaticRun(Deadly(), sources(2), DaskPlace(processes), n_sweeps=3) as run,
    ):
        list(run)
    assert keys_left(processes) == []


@pytest.mark.slow
def test_fits_at_once_do_not_disturb_each_other(client):
    found = {}

    def fit(name, program):
        with StaticRun(program, sources(3), DaskPlace(client, cut_every=5), n_sweeps=N_SWEEPS) as run:
            *_, record = run
            harvest = run.harvest()
            found[name] = record, harvest.shards, harvest.blocks

    programs = {"one": Ring(), "two": Divided()}
    threads = [threading.Thread(target=fit, args=item) for item in programs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: expected(program, 3) for name, program in programs.items()}


@pytest.mark.parametrize("end", ["success", "failure", "abandoned"])
def test_nothing_is_left_on_the_cluster(client, end):
    program = Ring(fail_at=3 if end == "failure" else -1)
    try:
        with StaticRun(program, sources(2), DaskPlace(client), n_sweeps=6) as run:
            for record in run:
                if end == "abandoned" and record["sweep"] == 1:
                    break
    except ZeroDivisionError:
        assert end == "failure"
    assert keys_left(client) == []


@pytest.mark.slow
def test_the_scheduler_does_not_grow_with_the_number_of_sweeps(client):
    def known():
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    sizes = []
    with StaticRun(Ring(), sources(2), DaskPlace(client, cut_every=5), n_sweeps=40) as run:
        for record in run:
            if record["sweep"] % 10 == 7:
                sizes.append(known())
    assert max(sizes) <= 2 * sizes[0]  # without cuts it is five times as many


@pytest.mark.parametrize(("n_shards", "shares"), [(2, [1, 1]), (4, [2, 2]), (5, [3, 2]), (7, [4, 3])])
def test_neighbours_share_a_worker_and_all_workers_have_work(client, n_shards, shares):
    runtime = DaskPlace(client)
    runtime.expect(n_shards)
    found = [runtime._dealt.address(place) for place in range(n_shards)]
    assert [len(list(group)) for _, group in groupby(found)] == shares


def held(client, function, *args):
    """A place with one result, which was made of another."""
    place = DaskPlace(client)
    place.submit(
        [Task(("first", 0), range, (5,), 0), Task(("made", 0), function, (Ref(("first", 0)), *args), 0)], [("made", 0)]
    )
    return place


def test_results_under_new_keys_have_no_history(client):
    place = held(client, sum)
    place.rename({("made", 0): ("kept", 0)})
    assert place.fetch([("kept", 0)]) == [10]
    deadline = time.monotonic() + 60
    while len(known := client.run_on_scheduler(keys_known)) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert known == {str(("kept", 0)): 0}
    place.submit([Task(("later", 0), str, (Ref(("kept", 0)),), 0)], [("later", 0)])
    assert place.fetch([("later", 0)]) == ["10"]
    place.clear()
    assert keys_left(client) == []


LET_GO = threading.Event()


def waits(_):
    return LET_GO.wait(60)


def test_results_go_while_what_uses_others_of_them_is_still_made(client):
    place = held(client, sum)
    place.fetch([("made", 0)])
    LET_GO.clear()
    place.submit(
        [Task(("next", 0), str, (Ref(("made", 0)),), 0), Task(("model", 0), waits, (Ref(("next", 0)),), 0)],
        [("model", 0)],
    )
    place.drop_after([("made", 0)], ("model", 0))
    deadline = time.monotonic() + 60
    while (states := client.run_on_scheduler(states_known))[str(("made", 0))] == "memory":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert states[str(("model", 0))] in {"waiting", "processing"}
    LET_GO.set()
    assert place.fetch([("model", 0)]) == [True]
    place.clear()
    assert keys_left(client) == []


def states_known(dask_scheduler):
    return {str(key): task.state for key, task in dask_scheduler.tasks.items()}


def keys_known(dask_scheduler):
    return {str(key): len(task.dependencies) for key, task in dask_scheduler.tasks.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_results_that_are_none_get_no_new_keys(client):
    place = held(client, sum, "text")
    with pytest.raises(TypeError):
        place.rename({("made", 0): ("kept", 0)})
    place.clear()
    place = held(client, sum)
    place.fetch([("made", 0)])
    client.cancel([place._futures["made", 0]])
    with pytest.raises(WorkLostError):
        place.rename({("made", 0): ("kept", 0)})
    place.clear()
    assert keys_left(client) == []


TOGETHER = threading.Barrier(2)


def meet(number):
    """Wait for another thread that does the same."""
    TOGETHER.wait(60)
    return number


def fail(number):
    if number == 2:
        raise ZeroDivisionError("job 2")
    return number


def lend_threads(function, n_jobs):
    return borrowing(function, range(n_jobs))


def occupied(function, n_jobs):
    """Do jobs while all other threads of the worker wait for that."""
    others = [get_worker().executors["default"].submit(RELEASE.wait, 60) for _ in range(2)]
    try:
        return borrowing(function, range(n_jobs))
    finally:
        RELEASE.set()
        wait(others)


RELEASE = threading.Event()


@pytest.fixture
def three_threads():
    with (
        LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.cluster
def test_idle_threads_of_a_worker_help_with_jobs(three_threads):
    assert three_threads.submit(lend_threads, meet, 4, pure=False).result() == [0, 1, 2, 3]


@pytest.mark.cluster
def test_who_finds_no_idle_thread_works_alone(three_threads):
    assert three_threads.submit(occupied, str, 9, pure=False).result() == [str(number) for number in range(9)]


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_errors_of_jobs_are_raised_whoever_does_them(three_threads):
    with pytest.raises(ZeroDivisionError, match="job 2"):
        three_threads.submit(lend_threads, fail, 6, pure=False).result()


def test_outside_of_a_worker_jobs_are_done_in_turn():
    assert borrowing(str, range(3)) == ["0", "1", "2"]
