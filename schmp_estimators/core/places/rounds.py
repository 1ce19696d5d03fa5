"""Row partitions of this process, for the dynamic engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from schmp_estimators.core.values import own

if TYPE_CHECKING:
    from schmp_estimators.core.places.dask_rounds import Keeper


class LocalRounds:
    """Holds row partitions, and applies functions to them: in a loop, or on threads.

    Parameters
    ----------
    partitions : sequence
        The partitions, in their order.
    n_threads : int, default=1
        Partitions worked on at a time.  Results do not depend on it.
    keeper : Keeper, optional
        How to save partitions, and to restore them.
    """

    def __init__(self, partitions: Sequence[Any], n_threads: int = 1, keeper: Keeper | None = None) -> None:
        self.partitions, self._keeper = list(partitions), keeper
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 and len(self.partitions) > 1 else None

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self.partitions)

    def submit(self, function: Callable[..., Any], job: Any) -> list[Any]:
        """Apply function(partition, job) to every partition, keep the new partitions, return the partial results."""
        apply = map if self._pool is None else self._pool.map
        results = list(apply(function, self.partitions, [job] * len(self.partitions)))
        self.partitions = [partition for partition, _ in results]
        return [own(partial) for _, partial in results]

    def collect(self, ticket: list[Any]) -> list[Any]:
        """Return the partial results of a ticket, in partition order."""
        return ticket

    def save(self) -> list[Any]:
        """Return what the keeper saves of each partition, as it is now."""
        assert self._keeper is not None
        return [self._keeper.save(partition) for partition in self.partitions]

    def restore(self, saved: Sequence[Any]) -> None:
        """Bring partitions that are in their first form to where they were saved."""
        assert self._keeper is not None
        self.partitions = [
            self._keeper.restore(partition, one) for partition, one in zip(self.partitions, saved, strict=True)
        ]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
