"""The post of a cluster: workers keep pieces for each other, and fetch them past the scheduler.

A task that has pieces for all shards keeps them in the memory of its worker and returns a ticket; who needs one asks
the worker that has it, by the cluster's own connections.  So a sweep takes a few tasks a shard, not one for each pair,
and what Dask knows of it does not grow with the number of pairs.  The price: Dask cannot make a single piece again.  If
one is gone, the run goes on from its last cut.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
from dask.sizeof import sizeof
from distributed import Worker, get_worker
from distributed.protocol import to_serialize
from distributed.utils import sync

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key

#: Peers of which a shard fetches pieces at the same time, and bytes that may be on their way to it.
PEERS, BYTES_ON_THEIR_WAY = 8, 1 << 28

_OPERATION = "schmp-piece"


class Ticket(NamedTuple):
    """Where pieces are kept."""

    address: str
    #: The key of the task that has made them.
    key: Key
    #: Bytes of all of them, of many by a sample.
    nbytes: int


class Shelf:
    """The pieces that a worker keeps, by the token of their post and the key of the task that has made them."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[Key, Sequence[Any]]] = {}
        self._lock = threading.Lock()
        #: Pieces that others have been given, and their bytes.
        self.given = [0, 0]

    def put(self, token: str, key: Key, pieces: Sequence[Any]) -> None:
        """Keep pieces; let go of those of earlier sweeps, which all have got who will ever need them.

        What is asked for after a sweep, a harvest, is asked for while later sweeps run already: it lasts until the next
        such question.
        """
        with self._lock:
            kept = self._kept.setdefault(token, {})
            for other in [one for one in kept if _is_of_sweep(one) == _is_of_sweep(key) and _time(one) < _time(key)]:
                del kept[other]
            kept[key] = pieces

    def get(self, token: str, key: Key, number: int) -> Any:
        """Return the piece for shard `number`; raises KeyError if it is gone: who asks may be too late."""
        return self._kept[token][key][number]

    def clear(self, token: str) -> None:
        """Let go of all pieces of a post."""
        self._kept.pop(token, None)

    def __len__(self) -> int:
        """Return how many tasks have pieces here."""
        return sum(map(len, self._kept.values()))


def _time(key: Key) -> tuple[int, int]:
    """Return when a task is in its run: how often that has begun, and the number of the sweep."""
    return key[1], key[2]


def _is_of_sweep(key: Key) -> bool:
    """Return whether a task belongs to a stage of a sweep, not to what follows one."""
    return bool(key[3] > 0)


def shelf_of(worker: Worker) -> Shelf:
    """Return the shelf of a worker, which is there, and known to others, from when it is first asked for."""
    shelf: Shelf | None = getattr(worker, "schmp_shelf", None)
    if shelf is None:
        shelf = worker.schmp_shelf = Shelf()  # type: ignore[attr-defined]

        async def give(token: str, keys: Sequence[Sequence[Any]], number: int) -> dict[str, Any]:
            try:
                pieces = [shelf.get(token, tuple(key), number) for key in keys]
            except KeyError as error:
                return {"gone": str(error)}
            shelf.given[0] += len(pieces)
            shelf.given[1] += sizeof(pieces)
            return {"pieces": to_serialize(pieces)}

        worker.handlers[_OPERATION] = give
    return shelf


class WorkerPost:
    """The post of a place, as cells see it; it travels with every task.

    Parameters
    ----------
    token : str
        What tells its pieces from those of other places.
    """

    def __init__(self, token: str) -> None:
        self._token = token

    def keep(self, key: Key, pieces: Sequence[Any]) -> Ticket:
        """Keep a piece for every shard on this worker."""
        worker = get_worker()
        shelf_of(worker).put(self._token, key, pieces)
        return Ticket(worker.address, key, sizeof(list(pieces)))

    def bring(self, tickets: Sequence[Ticket], number: int) -> list[Any]:
        """Return the pieces for shard `number`; every worker begins with its neighbour, so that not all ask the same.

        Raises
        ------
        WorkLostError
            If a worker has died, or has no such piece any more.
        """
        worker = get_worker()
        holders: dict[str, list[int]] = {}
        for at, ticket in enumerate(tickets):
            holders.setdefault(ticket.address, []).append(at)
        others = sorted(holders.keys() - {worker.address})
        first = sum(address < worker.address for address in others)
        order = [*others[first:], *others[:first]]
        expected = sum(ticket.nbytes for ticket in tickets) // len(tickets) // len(holders)
        peers = max(1, min(PEERS, BYTES_ON_THEIR_WAY // max(1, expected)))
        timeout = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp", "30s"))

        async def fetch(address: str, gate: asyncio.Semaphore) -> list[Any]:
            keys = [tickets[at].key for at in holders[address]]
            async with gate:
                ask = getattr(worker.rpc(address), _OPERATION)
                answer = await asyncio.wait_for(ask(token=self._token, keys=keys, number=number), timeout)
                if "gone" in answer:
                    raise KeyError(answer["gone"])
                return list(answer["pieces"])

        async def fetch_all() -> list[list[Any]]:
            gate = asyncio.Semaphore(peers)
            return list(await asyncio.gather(*(fetch(address, gate) for address in order)))

        brought: list[Any] = [None] * len(tickets)
        try:
            for at in holders.get(worker.address, ()):
                brought[at] = shelf_of(worker).get(self._token, tickets[at].key, number)
            found = sync(worker.loop, fetch_all) if order else []
        except (OSError, KeyError, TimeoutError) as error:
            raise WorkLostError(f"a piece for shard {number} was lost with its worker ({error!r})") from error
        for address, pieces in zip(order, found, strict=True):
            for at, piece in zip(holders[address], pieces, strict=True):
                brought[at] = piece
        return brought


def clear_shelf(token: str, dask_worker: Worker) -> None:
    """Let a worker go of all pieces of a post."""
    shelf_of(dask_worker).clear(token)
