"""Static schedules: rotations as in STRADS, and orders made from costs.

In a rotation blocks go round a ring of workers.

Orders from costs are for pairs of shards and blocks of which not all have to meet.  Every rank
knows the whole order, so it knows where each block is without asking.  The *route* of a rank
through an order consists of *legs*: a leg has all visits that the rank can do before it has to wait
for blocks of other ranks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.stages import Order
from schmp_estimators.core.typing import IntPair


def schedule_rotation(n_shards: int, n_blocks: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return an order in which blocks rotate, so that each shard works on each block once.

    Shards are parts of the data, and blocks are parts of the model.  With ``n = max(n_shards,
    n_blocks)``, in step ``s`` shard ``p`` works on block ``(p + s) % n``.  The shard rests if there
    is no such block.  There are n steps, and no two shards have the same block in the same step.
    This is ``scheduleStaticRota`` of Kim et al. (EuroSys 2016, section 4.2).

    Parameters
    ----------
    n_shards : int
        Number of shards, at least 1.
    n_blocks : int, optional
        Number of blocks, at least 1.  If None, there are as many blocks as shards.

    Returns
    -------
    tuple of tuple of int
        ``order[step][shard]`` is the index of the block, or -1 if the shard rests in this step.

    Raises
    ------
    ValueError
        If `n_shards` or `n_blocks` is less than 1.

    See Also
    --------
    schedule_from_costs : Leaves out pairs of shards and blocks that have no work.

    Examples
    --------
    >>> from schmp_estimators.schmp import schedule_rotation
    >>> schedule_rotation(3)
    ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    >>> schedule_rotation(3, 2)
    ((0, 1, -1), (1, -1, 0), (-1, 0, 1))
    >>> schedule_rotation(2, 3)
    ((0, 1), (1, 2), (2, 0))
    """
    if n_shards < 1:
        raise ValueError(f"n_shards is {n_shards}; a rotation needs at least 1 shard")
    if n_blocks is None:
        n_blocks = n_shards
    if n_blocks < 1:
        raise ValueError(
            f"n_blocks is {n_blocks}; a rotation needs at least 1 block, or None for as many as "
            "shards"
        )
    size = max(n_shards, n_blocks)
    ring = [*range(n_blocks), *[-1] * (size - n_blocks)]
    return tuple([tuple((ring + ring)[step : step + n_shards]) for step in range(size)])


def schedule_from_costs(cost: Any) -> tuple[tuple[int, ...], ...]:
    """Return an order of all pairs of a shard and a block with positive cost.

    The order has as few steps as possible.

    Shards are parts of the data, and blocks are parts of the model.  The number of steps is the
    largest number of pairs of one shard, or of one block.  Pairs of similar cost share a step, so
    that shards wait little for each other.  The step with the most expensive pair comes first.

    Parameters
    ----------
    cost : array-like or SciPy sparse, of shape (n_shards, n_blocks)
        Cost of the work of each shard on each block, in any unit, such as seconds or numbers of
        entries.  Costs must be finite and not negative.  Zero means that there is no work.

    Returns
    -------
    tuple of tuple of int
        ``order[step][shard]`` is the index of the block, or -1 if the shard rests in this step.
        The order has each pair of positive cost once, and no other pair.  It is empty if all costs
        are zero.

    Raises
    ------
    ValueError
        If `cost` does not have two dimensions, or a cost is negative, infinite or NaN.

    See Also
    --------
    schedule_rotation : An order of all pairs of a shard and a block.

    Notes
    -----
    Such an order is an edge colouring of the bipartite graph of shards and blocks, with steps as
    colours.  D. Kőnig (Mathematische Annalen 77, 1916) showed that the largest degree is a
    sufficient number of colours.  Pairs are placed from the most expensive to the cheapest, each in
    the first step in which its shard and its block are both free.  If there is no such step, other
    pairs are moved to different steps.  If shards wait for each other after every step, a run takes
    the sum of the largest costs of the steps.  This sum is not always the smallest possible one,
    which is hard to find.

    Examples
    --------
    >>> from schmp_estimators.schmp import schedule_from_costs
    >>> schedule_from_costs([[5, 0, 1], [0, 5, 0], [1, 0, 5]])
    ((0, 1, 2), (2, -1, 0))
    """
    costs, n_shards = _costs(cost)
    dearest_first = sorted(
        costs, key=costs.__getitem__, reverse=True
    )  # equal costs stay in the order of the table
    degrees = Counter(end for shard, block in costs for end in (shard, ~block))
    steps = _colour(dearest_first, n_shards, max(degrees.values(), default=0))
    steps.sort(
        key=lambda step: max(costs[p, b] for p, b in enumerate(step) if b >= 0), reverse=True
    )
    return tuple(map(tuple, steps))


def _costs(cost: Any) -> tuple[dict[IntPair, float], int]:
    """Return the cost of each pair that has to meet, row by row, and the number of shards."""
    table = cost if sp.issparse(cost) else np.asarray(cost)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"cost has shape {table.shape}; give a table with a row for each shard and a column "
            "for each block"
        )
    if table.dtype.kind not in "biuf":
        raise ValueError(f"cost has dtype {table.dtype}; give real numbers")
    if sp.issparse(table):
        stored = sp.csr_array(table, copy=True)
        stored.sum_duplicates()  # this also sorts the entries of each row
        stored = stored.tocoo()
        rows = stored.row
        columns = stored.col
        values = stored.data
    else:
        rows, columns = np.indices(table.shape).reshape(2, -1)
        values = table.ravel()
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        p, b = rows[bad[0]], columns[bad[0]]
        raise ValueError(
            f"cost[{p}, {b}] is {values[bad[0]]}; costs must be finite and at least 0, and 0 "
            "where shard and block need not meet"
        )
    kept = values > 0
    pairs = zip(rows[kept].tolist(), columns[kept].tolist(), strict=True)
    return dict(zip(pairs, values[kept].tolist(), strict=True)), table.shape[0]


def _colour(pairs: Iterable[IntPair], n_shards: int, n_steps: int) -> list[list[int]]:
    """Return the block of each shard in each step.

    `n_steps` is the largest number of pairs of a shard or block.
    """
    everything = (1 << n_steps) - 1
    order = [[-1] * n_shards for _ in range(n_steps)]
    met: dict[
        int, dict[int, int]
    ] = {}  # for each shard, and each block as ~number, its partner in each step
    free: dict[int, int] = {}  # for each of them, a bit mask of its free steps
    for shard, block in pairs:
        ends = shard, ~block
        for end in ends:
            if end not in free:
                met[end], free[end] = {}, everything
        common = free[shard] & free[~block]
        if common:
            step = (common & -common).bit_length() - 1
        else:
            # Late steps hold the cheapest pairs, so an exchange among these costs least.
            step, other = (free[end].bit_length() - 1 for end in ends)
            _exchange(met, free, ~block, step, other)
        met[shard][step] = ~block
        met[~block][step] = shard
        for end in ends:
            free[end] &= ~(1 << step)
    for shard in range(n_shards):
        for step, block in met.get(shard, {}).items():
            order[step][shard] = ~block
    return order


def _exchange(
    met: dict[int, dict[int, int]], free: dict[int, int], end: int, busy: int, other: int
) -> None:
    """Make step `busy` free for `end`, where `other` is free.

    Both are exchanged along the path that begins at `end`.

    The path cannot reach the other node of the new pair: it would come there in step `busy`, which
    is free there.
    """
    path, step = [end], busy
    while step in met[path[-1]]:
        path.append(met[path[-1]][step])
        step = busy + other - step
    for node in path:
        steps = met[node]
        moved = {b: steps.pop(a) for a, b in ((busy, other), (other, busy)) if a in steps}
        steps.update(moved)
    for node in (path[0], path[-1]):
        free[node] ^= 1 << busy | 1 << other


class Visit(NamedTuple):
    """A shard meets a block: the function of a stage is called with both."""

    step: int
    shard: int
    block: int


class Leg(NamedTuple):
    """The visits of a group of shards between two arrivals of blocks from other groups."""

    #: Length of the longest chain of transfers between groups that come before this leg.
    number: int
    group: int
    #: In an order in which they can be done.
    visits: tuple[Visit, ...]
    #: Blocks that other groups send before the leg, with their senders.
    comes: dict[int, int]
    #: Blocks that other groups get after the leg, with their receivers.
    goes: dict[int, int]


class Route(NamedTuple):
    """What one rank does in a rotation."""

    #: Blocks that this rank holds and another rank uses first, with their receivers.
    leaves: dict[int, int]
    legs: tuple[Leg, ...]
    #: The rank that has each block after the rotation.
    holders: tuple[int, ...]


def plan_legs(order: Order, group_of: Sequence[int]) -> list[Leg]:
    """Return the legs of a rotation, each after those it depends on.

    `comes` and `goes` are empty.

    Parameters
    ----------
    order : Order
    group_of : sequence of int
        The group of each shard.

    Notes
    -----
    A leg depends only on legs with lower numbers, of its own group and of others, so no two wait
    for each other.
    """
    reached = [0] * len(group_of)
    blocks: dict[int, IntPair] = {}
    found: dict[IntPair, list[Visit]] = {}
    for step, line in enumerate(order):
        for shard, block in enumerate(line):
            if block < 0:
                continue
            group = group_of[shard]
            number, sender = blocks.get(block, (0, group))
            reached[shard] = max(reached[shard], number + (sender != group))
            blocks[block] = reached[shard], group
            found.setdefault(blocks[block], []).append(Visit(step, shard, block))
    return [Leg(*which, tuple(found[which]), {}, {}) for which in sorted(found)]


@lru_cache(maxsize=64)  # most sweeps of a run have the same rotations
def plan_route(
    order: Order, rank_of: tuple[int, ...], holders: tuple[int, ...], rank: int
) -> Route:
    """Return the route of a rank through a rotation.

    Parameters
    ----------
    order : Order
    rank_of : tuple of int
        The rank that has each shard.
    holders : tuple of int
        The rank that has each block before the rotation.
    rank : int
        Number of the rank.
    """
    legs = plan_legs(order, rank_of)
    at = list(holders)
    leaves = dict[int, int]()
    last: dict[int, Leg] = {}
    for leg in legs:
        for block in dict.fromkeys(visit.block for visit in leg.visits):
            if at[block] != leg.group:
                goes = last[block].goes if block in last else leaves if at[block] == rank else {}
                leg.comes[block] = at[block]
                goes[block] = leg.group
            at[block], last[block] = leg.group, leg
    return Route(leaves, tuple([leg for leg in legs if leg.group == rank]), tuple(at))
