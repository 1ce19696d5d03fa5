"""What a fit does when results, workers or the scheduler are gone.

An answer or a named error, never a wait.
"""

import contextlib
import re
import threading
from collections import Counter
from functools import partial
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from callbacks import AfterSweeps
from clusters import keys_left, own_cluster
from corpora import assert_same_bits
from covering import slow_but
from definition import run_serial
from distributed import Client, KilledWorker, LocalCluster, get_worker
from distributed.comm.core import CommClosedError
from toys import Ring, changed, make_shards, make_sources

from schmp_estimators import (
    DistributedLDA,
    DistributedSLIM,
    ModelParallelMF,
    PrioritizedLasso,
    SparseLogisticRegression,
)
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


def lda(**params):
    return DistributedLDA(3, max_iter=4, n_shards=2, random_state=0, **params)


#: For each kind of estimator a maker, and data.
FITS = {
    "lda": (lda, COUNTS, None),
    "mf": (lambda: ModelParallelMF(2, max_iter=3, random_state=0), COUNTS.astype(float), None),
    "slim": (DistributedSLIM, COUNTS, None),
    "lasso": (lambda: PrioritizedLasso(0.01), VALUES, RESPONSES),
    "logistic": (lambda: SparseLogisticRegression(C=0.1), VALUES, RESPONSES > 0),
}


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


@pytest.mark.parametrize("n_empty", [1, 2])
def test_one_look_that_finds_nobody_is_not_believed(client, monkeypatch, n_empty):
    workers, looks = live_workers(client), []

    def look(_):
        looks.append(len(looks) < n_empty)
        if not looks[-1]:
            IT.set()
        return [] if looks[-1] else workers

    monkeypatch.setattr(watch, "live_workers", look)
    expectation = (
        pytest.raises(WorkLostError, match="died") if n_empty == 2 else contextlib.nullcontext()
    )
    with waiting_for_it(client) as future, expectation:
        watch.gather(client, [future], {worker.address for worker in workers})
    assert looks[:2] == [True, n_empty == 2]


def test_ranks_need_the_workers_of_all_of_them(client, monkeypatch):
    workers = live_workers(client)
    monkeypatch.setattr(watch, "live_workers", lambda _: workers[:1])
    with waiting_for_it(client) as future:
        [lost] = watch.outcomes(client, [future], {worker.address for worker in workers})
    assert isinstance(lost, WorkLostError)


@pytest.mark.parametrize(
    ("call", "kind"),
    [((divmod, 1, 0), ZeroDivisionError), ((WorkLostError, "lost"), WorkLostError)],
    ids=["raised", "returned"],
)
def test_who_has_not_ended_soon_after_an_error_of_another_is_not_waited_for(
    client, monkeypatch, call, kind
):
    monkeypatch.setattr(watch, "AFTER_ERROR", 0.1)
    with waiting_for_it(client) as waiting:
        failing = client.submit(*call, pure=False)
        error, lost = watch.outcomes(
            client, [failing, waiting], {worker.address for worker in live_workers(client)}
        )
        failing.release()
    assert isinstance(error, kind)
    assert isinstance(lost, WorkLostError)


@pytest.mark.parametrize("kind", slow_but(["lda"], FITS))
def test_workers_that_die_for_good_while_results_come_here_are_not_waited_for(kind):
    make, X, y = FITS[kind]
    with own_cluster() as client:
        gather = client.gather

        def late(*args, **kwargs):
            client.cluster.sync(close_workers, client.cluster)
            return gather(*args, **kwargs)

        client.gather = late
        with pytest.raises(NoWorkersError, match=r"no workers for 0.5 s"):
            make().fit(da.from_array(X, chunks=(20, -1)), y)


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


@pytest.mark.parametrize("kind", slow_but(["mf"], FITS))
def test_an_input_that_is_lost_with_its_workers_is_read_again(client, kind):
    make, X, y = FITS[kind]
    with client.as_current():
        fitted = make().fit([dask.delayed(Unlucky(2))(X)], y)
    assert Unlucky.calls >= 3
    assert fitted.n_features_in_ == 30


def test_an_input_that_is_lost_again_and_again_is_given_up(client):
    with (
        client.as_current(),
        pytest.raises(WorkerLostError, match="6 times, each time before the input was read"),
    ):
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


def test_workers_that_pause_during_the_fit_are_named():
    with own_cluster(memory_limit=0) as client, waiting_for_it(client) as waiting:
        client.run(
            lambda dask_worker: setattr(dask_worker, "status", type(dask_worker.status).paused)
        )
        with pytest.raises(NoWorkersError, match="paused"):
            watch.gather(client, [waiting])


def test_a_scheduler_that_has_gone_is_named():
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    in_vain = dask.config.set({"distributed.comm.timeouts.connect": "300ms"})
    ends = AfterSweeps(lambda lda, context: cluster.close())
    with (
        Client(cluster.scheduler_address),
        in_vain,
        pytest.raises(
            SchedulerLostError, match=r"^DistributedLDA has ended, .*checkpoint"
        ) as caught,
    ):
        DistributedLDA(3, max_iter=500, random_state=0).set_callbacks(ends).fit(COUNTS)
    assert not re.search("Comm|Errno|<|-1|sweep", str(caught.value))


def test_a_scheduler_that_was_restarted_without_workers_is_named():
    options = {"processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, **options) as cluster, contextlib.ExitStack() as stack:

        def restart(*_):
            if cluster.status.name == "running":
                cluster.close()
                port = int(cluster.scheduler_address.rpartition(":")[2])
                stack.enter_context(LocalCluster(n_workers=0, scheduler_port=port, **options))

        with (
            Client(cluster.scheduler_address),
            pytest.raises(
                NoWorkersError,
                match=r"^DistributedLDA has ended, because the scheduler was restarted.*start some",
            ),
        ):
            DistributedLDA(3, max_iter=500, random_state=0).set_callbacks(AfterSweeps(restart)).fit(
                COUNTS
            )


#: Which workers updates ran on.
SEEN = []


def note(*_):
    SEEN.append(get_worker().address)


def test_workers_that_come_late_get_shards_after_the_next_snapshot(snapshots):
    expected = [record for record, *_ in run_serial(Ring(), make_shards(4), 9)]
    with own_cluster(1) as client:
        runtime, found = DaskPlace(client), []
        with static_run(changed(Ring, "turn", note), make_sources(4), runtime, n_sweeps=9) as run:
            for record in run:
                found.append(record)
                if record["sweep"] == 1:
                    client.cluster.scale(2)
                    client.wait_for_workers(2)
                if record["sweep"] == 6:
                    SEEN.clear()
        assert found == expected
        addresses = [worker.address for worker in live_workers(client)]
        assert set(SEEN) == set(addresses)
        assert Counter(map(runtime._dealt.address, range(4))) == dict.fromkeys(addresses, 2)
        assert keys_left(client) == []


@pytest.mark.parametrize("sampler", ["warp", "frozen"])
def test_parts_of_documents_are_joined_anew_for_workers_that_come_and_go(snapshots, sampler):
    make = partial(DistributedLDA, 3, sampler=sampler, max_iter=12, random_state=0)
    expected, ranks = make().fit(COUNTS), []
    with own_cluster(1) as client:
        workers = client.cluster.workers

        def scale(estimator, _):
            done = estimator.n_iter_
            ranks.append(
                sum(any("lda-load" in str(key) for key in one.data) for one in workers.values())
            )
            if done in (2, 6):
                client.cluster.scale(3 if done == 2 else 2)
                client.wait_for_workers(3 if done == 2 else 2)

        found = make(n_shards=7).set_callbacks(AfterSweeps(scale)).fit(COUNTS)
        assert keys_left(client) == []
    assert_same_bits(found, expected)
    assert found.n_shards_ == 7
    assert {1, 3} <= {*ranks}
