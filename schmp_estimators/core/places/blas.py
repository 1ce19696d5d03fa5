"""BLAS on one thread, for as long as anybody in this process needs it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
#: The limit in force, and how many threads are inside `one_blas_thread`.
_limit: Any = None
_inside = 0


@functools.cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


def _take_control() -> None:
    """Let this thread set limits: threadpoolctl 3.8 ignores, without a word, all but the first that has done so."""
    for pool in _thread_pools().lib_controllers:
        clear = getattr(pool, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread: bits differ between one and two.

    The limit belongs to the process, so it is lifted when the last thread leaves, not when the first does.
    """
    global _limit, _inside  # noqa: PLW0603
    with _lock:
        if not _inside:
            _take_control()
            _limit = _thread_pools().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_control()
                _limit.restore_original_limits()
                _take_control()  # and leave it to others
