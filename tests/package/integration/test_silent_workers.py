"""A worker that is stopped: fits go on without it, to the same bits, and one warning names it."""

import logging
import os
import signal
import sys
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from callbacks import AfterSweeps
from clusters import keys_left
from covering import slow_but

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    PrioritizedLassoCV,
)
from schmp_estimators.core.places import cluster, watch
from schmp_estimators.core.places.answers import forget_answers
from schmp_estimators.core.places.place import choose_place
from schmp_estimators.exceptions import WorkerLostError

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
    [message] = warned(caplog, address)
    assert message.endswith("the fit does without")
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
    name = "schmp_estimators.datasets"
    import_module(name)
    processes.run(lambda: sys.modules.pop(name, None))
    forget_answers(processes)
    with processes.as_current(), choose_place():
        assert all(processes.run(lambda: name in sys.modules).values())


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
