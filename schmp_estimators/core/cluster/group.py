"""Ranks on the workers of a Dask cluster: tasks that run at the same time, and send each other messages.

Messages go by the connections of the workers, so with the cluster's own ports and encryption.  A connection is opened
when it is first needed.  A rank that waits for another one asks its worker, now and then, whether that rank is still
there: so a worker that is busy is waited for, and one that has gone, or cannot be reached, is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, get_ident
from typing import Any, NamedTuple

from dask.sizeof import sizeof
from distributed import Status, get_worker, secede
from distributed.metrics import context_meter
from distributed.protocol import to_serialize

from schmp_estimators.core.cluster.wire import narrow, widen
from schmp_estimators.core.dashboard.fits import SPANS
from schmp_estimators.core.engine.communicator import Communicator
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.threads import share

#: Seconds between two looks whether anybody wants the result still.
LOOK = 1.0
#: Seconds without a message after which the worker of the other rank is asked, and those it has to answer.
SILENCE, ANSWER = 5.0, 10.0
#: Seconds for which messages to a rank are kept that does not begin.
KEPT = 60.0

#: What Dask calls tasks that are over.
_ENDED = ("memory", "error", "cancelled", "released", "forgotten")
#: Spans of time that go into one message about what a rank did, and messages of a rank in a second, at most.
SPANS_OF_A_MESSAGE, MESSAGES_A_SECOND = 60, 8
#: Seconds of waiting below which nobody is told of it.
SHORT_WAIT = 1e-3

_SEND, _ASK = "schmp-send", "schmp-ask"
#: The last message of a connection, which may then be used for something else.
_END = {"end": True}

_boxes: dict[tuple[str, str, int], SimpleQueue[Any]] = {}
_lock = Lock()


class RankLostError(RuntimeError):
    """Raised where a rank has lost another one, or nobody waits for it any more."""


class Ranks(NamedTuple):
    """The ranks of a group of tasks, and which of them is told so."""

    #: Of the workers.
    addresses: tuple[str, ...]
    #: Of the tasks.
    keys: tuple[Any, ...]
    rank: int
    #: What tells this group from others; it begins with the name of the run.
    token: str


class InPlace(NamedTuple):
    """An argument of a rank: what is in the memory of its worker under a key of Dask.

    To Dask the task does not depend on it: else it would remember all tasks of a run that each take what the one before
    has left.  Whoever asks must hold the future.
    """

    key: Any


def _box(address: str, token: str, rank: int) -> SimpleQueue[Any]:
    with _lock:
        return _boxes.setdefault((address, token, rank), SimpleQueue())


def _forget(address: str, token: str, rank: int) -> None:
    with _lock:
        _boxes.pop((address, token, rank), None)


def prepare(dask_worker: Any) -> None:
    """Let a worker take messages for its ranks; `Client.run` gives it."""
    worker, address = dask_worker, dask_worker.address

    async def take(comm: Any, token: str, rank: int) -> str:
        """Take what rank `rank` of a group sends to the one on this worker, until it ends."""
        box = _box(address, token, rank)
        try:
            while (message := await comm.read()) != _END:
                box.put(message)
        except OSError:
            box.put(None)
        # whoever begins later than that has no group any more
        asyncio.get_running_loop().call_later(KEPT, _forget, address, token, rank)
        return "dont_reply"

    async def ask(key: Any) -> str:
        """Return the state of a task of this worker."""
        task = worker.state.tasks.get(key)
        return "unknown" if task is None else task.state

    worker.handlers.setdefault(_SEND, take)
    worker.handlers.setdefault(_ASK, ask)


class Group(Communicator):
    """A group of ranks, as one of them sees it; use it as a context manager.

    Parameters
    ----------
    ranks : Ranks

    Raises
    ------
    RankLostError
        In any method, if a rank has gone, cannot be reached, or nobody waits for this one any more.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.rank, self.size = ranks.rank, len(ranks.addresses)
        self.token, self._ranks, self._worker = ranks.token, ranks, get_worker()
        self._loop = self._worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self._comms: dict[int, Any] = {}
        #: What has come from other ranks.
        self._boxes: dict[int, SimpleQueue[Any]] = {}
        #: What is on its way to other ranks.
        self._leaving: dict[int, Any] = {}
        self._here = ranks.addresses[ranks.rank]
        self._spans: list[tuple[Any, ...]] = []
        self._threads: dict[int, int] = {}
        #: Threads of a rank take notes at the same time.
        self._noting = Lock()
        #: The second in which messages about spans were sent last, and how many.
        self._told = 0, 0

    def each(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
        """Apply a function to every job, with this thread and those of the worker that have nothing to do."""
        return share(self._worker.executors["default"], self._worker.state.nthreads, function, jobs)

    def send(self, to: int, value: Any) -> None:
        """Send a value to another rank; messages to one rank arrive in their order."""
        self.check_wanted()
        value, before = narrow(value), self._leaving.get(to)

        async def write() -> None:
            if before is not None:
                await asyncio.wrap_future(before)
            if to not in self._comms:
                comm = await self._worker.rpc.connect(self._ranks.addresses[to], timeout=ANSWER)
                self._comms[to] = comm
                await comm.write({"op": _SEND, "token": self._ranks.token, "rank": self.rank, "reply": False})
            await self._comms[to].write({"value": to_serialize(value)})

        self._leaving[to] = asyncio.run_coroutine_threadsafe(write(), self._loop)
        context_meter.digest_metric("sent to other ranks", sizeof(value), "bytes")

    def receive(self, source: int) -> Any:
        """Wait for the next value of another rank."""
        if source not in self._boxes:
            self._boxes[source] = _box(self._here, self._ranks.token, source)
        box, heard, known = self._boxes[source], time.monotonic(), True
        began = time.time()
        while True:
            try:
                message = box.get(timeout=LOOK)
                break
            except Empty:
                self.check_wanted()
                self._check_sent()  # rank `source` may wait for what could not leave
                if time.monotonic() > heard + SILENCE:
                    known = self._check_there(source, known)
                    heard = time.monotonic()
        if time.time() > began + SHORT_WAIT:
            self.note("wait", began)
        if message is None:
            raise RankLostError(f"rank {source} on {self._ranks.addresses[source]} has gone")
        return widen(message["value"])

    def note(self, what: str, began: float, sweep: int = -1, block: int = -1) -> None:
        """Take note of what was done: for Dask's metrics of the task, and for who looks at the dashboard."""
        now = time.time()
        context_meter.digest_metric(what, now - began, "seconds")
        with self._noting:
            thread = self._threads.setdefault(get_ident(), len(self._threads))
            self._spans.append((what, sweep, block, thread, began, now))
            if len(self._spans) == SPANS_OF_A_MESSAGE:
                self._tell_spans()

    def _tell_spans(self) -> None:
        """Send what the rank did to the scheduler, which forgets it soon; what is too much is not sent."""
        spans, self._spans = self._spans, []
        second, count = int(time.monotonic()), self._told[1] + 1
        self._told = second, count if second == self._told[0] else 1
        if spans and self._told[1] <= MESSAGES_A_SECOND:
            run = self._ranks.token.partition("-")[0]
            self._worker.log_event(SPANS, {"run": run, "worker": self._here, "spans": spans})

    def flush(self) -> None:
        """Wait until everything that was sent has left."""
        while wait(list(self._leaving.values()), LOOK).not_done:
            self.check_wanted()
            self._check_sent()
        self._check_sent()
        self._leaving.clear()

    def _check_sent(self) -> None:
        """Raise RankLostError if something that was sent could not leave, or a connection has closed since."""
        for to, pending in self._leaving.items():
            try:
                if pending.done():
                    pending.result()
            except OSError as error:
                raise RankLostError(f"rank {to} cannot be reached: {error}") from error
        for to, comm in list(self._comms.items()):
            if comm.closed():
                raise RankLostError(f"the connection to rank {to} has closed")

    def check_wanted(self) -> None:
        """Raise RankLostError if the client has turned away from the task of this rank."""
        task = self._worker.state.tasks.get(self._ranks.keys[self.rank])
        is_closing = self._worker.status not in (Status.running, Status.paused, Status.closing_gracefully)
        if task is None or task.state not in ("executing", "long-running") or is_closing:
            raise RankLostError("nobody waits for this rank any more")

    def _check_there(self, other: int, known: bool) -> bool:
        """Ask the worker of another rank for its task; return whether it knows of it."""
        address, key = self._ranks.addresses[other], self._ranks.keys[other]

        async def ask() -> Any:
            return await asyncio.wait_for(getattr(self._worker.rpc(address), _ASK)(key=key), ANSWER)

        try:
            state = asyncio.run_coroutine_threadsafe(ask(), self._loop).result(2 * ANSWER)
        except Exception as error:  # a worker that was restarted does not even know the question
            raise RankLostError(f"rank {other} on {address} cannot be reached: {error}") from error
        if state in _ENDED or (state == "unknown" and not known):
            raise RankLostError(f"rank {other} on {address} has ended")
        return bool(state != "unknown")

    def __enter__(self) -> Group:
        """Give the thread back to the worker: ranks that wait for each other must not hold what others need."""
        secede()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Close the connections; after an error at once, so that other ranks notice."""

        async def end(other: int) -> None:
            comms, is_well = self._comms, error is None
            if not is_well and other in comms:
                comms[other].abort()
            try:
                if other in self._leaving:  # what was sent arrives, and a connection that is being made is there then
                    await asyncio.wrap_future(self._leaving[other])
                if is_well:
                    await comms[other].write(_END)
            except OSError:
                is_well = False
            if other in comms:
                if not is_well:
                    comms[other].abort()
                self._worker.rpc.reuse(self._ranks.addresses[other], comms[other])  # a closed one is not used again

        def end_all() -> None:
            for other in {*self._comms, *self._leaving}:
                asyncio.ensure_future(end(other), loop=self._loop)  # noqa: RUF006

        self._tell_spans()
        with suppress(RankLostError):
            if error is None:
                self.flush()
        self._loop.call_soon_threadsafe(end_all)
        for other in range(self.size):
            _forget(self._here, self._ranks.token, other)


def as_rank(ranks: Ranks, function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(group, *args)`` of a rank.

    Raises
    ------
    WorkLostError
        If a rank was lost, or what it needs is not on its worker any more.
    """
    try:
        data = get_worker().data
        given = [data[one.key] if isinstance(one, InPlace) else one for one in args]
        with Group(ranks) as group:
            return function(group, *given)
    except KeyError as error:
        if not any(isinstance(one, InPlace) and one.key == error.args[0] for one in args):
            raise
        raise WorkLostError("a rank is not where it was") from error
    except RankLostError as error:
        raise WorkLostError(f"ranks lost each other: {error}") from error
