"""The routes of blocks in a rotation: which rank works on which visits, and which blocks the ranks send each other.

Every rank knows the whole order, so all of them know where every block is, and no rank has to ask for one.  The visits
of a rank fall into *legs*: all that it can do up to where it needs blocks that other ranks have still to send.
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


class Segment(NamedTuple):
    """A leg of a rank, with the blocks that come before it and go on after it."""

    leg: Leg
    #: Blocks that other ranks send, each with its sender.
    comes: dict[int, int]
    #: Blocks that other ranks are sent, each with who gets it.
    goes: dict[int, int]


class Route(NamedTuple):
    """A rotation as one rank sees it."""

    #: Blocks that are at this rank, but begin elsewhere, each with who gets it.
    leaves: dict[int, int]
    segments: tuple[Segment, ...]
    #: The rank that has each block after the rotation.
    holders: tuple[int, ...]


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


def plan_route(order: Order, rank_of: Sequence[int], holders: Sequence[int], rank: int) -> Route:
    """Return what a rank does in a rotation.

    Parameters
    ----------
    order : Order
    rank_of : sequence of int
        The rank that has each shard.
    holders : sequence of int
        The rank that has each block before the rotation.
    rank : int
        Number of the rank.
    """
    legs, at, leaves = plan_legs(order, rank_of), list(holders), dict[int, int]()
    segments = [Segment(leg, {}, {}) for leg in legs]
    last: dict[int, Segment] = {}
    for segment in segments:
        group = segment.leg.group
        for block in dict.fromkeys(visit.block for visit in segment.leg.visits):
            if at[block] != group:
                goes = last[block].goes if block in last else leaves if at[block] == rank else {}
                segment.comes[block], goes[block] = at[block], group
            at[block], last[block] = group, segment
    return Route(leaves, tuple([one for one in segments if one.leg.group == rank]), tuple(at))


def made_anew(rank_of: Sequence[int], n_blocks: int) -> tuple[int, ...]:
    """Return the rank that has each block when all blocks have been made of parts."""
    return tuple([rank_of[block % len(rank_of)] for block in range(n_blocks)])
