"""The post of a cluster: workers keep pieces for each other, and fetch them past the scheduler.

A task that has pieces for all shards keeps them in the memory of its worker and returns a ticket; who needs one asks
the worker that has it, by the cluster's own connections.  So a sweep takes a few tasks a shard, not one for each pair,
and what Dask knows of it does not grow with the number of pairs.  The price: Dask cannot make a single piece again.  If
one is gone, the run goes on from its last cut.

The first shard of a worker that asks brings pieces for its neighbours there, too, up to some bytes: a question to
another worker costs as much for one shard's small pieces as for those of many.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import dask
from dask.sizeof import sizeof
from distributed import Worker, get_worker
from distributed.protocol import to_serialize
from distributed.utils import sync

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key

#: Peers of which a shard fetches pieces at the same time, and bytes that may be on their way to it.
PEERS, BYTES_ON_THEIR_WAY = 8, 1 << 28
#: Bytes of pieces up to which they are fetched for several shards of a worker together.
BYTES_TOGETHER = 1 << 24

_OPERATION = "schmp-piece"
_NEW_SHELF = threading.Lock()

T = TypeVar("T")


class Ticket(NamedTuple):
    """Where pieces are kept."""

    address: str
    #: The key of the task that has made them, or would have, if they had not been cut ahead.
    key: Key
    #: Bytes of all of them, of many by a sample.
    nbytes: int


#: The token of a post, whether pieces are for a stage of a sweep, and what the task is called that sends them.
_Kind = tuple[str, bool, str]
#: Pieces that are fetched together, by the shards for which they are; each takes its own out.
_Batch = Future[dict[int, list[Any]]]


class Shelf:
    """The pieces that a worker keeps, by the token of their post and the key of the task that has made them."""

    def __init__(self) -> None:
        self._kept: dict[_Kind, dict[Key, Sequence[Any]]] = {}
        self._exchanges: dict[_Kind, dict[Key, _Exchange]] = {}
        self._lock = threading.Lock()
        #: Pieces that others have been given, and their bytes.
        self.given = [0, 0]

    def put(self, token: str, key: Key, pieces: Sequence[Any]) -> None:
        """Keep pieces; let go of those of the same kind of earlier sweeps, which all have got who will ever need them.

        What one task keeps for the sweep after its own leaves alone what others still need of theirs.  And what is
        asked for after a sweep, a harvest, is asked for while later sweeps run already: it lasts until the next such
        question.
        """
        with self._lock:
            _present(self._kept, _kind(token, key), key)[key] = pieces

    def get(self, token: str, keys: Sequence[Key], numbers: Iterable[int]) -> list[Any]:
        """Return the pieces for shards, of all keys for each; raises KeyError if one is gone: who asks may be late."""
        of_tasks = [self._kept[_kind(token, key)][key] for key in keys]
        return [pieces[number] for number in numbers for pieces in of_tasks]

    def claim(
        self, token: str, tickets: Sequence[Ticket], number: int, here: Sequence[int], most: int
    ) -> tuple[_Batch, list[int]]:
        """Return the batch that has the pieces for shard `number`, and for which shards the caller is to fetch it.

        All that was kept for an earlier sweep is over then.

        Parameters
        ----------
        token : str
        tickets : sequence of Ticket
        number : int
        here : sequence of int
            Shards that are at this worker, and will ask for the same.
        most : int
            For how many shards to fetch together.
        """
        first = tickets[0].key
        with self._lock:
            for kind in self._kept:
                if kind[:2] == (token, _is_of_sweep(first)):
                    _present(self._kept, kind, first)
            exchanges = _present(self._exchanges, (token, _is_of_sweep(first), ""), first)
            exchange = exchanges.setdefault(first, _Exchange({}, dict.fromkeys(here)))
            if coming := exchange.coming.pop(number, None):
                return coming, []
            exchange.unasked.pop(number, None)
            ahead, batch = list(exchange.unasked)[: most - 1], _Batch()
            for one in ahead:
                del exchange.unasked[one]
                exchange.coming[one] = batch
            return batch, [number, *ahead]

    def clear(self, token: str) -> None:
        """Let go of all pieces of a post."""
        with self._lock:
            for of_kind in (self._kept, self._exchanges):
                for kind in [kind for kind in of_kind if kind[0] == token]:
                    del of_kind[kind]

    def __len__(self) -> int:
        """Return how many tasks have pieces here, and for how many shards pieces wait that were brought for them."""
        coming = sum(len(one.coming) for exchanges in self._exchanges.values() for one in exchanges.values())
        return coming + sum(map(len, self._kept.values()))


class _Exchange(NamedTuple):
    """What a worker has fetched of an exchange before its shards have asked."""

    coming: dict[int, _Batch]
    #: Shards of this worker for which nothing has been fetched yet, in order.
    unasked: dict[int, None]


def _present(kept: dict[_Kind, dict[Key, T]], kind: _Kind, key: Key) -> dict[Key, T]:
    """Return what is kept beside `key`, without what is of an earlier time."""
    of_kind = kept.setdefault(kind, {})
    if of_kind and _time(next(iter(of_kind))) < _time(key):  # seldom: to look at all of them takes time
        for other in [one for one in of_kind if _time(one) < _time(key)]:
            del of_kind[other]
    return of_kind


def _kind(token: str, key: Key) -> _Kind:
    return token, _is_of_sweep(key), key[0]


def _time(key: Key) -> tuple[int, int]:
    """Return when pieces are of use: how often the run has begun then, and the number of the sweep."""
    return key[1], key[2]


def _is_of_sweep(key: Key) -> bool:
    """Return whether pieces are for a stage of a sweep, not for what follows one."""
    return bool(key[3] > 0)


def shelf_of(worker: Worker) -> Shelf:
    """Return the shelf of a worker, which is there, and known to others, from when it is first asked for."""
    with _NEW_SHELF:
        shelf: Shelf | None = getattr(worker, "schmp_shelf", None)
        return _set_up(worker) if shelf is None else shelf


def _set_up(worker: Worker) -> Shelf:
    shelf = worker.schmp_shelf = Shelf()  # type: ignore[attr-defined]

    async def give(token: str, keys: Sequence[Sequence[Any]], numbers: Sequence[int]) -> dict[str, Any]:
        try:
            pieces = shelf.get(token, [tuple(key) for key in keys], numbers)
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
        """Return the pieces for shard `number`, of tickets in the order of shards.

        Raises
        ------
        WorkLostError
            If a worker has died, or has no such piece any more.
        """
        worker = get_worker()
        shelf = shelf_of(worker)
        here = [at for at, ticket in enumerate(tickets) if ticket.address == worker.address]
        of_shard = max(1, sum(ticket.nbytes for ticket in tickets) // len(tickets))
        batch, numbers = shelf.claim(self._token, tickets, number, here, max(1, BYTES_TOGETHER // of_shard))
        if numbers:
            try:
                batch.set_result(self._fetch(worker, tickets, numbers, of_shard * len(numbers)))
            except BaseException as error:  # whatever it is, all who wait for it shall know
                batch.set_exception(error)
        try:
            return batch.result().pop(number)
        except (OSError, KeyError, TimeoutError) as error:
            raise WorkLostError(f"a piece for shard {number} was lost with its worker ({error!r})") from error

    def _fetch(
        self, worker: Worker, tickets: Sequence[Ticket], numbers: list[int], nbytes: int
    ) -> dict[int, list[Any]]:
        """Return the pieces for some shards; begin with the neighbour's, so that not all ask the same worker."""
        holders: dict[str, list[int]] = {}
        for at, ticket in enumerate(tickets):
            holders.setdefault(ticket.address, []).append(at)
        keys = {address: [tickets[at].key for at in ats] for address, ats in holders.items()}
        others = sorted(holders.keys() - {worker.address})
        first = sum(address < worker.address for address in others)
        order = [*others[first:], *others[:first]]
        peers = max(1, min(PEERS, BYTES_ON_THEIR_WAY // max(1, nbytes // len(holders))))
        timeout = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp", "30s"))

        async def fetch(address: str, gate: asyncio.Semaphore) -> list[Any]:
            async with gate:
                ask = getattr(worker.rpc(address), _OPERATION)
                asked = ask(token=self._token, keys=keys[address], numbers=numbers)
                answer = await asyncio.wait_for(asked, timeout)
                if "gone" in answer:
                    raise KeyError(answer["gone"])
                return list(answer["pieces"])

        async def fetch_all() -> list[list[Any]]:
            gate = asyncio.Semaphore(peers)
            return list(await asyncio.gather(*(fetch(address, gate) for address in order)))

        found = dict(zip(order, sync(worker.loop, fetch_all), strict=True)) if order else {}
        if own := keys.get(worker.address):
            found[worker.address] = shelf_of(worker).get(self._token, own, numbers)
        brought: dict[int, list[Any]] = {number: [None] * len(tickets) for number in numbers}
        for address, ats in holders.items():
            pieces = iter(found[address])
            for of_shard in brought.values():
                for at in ats:
                    of_shard[at] = next(pieces)
        return brought


def clear_shelf(token: str, dask_worker: Worker) -> None:
    """Let a worker go of all pieces of a post."""
    shelf_of(dask_worker).clear(token)
