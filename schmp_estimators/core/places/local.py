"""The local place: this process, a loop or a few threads over kernels that release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from graphlib import TopologicalSorter
from itertools import starmap
from typing import Any

import dask
import numpy as np

from schmp_estimators.core.places.borrowing import share
from schmp_estimators.core.places.place import Key, Place, Ref, Task, in_turn
from schmp_estimators.core.values import box


def in_threads(n_threads: int, function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with several threads if there are several jobs."""
    jobs = list(jobs)
    if min(n_threads, len(jobs)) < 2:
        return in_turn(function, jobs)
    with ThreadPoolExecutor(min(n_threads, len(jobs)), "schmp") as pool:
        return list(pool.map(function, jobs))


def _inputs(task: Task) -> set[Key]:
    found = set()
    for arg in task.args:
        if type(arg) is Ref:
            found.add(arg.key)
    return found


def _let_go(key: Key, inputs: set[Key], made: dict[Key, Any], unread: dict[Key, int]) -> None:
    """Forget results that nobody needs after a task: its own, or those that it was the last to read."""
    if not unread.get(key):
        made.pop(key, None)
    for read in inputs:
        unread[read] -= 1
        if not unread[read]:
            made.pop(read, None)


class LocalPlace(Place):
    """Execute tasks in this process, with `n_threads` threads.

    Results are written in place, because nothing is ever computed a second time.
    """

    is_local = True
    lookahead = 0
    cut_every = 0
    memory_limit = 0
    n_processes = n_threads = 1
    #: What is held is here already.
    gather = at_hand = staticmethod(list)  # type: ignore[assignment, var-annotated]  # mypy does not know it callable

    def __init__(self, n_threads: int = 1) -> None:
        self._results: dict[Key, Any] = {}
        self.n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads, "schmp") if n_threads > 1 else None
        if n_threads > 1:  # a caller works, too
            self._helpers = ThreadPoolExecutor(n_threads - 1, "schmp")
            self.each = partial(share, self._helpers, n_threads)

    def put(self, key: Key, piece: Any, place: int) -> Ref:
        """Keep a value, or what a callable returns."""
        self._results[key] = piece() if callable(piece) else piece
        return Ref(key)

    def submit(self, tasks: Sequence[Task], wanted: Sequence[Key], *, soon: bool = False) -> None:
        """Execute the tasks before returning."""
        made: dict[Key, Any] = {}
        unread, reads = dict.fromkeys(wanted, 1), {}
        for task in tasks:
            reads[task.key] = inputs = _inputs(task)
            for key in inputs:
                unread[key] = unread.get(key, 0) + 1
        if self._pool is None or len({task.place for task in tasks}) == 1:
            for task in tasks:
                made[task.key] = self._execute(task, made)
                _let_go(task.key, reads[task.key], made, unread)
        else:
            self._execute_as_ready(tasks, reads, made, unread, self._pool)
        for key in wanted:
            self._results[key] = made[key]

    def _execute(self, task: Task, made: dict[Key, Any]) -> Any:
        args = []
        for arg in task.args:
            if type(arg) is Ref:
                args.append(made[arg.key] if arg.key in made else self._results[arg.key])
            else:
                args.append(arg)
        return task.function(*args)

    def _execute_as_ready(
        self,
        tasks: Sequence[Task],
        reads: dict[Key, set[Key]],
        made: dict[Key, Any],
        unread: dict[Key, int],
        pool: ThreadPoolExecutor,
    ) -> None:
        by_key = {task.key: task for task in tasks}
        order = TopologicalSorter({key: inputs & by_key.keys() for key, inputs in reads.items()})
        order.prepare()
        running: dict[Future[Any], Task] = {}

        def note(task: Task, result: Any) -> None:
            made[task.key] = result
            _let_go(task.key, reads[task.key], made, unread)
            order.done(task.key)

        try:
            while order.is_active():
                quick = []
                for task in map(by_key.__getitem__, order.get_ready()):
                    if getattr(task.function, "is_quick", False):
                        quick.append(task)
                    else:
                        running[pool.submit(self._execute, task, made)] = task
                for task in quick:  # what follows them is sent before any thread has nothing to do
                    note(task, self._execute(task, made))
                if not quick:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        note(running.pop(future), future.result())
        finally:
            wait(running)  # a failed task must not leave others writing into arrays that the caller gets back

    def hold(self, lazy: Any) -> list[Any]:
        """Compute chunk by chunk, and never with a cluster that happens to be the default."""
        chosen = dask.config.get("scheduler", "threads")
        scheduler = chosen if chosen in ("sync", "synchronous", "single-threaded") else "threads"
        if isinstance(lazy, list):
            return list(dask.compute(*lazy, scheduler=scheduler))
        shape, meta = ((1,) * lazy.numblocks[0], (1,)), np.empty((0, 0), object)
        return list(lazy.map_blocks(box, dtype=object, chunks=shape, meta=meta).compute(scheduler=scheduler).ravel())

    def compute(self, lazy: list[Any]) -> list[Any]:
        """Compute with threads."""
        return list(dask.compute(*lazy, scheduler="threads"))

    def threads_of_a_task(self, n_threads: int) -> int:
        """Return all of them, as there is one task at a time."""
        return n_threads

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Call the function, one time after the other."""
        return list(starmap(function, arguments))

    def share(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def take(self, held: list[Any], position: int, name: str) -> list[Any]:
        """Take the elements out of their lists."""
        found = []
        for one in held:
            found.append(one[position])
            one[position] = None
        return found

    def let_go(self) -> None:
        """Leave values to whoever has them."""

    def fetch(self, keys: Sequence[Key]) -> list[Any]:
        """Return the results."""
        return [self._results[key] for key in keys]

    def rename(self, keys: Mapping[Key, Key]) -> None:
        """Keep the results under new keys."""
        for old, new in keys.items():
            self._results[new] = self._results.pop(old)

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget the results."""
        for key in keys:
            self._results.pop(key, None)

    def clear(self) -> None:
        """Forget all results."""
        self._results.clear()

    def close(self) -> None:
        """Forget all results and end the threads."""
        self.clear()
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
            self._helpers.shutdown(cancel_futures=True)
