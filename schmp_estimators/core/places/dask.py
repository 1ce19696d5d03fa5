"""The Dask place: tasks on the workers of a cluster, and ranks, which are tasks that send each other messages.

Tasks are pinned loosely to the worker of their shard, so that Dask may move them when that worker dies; ranks are
pinned to it.  Nothing large passes the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import dask
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.sizeof import sizeof
from distributed import Client, Future, futures_of, span

from schmp_estimators.core.cluster.group import InPlace, Ranks, as_rank
from schmp_estimators.core.cluster.service import GroupService, as_server, listen
from schmp_estimators.core.dashboard.fits import Teller
from schmp_estimators.core.engine.rounds import Piece
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.cluster import (
    Dealt,
    Worker,
    check_alike,
    fingerprint,
    live_workers,
    reach,
    responsive_workers,
)
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.watch import await_all, gather, outcomes, scatter
from schmp_estimators.core.values import itself

#: Bytes of an argument up to which it travels inside a task; a larger one is sent to the worker.
_INLINE = 1 << 20
#: Bytes of a value up to which a task of its own has it; of larger ones Dask warns, as they pass the scheduler.
_IN_A_TASK = 8 << 20
#: Of futures whose results nobody can make again.
_GONE = ("cancelled", "lost")


def _enrol(dask_worker: Any = None) -> dict[str, str]:
    """Let a worker take messages for its ranks, and say what it is."""
    listen(dask_worker)
    return fingerprint()


class DaskPlace(Place):
    """Execute tasks on a Dask cluster; `client` stays the caller's.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    label : str, default="schmp"
        Name of the span under which the dashboard gathers the tasks.

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

    def __init__(self, client: Client, label: str = "schmp") -> None:
        super().__init__()
        self.client = client
        #: What has been made on the cluster, as far as anybody still has it.
        self._let_in: WeakSet[Future[Any]] = WeakSet()
        self._teller = Teller(client, label)
        self._run = uuid4().hex[:12]
        with span(label):
            self._annotations = {**dask.get_annotations(), "allow_other_workers": True}
        self._dealt = Dealt(responsive_workers(self.client, self._annotations, _enrol))

    @property
    def n_processes(self) -> int:
        """The workers."""
        return len(self._dealt.workers)

    @property
    def n_threads(self) -> int:
        """Threads of all workers together."""
        return self._dealt.n_threads

    @property
    def memory_limit(self) -> int:
        """Memory limits of all workers together in bytes; 0 if any of them has none."""
        limits = [worker.memory_limit for worker in self._dealt.workers]
        return sum(limits) if all(limits) else 0

    def groups(self, n_shards: int) -> list[list[int]]:
        """Return the shards of each worker that has some."""
        return list(self._dealt.members(n_shards).values())

    def bring(self, value: Any, p: int) -> Any:
        """Return `value` as a task near shard `p` takes it: as it is, or a future of it, sent there, if it is large."""
        if isinstance(value, Future) or sizeof(value) <= _INLINE:
            return value
        return scatter(self.client, f"sent-{uuid4().hex}", value, self._dealt.address(p))

    def load(self, word: str, function: Callable[..., Any], pieces: Sequence[Any], p: int, *first: Any) -> Future[Any]:
        """Return a future of ``function(*first, *pieces)``, made near shard `p`; pieces are as those of a `Source`."""
        brought = [self.bring(piece() if callable(piece) else piece, p) for piece in pieces]
        made = self.call(word, function, (*first, *brought), p)
        sent = [one for one, piece in zip(brought, pieces, strict=True) if one is not piece]
        made.add_done_callback(lambda _: self.release(sent))
        return made

    def call(
        self, word: str, function: Callable[..., Any], args: Sequence[Any], p: int, *, pinned: bool = False
    ) -> Future[Any]:
        """Submit a call near shard `p`, and return its future; with `pinned` it runs there and nowhere else."""
        return self._submit((f"{word}-{uuid4().hex}", p), function, args, self._dealt.address(p), pinned)

    def _submit(
        self, key: Any, function: Callable[..., Any], args: Sequence[Any], address: str | None, pinned: bool = False
    ) -> Future[Any]:
        options: dict[str, Any] = {"key": key, "pure": False}
        if address is not None:
            options |= {"workers": [address], "allow_other_workers": not pinned}
        with dask.annotate(span=self._annotations["span"]):  # by which the dashboard knows tasks
            made: Future[Any] = reach(self.client, self.client.submit, function, *args, **options)
        self._let_in.add(made)
        return made

    def call_ranks(
        self,
        word: str,
        function: Callable[..., Any],
        args: Sequence[Sequence[Any]],
        groups: Sequence[Sequence[int]],
        take: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Let all ranks of a run call a function at the same time, each in a task that runs nowhere else.

        Parameters
        ----------
        word : str
            Name of the tasks.
        function : callable
            ``function(communicator, *args)``.
        args : sequence of sequences
            Of each rank; futures stand for what they are of.
        groups : sequence of sequences of int
            The shards of each rank.
        take : callable, optional
            Says what comes here of a result, which then stays where it is.

        Returns
        -------
        list, or two lists
            The results; with `take` their futures, and what it takes.

        Raises
        ------
        WorkLostError
            If a rank was lost.
        Exception
            What a rank has raised.
        """
        addresses = tuple([self._dealt.address(group[0]) for group in groups])
        made, asked, _ = self._send_ranks(word, function, args, addresses, take)
        kept = False
        try:
            found = outcomes(self.client, asked, set(addresses))
            if failed := [one for one in found if isinstance(one, Exception)]:
                raise next((one for one in failed if not isinstance(one, WorkLostError)), failed[0])
            kept = take is not None
            return (made, found) if kept else found
        finally:
            self.release(asked if kept else [*made, *asked])

    def serve(self, name: str, pieces: Sequence[Any]) -> GroupService:
        """Let workers make partitions of pieces, and return who works on them."""
        self.settle([piece.parts if isinstance(piece, Piece) else [piece] for piece in pieces])
        members = self._dealt.members(len(pieces))
        addresses, groups = tuple(members), list(members.values())
        held = list[Future[Any]]()
        for p, piece in enumerate(pieces):
            function, parts = piece if isinstance(piece, Piece) else (itself, (piece,))
            held.append(self.load(f"{name}-load", function, parts, p))
        self.wait(held)
        args = [(groups, *(held[p] for p in group)) for group in groups]
        made, _, token = self._send_ranks(f"{name}-rounds", as_server, args, addresses, None)
        return GroupService(self.client, addresses, token, made, held)

    def _send_ranks(
        self,
        word: str,
        function: Callable[..., Any],
        args: Sequence[Sequence[Any]],
        addresses: tuple[str, ...],
        take: Callable[[Any], Any] | None,
    ) -> tuple[list[Future[Any]], list[Future[Any]], str]:
        """Send the tasks of ranks as one graph, so that those of two runs come to all workers in the same order."""
        run = uuid4().hex
        token = f"{self._run}-{run}"
        keys = tuple([(f"{word}-{run}", rank) for rank in range(len(addresses))])
        layers, asked = {}, list[Any](keys)
        for rank, (key, address, given) in enumerate(zip(keys, addresses, args, strict=True)):
            refs = [TaskRef(arg.key) if isinstance(arg, Future) else arg for arg in given]
            tasks = {key: DaskTask(key, as_rank, Ranks(addresses, keys, rank, token), function, *refs)}
            if take is not None:
                asked.append((f"told-{run}", rank))
                tasks[asked[-1]] = DaskTask(asked[-1], take, TaskRef(key))
            only = {**self._annotations, "workers": [address], "allow_other_workers": False}
            layers[f"{run}-{rank}"] = MaterializedLayer(tasks, annotations=only)
        graph = HighLevelGraph(layers, {name: set() for name in layers})
        futures = list(reach(self.client, self.client.get, graph, asked, sync=False))
        self._let_in.update(futures)
        return futures[: len(keys)], futures[-len(keys) :], token

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Gather results while watching the cluster."""
        return gather(self.client, futures, self._dealt.addresses)

    def wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all futures are done."""
        await_all(self.client, futures, self._dealt.addresses)

    def in_place(self, one: Any) -> Any:
        """Return what stands for a result of a rank among the arguments of the next one, which changes it."""
        return InPlace(one.key) if isinstance(one, Future) else one

    def release(self, held: Iterable[Any]) -> None:
        """Let go of futures, of which there may be none among what is held."""
        for one in held:
            if isinstance(one, Future):
                one.release()

    def _welcome(self, workers: list[Worker]) -> None:
        """Take note of who is there; whoever came since the last look must be like the others.

        Who is paused keeps its shards, as that may be over soon; who is about to leave does not.
        """
        workers = [one for one in workers if one.status in ("running", "paused") and one.may_take(self._annotations)]
        known = {worker.address for worker in self._dealt.workers}
        come = [worker.address for worker in workers if worker.address not in known]
        stayed = [worker.address for worker in workers if worker.address in known]
        if come:
            check_alike(self.client, [*stayed[:1], *come], _enrol)
        self._dealt.update(workers or self._dealt.workers)

    def settle(self, pieces: Sequence[Sequence[Future[Any]]]) -> None:
        """Let each shard be worked upon where its first piece is, as long as no worker gets more than its share."""
        held = [[part for part in parts if isinstance(part, Future)][:1] for parts in pieces]
        if futures := [one for some in held for one in some]:
            holders = reach(self.client, self.client.who_has, futures)
            self._dealt.settle([holders.get(some[0].key, ()) if some else () for some in held])

    def hold(self, lazy: Any) -> list[Any]:
        """Let the workers compute and keep them; return the futures."""
        held = reach(self.client, self.client.persist, lazy)
        if isinstance(lazy, list):
            return self._noted([futures_of(one)[0] for one in held])
        # Query planning may rename the tasks, but each key still ends with the numbers of its block.
        return self._noted(sorted(futures_of(held), key=lambda future: future.key[1:]))

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Submit the calls, and return their futures."""
        run = f"{name}-{uuid4().hex}"
        own = [self._dealt.address(i) if by_shard else None for i in range(len(arguments))]
        return [self._submit((run, i), function, row, own[i]) for i, row in enumerate(arguments)]

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Gather values while watching the cluster."""
        return gather(self.client, held)

    def share(self, value: Any) -> Any:
        """Return a task that has the value, and so is done again if it is lost; send a large one to two workers."""
        if sizeof(value) <= _IN_A_TASK:
            return self.map(itself, [(value,)], "shared")[0]
        addresses = [worker.address for worker in self._dealt.workers[:2]]
        return self._noted([scatter(self.client, f"shared-{uuid4().hex}", value, *addresses)])[0]

    def lasting(self, value: Any) -> Callable[[], Any]:
        """Return a function that gives a future of a value for many tasks, and makes a new one if that was lost."""
        held: list[Future[Any]] = []

        def give() -> Future[Any]:
            if not held or held[0].status in _GONE:
                held[:] = [self.share(value)]
            return held[0]

        return give

    def are_gone(self, held: Iterable[Any]) -> bool:
        """Return whether futures are among what is held whose results nobody can make again."""
        return any(isinstance(one, Future) and one.status in _GONE for one in held)

    def take(self, held: list[Any], position: int, name: str) -> list[Any]:
        """Let the workers take the elements."""
        return self.map(getitem, [(one, position) for one in held], name)

    def let_go(self) -> None:
        """Release all futures, one by one: the traceback of an error may still reference any of them."""
        for future in list(self._let_in):
            future.release()

    def _noted(self, futures: list[Any]) -> list[Any]:
        self._let_in.update(futures)
        return futures

    def tell(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell the page of fits on the scheduler's dashboard, if there is one."""
        self._teller.tell(
            event, {"shards": self._dealt.n_places, **(details or {})} if event == "begin" else details or {}
        )

    def close(self) -> None:
        """Let go of everything."""
        self.let_go()
        self._teller.close()

    def reset(self) -> None:
        """Wait for workers, and let shards be dealt to them anew."""
        self._dealt.forget()
        self._dealt.update(responsive_workers(self.client, self._annotations, _enrol))

    def deal(self) -> bool:
        """Take note of who has come; if a worker has more than its share now, forget where the shards are."""
        self._welcome(live_workers(self.client))
        if self._dealt.is_even():
            return False
        self._dealt.forget()
        return True
