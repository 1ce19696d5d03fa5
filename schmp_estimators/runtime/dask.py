"""The Dask runtime: graphs of pure tasks on the workers of a cluster.

Tasks are pinned loosely to the worker of their shard, so that Dask may move them when that worker dies.  Blocks travel
from worker to worker by Dask's own transfers; nothing large passes the client.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import dask
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from distributed import Client, Future, span, wait
from distributed.client import FutureCancelledError, FuturesCancelledError

from schmp_estimators.runtime.base import Key, Mode, Ref, Runtime, Task, in_turn
from schmp_estimators.runtime.cluster import Worker, check_alike, live_workers, unrunnable, wait_for_workers
from schmp_estimators.runtime.errors import WorkLostError

#: Seconds between two looks at the cluster while results are outstanding.
WATCH_EVERY = 1.0
#: How many looks in a row must find a task that no worker can run before it is taken for lost.
PATIENCE = 5
_CANCELLED = (FutureCancelledError, FuturesCancelledError)
#: Failures of tasks that are the cluster's, not the program's.
_LOSSES = {"KilledWorker", "FutureCancelledError", "FuturesCancelledError", "CancelledError"}


class DaskRuntime(Runtime):
    """Execute tasks on a Dask cluster; `client` stays the caller's.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    label : str, default="schmp"
        Name of the span under which the dashboard gathers the tasks.
    cut_every : int, default=50
        After how many sweeps the engine restarts from its own state.  Until then a lost result is computed again from
        its history, so that history must be short; and the scheduler remembers all of it.

    Raises
    ------
    NoWorkersError
        If the cluster has no workers and gets none in time.
    MixedClusterError
        If the workers differ in software or CPU.
    """

    lookahead = 1

    def __init__(self, client: Client, label: str = "schmp", cut_every: int = 50) -> None:
        self.cut_every = cut_every
        self.client = client
        self._futures: dict[Key, Future] = {}
        self._places: dict[int, str] = {}
        #: shards of the run, where they are known
        self._n_places = 0
        self._names: set[str] = set()
        self._workers = self._responsive()
        self._looked = float("-inf")
        with span(label):
            self._annotations = {**dask.get_annotations(), "allow_other_workers": True}

    @property
    def n_threads(self) -> int:
        """Threads of all workers together."""
        return sum(worker.n_threads for worker in self._workers)

    @property
    def memory_limit(self) -> int:
        """Memory limits of all workers together in bytes; 0 if any of them has none."""
        limits = [worker.memory_limit for worker in self._workers]
        return sum(limits) if all(limits) else 0

    def mode(self, n_shards: int) -> Mode:
        """Return that cells must not write into their inputs, since Dask may compute a cell twice."""
        self._n_places = n_shards
        return Mode(in_place=False, each=in_turn)

    def put(self, key: Key, piece: Any, place: int) -> Ref:
        """Scatter a value, or what a callable returns, to the worker of `place`; refer to a future as it is."""
        if isinstance(piece, Future):
            return Ref(piece.key)  # type: ignore[arg-type]  # Dask's keys may be text, too
        value, address = piece() if callable(piece) else piece, self._address(place)
        try:
            self._futures.update(self.client.scatter({key: value}, workers=[address], hash=False))
        except Exception as error:
            if address in {worker.address for worker in live_workers(self.client)}:
                raise
            raise WorkLostError(f"worker {address} died before it got its data") from error
        return Ref(key)

    def submit(self, tasks: Sequence[Task], wanted: Sequence[Key]) -> None:
        """Send the tasks to the scheduler as one graph, with a layer for each worker."""
        if time.monotonic() > self._looked + WATCH_EVERY:
            self._welcome(live_workers(self.client))
        layers: dict[str, dict[Key, DaskTask]] = {}
        for task in tasks:
            args = (TaskRef(arg.key) if isinstance(arg, Ref) else arg for arg in task.args)
            layer = layers.setdefault(self._address(task.place), {})
            layer[task.key] = DaskTask(task.key, task.function, *args)
        self._names.update(task.key[0] for task in tasks)
        # A layer's name must be its own: layers of the same name in flight would be taken for one.
        named = {(address, *tasks[0].key): layer for address, layer in layers.items()}
        graph = HighLevelGraph(
            {
                str(name): MaterializedLayer(layer, annotations={**self._annotations, "workers": [name[0]]})
                for name, layer in named.items()
            },
            {str(name): set() for name in named},
        )
        keys = list(wanted)
        self._futures.update(zip(keys, self.client.get(graph, keys, sync=False), strict=True))

    def _welcome(self, workers: list[Worker]) -> None:
        """Take note of who is there; whoever came since the last look must be like the others."""
        known = {worker.address for worker in self._workers}
        come = [worker.address for worker in workers if worker.address not in known]
        stayed = [worker.address for worker in workers if worker.address in known]
        if come and stayed:
            check_alike(self.client, [stayed[0], *come])
        self._workers = workers or self._workers
        self._looked = time.monotonic()

    def _address(self, place: int) -> str:
        """Return the worker of a shard: always the same while it lives.

        Neighbours in the ring share a worker if there are more shards than threads, so that fewer blocks travel when
        they go on.  A shard whose worker has its share, or has died, goes to the one with most threads to spare.
        """
        alive = {worker.address for worker in self._workers}
        if self._places.get(place) not in alive:
            taken = Counter(address for address in self._places.values() if address in alive)
            chosen = min(self._workers, key=lambda w: (taken[w.address] + 1) / w.n_threads).address
            if place < self._n_places:
                threads = [worker.address for worker in self._workers for _ in range(worker.n_threads)]
                own = threads[place * len(threads) // self._n_places]
                if taken[own] < self._shares(self._n_places)[own]:
                    chosen = own
            self._places[place] = chosen
        return self._places[place]

    def _shares(self, n_places: int) -> dict[str, int]:
        """Return how many of so many shards each worker should have at most."""
        return {worker.address: -(-n_places * worker.n_threads // self.n_threads) for worker in self._workers}

    def settle(self, pieces: Sequence[Sequence[Future]]) -> None:
        """Let each shard be worked upon where its first piece is, as long as no worker gets more than its share."""
        holders = self.client.who_has([one[0] for one in pieces if one])
        shares = self._shares(len(pieces))
        for place, found in enumerate(holders.get(one[0].key, ()) if one else () for one in pieces):
            for address in sorted(address for address in found if shares.get(address)):
                self._places.setdefault(place, address)
                shares[address] -= 1
                break

    def fetch(self, keys: Sequence[Key]) -> list[Any]:
        """Wait for results while watching the cluster, and gather them."""
        futures = [self._futures[key] for key in keys]
        self._watch(futures)
        try:
            return self.client.gather(futures)
        except _CANCELLED as error:
            raise WorkLostError(f"results were lost on their way: {error}") from error

    def _watch(self, futures: list[Future]) -> None:
        """Return when all futures are finished; raise if one failed, or if what it needs is gone for good."""
        stuck = 0
        while True:
            try:
                with self.client.as_current():  # which need not be the default client
                    wait(futures, timeout=WATCH_EVERY)
            except TimeoutError:
                stuck = self._look(stuck)
            except _CANCELLED as error:
                raise WorkLostError(f"the workers that held a result died: {error}") from error
            for future in futures:
                if future.status in ("cancelled", "lost"):
                    raise WorkLostError(f"the workers that held {future.key!r} died")
                if future.status == "error":
                    failure = future.exception()
                    if type(failure).__name__ in _LOSSES:
                        raise WorkLostError(f"{future.key!r}: {failure}")
                    raise failure
            if all(future.status == "finished" for future in futures):
                return

    def _look(self, stuck: int) -> int:
        """Look whether waiting makes sense, and return how many looks in a row have found a task that cannot run."""
        alive = {worker.address for worker in live_workers(self.client)}
        if not alive & set(self._places.values()):
            raise WorkLostError("all workers that held the run died")
        stuck = stuck + 1 if unrunnable(self.client, self._names) else 0
        if stuck == PATIENCE:
            raise WorkLostError(f"no worker can run {unrunnable(self.client, self._names)[:3]}")
        return stuck

    def drop(self, keys: Iterable[Key]) -> None:
        """Let go of futures; the scheduler forgets what nobody else wants."""
        for key in keys:
            future = self._futures.pop(key, None)
            if future is not None:
                future.release()

    def clear(self) -> None:
        """Let go of everything; the client stays open, it is the caller's."""
        self.drop(list(self._futures))

    def reset(self) -> None:
        """Let go of everything, and wait for workers."""
        self.clear()
        self._places.clear()
        self._names.clear()
        self._workers = self._responsive()

    def _responsive(self) -> list[Worker]:
        """Return the workers that answer, once there is one."""
        while True:
            workers = wait_for_workers(self.client)
            answering = check_alike(self.client)
            if any(worker.address in answering for worker in workers):
                return [worker for worker in workers if worker.address in answering]
            time.sleep(0.2)
