"""How cells of a rotation become tasks, where neighbouring shards share a thread of a worker.

A task costs more than many a cell, and copies the states that it changes.  So a task has all cells of its shards up to
where they need blocks that others have still to send: a *leg* of the blocks' way round the ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schmp_estimators.core.stages import Order


class Visit(NamedTuple):
    """A shard meets a block."""

    step: int
    shard: int
    block: int


class Leg(NamedTuple):
    """What a group of shards does between two arrivals of blocks."""

    #: How often blocks have come from other groups since the rotation began, at most.
    number: int
    group: int
    #: In an order in which they may be worked off.
    visits: tuple[Visit, ...]


def plan_legs(order: Order, group_of: Sequence[int]) -> list[Leg]:
    """Return the legs of a rotation, each after those that it needs something of.

    Parameters
    ----------
    order : Order
    group_of : sequence of int
        The group of each shard.

    Notes
    -----
    A leg needs those of its group with lower numbers, and of other groups legs with lower numbers: so no two wait for
    each other.
    """
    reached = [0] * len(group_of)
    blocks: dict[int, tuple[int, int]] = {}
    found: dict[tuple[int, int], list[Visit]] = {}
    for step, line in enumerate(order):
        for shard, block in enumerate(line):
            if block < 0:
                continue
            group = group_of[shard]
            number, sender = blocks.get(block, (0, group))
            reached[shard] = max(reached[shard], number + (sender != group))
            blocks[block] = reached[shard], group
            found.setdefault(blocks[block], []).append(Visit(step, shard, block))
    return [Leg(*which, tuple(found[which])) for which in sorted(found)]
