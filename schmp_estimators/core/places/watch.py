"""Waiting for a Dask cluster, and looking, meanwhile, whether that makes sense.

A future whose worker has died is computed again by Dask.  But it may also be cancelled, fail because its workers keep
dying, or wait for workers that never come; and a bare `Client.gather` then waits for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, cast

from distributed import Client, Future, KilledWorker, as_completed

from schmp_estimators.core.errors import NoWorkersError, WorkLostError
from schmp_estimators.core.places.cluster import live_workers, no_workers, reach, unrunnable, worker_timeout

#: Seconds between two looks at the cluster while results are outstanding.
WATCH_EVERY = 1.0
#: Seconds for which the other tasks of a group are waited for after one has failed.
AFTER_ERROR = 2.0
#: How many looks in a row must find that the workers with the run are gone before they are taken for dead.
LOOKS = 2
#: How many looks in a row must find a task that no worker can run before it is taken for lost.
PATIENCE = 5


def gather(client: Client, futures: Sequence[Future[Any]], holders: Collection[str] | None = None) -> list[Any]:
    """Return the results of futures, once they are done.

    Parameters
    ----------
    client : distributed.Client
    futures : sequence of Future
    holders : collection of str, optional
        Addresses of the workers that hold what the results are made of.  None: any worker can make them.

    Raises
    ------
    WorkLostError
        If results are lost beyond what Dask computes again.  Beginning anew may help.
    NoWorkersError
        If for ``schmp-estimators.worker-timeout`` there was no worker that could do what is wanted.
    """
    futures = list(futures)
    try:
        values: list[Any] = _watched(client, lambda: client.gather(futures, asynchronous=True), futures, holders)
    except (KilledWorker, concurrent.futures.CancelledError) as error:
        raise WorkLostError(f"results were lost with their workers: {error}") from error
    except OSError as error:
        if any(future.status == "error" for future in futures):  # the task's own
            raise
        raise WorkLostError(f"results were lost on their way: {error}") from error
    return values


def outcomes(client: Client, futures: Sequence[Future[Any]], holders: Collection[str]) -> list[Any]:
    """Return what each of some ranks came to, a value or an exception, once all have ended, or soon after an error.

    Ranks depend on each other, so when the worker of one has gone, the others are not waited for.

    Raises
    ------
    NoWorkersError
        As `gather`; a loss is an outcome, too.
    """

    async def ended() -> dict[Any, Any]:
        ending = as_completed(futures, loop=client.loop)
        async for future in ending:
            if future.status != "finished":
                break
        with suppress(TimeoutError):
            async with asyncio.timeout(AFTER_ERROR):
                async for _ in ending:
                    pass
        finished = [future for future in futures if future.status == "finished"]
        values = await client.gather(finished, asynchronous=True)
        return dict(zip([future.key for future in finished], values, strict=True))

    try:
        values = _watched(client, ended, futures, holders, are_ranks=True)
    except WorkLostError as error:
        return [error] * len(futures)
    except (KilledWorker, concurrent.futures.CancelledError, OSError) as error:
        return [WorkLostError(f"results were lost with their workers: {error}")] * len(futures)
    return [values[one.key] if one.key in values else _failure(one) for one in futures]


def _failure(future: Future[Any]) -> Exception:
    error = future.exception() if future.status == "error" else None
    if error is None or isinstance(error, KilledWorker):
        return WorkLostError(f"{future.key} was lost" + (f": {error}" if error else ""))
    return cast(Exception, error)


def await_all(client: Client, futures: Sequence[Future[Any]], holders: Collection[str]) -> None:
    """Wait until all futures are done; raises as `gather`, or what a task has raised."""

    async def done() -> None:
        async for _ in as_completed(futures, loop=client.loop):
            pass

    _watched(client, done, futures, holders)
    if failed := [future for future in futures if future.status != "finished"]:
        gather(client, failed, holders)


def scatter(client: Client, key: Any, value: Any, *addresses: str) -> Future[Any]:
    """Send a value to a worker, or a copy to each of some, and return its future.

    Raises
    ------
    WorkLostError
        If a worker dies, or does not take it.
    NoWorkersError
        As `gather`.
    """
    options: dict[str, Any] = {"workers": [*addresses], "hash": False, "asynchronous": True}
    options["broadcast"] = len(addresses) > 1

    def send() -> Any:
        return client.scatter({key: value}, **options)

    try:
        future: Future[Any] = reach(client, _watched, client, send, [], {*addresses})[key]
    except KeyError as error:
        if error.args[0] not in addresses:
            raise
        raise WorkLostError(f"worker {error.args[0]} died before it got its data") from error
    return future


def _watched(
    client: Client,
    start: Callable[[], Any],
    futures: Sequence[Future[Any]],
    holders: Collection[str] | None,
    *,
    are_ranks: bool = False,
) -> Any:
    """Return what a coroutine of the client returns, which goes on while this thread looks at the cluster.

    If this thread turns away, the coroutine ends by itself when its futures are released, or its connection closed.
    """
    loop = client.loop.asyncio_loop  # type: ignore[union-attr]
    pending = reach(client, asyncio.run_coroutine_threadsafe, start(), loop)
    look_until(client, pending, futures, holders, are_ranks=are_ranks)
    return pending.result()


def look_until(
    client: Client,
    pending: concurrent.futures.Future[Any],
    futures: Sequence[Future[Any]],
    holders: Collection[str] | None,
    *,
    are_ranks: bool = False,
    are_needed: bool = False,
) -> None:
    """Wait for something; look at the cluster meanwhile.

    Parameters
    ----------
    client, futures, holders
        As in `gather`.
    pending : concurrent.futures.Future
        What is waited for.
    are_ranks : bool, default=False
        Whether the futures are of ranks, one on each of the holders, which need each other.
    are_needed : bool, default=False
        Whether it comes only as long as none of the futures is done.

    Raises
    ------
    WorkLostError, NoWorkersError
        If there is no sense in waiting any more.
    """
    held = set(holders or ())
    #: how many of the last looks have found the holders gone, or a task that cannot run
    n_gone = n_stuck = 0
    idle_since: float | None = None
    while not concurrent.futures.wait([pending], timeout=WATCH_EVERY).done:
        if are_needed and any(future.status != "pending" for future in futures):
            raise WorkLostError("ranks have ended")
        workers = live_workers(client)
        alive = {worker.address for worker in workers}
        gone = holders is not None and (not held <= alive if are_ranks else not held & alive)
        n_gone = n_gone + 1 if gone else 0
        if n_gone == LOOKS:
            raise WorkLostError("a worker of the run died" if held & alive else "all workers that held the run died")
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
                f"for {worker_timeout():g} s no worker could run {stuck[:3]}: the restrictions or resources that they "
                "were given fit none"
            )
