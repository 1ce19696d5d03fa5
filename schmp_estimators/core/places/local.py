"""The local place: this process, a loop or a few threads over kernels that release the GIL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from schmp_estimators.core.engine.rounds import Here, Piece
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.borrowing import share
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.stages import in_turn
from schmp_estimators.core.values import box

dask: Any = Later("dask")


def in_threads(n_threads: int, function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, with several threads if there are several jobs."""
    jobs = list(jobs)
    if min(n_threads, len(jobs)) < 2:
        return in_turn(function, jobs)
    with ThreadPoolExecutor(min(n_threads, len(jobs)), "schmp") as pool:
        return list(pool.map(function, jobs))


class LocalPlace(Place):
    """Call functions in this process, with `n_threads` threads."""

    is_local = True
    memory_limit = 0
    n_processes = n_threads = 1
    #: What is held is here already.
    gather = at_hand = staticmethod(list)  # type: ignore[assignment, var-annotated]  # mypy does not know it callable

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads
        if n_threads > 1:  # a caller works, too
            self._helpers = ThreadPoolExecutor(n_threads - 1, "schmp")
            self.each = partial(share, self._helpers, n_threads)

    def serve(self, name: str, pieces: list[Any]) -> Here:
        """Make partitions, and return who works on them; `pieces` are let go of one by one."""
        made = []
        for number, piece in enumerate(pieces):
            pieces[number] = None
            made.append(piece.function(*piece.parts) if isinstance(piece, Piece) else piece)
        return Here(made, self.each)

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

    def close(self) -> None:
        """End the threads."""
        if self.n_threads > 1:
            self._helpers.shutdown(cancel_futures=True)
