"""The dynamic engine's partitions, wherever they live: functions go to them, and partial results come back.

A round is one graph with two tasks for a partition: the update, whose result stays, and its partial result, which
travels.  Updates are pure, so Dask computes a partition that was lost with its worker again from the rounds before.  If
that is impossible, because no worker has what it takes, the rounds since the last cut are sent anew.  At a cut they are
forgotten: the run goes on from what was saved of the partitions, or from these as they were, if no round has changed
any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from schmp_estimators.core.engines.dynamic import Coroutine
from schmp_estimators.core.engines.leading import Lead, Told, may_lead
from schmp_estimators.core.engines.ledger import Ledger, word_of
from schmp_estimators.core.engines.team import Alone, JointJob, TakePiece
from schmp_estimators.core.engines.updates import (
    Answer,
    Kept,
    answer_of,
    as_it_is,
    call,
    partition_of,
    restored,
    save_of,
    sum_of,
    update,
    update_there,
)
from schmp_estimators.core.places.place import Key, Place, Ref, Task
from schmp_estimators.core.reduction import FAN_IN, groups
from schmp_estimators.core.values import align, own


class Piece(NamedTuple):
    """A partition that is made where it will live: ``function(*parts)``, where parts are values or futures."""

    function: Callable[..., Any]
    parts: tuple[Any, ...] = ()


class Keeper(NamedTuple):
    """How to keep what jobs have changed of the pieces of data, so that the jobs before can be forgotten.

    On a cluster this is done after every 50 rounds, and for checkpoints.  Without a keeper the whole pieces come to the
    client then, if a job has changed one, that is, has returned another than it was given.

    Parameters
    ----------
    save : callable
        ``save(piece)`` returns the part that jobs have changed: arrays, numbers, or tuples, lists and dicts of them.
        It should be small, as it comes to the client.
    restore : callable
        ``restore(piece, saved)`` returns the piece as it was, made of its first form.  From a checkpoint, tuples in
        `saved` come back as lists.
    """

    save: Callable[[Any], Any]
    restore: Callable[[Any, Any], Any]


@dataclass(eq=False)
class Round:
    """A round since the last cut: what it takes to make it again, and where its results are."""

    function: Callable[..., Any]
    job: Any
    is_sum: bool = False
    #: of the partial results, once it has been sent
    keys: list[Key] = field(default_factory=list)
    sent: bool = False
    collected: bool = False
    #: Whether it has changed a partition; known when it has been collected.
    changed: bool = True
    partials: list[Any] | None = None


class Rounds:
    """Holds row partitions, and applies functions to them where they are.

    Parameters
    ----------
    place : Place
        Where tasks are executed.
    partitions : sequence
        The partitions in their order: futures, pieces that are made where they will live, or values, which stay with
        the client too, if there they can be lost.
    name : str
        What the tasks are called on the dashboard.
    keeper : Keeper, optional
        How to cut: after ``place.cut_every`` rounds the client gathers what it saves, and goes on from there.
        Without one it gathers the partitions, if they have changed.
    """

    def __init__(
        self,
        place: Place,
        partitions: Sequence[Any],
        name: str = "regression",
        keeper: Keeper | None = None,
    ) -> None:
        self.n_rounds = 0
        self._place, self._pieces, self._keeper = place, list(partitions), keeper
        self._saved: list[Any] = []
        place.expect(len(self._pieces))
        #: Where nothing is ever lost, rounds need not be remembered.
        self._lossless = place.is_local
        self._log: list[Round] = []
        self._base: list[Key] = []
        self._held: list[Key] = []
        self._ledger = Ledger(place, name, self._begin, self._lose, "a round being finished")
        #: Whether partitions may talk to each other; once they have failed to, the client does without.
        self._talking = not self._lossless

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._pieces)

    @property
    def members(self) -> int:
        """Number of processes among which the partitions are, at most."""
        return min(self._place.n_processes, self.n_partitions)

    @property
    def memory_of_a_member(self) -> int:
        """Bytes that each of them may use, on average; 0 if there is no limit."""
        return self._place.memory_limit // self._place.n_processes

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> Round:
        """Apply function(partition, job) to every partition, keep the new partitions, return a ticket.

        If `is_sum`, partial results are added up on their way, as far as that saves travels.
        """
        if self._lossless and self.n_partitions == 1:
            return self._do(Round(function, job))
        if len(self._log) >= self._place.cut_every > 0:
            self._cut()
        ticket = Round(function, job, is_sum)
        self._log.append(ticket)
        self._ledger.surviving(self._send_all)
        self.n_rounds += 1
        return ticket

    def collect(self, ticket: Round) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""
        if ticket.partials is None:
            self._ledger.surviving(partial(self._fetch, ticket))
        partials, ticket.partials = ticket.partials, None
        assert partials is not None
        return partials if self._lossless else align(partials)  # what has not travelled is where it should be

    def _do(self, ticket: Round) -> Round:
        """Do a round of the only partition, which is here: tasks would take longer than much of what fits do."""
        [key] = self._ledger.surviving(lambda: self._held)
        [held] = self._place.fetch([key])
        after, answer = ticket.function(partition_of(held), ticket.job)
        if isinstance(held, Kept):
            held.partition = after
        else:
            self._place.put(key, Kept(after, None), 0)
        self._base = []  # no first form is needed again
        ticket.partials = [own(answer)]
        self.n_rounds += 1
        return ticket

    def together(self, job: JointJob) -> Any:
        """Return the answer of a job that all partitions do together: where they are, if they can talk."""
        answer = self._meet(job) if self._talking else None
        if answer is None:
            answer = job.solve(self.collect(self.submit(call, TakePiece(job))), Alone())
        return answer

    def lead(self, program: Coroutine, outcome: Callable[[Any], Any]) -> Told | None:
        """Let one of those who have partitions run a program that has not begun; returns what comes of it.

        If nothing does, None, the program has still not begun.  Partitions are as they were before.
        """
        if not self._talking:
            return None
        with may_lead(self._place) as granted:
            told: Told | None = self._meet(Lead(program, outcome)) if granted else None
        self.n_rounds += told.n_rounds if told else 0
        return told

    def _meet(self, job: JointJob | Lead) -> Any:
        """Return what comes of a meeting of all partitions; None ends all meetings."""
        found = self._ledger.surviving(partial(self._call_together, job))
        self._talking = found is not None
        return found

    def _call_together(self, job: JointJob | Lead) -> Any:
        self.n_rounds += 1
        number = self.n_rounds
        keys = [self._ledger.key(f"{word_of(job)}-together", number, place) for place in range(len(self._held))]
        brought = self._bring("joint", number % len(keys), job, number, uses=len(keys))
        return self._place.together(keys, brought, partition_of, self._held)

    def save(self) -> list[Any]:
        """Return what the keeper saves of each partition, after all rounds so far; that is a cut."""
        assert self._keeper is not None
        if self._lossless:
            return self._ledger.surviving(partial(self._gather, self._keeper.save))
        if self._log or not self._saved:
            self._cut()
        return list(self._saved)

    def restore(self, saved: Sequence[Any]) -> None:
        """Bring partitions that are in their first form to where they were saved."""
        self._ledger.surviving(lambda: None)
        self._base = self._base or self._held
        self._forget(list(saved))

    def _lose(self) -> str:
        self._base, self._held = [], []
        for ticket in self._log:
            ticket.sent = False
        return f"making the last {len(self._log)} rounds again"

    def _begin(self) -> None:
        if self._base and self._place.deal():  # workers have come: make partitions anew, where they belong now
            self._place.drop(self._base)
            self._base = []
        tasks: list[Task] = []
        if not self._base:
            self._place.settle([piece.parts if isinstance(piece, Piece) else [piece] for piece in self._pieces])
            for number in range(len(self._pieces)):
                tasks.append(self._load(number))
                if self._lossless:  # one after the other, so that each piece can go
                    self._pieces[number] = None
                    self._submit([tasks.pop()])
            self._base = [self._ledger.key("load", number) for number in range(len(self._pieces))]
        self._held = list(self._base)
        if self._keeper is not None and self._saved:
            self._held = [self._ledger.key("restore", number) for number in range(len(self._base))]
            for number, (base, saved) in enumerate(zip(self._base, self._saved, strict=True)):
                arguments = (self._keeper.restore, Ref(base), self._bring("saved", number, saved))
                tasks.append(Task(self._held[number], restored, arguments, number))
        self._submit(tasks)
        self._send_all()

    def _load(self, number: int) -> Task:
        piece = self._pieces[number]
        function, parts = piece if isinstance(piece, Piece) else (as_it_is, (piece,))
        brought = (self._bring(f"part-{i}", number, part) for i, part in enumerate(parts))
        return Task(self._ledger.key("load", number), function, tuple(brought), number)

    def _submit(self, tasks: list[Task]) -> None:
        if tasks:
            self._place.submit(tasks, [task.key for task in tasks])

    def _send_all(self) -> None:
        for ticket in self._log:
            if not ticket.sent:
                self._send(ticket)
        if self._lossless:
            self._log = []

    def _send(self, ticket: Round) -> None:
        number = self.n_rounds if self._lossless else self._log.index(ticket)
        job = self._bring("job", number % len(self._held), ticket.job, number, uses=len(self._held))
        word, function = word_of(ticket.job), update if self._lossless else update_there
        updated = [self._ledger.key(word, number, place) for place in range(len(self._held))]
        tasks = [
            Task(key, function, (ticket.function, Ref(held), job), place)
            for place, (key, held) in enumerate(zip(updated, self._held, strict=True))
        ]
        ticket.keys = []
        if not (self._lossless or ticket.collected):
            ticket.keys = [self._ledger.key("partial", number, place) for place in range(len(updated))]
            tasks += [Task(key, answer_of, (Ref(updated[place]),), place) for place, key in enumerate(ticket.keys)]
            if ticket.is_sum:
                tasks += self._add_up(ticket, number)
        self._place.submit(tasks, [*updated, *ticket.keys])
        if self._lossless:  # no first form is needed again
            self._base = []
        self._place.drop(set(self._held) - set(self._base))
        self._held, ticket.sent = updated, True
        if self._lossless:
            kept: list[Kept] = self._place.fetch(updated)
            ticket.partials = [own(one.partial) for one in kept]
            for one in kept:
                one.partial = None
            self._ledger.collect()

    def _add_up(self, ticket: Round, number: int) -> list[Task]:
        """Return the tasks of a tree that adds partial results up, so that few of them travel to the client."""
        tasks, width = [], 1
        while len(ticket.keys) > FAN_IN:
            width, grouped = width * FAN_IN, groups(ticket.keys)
            ticket.keys = [self._ledger.key("add-up", number, place * width, width) for place in range(len(grouped))]
            tasks += [
                Task(key, sum_of, tuple(map(Ref, group)), place * width)
                for place, (key, group) in enumerate(zip(ticket.keys, grouped, strict=True))
            ]
        return tasks

    def _fetch(self, ticket: Round) -> None:
        if ticket.partials is None:
            # results may be read-only, or be those of a worker in this process; programs may write into theirs
            answers: list[Answer] = self._place.fetch(ticket.keys)
            ticket.partials = own([one.partial for one in answers])
            ticket.changed = any(one.changed for one in answers)
            self._place.drop(ticket.keys)
            ticket.collected = True
            self._ledger.progress()

    def _fetch_all(self) -> None:
        for ticket in self._log:
            if not ticket.collected:
                self._fetch(ticket)

    def _gather(self, save: Callable[[Any], Any]) -> list[Any]:
        self._fetch_all()
        keys = [self._ledger.key("save", len(self._log), place) for place in range(len(self._held))]
        self._submit([
            Task(key, save_of, (save, Ref(held)), place)
            for place, (key, held) in enumerate(zip(keys, self._held, strict=True))
        ])  # fmt: skip
        saved = own(self._place.fetch(keys))
        self._place.drop(keys)
        return saved

    def _cut(self) -> None:
        """Gather what the keeper saves, or else partitions that have changed, and forget the rounds that led there."""
        if self._keeper is not None:
            self._forget(self._ledger.surviving(partial(self._gather, self._keeper.save)))
            return
        self._ledger.surviving(self._fetch_all)
        if any(ticket.changed for ticket in self._log):
            self._pieces = self._ledger.surviving(partial(self._gather, as_it_is))
            self._place.drop(self._base)
            self._base = []
        self._forget([])

    def _forget(self, saved: list[Any]) -> None:
        """Go on from what has been saved, whatever has been done before."""
        self._saved = saved
        self._place.drop(set(self._held) - set(self._base))
        self._ledger.collect()
        self._log = []
        self._ledger.surviving(self._ledger.begin)

    def _bring(self, what: str, number: int, value: Any, *at: int, uses: int = 1) -> Any:
        """Return an argument for tasks: the value itself, or a reference where that is too large or elsewhere."""
        return self._place.argument(value, uses, partial(self._ledger.lend, what, number, at=at))

    def close(self) -> None:
        """Let go of everything."""
        self._log, self._saved, self._base, self._held, self._pieces = [], [], [], [], []
        self._place.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
