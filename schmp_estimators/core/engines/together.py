"""Several coroutines on the same partitions, whose jobs travel together.

A round costs the same for one job as for several, so coroutines that do not know of each other send theirs in one.
There are two groups of them: while the client works for one, partitions work for the other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from schmp_estimators.core.engines.dynamic import PlaceOfRounds, Steps, Sum, apply_job
from schmp_estimators.core.reduction import tree_sum

_GROUPS = 2


class Batch(NamedTuple):
    """Several jobs as one."""

    jobs: tuple[Any, ...]

    @property
    def func(self) -> Any:
        """What the dashboard names."""
        return getattr(self.jobs[0], "func", self.jobs[0])

    def __call__(self, partition: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return what the jobs make of the partition, one after the other, and their answers."""
        answers = []
        for job in self.jobs:
            partition, answer = job(partition)
            answers.append(answer)
        return partition, tuple(answers)


class _Group:
    """Runs that go on at the same time, each with one job out."""

    def __init__(self, results: dict[int, Any]) -> None:
        self._results = results
        self._steps: dict[int, Steps] = {}
        self._asked: dict[int, Any] = {}

    def begin(self, number: int, steps: Steps) -> None:
        """Take a run in."""
        self._steps[number] = steps
        self._go_on(number, None)

    def send(self, place: PlaceOfRounds) -> Any:
        """Send the jobs of all runs, as one; returns the ticket, or None if there are none."""
        if not self._asked:
            return None
        jobs = tuple(step.job if isinstance(step, Sum) else step for step in self._asked.values())
        is_sum = all(isinstance(step, Sum) for step in self._asked.values())
        return place.submit(apply_job, Batch(jobs), is_sum=is_sum)

    def answer(self, partials: Sequence[tuple[Any, ...]]) -> int:
        """Let all runs go on with their answers; returns how many have ended."""
        asked, self._asked = self._asked, {}
        for (number, step), answers in zip(asked.items(), zip(*partials, strict=True), strict=True):
            self._go_on(number, tree_sum(answers) if isinstance(step, Sum) else list(answers))
        return len(asked) - len(self._asked)

    def _go_on(self, number: int, answer: Any) -> None:
        try:
            self._asked[number] = self._steps[number].send(answer)
        except StopIteration as end:
            self._results[number] = end.value
            del self._steps[number]

    def close(self) -> None:
        """End what has not ended."""
        for steps in self._steps.values():
            steps.close()


def run_together(runs: Iterable[Callable[[], Steps]], place: PlaceOfRounds, at_a_time: int) -> list[Any]:
    """Run coroutines that yield nothing but jobs, and return what they return.

    Each must keep what it changes of a partition apart from what the others change.  Who goes with whom, and in which
    order, is the same in every run.

    Parameters
    ----------
    runs : iterable of callables
        Each returns the steps of a run.
    place : PlaceOfRounds
        Where the partitions are.
    at_a_time : int
        How many runs are under way at a time.
    """
    results: dict[int, Any] = {}
    numbered = enumerate(runs)
    groups = [_Group(results) for _ in range(min(_GROUPS, at_a_time))]
    out: deque[tuple[_Group, Any]] = deque()

    def send(group: _Group, wanted: int) -> None:
        """Let so many more runs begin, and send what the group asks for."""
        while wanted:
            before = len(results)
            for number, make in islice(numbered, wanted):
                group.begin(number, make())
            wanted = len(results) - before
        ticket = group.send(place)
        if ticket is not None:
            out.append((group, ticket))

    try:
        for position, group in enumerate(groups):
            send(group, len(range(position, at_a_time, len(groups))))
        while out:
            group, ticket = out.popleft()
            send(group, group.answer(place.collect(ticket)))
    finally:
        for group in groups:
            group.close()
    return [results[number] for number in sorted(results)]
