"""Threads that have nothing to do, lent to a caller who has several jobs: those of an executor, or of a Dask worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from schmp_estimators.core.later import Later
from schmp_estimators.core.stages import in_turn

distributed: Any = Later("distributed")


def share(executor: Executor, n_threads: int, function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with this thread and those of an executor that have nothing to do.

    The caller does all that nobody else has begun, so it waits for no one who waits for it: jobs may share jobs.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    n_threads : int
        How many threads may work at a time, the caller's included.
    function : callable
    jobs : iterable
    """
    jobs = list(jobs)
    n_helpers = min(n_threads, len(jobs)) - 1
    if n_helpers < 1:
        return in_turn(function, jobs)
    results: list[Any] = [None] * len(jobs)
    left = deque(enumerate(jobs))

    def help_out() -> None:
        while left:
            try:
                number, job = left.popleft()
            except IndexError:  # somebody was faster
                return
            results[number] = function(job)

    helpers = []
    with suppress(RuntimeError):  # of an executor that is being closed
        # in copies of the caller's context, so that they know which worker they are on
        helpers = [executor.submit(copy_context().run, help_out) for _ in range(n_helpers)]
    try:
        help_out()
    finally:
        left.clear()
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()
    return results


def borrowing(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with this thread of a Dask worker and those of its threads that are idle.

    They are asked for by tasks of the worker's own executor, so there are never more threads at work than the worker
    has.
    """
    try:
        worker = distributed.get_worker()
    except ValueError:
        return in_turn(function, jobs)
    return share(worker.executors["default"], worker.state.nthreads, function, jobs)
