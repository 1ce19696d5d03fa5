"""Kernels are compiled by one process of a test run, whichever comes first.

The others wait and read them from disk.

numba keeps the index of compiled code consistent for one writer only: two processes that compile at
the same time do the work twice, and the entry of one of them is lost.
"""

import fcntl
from functools import cache, wraps

from distributed import WorkerPlugin
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher


@cache
def compile_once():
    """Let every process that calls this compile cached functions under a lock between processes."""
    compile_now, held = Dispatcher.compile, set()

    @wraps(compile_now)
    def compile_in_turn(self, sig):
        files = getattr(self._cache, "_cache_file", None)  # a function that is not cached has none
        # numba's own lock first: a thread that waits here must not hold what its neighbour needs
        # for a callee
        with global_compiler_lock:
            if files is None or files._index_path in held:
                return compile_now(self, sig)
            self._cache._impl.locator.ensure_cache_path()
            with open(f"{files._index_path}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                held.add(files._index_path)
                try:
                    return compile_now(self, sig)
                finally:
                    held.remove(files._index_path)

    Dispatcher.compile = compile_in_turn


class CompileOnce(WorkerPlugin):
    """Lets the workers of a cluster take turns with all other processes.

    Those that replace them do, too.
    """

    def setup(self, worker):
        compile_once()
