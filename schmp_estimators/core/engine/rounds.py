"""Rounds of a dynamic program: a job is applied to all partitions, and their answers come back.

The coroutine runs in the caller's process.  Partitions are in this process, or with ranks on the
workers of a cluster.  These ranks wait for commands: the client sends a command to rank 0, ranks
pass it on along a tree, and the answers take the way back.  If a worker is lost, partitions are
loaded again and restored to what was saved last; then the rounds since that moment are repeated,
which is possible because jobs are pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import time
from typing import Any, NamedTuple, Self, TypeVar

from schmp_estimators.core.engine.communicator import Alone, Communicator
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.place import Restores
from schmp_estimators.core.places.threads import one_blas_thread, sharing
from schmp_estimators.core.program import Groups
from schmp_estimators.core.reduction import add_up
from schmp_estimators.core.stages import checked, name_of
from schmp_estimators.core.typing import Arguments, Binary, Function, Unary
from schmp_estimators.core.values import align, itself, own

T = TypeVar("T")

#: Number of rounds after which the client saves what has changed in partitions, and forgets these
#: rounds.
KEEP_EVERY = 50


class Answers(NamedTuple):
    """The answers of partitions in a round."""

    #: In partition order; if their sum was asked for, only the sum.
    partials: list[Any]
    #: Whether a job has replaced a partition by another object.
    changed: bool


class Do(NamedTuple):
    """Command: apply ``function(partition, job)``.

    It returns the partition with its new state, and an answer.
    """

    function: Function
    job: Any
    is_sum: bool = False


class Restore(NamedTuple):
    """Command: restore partitions, as they were loaded, from what was saved.

    Of partition `number` that is ``saved[number]``.
    """

    restore: Binary
    saved: Mapping[int, Any]


class Partitions:
    """The partitions of one rank.

    Parameters
    ----------
    communicator : Communicator
    groups : sequence of sequences of int
        The partitions of each rank.
    partitions : sequence
        The partitions of this rank.
    """

    def __init__(
        self, communicator: Communicator, groups: Groups, partitions: Sequence[Any]
    ) -> None:
        self._communicator = communicator
        self._groups = groups
        self._partitions = list(partitions)
        self._numbers = groups[communicator.rank]
        self._count = sum(map(len, groups))
        #: The leaves of the tree in which answers are added up.
        self._leaves = [(0, number) for number in self._numbers]

    def work(self, command: Do | Restore) -> Answers | None:
        """Execute a command; return all partitions' answers on rank 0, None on others."""
        with one_blas_thread(), sharing(self._communicator.each):
            if isinstance(command, Restore):
                restored = zip(self._partitions, self._numbers, strict=True)
                self._partitions = [
                    command.restore(one, command.saved[number]) for one, number in restored
                ]
                return Answers([], True)
            return self._do(command)

    def ask(self, command: Do | Restore) -> Callable[[], Answers | None]:
        """Execute a command, and return a function that returns the answers."""
        answers = self.work(command)
        return lambda: answers

    def _do(self, command: Do) -> Answers | None:
        name = name_of(command.job).strip("_").replace("_", "-").lower()  # on the dashboard

        def apply(i: int) -> tuple[Any, int]:
            before = self._partitions[i]
            began = time()
            try:
                self._partitions[i], answer = checked(
                    command.function(before, command.job), command.function, command.job
                )
            except Exception as error:
                called = name_of(command.job) if callable(command.job) else "update"
                error.add_note(f"in {called}, piece {self._numbers[i]}")
                raise
            self._communicator.note(name, began)
            return answer, int(self._partitions[i] is not before)

        answers = self._communicator.each(apply, range(len(self._partitions)))
        if not command.is_sum:
            found = self._communicator.gather(dict(zip(self._numbers, answers, strict=True)))
            if found is None:
                return None
            of_all = {number: one for some in found for number, one in some.items()}
            partials, are_changed = zip(*map(of_all.__getitem__, range(self._count)), strict=True)
            return Answers(list(partials), any(are_changed))
        nodes = add_up(dict(zip(self._leaves, answers, strict=True)), self._count)
        total = self._communicator.reduce(nodes, self._count, least=1)
        if total is None:
            return None
        [(partial, n_changed)] = total.values()
        return Answers([partial], n_changed > 0)


def serve(
    communicator: Communicator,
    receive: Callable[[], Any],
    answer: Callable[[Any], None],
    groups: Any,
    *held: Any,
) -> None:
    """Let a rank execute commands on its partitions until it gets None.

    Parameters
    ----------
    communicator : Communicator
    receive, answer : callable
        Functions for rank 0: one returns the next command, the other takes the answers.
    groups : sequence of sequences of int
        The partitions of each rank.
    *held : object
        The partitions of this rank.
    """
    partitions = Partitions(communicator, groups, [align(one) for one in held])
    while True:
        command = align(receive() if communicator.rank == 0 else communicator.broadcast())
        if communicator.rank == 0:
            communicator.broadcast(command)
        if command is None:
            break
        answers = partitions.work(command)
        if not communicator.rank:
            answer(answers)


class Piece(NamedTuple):
    """A partition that is made where it will be used: ``function(*parts)``.

    The parts are values or futures.
    """

    function: Function
    parts: Arguments = ()


def make(piece: Any) -> Any:
    """Return the partition that a piece stands for, or that it is."""
    return piece.function(*piece.parts) if isinstance(piece, Piece) else piece


class Keeper(NamedTuple):
    """Functions that save and restore what the jobs of a coroutine change in the pieces of data.

    `run` explains coroutines, jobs and pieces.  Changes are saved for checkpoints, and on a cluster
    after every 50 jobs.  Without a keeper, jobs of a run with a checkpoint may not change pieces,
    and a cluster sends all pieces to the client if any has changed.  A job has changed a piece if
    it returns another object than it received.

    Parameters
    ----------
    save : callable
        ``save(piece)`` returns what jobs have changed: arrays, numbers, or tuples, lists and dicts
        of them.  The result is sent to the client, so it should be small.
    restore : callable
        ``restore(piece, saved)`` returns the changed piece, given the original piece and what was
        saved.
    """

    save: Unary
    restore: Binary


@dataclass(eq=False)
class Round:
    """A round since partitions were last saved: its command, to repeat it, and its answers."""

    command: Do
    #: A function that waits for the answers; both are None after the answers have been collected.
    pending: Any = None
    answers: Answers | None = None
    collected: bool = False
    #: Number of the round, from 1.
    number: int = 0


class Rounds:
    """Holds the partitions of a run, and applies functions to them where they are.

    Parameters
    ----------
    place : Place
        Where the partitions are.
    partitions : sequence
        The partitions in their order: futures, objects of class `Piece`, or values.  On a cluster
        the client keeps the values, too, in case they are lost.
    name : str
        Name of the tasks on the dashboard.
    keeper : Keeper, optional
        How to save what has changed.  Without one the client gathers all partitions if any has
        changed.
    around : callable, optional
        Called as ``around(function, partition, job)`` instead of ``function(partition, job)``.
    """

    def __init__(
        self,
        place: Any,
        partitions: Sequence[Any],
        name: str = "regression",
        keeper: Keeper | None = None,
        around: Function | None = None,
    ) -> None:
        self.n_rounds = 0
        self.n_partitions = len(partitions)
        self._place = place
        self._pieces = list(partitions)
        self._name = name
        self._keeper = keeper
        self._around = around
        self._saved: list[Any] | None = None
        self._log: list[Round] = []
        #: The partitions in this process, or a service of ranks elsewhere.
        self._served: Any = None
        #: Whether a round since partitions were last saved has changed any.
        self._have_changed = False
        self._restores = Restores(place, "a further round was done")

    def submit(self, function: Function, job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition; return a ticket.

        The new partitions are kept.

        With `is_sum` partial results are added up on their way.
        """
        if self._around is not None:
            function = partial(self._around, function)
        return self._send(Do(function, job, is_sum))

    def collect(self, ticket: Any) -> list[Any]:
        """Return the partial results of a ticket, in partition order.

        The caller may write into them.
        """
        return own(self._answers(ticket))

    def save(self) -> list[Any]:
        """Return what the keeper saves of each partition after all rounds so far."""
        assert self._keeper is not None
        saved = self._asked(_saving, self._keeper.save)
        self._forget(saved)
        return saved

    def restore(self, saved: Sequence[Any]) -> None:
        """Restore partitions that have just been loaded to their saved state."""
        assert self._keeper is not None
        self._surviving(partial(self._done, Restore(self._keeper.restore, dict(enumerate(saved)))))
        self._forget(list(saved))

    def _service(self) -> Any:
        """Return the partitions, or the service of ranks that work on them.

        If there are none, they are made and restored to what was saved last, and the rounds since
        then are repeated.
        """
        if self._served is None:
            self._served = (
                self._made_here()
                if self._place.is_local
                else self._place.serve(self._name, self._pieces)
            )
            if self._saved is not None:
                assert self._keeper is not None
                self._served.ask(Restore(self._keeper.restore, dict(enumerate(self._saved))))()
            for ticket in self._log:
                ticket.pending = self._served.ask(ticket.command)
                if ticket.collected:
                    ticket.pending()
        return self._served

    def _made_here(self) -> Partitions:
        """Make the partitions in this process; drop each piece as soon as it has been used."""
        made = []
        for number, piece in enumerate(self._pieces):
            self._pieces[number] = None
            made.append(make(piece))
        return Partitions(Alone(self._place.each), [range(len(made))], made)

    def _send(self, command: Do) -> Round:
        """Start a round."""
        self.n_rounds += 1
        if len(self._log) >= KEEP_EVERY:
            self._keep()
        with self._naming(self.n_rounds):
            asked = self._surviving(lambda: self._service().ask(command))
        ticket = Round(command, asked, number=self.n_rounds)
        if not self._place.is_local:  # nothing is lost in this process
            self._log.append(ticket)
        return ticket

    @contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Say in an error of a job in which round it was raised."""
        try:
            yield
        except Exception as error:
            error.add_note(f"in round {number} of {self._name}")
            raise

    def _answers(self, ticket: Round) -> list[Any]:
        """Return the answers to a round, which can be asked for only once."""
        with self._naming(ticket.number):
            answers = self._result(ticket)
        ticket.pending = None
        ticket.answers = None
        ticket.collected = True
        self._restores.forget()
        return answers.partials

    def _result(self, ticket: Round) -> Answers:
        """Wait for a round, and return its answers."""

        def result() -> Answers:
            self._service()
            found: Answers = ticket.pending()
            return found

        if ticket.answers is None:
            ticket.answers = self._surviving(result)
            self._have_changed |= ticket.answers.changed
        return ticket.answers

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns.

        If work is lost, make the partitions again and try again.
        """
        while True:
            try:
                return action()
            except WorkLostError as error:
                self._end()
                parts = [one.parts if isinstance(one, Piece) else (one,) for one in self._pieces]
                self._restores.prepare(error, f"rounds to repeat: {len(self._log)}", chain(*parts))

    def _asked(self, function: Function, job: Any) -> list[Any]:
        """Apply a function to all partitions after all rounds so far, and return the answers."""
        for ticket in self._log:
            if not ticket.collected:
                self._result(ticket)
        return own(self._surviving(partial(self._done, Do(function, job))).partials)

    def _done(self, command: Do | Restore) -> Answers:
        """Execute a command that is not a round, and return the answers."""
        found: Answers = self._service().ask(command)()
        return found

    def _keep(self) -> None:
        """Save what the keeper saves, and forget all rounds so far.

        Without a keeper, save all partitions if any has changed.
        """
        if self._keeper is not None:
            self.save()
            return
        self._asked(
            _saving, _nothing
        )  # this waits for all rounds, so that it is known whether they changed anything
        if self._have_changed:
            self._pieces = self._asked(_saving, itself)
        self._forget(None)

    def _forget(self, saved: list[Any] | None) -> None:
        """Forget all rounds so far; after a loss, the run continues from `saved`."""
        self._saved = saved
        self._log = []
        self._have_changed = False
        if self._surviving(self._place.deal):  # workers have joined: partitions are dealt anew
            self._end()

    def _end(self) -> None:
        served = self._served
        self._served = None
        if served is not None and not self._place.is_local:
            served.close()

    def close(self) -> None:
        """Release everything."""
        self._end()
        self._log = []
        self._saved = None
        self._pieces = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _saving(partition: Any, save: Unary) -> tuple[Any, Any]:
    return partition, save(partition)


def _nothing(partition: Any) -> None:
    return None
