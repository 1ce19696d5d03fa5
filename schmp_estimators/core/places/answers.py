"""Asks the workers of a Dask cluster, and goes on with those that answer."""

import hashlib
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

import numba
from distributed import Client

from schmp_estimators.core.errors import MixedClusterError, WorkLostError
from schmp_estimators.core.places.cluster import (
    SILENT,
    Worker,
    live_workers,
    no_workers,
    reach,
    scheduler_lost,
    worker_timeout,
)
from schmp_estimators.core.places.watch import begin, look_until
from schmp_estimators.core.typing import Arguments, Function, Named

#: Packages whose version can change the bits of a result.
_PACKAGES = ("schmp-estimators", "numpy", "numba", "scipy")
#: What workers have answered to each client, by their addresses and folders, and the number of
#: modules to import.
_prints = WeakKeyDictionary[Client, dict[Arguments, dict[str, str]]]()


def ask(client: Client, function: Function, *args: Any, workers: Iterable[str]) -> Named:
    """Return what workers answer to a call, by their addresses; it may have failed on others.

    Raises
    ------
    WorkLostError
        If one of the workers falls silent.  Without it the others can be asked again.
    """
    options: Named = {"workers": list(workers), "on_error": "ignore", "asynchronous": True}
    asked = begin(client, partial(client.run, function, *args, **options))
    try:
        look_until(client, asked, [], None, workers)
        found: Named = reach(client, asked.result)
    finally:
        asked.cancel()  # otherwise it would wait on for who is silent
    return found


def responsive_workers(
    client: Client,
    annotations: Mapping[str, Any],
    enrol: Callable[[], dict[str, str]],
) -> tuple[list[Worker], list[Worker]]:
    """Return the workers that answer and can run tasks with these annotations, and silent ones.

    If there are none of the former, it waits for the first; once one has come, it has as long to
    answer.

    Parameters
    ----------
    client : distributed.Client
    annotations : mapping
    enrol : callable
        Called on each worker; see `check_alike`.

    Raises
    ------
    NoWorkersError
        If none came within ``dask.config`` key ``schmp-estimators.worker-timeout`` (default 60 s),
        or none answered within this time after the first had come.
    SchedulerLostError
        If the scheduler could not be reached for that time, or the client is closed.
    MixedClusterError
        As `check_alike`.
    """
    deadline = time.monotonic() + worker_timeout()
    has_come = False
    while True:
        lost: WorkLostError | None = None
        workers: list[Worker] = []
        try:
            workers = live_workers(client)
            able = [one for one in workers if one.status == "running" and one.may_take(annotations)]
            if able and not has_come:
                deadline = time.monotonic() + worker_timeout()
                has_come = True
            answering = check_alike(client, able, enrol) if able else set()
            if found := [one for one in able if one.address in answering]:
                return found, [one for one in workers if one.status == SILENT]
        except WorkLostError as error:
            lost = error
        is_late = time.monotonic() > deadline
        if lost and not workers and (is_late or client.status in ("closing", "closed")):
            raise scheduler_lost(client) from lost
        if is_late and not (lost and workers):  # else one of them has just fallen silent
            raise no_workers(client, workers, annotations)
        time.sleep(0.1)


@cache  # reading versions from disk takes longer than all other requests to a worker before a fit
def fingerprint() -> dict[str, str]:
    """Return what must be equal on all workers for results to be bit-for-bit the same."""
    cpu = [getattr(numba.config, name, None) for name in ("CPU_NAME", "CPU_FEATURES")]
    found = {package: _version(package) for package in _PACKAGES}
    found["CPU"] = " ".join(filter(None, cpu)) or _host_cpu()
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


def check_alike(
    client: Client,
    workers: Sequence[Worker],
    enrol: Callable[[], dict[str, str]] | None = None,
) -> set[str]:
    """Raise MixedClusterError if workers differ in software or CPU, naming what differs and where.

    Workers that have answered this client before are not asked again, unless there are new modules
    to import.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of Worker
    enrol : callable, optional
        Called on each worker; returns what `fingerprint` does, which is the default.

    Returns
    -------
    set of str
        Addresses of the workers that answered: a worker that has just died may still be listed.
    """
    known = _prints.setdefault(client, {})
    package = __name__.partition(".")[0]
    n_modules = sum(name.startswith(package) for name in list(sys.modules))
    keys = {one.address: (one.address, one.folder, n_modules) for one in workers}
    if new := [address for address, key in keys.items() if key not in known]:
        answers: Named = ask(client, enrol or fingerprint, workers=new)
        known |= {keys[address]: found for address, found in answers.items()}
    prints = {address: known[key] for address, key in keys.items() if key in known}
    addresses = list(prints)
    for address in addresses[1:]:
        first = prints[addresses[0]]
        other = prints[address]
        differing = [name for name in first if first[name] != other.get(name)]
        if differing:
            details = "; ".join(
                f"{name}: {first[name]!r} and {other.get(name)!r}" for name in differing
            )
            raise MixedClusterError(
                f"workers {addresses[0]} and {address} differ in {details}. The same fit would not "
                "give the same bits on them: make the environments alike, or choose workers of one "
                "kind"
            )
    return set(prints)


def forget_answers(client: Client) -> None:
    """Let `check_alike` ask all workers again."""
    _prints.pop(client, None)


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "unknown"


def _host_cpu() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415  (numba brings it, and only workers need it)

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{llvm.get_host_cpu_name()} {hashlib.sha256(features.encode()).hexdigest()[:12]}"
