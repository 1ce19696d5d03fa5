"""A coroutine that a member of a team runs where partitions are, instead of the client.

A round through the client costs 10 to 30 ms, since tasks go by way of the scheduler; among members it costs one or two.
So where rounds cost more than work, the client asks once: the first member runs the coroutine, the others do what it
tells them.  Bits are those of rounds through the client.  Nothing comes of it where a member is lost; the client, whose
coroutine has not begun, then runs that itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

from schmp_estimators.core.engines.dynamic import Coroutine, run_coroutine
from schmp_estimators.core.engines.team import JointJob, Team
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.values import align, own

#: Held while a fit of this process is led.
_leading = threading.Lock()


@contextmanager
def may_lead(place: Place) -> Iterator[bool]:
    """Let one fit at a time be led; yields whether this one may.

    Nobody waits for workers that have other work: two fits that have half of the workers each would wait for each
    other.
    """
    if not _leading.acquire(blocking=False):
        yield False
        return
    try:
        yield place.has_threads_to_spare()
    finally:
        _leading.release()


class LedTeam(Team, Protocol):
    """A team whose first member may tell the others what to do."""

    #: 0 for the first member
    rank: int

    def tell(self, value: Any) -> None:
        """Say something to all others."""

    def listen(self) -> Any:
        """Return what the first member tells, however long that takes."""

    def sum_to_first(self, parts: Sequence[Any]) -> Any:
        """Return the sum over all partitions to the first member, and None to the others."""

    def bring_to_first(self, parts: Sequence[Any]) -> list[Any] | None:
        """Return what is said of each partition, in order, to the first member, and None to the others."""


class _Round(NamedTuple):
    """What members are told to do with each of their partitions."""

    function: Callable[..., Any]
    job: Any
    is_sum: bool


class LedRounds:
    """The rounds of a team, as `run_coroutine` wants them."""

    def __init__(self, partitions: Sequence[Any], team: LedTeam) -> None:
        self.n_rounds = 0
        self._partitions, self._team = list(partitions), team

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> tuple[_Round, list[Any]]:
        """Apply function(partition, job) to every partition."""
        told = _Round(function, job, is_sum)
        self._tell(told)
        return told, self._do(told)

    def collect(self, ticket: tuple[_Round, list[Any]]) -> list[Any]:
        """Return the partial results in partition order, or their sum as the only one."""
        told, partials = ticket
        # a program may write into what it gets, which members may go on reading
        found = [self._team.sum_to_first(partials)] if told.is_sum else self._team.bring_to_first(partials)
        return own(align(found)) if found is not None else []

    def together(self, job: JointJob) -> Any:
        """Return the answer of a job that all partitions do together."""
        self._tell(job)
        return self._solve(job)

    def follow(self) -> None:
        """Do as the first member says, until it has no more to say."""
        while (told := align(self._team.listen())) is not None:
            if isinstance(told, _Round):
                self.collect((told, self._do(told)))
            else:
                self._solve(told)

    def end(self) -> None:
        """Let the others go."""
        self._team.tell(None)

    def _tell(self, what: Any) -> None:
        self.n_rounds += 1
        self._team.tell(what)

    def _do(self, told: _Round) -> list[Any]:
        done = self._team.each(lambda partition: told.function(partition, told.job), self._partitions)
        self._partitions = [partition for partition, _ in done]
        return [partial for _, partial in done]

    def _solve(self, job: JointJob) -> Any:
        return job.solve(self._team.each(job.piece, self._partitions), self._team)


class Told(NamedTuple):
    """What came of a coroutine that was led."""

    #: what `Lead.outcome` makes of the program
    outcome: Any
    #: of its `Report`
    records: list[dict[str, Any]]
    n_rounds: int


class Lead(NamedTuple):
    """Run a coroutine from its beginning to its end; partitions are then as they were."""

    program: Coroutine
    #: makes of the program, when it has ended, what is to travel
    outcome: Callable[[Any], Any]

    def piece(self, partition: Any) -> Any:
        """Return the partition."""
        return partition

    def solve(self, pieces: Sequence[Any], team: LedTeam) -> Told | None:
        """Run the program, or do as the first member says."""
        rounds = LedRounds(pieces, team)
        if team.rank:
            rounds.follow()
            return None
        records: list[dict[str, Any]] = []
        program = deepcopy(self.program)  # the client may be in this process
        run_coroutine(program, rounds, report=records.append)
        rounds.end()
        return Told(self.outcome(program), records, rounds.n_rounds)
