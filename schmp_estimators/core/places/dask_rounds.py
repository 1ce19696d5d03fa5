"""Row partitions on the workers of a Dask cluster, for the dynamic engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from uuid import uuid4

from dask.sizeof import sizeof
from distributed import Future

from schmp_estimators.core.places.blas import one_blas_thread
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key, Ref, Runtime, Task
from schmp_estimators.core.places.restores import Restores
from schmp_estimators.core.values import own

T = TypeVar("T")

#: Bytes of a job, times partitions, up to which it travels inside the tasks; a larger one is sent to workers once.
_INLINE = 1 << 20


class Piece(NamedTuple):
    """A partition that a worker makes: ``function(*parts)``, where parts are values or futures."""

    function: Callable[..., Any]
    parts: tuple[Any, ...] = ()


class Keeper(NamedTuple):
    """What is kept of a partition at a cut, so that the rounds before it can be forgotten."""

    #: Returns the part of a partition that rounds have changed; it should be small, as it travels to the client.
    save: Callable[[Any], Any]
    #: ``restore(partition, saved)`` makes the partition again of its first form.
    restore: Callable[[Any, Any], Any]


class _Held(NamedTuple):
    """A partition after a round, with the partial result of the round: one task makes both."""

    partition: Any
    partial: Any


def _partition(held: Any) -> Any:
    return held.partition if isinstance(held, _Held) else held


def _update(function: Callable[..., Any], held: Any, job: Any) -> _Held:
    with one_blas_thread():
        return _Held(*function(_partition(held), job))


def _partial(held: _Held) -> Any:
    return held.partial


def _as_it_is(partition: Any) -> Any:
    return partition


def _save(save: Callable[[Any], Any], held: Any) -> Any:
    return save(_partition(held))


def _restore(restore: Callable[[Any, Any], Any], partition: Any, saved: Any) -> Any:
    with one_blas_thread():
        return restore(partition, saved)


@dataclass(eq=False)
class _Round:
    """A round since the last cut: what it takes to make it again, and where its results are."""

    function: Callable[..., Any]
    job: Any
    #: of the partial results, once it has been sent
    keys: list[Key] = field(default_factory=list)
    sent: bool = False
    collected: bool = False
    partials: list[Any] | None = None


class DaskRounds:
    """Holds row partitions on workers, and applies functions to them where they are.

    A round is one graph with two tasks for a partition: the update, whose result stays, and its partial result, which
    travels.  Updates are pure, so Dask computes a partition that was lost with its worker again from the rounds before.
    If that is impossible, because no worker has what it takes, the rounds since the last cut are sent anew.

    Parameters
    ----------
    runtime : Runtime
        Where tasks are executed.
    partitions : sequence
        The partitions in their order: futures, pieces that workers make, or values, which stay with the client too.
    name : str
        What the tasks are called on the dashboard.
    keeper : Keeper, optional
        How to cut: after ``runtime.cut_every`` rounds the client gathers what it saves, and goes on from there.
        Without one all rounds are remembered.
    """

    def __init__(
        self, runtime: Runtime, partitions: Sequence[Any], name: str = "regression", keeper: Keeper | None = None
    ) -> None:
        self.n_rounds = 0
        self._run, self._begun = uuid4().hex[:8], 0
        self._runtime, self._pieces, self._name, self._keeper = runtime, list(partitions), name, keeper
        self._log: list[_Round] = []
        self._saved: list[Any] = []
        self._base: list[Key] = []
        self._held: list[Key] = []
        #: values put since the last cut
        self._lent: list[Key] = []
        self._restores = Restores(runtime, "a round being finished")

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._pieces)

    def submit(self, function: Callable[..., Any], job: Any) -> _Round:
        """Apply function(partition, job) to every partition, keep the new partitions, return a ticket."""
        if self._keeper is not None and len(self._log) >= self._runtime.cut_every > 0:
            self._cut(self._keeper)
        ticket = _Round(function, job)
        self._log.append(ticket)
        self._surviving(lambda: None)
        self.n_rounds += 1
        return ticket

    def collect(self, ticket: _Round) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""
        self._surviving(partial(self._fetch, ticket))
        partials, ticket.partials = ticket.partials, None
        assert partials is not None
        return partials

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns, after all rounds have been sent; if work is lost, go back to the last cut."""
        while True:
            try:
                if not self._held:
                    self._begin()
                for ticket in self._log:
                    if not ticket.sent:
                        self._send(ticket)
                return action()
            except WorkLostError as error:
                self._base, self._held, self._lent = [], [], []
                for ticket in self._log:
                    ticket.sent = False
                self._restores.prepare(error, f"making the last {len(self._log)} rounds again")

    def _begin(self) -> None:
        """Start from the last cut under fresh keys, without any tie to the tasks before it."""
        if self._base and self._runtime.deal():  # workers have come: make partitions anew, where they belong now
            self._runtime.drop(self._base)
            self._base = []
        self._begun += 1
        tasks: list[Task] = []
        if not self._base:
            pieces = [piece if isinstance(piece, Piece) else Piece(_as_it_is, (piece,)) for piece in self._pieces]
            self._runtime.settle([[part for part in parts if isinstance(part, Future)] for _, parts in pieces])
            for number, (function, parts) in enumerate(pieces):
                brought = [self._bring(f"part-{i}", number, part) for i, part in enumerate(parts)]
                tasks.append(Task(self._key("load", 0, number), function, tuple(brought), number))
            self._base = [task.key for task in tasks]
        self._held = list(self._base)
        if self._keeper is not None and self._saved:
            self._held = [self._key("restore", 0, number) for number in range(self.n_partitions)]
            for number, saved in enumerate(self._saved):
                arguments = (self._keeper.restore, Ref(self._base[number]), self._lend("saved", number, saved))
                tasks.append(Task(self._held[number], _restore, arguments, number))
        if tasks:
            self._runtime.submit(tasks, [task.key for task in tasks])

    def _send(self, ticket: _Round) -> None:
        number, places = self._log.index(ticket), range(len(self._held))
        job = self._lend("job", number, ticket.job)
        word = type(ticket.job).__name__.lower()
        updated = [self._key(word, number, place) for place in places]
        tasks = [
            Task(updated[place], _update, (ticket.function, Ref(self._held[place]), job), place) for place in places
        ]
        ticket.keys = [] if ticket.collected else [self._key("partial", number, place) for place in places]
        tasks += [Task(key, _partial, (Ref(updated[key[-1]]),), key[-1]) for key in ticket.keys]
        self._runtime.submit(tasks, [*updated, *ticket.keys])
        self._runtime.drop(set(self._held) - set(self._base))
        self._held, ticket.sent = updated, True

    def _fetch(self, ticket: _Round) -> None:
        if ticket.partials is None:
            # results may be read-only, or be those of a worker in this process; programs may write into theirs
            ticket.partials = own(self._runtime.fetch(ticket.keys))
            self._runtime.drop(ticket.keys)
            ticket.collected = True
            self._restores.forget()

    def save(self) -> list[Any]:
        """Return what the keeper saves of each partition, as it is now; that is a cut."""
        assert self._keeper is not None
        if self._log or not self._saved:
            self._cut(self._keeper)
        return list(self._saved)

    def restore(self, saved: Sequence[Any]) -> None:
        """Bring partitions that are in their first form to where they were saved."""
        self._forget(saved)

    def _cut(self, keeper: Keeper) -> None:
        """Gather what the keeper saves, and forget the rounds that led there."""

        def save() -> list[Any]:
            for ticket in self._log:
                if not ticket.collected:
                    self._fetch(ticket)
            keys = [self._key("save", len(self._log), place) for place in range(len(self._held))]
            tasks = [
                Task(key, _save, (keeper.save, Ref(held)), key[-1]) for key, held in zip(keys, self._held, strict=True)
            ]
            self._runtime.submit(tasks, keys)
            saved = self._runtime.fetch(keys)
            self._runtime.drop(keys)
            return saved

        self._forget(self._surviving(save))

    def _forget(self, saved: Sequence[Any]) -> None:
        """Go on from what has been saved, whatever has been done before."""
        self._saved = list(saved)
        self._runtime.drop({*self._held, *self._lent} - set(self._base))
        self._log, self._held, self._lent = [], [], []

    def _bring(self, what: str, number: int, value: Any) -> Any:
        """Return an argument for tasks: a reference to a future or to a large value, which is put; else the value."""
        if isinstance(value, Future):
            return self._runtime.put((), value, number)
        if sizeof(value) * self.n_partitions <= _INLINE:
            return value
        # what is callable would be called, if it were put as it is
        return self._runtime.put(self._key(what, number, 0), lambda: value, number % self.n_partitions)

    def _lend(self, what: str, number: int, value: Any) -> Any:
        """Bring a value that is of no use after the next cut."""
        brought = self._bring(what, number, value)
        if isinstance(brought, Ref):
            self._lent.append(brought.key)
        return brought

    def _key(self, word: str, number: int, place: int) -> Key:
        return (f"{self._name}-{word}-{self._run}", self._begun, number, place)

    def close(self) -> None:
        """Let go of everything."""
        self._log, self._saved, self._base, self._held, self._lent = [], [], [], [], []
        self._runtime.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
