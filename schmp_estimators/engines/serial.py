"""The serial engine: the definition of what a program means, one cell after the other.  It writes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schmp_estimators.programs.base import Harvest, Program, Rotation, Visit


def each(function: Any, jobs: Any) -> list[Any]:
    """Apply `function` to every job in turn."""
    return [function(job) for job in jobs]


def run_serial(
    program: Program, shards: Sequence[Any], n_sweeps: int, saved: Sequence[Any] | None = None, first: int = 0
) -> Iterator[tuple[dict[str, Any], Harvest, list[Any]]]:
    """Yield after each of the sweeps ``first … n_sweeps - 1`` its record, its harvest and what `save` returned."""
    n = range(len(shards))
    outcomes = [program.start(shards[p], saved[p] if saved else None, each) for p in n]
    states = [outcome.state for outcome in outcomes]
    blocks = [program.combine(b, [o.parts[b] for o in outcomes]) for b in n] if outcomes[0].parts else []
    model = program.aggregate(None, [outcome.partial for outcome in outcomes])
    for sweep in range(first, n_sweeps):
        for stage in program.schedule(sweep, len(shards)):
            if isinstance(stage, Rotation):
                for p, b in ((p, row[p]) for row in stage.order for p in n):
                    state = program.split(shards[p], states[p], b) if stage.divided else states[p]
                    out = program.update(Visit(stage.name, sweep, model, shards[p], state, b, blocks[b], each))
                    states[p] = states[p] if stage.divided else out.state
                    blocks[b] = out.block if stage.moves else blocks[b]
            else:
                visits = [Visit(stage.name, sweep, model, shards[p], states[p], -1, None, each) for p in n]
                outcomes = [program.update(visit) for visit in visits]
                states = [outcome.state for outcome in outcomes]
                if stage.parts:
                    blocks = [program.combine(b, [o.parts[b] for o in outcomes]) for b in n]
                model = program.aggregate(model, [outcome.partial for outcome in outcomes])
        wanted = program.measures(sweep)
        record = program.progress(
            sweep,
            model,
            [program.measure_shard(shards[p], states[p]) for p in n] if wanted else [],
            [program.measure_block(block) for block in blocks] if wanted else [],
        )
        reaped = [program.harvest_shard(shards[p], states[p]) for p in n], [program.harvest_block(b) for b in blocks]
        yield record, Harvest(model, *reaped), [program.save(shards[p], states[p]) for p in n]
