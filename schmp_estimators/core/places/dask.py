"""The Dask place: tasks on the workers of a cluster, and ranks, which send each other messages.

A task prefers the worker of its shard, but Dask may run it elsewhere if that worker dies.  A rank
runs only on its worker.  Nothing large passes through the scheduler.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import getitem
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakSet

import dask
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.sizeof import sizeof
from dask.utils import parse_bytes
from distributed import Client, Future, futures_of, span

from schmp_estimators.core.cluster.group import InPlace, Ranks, as_rank, taken
from schmp_estimators.core.cluster.service import GroupService, as_server, listen
from schmp_estimators.core.dashboard.teller import Teller
from schmp_estimators.core.engine.rounds import Piece
from schmp_estimators.core.errors import (
    NoWorkersError,
    SchedulerLostError,
    WorkerLostError,
    WorkLostError,
)
from schmp_estimators.core.io.slices import read_back
from schmp_estimators.core.places.answers import (
    ask,
    check_alike,
    fingerprint,
    forget_answers,
    responsive_workers,
)
from schmp_estimators.core.places.cluster import (
    SILENT,
    Dealt,
    Futures,
    Worker,
    answer_timeout,
    live_workers,
    reach,
    scheduler_id,
)
from schmp_estimators.core.places.place import Load, Place
from schmp_estimators.core.places.watch import await_all, gather, outcomes, scatter
from schmp_estimators.core.typing import Arguments, Function, Named, Unary
from schmp_estimators.core.values import itself

logger = logging.getLogger(__name__)

#: Largest argument, in bytes, that is part of a task; a larger one is sent to the worker.
_INLINE = 1 << 20
#: States of futures whose results cannot be computed again.
_GONE = ("cancelled", "lost")


def enrol(dask_worker: Any) -> dict[str, str]:
    """Let a worker accept messages for its ranks, and return its `fingerprint`."""
    listen(dask_worker)
    return fingerprint()


def _enrolment() -> Function:
    """Return a function that is pickled by its code.

    It imports what this process has of the package, and enrols.

    Its worker answers others meanwhile.  It would not while it imports what a task needs: on a busy
    machine that takes longer than `answer_timeout`.
    """
    here = __name__
    modules = [here, *(name for name in sys.modules if name.startswith(__name__.split(".")[0]))]

    async def enrol(dask_worker: Any = None) -> dict[str, str]:
        import asyncio  # noqa: PLC0415
        import sys  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415

        for name in [one for one in modules if one not in sys.modules]:
            with suppress(
                ImportError
            ):  # a worker with another version is refused by what it returns
                await asyncio.to_thread(import_module, name)
        found: dict[str, str] = sys.modules[here].enrol(dask_worker)
        return found

    return enrol


class Call(NamedTuple):
    """A call of a function in a task."""

    function: Function
    #: Futures stand for their results.
    args: Sequence[Any]
    #: Annotations of the task that say where it may run.
    where: Named


#: Calls, the keys of those whose results are kept, and the bytes of their arguments.
_Job = tuple[dict[Any, Call], Sequence[Any], int]


def _bytes_of(args: Iterable[Any]) -> int:
    return sum(sizeof(arg) for arg in args if not isinstance(arg, Future))


class DaskPlace(Place):
    """A Dask cluster as a place; `client` stays the caller's.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    label : str, default="schmp"
        Name of the span that groups the tasks on the dashboard.
    most : int, optional
        Number of workers that get shards at most; by default all do.

    Raises
    ------
    NoWorkersError
        If the cluster has no workers that can work, and gets none in time.
    SchedulerLostError
        If its scheduler cannot be reached.
    MixedClusterError
        If the workers differ in software or CPU.
    """

    is_local = False

    def __init__(self, client: Client, label: str = "schmp", most: int | None = None) -> None:
        self._teller: Teller
        super().__init__(teller=Teller(client, label))
        self.client = client
        self.label = label
        #: Workers that no task may run on, as they are silent; and those that warnings have named.
        self._left_out: list[str] = []
        self._named = set[str]()
        #: All futures of this place that are still in use.
        self._let_in: WeakSet[Future[Any]] = WeakSet()
        self._run = uuid4().hex[:12]
        with span(label):
            self._annotations = dask.get_annotations()
        self._dealt = Dealt([], most)
        self._use(*responsive_workers(self.client, self._annotations, _enrolment()))
        #: What the user calls the fit, and the scheduler that it began with.
        self._fit = label
        self._scheduler = scheduler_id(client)

    def _use(self, workers: list[Worker], silent: list[Worker], told: str = "") -> None:
        """Use workers, and leave out silent ones.

        A warning names each of these, if what was told has not.
        """
        self._dealt.update(workers)
        self._left_out = [one.address for one in silent]
        self._named |= {one for one in self._left_out if f"{one} " in f"{told} "}
        if new := [one for one in self._left_out if one not in self._named]:
            self._named |= {*new}
            logger.warning(
                "%s: no answer from worker %s for %g s; the fit does without",
                self.label,
                " and ".join(new),
                answer_timeout(),
            )

    @property
    def addresses(self) -> list[str]:
        """Addresses of the workers that the fit uses."""
        return [worker.address for worker in self._dealt.workers]

    def ask(self, function: Function, *args: Any) -> Named:
        """Return what a function returns on each worker, by their addresses.

        Workers on which it fails are left out.
        """
        return ask(self.client, function, *args, workers=self.addresses)

    def _where(self, address: str | None = None, *, pinned: bool = False) -> Named:
        """Return the options of tasks that run near a worker, or anywhere.

        They run on no worker that is left out.
        """
        if address is None:
            chosen = {"workers": self.addresses, "allow_other_workers": False}
            return chosen if self._left_out else {}
        return {"workers": [address], "allow_other_workers": not (pinned or self._left_out)}

    @property
    def n_processes(self) -> int:
        """Number of workers that get shards."""
        return len(self._dealt.chosen)

    @property
    def n_threads(self) -> int:
        """Threads of these workers together."""
        return self._dealt.n_threads

    @property
    def memory_limit(self) -> int:
        """Memory limits of these workers together in bytes; 0 if any of them has none."""
        limits = [worker.memory_limit for worker in self._dealt.chosen]
        return sum(limits) if all(limits) else 0

    def groups(self, n_shards: int) -> list[list[int]]:
        """Return the shards of each worker that has some."""
        return list(self._dealt.members(n_shards).values())

    def bring(self, value: Any, p: int) -> Any:
        """Return an argument for a task near shard `p`.

        It is `value`, or if it is large a future of it, sent there.
        """
        if isinstance(value, Future) or sizeof(value) <= _INLINE:
            return value
        return scatter(self.client, f"sent-{uuid4().hex}", value, self._dealt.address(p))

    def load(self, word: str, loads: Iterable[Load]) -> Iterator[list[Future[Any]]]:
        """Make data of pieces, and return for each of them its future or futures.

        They are of the result, or of its elements.
        """
        sent: list[list[Any]] = []

        def jobs() -> Iterator[_Job]:
            for function, pieces, p, n_elements in loads:
                given = [piece() if callable(piece) else piece for piece in pieces]
                brought = [self.bring(piece, p) for piece in given]
                pairs = zip(brought, given, strict=True)
                sent.append([one for one, piece in pairs if one is not piece])
                run = f"{word}-{uuid4().hex}"
                where = self._where(self._dealt.address(p))
                calls: dict[Any, Call] = {(run, p): Call(function, brought, where)}
                parts = [(f"{run}-{at}", p) for at in range(n_elements)]
                for at, key in enumerate(parts):
                    calls[key] = Call(getitem, (TaskRef((run, p)), at), where)
                yield calls, parts or [(run, p)], _bytes_of(given)

        for made, pieces in zip(self._in_graphs(jobs()), sent, strict=False):
            if pieces:
                made[0].add_done_callback(lambda _, pieces=pieces: self.release(pieces))
            yield made

    def _in_graphs(self, jobs: Iterable[_Job]) -> Iterator[list[Future[Any]]]:
        """Send jobs and return the futures of each.

        Jobs with few bytes of arguments are one graph.
        """
        calls = dict[Any, Call]()
        asked = list[Sequence[Any]]()
        n_bytes = 0
        for some, keys, n_more in jobs:
            calls |= some
            asked.append(keys)
            n_bytes += n_more
            if n_bytes > _INLINE:
                yield from self._sent(calls, asked)
                calls = {}
                asked = []
                n_bytes = 0
        yield from self._sent(calls, asked)

    def _sent(
        self, calls: Mapping[Any, Call], asked: Sequence[Sequence[Any]]
    ) -> list[list[Future[Any]]]:
        futures = iter(self._send(calls, [*chain(*asked)]) if calls else ())
        return [list(islice(futures, len(keys))) for keys in asked]

    def call(
        self,
        word: str,
        function: Function,
        args: Sequence[Any],
        p: int,
    ) -> Future[Any]:
        """Submit a call on the worker of shard `p`, and return its future."""
        where = self._where(self._dealt.address(p), pinned=True)
        return self._send({(f"{word}-{uuid4().hex}", p): Call(function, args, where)})[0]

    def _send(
        self, calls: Mapping[Any, Call], asked: Sequence[Any] | None = None
    ) -> list[Future[Any]]:
        """Send calls by their keys as one graph; return the futures of those asked for.

        By default all are asked for.
        """
        layers = {}
        for key, (function, args, where) in calls.items():
            refs = [TaskRef(arg.key) if isinstance(arg, Future) else arg for arg in args]
            task = {key: DaskTask(key, function, *refs)}
            layers[uuid4().hex] = MaterializedLayer(
                task, annotations={**self._annotations, **where}
            )
        graph = HighLevelGraph(layers, {name: set() for name in layers})
        keys = list(calls if asked is None else asked)
        made = list(reach(self.client, self.client.get, graph, keys, sync=False))
        self._let_in.update(made)
        return made

    def call_ranks(
        self,
        word: str,
        function: Function,
        args: Sequence[Sequence[Any]],
        near: Sequence[int],
        take: Unary | None = None,
    ) -> Any:
        """Let all ranks of a run call a function at the same time, each on its worker only.

        Parameters
        ----------
        word : str
            Name of the tasks.
        function : callable
            ``function(communicator, *args)``.
        args : sequence of sequences
            Arguments of each rank; futures stand for their results.
        near : sequence of int
            A shard of each rank, which is where that shard is.
        take : callable, optional
            Returns what the client gets of the result of rank 0; the results themselves stay on
            their workers.

        Returns
        -------
        list, or a list and an object
            The results; with `take` their futures, and what `take` has returned.

        Raises
        ------
        WorkLostError
            If a rank was lost.
        Exception
            The error of a rank.
        """
        addresses = tuple(map(self._dealt.address, near))
        made, _ = self._send_ranks(word, function, args, addresses, take)
        ranks = made[-len(addresses) :]
        kept = False
        try:
            asked = [made[0], *ranks[1:]]
            found = outcomes(self.client, asked, set(addresses), ranks[1:] if take else ())
            if failed := [one for one in found if isinstance(one, Exception)]:
                raise next((one for one in failed if not isinstance(one, WorkLostError)), failed[0])
            kept = take is not None
            return (ranks, found[0]) if kept else found
        finally:
            self.release(made[:1] if kept else made)

    def serve(self, name: str, pieces: Sequence[Any]) -> GroupService:
        """Let workers make partitions from pieces; return the service of their ranks."""
        self.settle([piece.parts if isinstance(piece, Piece) else [piece] for piece in pieces])
        members = self._dealt.members(len(pieces))
        addresses = tuple(members)
        groups = list(members.values())
        whole = [piece if isinstance(piece, Piece) else (itself, (piece,)) for piece in pieces]
        loads = [Load(function, parts, p) for p, (function, parts) in enumerate(whole)]
        held = [one for [one] in self.load(f"{name}-load", loads)]
        self.wait(held)
        args = [(groups, *(held[p] for p in group)) for group in groups]
        made, token = self._send_ranks(f"{name}-rounds", as_server, args, addresses, None)
        return GroupService(self.client, addresses, token, made, held)

    def _send_ranks(
        self,
        word: str,
        function: Function,
        args: Sequence[Sequence[Any]],
        addresses: tuple[str, ...],
        take: Unary | None,
    ) -> tuple[list[Future[Any]], str]:
        """Send the tasks of ranks as one graph.

        So those of two runs reach all workers in the same order.

        Return their futures, after that of what is taken of the result of rank 0, and the token of
        the group.
        """
        run = uuid4().hex
        token = f"{self._run}-{run}"
        keys = tuple([(f"{word}-{run}", rank) for rank in range(len(addresses))])
        limit = parse_bytes(dask.config.get("schmp-estimators.exchange-limit", "256 MiB"))
        calls = dict[Any, Call]()
        asked = list[Any](keys)
        for rank, (key, address, given) in enumerate(zip(keys, addresses, args, strict=True)):
            one = Ranks(addresses, keys, rank, token, limit)
            calls[key] = Call(as_rank, (one, function, *given), self._where(address, pinned=True))
        if take is not None:
            asked.insert(0, (f"{word}-results-{run}", 0))
            where = self._where(addresses[0], pinned=True)
            calls[asked[0]] = Call(taken, (take, TaskRef(keys[0])), where)
        return self._send(calls, asked), token

    def results(self, futures: Futures) -> list[Any]:
        """Return the results of futures, and watch the cluster meanwhile."""
        return gather(self.client, futures, self._dealt.addresses, self.addresses)

    def wait(self, futures: Futures) -> None:
        """Wait until all futures are done."""
        await_all(self.client, futures, self._dealt.addresses, self.addresses)

    def in_place(self, one: Any) -> Any:
        """Return an argument that stands for the result of a rank.

        The next task changes the result in place.
        """
        return InPlace(one.key) if isinstance(one, Future) else one

    def release(self, held: Iterable[Any]) -> None:
        """Release the futures among `held`."""
        for one in held:
            if isinstance(one, Future):
                one.release()

    def settle(self, pieces: Sequence[Futures]) -> None:
        """Place each shard on a worker that has its first piece.

        No worker gets more than its share.
        """
        held = [[part for part in parts if isinstance(part, Future)][:1] for parts in pieces]
        if futures := [one for some in held for one in some]:
            holders = reach(self.client, self.client.who_has, futures)
            self._dealt.settle([holders.get(some[0].key, ()) if some else () for some in held])

    def hold(self, lazy: Any) -> list[Any]:
        """Let the workers compute and keep the results; return their futures.

        Raises
        ------
        WorkerLostError
            If `lazy` contains futures of the caller whose results are gone.
        """
        if self.are_gone(futures_of(lazy)):
            raise WorkerLostError(
                "the input was persisted, and the cluster no longer has some of its chunks (the "
                "workers that held them died or do not answer, or the client was restarted); "
                "persist it again, or use the collection from before persist()"
            )
        held = reach(self.client, self.client.persist, lazy, **self._where())
        if isinstance(lazy, list):
            return self._noted([futures_of(one)[0] for one in held])
        # Query planning may rename the tasks, but each key still ends with the numbers of its
        # block.
        return self._noted(sorted(futures_of(held), key=lambda future: future.key[1:]))

    def map(
        self,
        function: Function,
        arguments: Sequence[Arguments],
        name: str,
        *,
        by_shard: bool = False,
    ) -> list[Any]:
        """Submit the calls, and return their futures."""
        run = f"{name}-{uuid4().hex}"
        own = [self._dealt.address(i) if by_shard else None for i in range(len(arguments))]
        jobs = (
            ({(run, i): Call(function, row, self._where(own[i]))}, [(run, i)], _bytes_of(row))
            for i, row in enumerate(arguments)
        )
        return [*chain(*self._in_graphs(jobs))]

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Return the values, and watch the cluster meanwhile."""
        return gather(self.client, held, self.addresses if self._left_out else None, self.addresses)

    def share(self, value: Any) -> Any:
        """Return a future of a value, or a small value itself, which each task then has.

        The future is of a task, which Dask can repeat; a large value is sent to two workers.
        """
        n_bytes = sizeof(read_back(value))
        if n_bytes <= _INLINE >> 4:
            return value
        if n_bytes <= 8 * _INLINE:  # tasks pass through the scheduler, and Dask warns of more
            return self.map(itself, [(value,)], "shared")[0]
        sent = scatter(self.client, f"shared-{uuid4().hex}", value, *self.addresses[:2])
        return self._noted([sent])[0]

    def lasting(self, value: Any) -> Callable[[], Any]:
        """Return a function that gives for many tasks what `share` returns.

        It makes a new future if the last one was lost.
        """
        held: list[Any] = []

        def give() -> Any:
            if not held or getattr(held[0], "status", "") in _GONE:
                held[:] = [self.share(value)]
            return held[0]

        return give

    def are_gone(self, held: Iterable[Any]) -> bool:
        """Return whether some futures among `held` have results that are lost.

        Such results cannot be computed again, or reached.
        """
        futures = [one for one in held if isinstance(one, Future)]
        if any(one.status in _GONE for one in futures):
            return True
        workers = live_workers(self.client) if futures else ()
        silent = {worker.address for worker in workers if worker.status == SILENT}
        holders = reach(self.client, self.client.who_has, futures) if silent else {}
        return any(found and silent.issuperset(found) for found in holders.values())

    def let_go(self) -> None:
        """Release all futures, one by one.

        The traceback of an error may still reference any of them.
        """
        for future in list(self._let_in):
            future.release()

    def _noted(self, futures: list[Any]) -> list[Any]:
        self._let_in.update(futures)
        return futures

    def tell(self, event: str, details: Named | None = None) -> None:
        """Send an event to the page of fits on the scheduler's dashboard, if there is one."""
        details = details or {}
        if event == "begin":
            self._fit = details["estimator"]
            used, n_all = len(self._dealt.addresses), len(self.addresses)
            workers = f"{used} of {n_all} workers" if 0 < used < n_all else ""
            details = {"shards": self._dealt.n_places, "workers": workers, **details}
        self._teller.tell(event, details)

    def close(self) -> None:
        """Release everything."""
        self.let_go()
        super().close()

    def reset(self, told: str = "") -> None:
        """Wait for workers, and distribute the shards anew."""
        self._dealt.forget()
        forget_answers(self.client)
        try:
            self._use(*responsive_workers(self.client, self._annotations, _enrolment()), told)
        except (NoWorkersError, SchedulerLostError) as error:
            if scheduler_id(self.client) != self._scheduler:
                told = "the scheduler was restarted, and workers end with their scheduler"
            raise type(error)(f"{self._fit} has ended, because {told}: {error}") from error

    def deal(self) -> bool:
        """Look for new workers, which must be like the others.

        If a worker has more than its share now, forget where the shards are.

        A paused worker keeps its shards, because it may soon continue; a worker that is about to
        leave does not.  Ranks do nothing meanwhile, so this does not wait long: who answers later
        is used later.
        """
        found = live_workers(self.client)
        workers = [
            one
            for one in found
            if one.status in ("running", "paused") and one.may_take(self._annotations)
        ]
        answers = check_alike(self.client, workers, _enrolment(), until=time.monotonic() + 1.0)
        used = {(one.address, one.folder) for one in self._dealt.workers}
        usable = [w for w in workers if answers.get(w.address) or (w.address, w.folder) in used]
        silent = [one for one in found if one.status == SILENT]
        self._use(usable or self._dealt.workers, silent)
        if self._dealt.is_even():
            return False
        self._dealt.forget()
        return True
