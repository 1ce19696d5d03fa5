"""Jobs inside a task of a worker: its idle threads help, and nothing is lost or left running."""

import threading
import time
from concurrent.futures import wait as futures_wait

import pytest
from clusters import own_cluster
from distributed import get_worker

from schmp_estimators.core.places import threads as module
from schmp_estimators.core.places.threads import share


@pytest.fixture(scope="module")
def worker():
    """The client of a single worker with three threads, in this process."""
    with own_cluster(1, 3, set_as_default=False) as client:
        yield client


class Work:
    """What a task does with its jobs; it stays in this process, as its locks cannot travel."""

    present = None

    def __init__(self, function):
        self.function, self.caller, self.threads = function, None, set()
        Work.present = self

    def __call__(self, job):
        self.threads.add(threading.get_ident())
        return self.function(job)

    @property
    def is_caller(self):
        return threading.get_ident() == self.caller


def task(n_jobs):
    work = Work.present
    work.caller = threading.get_ident()
    worker = get_worker()
    return share(worker.executors["default"], worker.state.nthreads, work, range(n_jobs))


def run(worker, n_jobs):
    return worker.submit(task, n_jobs, pure=False).result(timeout=120)


@pytest.mark.cluster
def test_results_are_in_the_order_of_the_jobs_whoever_is_ready_first(worker):
    together = threading.Barrier(3)

    def square(job):
        if job < 3:  # three threads have a job each before one of them goes on, and those who help are the last
            together.wait(60)
            time.sleep(0.0 if work.is_caller else 0.2)
        return job * job

    work = Work(square)
    assert run(worker, 9) == [job * job for job in range(9)]
    assert len(work.threads) == 3


@pytest.mark.cluster
@pytest.mark.parametrize(("n_jobs", "of_caller"), [(3, False), (60, True)], ids=["helper", "caller"])
def test_an_error_is_raised_when_all_threads_have_stopped(worker, monkeypatch, n_jobs, of_caller):
    together, failed, lock, done = threading.Barrier(3), threading.Event(), threading.Lock(), []
    waits = threading.Event()

    def wait(helpers):
        waits.set()
        return futures_wait(helpers)

    monkeypatch.setattr(module, "wait", wait)

    def fail_once(job):
        if job < 3:
            together.wait(60)
            with lock:
                if work.is_caller == of_caller and not failed.is_set():
                    failed.set()
                    raise ZeroDivisionError
            failed.wait(60)
            if not work.is_caller:
                waits.wait(60)  # until the caller has nothing to do but wait for this thread
        done.append(job)

    work = Work(fail_once)
    with pytest.raises(ZeroDivisionError):
        run(worker, n_jobs)
    assert len(done) == 2  # jobs that had begun with the one that failed, and no other
