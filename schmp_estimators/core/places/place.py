"""What a place is: a place that executes graphs of tasks, and keeps the results that somebody still wants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from schmp_estimators.core.stages import Each, in_turn

Key = tuple[Any, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


class Ref(NamedTuple):
    """An argument of a task: the result of another task."""

    key: Key


def quick(function: Function) -> Function:
    """Mark a function that takes less time than a thread needs to wake up for it."""
    function.is_quick = True  # type: ignore[attr-defined]
    return function


class Task(NamedTuple):
    """A function and its arguments, of which those that are a `Ref` stand for results of earlier tasks."""

    key: Key
    function: Callable[..., Any]
    args: tuple[Any, ...]
    #: Number of the shard near which the task should run.
    place: int


class Post(Protocol):
    """Carries pieces from worker to worker, past those who only deal tasks out."""

    def keep(self, key: Key, pieces: Sequence[Any]) -> Any:
        """Keep a piece for every shard where this is called, and return a ticket for them."""

    def bring(self, tickets: Sequence[Any], number: int) -> list[Any]:
        """Return the pieces for shard `number`, in the order of the tickets.

        Raises
        ------
        WorkLostError
            If a piece is gone.
        """


class Mode(NamedTuple):
    """How cells work under a place."""

    #: Whether a cell may write into its inputs.  Only where nothing is ever computed a second time.
    in_place: bool
    each: Each
    #: Carries what shards exchange; None: the results of tasks.
    post: Post | None = None
    #: Whether the next task may take over a state that a task has made, and change it where it is.
    hands_over: bool = False


class Place(ABC):
    """Executes tasks and keeps their results by key until they are dropped."""

    #: How many sweeps may be submitted beyond the one that is waited for.
    lookahead: int
    #: After how many sweeps the engine should restart from its own state, so that histories do not grow; 0 = never.
    cut_every: int
    #: After how many sweeps the engine should bring its state to where it can go on from, if work is lost; 0: only when
    #: it restarts from it.
    save_every: int = 0
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

    def expect(self, n_shards: int) -> None:
        """Take note of how many shards a run will have, so that they can be dealt evenly."""
        return

    def homes(self, n_shards: int) -> Sequence[Any]:
        """Return for each shard of a run what is equal for those whose results are at the same place."""
        return range(n_shards)

    def shards_of_a_task(self, n_shards: int) -> int:
        """Return how many neighbours, of so many shards, one task should serve where they are at the same place."""
        return 1

    def shards_of_a_thread(self, n_shards: int) -> int:
        """Return how many neighbours at the same place share a thread, which works on them one after the other."""
        return 1

    def mode(self, n_shards: int) -> Mode:
        """Return how cells of a run with so many shards shall work."""
        raise NotImplementedError

    def post(self, n_shards: int) -> Post | None:
        """Return what shall carry the pieces that so many shards exchange in the run that begins; None: tasks do."""
        return None

    @abstractmethod
    def put(self, key: Key, piece: Any, place: int) -> Ref:
        """Bring in `piece`, what it returns if it is callable, or a result that the place holds already."""

    def argument(self, value: Any, uses: int, lend: Callable[[Any], Ref]) -> Any:
        """Return `value` as so many tasks take it: as it is, or by reference to what is held, or what `lend` puts."""
        return value

    def settle(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Let each shard be worked upon where the results in `pieces`, one list for each shard, are."""
        return

    @abstractmethod
    def submit(self, tasks: Sequence[Task], wanted: Sequence[Key], *, soon: bool = False) -> None:
        """Execute tasks, listed so that each comes after those it refers to, and keep the results in `wanted`.

        With `soon` they come before others that could begin at the same time.
        """

    def together(self, keys: Sequence[Key], job: Any, unwrap: Callable[[Any], Any], held: Sequence[Key]) -> Any:
        """Let shards solve a problem together, if they can talk to each other; returns the answer, None if not.

        Parameters
        ----------
        keys : sequence
            For the tasks, one a shard at most.
        job : JointJob or Ref
        unwrap : callable
            Returns the partition of what is held.
        held : sequence
            Results that hold the shards' partitions.
        """
        return None

    def teams(self, n_shards: int) -> list[list[int]]:
        """Return the shards of each member of a team that may run sweeps for so many; none if there can be no team."""
        return []

    def submit_together(
        self, keys: Sequence[Key], groups: Sequence[Sequence[int]], function: Callable[..., Any], args: Sequence[Any]
    ) -> None:
        """Let each member of a team begin a task at the same time, which runs nowhere else, and keep the results.

        Parameters
        ----------
        keys : sequence
            Of the tasks.
        groups : sequence of sequences of int
            What `teams` has returned.
        function : callable
            ``function(team, *args)``, with the team as the member sees it.
        args : sequence of tuples
            For each member; those that are a `Ref` stand for results.
        """
        raise NotImplementedError

    def has_threads_to_spare(self) -> bool:
        """Return whether each of those who work could begin something at once, but for what this place has begun."""
        return True

    @abstractmethod
    def fetch(self, keys: Sequence[Key]) -> list[Any]:
        """Wait for results that are kept, and return them.

        Raises
        ------
        WorkLostError
            If workers died in a way that these results will never be; the caller should `reset` and start again.
        """

    def has(self, keys: Sequence[Key]) -> bool:
        """Return whether `fetch` would find all these results made."""
        return True

    @abstractmethod
    def rename(self, keys: Mapping[Key, Key]) -> None:
        """Keep results under new keys instead, by the old ones, as if they had come from nowhere."""

    def aside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function for a task that shall not keep others waiting, because it waits itself."""
        return function

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

    @abstractmethod
    def drop(self, keys: Iterable[Key]) -> None:
        """Stop keeping these results.  Keys that are not kept are passed over."""

    def drop_after(self, keys: Iterable[Key], known: Key) -> None:
        """Drop results, if that is of use before they are dropped anyway, each as soon as it has been used.

        Those that use them were submitted with the task of `known`, whose result is kept.
        """
        return

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
