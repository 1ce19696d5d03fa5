"""Sums over partitions in a fixed order: a binary tree over the partition numbers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

#: How many results one task adds up.  It is a power of two, and groups are aligned, so that sums of sums have the bits
#: of one sum.
FAN_IN = 8


def groups(items: Sequence[T], size: int = FAN_IN) -> list[Sequence[T]]:
    """Return items that one task each adds up."""
    return [items[first : first + size] for first in range(0, len(items), size)]


def _add(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    if isinstance(left, tuple):
        fields = [_add(one, other) for one, other in zip(left, right, strict=True)]
        return type(left)(*fields) if hasattr(left, "_fields") else tuple(fields)
    return left + right


def tree_sum(parts: Sequence[Any]) -> Any:
    """Return the sum of arrays, numbers, or tuples of them, whose bits depend on the number of parts only.

    None stands for a part that has nothing to add.
    """
    return tree_merge(parts, _add)


class Segment(NamedTuple):
    """What has been made of some neighbouring parts: a node of the tree, but for the last ones."""

    first: int
    width: int
    value: Any


def add_segment(segments: list[Segment], new: Segment, n_parts: int, merge: Callable[[Any, Any], Any]) -> None:
    """Add the next segment, and merge neighbours as `tree_merge` would, but not to the root; mutates `segments`."""
    while segments and segments[-1].width == new.width < n_parts / 2 and not segments[-1].first % (2 * new.width):
        left = segments.pop()
        new = Segment(left.first, 2 * new.width, merge(left.value, new.value))
    segments.append(new)


def tree_merge(parts: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """Return what `merge` makes of parts, two neighbours at a time; few of what it makes are there together."""
    waiting: list[T] = []
    for n, part in enumerate(parts, 1):
        made, ends = part, n
        while ends % 2 == 0:  # the second of a pair, of pairs of pairs, ...
            made, ends = merge(waiting.pop(), made), ends // 2
        waiting.append(made)
    made = waiting.pop()
    while waiting:
        made = merge(waiting.pop(), made)
    return made
