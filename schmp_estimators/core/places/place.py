"""What a place is: where functions are called, and the results that somebody still wants are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schmp_estimators.core.stages import Each, in_turn


class Place(ABC):
    """Executes tasks and keeps their results by key until they are dropped."""

    #: Whether tasks are executed in this process, where nothing is lost.
    is_local: bool = False
    #: How jobs in this process share its threads.
    each: Each = staticmethod(in_turn)

    @property
    @abstractmethod
    def n_processes(self) -> int:
        """Processes that work at the same time."""

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that work at the same time."""

    @property
    def memory_limit(self) -> int:
        """Bytes that the workers together may use; 0 if there is no limit."""
        return 0

    def settle(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Let each shard be worked upon where the results in `pieces`, one list for each shard, are."""
        return

    @abstractmethod
    def hold(self, lazy: Any) -> list[Any]:
        """Compute a list of Delayed objects, or the blocks of a Dask array of one column of blocks, and hold them."""

    @abstractmethod
    def compute(self, lazy: list[Any]) -> list[Any]:
        """Return the values of Dask collections."""

    @abstractmethod
    def threads_of_a_task(self, n_threads: int) -> int:
        """Return how many threads a task of `map` may use, where `n_threads` are wanted of this process."""

    @abstractmethod
    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may be held: values, or what stands for them.

        With `by_shard` there is a call for each shard, which is made where the shard is worked upon, if possible.
        """

    @abstractmethod
    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Return the values of what `hold`, `map` or `share` returned."""

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Hold a value that many calls of `map` will read."""

    def lasting(self, value: Any) -> Any:
        """Return a piece for sources, see `Source`, that stands for a value which many of them need."""
        return value

    @abstractmethod
    def take(self, held: list[Any], position: int, name: str) -> list[Any]:
        """Return element `position` of each of some lists that are held; nobody will ask for it again."""

    @abstractmethod
    def at_hand(self, held: Sequence[Any]) -> list[Any] | None:
        """Return the values of what is held if they are in this process, else None."""

    @abstractmethod
    def let_go(self) -> None:
        """Hold no longer what `hold`, `map`, `share` and `take` have returned.  Letting go twice does no harm."""

    def tell(self, event: str, details: Mapping[str, Any] | None = None) -> None:
        """Tell of an event of a fit, if anybody could watch from outside; only plain values among the details travel.

        A fit is told of from the first "begin" until the place is closed; other events are "record", "measured",
        "restart" and "failed".
        """
        return

    def deal(self) -> bool:
        """Return whether shards should be worked upon elsewhere from now on, and must therefore be loaded anew."""
        return False

    def reset(self) -> None:
        """Wait until there is somebody to work again."""
        return

    @abstractmethod
    def close(self) -> None:
        """Give all resources back."""

    @abstractmethod
    def serve(self, name: str, pieces: list[Any]) -> Any:
        """Make the partitions of a dynamic program, and return who works on them; `pieces` may be let go of."""
