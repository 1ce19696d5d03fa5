"""Jobs that threads share.

Idle threads of an executor help, and nothing is lost or left running.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as futures_wait
from contextvars import ContextVar

import pytest

from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places import threads as module
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.threads import share, share_here

#: Set by the thread that has the jobs; helpers know of it, too.
CALLER = ContextVar("CALLER")


def run(function, n_jobs):
    """Share jobs inside a task of one of three threads.

    The function is told the job, and whether it is that thread.
    """

    def task():
        CALLER.set(threading.get_ident())
        found = share(
            executor,
            3,
            lambda job: function(job, threading.get_ident() == CALLER.get()),
            range(n_jobs),
        )
        return [*found]  # as they are now: a helper that is still at work would fill in more

    with ThreadPoolExecutor(3) as executor:
        return executor.submit(task).result(120)


def test_results_are_in_the_order_of_the_jobs_whoever_is_ready_first():
    together, threads = threading.Barrier(3), set()

    def square(job, is_caller):
        threads.add(threading.get_ident())
        # Three threads have a job each before one of them goes on, and those who help are the last.
        if job < 3:
            together.wait(60)
            time.sleep(0.0 if is_caller else 0.2)
        return job * job

    assert run(square, 9) == [job * job for job in range(9)]
    assert len(threads) == 3


@pytest.mark.parametrize(
    ("n_jobs", "of_caller"), [(3, False), (60, True)], ids=["helper", "caller"]
)
def test_an_error_is_raised_when_all_threads_have_stopped(monkeypatch, n_jobs, of_caller):
    together, failed, lock, done = threading.Barrier(3), threading.Event(), threading.Lock(), []
    waits = threading.Event()

    def wait(helpers):
        waits.set()
        return futures_wait(helpers)

    monkeypatch.setattr(module, "wait", wait)

    def fail_once(job, is_caller):
        if job < 3:
            together.wait(60)
            with lock:
                if is_caller == of_caller and not failed.is_set():
                    failed.set()
                    raise ZeroDivisionError
            failed.wait(60)
            if not is_caller:
                assert waits.wait(60)  # until the caller has nothing to do but wait for this thread
        done.append(job)

    with pytest.raises(ZeroDivisionError):
        run(fail_once, n_jobs)
    assert len(done) == 2  # jobs that had begun with the one that failed, and no other


def test_a_job_shares_its_parts_with_idle_threads_of_its_place():
    together, place = threading.Barrier(2), Place(2)

    def work(partition, job):
        share_here(lambda number: together.wait(60), range(2))  # no thread can do both
        return partition, job

    with Rounds(place, ["only one"]) as rounds:
        assert rounds.collect(rounds.submit(work, "done")) == ["done"]
    place.close()
    assert share_here(lambda number: threading.get_ident(), range(3)) == [threading.get_ident()] * 3
