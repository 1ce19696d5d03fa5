"""Which blocks members of a team send each other in a rotation, and when.

Every member knows the whole order, so all of them know where every block is, and nobody has to ask for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schmp_estimators.core.engines.legs import Leg, plan_legs
from schmp_estimators.core.stages import Order


class Journey(NamedTuple):
    """A leg of a member, with what comes before it and goes on after it."""

    leg: Leg
    #: Blocks that others send, each with its sender.
    comes: dict[int, int]
    #: Blocks that others are sent, each with who gets it.
    goes: dict[int, int]


class Itinerary(NamedTuple):
    """A rotation as a member sees it."""

    #: Blocks that are at this member, but begin elsewhere, each with who gets it.
    leaves: dict[int, int]
    journeys: tuple[Journey, ...]
    #: Who has each block after the rotation.
    holders: tuple[int, ...]


def plan_journeys(order: Order, group_of: Sequence[int], holders: Sequence[int], rank: int) -> Itinerary:
    """Return what a member does in a rotation.

    Parameters
    ----------
    order : Order
    group_of : sequence of int
        The member that has each shard.
    holders : sequence of int
        The member that has each block before the rotation.
    rank : int
        Number of the member.
    """
    legs, at, leaves = plan_legs(order, group_of), list(holders), dict[int, int]()
    journeys = [Journey(leg, {}, {}) for leg in legs]
    last: dict[int, Journey] = {}
    for journey in journeys:
        group = journey.leg.group
        for block in dict.fromkeys(visit.block for visit in journey.leg.visits):
            if at[block] != group:
                goes = last[block].goes if block in last else leaves if at[block] == rank else {}
                journey.comes[block], goes[block] = at[block], group
            at[block], last[block] = group, journey
    return Itinerary(leaves, tuple(one for one in journeys if one.leg.group == rank), tuple(at))


def made_anew(group_of: Sequence[int], n_blocks: int) -> tuple[int, ...]:
    """Return the member that has each block when all blocks have been made of parts."""
    return tuple(group_of[block % len(group_of)] for block in range(n_blocks))


def begin_with(order: Order, group_of: Sequence[int], n_blocks: int) -> tuple[int, ...]:
    """Return the member that each block meets first in a rotation; the first one, if it meets none."""
    first: dict[int, int] = {}
    for line in order:
        for shard, block in enumerate(line):
            first.setdefault(block, group_of[shard])
    return tuple(first.get(block, 0) for block in range(n_blocks))
