"""What the client knows of a Dask cluster: its workers, the shards of each, and tasks that no worker can run."""

from __future__ import annotations

import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import dask
import numba
from dask.utils import format_bytes
from distributed import Client, Future
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError

from schmp_estimators.core.errors import (
    MixedClusterError,
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
    WorkLostError,
)

T = TypeVar("T")

#: Packages whose version can change the bits of a result.
_PACKAGES = ("schmp-estimators", "numpy", "numba", "scipy")
#: Errors of a client that is closed, or of futures whose results cannot be computed any more.
_BROKEN = (OSError, ClosedClientError, FutureCancelledError, FuturesCancelledError)


class Worker(NamedTuple):
    """What matters of a worker for placing shards."""

    address: str
    n_threads: int
    #: In bytes; 0 = unlimited.
    memory_limit: int
    #: Its state in Dask's words: "running", "paused", "closing_gracefully", ….
    status: str = "running"
    #: Bytes that its process uses.
    memory: int = 0
    name: Any = None
    #: Amounts of the resources that tasks may ask for by name.
    resources: Mapping[str, float] = MappingProxyType({})

    def may_take(self, annotations: Mapping[str, Any]) -> bool:
        """Return whether the annotations `workers` and `resources` of tasks let them run on this worker."""
        named, wanted = annotations.get("workers"), annotations.get("resources") or {}
        known = [named] if isinstance(named, str) else named
        here = not known or bool({self.address, self.name, str(self.name)} & set(known))
        return here and all(
            self.resources.get(name, 0) >= amount for name, amount in wanted.items()
        )


def reach(client: Client, request: Callable[..., T], *args: Any, **options: Any) -> T:
    """Return what a request of a client returns; turn errors of a broken connection into WorkLostError."""
    try:
        return request(*args, **options)
    except _BROKEN as error:
        raise WorkLostError(
            f"a request to the cluster failed ({type(error).__name__}: {error})"
        ) from error
    except RuntimeError as error:  # a closed client has closed its event loop and its connections
        if isinstance(error, SchMPError) or client.status == "running":
            raise
        raise WorkLostError(f"the client is {client.status} ({error})") from error


def live_workers(client: Client) -> list[Worker]:
    """Return the workers of the cluster in the order of their names, whether they can work or not.

    It asks the scheduler.  `Client.scheduler_info` would not do: the client's own regular update may have overwritten
    it without the workers.

    Raises
    ------
    WorkLostError
        If the scheduler cannot be reached.
    """
    if client.scheduler is None:
        raise WorkLostError(f"the client is {client.status}")
    infos = reach(client, client.sync, client.scheduler.identity, n_workers=-1)["workers"].items()
    return [
        Worker(
            address,
            info["nthreads"],
            info.get("memory_limit") or 0,
            info["status"],
            info.get("metrics", {}).get("memory", 0),
            info["name"],
            info.get("resources", {}),
        )
        for address, info in sorted(
            infos, key=lambda item: (str(type(item[1]["name"])), item[1]["name"])
        )
        if info["status"] not in ("closing", "closed")
    ]


def worker_timeout() -> float:
    """Return the seconds to wait for workers, or for a scheduler that cannot be reached."""
    return float(dask.config.get("schmp-estimators.worker-timeout", 60.0))


def responsive_workers(
    client: Client,
    annotations: Mapping[str, Any] = MappingProxyType({}),
    enrol: Callable[[], dict[str, str]] | None = None,
) -> list[Worker]:
    """Return the workers that answer and can run tasks with these annotations; if there are none, wait for the first.

    Parameters
    ----------
    client : distributed.Client
    annotations : mapping, optional
    enrol : callable, optional
        Called on each worker; see `check_alike`.

    Raises
    ------
    NoWorkersError
        If none came within ``dask.config`` key ``schmp-estimators.worker-timeout`` (default 60 s).
    SchedulerLostError
        If the scheduler could not be reached for that time, or the client is closed.
    MixedClusterError
        As `check_alike`.
    """
    deadline = time.monotonic() + worker_timeout()
    while True:
        lost: WorkLostError | None = None
        workers: list[Worker] = []
        try:
            workers = live_workers(client)
            able = [one for one in workers if one.status == "running" and one.may_take(annotations)]
            answering = check_alike(client, enrol=enrol) if able else set()
            if found := [one for one in able if one.address in answering]:
                return found
        except WorkLostError as error:
            lost = error
        is_late = time.monotonic() > deadline
        if lost and not workers and (is_late or client.status in ("closing", "closed")):
            raise scheduler_lost(client) from lost
        if is_late:
            raise no_workers(client, workers, annotations)
        time.sleep(0.1)


def scheduler_lost(client: Client) -> SchedulerLostError:
    """Return the error for a scheduler that cannot be reached."""
    return SchedulerLostError(
        f"the scheduler of {client!r} cannot be reached: it has ended, the network has failed, or the client was "
        "closed. Connect to a new one and fit again; with a checkpoint (parameter checkpoint of LDA and MF) the fit "
        "then continues from there"
    )


def no_workers(
    client: Client, workers: Sequence[Worker], annotations: Mapping[str, Any] = MappingProxyType({})
) -> NoWorkersError:
    """Return the error for a cluster on which no worker can run tasks with these annotations; it has `workers`."""
    timeout = f"{worker_timeout():g} s"
    running = [worker for worker in workers if worker.status == "running"]
    if running and not any(worker.may_take(annotations) for worker in running):
        asked = {key: annotations[key] for key in ("workers", "resources") if key in annotations}
        return NoWorkersError(
            f"for {timeout} none of the {len(workers)} workers of the Dask cluster at {_address(client)} could work, "
            f"because dask.annotate({asked}) excludes them: start others, or fit outside of dask.annotate"
        )
    if not workers:
        return NoWorkersError(
            f"the Dask cluster at {_address(client)} has had no workers for {timeout}; start "
            "some (cluster.scale(n)), close the client to fit in this process, or raise the time with "
            "dask.config.set({'schmp-estimators.worker-timeout': seconds})"
        )
    states = "; ".join(
        f"{worker.address} is {worker.status} and uses {format_bytes(worker.memory)} of "
        f"{format_bytes(worker.memory_limit) if worker.memory_limit else 'unlimited memory'}"
        for worker in workers
    )
    return NoWorkersError(
        f"no worker of the Dask cluster at {_address(client)} has been able to work for {timeout}: {states}. "
        "A worker pauses when it uses most of its memory limit: raise the limit (memory_limit), use more workers, "
        "release other data on the cluster, or take smaller chunks"
    )


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else "an unknown address"


@cache  # reading versions from disk takes longer than all other requests to a worker before a fit
def fingerprint() -> dict[str, str]:
    """Return what must be equal on all workers for results to be bit-for-bit the same."""
    cpu = [getattr(numba.config, name, None) for name in ("CPU_NAME", "CPU_FEATURES")]
    found = {package: _version(package) for package in _PACKAGES}
    found["CPU"] = " ".join(filter(None, cpu)) or _host_cpu()
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


def check_alike(
    client: Client,
    workers: list[str] | None = None,
    enrol: Callable[[], dict[str, str]] | None = None,
) -> set[str]:
    """Raise MixedClusterError if the workers differ in software or CPU, naming what differs and where.

    Parameters
    ----------
    client : distributed.Client
    workers : list of str, optional
        Addresses of the workers to ask; by default all.
    enrol : callable, optional
        Called on each worker; returns what `fingerprint` does, which is the default.

    Returns
    -------
    set of str
        Addresses of the workers that answered: a worker that has just died may still be listed.
    """
    asked = enrol or fingerprint
    prints: dict[str, dict[str, str]] = reach(
        client, client.run, asked, workers=workers, on_error="ignore"
    )
    addresses = [address for address in workers or prints if address in prints]
    for address in addresses[1:]:
        first, other = prints[addresses[0]], prints[address]
        differing = [name for name in first if first[name] != other.get(name)]
        if differing:
            details = "; ".join(
                f"{name}: {first[name]!r} and {other.get(name)!r}" for name in differing
            )
            raise MixedClusterError(
                f"workers {addresses[0]} and {address} differ in {details}. The same fit would not give the same "
                "bits on them: make the environments alike, or choose workers of one kind"
            )
    return set(prints)


def unrunnable(client: Client, futures: Sequence[Future[Any]]) -> list[str]:
    """Return keys of tasks that no worker can run, among the futures and all tasks that they wait for."""
    keys = [future.key for future in futures]
    found: list[str] = reach(client, client.run_on_scheduler, _unrunnable, keys=keys)
    return found


def _unrunnable(keys: list[Any], dask_scheduler: Any = None) -> list[str]:
    if not dask_scheduler.unrunnable:
        return []
    waiting = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
    seen = set(waiting)
    while waiting:
        new = (waiting.pop().waiting_on or set()) - seen
        seen |= new
        waiting += new
    return [str(task.key) for task in seen if task in dask_scheduler.unrunnable]


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "unknown"


def _host_cpu() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415  (numba brings it, and only workers need it)

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{llvm.get_host_cpu_name()} {hashlib.sha256(features.encode()).hexdigest()[:12]}"


class Dealt:
    """The workers of the shards of a run.

    Parameters
    ----------
    workers : list of Worker
        All workers of the cluster.
    """

    def __init__(self, workers: list[Worker]) -> None:
        #: Number of shards of the run; 0 if it is not known.
        self.n_places = 0
        self._places: dict[int, str] = {}
        self.update(workers)

    def update(self, workers: list[Worker]) -> None:
        """Set the workers of the cluster as they are now."""
        self.workers, self._alive = workers, {worker.address for worker in workers}
        #: Threads of all workers together.
        self.n_threads = sum([worker.n_threads for worker in workers])

    @property
    def addresses(self) -> set[str]:
        """Addresses of the workers that have shards."""
        return set(self._places.values())

    def address(self, place: int) -> str:
        """Return the worker of a shard; it stays the same while the worker lives.

        If there are more shards than threads, neighbours in the ring share a worker, so that fewer blocks are sent.  If
        that worker has its share already, or has died, the shard goes to the one with the fewest shards per thread.
        """
        if self._places.get(place) not in self._alive:
            self._places[place] = self._choose(place)
        return self._places[place]

    def _choose(self, place: int) -> str:
        taken, shares = Counter(self._places.values()), self._shares(self.n_places)
        if place < self.n_places:
            threads = [worker.address for worker in self.workers for _ in range(worker.n_threads)]
            own = threads[place * len(threads) // self.n_places]
            if taken[own] < shares[own]:
                return own
        spare = [
            worker for worker in self.workers if taken[worker.address] < shares[worker.address]
        ]
        return min(
            spare or self.workers, key=lambda w: (taken[w.address] + 1) / w.n_threads
        ).address

    def members(self, n_places: int) -> dict[str, list[int]]:
        """Return the shards of each worker that has some, of `n_places` shards in all."""
        self.n_places = n_places
        groups: dict[str, list[int]] = {}
        for place in range(n_places):
            groups.setdefault(self.address(place), []).append(place)
        return groups

    def settle(self, wishes: Sequence[Collection[str]]) -> None:
        """Give each shard one of the workers that it wishes for, as long as no worker gets more than its share."""
        self.n_places = len(wishes)
        shares = self._shares(self.n_places)
        for place, found in enumerate(wishes):
            for address in sorted(found):
                if shares.get(address):
                    self._places.setdefault(place, address)
                    shares[address] -= 1
                    break

    def is_even(self) -> bool:
        """Return whether no worker has more than its share of the shards, as the workers are now."""
        shares = self._shares(len(self._places))
        return not any(
            n > shares.get(address, 0) for address, n in Counter(self._places.values()).items()
        )

    def forget(self) -> None:
        """Forget where the shards are."""
        self._places.clear()

    def _shares(self, n_places: int) -> dict[str, int]:
        """Return the largest number of shards that each worker should have, of `n_places` shards in all."""
        return {
            worker.address: -(-n_places * worker.n_threads // self.n_threads)
            for worker in self.workers
        }
