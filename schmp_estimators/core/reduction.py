"""Sums over partitions in a fixed order: a binary tree over the partition numbers."""

from collections.abc import Sequence
from typing import Any


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
    level = list(parts)
    while len(level) > 1:
        pairs = [_add(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]
