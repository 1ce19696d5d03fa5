"""Partitions that solve a problem together: all know the problem, each adds what its rows say of it.

A round through the client costs 10 to 30 ms, however little is said.  Where an algorithm needs hundreds of small sums,
the members of a team therefore talk to each other: every member runs all of the algorithm, and only sums are exchanged.
Sums have the bits of `tree_sum` over the partitions, so it does not matter who has which of them; if there is no team,
because workers are busy or die, the client asks for what the partitions have to say and does all of it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import in_turn


class Team(Protocol):
    """Those that solve a problem together; each has some partitions."""

    def sum(self, parts: Sequence[Any]) -> Any:
        """Return the sum over all partitions of what each says, given what those of this member say."""

    def each(self, function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
        """Apply a function to every job, with the threads that this member has."""


class JointJob(Protocol):
    """What partitions do together; a value, that is pure."""

    def piece(self, partition: Any) -> Any:
        """Return what is needed of a partition."""

    def solve(self, pieces: Sequence[Any], team: Team) -> Any:
        """Return the answer, the same for every member; `pieces` are those of the partitions of this member."""


class Together(NamedTuple):
    """Yielded by a coroutine to let partitions solve a problem together; what it gets is the answer."""

    job: JointJob


class TakePiece(NamedTuple):
    """Ask a partition for what a joint job needs of it."""

    job: JointJob

    def __call__(self, partition: Any) -> tuple[Any, Any]:
        """Return the partition as it is, and the piece."""
        return partition, self.job.piece(partition)


class Alone:
    """A team of one, who has all partitions."""

    each = staticmethod(in_turn)

    def sum(self, parts: Sequence[Any]) -> Any:
        """Return the sum."""
        return tree_sum(parts)


#: Sums on their way: by level and place in the tree of `tree_sum`.
Nodes = dict[tuple[int, int], Any]


def _sum(left: Any, right: Any) -> Any:
    return tree_sum([left, right])


def add_up(nodes: Nodes, count: int, add: Callable[[Any, Any], Any] = _sum, least: int = 1) -> Nodes:
    """Add up what is there of the tree over `count` partitions, as far as both sides of a sum are there.

    Parameters
    ----------
    nodes : dict
    count : int
    add : callable, optional
        ``add(left, right)`` is what two sides make.
    least : int, default=1
        Up to the level of the tree with so many nodes.

    >>> add_up({(0, 0): 1, (0, 1): 2, (0, 4): 3}, 5)
    {(2, 1): 3, (1, 0): 3}
    >>> add_up({(2, 1): 3, (1, 0): 3, (1, 1): 7}, 5)
    {(3, 0): 13}
    """
    nodes, level, size = dict(nodes), 0, count
    while size > least:
        for place in range(-(-size // 2)):
            left, right = (level, 2 * place), (level, 2 * place + 1)
            if right[1] == size and left in nodes:  # the odd one out goes up as it is
                nodes[level + 1, place] = nodes.pop(left)
            elif left in nodes and right in nodes:
                nodes[level + 1, place] = add(nodes.pop(left), nodes.pop(right))
        level, size = level + 1, -(-size // 2)
    return nodes
