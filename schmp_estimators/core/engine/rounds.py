"""The partitions of a dynamic program, wherever they live: functions go to them, and answers come back.

A coroutine runs with the caller, who may be called back at any step, or as a whole at rank 0.  Partitions live in this
process, or with ranks on the workers of a cluster, who wait for what they are to do next: a round is a message to rank
0, from there down a tree of ranks, and the way back.  If a worker is lost, partitions are made anew, brought to where
they were last saved, and the rounds since then are done again: jobs are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from schmp_estimators.core.engine.communicator import Alone
from schmp_estimators.core.engine.dynamic import Coroutine
from schmp_estimators.core.engine.partitions import Answers, Do, Lead, Partitions, Restore
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.restores import Restores
from schmp_estimators.core.values import own

T = TypeVar("T")

#: After how many rounds the client keeps what has changed of the partitions, so that the rounds can be forgotten.
KEEP_EVERY = 50


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
        ``restore(piece, saved)`` returns the piece as it was, made of its first form.
    """

    save: Callable[[Any], Any]
    restore: Callable[[Any, Any], Any]


class Pending(Protocol):
    """Answers that are on their way."""

    def result(self) -> Answers:
        """Wait for them."""


class Service(Protocol):
    """Partitions that wait for commands."""

    def ask(self, command: Do | Restore | Lead) -> Pending:
        """Send a command; commands are worked off in their order."""

    def close(self) -> None:
        """End the service, whether it works or not."""


class _Done(NamedTuple):
    answers: Answers

    def result(self) -> Answers:
        return self.answers


class Here:
    """The service of partitions in this process."""

    def __init__(self, partitions: Sequence[Any], each: Callable[..., Any]) -> None:
        self._partitions = Partitions(Alone(each), [range(len(partitions))], partitions)

    def ask(self, command: Do | Restore | Lead) -> Pending:
        """Do what is asked for at once."""
        answers = self._partitions.work(command)
        assert answers is not None
        return _Done(answers)

    def close(self) -> None:
        """Do nothing: partitions go with the service."""


@dataclass(eq=False)
class Round:
    """A round since partitions were kept: what it takes to do it again, and its answers."""

    command: Do | Lead
    pending: Pending | None = None
    collected: bool = False
    changed: bool = True


class Rounds:
    """Holds row partitions, and applies functions to them where they are.

    Parameters
    ----------
    place : Place
        Where partitions live.
    partitions : sequence
        The partitions in their order: futures, pieces that are made where they will live, or values, which stay with
        the client too, if there they can be lost.
    name : str
        What the tasks are called on the dashboard.
    keeper : Keeper, optional
        How to keep what has changed.  Without one the client gathers the partitions, if they have changed.
    """

    def __init__(
        self, place: Any, partitions: Sequence[Any], name: str = "regression", keeper: Keeper | None = None
    ) -> None:
        self.n_rounds = 0
        self.n_partitions = len(partitions)
        self._place, self._pieces, self._name, self._keeper = place, list(partitions), name, keeper
        self._saved: list[Any] | None = None
        self._log: list[Round] = []
        self._service: Service | None = None
        self._restores = Restores(place, "a round being finished")

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> Round:
        """Apply function(partition, job) to every partition, keep the new partitions, return a ticket.

        If `is_sum`, partial results are added up on their way.
        """
        return self._submit(Do(function, job, is_sum))

    def lead(self, program: Coroutine) -> Any:
        """Let rank 0 run a coroutine to its end, and return the coroutine as it is then; this one stays as it is.

        Its rounds do not pass this process, and so are faster.  If work is lost, all of them are done again.
        """
        [led] = self._answers(self._submit(Lead(program)))
        return deepcopy(led)  # a journey leaves arrays read-only, or at odd addresses

    def _submit(self, command: Do | Lead) -> Round:
        if len(self._log) >= KEEP_EVERY:
            self._keep()
        ticket = Round(command)
        self.n_rounds += 1
        ticket.pending = self._surviving(lambda: self._served().ask(ticket.command))
        if not self._place.is_local:
            self._log.append(ticket)
        return ticket

    def collect(self, ticket: Round) -> list[Any]:
        """Return the partial results of a ticket, in partition order; the caller may write into them."""
        return own(self._answers(ticket))

    def _answers(self, ticket: Round) -> list[Any]:
        answers = self._surviving(partial(self._result, ticket))
        ticket.pending, ticket.collected = None, True
        self._restores.forget()
        return answers.partials

    def save(self) -> list[Any]:
        """Return what the keeper saves of each partition, after all rounds so far."""
        assert self._keeper is not None
        saved = self._asked(_saving, self._keeper.save)
        if not self._place.is_local:
            self._forget(saved)
        return saved

    def restore(self, saved: Sequence[Any]) -> None:
        """Bring partitions that are in their first form to where they were saved."""
        assert self._keeper is not None
        command = Restore(self._keeper.restore, dict(enumerate(saved)))
        self._surviving(lambda: self._served().ask(command).result())
        self._forget(list(saved))

    def _served(self) -> Service:
        """Return the service; where there is none, begin it, and do the rounds since partitions were kept."""
        if self._service is None:
            self._service = self._place.serve(self._name, self._pieces)
            if self._saved is not None:
                assert self._keeper is not None
                self._service.ask(Restore(self._keeper.restore, dict(enumerate(self._saved)))).result()
            for ticket in self._log:
                pending = self._service.ask(ticket.command)
                if ticket.collected:
                    pending.result()
                else:
                    ticket.pending = pending
        return self._service

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns; if work is lost on the way, begin anew."""
        while True:
            try:
                return action()
            except WorkLostError as error:
                self._end()
                self._restores.prepare(error, f"doing {len(self._log)} rounds again")

    def _asked(self, function: Callable[..., Any], job: Any) -> list[Any]:
        """Return the answers of all partitions, once those to all rounds so far are here."""
        for ticket in self._log:
            if not ticket.collected:
                ticket.pending = _Done(self._surviving(partial(self._result, ticket)))
        found = self._surviving(lambda: self._served().ask(Do(function, job)).result())
        return own(found.partials)

    def _result(self, ticket: Round) -> Answers:
        self._served()
        assert ticket.pending is not None
        answers = ticket.pending.result()
        ticket.changed = answers.changed
        return answers

    def _keep(self) -> None:
        """Keep what the keeper saves, or else partitions that have changed, and forget the rounds that led there."""
        if self._keeper is not None:
            self.save()
            return
        self._asked(_saving, _nothing)  # only then is it known whether rounds have changed anything
        if any(ticket.changed for ticket in self._log):
            self._pieces = self._asked(_saving, _itself)
        self._forget(None)

    def _forget(self, saved: list[Any] | None) -> None:
        """Go on from what has been saved, whatever has been done before."""
        self._saved = saved
        self._log = []
        if not self._place.is_local and self._place.deal():  # workers have come: partitions go where they belong now
            self._end()

    def _end(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def close(self) -> None:
        """Let go of everything."""
        self._end()
        self._log, self._saved, self._pieces = [], None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _saving(partition: Any, save: Callable[[Any], Any]) -> tuple[Any, Any]:
    return partition, save(partition)


def _itself(partition: Any) -> Any:
    return partition


def _nothing(partition: Any) -> None:
    return None
