"""Threads of this process: helpers that share jobs, and a limit of one thread for BLAS.

A caller who has several jobs uses idle threads of an executor, or of a Dask worker.  A job that has
several parts may ask with `share_here` for the idle threads of whoever called it.
"""

import functools
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any

from threadpoolctl import ThreadpoolController

from schmp_estimators.core.stages import Each, in_turn
from schmp_estimators.core.typing import Unary

_lock = threading.Lock()
#: Pools of BLAS that are limited, with their own numbers of threads, and how many threads are
#: inside `one_blas_thread`.
_limited: list[tuple[Any, int]] = []
_inside = 0
#: How the work of this thread may be shared.
_each: ContextVar[Each] = ContextVar("each", default=in_turn)


@functools.cache
def _pools() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _take_control(pool: Any) -> None:
    """Let this thread set limits.

    threadpoolctl 3.8 silently ignores all threads but the first that has set one.
    """
    clear = getattr(pool, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: the last bits of its results differ between one and two.

    The limit belongs to the process, so it is lifted when the last thread leaves this context.
    """
    global _inside  # noqa: PLW0603
    with _lock:
        if not _inside:
            _limited[:] = [(pool, n) for pool in _pools() if (n := pool.num_threads or 1) > 1]
            for pool, _ in _limited:
                _take_control(pool)
                pool.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            for pool, n_threads in [] if _inside else _limited:
                _take_control(pool)
                pool.set_num_threads(n_threads)
                _take_control(pool)  # so that other threads can set limits


@contextmanager
def sharing(each: Each) -> Iterator[None]:
    """Let all that is called within this context share its jobs by `each`."""
    token = _each.set(each)
    try:
        yield
    finally:
        _each.reset(token)


def share_here(function: Unary, jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with idle threads of the place where this is called."""
    return _each.get()(function, jobs)


def share(executor: Executor, n_threads: int, function: Unary, jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with this thread and idle threads of an executor.

    The caller does all jobs that no helper has begun, so it never waits for a helper that waits for
    it.  A job may therefore share jobs itself.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    n_threads : int
        Number of threads that may work at the same time, including the caller's.
    function : callable
    jobs : iterable
    """
    jobs = list(jobs)
    n_helpers = min(n_threads, len(jobs)) - 1
    if n_helpers < 1:
        return list(map(function, jobs))
    results: list[Any] = [None] * len(jobs)
    left = deque(enumerate(jobs))

    def help_out() -> None:
        while left:
            try:
                number, job = left.popleft()
            except IndexError:  # another thread was faster
                return
            results[number] = function(job)

    helpers = []
    with suppress(RuntimeError):  # raised by an executor that is being closed
        # helpers run in copies of the caller's context, so that they know which worker they are on
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
