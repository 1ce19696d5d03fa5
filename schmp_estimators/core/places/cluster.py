"""What the client knows of a Dask cluster: who is there, whether all are alike, and what can never run."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple

import dask
import numba
from dask.utils import format_bytes
from distributed import Client, Future
from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError

from schmp_estimators.core.places.errors import (
    AsynchronousClientError,
    MixedClusterError,
    NoWorkersError,
    SchedulerLostError,
    SchMPError,
    WorkLostError,
)

#: Packages whose version can change the bits of a result.
_PACKAGES = ("schmp-estimators", "numpy", "numba", "scipy")
#: What futures raise whose results nobody can make any more.
CANCELLED = (FutureCancelledError, FuturesCancelledError)


class Worker(NamedTuple):
    """A worker as far as placing shards is concerned."""

    address: str
    n_threads: int
    #: In bytes; 0 = unlimited.
    memory_limit: int
    #: Dask's word for what it is doing: "running", "paused", "closing_gracefully", ….
    status: str = "running"
    #: Bytes that its process uses.
    memory: int = 0
    name: Any = None
    #: How much it has of what tasks may ask for by name.
    resources: Mapping[str, float] = MappingProxyType({})

    def may_take(self, annotations: Mapping[str, Any]) -> bool:
        """Return whether tasks with these annotations may run here, as far as `workers` and `resources` say."""
        named, wanted = annotations.get("workers"), annotations.get("resources") or {}
        known = [named] if isinstance(named, str) else named
        here = not known or bool({self.address, self.name, str(self.name)} & set(known))
        return here and all(self.resources.get(name, 0) >= amount for name, amount in wanted.items())


@contextmanager
def reaching(client: Client) -> Iterator[None]:
    """Raise what a broken connection, to workers or to the scheduler, makes of a request as WorkLostError."""
    try:
        yield
    except (OSError, ClosedClientError, *CANCELLED) as error:
        raise WorkLostError(f"the cluster did not do what it was asked ({type(error).__name__}: {error})") from error
    except RuntimeError as error:  # a closed client has closed its event loop and its connections
        if isinstance(error, SchMPError) or client.status == "running":
            raise
        raise WorkLostError(f"the client is {client.status} ({error})") from error


def live_workers(client: Client) -> list[Worker]:
    """Return the workers that are there now, in the order of their names, whether they can work or not.

    The scheduler is asked: what `Client.scheduler_info` returns may have been overwritten, meanwhile, by the client's
    own regular look, which leaves the workers out.

    Raises
    ------
    WorkLostError
        If the scheduler cannot be reached.
    """
    if client.scheduler is None:
        raise WorkLostError(f"the client is {client.status}")
    with reaching(client):
        infos = client.sync(client.scheduler.identity, n_workers=-1)["workers"].items()
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
        for address, info in sorted(infos, key=lambda item: (str(type(item[1]["name"])), item[1]["name"]))
        if info["status"] not in ("closing", "closed")
    ]


def worker_timeout() -> float:
    """Return for how many seconds to wait for workers, or for a scheduler that cannot be reached."""
    return float(dask.config.get("schmp-estimators.worker-timeout", 60.0))


def wait_for_workers(client: Client, annotations: Mapping[str, Any] = MappingProxyType({})) -> list[Worker]:
    """Return the workers that can do tasks with these annotations; if there are none, wait for the first.

    Raises
    ------
    NoWorkersError
        If none came within ``dask.config`` key ``schmp-estimators.worker-timeout`` (default 60 s).
    SchedulerLostError
        If the scheduler could not be reached for as long, or the client is closed.
    """
    deadline = time.monotonic() + worker_timeout()
    while True:
        lost, workers = None, []
        try:
            workers = live_workers(client)
        except WorkLostError as error:
            lost = error
        if running := [one for one in workers if one.status == "running" and one.may_take(annotations)]:
            return running
        if lost and (time.monotonic() > deadline or client.status in ("closing", "closed")):
            raise scheduler_lost(client) from lost
        if time.monotonic() > deadline:
            if any(worker.status == "running" for worker in workers):
                asked = {key: annotations[key] for key in ("workers", "resources") if key in annotations}
                raise NoWorkersError(
                    f"for {worker_timeout():g} s none of the {len(workers)} workers of the Dask cluster at "
                    f"{_address(client)} has been one that dask.annotate({asked}) lets work: start such workers, or "
                    "fit outside of dask.annotate"
                )
            raise no_workers(client, workers)
        time.sleep(0.1)


def responsive_workers(client: Client, annotations: Mapping[str, Any] = MappingProxyType({})) -> list[Worker]:
    """Return the workers that can work and answer, once there is one; raises as `wait_for_workers`, `check_alike`."""
    deadline = time.monotonic() + worker_timeout()
    while True:
        workers = wait_for_workers(client, annotations)
        try:
            answering = check_alike(client)
        except WorkLostError:
            answering = set()
        if found := [worker for worker in workers if worker.address in answering]:
            return found
        if time.monotonic() > deadline:
            raise no_workers(client, workers)
        time.sleep(0.2)


def scheduler_lost(client: Client) -> SchedulerLostError:
    """Return what to raise where the scheduler is gone."""
    return SchedulerLostError(
        f"the scheduler of {client!r} cannot be reached: it has ended, the network has failed, or the client was "
        "closed. Connect to a new one and fit again; with a checkpoint (parameter checkpoint of LDA and MF) the fit "
        "then goes on from where it was"
    )


def no_workers(client: Client, workers: Sequence[Worker]) -> NoWorkersError:
    """Return what to raise where nobody can work: `workers` are those that are there nevertheless."""
    timeout = f"{worker_timeout():g} s"
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
        "A worker pauses when it uses most of its memory limit: raise the limit (memory_limit), use more workers, let "
        "go of other data on the cluster, or take smaller chunks"
    )


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else "an unknown address"


def check_synchronous(client: Client) -> None:
    """Raise AsynchronousClientError if `client` cannot be waited for."""
    if client.asynchronous:
        raise AsynchronousClientError(
            "the active Dask client is asynchronous; fit in a thread with a synchronous Client, or keep the work in "
            "this process with dask.config.set({'schmp-estimators.runtime': 'local'})"
        )


def fingerprint() -> dict[str, str]:
    """Return what must be alike on all workers for results to have the same bits."""
    cpu = [getattr(numba.config, name, None) for name in ("CPU_NAME", "CPU_FEATURES")]
    found = {package: _version(package) for package in _PACKAGES}
    found["CPU"] = " ".join(filter(None, cpu)) or _host_cpu()
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


def check_alike(client: Client, workers: list[str] | None = None) -> set[str]:
    """Raise MixedClusterError if the workers differ in software or CPU, naming what differs and where.

    With `workers`, ask only those: addresses of which the first has been asked before.  Return who answered: a worker
    that has just died may still be listed.
    """
    with reaching(client):
        prints: dict[str, dict[str, str]] = client.run(fingerprint, workers=workers, on_error="ignore")
    addresses = [address for address in workers or prints if address in prints]
    for first_address, address in zip(addresses[:1] * len(addresses), addresses[1:], strict=False):
        first, other = prints[first_address], prints[address]
        differing = [name for name in first if first[name] != other.get(name)]
        if differing:
            details = "; ".join(f"{name}: {first[name]!r} and {other.get(name)!r}" for name in differing)
            raise MixedClusterError(
                f"workers {first_address} and {address} differ in {details}. The same fit would not give the same "
                "bits on them: make the environments alike, or choose workers of one kind"
            )
    return set(prints)


def unrunnable(client: Client, futures: Sequence[Future[Any]]) -> list[str]:
    """Return keys that no worker can run, as the scheduler sees it, among the futures and all that they wait for."""
    with reaching(client):
        found: list[str] = client.run_on_scheduler(_unrunnable, keys=[future.key for future in futures])
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


@cache  # reading it from the disk takes longer than all else a worker is asked before a fit
def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "unknown"


def _host_cpu() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415  (numba brings it, and only workers need it)

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{llvm.get_host_cpu_name()} {hashlib.sha256(features.encode()).hexdigest()[:12]}"
