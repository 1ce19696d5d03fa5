"""Sums over partitions in a fixed order: along a binary tree over the numbers of the partitions."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from schmp_estimators.core.typing import Binary, IntPair
from schmp_estimators.core.values import like

T = TypeVar("T")


def add(left: Any, right: Any) -> Any:
    """Return the sum of two parts, see `tree_sum`."""
    if left is None or right is None:
        return right if left is None else left
    if not isinstance(left, tuple):
        return left + right
    return like(left, [add(one, other) for one, other in zip(left, right, strict=True)])


def tree_sum(parts: Sequence[Any]) -> Any:
    """Return the sum of arrays, numbers, or tuples of them.

    The order of the additions depends only on the number of parts.

    A part may be None, which adds nothing.
    """
    return tree_merge(parts, add)


def tree_merge(parts: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """Merge parts, two neighbours at a time; few intermediate results exist at once."""
    waiting: list[T] = []
    for n, part in enumerate(parts, 1):
        made, ends = part, n
        while ends % 2 == 0:  # the second of a pair, of pairs of pairs, ...
            made = merge(waiting.pop(), made)
            ends = ends // 2
        waiting.append(made)
    made = waiting.pop()
    while waiting:
        made = merge(waiting.pop(), made)
    return made


#: Intermediate results of `tree_merge`, by level in its tree and place in the level.
Nodes = dict[IntPair, Any]


def add_up(nodes: Nodes, count: int, merge: Binary = add, least: int = 1) -> Nodes:
    """Merge nodes of the tree over `count` parts, as far as both children of a node are there.

    Parameters
    ----------
    nodes : dict
    count : int
    merge : callable, optional
        ``merge(left, right)`` joins two children; by default it adds them up.
    least : int, default=1
        Merging stops at the first level of the tree that has at most this many nodes.

    >>> add_up({(0, 0): 1, (0, 1): 2, (0, 4): 3}, 5)
    {(1, 0): 3, (2, 1): 3}
    >>> add_up({(2, 1): 3, (1, 0): 3, (1, 1): 7}, 5)
    {(3, 0): 13}
    """
    nodes = dict(nodes)
    level = 0
    size = count
    while size > least:
        for place in range(-(-size // 2)):
            left = (level, 2 * place)
            right = (level, 2 * place + 1)
            if right[1] == size and left in nodes:  # without a sibling: it moves up unchanged
                nodes[level + 1, place] = nodes.pop(left)
            elif left in nodes and right in nodes:
                try:
                    nodes[level + 1, place] = merge(nodes.pop(left), nodes.pop(right))
                except Exception as error:
                    first, end = place << level + 1, min(place + 1 << level + 1, count)
                    error.add_note(f"for the parts of shards {first} to {end - 1} together")
                    raise
        level, size = level + 1, -(-size // 2)
    return nodes
