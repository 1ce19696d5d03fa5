"""What a runtime is: a place that executes graphs of tasks, and keeps the results that somebody still wants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

Key = tuple[Any, ...]


#: Applies a function to jobs, perhaps with several threads; the results are in the order of the jobs.
Each = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def in_turn(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Apply `function` to every job, one after the other: the simplest `Each`."""
    return [function(job) for job in jobs]


class Ref(NamedTuple):
    """An argument of a task: the result of another task."""

    key: Key


class Task(NamedTuple):
    """A function and its arguments, of which those that are a `Ref` stand for results of earlier tasks."""

    key: Key
    function: Callable[..., Any]
    args: tuple[Any, ...]
    #: Number of the shard near which the task should run.
    place: int


class Mode(NamedTuple):
    """How cells work under a runtime."""

    #: Whether a cell may write into its inputs.  Only where nothing is ever computed a second time.
    in_place: bool
    each: Each


class Runtime(ABC):
    """Executes tasks and keeps their results by key until they are dropped."""

    #: The Dask client whose cluster does the work; None if this process does it.
    client: Any = None
    #: How many sweeps may be submitted beyond the one that is waited for.
    lookahead: int
    #: After how many sweeps the engine should restart from its own state, so that histories do not grow; 0 = never.
    cut_every: int

    @property
    @abstractmethod
    def n_threads(self) -> int:
        """Threads that work at the same time."""

    @property
    def memory_limit(self) -> int:
        """Bytes that the workers together may use; 0 if there is no limit."""
        return 0

    @abstractmethod
    def mode(self, n_shards: int) -> Mode:
        """Return how cells of a run with so many shards shall work."""

    @abstractmethod
    def put(self, key: Key, piece: Any, place: int) -> Ref:
        """Bring in `piece`, what it returns if it is callable, or a result that the runtime holds already."""

    def argument(self, value: Any, uses: int, lend: Callable[[Any], Ref]) -> Any:
        """Return `value` as so many tasks take it: as it is, or by reference to what is held, or what `lend` puts."""
        return value

    def settle(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Let each shard be worked upon where the results in `pieces`, one list for each shard, are."""
        return

    @abstractmethod
    def submit(self, tasks: Sequence[Task], wanted: Sequence[Key]) -> None:
        """Execute tasks, listed so that each comes after those it refers to, and keep the results in `wanted`."""

    @abstractmethod
    def fetch(self, keys: Sequence[Key]) -> list[Any]:
        """Wait for results that are kept, and return them.

        Raises
        ------
        WorkLostError
            If workers died in a way that these results will never be; the caller should `reset` and start again.
        """

    @abstractmethod
    def drop(self, keys: Iterable[Key]) -> None:
        """Stop keeping these results.  Keys that are not kept are passed over."""

    @abstractmethod
    def clear(self) -> None:
        """Drop everything."""

    def deal(self) -> bool:
        """Return whether shards should be worked upon elsewhere from now on, and must therefore be loaded anew."""
        return False

    def reset(self) -> None:
        """Drop everything, and wait until there is somebody to work again."""
        self.clear()

    def close(self) -> None:
        """Drop everything and give all resources back."""
        self.clear()
