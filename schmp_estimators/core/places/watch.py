"""Waits for results of a Dask cluster, and checks meanwhile whether they can still come.

Dask computes a future again if its worker has died.  But a future may also be cancelled, fail
because its workers keep dying, or wait for workers that never come; `Client.gather` alone would
then wait for ever.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from dask.utils import format_bytes
from distributed import Client, Future, KilledWorker, as_completed

from schmp_estimators.core.errors import NoWorkersError, WorkLostError
from schmp_estimators.core.places.cluster import (
    SILENT,
    Futures,
    Worker,
    live_workers,
    no_workers,
    reach,
    unrunnable,
    worker_timeout,
)
from schmp_estimators.core.typing import Named

#: Seconds between two checks of the cluster while results are outstanding.
WATCH_EVERY = 1.0
#: Seconds to wait for the other ranks after one has failed.
AFTER_ERROR = 2.0
#: Number of checks in a row with a silent worker, or a task that no worker can run, after which
#: work is taken for lost.
PATIENCE = 5


def gather(
    client: Client,
    futures: Futures,
    holders: Collection[str] | None = None,
    others: Iterable[str] = (),
) -> list[Any]:
    """Return the results of futures, once they are done.

    Parameters
    ----------
    client : distributed.Client
    futures : sequence of Future
    holders : collection of str, optional
        Addresses of the workers that hold the arguments of the tasks.  None: any worker can compute
        the results.
    others : iterable of str
        Addresses of other workers that tasks may be on: if one falls silent, Dask does not repeat
        its tasks.

    Raises
    ------
    WorkLostError
        If results are lost and Dask cannot compute them again.  Another attempt may help.
    NoWorkersError
        If for ``schmp-estimators.worker-timeout`` no worker could run the tasks.
    """
    futures = list(futures)
    try:
        values: list[Any] = watched(
            client, lambda: client.gather(futures, asynchronous=True), futures, holders, others
        )
    except (KilledWorker, concurrent.futures.CancelledError) as error:
        raise _lost(error) from error
    except OSError as error:
        if any(future.status == "error" for future in futures):  # an error of the task
            raise
        raise WorkLostError("results were lost on their way") from error
    return values


def outcomes(
    client: Client, futures: Futures, holders: Collection[str], kept: Futures = ()
) -> list[Any]:
    """Return the outcome of each rank once all have ended, or soon after an error.

    An outcome is a value or an exception.

    Values of `kept` stay where they are: their outcome is None.

    Ranks depend on each other, so if the worker of one has died, the function does not wait for the
    others.

    Raises
    ------
    NoWorkersError
        As `gather`.  A loss of work is not raised, but is an outcome.
    """

    async def ended() -> dict[Any, Any]:
        ending = as_completed(futures, loop=client.loop)
        async for future in ending:
            if future.status != "finished" or future.type is WorkLostError:
                break
        with suppress(TimeoutError):
            async with asyncio.timeout(AFTER_ERROR):
                async for _ in ending:
                    pass
        finished = [future for future in futures if future.status == "finished"]
        stay = {future.key: None for future in kept if future.type is not WorkLostError}
        come = [future for future in finished if future.key not in stay]
        values = await client.gather(come, asynchronous=True)
        found = dict.fromkeys([future.key for future in finished])
        return found | dict(zip([future.key for future in come], values, strict=True))

    try:
        values = watched(client, ended, futures, holders, are_ranks=True)
    except WorkLostError as error:
        return [error] * len(futures)
    except (KilledWorker, concurrent.futures.CancelledError, OSError) as error:
        return [_lost(error)] * len(futures)
    return [values[one.key] if one.key in values else _failure(one) for one in futures]


def _failure(future: Future[Any]) -> Exception:
    error = future.exception() if future.status == "error" else None
    if error is None or isinstance(error, KilledWorker):
        return _lost(error)
    return cast(Exception, error)


def _lost(error: BaseException | None) -> WorkLostError:
    """Return the error for results that Dask has given up.

    Its own texts tell the user to do what a fit does.
    """
    many = isinstance(error, KilledWorker)
    return WorkLostError(
        "a task was given up, as several workers died that had it, the last at "
        f"{error.last_worker.address}"  # type: ignore[union-attr]
        if many
        else "results were lost with their workers"
    )


def await_all(
    client: Client,
    futures: Futures,
    holders: Collection[str],
    others: Iterable[str] = (),
) -> None:
    """Wait until all futures are done.

    Arguments and errors are those of `gather`, or the error of a task.
    """

    async def done() -> None:
        async for _ in as_completed(futures, loop=client.loop):
            pass

    watched(client, done, futures, holders, others)
    if failed := [future for future in futures if future.status != "finished"]:
        gather(client, failed, holders, others)


def scatter(client: Client, key: Any, value: Any, *addresses: str) -> Future[Any]:
    """Send a value to a worker, or a copy to each of several workers, and return its future.

    Raises
    ------
    WorkLostError
        If a worker dies or does not take the value.
    NoWorkersError
        As `gather`.
    """
    options: Named = {"workers": [*addresses], "hash": False, "asynchronous": True}
    options["broadcast"] = len(addresses) > 1

    def send() -> Any:
        return client.scatter({key: value}, **options)

    try:
        future: Future[Any] = reach(client, watched, client, send, [], {*addresses})[key]
    except KeyError as error:
        if error.args[0] not in addresses:
            raise
        raise WorkLostError(f"worker {error.args[0]} died before it got its data") from error
    return future


def watched(
    client: Client,
    start: Callable[[], Any],
    futures: Futures,
    holders: Collection[str] | None,
    others: Iterable[str] = (),
    **options: bool,
) -> Any:
    """Run a coroutine of the client and return its result.

    This thread checks the cluster meanwhile as `look_until`.

    If this thread stops waiting, the coroutine ends when its futures are released or its connection
    is closed.
    """
    pending = begin(client, start)
    look_until(client, pending, futures, holders, others, **options)
    return pending.result()


def begin(client: Client, start: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Let the client run a coroutine, and return its concurrent future.

    Raise WorkLostError if the client is closed.
    """
    if client.status in ("closing", "closed") or client.loop is None:
        raise WorkLostError(f"the client is {client.status}")
    coroutine = start()
    try:
        return reach(
            client,
            asyncio.run_coroutine_threadsafe,
            coroutine,
            client.loop.asyncio_loop,  # type: ignore[attr-defined]
        )
    except WorkLostError:  # closed just now
        coroutine.close()
        raise


def look_until(
    client: Client,
    pending: concurrent.futures.Future[Any],
    futures: Futures,
    holders: Collection[str] | None,
    others: Iterable[str] = (),
    *,
    are_ranks: bool = False,
    are_needed: bool = False,
) -> None:
    """Wait for a concurrent future, and check the cluster meanwhile.

    Parameters
    ----------
    client, futures, holders, others
        As in `gather`.
    pending : concurrent.futures.Future
        What to wait for.
    are_ranks : bool, default=False
        Whether `futures` are those of ranks, one on each of the holders, which need each other.
    are_needed : bool, default=False
        Whether `pending` can be done only while none of the futures is.

    Raises
    ------
    WorkLostError, NoWorkersError
        If waiting any longer is useless.
    """
    held = set(holders or ())
    places = {*(holders or ()), *others}
    seen: dict[str, Worker] = {}
    #: how many checks in a row have found workers dead, or silent, or a task that cannot run
    n_gone = n_silent = n_stuck = 0
    idle_since: float | None = None
    while not concurrent.futures.wait([pending], timeout=WATCH_EVERY).done:
        if are_needed and any(future.status != "pending" for future in futures):
            raise WorkLostError("ranks have ended")
        workers = live_workers(client)
        seen |= {worker.address: worker for worker in workers}
        silent = places & {worker.address for worker in workers if worker.status == SILENT}
        gone = held - {worker.address for worker in workers}
        if not are_ranks and gone != held:
            gone = set()  # Dask computes results again
        n_gone = n_gone + 1 if gone else 0
        n_silent = n_silent + 1 if silent else 0
        if n_gone == 2 or n_silent == PATIENCE:
            raise WorkLostError(_obituary(gone or silent, seen))
        working = any(worker.status == "running" for worker in workers)
        stuck = unrunnable(client, futures) if working else []
        n_stuck = n_stuck + 1 if stuck else 0
        if n_stuck == PATIENCE and holders is not None:
            raise WorkLostError(f"no worker can run {stuck[:3]}")
        if working and not stuck:
            idle_since = None
        elif idle_since is None:
            idle_since = time.monotonic()
        elif time.monotonic() > idle_since + worker_timeout():
            if not working:
                raise no_workers(client, workers)
            raise NoWorkersError(
                f"for {worker_timeout():g} s no worker could run {stuck[:3]}: the restrictions or "
                "resources that they were given fit none"
            )


def _obituary(lost: Collection[str], seen: Mapping[str, Worker]) -> str:
    """Return what is said of workers that are lost, with what was seen of one of them last."""
    one = seen.get(min(lost))
    names = " and ".join(sorted(lost))
    if one is None:
        return f"worker {names} died"
    if one.status == SILENT:
        return f"no answer from worker {names}"
    limit = f" of {format_bytes(one.memory_limit)}" if one.memory_limit else ""
    return f"worker {names} died, last seen with {format_bytes(one.memory)}{limit} in use"
