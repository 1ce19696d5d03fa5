"""The row partitions of a rank, and what is done with them in the rounds of a dynamic program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from time import time
from typing import Any, NamedTuple

from schmp_estimators.core.engine.communicator import Communicator
from schmp_estimators.core.engine.dynamic import Coroutine, run_coroutine
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.reduction import add_up
from schmp_estimators.core.stages import described
from schmp_estimators.core.values import align, own


class Answers(NamedTuple):
    """What partitions answer in a round."""

    #: In partition order, or their sum as the only one.
    partials: list[Any]
    #: Whether a partition is another one now.
    changed: bool


class Do(NamedTuple):
    """Apply ``function(partition, job)``, which returns the partition with its new state, and an answer."""

    function: Callable[..., Any]
    job: Any
    is_sum: bool = False


class Restore(NamedTuple):
    """Bring partitions in their first form to where they were when ``saved[number]`` was saved of them."""

    restore: Callable[[Any, Any], Any]
    saved: Mapping[int, Any]


class Lead(NamedTuple):
    """Let rank 0 run a coroutine to its end; the only answer is the coroutine as it is then."""

    program: Coroutine


class Partitions:
    """Some of the partitions of a problem, those of one rank.

    Parameters
    ----------
    communicator : Communicator
    groups : sequence of sequences of int
        The partitions of each rank.
    partitions : sequence
        Those of this rank.
    """

    def __init__(self, communicator: Communicator, groups: Sequence[Sequence[int]], partitions: Sequence[Any]) -> None:
        self._communicator, self._groups, self._partitions = communicator, groups, list(partitions)
        self._numbers, self._count = groups[communicator.rank], sum(map(len, groups))
        #: Of the tree of a sum.
        self._leaves = [(0, number) for number in self._numbers]

    def work(self, command: Do | Restore | Lead) -> Answers | None:
        """Do what is asked for; return the answers of all partitions on rank 0, and None on the others."""
        with one_blas_thread():
            if isinstance(command, Lead):
                # the client's own may be in this process; and arrays that have travelled may lie at odd addresses
                program = deepcopy(command.program)
                run_coroutine(program, self)
                return Answers([program], True)
            if isinstance(command, Restore):
                restored = zip(self._partitions, self._numbers, strict=True)
                self._partitions = [command.restore(one, command.saved[number]) for one, number in restored]
                return Answers([], True)
            return self._do(command)

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> list[Any]:
        """Let all ranks apply function(partition, job) to their partitions; return the answers."""
        self._communicator.check_wanted()
        answers = self._do(self._communicator.broadcast(Do(function, job, is_sum)))
        assert answers is not None
        return answers.partials

    def collect(self, ticket: list[Any]) -> list[Any]:
        """Return the answers, as the caller's own: he may write into them."""
        return own(ticket)

    def _do(self, command: Do) -> Answers | None:
        name = _name_of(command.job).strip("_").replace("_", "-").lower()  # on the dashboard

        def apply(i: int) -> tuple[Any, int]:
            before, began = self._partitions[i], time()
            self._partitions[i], answer = checked(command.function(before, command.job), command.function, command.job)
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
    communicator: Communicator, receive: Callable[[], Any], answer: Callable[[Any], None], groups: Any, *held: Any
) -> None:
    """Let a rank work on its partitions, as commands come, until there is a None.

    Parameters
    ----------
    communicator : Communicator
    receive, answer : callable
        Give rank 0 the next command, and take its answers.
    groups : sequence of sequences of int
        The partitions of each rank.
    *held : object
        Those of this rank.
    """
    partitions = Partitions(communicator, groups, [align(one) for one in held])
    while True:
        command = align(receive() if communicator.rank == 0 else communicator.broadcast())
        if communicator.rank == 0 and not isinstance(command, Lead):
            communicator.broadcast(command)
        if command is None:
            break
        answers = partitions.work(command)
        if not communicator.rank:
            answer(answers)


def checked(made: Any, function: Callable[..., Any], job: Any) -> tuple[Any, Any]:
    """Return what a function has returned of a partition and a job, which may be a function itself.

    Raises
    ------
    TypeError
        If that is not a partition and an answer.
    """
    if isinstance(made, (tuple, list)) and len(made) == 2:
        return made[0], made[1]
    name = _name_of(job if callable(job) else function)
    raise TypeError(f"the job {name} returned {described(made)}; a job returns (piece, answer)")


def _name_of(job: Any) -> str:
    """Return the name of a function, or else of the type of an object."""
    function = getattr(job, "func", job)
    name: str = getattr(function, "__name__", type(function).__name__)
    return name
