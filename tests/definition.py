"""What programs mean, written down once more and as plainly as can be.

The oracle of the interpreter.

Shards and blocks are lists, stages are done one after the other, and nothing is shared, copied late
or sent.
"""

from copy import deepcopy

import numpy as np

from schmp_estimators.core.program import Harvest, Saved
from schmp_estimators.core.stages import At, in_turn
from schmp_estimators.core.values import freeze


def run_serial(
    program, shards, n_sweeps, saved=None, first=0, each=in_turn, saves=lambda sweep: False
):
    """Yield after each sweep its record, its harvest and all that a restart needs."""
    run = Run(program, shards, each, first, saved)
    for sweep in range(first, n_sweeps):
        record = run.sweep(sweep, saves(sweep))
        yield record, run.harvest(), run.save()


class Run:
    """A run whose shards, states and blocks are all here."""

    def __init__(self, program, shards, each=in_turn, first=0, saved=None):
        shards = freeze(list(shards))
        self.program, self.n, self.model = program, len(shards), None
        n_blocks = program.n_blocks(self.n)
        self.ats = [
            At(shard, None, first - 1, p, self.n, n_blocks=n_blocks, each=each)
            for p, shard in enumerate(shards)
        ]
        if saved:
            restored = [at._replace(model=freeze(saved.model)) for at in self.ats]
            made = [
                program.restore(at, freeze(deepcopy(one)))
                for at, one in zip(restored, saved.shards, strict=True)
            ]
        else:
            made = [program.init(at) for at in self.ats]
        self.states, parts = map(list, zip(*made, strict=True))
        reports = [
            program.report(at, state) for at, state in zip(self.ats, self.states, strict=True)
        ]
        if saved and program.saves_blocks:
            self.blocks = deepcopy(list(saved.blocks))
        else:
            self.combine(parts)
        self.model = saved.model if saved else None
        if self.model is None:
            self.aggregate(reports)

    def sweep(self, sweep, saves=False):
        self.ats = [at._replace(sweep=sweep, saves=saves) for at in self.ats]
        return self.work(self.program.schedule(sweep, self.n))

    def observe(self, stages):
        before = self.model
        record = self.work(stages(self.n))
        self.model = before
        return record

    def work(self, stages):
        answers = None
        for stage in [stages] if hasattr(stages, "kind") else stages:
            if stage.kind == "exchanges":
                pieces = self.pieces(stage)
                said = [
                    list(stage.function(at, pieces[at.number], *stage.args)) for at in self.now()
                ]
                answers = freeze([[of_shard[p] for of_shard in said] for p in range(self.n)])
            elif stage.kind == "each":
                self.each(stage, answers)
                answers = None
            elif stage.kind == "observes":
                self.aggregate(self.seen(stage))
            else:
                self.rotate(stage)
        return self.program.record(self.ats[0].sweep, self.model)

    def now(self):
        return [at._replace(model=freeze(self.model)) for at in self.ats]

    def pieces(self, stage):
        cut = [
            list(stage.split(at, state))
            for at, state in zip(self.ats, freeze(self.states), strict=True)
        ]
        return freeze([deepcopy([of_shard[p] for of_shard in cut]) for p in range(self.n)])

    def each(self, stage, answers):
        reports, parts = [], []
        for at in self.now():
            p, brought = at.number, () if answers is None else (answers[at.number],)
            made = stage.function(at, self.states[p], *brought, *stage.args)
            self.states[p], *others = made if stage.parts or stage.reports else [made]
            reports.append(
                others.pop() if stage.reports else self.program.report(at, self.states[p])
            )
            parts += others
        self.aggregate(deepcopy(reports))
        if stage.parts:
            self.combine(parts)

    def seen(self, stage):
        pieces, reports = self.pieces(stage) if stage.split else None, []
        for at, state in zip(self.now(), freeze(self.states), strict=True):
            if stage.order is None:
                seen = (pieces[at.number],) if stage.split else ()
                reports.append(stage.function(at, state, *seen, *stage.args))
            for b in [line[at.number] for line in stage.order or () if line[at.number] >= 0]:
                reports.append(
                    stage.function(at._replace(block=b), state, freeze(self.blocks[b]), *stage.args)
                )
        return deepcopy(reports)

    def rotate(self, stage):
        left = (np.array(stage.order) >= 0).sum(axis=0)
        for line in stage.order:
            reports, ats = [], self.now() if self.program.meets_model else self.ats
            for p, b in enumerate(line):
                if b < 0:
                    continue
                left[p] -= 1
                at = ats[p]._replace(block=b, is_last=bool(left[p] == 0))
                block = self.blocks[b] if stage.kind == "changes" else freeze(self.blocks[b])
                made = stage.function(at, self.states[p], block, *stage.args)
                found = list(made) if stage.kind == "changes" or stage.synced else [made]
                if stage.synced:
                    reports.append(found.pop())
                if stage.kind == "changes":
                    self.blocks[b] = found.pop()
                [self.states[p]] = found
            if stage.synced:
                self.aggregate(deepcopy(reports))

    def combine(self, parts):
        made = [
            [of_shard[b] for of_shard in parts if b in of_shard]
            for b in range(self.ats[0].n_blocks)
        ]
        self.blocks = deepcopy(
            [self.program.combine(b, freeze(of_block)) for b, of_block in enumerate(made)]
        )

    def aggregate(self, reports):
        self.model = self.program.aggregate(freeze(self.model), freeze(reports))

    def ask(self, method):
        return deepcopy(
            [method(at, state) for at, state in zip(self.now(), freeze(self.states), strict=True)]
        )

    def harvest(self):
        stage = self.program.harvesting(self.n)
        blocks = (
            [self.program.harvest_block(b) for b in freeze(self.blocks)]
            if stage is None
            else self.seen(stage)
        )
        return Harvest(self.model, self.ask(self.program.harvest), deepcopy(blocks))

    def save(self):
        return Saved(
            self.model,
            self.ask(self.program.save),
            deepcopy(self.blocks) if self.program.saves_blocks else [],
        )
