"""Row partitions on the workers of a Dask cluster, for the dynamic engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import uuid4


def _partition(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _partial(pair: tuple[Any, Any]) -> Any:
    return pair[1]


class DaskRounds:
    """Holds row partitions as futures, and applies functions to them where they are.

    A round is three tasks per partition: the update, its new partition, which stays, and its partial result, which is
    all that travels.  Updates are pure, so a partition lost with its worker is computed again from those before it.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    partitions : sequence of distributed.Future
        Futures of the partitions, in their order.
    name : str
        What the tasks are called on the dashboard.
    """

    def __init__(self, client: Any, partitions: Sequence[Any], name: str = "regression") -> None:
        self.client = client
        self.partitions = list(partitions)
        self._name = name
        self._run = uuid4().hex
        self._round = 0

    def submit(self, function: Callable[..., Any], job: Any) -> list[Any]:
        """Apply function(partition, job) to every partition, keep the new partitions, return futures of the partials."""
        self._round += 1
        place = [(self._run, self._round, number) for number in range(len(self.partitions))]
        pairs = self._tasks(f"{self._name}-{type(job).__name__.lower()}", function, place, self.partitions, job)
        self.partitions = self._tasks(f"{self._name}-keep", _partition, place, pairs)
        return self._tasks(f"{self._name}-partial", _partial, place, pairs)

    def _tasks(
        self, name: str, function: Callable[..., Any], place: list[tuple[str, int, int]], inputs: list[Any], *extra: Any
    ) -> list[Any]:
        return [
            self.client.submit(function, value, *extra, key=(f"{name}-{run}", number, part), pure=False)
            for value, (run, number, part) in zip(inputs, place, strict=True)
        ]

    def collect(self, ticket: list[Any]) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""
        return self.client.gather(ticket)

    def close(self) -> None:
        """Let go of the partitions."""
        for future in self.partitions:
            future.release()
        self.partitions = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
