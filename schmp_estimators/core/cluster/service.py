"""Ranks that wait for commands of the client.

It talks to rank 0 directly if it can, else through the scheduler.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, NamedTuple, NoReturn

from distributed import Client, get_worker
from distributed.protocol import to_serialize

from schmp_estimators.core.cluster.group import LOOK, Group, prepare
from schmp_estimators.core.engine.rounds import Answers, serve
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.watch import AFTER_ERROR, begin, look_until, outcomes
from schmp_estimators.core.typing import Named

_COMMAND = "schmp-command"
_desks: dict[tuple[str, str], SimpleQueue[Any]] = {}
_lock = Lock()


class _Request(NamedTuple):
    #: Commands are executed in the order of these numbers, but may arrive in another order.
    number: int
    command: Any
    #: Called with the answer, or with None if there will be none.
    answer: Callable[[Any], object]


def _desk(address: str, token: str) -> SimpleQueue[Any]:
    with _lock:
        return _desks.setdefault((address, token), SimpleQueue())


def listen(dask_worker: Any) -> None:
    """Let a worker accept messages for its ranks, and commands of clients."""
    prepare(dask_worker)
    address = dask_worker.address

    async def take(token: str, number: int, command: Any) -> Any:
        return {"answers": to_serialize(await _taken(address, token, number, command))}

    dask_worker.handlers.setdefault(_COMMAND, take)


async def _taken(address: str, token: str, number: int, command: Any) -> Any:
    """Pass a command to the rank on this worker, and return its answer."""
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def answer(value: Any) -> None:
        if not answered.done():
            answered.set_result(value)

    _desk(address, token).put(
        _Request(number, command, lambda value: loop.call_soon_threadsafe(answer, value))
    )
    return await answered


async def relay(token: str, number: int, command: Any, dask_worker: Any = None) -> Any:
    """Pass a command from the scheduler to the rank on this worker; return its answer."""
    return {"answers": await _taken(dask_worker.address, token, number, command)}


def as_server(group: Group, groups: Any, *held: Any) -> None:
    """Let a rank execute commands of the client until it is told to end."""
    address = get_worker().address
    token = group.token
    waiting = dict[int, _Request]()
    current = list[_Request]()

    def receive() -> Any:
        number = current.pop().number + 1 if current else 0
        while number not in waiting:
            try:
                request = _desk(address, token).get(timeout=LOOK)
                waiting[request.number] = request
            except Empty:
                group.check_wanted()
        current.append(waiting.pop(number))
        return current[0].command

    def answer(answers: Answers | None) -> None:
        current[0].answer(answers)

    try:
        serve(group, receive, answer, groups, *held)
    finally:
        with _lock:  # before the client learns that the rank has ended
            _desks.pop((address, token), None)
        for request in (
            *current,
            *waiting.values(),
        ):  # this has no effect on a request that has been answered
            request.answer(None)


class GroupService:
    """Ranks on workers that execute commands, as the client sees them.

    Parameters
    ----------
    client : distributed.Client
    addresses : sequence of str
        Addresses of the ranks' workers.
    token : str
        Identifies the group.
    ranks, held : sequence of Future
        The tasks of the ranks, and the partitions that they work on.
    """

    def __init__(
        self,
        client: Client,
        addresses: Sequence[str],
        token: str,
        ranks: Sequence[Any],
        held: Sequence[Any],
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._token = token
        self._ranks = list(ranks)
        self._held = list(held)
        self._number = 0
        #: Whether the client can reach the worker of rank 0 directly; None until it has tried.
        self._direct: bool | None = None

    async def _reaches(self) -> bool:
        """Return whether the client can reach the worker of rank 0 directly, within 3 seconds."""
        pool = self._client.rpc
        address = self._addresses[0]
        try:
            comm = await asyncio.wait_for(pool.connect(address), 3.0)
        except Exception:  # of any kind: the scheduler relays messages then, or fails visibly
            return False
        pool.reuse(address, comm)
        return True

    def ask(self, command: Any) -> Callable[[], Answers]:
        """Send a command; return a function that waits for the answers.

        It raises a rank's error or WorkLostError.
        """
        return partial(self._wait_for, self._send(command))

    def _send(self, command: Any) -> concurrent.futures.Future[Any]:
        number = self._number
        self._number += 1

        async def send() -> Any:
            if self._direct is None:
                self._direct = await self._reaches()
            if self._direct:
                call = getattr(self._client.rpc(self._addresses[0]), _COMMAND)
                return await call(token=self._token, number=number, command=to_serialize(command))
            options: Named = {"workers": [self._addresses[0]], "asynchronous": True}
            found = await self._client.run(relay, self._token, number, command, **options)
            return found[self._addresses[0]]

        return begin(self._client, send)

    def _wait_for(self, sent: concurrent.futures.Future[Any]) -> Answers:
        """Wait for the answers to a command that was sent, and return them."""
        try:
            answers: Answers | None = self._result(sent)["answers"]
        except (OSError, concurrent.futures.CancelledError, WorkLostError) as error:
            self._raise(error)
        if answers is None:
            self._raise(WorkLostError("ranks have ended"))
        return answers

    def _result(self, sent: concurrent.futures.Future[Any]) -> Any:
        """Wait for the reply to a command while the ranks live, and return it."""
        places = set(self._addresses)
        look_until(self._client, sent, self._ranks, places, are_ranks=True, are_needed=True)
        return sent.result()

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise the error of a rank, if there is one, and else WorkLostError."""
        lost = (
            error
            if isinstance(error, WorkLostError)
            else WorkLostError(f"the connection to worker {self._addresses[0]} was lost")
        )
        deadline = time.monotonic() + AFTER_ERROR
        while all(future.status == "pending" for future in self._ranks):
            if time.monotonic() > deadline:
                raise lost from None
            time.sleep(0.01)
        found = outcomes(self._client, self._ranks, set(self._addresses))
        failed = [
            one
            for one in found
            if isinstance(one, Exception) and not isinstance(one, WorkLostError)
        ]
        raise failed[0] if failed else lost from None

    def close(self) -> None:
        """Let the ranks end, and release all that they work on."""
        with suppress(Exception):  # ranks also end when nobody waits for them
            if all(future.status == "pending" for future in self._ranks):
                self._result(self._send(None))
        for future in (*self._ranks, *self._held):
            future.release()
