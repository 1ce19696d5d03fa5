"""The serial engine: the definition of what a program means, one cell after the other.  It writes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schmp_estimators.core.places.place import Each, in_turn
from schmp_estimators.core.program import AnyProgram, Harvest, Saved
from schmp_estimators.core.stages import At, Stage, check_stages
from schmp_estimators.core.values import freeze, own


class _Run:
    def __init__(self, program: AnyProgram, shards: Sequence[Any], saved: Saved | None, sweep: int, each: Each) -> None:
        self.program, self.shards, self.sweep, self.in_cells = program, freeze(list(shards)), sweep, each
        self.n_blocks, self.model = program.n_blocks(len(shards)), None
        self.blocks: list[Any] = []
        begun = [
            program.restore(self.at(p), freeze(saved.shards[p])) if saved else program.init(self.at(p))
            for p in range(len(shards))
        ]
        self.states = [state for state, _ in begun]
        if saved and program.saves_blocks:
            self.blocks = own(list(saved.blocks))
        else:
            self.combine([parts for _, parts in begun])
        if saved and saved.model is not None:
            self.model = freeze(saved.model)
        else:
            self.aggregate([program.report(self.at(p), self.states[p]) for p in range(len(shards))])

    def at(self, p: int, b: int = -1, is_last: bool = True) -> At:
        return At(self.shards[p], self.model, self.sweep, p, len(self.shards), b, self.n_blocks, is_last, self.in_cells)

    def combine(self, parts: Sequence[Any]) -> None:
        made = [[of_shard[b] for of_shard in parts if b in of_shard] for b in range(self.n_blocks)]
        self.blocks = [self.program.combine(b, of_block) for b, of_block in enumerate(made)]

    def aggregate(self, reports: Sequence[Any]) -> None:
        self.model = freeze(self.program.aggregate(self.model, freeze(list(reports))))

    def each(self, stage: Stage) -> None:
        reports, parts = [], []
        for p, state in enumerate(self.states):
            made = stage.function(self.at(p), state, *stage.args)
            found = list(made) if stage.parts or stage.reports else [made]
            reports.append(found.pop() if stage.reports else self.program.report(self.at(p), found[0]))
            self.states[p] = found[0]
            parts += found[1:]
        self.aggregate(reports)
        if stage.parts:
            self.combine(parts)

    def observe(self, stage: Stage) -> None:
        steps = stage.order or ((-1,) * len(self.shards),)
        self.aggregate([
            stage.function(self.at(p, line[p]), freeze(state), *freeze(self.blocks)[line[p] :][:1], *stage.args)
            if line[p] >= 0 else stage.function(self.at(p), freeze(state), *stage.args)
            for p, state in enumerate(self.states) for line in steps if line[p] >= 0 or not stage.order
        ])  # fmt: skip

    def rotate(self, stage: Stage) -> None:
        assert stage.order is not None
        last = {p: step for step, line in enumerate(stage.order) for p, b in enumerate(line) if b >= 0}
        for step, line in enumerate(stage.order):
            reports = []
            for p, b in ((p, b) for p, b in enumerate(line) if b >= 0):
                at = self.at(p, b, step == last[p])
                state = stage.division.split(at, self.states[p]) if stage.division else self.states[p]
                block = self.blocks[b] if stage.kind == "changes" else freeze(self.blocks[b])
                made = stage.function(at, state, block, *stage.args)
                found = list(made) if stage.kind == "changes" or stage.synced else [made]
                reports += [found.pop()] if stage.synced else []
                self.states[p] = self.states[p] if stage.division else found[0]
                self.blocks[b : b + 1] = found[1:] or self.blocks[b : b + 1]
            if stage.synced:
                self.aggregate(reports)

    def advance(self, sweep: int) -> None:
        self.sweep = sweep
        stages = self.program.schedule(sweep, len(self.shards))
        for stage in check_stages(self.program, stages, len(self.shards), self.n_blocks):
            {"each": self.each, "observes": self.observe}.get(stage.kind, self.rotate)(stage)


def run_serial(
    program: AnyProgram,
    shards: Sequence[Any],
    n_sweeps: int,
    saved: Saved | None = None,
    first: int = 0,
    each: Each = in_turn,
) -> Iterator[tuple[dict[str, Any], Harvest, Saved]]:
    """Yield after each of the sweeps ``first … n_sweeps - 1`` its record, its harvest and all that a restart needs."""
    run = _Run(program, shards, saved, first - 1, each)
    for sweep in range(first, n_sweeps):
        run.advance(sweep)
        states = [(run.at(p), freeze(state)) for p, state in enumerate(run.states)]
        reaped = own([program.harvest(*one) for one in states]), own([*map(program.harvest_block, freeze(run.blocks))])
        kept = own([program.save(*one) for one in states]), own(run.blocks) if program.saves_blocks else []
        yield program.record(sweep, run.model), Harvest(run.model, *reaped), Saved(run.model, *kept)
