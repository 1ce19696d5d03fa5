"""What the client knows of a Dask cluster.

It knows its workers, the shards of each, and tasks that no worker can run.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import dask
from dask.utils import format_bytes
from distributed import Client, Future
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError

from schmp_estimators.core.errors import (
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
    WorkLostError,
)

T = TypeVar("T")
Futures = Sequence[Future[Any]]

#: The state of a worker that may run, but that the scheduler has not heard of for `answer_timeout`.
SILENT = "silent"
#: Errors of a client that is closed, or of futures whose results cannot be computed any more.
_BROKEN = (OSError, ClosedClientError, FutureCancelledError, FuturesCancelledError)


class Worker(NamedTuple):
    """What matters of a worker for placing shards."""

    address: str
    n_threads: int
    #: In bytes; 0 = unlimited.
    memory_limit: int
    #: Its state in Dask's words: "running", "paused", "closing_gracefully", …; or `SILENT`.
    status: str = "running"
    #: Bytes that its process uses.
    memory: int = 0
    name: Any = None
    #: Amounts of the resources that tasks may ask for by name.
    resources: Mapping[str, float] = MappingProxyType({})
    #: Folder of its process; one that is started anew at the same address has another.
    folder: str = ""

    def may_take(self, annotations: Mapping[str, Any]) -> bool:
        """Return whether the annotations `workers` and `resources` let tasks run here."""
        named = annotations.get("workers")
        wanted = annotations.get("resources") or {}
        known = [named] if isinstance(named, str) else named
        here = not known or bool({self.address, self.name, str(self.name)} & set(known))
        return here and all(
            self.resources.get(name, 0) >= amount for name, amount in wanted.items()
        )


#: How much the scheduler's clock is ahead of this process's monotonic one, at least.
_ahead = WeakKeyDictionary[Client, float]()
#: Which scheduler has last answered.
_schedulers = WeakKeyDictionary[Client, str]()
#: Clients whose schedulers can be asked for tasks that no worker can run.
_asking = WeakSet[Client]()
_UNRUNNABLE = "schmp-unrunnable"


def reach(client: Client, request: Callable[..., T], *args: Any, **options: Any) -> T:
    """Return what a request of a client returns.

    Turn errors of a broken connection into WorkLostError.
    """
    try:
        return request(*args, **options)
    except _BROKEN as error:
        raise WorkLostError("a request to the cluster failed") from error
    except RuntimeError as error:  # a closed client has closed its event loop and its connections
        if isinstance(error, SchMPError) or client.status == "running":
            raise
        raise WorkLostError(f"the client is {client.status}") from error


def live_workers(client: Client) -> list[Worker]:
    """Return the workers of the cluster in the order of their names, whether they can work or not.

    It asks the scheduler.  `Client.scheduler_info` would not do: the client's own regular update
    may have overwritten it without the workers.

    Raises
    ------
    WorkLostError
        If the scheduler cannot be reached.
    """
    if client.scheduler is None:
        raise WorkLostError(f"the client is {client.status}")
    found = reach(client, client.sync, client.scheduler.identity, n_workers=-1)
    _schedulers[client] = found["id"]
    infos = found["workers"].items()
    now = _now(client, [info["last_seen"] for _, info in infos])
    return [
        Worker(
            address,
            info["nthreads"],
            info.get("memory_limit") or 0,
            SILENT
            if info["status"] in ("running", "paused")
            and now > info["last_seen"] + answer_timeout()
            else info["status"],
            info.get("metrics", {}).get("memory", 0),
            info["name"],
            info.get("resources", {}),
            info.get("local_directory", ""),
        )
        for address, info in sorted(
            infos, key=lambda item: (str(type(item[1]["name"])), item[1]["name"])
        )
        if info["status"] not in ("closing", "closed")
    ]


def scheduler_id(client: Client) -> str:
    """Return what identifies the scheduler that has last answered.

    One that is restarted gets another.
    """
    return _schedulers[client]


def _now(client: Client, seen: list[float]) -> float:
    """Return the time of the scheduler's clock, from when it has last heard of each worker.

    It may be less.  If no worker is heard, all may be busy, or the scheduler was asleep: then less
    time counts.
    """
    newest = max(seen, default=0.0)
    here = time.monotonic()
    ahead = _ahead[client] = max(newest - here, _ahead.get(client, -math.inf))
    return max(newest, here + ahead - answer_timeout())


def answer_timeout() -> float:
    """Return the seconds after which a worker is silent.

    A busy one tells the scheduler every second that it lives.
    """
    return float(dask.config.get("schmp-estimators.answer-timeout", 25.0))


def worker_timeout() -> float:
    """Return the seconds to wait for workers, or for a scheduler that cannot be reached."""
    return float(dask.config.get("schmp-estimators.worker-timeout", 60.0))


def scheduler_lost(client: Client) -> SchedulerLostError:
    """Return the error for a scheduler that cannot be reached."""
    why = (
        "the client is closed: by its user, with its cluster, or because the scheduler has ended"
        if client.status in ("closing", "closed")
        else f"the scheduler at {_address(client)} cannot be reached: "
        "it has ended, or the network has failed"
    )
    return SchedulerLostError(
        f"{why}. Connect to a scheduler and fit again; with the parameter checkpoint the fit then "
        "continues from there"
    )


def no_workers(
    client: Client, workers: Sequence[Worker], annotations: Mapping[str, Any] = MappingProxyType({})
) -> NoWorkersError:
    """Return the error for a cluster on which no worker can run tasks with these annotations.

    The cluster has `workers`.
    """
    timeout = f"{worker_timeout():g} s"
    running = [worker for worker in workers if worker.status == "running"]
    if running and not any(worker.may_take(annotations) for worker in running):
        asked = {key: annotations[key] for key in ("workers", "resources") if key in annotations}
        return NoWorkersError(
            f"for {timeout} none of the {len(workers)} workers of the Dask cluster at "
            f"{_address(client)} could work, because dask.annotate({asked}) excludes them: start "
            "others, or fit outside of dask.annotate"
        )
    if not workers:
        return NoWorkersError(
            f"the Dask cluster at {_address(client)} has had no workers for {timeout}; start some "
            "(cluster.scale(n)), close the client to fit in this process, or raise the time with "
            "dask.config.set({'schmp-estimators.worker-timeout': seconds})"
        )
    states = "; ".join(
        f"{worker.address} is {worker.status} and uses {format_bytes(worker.memory)} of "
        f"{format_bytes(worker.memory_limit) if worker.memory_limit else 'unlimited memory'}"
        for worker in workers
    )
    if running:
        return NoWorkersError(
            f"no worker of the Dask cluster at {_address(client)} has answered for {timeout}: "
            f"{states}. Their machines may be overloaded, or unreachable for the others; raise "
            "the time with dask.config.set({'schmp-estimators.worker-timeout': seconds})"
        )
    return NoWorkersError(
        f"no worker of the Dask cluster at {_address(client)} has been able to work for "
        f"{timeout}: {states}. A worker pauses when it uses most of its memory limit: raise the "
        "limit (memory_limit), use more workers, release other data on the cluster, or take "
        "smaller chunks"
    )


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else "an unknown address"


def unrunnable(client: Client, futures: Futures) -> list[str]:
    """Return keys of tasks that no worker can run.

    They are among the futures and all tasks that they wait for.
    """
    if client not in _asking:
        reach(client, client.run_on_scheduler, _let_ask)
        _asking.add(client)

    async def find() -> list[str]:
        asked = getattr(client.scheduler, _UNRUNNABLE)(keys=[future.key for future in futures])
        found: list[str] = await asyncio.wait_for(asked, answer_timeout())
        return found

    try:
        return reach(client, client.sync, find)
    except WorkLostError:
        _asking.discard(client)  # a scheduler that was started anew does not know this request
        raise


def _let_ask(dask_scheduler: Any) -> None:
    """Let a scheduler answer `unrunnable`.

    Unlike a function that it runs, a request leaves no line in its log.
    """

    def unrunnable(keys: list[Any]) -> list[str]:
        if not dask_scheduler.unrunnable:
            return []
        waiting = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
        seen = set(waiting)
        while waiting:
            new = (waiting.pop().waiting_on or set()) - seen
            seen |= new
            waiting += new
        return [str(task.key) for task in seen if task in dask_scheduler.unrunnable]

    dask_scheduler.handlers.setdefault(_UNRUNNABLE, unrunnable)


class Dealt:
    """The workers of the shards of a run.

    Parameters
    ----------
    workers : list of Worker
        All workers of the cluster.
    most : int, optional
        How many of them get shards; by default all.
    """

    def __init__(self, workers: list[Worker], most: int | None = None) -> None:
        self._most = most
        #: Number of shards of the run; 0 if it is not known.
        self.n_places = 0
        self._places: dict[int, str] = {}
        self.update(workers)

    def update(self, workers: list[Worker]) -> None:
        """Set the workers of the cluster as they are now."""
        self.workers = workers
        #: Those that get shards.
        self.chosen = workers[: self._most]
        self._alive = {worker.address for worker in self.chosen}
        #: Threads of these together.
        self.n_threads = sum([worker.n_threads for worker in self.chosen])

    @property
    def addresses(self) -> set[str]:
        """Addresses of the workers that have shards."""
        return set(self._places.values())

    def address(self, place: int) -> str:
        """Return the worker of a shard; it stays the same while the worker lives.

        If there are more shards than threads, neighbours in the ring share a worker, so that fewer
        blocks are sent.  If that worker has its share already, or has died, the shard goes to the
        one with the fewest shards per thread.
        """
        if self._places.get(place) not in self._alive:
            self._places[place] = self._choose(place)
        return self._places[place]

    def _choose(self, place: int) -> str:
        taken = Counter(self._places.values())
        shares = self._shares(self.n_places)
        if place < self.n_places:
            threads = [worker.address for worker in self.chosen for _ in range(worker.n_threads)]
            own = threads[place * len(threads) // self.n_places]
            if taken[own] < shares[own]:
                return own
        spare = [worker for worker in self.chosen if taken[worker.address] < shares[worker.address]]
        return min(spare or self.chosen, key=lambda w: (taken[w.address] + 1) / w.n_threads).address

    def members(self, n_places: int) -> dict[str, list[int]]:
        """Return the shards of each worker that has some, of `n_places` shards in all."""
        self.n_places = n_places
        groups: dict[str, list[int]] = {}
        for place in range(n_places):
            groups.setdefault(self.address(place), []).append(place)
        return groups

    def settle(self, wishes: Sequence[Collection[str]]) -> None:
        """Give each shard one of the workers that it wishes for.

        No worker gets more than its share.
        """
        self.n_places = len(wishes)
        shares = self._shares(self.n_places)
        for place, found in enumerate(wishes):
            for address in sorted(found):
                if shares.get(address):
                    self._places.setdefault(place, address)
                    shares[address] -= 1
                    break

    def is_even(self) -> bool:
        """Return whether no worker has more than its share of the shards at present."""
        shares = self._shares(len(self._places))
        return not any(
            n > shares.get(address, 0) for address, n in Counter(self._places.values()).items()
        )

    def forget(self) -> None:
        """Forget where the shards are."""
        self._places.clear()

    def _shares(self, n_places: int) -> dict[str, int]:
        """Return the largest number of shards that each worker should have.

        There are `n_places` shards in all.
        """
        return {
            worker.address: -(-n_places * worker.n_threads // self.n_threads)
            for worker in self.chosen
        }
