"""Ranks on the workers of a Dask cluster: tasks that run at the same time, and send messages.

Messages use the connections between workers, so they use the ports and the encryption of the
cluster.  A connection is opened when it is first needed.  A rank that waits for another rank
regularly asks that rank's worker whether the rank is still there.  So it waits for a busy worker,
but not for one that has died or cannot be reached.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, get_ident
from typing import Any, NamedTuple, TypeVar

from distributed import Status, get_worker, secede
from distributed.metrics import context_meter

from schmp_estimators.core.cluster.wire import pack, unpack
from schmp_estimators.core.dashboard.fits import SPANS
from schmp_estimators.core.engine.communicator import Communicator
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.threads import share
from schmp_estimators.core.typing import Arguments, Function, Numbered, Unary

#: Seconds between two checks whether the client still waits for the result.
LOOK = 1.0
#: Seconds without a message after which the worker of the other rank is asked, and seconds that it
#: has to answer: a worker that has just started may import and compile for that long, and answers
#: nothing meanwhile.
SILENCE, ANSWER = 5.0, 25.0
#: Seconds for which messages are kept for a rank that does not begin.
KEPT = 60.0

#: States of tasks that have ended, in Dask's words.
_ENDED = ("memory", "error", "cancelled", "released", "forgotten")
#: Largest number of time spans in a message about the work of a rank, and of such messages in a
#: second.
SPANS_OF_A_MESSAGE, MESSAGES_A_SECOND = 60, 8

_SEND, _ASK = "schmp-send", "schmp-ask"
#: The last message of a group on a connection, which may then be used for something else; and the
#: answer to a sender that has asked for room, or whose message has arrived.
_END, _GO = {"end": True}, {"go": True}

T = TypeVar("T")


class _Inbox:
    """Messages to a rank that it has not taken."""

    def __init__(self) -> None:
        #: Those of each other rank; None at the end if the connection has closed.
        self.of_rank: dict[int, SimpleQueue[Any]] = {}
        #: Bytes of those messages for which senders have asked for room.
        self.n_bytes = 0
        #: The rank from which the next message is awaited.
        self.awaited = -1
        #: Whether somebody takes them; otherwise they are kept only for a while.
        self.is_read = False

    def box(self, rank: int) -> SimpleQueue[Any]:
        return self.of_rank.setdefault(rank, SimpleQueue())

    def admits(self, rank: int, n_bytes: int, most: int) -> bool:
        """Return whether there is room, or the rank waits for this message, or has no other.

        If so, the message is kept.
        """
        with _lock:
            found = rank == self.awaited or not self.n_bytes or self.n_bytes + n_bytes <= most
            self.n_bytes += n_bytes if found else 0
            return found


#: By address and token of a group.
_inboxes: dict[tuple[str, str], _Inbox] = {}
_lock = Lock()


class RankLostError(RuntimeError):
    """Raised by a rank that has lost another one, or that the client no longer waits for."""


class Ranks(NamedTuple):
    """The ranks of a group, and the number of the rank that gets this."""

    #: Addresses of the workers.
    addresses: tuple[str, ...]
    #: Keys of the tasks.
    keys: Arguments
    rank: int
    #: Identifies the group; it begins with the name of the run.
    token: str
    #: Bytes that may be under way to a rank, and from a rank.
    limit: int


class InPlace(NamedTuple):
    """An argument of a rank: what its worker holds in memory under a key of Dask.

    For Dask the task does not depend on that key.  Otherwise Dask would remember all tasks of a
    run, because each takes the result of the one before.  Whoever passes this must hold the future.
    """

    key: Any


class _Leaving(NamedTuple):
    """A message on its way to another rank."""

    to: int
    sent: Future[None]
    n_bytes: int


def _inbox(address: str, token: str) -> _Inbox:
    with _lock:
        return _inboxes.setdefault((address, token), _Inbox())


def _forget(address: str, token: str) -> None:
    """Forget messages that nobody takes."""
    with _lock:
        if (address, token) in _inboxes and not _inboxes[address, token].is_read:
            del _inboxes[address, token]


def prepare(dask_worker: Any) -> None:
    """Let a worker accept messages for its ranks; `Client.run` passes the worker."""
    address = dask_worker.address

    async def take(comm: Any, token: str, rank: int, limit: int) -> str:
        """Receive all messages that rank `rank` of a group sends to the rank on this worker."""
        inbox = _inbox(address, token)
        try:
            while (message := await comm.read()) != _END:
                if "form" not in message:  # it asks for room
                    while not inbox.admits(rank, message["n_bytes"], limit):
                        await asyncio.sleep(1e-3)
                    await comm.write(_GO)
                    message = {**await comm.read(), **message}
                    await comm.write(_GO)
                inbox.box(rank).put(message)
        except OSError:
            inbox.box(rank).put(None)
        # a rank that begins after that time has lost its group
        asyncio.get_running_loop().call_later(KEPT, _forget, address, token)
        return "dont_reply"

    async def ask(key: Any) -> str:
        """Return the state of a task of this worker."""
        task = dask_worker.state.tasks.get(key)
        return "unknown" if task is None else task.state

    dask_worker.handlers.setdefault(_SEND, take)
    dask_worker.handlers.setdefault(_ASK, ask)


class Group(Communicator):
    """A group of ranks on workers, seen from one of them; use it as a context manager.

    Parameters
    ----------
    ranks : Ranks

    Raises
    ------
    RankLostError
        By any method, if a rank is lost or cannot be reached, or if the client no longer waits for
        this one.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.rank, self.size = ranks.rank, len(ranks.addresses)
        self.token = ranks.token
        self._ranks = ranks
        self._worker = get_worker()
        self._loop = self._worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self.n_threads = self._worker.state.nthreads
        self._comms: Numbered = {}
        #: Messages on their way to other ranks.
        self._leaving: list[_Leaving] = []
        self._here = ranks.addresses[ranks.rank]
        self._inbox = _inbox(self._here, ranks.token)
        self._inbox.is_read = True
        self._spans: list[Arguments] = []
        self._threads: dict[int, int] = {}
        #: Threads of a rank may record spans at the same time.
        self._noting = Lock()
        #: The second in which messages about spans were sent last, and their number.
        self._told = 0, 0

    def each(self, function: Unary, jobs: Iterable[Any]) -> list[Any]:
        """Apply a function to every job, with this thread and idle threads of the worker."""
        return share(self._worker.executors["default"], self.n_threads, function, jobs)

    def send(self, to: int, value: Any) -> None:
        """Send a value to another rank; messages to one rank arrive in their order."""
        self.check_wanted()
        message, n_bytes = pack(value)
        before = [one.sent for one in self._still_leaving() if one.to == to]
        limit = self._ranks.limit // 2

        async def write() -> None:
            if before:
                await asyncio.wrap_future(before[-1])
            if to not in self._comms:
                comm = await self._worker.rpc.connect(self._ranks.addresses[to], timeout=ANSWER)
                self._comms[to] = comm
                group = {"token": self._ranks.token, "rank": self.rank, "limit": limit}
                await comm.write({"op": _SEND, **group, "reply": False})
            comm = self._comms[to]
            asks = n_bytes * self.size > limit
            if asks:
                await comm.write({"n_bytes": n_bytes})
                await comm.read()
            await comm.write(message)
            if asks:
                await comm.read()

        sent = asyncio.run_coroutine_threadsafe(write(), self._loop)
        self._leaving.append(_Leaving(to, sent, n_bytes))
        context_meter.digest_metric("sent to other ranks", n_bytes, "bytes")

    def make_room(self) -> None:
        """Wait until no more than half of the limit is on its way to other ranks."""
        self._wait_for_all_but(self._ranks.limit // 2)

    def _wait_for_all_but(self, most: int) -> None:
        """Wait until no more than so many bytes are on their way to other ranks."""

        def left() -> None:
            while sum(one.n_bytes for one in self._still_leaving()) > most:
                if not wait([one.sent for one in self._leaving], LOOK, FIRST_COMPLETED).done:
                    raise Empty

        self._watched(left, lambda: [one.to for one in self._still_leaving()])

    def receive(self, source: int) -> Any:
        """Wait for the next value of another rank."""
        box = self._inbox.box(source)
        self._inbox.awaited = source
        began = time.time()
        message = self._watched(lambda: box.get(timeout=LOOK), lambda: [source])
        if time.time() > began + 1e-3:
            self.note("wait", began, block=source)
        if message is None:
            raise RankLostError(f"rank {source} on {self._ranks.addresses[source]} has gone")
        with _lock:
            self._inbox.awaited = -1
            self._inbox.n_bytes -= message.get("n_bytes", 0)
        return unpack(message)

    def _watched(self, attempt: Callable[[], T], others: Callable[[], list[int]]) -> T:
        """Return what `attempt` returns once it does not raise Empty.

        Check meanwhile that other ranks are there.
        """
        heard = time.monotonic()
        known = dict[int, bool]()
        while True:
            try:
                return attempt()
            except Empty:
                self.check_wanted()
                self._still_leaving()  # another rank may wait for a message that could not be sent
                if time.monotonic() > heard + SILENCE:
                    for other in others():
                        known[other] = self._check_there(other, known.get(other, True))
                    heard = time.monotonic()

    def note(self, what: str, began: float, sweep: int = -1, block: int = -1) -> None:
        """Record what was done, for Dask's metrics of the task and for the dashboard."""
        now = time.time()
        context_meter.digest_metric(what, now - began, "seconds")
        with self._noting:
            thread = self._threads.setdefault(get_ident(), len(self._threads))
            self._spans.append((what, sweep, block, thread, began, now))
            if len(self._spans) == SPANS_OF_A_MESSAGE:
                self._tell_spans()

    def _tell_spans(self) -> None:
        """Send the recorded spans to the scheduler, which keeps them only for a while.

        Drop them if they are many.
        """
        spans = self._spans
        self._spans = []
        second = int(time.monotonic())
        count = self._told[1] + 1
        self._told = second, count if second == self._told[0] else 1
        if spans and self._told[1] <= MESSAGES_A_SECOND:
            run = self._ranks.token.partition("-")[0]
            self._worker.log_event(SPANS, {"run": run, "worker": self._here, "spans": spans})

    def _still_leaving(self) -> list[_Leaving]:
        """Return messages on their way.

        Raise RankLostError if one could not be sent, or a connection has closed.
        """
        for one in [one for one in self._leaving if one.sent.done()]:
            try:
                one.sent.result()
            except OSError as error:
                raise RankLostError(f"rank {one.to} cannot be reached") from error
            self._leaving.remove(one)
        for to, comm in list(self._comms.items()):
            if comm.closed():
                raise RankLostError(f"the connection to rank {to} has closed")
        return self._leaving

    def check_wanted(self) -> None:
        """Raise RankLostError if the client no longer waits for the task of this rank."""
        task = self._worker.state.tasks.get(self._ranks.keys[self.rank])
        is_closing = self._worker.status not in (
            Status.running,
            Status.paused,
            Status.closing_gracefully,
        )
        if task is None or task.state not in ("executing", "long-running") or is_closing:
            raise RankLostError("nobody waits for this rank any more")

    def _check_there(self, other: int, known: bool) -> bool:
        """Ask the worker of another rank for its task; return whether it knows the task."""
        address = self._ranks.addresses[other]
        key = self._ranks.keys[other]

        async def ask() -> Any:
            return await asyncio.wait_for(getattr(self._worker.rpc(address), _ASK)(key=key), ANSWER)

        try:
            state = asyncio.run_coroutine_threadsafe(ask(), self._loop).result(2 * ANSWER)
        except Exception as error:  # a worker that was restarted does not know this request
            raise RankLostError(f"rank {other} on {address} does not answer") from error
        if state in _ENDED or (state == "unknown" and not known):
            raise RankLostError(f"rank {other} on {address} has ended")
        return bool(state != "unknown")

    def __enter__(self) -> Group:
        """Secede from the threads of the worker.

        Ranks that wait for each other must not block other tasks.
        """
        secede()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Close the connections; after an error do so at once, so that other ranks notice."""

        async def end(other: int) -> None:
            comms = self._comms
            is_well = error is None
            if not is_well and other in comms:
                comms[other].abort()
            try:
                for sent in [one.sent for one in self._leaving if one.to == other]:
                    await asyncio.wrap_future(sent)
                if is_well:
                    await comms[other].write(_END)
            except OSError:
                is_well = False
            if other in comms:
                if not is_well:
                    comms[other].abort()
                self._worker.rpc.reuse(
                    self._ranks.addresses[other], comms[other]
                )  # closed ones are not used again

        def end_all() -> None:
            for other in {*self._comms, *(one.to for one in self._leaving)}:
                asyncio.ensure_future(end(other), loop=self._loop)  # noqa: RUF006

        self._tell_spans()
        with suppress(RankLostError):
            if error is None:
                self._wait_for_all_but(0)
        self._loop.call_soon_threadsafe(end_all)
        self._inbox.is_read = False
        _forget(self._here, self._ranks.token)


def as_rank(ranks: Ranks, function: Function, *args: Any) -> Any:
    """Call ``function(group, *args)`` as one rank of a group, and return its result.

    If a rank was lost, or the worker no longer has what an `InPlace` stands for, the result is a
    `WorkLostError`.  Raised, it would leave a traceback in the log of each worker.
    """
    try:
        data = get_worker().data
        given = [data[one.key] if isinstance(one, InPlace) else one for one in args]
        with Group(ranks) as group:
            return function(group, *given)
    except KeyError as error:
        if not any(isinstance(one, InPlace) and one.key == error.args[0] for one in args):
            raise
        return WorkLostError("the worker no longer has the result of its rank")
    except RankLostError as error:
        return WorkLostError(f"ranks lost each other: {error}")


def taken(take: Unary, result: Any) -> Any:
    """Return ``take(result)`` of a rank, or the result if it is an error."""
    return result if isinstance(result, WorkLostError) else take(result)
