"""From hand to hand: tasks that run at the same time give each other pieces, past the scheduler.

Where every shard has a thread of its own, one task a sweep can do all of an exchange, and wait in it for what the
others have for it: what the scheduler would do between its stages takes longer than small pieces need to travel.  The
price is that of the `post`, and that a task needs its partners: one that waits for long gives its thread back, so that
they find one, and ends when the client, who sees that a worker has gone, turns away from it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from distributed import Worker, get_worker, secede
from distributed.protocol import to_serialize

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key

#: Seconds that a task waits before it gives its thread back, and between two looks whether it is to go on waiting.
PATIENCE = LOOK = 1.0
#: How many places of the past a worker remembers, whose last pieces may still be on their way.
REMEMBERED = 64

_OPERATION = "schmp-hand"
_NEW_BASKET = threading.Lock()

#: A token, the key under which pieces are exchanged, and for which shard they are.
_For = tuple[str, Key, int]


class Basket:
    """What a worker has been given for its shards."""

    def __init__(self) -> None:
        self._given: dict[_For, dict[int, Any]] = {}
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        self._changed = threading.Condition()

    def put(self, token: str, key: Key, of: int, pieces: Mapping[int, Any]) -> None:
        """Keep what shard `of` has for some shards; let go of what nobody has taken who will not need it any more."""
        with self._changed:
            if token in self._over:
                return
            for other in [one for one in self._given if one[0] == token and _is_past(one[1], key)]:
                del self._given[other]
            for to, piece in pieces.items():
                self._given.setdefault((token, key, to), {})[of] = piece
            self._changed.notify_all()

    def take(self, token: str, key: Key, to: int, n: int, seconds: float) -> dict[int, Any] | None:
        """Return what `n` shards have given, by their numbers, if it is there in so many seconds."""
        found = token, key, to
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._given.get(found, ())) >= n, seconds):
                return None
            return self._given.pop(found)

    def clear(self, token: str) -> None:
        """Let go of all that belongs to a place that is no more, and of what may still come."""
        with self._changed:
            self._over.append(token)
            for one in [one for one in self._given if one[0] == token]:
                del self._given[one]

    def __len__(self) -> int:
        """Return for how many shards there is something."""
        return len(self._given)


def _is_past(key: Key, present: Key) -> bool:
    """Return whether nobody waits for a key any more: a shard can be one sweep ahead of another."""
    return bool(key[1] < present[1] or key[2] < present[2] - 1)


def basket_of(worker: Worker) -> Basket:
    """Return the basket of a worker, into which others can put pieces from when it is first asked for."""
    with _NEW_BASKET:
        basket: Basket | None = getattr(worker, "schmp_basket", None)
        return _set_up(worker) if basket is None else basket


def _set_up(worker: Worker) -> Basket:
    basket = worker.schmp_basket = Basket()  # type: ignore[attr-defined]

    async def take(token: str, key: Sequence[Any], of: int, pieces: Mapping[int, Any]) -> None:
        basket.put(token, tuple(key), of, pieces)

    worker.handlers[_OPERATION] = take
    return basket


class WorkerHands:
    """What the tasks of a run give each other, as cells see it; it travels with every task.

    Parameters
    ----------
    token : str
        What tells its pieces from those of other places.
    addresses : sequence of str
        The workers of the shards, each of which has set up its basket.
    """

    def __init__(self, token: str, addresses: Sequence[str]) -> None:
        self._token, self._addresses = token, tuple(addresses)

    def give(self, key: Key, number: int, pieces: Mapping[int, Any]) -> None:
        """Give shards what shard `number` has for them; returns when they have got it.

        Raises
        ------
        WorkLostError
            If one of them is gone, or if shard `number` is not where the others think.
        """
        worker = get_worker()
        if self._addresses[number] != worker.address:
            raise WorkLostError(f"shard {number} has moved, and its partners do not know where")
        of_workers: dict[str, dict[int, Any]] = {}
        for to, piece in pieces.items():
            of_workers.setdefault(self._addresses[to], {})[to] = piece
        basket_of(worker).put(self._token, key, number, of_workers.pop(worker.address, {}))

        async def give_all() -> None:
            said = {"token": self._token, "key": key, "of": number}
            asked = [
                getattr(worker.rpc(address), _OPERATION)(**said, pieces=to_serialize(some))
                for address, some in of_workers.items()
            ]
            await asyncio.gather(*asked)

        if of_workers:
            try:
                _await(worker, give_all())
            except OSError as error:
                raise WorkLostError(f"a partner of shard {number} was lost with its worker ({error!r})") from error

    def take(self, key: Key, number: int, n: int) -> dict[int, Any]:
        """Return what `n` shards have for shard `number`, by their numbers, in ascending order.

        Raises
        ------
        WorkLostError
            If nobody wants the result any more, as the client has noticed that a partner is gone.
        """
        worker = get_worker()
        basket, patient = basket_of(worker), time.monotonic() + PATIENCE
        while (found := basket.take(self._token, key, number, n, LOOK)) is None:
            _check_wanted(worker)
            if time.monotonic() >= patient:
                secede()
                patient = float("inf")
        return {of: found[of] for of in sorted(found)}


def _await(worker: Worker, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Wait for a coroutine on the loop of a worker, as long as somebody wants the result of the present task."""
    going_on = asyncio.run_coroutine_threadsafe(coroutine, worker.loop.asyncio_loop)  # type: ignore[attr-defined]
    try:
        while not wait([going_on], LOOK).done:
            _check_wanted(worker)
        going_on.result()
    finally:
        going_on.cancel()


def _check_wanted(worker: Worker) -> None:
    """Raise WorkLostError if the client has turned away from the present task."""
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state not in ("executing", "long-running"):
        raise WorkLostError("nobody wants the result any more")


def clear_basket(token: str, dask_worker: Worker) -> None:
    """Let a worker go of all that was given to the tasks of a place."""
    basket_of(dask_worker).clear(token)


def set_up_basket(dask_worker: Worker) -> None:
    """Let a worker take what others give it."""
    basket_of(dask_worker)
