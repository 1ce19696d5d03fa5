"""Shards that work side by side, in one task each, and give each other pieces past the scheduler."""

import threading
import time
from pathlib import Path

import dask
import numpy as np
import pytest
from clusters import keys_left
from definition import run_serial
from distributed import get_worker
from toys import Exchanging, Ring, make_shards

from schmp_estimators.core.engines.static import Source, StaticRun
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.hands import REMEMBERED, Basket, WorkerHands, basket_of

pytestmark = pytest.mark.cluster

N_SWEEPS = 7


def sources(n_shards):
    return [Source(np.asarray, (lambda shard=shard: shard,)) for shard in make_shards(n_shards)]


def result(run):
    *_, record = run
    harvest = run.harvest()
    return record, harvest.shards, harvest.blocks


def expected(program, n_shards, n_sweeps=N_SWEEPS):
    *_, (record, harvest, _) = run_serial(program, make_shards(n_shards), n_sweeps)
    return record, harvest.shards, harvest.blocks


@pytest.fixture
def submitted(monkeypatch):
    """Words of the keys of all tasks that are sent."""
    words, submit = [], DaskPlace.submit

    def noting(self, tasks, wanted):
        words.extend(task.key[0].rpartition("-")[0] for task in tasks)
        submit(self, tasks, wanted)

    monkeypatch.setattr(DaskPlace, "submit", noting)
    return words


def test_a_shard_has_one_task_a_sweep_and_nothing_is_left(client, submitted):
    with StaticRun(Exchanging(), sources(2), DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        assert result(run) == expected(Exchanging(), 2)
    assert submitted.count("exchanging-mix-up-take") == 2 * N_SWEEPS
    assert not {"exchanging-mix-up", "exchanging-answer", "exchanging-keep"} & {*submitted}
    assert set(client.run(lambda dask_worker: len(basket_of(dask_worker))).values()) == {0}
    assert keys_left(client) == []


@pytest.mark.parametrize(("program", "n_shards"), [(Exchanging(), 3), (Ring(), 2)])
def test_shards_without_a_thread_of_their_own_and_other_stages_go_by_tasks(client, submitted, program, n_shards):
    with StaticRun(program, sources(n_shards), DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        assert result(run) == expected(program, n_shards)
    assert "exchanging-mix-up-take" not in submitted


class Moved(WorkerHands):
    """Hands that do not know where shards are."""

    def __init__(self, token, addresses):
        super().__init__(token, addresses[::-1])


def test_shards_that_have_moved_go_on_by_tasks(client, monkeypatch, submitted, caplog):
    monkeypatch.setattr("schmp_estimators.core.places.dask.WorkerHands", Moved)
    with StaticRun(Exchanging(), sources(2), DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        assert result(run) == expected(Exchanging(), 2)
    assert "has moved" in caplog.text
    assert submitted.count("exchanging-mix-up") > 0
    assert keys_left(client) == []


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def test_a_shard_that_waits_lets_other_tasks_run(client, tmp_path):
    """Its partner's thread may be taken by somebody who waits for something that shall run on this one's."""
    first, second = [worker.address for worker in DaskPlace(client)._workers]
    with StaticRun(Exchanging(), sources(2), DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        sweeps = iter(run)
        next(sweeps)
        others = [client.submit(wait_for, tmp_path / "told", workers=[second], pure=False) for _ in range(2)]
        others.append(client.submit(Path.touch, tmp_path / "told", workers=[first], pure=False))
        *_, record = sweeps
        assert record == expected(Exchanging(), 2)[0]
        client.gather(others)


def _at_work(dask_worker):
    return dask_worker.state.executing_count + len(dask_worker.state.long_running)


def wait_until_idle(client):
    """Wait until no task runs, or goes on although nobody wants it."""
    deadline = time.monotonic() + 20
    while any(busy := client.run(_at_work).values()):
        assert time.monotonic() < deadline, busy
        time.sleep(0.05)


class Failing(Exchanging):
    """One shard fails while the other one waits for it."""

    def mix_up(self, at, pieces, factor):
        if at.sweep == 3 and at.number == 1:
            raise ArithmeticError("shard 1 has failed")
        return super().mix_up(at, pieces, factor)


def test_an_error_is_raised_as_it_is_and_nobody_goes_on_waiting(client):
    with (
        pytest.raises(ArithmeticError, match="shard 1 has failed"),
        StaticRun(Failing(), sources(2), DaskPlace(client), n_sweeps=N_SWEEPS) as run,
    ):
        list(run)
    assert keys_left(client) == []
    wait_until_idle(client)
    with StaticRun(Exchanging(), sources(2), DaskPlace(client), n_sweeps=N_SWEEPS) as run:
        assert result(run) == expected(Exchanging(), 2)


def test_two_runs_at_a_time_do_not_wait_for_each_other(client):
    found = {}

    def fit(number):
        with StaticRun(Exchanging(), sources(2), DaskPlace(client), n_sweeps=25) as run:
            found[number] = result(run)

    threads = [threading.Thread(target=fit, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(3)] == [expected(Exchanging(), 2, 25)] * 3


def key(sweep, number=0, leg="pieces"):
    return "words", number, sweep, 1, leg


def test_a_basket_keeps_what_somebody_still_needs():
    basket = Basket()
    basket.put("token", key(4), 1, {0: "late"})
    basket.put("token", key(5), 1, {0: "early"})  # from a shard that is a sweep ahead
    basket.put("other", key(1), 1, {0: "another run's"})
    assert basket.take("token", key(4), 0, 1, 0.0) == {1: "late"}
    basket.put("token", key(7), 1, {0: "of the sweep after the next one"})
    assert basket.take("token", key(5), 0, 1, 0.0) is None
    basket.put("token", key(7, number=1), 1, {0: "begun anew"})
    assert basket.take("token", key(7), 0, 1, 0.0) is None
    assert basket.take("other", key(1), 0, 1, 0.0) == {1: "another run's"}
    assert basket.take("token", key(7, number=1), 0, 2, 0.01) is None  # one of two has come
    basket.put("token", key(7, number=1), 0, {0: "own"})
    assert basket.take("token", key(7, number=1), 0, 2, 0.0) == {0: "own", 1: "begun anew"}
    assert len(basket) == 0


def test_a_basket_takes_nothing_for_a_place_that_is_no_more():
    basket = Basket()
    basket.put("token", key(4), 1, {0: "kept"})
    basket.clear("token")
    basket.put("token", key(4), 0, {0: "on its way"})
    assert len(basket) == 0
    for other in range(REMEMBERED):
        basket.clear(str(other))
    basket.put("token", key(4), 0, {0: "long forgotten"})
    assert len(basket) == 1


def give_to_nobody():
    address = get_worker().address
    WorkerHands("token", [address, f"{address}9"]).give(key(1), 0, {0: "own", 1: "lost"})


def wait_for_nobody():
    address = get_worker().address
    WorkerHands("token", [address, f"{address}9"]).take(key(1), 0, 2)


def test_a_partner_that_is_gone_is_work_lost(client):
    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}):
        future = client.submit(give_to_nobody, pure=False)
        with pytest.raises(WorkLostError, match="was lost with its worker"):
            future.result()
    future.release()  # the error has a traceback that holds it


@pytest.mark.parametrize("function", [give_to_nobody, wait_for_nobody])
def test_nobody_tries_on_whose_result_is_not_wanted(client, function):
    future = client.submit(function, pure=False)
    deadline = time.monotonic() + 20
    while not any(client.run(_at_work).values()):
        assert time.monotonic() < deadline and not future.done(), future
        time.sleep(0.01)
    future.release()
    wait_until_idle(client)
