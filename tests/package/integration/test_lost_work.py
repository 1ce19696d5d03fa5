"""What a fit does when results, workers or the scheduler are gone: an answer or a named error, never a wait."""

import contextlib
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
from clusters import keys_left
from definition import run_serial
from distributed import Client, KilledWorker, LocalCluster, get_worker
from distributed.comm.core import CommClosedError
from distributed.objects import SchedulerInfo
from toys import Ring, make_shards, make_sources

from schmp_estimators import DistributedLDA, ModelParallelMF, PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.core.engine import rounds, static
from schmp_estimators.core.engine.rounds import Keeper
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places import watch
from schmp_estimators.core.places.cluster import live_workers
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.exceptions import NoWorkersError, SchedulerLostError, WorkerLostError

COUNTS = np.random.default_rng(0).poisson(1.0, (60, 30))
VALUES = COUNTS - 1.0
RESPONSES = VALUES[:, 0] + 0.5


def on_dask(values):
    return da.from_array(values, chunks=(20, -1))


def lda(**params):
    return DistributedLDA(3, max_iter=4, n_shards=2, random_state=0, **params)


#: For each kind of estimator a fit of an input on Dask.
FITS = {
    "lda": lambda: lda().fit(on_dask(COUNTS)),
    "mf": lambda: ModelParallelMF(2, max_iter=3, random_state=0).fit(on_dask(COUNTS.astype(float))),
    "lasso": lambda: PrioritizedLasso(0.01).fit(on_dask(VALUES), RESPONSES),
    "logistic": lambda: SparseLogisticRegression(C=0.1).fit(on_dask(VALUES), RESPONSES > 0),
}


@contextlib.contextmanager
def own_cluster(n_workers=2, **options):
    """Client of a cluster in this process that a test may destroy."""
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=":0", **options
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


async def close_workers(cluster):
    for worker in list(cluster.workers.values()):
        await worker.close(timeout=0, executor_wait=False, nanny=False, reason="test")
        # One that closes amid a task of this very process has no connection that breaks.
        await cluster.scheduler.remove_worker(worker.address, stimulus_id="test")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.1)
    with dask.config.set({"schmp-estimators.worker-timeout": 0.5}):
        yield


IT = threading.Event()


def wait_for_it():
    IT.wait(60)


@contextlib.contextmanager
def waiting_for_it(client):
    """The future of a task that ends when `IT` is set, here at the latest."""
    IT.clear()
    future = client.submit(wait_for_it, pure=False)
    try:
        yield future
    finally:
        IT.set()
        future.release()


def test_the_regular_look_of_the_client_hides_no_worker(client, monkeypatch):
    sync = client.sync

    def held_up(*args, **kwargs):
        """The client looks at its scheduler, without workers, before the caller goes on."""
        result = sync(*args, **kwargs)
        client._scheduler_identity = SchedulerInfo(sync(client.scheduler.identity, n_workers=0))
        return result

    monkeypatch.setattr(client, "sync", held_up)
    assert len(live_workers(client)) == 2


@pytest.mark.parametrize("n_empty", [1, 2])
def test_one_look_that_finds_nobody_is_not_believed(client, monkeypatch, n_empty):
    workers, looks = live_workers(client), []

    def look(_):
        looks.append(len(looks) < n_empty)
        if not looks[-1]:
            IT.set()
        return [] if looks[-1] else workers

    monkeypatch.setattr(watch, "live_workers", look)
    expectation = pytest.raises(WorkLostError, match="died") if n_empty == 2 else contextlib.nullcontext()
    with waiting_for_it(client) as future, expectation:
        watch.gather(client, [future], {worker.address for worker in workers})
    assert looks[:2] == [True, n_empty == 2]


def test_who_has_not_ended_soon_after_an_error_of_another_is_not_waited_for(client, monkeypatch):
    monkeypatch.setattr(watch, "AFTER_ERROR", 0.1)
    with waiting_for_it(client) as waiting:
        failing = client.submit(divmod, 1, 0, pure=False)
        error, lost = watch.outcomes(client, [failing, waiting], {worker.address for worker in live_workers(client)})
        failing.release()
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(lost, WorkLostError)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind != "lda" else kind for kind in FITS]
)
def test_workers_that_die_for_good_while_results_come_here_are_not_waited_for(kind):
    with own_cluster() as client:
        gather = client.gather

        def late(*args, **kwargs):
            client.cluster.sync(close_workers, client.cluster)
            return gather(*args, **kwargs)

        client.gather = late
        with pytest.raises(NoWorkersError, match=r"no workers for 0.5 s"):
            FITS[kind]()


def test_results_are_lost_with_those_who_held_what_they_are_made_of(client, monkeypatch):
    """Others work, but Dask may have forgotten that they are allowed to make these results."""
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.05)
    expectation = pytest.raises(WorkLostError, match="all workers that held the run died")
    with waiting_for_it(client) as waiting, expectation:
        watch.gather(client, [waiting], {"tcp://192.0.2.1:1"})


def test_ranks_are_lost_as_soon_as_the_worker_of_one_is_gone(client):
    """Nobody waits until the others have found out that it is silent."""
    late = threading.Timer(5.0, IT.set)
    with waiting_for_it(client) as waiting:
        late.start()
        found = watch.outcomes(client, [waiting], {live_workers(client)[0].address, "tcp://192.0.2.1:1"})
        late.cancel()
    assert isinstance(found[0], WorkLostError)
    assert str(found[0]) == "a worker of the run died"


class Unlucky:
    """Makes a chunk, but what it runs on is killed, as Dask has it, the first so many times."""

    calls = 0

    def __init__(self, n_failures):
        self.n_failures = n_failures
        Unlucky.calls = 0

    def __call__(self, values):
        Unlucky.calls += 1
        if Unlucky.calls <= self.n_failures:
            raise KilledWorker("chunk", SimpleNamespace(address="tcp://far-away"), 3)
        return values


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind != "mf" else kind for kind in FITS]
)
def test_an_input_that_is_lost_with_its_workers_is_read_again(client, kind):
    chunks = [dask.delayed(Unlucky(2))(np.maximum(VALUES, 0) if kind in ("lda", "mf") else VALUES)]
    fits = {
        "lda": lda,
        "mf": lambda: ModelParallelMF(2, max_iter=3, random_state=0),
        "lasso": lambda: PrioritizedLasso(0.01),
        "logistic": lambda: SparseLogisticRegression(C=0.1),
    }
    y = {"lasso": RESPONSES, "logistic": RESPONSES > 0}.get(kind)
    with client.as_current():
        fitted = fits[kind]().fit(chunks, y)
    assert Unlucky.calls >= 3
    assert fitted.n_features_in_ == 30


def test_an_input_that_is_lost_again_and_again_is_given_up(client):
    with client.as_current(), pytest.raises(WorkerLostError, match="6 times without the input being read"):
        lda().fit([dask.delayed(Unlucky(99))(COUNTS)])


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(CommClosedError("closed"), marks=pytest.mark.slow),
        OSError("reset"),
        TimeoutError("no valid workers"),
    ],
)
def test_a_worker_killed_while_it_gets_its_data_costs_only_time(client, monkeypatch, error):
    monkeypatch.setattr(dask_place, "_INLINE", 0)  # all is sent
    expected = lda().fit(COUNTS).topic_word_counts_.toarray()
    scatter, calls = client.scatter, []

    def once(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise error
        return scatter(*args, **kwargs)

    monkeypatch.setattr(client, "scatter", once)
    with client.as_current():
        np.testing.assert_array_equal(lda().fit(COUNTS).topic_word_counts_.toarray(), expected)
    assert len(calls) > 2


def test_data_that_never_arrive_end_the_fit(client, monkeypatch):
    def never(*args, **kwargs):
        raise CommClosedError("closed")

    monkeypatch.setattr(client, "scatter", never)
    monkeypatch.setattr(dask_place, "_INLINE", 0)
    with client.as_current(), pytest.raises(WorkerLostError, match="6 times without a sweep"):
        lda().fit(COUNTS)


@pytest.mark.slow
def test_workers_that_are_all_paused_are_named():
    at_once = dask.config.set({"distributed.worker.memory.monitor-interval": "50ms"})
    with at_once, own_cluster(memory_limit="20MB") as client:
        deadline = time.monotonic() + 20
        while {worker.status for worker in live_workers(client)} != {"paused"} and time.monotonic() < deadline:
            time.sleep(0.05)
        for fit in (lambda: lda().fit(COUNTS), FITS["lda"], FITS["lasso"]):
            with pytest.raises(NoWorkersError, match=r"is paused and uses .*iB of 19.07 MiB; .*paused") as caught:
                fit()
            assert all(worker.address in str(caught.value) for worker in live_workers(client))


def test_workers_that_pause_during_the_fit_are_named():
    with own_cluster(memory_limit=0) as client, waiting_for_it(client) as waiting:
        client.run(lambda dask_worker: setattr(dask_worker, "status", type(dask_worker.status).paused))
        with pytest.raises(NoWorkersError, match="paused"):
            watch.gather(client, [waiting])


def test_a_scheduler_that_has_gone_is_named():
    class Ends:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            cluster.close()

    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    in_vain = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    with Client(cluster.scheduler_address), in_vain, pytest.raises(SchedulerLostError, match="checkpoint"):
        DistributedLDA(3, max_iter=500, random_state=0).set_callbacks(Ends()).fit(COUNTS)


class Places:
    """Notes which workers updates run on."""

    seen: ClassVar[list] = []

    @classmethod
    def note(cls):
        cls.seen.append(get_worker().address)


class NotedRing(Ring):
    def turn(self, at, state, block):
        Places.note()
        return super().turn(at, state, block)


def noted_sum(partition, job):
    factor, total = partition
    if job:
        Places.note()
    return (factor, total + job * factor), total


def grow_to_two(client):
    client.cluster.scale(2)
    client.wait_for_workers(2)


def assert_fairly_dealt(client, runtime):
    """Both workers have worked, and each has two shards."""
    addresses = [worker.address for worker in live_workers(client)]
    assert set(Places.seen) == set(addresses)
    assert Counter(map(runtime._dealt.address, range(4))) == dict.fromkeys(addresses, 2)


def test_workers_that_come_late_get_shards_after_the_next_snapshot(monkeypatch):
    for name in ("SNAPSHOT_EVERY", "SNAPSHOT_SHARE"):
        monkeypatch.setattr(static, name, 0.0)
    expected = [record for record, *_ in run_serial(Ring(), make_shards(4), 9)]
    with own_cluster(1) as client:
        runtime, found = DaskPlace(client), []
        with static_run(NotedRing(), make_sources(4), runtime, n_sweeps=9) as run:
            for record in run:
                found.append(record)
                if record["sweep"] == 1:
                    grow_to_two(client)
                if record["sweep"] == 6:
                    Places.seen.clear()
        assert found == expected
        assert_fairly_dealt(client, runtime)
        assert keys_left(client) == []


@pytest.mark.parametrize("keeper", [None, Keeper(lambda piece: piece[1], lambda piece, saved: (piece[0], saved))])
def test_workers_that_come_late_get_partitions_when_these_are_kept(monkeypatch, keeper):
    monkeypatch.setattr(rounds, "KEEP_EVERY", 4)
    with own_cluster(1) as client:
        runtime, found = DaskPlace(client), []
        with rounds.Rounds(runtime, [(value, 0) for value in range(1, 5)], keeper=keeper) as held:
            for number in range(12):
                found.append(held.collect(held.submit(noted_sum, number)))
                if number == 1:
                    grow_to_two(client)
                if number == 8:
                    Places.seen.clear()
        assert found == [[value * number * (number - 1) // 2 for value in range(1, 5)] for number in range(12)]
        assert_fairly_dealt(client, runtime)
        assert keys_left(client) == []


def test_shards_stay_where_they_are_if_a_late_worker_would_not_help():
    with own_cluster(2) as client:
        runtime = DaskPlace(client)
        before = runtime.groups(4)
        client.cluster.scale(3)  # of four shards two remain on some worker
        client.wait_for_workers(3)
        assert not runtime.deal()
        assert runtime.groups(4) == before
