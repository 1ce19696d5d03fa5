"""Several coroutines on the same partitions, whose jobs travel together.

A round costs the same for one job as for several, so coroutines that do not know of each other send theirs in one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from schmp_estimators.core.engine.dynamic import PlaceOfRounds, Steps, Sum, apply_job
from schmp_estimators.core.engine.rounds import checked
from schmp_estimators.core.reduction import tree_sum

#: While the client works for one group, partitions work for the other.
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
            partition, answer = checked(job(partition), job, None)
            answers.append(answer)
        return partition, tuple(answers)


def batch(asked: Sequence[Any]) -> Any:
    """Return what several coroutines have yielded as one step; it is a `Sum` if all of them are."""
    if len(asked) == 1:
        return asked[0]
    jobs = Batch(tuple(step.job if isinstance(step, Sum) else step for step in asked))
    return Sum(jobs) if all(isinstance(step, Sum) for step in asked) else jobs


def answers_to(asked: Sequence[Any], answer: Any) -> list[Any]:
    """Return the answer to each of the steps that `batch` has made one of."""
    if len(asked) == 1:
        return [answer]
    if all(isinstance(step, Sum) for step in asked):
        return list(answer)
    found = zip(*answer, strict=True)
    return [tree_sum(one) if isinstance(step, Sum) else list(one) for step, one in zip(asked, found, strict=True)]


def abreast(runs: Sequence[Steps]) -> Steps:
    """Run coroutines that yield nothing but jobs at the same time, as one; returns what they return.

    Each must keep what it changes of a partition apart from what the others change.
    """
    group = _Group()
    for number, steps in enumerate(runs):
        group.begin(number, steps)
    try:
        while group.asked:
            group.answer((yield group.batch()))
    finally:
        group.close()
    return [group.results[number] for number in range(len(runs))]


class _Group:
    """Runs that go on at the same time, each with one job out."""

    def __init__(self) -> None:
        self.results: dict[int, Any] = {}
        self.asked: dict[int, Any] = {}
        self._steps: dict[int, Steps] = {}

    def begin(self, number: int, steps: Steps) -> None:
        """Take a run in."""
        self._steps[number] = steps
        self._go_on(number, None)

    def batch(self) -> Any:
        """Return what all runs ask for."""
        return batch(list(self.asked.values()))

    def answer(self, answer: Any) -> None:
        """Let all runs go on."""
        asked, self.asked = self.asked, {}
        for number, one in zip(asked, answers_to(list(asked.values()), answer), strict=True):
            self._go_on(number, one)

    def _go_on(self, number: int, answer: Any) -> None:
        try:
            self.asked[number] = self._steps[number].send(answer)
        except StopIteration as end:
            self.results[number] = end.value
            del self._steps[number]

    def close(self) -> None:
        """End what has not ended."""
        for steps in self._steps.values():
            steps.close()


def run_together(runs: Iterable[Callable[[], Steps]], place: PlaceOfRounds, at_a_time: int) -> list[Any]:
    """Run coroutines as `abreast` does, in two groups that take turns, and return what they return.

    Who goes with whom, and in which order, is the same in every run.

    Parameters
    ----------
    runs : iterable of callables
        Each returns the steps of a run.
    place : PlaceOfRounds
        Where the partitions are.
    at_a_time : int
        How many runs are under way at a time.
    """
    numbered = enumerate(runs)
    groups = [_Group() for _ in range(min(_GROUPS, at_a_time))]
    out: deque[tuple[_Group, Any, bool]] = deque()

    def send(group: _Group) -> None:
        """Let more runs begin, if there are, until the group is full, and send what it asks for."""
        size = len(range(groups.index(group), at_a_time, len(groups)))
        while len(group.asked) < size and (found := next(numbered, None)) is not None:
            number, make = found
            group.begin(number, make())
        if group.asked:
            step = group.batch()
            is_sum = isinstance(step, Sum)
            out.append((group, place.submit(apply_job, step.job if is_sum else step, is_sum=is_sum), is_sum))

    try:
        for group in groups:
            send(group)
        while out:
            group, ticket, is_sum = out.popleft()
            partials = place.collect(ticket)
            group.answer(tree_sum(partials) if is_sum else partials)
            send(group)
    finally:
        for group in groups:
            group.close()
    results = {number: value for group in groups for number, value in group.results.items()}
    return [results[number] for number in sorted(results)]
