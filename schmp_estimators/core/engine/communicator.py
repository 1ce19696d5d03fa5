"""Communication between the ranks that work on one program; operations have the names of MPI.

A subclass defines `send` and `receive`; all other operations are made of these two.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import isqrt
from typing import Any

from schmp_estimators.core.reduction import Nodes, add, add_up
from schmp_estimators.core.stages import Each, in_turn
from schmp_estimators.core.typing import Binary, Numbered, Unary
from schmp_estimators.core.values import nbytes

#: Number of ranks from which small values are relayed by other ranks, and the largest size of such
#: a value in bytes.
MANY, SMALL = 8, 1 << 16


class Communicator(ABC):
    """A group of ranks, seen from one of them.

    All ranks call the same methods in the same order.  What has been sent may be written to at
    once.

    Attributes
    ----------
    rank : int
        Number of this rank, from 0.
    size : int
        Number of ranks.
    n_threads : int
        Number of threads that `each` may use.
    """

    rank: int
    size: int
    n_threads: int

    def __reduce__(self) -> Any:
        """Pickle as `Alone`.

        A rank that Dask moves to disk gets another communicator before it works again.
        """
        return Alone, ()

    @abstractmethod
    def each(self, function: Unary, jobs: Iterable[Any]) -> list[Any]:
        """Apply a function to every job, with the threads of this rank."""

    def send(self, to: int, value: Any) -> None:
        """Send a value to another rank, without waiting until it has arrived.

        It is never called if there is only one rank.
        """
        raise NotImplementedError

    def receive(self, source: int) -> Any:
        """Wait for the next value that another rank has sent to this one."""
        raise NotImplementedError

    def make_room(self) -> None:
        """Wait until few of the sent values have not arrived; by default do nothing."""
        return

    def note(self, what: str, began: float, sweep: int = -1, block: int = -1) -> None:
        """Record that something was done from `began`, by `time.time`, until now.

        By default do nothing.
        """
        return

    def check_wanted(self) -> None:
        """Raise an error if the run no longer waits for this rank; by default do nothing."""
        return

    def alltoall(self, values: list[Any]) -> list[Any]:
        """Send ``values[r]`` to rank r, and return what all ranks have sent to this one, by rank.

        It empties `values`.

        If there are many ranks, other ranks relay small values, so that a rank sends few messages.
        For all other values pairs of ranks take turns, so that few values are under way at the same
        time.
        """
        direct = {
            to: value
            for to, value in enumerate(values)
            if self.size < MANY or nbytes(value) > SMALL
        }
        received = {self.rank: values[self.rank]}
        if self.size >= MANY:
            received |= self._relay(
                {to: value for to, value in enumerate(values) if to not in direct}
            )
        values.clear()
        for distance in range(1, self.size):
            to = (self.rank + distance) % self.size
            source = (self.rank - distance) % self.size
            if to in direct:
                self.make_room()
                self.send(to, direct.pop(to))
            if source not in received:
                received[source] = self.receive(source)
        return [received[rank] for rank in range(self.size)]

    def _relay(self, values: Numbered) -> Numbered:
        """Exchange values through other ranks; return those for this rank, by their senders.

        Ranks form a square.  A rank sends values for other columns along its row, and their
        receivers send them on.
        """
        width = isqrt(self.size - 1) + 1

        def between(source: int, to: int) -> int:
            found = source - source % width + to % width
            return found if found < self.size else found - width  # the last row may be shorter

        bundles: dict[int, Numbered] = {between(self.rank, to): {} for to in range(self.size)}
        for to, value in values.items():
            bundles[between(self.rank, to)][to] = value
        for first in bundles.keys() - {self.rank}:
            self.send(first, bundles[first])
        column = range(self.rank % width, self.size, width)
        held: dict[int, Numbered] = {to: {} for to in column}
        for source in range(self.size):
            if between(source, self.rank) == self.rank:
                come = bundles[self.rank] if source == self.rank else self.receive(source)
                for to, value in come.items():
                    held[to][source] = value
        for to in column:
            if to != self.rank:
                self.send(to, held[to])
        for other in column:
            if other != self.rank:
                held[self.rank] |= self.receive(other)
        return held[self.rank]

    def broadcast(self, value: Any = None) -> Any:
        """Return the value of rank 0 on all ranks; it is sent along a binary tree."""
        step = 1
        while step < self.size:
            step *= 2
        while step > 1:
            half = step // 2
            if self.rank % step == 0 and self.rank + half < self.size:
                self.send(self.rank + half, value)
            elif self.rank % step == half:
                value = self.receive(self.rank - half)
            step = half
        return value

    def gather(self, value: Any) -> list[Any] | None:
        """Return the values of all ranks, in their order, on rank 0, and None on the others."""
        if self.rank:
            self.send(0, value)
            return None
        return [value, *map(self.receive, range(1, self.size))]

    def reduce(self, nodes: Nodes, count: int, merge: Binary = add, least: int = 1) -> Nodes | None:
        """Merge the nodes of all ranks in a tree with `count` leaves.

        Return them on rank 0, None on other ranks.

        Parameters
        ----------
        nodes : dict
            Those of this rank; `add_up` explains them and the other parameters.
        """
        step = 1
        while step < self.size:
            if self.rank % (2 * step):
                self.send(self.rank - step, nodes)
                return None
            if self.rank + step < self.size:
                nodes = add_up(nodes | self.receive(self.rank + step), count, merge, least)
            step *= 2
        return nodes


class Alone(Communicator):
    """The communicator of a single rank.

    Parameters
    ----------
    each : callable, optional
        Applies a function to every job; by default to one after the other.
    n_threads : int, default=1
        With so many threads.
    """

    rank, size = 0, 1

    def __init__(self, each: Each = in_turn, n_threads: int = 1) -> None:
        self._each = each
        self.n_threads = n_threads

    def each(self, function: Unary, jobs: Iterable[Any]) -> list[Any]:
        """Apply a function to every job."""
        return self._each(function, jobs)
