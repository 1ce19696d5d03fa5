"""What the client knows of a Dask cluster: who is there, whether all are alike, and what can never run."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Collection
from importlib.metadata import version
from typing import Any, NamedTuple

import dask
import numba
from distributed import Client

from schmp_estimators.runtime.errors import AsynchronousClientError, MixedClusterError, NoWorkersError

#: Packages whose version can change the bits of a result.
_PACKAGES = ("schmp-estimators", "numpy", "numba", "scipy")


class Worker(NamedTuple):
    """A worker as far as placing shards is concerned."""

    address: str
    n_threads: int
    #: In bytes; 0 = unlimited.
    memory_limit: int


def live_workers(client: Client) -> list[Worker]:
    """Return the workers that are there now, in the order of their names."""
    infos = client.scheduler_info(n_workers=-1)["workers"].items()
    return [
        Worker(address, info["nthreads"], info.get("memory_limit") or 0)
        for address, info in sorted(infos, key=lambda item: (str(type(item[1]["name"])), item[1]["name"]))
    ]


def wait_for_workers(client: Client) -> list[Worker]:
    """Return the workers; if there are none, wait for the first.

    Raises
    ------
    NoWorkersError
        If none came within ``dask.config`` key ``schmp-estimators.worker-timeout`` (default 60 s).
    """
    timeout = float(dask.config.get("schmp-estimators.worker-timeout", 60.0))
    deadline = time.monotonic() + timeout
    while not (workers := live_workers(client)):
        if time.monotonic() > deadline:
            raise NoWorkersError(
                f"the Dask cluster at {client.scheduler_info()['address']} has had no workers for {timeout:g} s; start "
                "some (cluster.scale(n)), close the client to fit in this process, or raise the time with "
                "dask.config.set({'schmp-estimators.worker-timeout': seconds})"
            )
        time.sleep(0.1)
    return workers


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


def unrunnable(client: Client, names: Collection[str]) -> list[str]:
    """Return keys of ours that no worker can run, as the scheduler sees it; `names` are the first words of keys."""
    return client.run_on_scheduler(_unrunnable, names=list(names))


def _unrunnable(names: list[str], dask_scheduler: Any = None) -> list[str]:
    wanted = set(names)
    return [str(ts.key) for ts in dask_scheduler.unrunnable if isinstance(ts.key, tuple) and ts.key[0] in wanted]


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "unknown"


def _host_cpu() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415  (numba brings it, and only workers need it)

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{llvm.get_host_cpu_name()} {hashlib.sha256(features.encode()).hexdigest()[:12]}"
