"""The Dask place: graphs of pure tasks on the workers of a cluster.

Tasks are pinned loosely to the worker of their shard, so that Dask may move them when that worker dies.  Blocks travel
from worker to worker by Dask's own transfers; nothing large passes the client.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import dask
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.sizeof import sizeof
from distributed import Client, Future, futures_of, secede, span

from schmp_estimators.core.cluster.group import GaveWay, Ranks, as_rank, prepare, told
from schmp_estimators.core.dashboard.telling import Teller
from schmp_estimators.core.places.borrowing import borrowing
from schmp_estimators.core.places.cluster import (
    Worker,
    adopt,
    check_alike,
    live_workers,
    once_known,
    reaching,
    responsive_workers,
)
from schmp_estimators.core.places.dealing import Dealt
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.gang import go_together
from schmp_estimators.core.places.meeting import begin_together, let_meet
from schmp_estimators.core.places.place import Key, Mode, Place, Ref, Task
from schmp_estimators.core.places.post import WorkerPost, clear_shelf
from schmp_estimators.core.places.watch import WATCH_EVERY, await_all, gather, outcomes, scatter

logger = logging.getLogger(__name__)

#: Up to how many shards pieces that shards exchange are results of tasks, one for each pair, which Dask can make again.
EXCHANGED_BY_TASKS = 16
#: Up to how many workers may be a team, in which each is connected with each.
MOST_MEMBERS = 16
#: After how many sweeps at most an engine saves its state where Dask could not make it again.
SAVE_EVERY = 5
#: Up to how many tasks a thread has in a stage before one serves several shards: what Dask does for a task takes a
#: millisecond or two, and what one task makes of a worker's states is there beside what they were.
TASKS_OF_A_THREAD = 16
#: Seconds, from and to, after which ranks that gave way to others begin again.
_PAUSE = 0.05, 0.5
#: Bytes of an argument, times tasks, up to which it travels inside the tasks; a larger one is sent to a worker once.
_INLINE = 1 << 20
#: Bytes of a value up to which a task of its own has it; of larger ones Dask warns, as they pass the scheduler.
_IN_A_TASK = 8 << 20


def _aside(function: Callable[..., Any], *args: Any) -> Any:
    secede()
    return function(*args)


def _element(values: Any, position: int) -> Any:
    return values[position]


def _itself(value: Any) -> Any:
    return value


class DaskPlace(Place):
    """Execute tasks on a Dask cluster; `client` stays the caller's.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    label : str, default="schmp"
        Name of the span under which the dashboard gathers the tasks.
    cut_every : int, default=50
        After how many sweeps the engine restarts from its own state.  Until then a lost result is computed again from
        its history, so that history must be short; and the scheduler remembers all of it.

    Raises
    ------
    NoWorkersError
        If the cluster has no workers that can work, and gets none in time.
    SchedulerLostError
        If its scheduler cannot be reached.
    MixedClusterError
        If the workers differ in software or CPU.
    """

    lookahead = 1

    def __init__(self, client: Client, label: str = "schmp", cut_every: int = 50) -> None:
        self.cut_every = cut_every
        self.client = client
        self._futures: dict[Key, Future[Any]] = {}
        #: what `hold`, `map` and `share` have returned, as far as anybody still has it
        self._let_in: WeakSet[Future[Any]] = WeakSet()
        #: workers that listen to the members of teams
        self._listening: set[str] = set()
        #: what tells the pieces that workers keep for each other from those of other places; empty if there are none
        self._token = ""
        self._dealt = Dealt(responsive_workers(self.client))
        self._looked = float("-inf")
        self._teller = Teller(client, label)
        with span(label):
            self._annotations = {**dask.get_annotations(), "allow_other_workers": True}
        #: What tasks are known by on the dashboard.
        self._shown = {key: self._annotations[key] for key in ("span",) if key in self._annotations}

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

    def expect(self, n_shards: int) -> None:
        """Take note of how many shards neighbours will share workers."""
        self._dealt.n_places = n_shards

    def homes(self, n_shards: int) -> list[Any]:
        """Return the addresses of the shards' workers, as far as they have one."""
        return [self._dealt.known(place) or place for place in range(n_shards)]

    def shards_of_a_task(self, n_shards: int) -> int:
        """Return as many as leave enough tasks for each thread, so that hardly more is there at a time of states."""
        return max(1, n_shards // (TASKS_OF_A_THREAD * self.n_threads))

    def shards_of_a_thread(self, n_shards: int) -> int:
        """Return as many as there are for each thread, at most."""
        return max(1, -(-n_shards // self.n_threads))

    def mode(self, n_shards: int) -> Mode:
        """Return that cells must not write into their inputs, since Dask may compute a cell twice."""
        return Mode(in_place=False, each=borrowing)

    def stay(self) -> None:
        """Let tasks run where their shards are, and nowhere else: another worker would not find what they need."""
        self._annotations = {**self._annotations, "allow_other_workers": False}

    def post(self, n_shards: int) -> WorkerPost | None:
        """Let workers carry the pieces of many shards; a state that came of any exchange cannot be made again.

        A run of many shards, which has many tasks, is also cut as often as it is saved.
        """
        self.save_every = SAVE_EVERY
        if n_shards <= EXCHANGED_BY_TASKS:
            return None
        self._token, self.cut_every = uuid4().hex, min(self.cut_every, SAVE_EVERY)
        return WorkerPost(self._token)

    def put(self, key: Key, piece: Any, place: int) -> Ref:
        """Scatter a value, or what a callable returns, to the worker of `place`; refer to a future as it is."""
        if isinstance(piece, Future):
            return Ref(piece.key)  # type: ignore[arg-type]  # Dask's keys may be text, too
        value, address = piece() if callable(piece) else piece, self._dealt.address(place)
        self._futures[key] = scatter(self.client, key, value, address)
        return Ref(key)

    def argument(self, value: Any, uses: int, lend: Callable[[Any], Ref]) -> Any:
        """Refer to a future as it is, and to a large value as it is lent; the others travel inside the tasks."""
        if isinstance(value, Future):
            return Ref(value.key)  # type: ignore[arg-type]  # Dask's keys may be text, too
        # what is callable would be called, if it were lent as it is
        return value if sizeof(value) * uses <= _INLINE else lend(lambda: value)

    def submit(self, tasks: Sequence[Task], wanted: Sequence[Key], *, soon: bool = False) -> None:
        """Send the tasks to the scheduler as one graph, with a layer for each worker."""
        if time.monotonic() > self._looked + WATCH_EVERY:
            self._welcome(live_workers(self.client))
        layers: dict[str, dict[Key, DaskTask]] = {}
        addresses = {place: self._dealt.address(place) for place in dict.fromkeys(task.place for task in tasks)}
        for task in tasks:
            args = (TaskRef(arg.key) if isinstance(arg, Ref) else arg for arg in task.args)
            layer = layers.setdefault(addresses[task.place], {})
            layer[task.key] = DaskTask(task.key, task.function, *args)
        annotations = dict(self._annotations)
        if soon:
            annotations["priority"] = annotations.get("priority", 0) + 1
        # A layer's name must be its own: layers of the same name in flight would be taken for one.
        named = {(address, *tasks[0].key): layer for address, layer in layers.items()}
        graph = HighLevelGraph(
            {
                str(name): MaterializedLayer(layer, annotations={**annotations, "workers": [name[0]]})
                for name, layer in named.items()
            },
            {str(name): set() for name in named},
        )
        keys = list(wanted)
        with reaching(self.client):
            self._futures.update(zip(keys, self.client.get(graph, keys, sync=False), strict=True))

    def groups(self, n_shards: int) -> list[list[int]]:
        """Return the shards of each worker that has some."""
        return list(self._dealt.members(n_shards).values())

    def bring(self, value: Any, p: int) -> Any:
        """Return `value` as a task near shard `p` takes it: as it is, or a future of it, sent there, if it is large."""
        if isinstance(value, Future) or sizeof(value) <= _INLINE:
            return value
        return scatter(self.client, f"sent-{uuid4().hex}", value, self._dealt.address(p))

    def call(
        self, word: str, function: Callable[..., Any], args: Sequence[Any], p: int, *, pinned: bool = False
    ) -> Future[Any]:
        """Submit a call near shard `p`, and return its future; with `pinned` it runs there and nowhere else."""
        with reaching(self.client), dask.annotate(**self._shown):
            made: Future[Any] = self.client.submit(
                function, *args, key=(f"{word}-{uuid4().hex}", p), workers=[self._dealt.address(p)],
                allow_other_workers=not pinned, pure=False,
            )  # fmt: skip
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
        addresses = tuple(self._dealt.address(group[0]) for group in groups)
        self._prepare(addresses)
        while True:
            made, told_of = self._send_ranks(word, function, args, addresses, take)
            kept = False
            try:
                found = outcomes(self.client, told_of, set(addresses))
                failed = [one for one in found if isinstance(one, Exception)]
                gave_way = any(isinstance(one, GaveWay) for one in found)
                if not failed and not gave_way:
                    kept = take is not None
                    return (made, found) if kept else found
            finally:
                self.release(told_of if kept else [*made, *told_of])
            if not gave_way:
                raise next((one for one in failed if not isinstance(one, WorkLostError)), failed[0])
            time.sleep(random.uniform(*_PAUSE))  # noqa: S311

    def _send_ranks(
        self,
        word: str,
        function: Callable[..., Any],
        args: Sequence[Sequence[Any]],
        addresses: tuple[str, ...],
        take: Callable[[Any], Any] | None,
    ) -> tuple[list[Future[Any]], list[Future[Any]]]:
        """Send the tasks of ranks as one graph, so that those of two runs come to all workers in the same order."""
        run, token = uuid4().hex, f"{time.time_ns():020}-{uuid4().hex}"
        keys = tuple((f"{word}-{run}", rank) for rank in range(len(addresses)))
        layers = {}
        for rank, (key, address, given) in enumerate(zip(keys, addresses, args, strict=True)):
            refs = (TaskRef(arg.key) if isinstance(arg, Future) else arg for arg in given)
            tasks = {key: DaskTask(key, as_rank, Ranks(addresses, keys, rank, token), function, *refs)}
            if take is not None:
                telling = f"told-{run}", rank
                tasks[telling] = DaskTask(telling, told, take, TaskRef(key))
            only = {**self._annotations, "workers": [address], "allow_other_workers": False}
            layers[f"{run}-{rank}"] = MaterializedLayer(tasks, annotations=only)
        graph = HighLevelGraph(layers, {name: set() for name in layers})
        asked = [*keys, *((f"told-{run}", rank) for rank in range(len(keys)) if take is not None)]
        with reaching(self.client):
            futures = list(self.client.get(graph, asked, sync=False))
        self._let_in.update(futures)
        return futures[: len(keys)], futures[-len(keys) :]

    def _prepare(self, addresses: Sequence[str]) -> None:
        """Let workers take messages for ranks.

        In tasks: who asks a worker itself, and it has just died, waits for half a minute.
        """
        new = [address for address in dict.fromkeys(addresses) if address not in self._listening]
        made = [self.client.submit(prepare, workers=[one], key=(f"listen-{uuid4().hex}", one)) for one in new]
        try:
            if made:
                await_all(self.client, made, set(new))
        finally:
            self.release(made)
        self._listening.update(new)

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Gather results while watching the cluster."""
        return gather(self.client, futures, self._dealt.addresses)

    def wait(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all futures are done."""
        await_all(self.client, futures, self._dealt.addresses)

    def release(self, held: Iterable[Any]) -> None:
        """Let go of futures, of which there may be none among what is held."""
        for one in held:
            if isinstance(one, Future):
                one.release()

    def together(self, keys: Sequence[Key], job: Any, unwrap: Callable[[Any], Any], held: Sequence[Key]) -> Any:
        """Let workers with shards talk to each other, each in a task that runs nowhere else."""
        groups = self._dealt.members(len(held))
        try:
            return let_meet(self.client, groups, keys, job, unwrap, held, self._annotations, self._listening)
        except Exception as error:  # whatever it is, it will be seen again by who does it without a team
            logger.debug("no team: %s", error)
            return None

    def teams(self, n_shards: int) -> list[list[int]]:
        """Return the shards of each worker, if these are few, and ``schmp-estimators.sweeps-together`` is not false."""
        groups = list(self._dealt.members(n_shards).values())
        wanted = dask.config.get("schmp-estimators.sweeps-together", True)
        return groups if wanted and 1 < len(groups) <= MOST_MEMBERS else []

    def submit_together(
        self, keys: Sequence[Key], groups: Sequence[Sequence[int]], function: Callable[..., Any], args: Sequence[Any]
    ) -> None:
        """Send each worker its task, pinned to it."""
        members = {self._dealt.address(shards[0]): list(shards) for shards in groups}
        args = [(function, *given) for given in args]
        with reaching(self.client):
            futures = begin_together(self.client, members, keys, go_together, args, self._annotations, self._listening)
        self._futures.update(zip(keys, futures, strict=True))

    def has_threads_to_spare(self) -> bool:
        """Ask the scheduler whether any worker has tasks of others for all of its threads."""
        own = {future.key for future in (*self._let_in, *self._futures.values())}
        with reaching(self.client):
            busy = self.client.processing()  # of all: the scheduler fails if asked for one that has just died
        return all(len(set(busy.get(worker.address, ())) - own) < worker.n_threads for worker in self._dealt.workers)

    def _welcome(self, workers: list[Worker]) -> None:
        """Take note of who is there; whoever came since the last look must be like the others.

        Who is paused keeps its shards, as that may be over soon; who is about to leave does not.
        """
        workers = [worker for worker in workers if worker.status in ("running", "paused")]
        known = {worker.address for worker in self._dealt.workers}
        come = [worker.address for worker in workers if worker.address not in known]
        stayed = [worker.address for worker in workers if worker.address in known]
        if come and stayed:
            check_alike(self.client, [stayed[0], *come])
        self._dealt.workers = workers or self._dealt.workers
        self._looked = time.monotonic()

    def settle(self, pieces: Sequence[Sequence[Future[Any]]]) -> None:
        """Let each shard be worked upon where its first piece is, as long as no worker gets more than its share."""
        futures = [[part for part in parts if isinstance(part, Future)] for parts in pieces]
        if not (held := [one[0] for one in futures if one]):
            return
        with reaching(self.client):
            holders = self.client.who_has(held)
        self._dealt.settle([holders.get(one[0].key, ()) if one else () for one in futures])

    def hold(self, lazy: Any) -> list[Any]:
        """Let the workers compute and keep them; return the futures."""
        with reaching(self.client):
            held = self.client.persist(lazy)
        if isinstance(lazy, list):
            return self._noted([futures_of(one)[0] for one in held])
        # Query planning may rename the tasks, but each key still ends with the numbers of its block.
        return self._noted(sorted(futures_of(held), key=lambda future: future.key[1:]))

    def compute(self, lazy: list[Any]) -> list[Any]:
        """Let the workers compute, and gather the values."""
        futures = self.client.compute(lazy)
        try:
            return gather(self.client, futures)
        finally:
            for future in futures:
                future.release()

    def threads_of_a_task(self, n_threads: int) -> int:
        """Return 1: a worker has as many tasks at a time as threads."""
        return 1

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Submit the calls, and return their futures."""
        run, submit = f"{name}-{uuid4().hex}", partial(self.client.submit, allow_other_workers=by_shard, pure=False)
        own = [self._dealt.address(i) if by_shard else None for i in range(len(arguments))]
        with reaching(self.client):
            made = [submit(function, *row, key=(run, i), workers=own[i]) for i, row in enumerate(arguments)]
        return self._noted(made)

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Gather values while watching the cluster."""
        return gather(self.client, held)

    def share(self, value: Any) -> Any:
        """Return a task that has the value, and so is done again if it is lost; send a large one to two workers."""
        if sizeof(value) <= _IN_A_TASK:
            return self.map(_itself, [(value,)], "shared")[0]
        addresses = [worker.address for worker in self._dealt.workers[:2]]
        return self._noted([scatter(self.client, f"shared-{uuid4().hex}", value, *addresses)])[0]

    def take(self, held: list[Any], position: int, name: str) -> list[Any]:
        """Let the workers take the elements."""
        return self.map(_element, [(one, position) for one in held], name)

    def at_hand(self, held: Sequence[Any]) -> list[Any] | None:
        """Return None: the values are on workers."""
        return None

    def let_go(self) -> None:
        """Release the futures: all, by name, since the traceback of an error may hold on to any of them."""
        for future in list(self._let_in):
            future.release()

    def _noted(self, futures: list[Any]) -> list[Any]:
        self._let_in.update(futures)
        return futures

    def fetch(self, keys: Sequence[Key]) -> list[Any]:
        """Gather results while watching the cluster."""
        return gather(self.client, [self._futures[key] for key in keys], self._dealt.addresses)

    def has(self, keys: Sequence[Key]) -> bool:
        """Return whether all futures are done."""
        return all(self._futures[key].done() for key in keys)

    def rename(self, keys: Mapping[Key, Key]) -> None:
        """Let workers keep what they have under new keys, too, which to the scheduler is like data sent to them.

        So nothing travels, and the scheduler forgets how the results were made.
        """
        futures = {self._futures[old]: new for old, new in keys.items()}
        await_all(self.client, list(futures), self._dealt.addresses)
        self._futures.update({new: Future(new, self.client) for new in keys.values()})  # so that they hear of it
        adopt(self.client, futures)
        self.drop(keys)

    def aside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that gives its place among the worker's tasks back."""
        return partial(_aside, function)

    def drop(self, keys: Iterable[Key]) -> None:
        """Let go of futures; the scheduler forgets what nobody else wants."""
        for key in keys:
            future = self._futures.pop(key, None)
            if future is not None:
                future.release()

    def drop_after(self, keys: Iterable[Key], known: Key) -> None:
        """Let go of futures once the scheduler knows the tasks that need them, for which it will keep the results."""
        gone = list(keys)
        once_known(self.client, self._futures[known], lambda: self.drop(gone))

    def tell(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell the page of fits on the scheduler's dashboard, if there is one."""
        self._teller.tell(
            event, {"shards": self._dealt.n_places, **(details or {})} if event == "begin" else details or {}
        )

    def clear(self) -> None:
        """Let go of all results; the client stays open, it is the caller's."""
        self.drop(list(self._futures))
        if self._token:
            with suppress(Exception):  # the cluster may have gone
                self.client.run(clear_shelf, self._token, on_error="ignore")

    def close(self) -> None:
        """Let go of everything."""
        self.clear()
        self.let_go()
        self._teller.close()

    def reset(self) -> None:
        """Let go of everything, and wait for workers."""
        self.clear()
        self._dealt.forget()
        self._dealt.workers = responsive_workers(self.client)

    def deal(self) -> bool:
        """Take note of who has come; if a worker has more than its share now, forget where the shards are."""
        self._welcome(live_workers(self.client))
        if self._dealt.is_even():
            return False
        self._dealt.forget()
        return True
