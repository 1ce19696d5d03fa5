"""Places: where functions are called, and the results that somebody still wants are kept.

`Place` is this process: a loop, or a few threads over kernels that release the GIL.  Other places do elsewhere what it
does here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from schmp_estimators.core.engine.communicator import Alone
from schmp_estimators.core.engine.rounds import Partitions, Piece
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.threads import share
from schmp_estimators.core.stages import Each, in_turn
from schmp_estimators.core.values import box

dask: Any = Later("dask")


class Place:
    """The process that this code runs in, as a place.

    Parameters
    ----------
    n_threads : int, default=1
        How many of its threads may work at the same time.
    """

    #: Whether this is the process of the caller, where nothing is lost.
    is_local: bool = True

    def __init__(self, n_threads: int = 1) -> None:
        self._n_threads = n_threads
        #: How jobs in this process share its threads.
        self.each: Each = in_turn
        if n_threads > 1:  # a caller works, too
            self._helpers = ThreadPoolExecutor(n_threads - 1, "schmp")
            self.each = partial(share, self._helpers, n_threads)

    @property
    def n_processes(self) -> int:
        """Processes that work at the same time."""
        return 1

    @property
    def n_threads(self) -> int:
        """Threads that work at the same time."""
        return self._n_threads

    @property
    def memory_limit(self) -> int:
        """Bytes that the workers together may use; 0 if there is no limit."""
        return 0

    def settle(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Let each shard be worked upon where the results in `pieces`, one list for each shard, are."""
        return

    def hold(self, lazy: Any) -> list[Any]:
        """Compute a list of Delayed objects, or the blocks of a Dask array of one column of blocks, and hold them.

        Here that is done chunk by chunk, and never with a cluster that happens to be the default.
        """
        chosen = dask.config.get("scheduler", "threads")
        scheduler = chosen if chosen in ("sync", "synchronous", "single-threaded") else "threads"
        if isinstance(lazy, list):
            return list(dask.compute(*lazy, scheduler=scheduler))
        shape, meta = ((1,) * lazy.numblocks[0], (1,)), np.empty((0, 0), object)
        return list(lazy.map_blocks(box, dtype=object, chunks=shape, meta=meta).compute(scheduler=scheduler).ravel())

    def compute(self, lazy: list[Any]) -> list[Any]:
        """Return the values of Dask collections."""
        return list(dask.compute(*lazy, scheduler="threads"))

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may be held: values, or what stands for them.

        With `by_shard` there is a call for each shard, which is made where the shard is worked upon, if possible.
        """
        return list(starmap(function, arguments))

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Return the values of what `hold`, `map` or `share` returned."""
        return list(held)

    def share(self, value: Any) -> Any:
        """Hold a value that many calls of `map` will read."""
        return value

    def lasting(self, value: Any) -> Any:
        """Return a piece for sources, see `Source`, that stands for a value which many of them need."""
        return value

    def take(self, held: list[Any], position: int, name: str) -> list[Any]:
        """Return element `position` of each of some lists that are held; nobody will ask for it again."""
        found = []
        for one in held:
            found.append(one[position])
            one[position] = None
        return found

    def made(self, held: list[Any], name: str) -> tuple[Place, list[Any]]:
        """Return what `map` has returned as results that are there, and the place that holds them."""
        return self, held

    def let_go(self) -> None:
        """Hold no longer what `hold`, `map`, `share` and `take` have returned.  Letting go twice does no harm."""

    def tell(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell of an event of a fit, if anybody could watch from outside; only plain values among the details travel.

        A fit is told of from the first "begin" until the place is closed; other events are "record", "measured",
        "restart" and "failed".
        """

    def deal(self) -> bool:
        """Return whether shards should be worked upon elsewhere from now on, and must therefore be loaded anew."""
        return False

    def reset(self) -> None:
        """Wait until there is somebody to work again."""

    def close(self) -> None:
        """Give all resources back."""
        if self._n_threads > 1:
            self._helpers.shutdown(cancel_futures=True)

    def serve(self, name: str, pieces: list[Any]) -> Any:
        """Make the partitions of a dynamic program, and return who works on them; `pieces` are let go of one by one."""
        made = []
        for number, piece in enumerate(pieces):
            pieces[number] = None
            made.append(piece.function(*piece.parts) if isinstance(piece, Piece) else piece)
        return Partitions(Alone(self.each), [range(len(made))], made)
