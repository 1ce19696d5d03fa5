"""The part of a sweep's graph in which shards that share a thread work on their own: a task for each such group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schmp_estimators.core.engines import cells, group_cells
from schmp_estimators.core.engines.keys import Keys
from schmp_estimators.core.places.place import Key, Ref
from schmp_estimators.core.reduction import FAN_IN, groups
from schmp_estimators.core.stages import Stage

if TYPE_CHECKING:
    from schmp_estimators.core.engines.graph import SweepGraph


def add_each(graph: SweepGraph, stage: Stage) -> None:
    """Add the tasks of a stage in which every shard works on its own, and those of the barrier."""
    outcomes: list[Key] = []
    reports, model = [], Ref(graph.keys.model)
    for shards in graph.groups:
        first = shards[0]
        cell = graph.holding(graph.cell(first, stage), first)._replace(
            merge=stage.merge.__name__ if stage.merge else ""
        )
        inputs = _of_group(graph, shards)
        made = graph.add_stage(stage, first, group_cells.work_together, cell, model, len(shards), *inputs)
        outcomes += [made] * len(shards)
        reports.append(graph.add("report", first, cells.take_report, Ref(made), 0 if len(shards) > 1 else -1))
    merged = _merged(graph, reports, stage.merge.__name__) if stage.merge else None
    after = graph.aggregated(reports, model, (), None) if merged is None else merged
    blocks = graph.combine(outcomes, len(graph.keys.blocks)) if stage.parts else graph.keys.blocks
    graph.keys = Keys(graph.keys.shards, tuple(outcomes), blocks, after)


def add_seen(graph: SweepGraph, stage: Stage) -> list[Key]:
    """Add tasks in which shards observe themselves, and return where their reports are, in order."""
    made = []
    for shards in graph.groups:
        cell, inputs = graph.holding(graph.cell(shards[0], stage), shards[0]), _of_group(graph, shards)
        told = cell, Ref(graph.keys.model), len(shards)
        made.append(graph.add_stage(stage, shards[0], group_cells.observe_some, *told, *inputs))
    return made


def _of_group(graph: SweepGraph, shards: Sequence[int]) -> list[Ref]:
    """Return neighbouring shards, then what holds their states."""
    held = dict.fromkeys(graph.keys.states[p] for p in shards)
    return [Ref(key) for key in (*(graph.keys.shards[p] for p in shards), *held)]


def _merged(graph: SweepGraph, reports: list[Key], method: str) -> Key:
    """Add the tasks that make the model of what groups of shards report, merged on its way."""
    firsts, width, head = [shards[0] for shards in graph.groups], 1, (graph.program, method, len(graph.keys.shards))
    while len(reports) > FAN_IN:
        width *= FAN_IN
        together = zip(groups(firsts), groups(reports), strict=True)
        reports = [
            graph.add("merge", of[0], group_cells.merge_segments, *head, of, *map(Ref, some), at=(width,))
            for of, some in together
        ]
        firsts = [of[0] for of in groups(firsts)]
    place = graph.number % len(graph.keys.shards)
    model = Ref(graph.keys.model)
    return graph.add("aggregate", place, group_cells.aggregate_segments, *head, firsts, model, *map(Ref, reports))
