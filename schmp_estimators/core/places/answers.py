"""Asks the workers of a Dask cluster, and goes on with those that answer in time.

A worker that is slow may be heard, and yet not answer: it imports on a busy machine, or waits for a
disk.  So every question has a limit.
"""

import hashlib
import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
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
    answer_timeout,
    live_workers,
    no_workers,
    reach,
    scheduler_lost,
    worker_timeout,
)
from schmp_estimators.core.places.watch import begin
from schmp_estimators.core.typing import Arguments, Function, Named

#: Packages whose version can change the bits of a result.
_PACKAGES = ("schmp-estimators", "numpy", "numba", "scipy")
#: What each client has asked workers, by their addresses and folders, and the number of modules to
#: import: the answers, which come later.
_asked = WeakKeyDictionary[Client, dict[Arguments, Future[Named]]]()


def _begun(client: Client, function: Function, *args: Any, workers: Iterable[str]) -> Future[Named]:
    """Ask workers, and return what will have their answers by their addresses."""
    options: Named = {"workers": list(workers), "on_error": "ignore", "asynchronous": True}
    return begin(client, partial(client.run, function, *args, **options))


def ask(client: Client, function: Function, *args: Any, workers: Iterable[str]) -> Named:
    """Return what workers answer to a call, by their addresses; it may have failed on others.

    Raises
    ------
    WorkLostError
        If one of the workers does not answer in time.  Without it the others can be asked again.
    """
    asked = _begun(client, function, *args, workers=workers)
    try:
        if wait([asked], answer_timeout()).not_done:
            raise WorkLostError("a worker does not answer")
        return reach(client, asked.result)
    finally:
        asked.cancel()  # otherwise it would wait on


def responsive_workers(
    client: Client,
    annotations: Mapping[str, Any],
    enrol: Callable[[], dict[str, str]],
) -> tuple[list[Worker], list[Worker]]:
    """Return the workers that answer and can run tasks with these annotations, and who do not.

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
            answers = check_alike(client, able, enrol, until=deadline) if able else {}
            if found := [one for one in able if answers.get(one.address)]:
                late = [one for one in able if answers.get(one.address) is False]
                return found, [*late, *(one for one in workers if one.status == SILENT)]
        except WorkLostError as error:
            lost = error
        is_late = time.monotonic() > deadline
        if lost and (is_late or client.status in ("closing", "closed")):
            raise scheduler_lost(client) from lost
        if is_late:
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
    until: float = math.inf,
) -> dict[str, bool]:
    """Raise MixedClusterError if workers differ in software or CPU, naming what differs and where.

    Workers that have been asked by this client before are not asked again, unless there are new
    modules to import.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of Worker
    enrol : callable, optional
        Called on each worker; returns what `fingerprint` does, which is the default.
    until : float, optional
        When to go on without those that have not answered: a time of `time.monotonic`, and not
        later than `answer_timeout` from now.

    Returns
    -------
    dict of str
        By address whether a worker has answered yet.  It has not those on which the call failed:
        one that has just died may still be listed.
    """
    asked = _asked.setdefault(client, {})
    package = __name__.partition(".")[0]
    n_modules = sum(name.startswith(package) for name in list(sys.modules))
    keys = {one.address: (one.address, one.folder, n_modules) for one in workers}
    coming = {
        address: asked.get(key) or _begun(client, enrol or fingerprint, workers=[address])
        for address, key in keys.items()
    }
    asked |= {keys[address]: one for address, one in coming.items()}
    limit = min(answer_timeout(), until - time.monotonic())
    come = wait(coming.values(), max(limit, 0.0)).done
    prints: Named = {}
    for address, one in coming.items():
        if one in come:
            with suppress(WorkLostError, CancelledError):
                prints |= reach(client, one.result)
            if address not in prints:  # it failed
                asked.pop(keys[address], None)
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
    return {a: a in prints for a, one in coming.items() if a in prints or one not in come}


def forget_answers(client: Client) -> None:
    """Let `check_alike` ask all workers again."""
    for one in _asked.pop(client, {}).values():
        one.cancel()


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return "unknown"


def _host_cpu() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415  (numba brings it, and only workers need it)

    features = str(llvm.get_host_cpu_features().flatten())
    return f"{llvm.get_host_cpu_name()} {hashlib.sha256(features.encode()).hexdigest()[:12]}"
