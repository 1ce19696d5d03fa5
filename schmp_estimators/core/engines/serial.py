"""The serial engine: the definition of what a program means, one cell after the other.  It writes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schmp_estimators.core.places.place import in_turn
from schmp_estimators.core.program import Harvest, Local, Program, Rotation, Saved, Visit
from schmp_estimators.core.values import freeze


def run_serial(
    program: Program, shards: Sequence[Any], n_sweeps: int, saved: Saved | None = None, first: int = 0
) -> Iterator[tuple[dict[str, Any], Harvest, Saved]]:
    """Yield after each of the sweeps ``first … n_sweeps - 1`` its record, its harvest and all that a restart needs."""
    n, shards = range(len(shards)), freeze(list(shards))
    outs = [program.start(shards[p], saved.shards[p] if saved else None, in_turn) for p in n]
    states = [out.state for out in outs]
    parts = [[out.parts[b] for out in outs if out.parts] for b in n] if program.has_blocks(len(shards)) else []
    blocks = [program.start_block(b, made, saved.blocks[b] if saved else None) for b, made in enumerate(parts)]
    model = freeze(saved.model if saved else program.aggregate(None, [out.partial for out in outs]))
    for sweep in range(first, n_sweeps):
        for stage in program.schedule(sweep, len(shards)):
            turns = stage if isinstance(stage, Rotation) else None
            divided, moves = turns and turns.divided, turns and turns.moves
            for row in turns.order if turns else ((-1,) * len(shards),):
                for p, b in enumerate(row):
                    state = program.split(shards[p], states[p], b) if divided else states[p]
                    block = (blocks[b] if moves else freeze(blocks[b])) if turns else None
                    outs[p] = program.update(Visit(stage.name, sweep, model, shards[p], state, b, block, in_turn))
                    states[p] = states[p] if divided else outs[p].state
                    if moves:
                        blocks[b] = outs[p].block
                if not turns or turns.synced:
                    model = freeze(program.aggregate(model, [out.partial for out in outs]))
            if isinstance(stage, Local) and stage.parts:
                blocks = [program.combine(b, [out.parts[b] for out in outs]) for b in n]
        measured: tuple[list[Any], list[Any]] = ([], [])
        if program.measures(sweep):
            measured = [program.measure_shard(shards[p], states[p]) for p in n], [*map(program.measure_block, blocks)]
        reaped = [program.harvest_shard(shards[p], states[p]) for p in n], [*map(program.harvest_block, blocks)]
        kept = Saved(model, [program.save(shards[p], states[p]) for p in n], [*map(program.save_block, blocks)])
        yield program.progress(sweep, model, *measured), Harvest(model, *reaped), kept
