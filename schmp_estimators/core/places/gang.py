"""Members of a team on the workers of a Dask cluster: tasks that run at the same time, and talk to each other.

They talk by the connections of their workers, so with the cluster's own ports and encryption.  A task that runs
although its partners do not, because Dask makes a lost result again, waits for a while and gives up; who asked for it
must then do without a team.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from dask.sizeof import sizeof
from distributed import get_worker
from distributed.protocol import to_serialize

from schmp_estimators.core.engines.team import JointJob, Nodes, add_up
from schmp_estimators.core.places.blas import one_blas_thread
from schmp_estimators.core.places.borrowing import borrowing
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.values import align

logger = logging.getLogger(__name__)

#: Seconds until all members must have begun; and until one that has begun must have answered.
MEETING, ANSWER = 10.0, 120.0
#: Seconds between two looks whether anybody wants the answer still.
LOOK = 1.0

_OPERATION = "schmp-say"
#: What a member says last, after which its connection may be used for something else.
_END = {"end": True}
_boxes: dict[tuple[str, str, int], SimpleQueue[Any]] = {}
_lock = threading.Lock()


class NoTeamError(RuntimeError):
    """Raised where the members of a team do not find together, or lose each other."""


def _box(address: str, token: str, rank: int) -> SimpleQueue[Any]:
    with _lock:
        return _boxes.setdefault((address, token, rank), SimpleQueue())


async def _listen(comm: Any, token: str, rank: int, address: str) -> str:
    """Take what member `rank` of a team says to the one on this worker, until it ends."""
    box = _box(address, token, rank)
    try:
        while (message := await comm.read()) != _END:
            box.put(message)
    except OSError:
        box.put(None)
    finally:
        if box.empty():
            _forget(address, token, rank)
        else:  # a member that begins later than that has no team anyway, and one that never does takes nothing
            asyncio.get_running_loop().call_later(MEETING, _forget, address, token, rank)
    return "dont_reply"


def _forget(address: str, token: str, rank: int) -> None:
    with _lock:
        _boxes.pop((address, token, rank), None)


def prepare() -> None:
    """Let the worker of this task listen to the members of teams."""
    dask_worker = get_worker()

    async def listen(comm: Any, token: str, rank: int) -> str:
        return await _listen(comm, token, rank, dask_worker.address)

    dask_worker.handlers.setdefault(_OPERATION, listen)


class Seat(NamedTuple):
    """Who is there, and which of them is told so."""

    #: Workers of the members.
    addresses: Sequence[str]
    rank: int
    #: What tells this team from others.
    token: str
    #: Partitions of this member.
    numbers: Sequence[int]
    #: Number of all partitions.
    n_partitions: int


class Gang:
    """The team as one of its members sees it.

    Parameters
    ----------
    seat : Seat
    patience : float
        Seconds in which others must have answered.
    """

    #: Applies a function to every job, with this thread and those of the worker that have nothing to do.
    each = staticmethod(borrowing)

    def __init__(self, seat: Seat, patience: float = ANSWER) -> None:
        self.rank, self._patience = seat.rank, patience
        self._numbers, self._count = seat.numbers, seat.n_partitions
        self._comms: list[Any] = []
        self._addresses, self._token = seat.addresses, seat.token
        self._others = [other for other in range(len(seat.addresses)) if other != seat.rank]
        self._worker = get_worker()
        self._loop = self._worker.loop.asyncio_loop  # type: ignore[attr-defined]
        self._key = self._worker.get_current_task()
        self._keys = [(seat.addresses[seat.rank], seat.token, other) for other in self._others]
        self._inbox = [_box(*key) for key in self._keys]
        #: What is on its way to others, by their ranks.
        self._leaving: dict[int, Any] = {}

    def _call(self) -> None:
        """Call the other members, and wait until they have begun too."""
        for other in self._others:
            self._comms.append(self._wait(self._worker.rpc.connect(self._addresses[other], timeout=MEETING)))
        self._send({"op": _OPERATION, "token": self._token, "rank": self.rank, "reply": False})
        self._say(None)
        for box in self._inbox:
            self._take(box, MEETING)

    def _wait(self, coroutine: Any) -> Any:
        return self._wait_for(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def _wait_for(self, pending: Any) -> Any:
        try:
            return pending.result(ANSWER)
        except (OSError, TimeoutError) as error:
            raise NoTeamError("a member of the team cannot be reached") from error

    def _send(self, message: dict[str, Any], to: Sequence[Any] | None = None) -> None:
        async def write() -> None:
            await asyncio.gather(*(comm.write(message) for comm in (self._comms if to is None else to)))

        if self._comms:
            self._wait(write())

    def _say(self, value: Any, to: Sequence[Any] | None = None) -> None:
        while self._leaving:  # messages must not get between each other
            self._wait_for(self._leaving.popitem()[1])
        self._send({"said": to_serialize(value)}, to)
        self._count_said(len(self._comms if to is None else to) * sizeof(value))

    def _count_said(self, n_bytes: int) -> None:
        self._worker.schmp_said = n_bytes + getattr(self._worker, "schmp_said", 0)  # type: ignore[attr-defined]

    def sum(self, parts: Sequence[Any]) -> Any:
        """Return the sum over all partitions."""
        nodes = self._nodes(parts)
        self._say(nodes)
        return self._total(nodes, self._hear())

    def _nodes(self, parts: Sequence[Any]) -> Nodes:
        return add_up({(0, number): part for number, part in zip(self._numbers, parts, strict=True)}, self._count)

    def _total(self, nodes: Nodes, others: Sequence[Nodes]) -> Any:
        for heard in others:
            nodes |= heard
        [total] = add_up(nodes, self._count).values()
        return total

    def tell(self, value: Any) -> None:
        """Say something to all others."""
        self._check_wanted()
        self._say(value)

    def listen(self) -> Any:
        """Return what the first member tells, however long that takes."""
        return self._take(self._inbox[0], float("inf"))

    def sum_to_first(self, parts: Sequence[Any]) -> Any:
        """Return the sum over all partitions to the first member, and None to the others."""
        nodes = self._nodes(parts)
        if self.rank:
            self._say(nodes, self._comms[:1])
            return None
        return self._total(nodes, self._hear())

    def bring_to_first(self, parts: Sequence[Any]) -> list[Any] | None:
        """Return what is said of each partition, in order, to the first member, and None to the others."""
        said = dict(zip(self._numbers, parts, strict=True))
        if self.rank:
            self._say(said, self._comms[:1])
            return None
        for heard in self._hear():
            said |= heard
        return [said[number] for number in range(self._count)]

    def merge_to_first(self, nodes: Nodes, merge: Callable[[Any, Any], Any]) -> Nodes | None:
        """Return nodes of the tree over all partitions, merged on their way to the first member; None to the others."""
        step = 1
        while step < len(self._addresses):
            if self.rank & step:
                self._say(nodes, [self._comm_to(self.rank - step)])
                return None
            if self.rank + step < len(self._addresses):
                nodes = add_up(nodes | self.hear(self.rank + step), self._count, merge, least=2)
            step *= 2
        return nodes

    def send(self, to: int, value: Any) -> None:
        """Say something to another member, without waiting until it is gone: nobody may change it any more."""
        self._check_wanted()
        comm, before = self._comm_to(to), self._leaving.pop(to, None)

        async def write() -> None:
            if before is not None:  # messages must not get between each other
                await asyncio.wrap_future(before)
            await comm.write({"said": to_serialize(value)})

        self._leaving[to] = asyncio.run_coroutine_threadsafe(write(), self._loop)
        self._count_said(sizeof(value))

    def hear(self, other: int) -> Any:
        """Return what another member says next."""
        return self._take(self._inbox[self._others.index(other)], self._patience)

    def _comm_to(self, other: int) -> Any:
        return self._comms[self._others.index(other)]

    def swap(self, said: list[Any]) -> list[Any]:
        """Return what every member says to this one, in their order, given what this one says to each."""
        self._check_wanted()
        heard = list[Any]([None] * len(said))
        heard[self.rank] = said[self.rank]
        for at in sorted(range(len(self._others)), key=lambda at: self._others[at] < self.rank):  # the neighbour first
            self._say(said[self._others[at]], self._comms[at : at + 1])
            said[self._others[at]] = None
        for other, found in zip(self._others, self._hear(), strict=True):
            heard[other] = found
        return heard

    def _hear(self) -> list[Any]:
        """Return what the other members say next."""
        return [self._take(box, self._patience) for box in self._inbox]

    def _take(self, box: SimpleQueue[Any], patience: float) -> Any:
        deadline = time.monotonic() + patience
        while True:
            try:
                message = box.get(timeout=min(LOOK, patience))
                break
            except Empty:
                self._check_wanted()
                if time.monotonic() > deadline:
                    raise NoTeamError("a member of the team does not answer") from None
        if message is None:
            raise NoTeamError("a member of the team has gone")
        return message["said"]

    def _check_wanted(self) -> None:
        """Raise NoTeamError if the client has turned away from the task of this member."""
        task = self._worker.state.tasks.get(self._key)
        if task is None or task.state != "executing":
            raise NoTeamError("nobody waits for the team any more")

    def __enter__(self) -> Gang:
        """Call the other members."""
        with ExitStack() as failed:
            failed.push(self.__exit__)
            self._call()
            failed.pop_all()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Say no more; who still listens notices.  What has been said may still be on its way, and arrives."""

        async def end(other: int, comm: Any) -> None:
            try:
                if error is not None:
                    comm.abort()
                    return
                if other in self._leaving:
                    await asyncio.wrap_future(self._leaving[other])
                await comm.write(_END)
            except OSError:
                comm.abort()
            finally:  # a closed one is not used again
                self._worker.rpc.reuse(self._addresses[other], comm)

        for other, comm in zip(self._others, self._comms, strict=False):
            asyncio.run_coroutine_threadsafe(end(other, comm), self._loop)
        with _lock:
            for key in self._keys:
                _boxes.pop(key, None)


def take_part(seat: Seat, job: JointJob, unwrap: Callable[[Any], Any], *held: Any) -> Any:
    """Solve a problem as a member of a team; the first member returns the answer, or None if there was no team."""
    try:
        with Gang(seat) as gang, one_blas_thread():
            job = align(job)
            answer = job.solve(gang.each(job.piece, [align(unwrap(one)) for one in held]), gang)
    except NoTeamError as error:
        logger.debug("no team: %s", error)
        return None
    return answer if seat.rank == 0 else None


def go_together(seat: Seat, function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(team, *args)`` of a member of a team, who waits for others as long as these are there.

    Raises
    ------
    WorkLostError
        If there is no team, or no more.
    """
    try:
        with Gang(seat, patience=inf) as gang, one_blas_thread():
            return function(gang, *args)
    except NoTeamError as error:
        raise WorkLostError(f"what shards do together was lost: {error}") from error
