"""The part of a sweep's graph in which blocks go round: a task for each cell, or for each leg of neighbours' cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schmp_estimators.core.engines import cells, group_cells
from schmp_estimators.core.engines.keys import member
from schmp_estimators.core.engines.legs import Leg, plan_legs
from schmp_estimators.core.places.place import Key, Ref
from schmp_estimators.core.stages import Order, Stage

if TYPE_CHECKING:
    from schmp_estimators.core.engines.graph import SweepGraph

#: A cell that only reads its block may start when the cell before the last one of its shard is done, so that the next
#: block travels while this one is worked on, and no more than two blocks are on a worker at a time.
READ_AHEAD = 2


def add_rotation(graph: SweepGraph, stage: Stage, order: Order) -> None:
    """Add the tasks of a stage in which shards meet blocks."""
    if graph.is_grouped and not (stage.division or stage.synced):
        _Legs(graph, stage, order).add()
    else:
        _add_cells(graph, stage, order)


def _add_cells(graph: SweepGraph, stage: Stage, order: Order) -> None:
    keys = graph.keys
    n = len(keys.shards)
    blocks, held = list(keys.blocks), list(keys.states)
    last = {p: step for step, line in enumerate(order) for p, b in enumerate(line) if b >= 0}
    following = _following(order)
    done: list[dict[int, Key]] = [{} for _ in range(n)]
    for step, line in enumerate(order):
        met = [(p, b) for p, b in enumerate(line) if b >= 0]
        for p, b in met:
            cell = graph.cell(p, stage)._replace(block=b, is_last=step == last[p])
            if held[p] == keys.states[p]:
                cell = graph.holding(cell, p)
            ahead = list(done[p].values())[-READ_AHEAD:][:1] if stage.division and len(done[p]) >= READ_AHEAD else []
            refs = map(Ref, (keys.shards[p], held[p], blocks[b], *ahead))
            done[p][b] = graph.add_stage(stage, p, cells.meet, cell, graph.met_model, *refs, at=(step, b))
        for p, b in met:
            if stage.kind == "changes":
                blocks[b] = done[p][b]
                heir = following.get((step, b))
                if heir is None or graph.homes[heir] != graph.homes[p]:  # else it is there already
                    blocks[b] = graph.add("pass-on", p, cells.take_block, Ref(done[p][b]), at=(step,))
            if not stage.division:
                held[p] = done[p][b]
        if stage.synced:
            model = graph.aggregate([done[p][b] for p, b in met], Ref(graph.keys.model), at=(step,))
            graph.keys = graph.keys._replace(model=model)
    if stage.division:
        pieces = tuple(tuple(of_shard[b] for b in range(len(blocks))) for of_shard in done)
        graph.keys = graph.keys._replace(pieces=pieces, join=stage.division.join.__name__)
    else:
        graph.keys = graph.keys._replace(blocks=tuple(blocks), states=tuple(held))


def _following(order: Order) -> dict[tuple[int, int], int]:
    """Return for a step and a block the shard that the block meets next, if there is another one."""
    following: dict[tuple[int, int], int] = {}
    upcoming: dict[int, int] = {}
    for step, line in reversed(list(enumerate(order))):
        following |= {(step, b): upcoming[b] for b in line if b in upcoming}
        upcoming |= {b: p for p, b in enumerate(line) if b >= 0}
    return following


class Held(NamedTuple):
    """Where the state of a shard is."""

    key: Key
    #: Which one of the outcomes there, -1 if there is only one.
    member: int


class _Legs:
    """Adds the tasks of a rotation, one for each leg, and those that hand on what leaves after it."""

    def __init__(self, graph: SweepGraph, stage: Stage, order: Order) -> None:
        self._graph, self._stage, keys = graph, stage, graph.keys
        self._group_of = [number for number, some in enumerate(graph.groups) for _ in some]
        self._legs = plan_legs(order, self._group_of)
        met = sorted(visit for leg in self._legs for visit in leg.visits)
        self._last = {visit.shard: visit.step for visit in met}
        #: The group that meets a block first, in the next sweep most likely, too.
        self._first = {visit.block: self._group_of[visit.shard] for visit in reversed(met)}
        self._states = [Held(key, member(keys.states, p)) for p, key in enumerate(keys.states)]
        self._blocks = list(keys.blocks)

    def add(self) -> None:
        """Add the tasks, and note where states and blocks are after them."""
        following: dict[tuple[Leg, int], Leg] = {}
        upcoming: dict[int, Leg] = {}
        for leg in reversed(self._legs):
            blocks = {visit.block for visit in leg.visits}
            following |= {(leg, b): upcoming[b] for b in blocks if b in upcoming}
            upcoming |= dict.fromkeys(blocks, leg)
        for leg in self._legs:
            made = self._add_leg(leg)
            shards = self._graph.groups[leg.group]
            for position, p in enumerate(shards):
                self._states[p] = Held(made, position if len(shards) > 1 else -1)
            if self._stage.kind == "changes":
                self._pass_on(leg, made, {b: following.get((leg, b)) for _, _, b in leg.visits})
        states = tuple(held.key for held in self._states)
        self._graph.keys = self._graph.keys._replace(blocks=tuple(self._blocks), states=states)

    def _add_leg(self, leg: Leg) -> Key:
        graph, shards = self._graph, self._graph.groups[leg.group]
        first, refs = shards[0], dict[Key, int]()
        held = [self._states[p] for p in shards]
        states = tuple((refs.setdefault(one.key, len(refs)), one.member) for one in held)
        met = dict.fromkeys(visit.block for visit in leg.visits)
        blocks = tuple((b, refs.setdefault(self._blocks[b], len(refs))) for b in met)
        visits = tuple((p - first, b, step == self._last[p]) for step, p, b in leg.visits)
        plan = group_cells.Plan(visits, states, blocks)
        inputs = map(Ref, (*(graph.keys.shards[p] for p in shards), *refs))
        head = group_cells.meet_some, graph.cell(first, self._stage), plan, graph.met_model
        return graph.add_stage(self._stage, first, *head, *inputs, at=(leg.number,))

    def _pass_on(self, leg: Leg, made: Key, heirs: dict[int, Leg | None]) -> None:
        """Let blocks stay where they are made if that is where they are needed, else put those together that go on."""
        graph, homes = self._graph, self._graph.homes
        here = homes[graph.groups[leg.group][0]]
        leaving: dict[tuple[int, int], list[int]] = {}
        for b, heir in heirs.items():
            self._blocks[b] = made
            group, number = (heir.group, heir.number) if heir else (self._first[b], -1)
            if heir is None or homes[graph.groups[group][0]] != here:
                leaving.setdefault((group, number), []).append(b)
        for goal, blocks in leaving.items():
            first, at = graph.groups[leg.group][0], (leg.number, *goal)
            bundle = graph.add("pass-on", first, cells.take_blocks, Ref(made), tuple(blocks), at=at)
            for b in blocks:
                self._blocks[b] = bundle
