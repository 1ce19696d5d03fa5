"""A worker that is stopped: fits go on without it, to the same bits, and one warning names it."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from callbacks import AfterSweeps
from clusters import N_PROCESSES, keys_left, own_cluster
from covering import slow_but

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    PrioritizedLassoCV,
)
from schmp_estimators.core.places import cluster, watch
from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places.answers import forget_answers
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import choose_place
from schmp_estimators.exceptions import NoWorkersError, WorkerLostError

COUNTS = np.random.default_rng(0).poisson(1.0, (60, 30))
VALUES = COUNTS - 1.0
RESPONSES = VALUES[:, :3].sum(axis=1) + 0.5


#: For each kind of fit a maker, data, and the attribute that is compared.
FITS = {
    "lda": (
        lambda: DistributedLDA(3, max_iter=5, n_shards=3, random_state=0),
        COUNTS,
        None,
        "topic_word_counts_",
    ),
    "mf": (
        lambda: ModelParallelMF(2, max_iter=4, n_shards=3, random_state=0),
        COUNTS.astype(float),
        None,
        "user_factors_",
    ),
    "rounds": (
        lambda: PrioritizedLasso(0.1, schedule="priority", random_state=0, n_shards=3),
        VALUES,
        RESPONSES,
        "coef_",
    ),
    "cv": (lambda: PrioritizedLassoCV(cv=3, alphas=5), VALUES, RESPONSES, "coef_"),
}


#: A module that no fit needs, but that workers import if this process has it.
UNUSED = "schmp_estimators.datasets"


def bits(fitted, name):
    found = getattr(fitted, name)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found).tobytes()


def on_dask(X):
    return da.from_array(X, chunks=(20, -1))


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.2)
    with dask.config.set({"schmp-estimators.answer-timeout": 2.5}):
        yield


@contextmanager
def stopping(client):
    """A function that stops one worker, until this context ends, and returns its address."""
    address, pid = sorted(client.run(os.getpid).items())[1]

    def stop():
        os.kill(pid, signal.SIGSTOP)
        return address

    try:
        yield stop
    finally:
        os.kill(pid, signal.SIGCONT)


class AfterAny(AfterSweeps):
    """Acts after each task, also of fits without sweeps."""

    def on_fit_task_end(self, estimator, context):
        self.act(estimator, context)


def warned(caplog, address):
    return [one for one in caplog.messages if address in one]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FITS)
def test_a_fit_that_begins_beside_a_stopped_worker_does_without_it(kind, processes, caplog):
    make, X, y, name = FITS[kind]
    expected = bits(make().fit(X, y), name)
    with (
        processes.as_current(),
        stopping(processes) as stop,
        caplog.at_level(logging.WARNING, "schmp_estimators"),
    ):
        make().fit(on_dask(X), y)  # so that workers have imported what they need
        caplog.clear()
        address = stop()
        assert bits(make().fit(on_dask(X), y), name) == expected
    [message] = warned(caplog, address)  # one who answered before is missed where work is lost
    assert message.endswith(("the fit does without", "again"))
    assert keys_left(processes) == []


# "cv" has read its few rows before its first task, and needs no worker afterwards
@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(["lda"], [kind for kind in FITS if kind != "cv"]))
def test_a_fit_whose_worker_stops_goes_on_without_it(kind, processes, caplog):
    make, X, y, name = FITS[kind]
    expected = bits(make().fit(X, y), name)
    with (
        processes.as_current(),
        stopping(processes) as stop,
        caplog.at_level(logging.WARNING, "schmp_estimators"),
    ):
        make().fit(on_dask(X), y)
        caplog.clear()
        found = []
        kill = AfterAny(lambda *_: found.append(found[0] if found else stop()))
        assert bits(make().set_callbacks(kill).fit(on_dask(X), y), name) == expected
    [message] = warned(caplog, found[0])
    assert message.startswith("schmp-") and "; " in message
    assert keys_left(processes) == []


def test_workers_import_what_a_fit_needs_before_its_tasks_come(processes):
    import_module(UNUSED)
    processes.run(forget_unused, None)
    forget_answers(processes)
    with processes.as_current(), choose_place():
        assert all(processes.run(lambda name: name in sys.modules, UNUSED).values())


class Stuck:
    """Finds no module, and looks for one of them until there is a file."""

    def __init__(self, path):
        self.path = path

    def find_spec(self, name, *_):
        while name == UNUSED and not os.path.exists(self.path):
            time.sleep(0.01)


def forget_unused(path):
    """Let a worker import `UNUSED` anew, which takes until there is a file."""
    sys.modules.pop(UNUSED, None)
    if path is not None:
        sys.meta_path.insert(0, Stuck(path))


def forget_stuck():
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "Stuck"]


@contextmanager
def importing(client, path, n_stuck):
    """Workers that are heard, but import until there is a file; then they work as usual."""
    import_module(UNUSED)
    addresses = sorted(client.run(forget_unused, None))[:n_stuck]
    client.run(forget_unused, str(path), workers=addresses)
    forget_answers(client)
    try:
        yield addresses
    finally:
        path.touch()
        client.run(forget_stuck)


@pytest.mark.parametrize("fate", slow_but([None], [None, signal.SIGKILL, signal.SIGSTOP]))
def test_a_fit_does_not_wait_for_who_is_heard_but_does_not_answer(
    fate, processes, tmp_path, caplog
):
    """It imports for ever; or it dies, or stops for a while, as it is asked."""
    make, X, y, name = FITS["lda"]
    expected = bits(make().fit(X, y), name)
    pids = processes.run(os.getpid)
    with (
        processes.as_current(),
        importing(processes, tmp_path / "go", 1) as [address],
        caplog.at_level(logging.WARNING, "schmp_estimators"),
    ):
        strike = threading.Timer(0.3, os.kill, (pids[address], fate or 0))
        resume = threading.Timer(4.0, os.kill, (pids[address], signal.SIGCONT))
        strike.start()
        if fate == signal.SIGSTOP:
            resume.start()
        assert bits(make().fit(on_dask(X), y), name) == expected
        strike.join()
        if fate == signal.SIGSTOP:
            resume.join()
        told = [one for one in warned(caplog, address) if one.startswith("schmp-")]
        assert [one.endswith("the fit does without") for one in told] == (
            [] if fate == signal.SIGKILL else [True]
        )
    assert keys_left(processes) == []
    used = set()
    while fate != signal.SIGKILL and address not in used:  # whoever answers is used again
        with processes.as_current(), choose_place() as place:
            used = {*place.addresses}


def test_workers_that_are_heard_but_do_not_answer_are_an_error(processes, tmp_path):
    with (
        processes.as_current(),
        importing(processes, tmp_path / "go", N_PROCESSES),
        dask.config.set({"schmp-estimators.worker-timeout": 1.0}),
        pytest.raises(NoWorkersError, match="has answered for 1 s"),
        choose_place(),
    ):
        pass


MAY_ANSWER = threading.Event()


async def answer_late(dask_worker):
    while not MAY_ANSWER.is_set():
        await asyncio.sleep(0.01)
    return dask_place.enrol(dask_worker)


def test_who_joins_is_used_once_it_has_answered(monkeypatch):
    with own_cluster(1) as client:
        place = DaskPlace(client)
        place.groups(2)
        monkeypatch.setattr(dask_place, "_enrolment", lambda: answer_late)
        MAY_ANSWER.clear()
        client.cluster.scale(2)
        client.wait_for_workers(2)
        assert not place.deal()
        assert len(place.addresses) == 1
        MAY_ANSWER.set()
        assert any(place.deal() for _ in range(20))
        assert len(place.addresses) == 2
        place.close()


@pytest.mark.slow
def test_input_that_only_a_stopped_worker_has_is_named(processes):
    make, X, y, _ = FITS["rounds"]
    with processes.as_current(), stopping(processes) as stop:
        workers = sorted(processes.scheduler_info(n_workers=-1)["workers"])
        held = processes.scatter(X, workers=workers[1:2])
        make().fit(on_dask(X), y)
        lazy = da.from_delayed(held, X.shape, float)
        stop()
        with pytest.raises(WorkerLostError, match="do not answer"):
            make().fit(lazy, y)
        del held, lazy


@pytest.mark.parametrize(
    ("seen", "late"),
    [
        ([100.0, 100.0], []),
        ([100.0, 89.0], [1]),
        # all are silent: twice the time counts, as nobody may have been listening
        ([100.0, 100.0, -15.0], []),
        ([100.0, 100.0, -25.0], [0, 1]),
    ],
)
def test_a_worker_is_silent_when_others_are_heard(seen, late, monkeypatch):
    *seen, passed = seen if seen[-1] < 0 else [*seen, 0.0]
    client, clock = FakeClient(), SimpleNamespace(now=50.0)
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with dask.config.set({"schmp-estimators.answer-timeout": 10.0}):
        cluster._now(client, seen)
        clock.now -= passed
        now = cluster._now(client, seen)
        assert [i for i, one in enumerate(seen) if now > one + 10.0] == late


class FakeClient:
    """What can be referenced weakly."""
