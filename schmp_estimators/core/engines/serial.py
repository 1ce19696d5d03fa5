"""The serial engine: the definition of what a program means, one cell after the other.  It writes in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from schmp_estimators.core.program import AnyProgram, Harvest, Saved
from schmp_estimators.core.stages import At, Each, Stage, check_stages, in_turn
from schmp_estimators.core.values import freeze, own


class Source(NamedTuple):
    """Where a shard comes from: ``function(*pieces)``, on the worker that will hold the shard.

    A piece is a callable that returns a value, or something that the place holds already.
    """

    function: Callable[..., Any]
    pieces: tuple[Any, ...] = ()


class SerialRun:
    """A run of a program, which has begun: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.

    Parameters
    ----------
    program, sources, n_sweeps, saved, first, release
        As in `StaticRun`.
    each : callable
        What functions of the program get as ``at.each``.
    """

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source],
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
        release: Callable[[], None] = lambda: None,
        each: Each = in_turn,
    ) -> None:
        self._program, self._sweeps = program, range(first, n_sweeps)
        self._n_blocks = program.n_blocks(len(sources))
        #: What functions are told, shard by shard.
        self._here: list[At] = []
        for p, (load, pieces) in enumerate(sources):
            shard = freeze(load(*[piece() if callable(piece) else piece for piece in pieces]))
            self._here.append(At(shard, None, first - 1, p, len(sources), n_blocks=self._n_blocks, each=each))
        release()
        self._states, parts, reports = [], [], []
        for at in self._here:
            state, made = program.restore(at, freeze(saved.shards[at.number])) if saved else program.init(at)
            self._states.append(state)
            parts.append(made)
        if saved and program.saves_blocks:
            self._blocks = own(list(saved.blocks))
        else:
            self._combine(parts)
        if saved and saved.model is not None:
            self._tell(model=freeze(saved.model))
        else:
            for at, state in zip(self._here, self._states, strict=True):
                reports.append(program.report(at, state))
            self._aggregate(reports)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sweep in self._sweeps:
            self._tell(sweep=sweep)
            self._work(self._program.schedule(sweep, len(self._here)))
            yield self._record()

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        blocks = [self._program.harvest_block(block) for block in freeze(self._blocks)]
        return Harvest(self._here[0].model, self._ask(self._program.harvest), own(blocks))

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        blocks = own(self._blocks) if self._program.saves_blocks else []
        return Saved(self._here[0].model, self._ask(self._program.save), blocks)

    def observe(self, stages: Any) -> dict[str, Any]:
        """Return the record that the current sweep would have if these stages, which observe, were its last ones."""
        here = self._here
        self._work(stages)
        record = self._record()
        self._here = here
        return record

    def _ask(self, method: Callable[[At, Any], Any]) -> list[Any]:
        return own([method(at, freeze(state)) for at, state in zip(self._here, self._states, strict=True)])

    def _record(self) -> dict[str, Any]:
        return self._program.record(self._here[0].sweep, self._here[0].model)

    def _tell(self, **news: Any) -> None:
        self._here = [at._replace(**news) for at in self._here]

    def _aggregate(self, reports: list[Any]) -> None:
        model = self._program.aggregate(self._here[0].model, freeze(reports))
        self._tell(model=freeze(model))

    def _combine(self, parts: Sequence[Mapping[int, Any]]) -> None:
        made = [[of_shard[b] for of_shard in parts if b in of_shard] for b in range(self._n_blocks)]
        self._blocks = [self._program.combine(b, of_block) for b, of_block in enumerate(made)]

    def _work(self, stages: Any) -> None:
        for stage in check_stages(self._program, stages, len(self._here), self._n_blocks):
            if stage.kind == "each":
                self._let_each(stage)
            elif stage.kind == "observes":
                self._observe(stage)
            else:
                self._rotate(stage)

    def _let_each(self, stage: Stage) -> None:
        reports, parts = [], []
        for p, at in enumerate(self._here):
            made = stage.function(at, self._states[p], *stage.args)
            found = list(made) if stage.parts or stage.reports else [made]
            reports.append(found.pop() if stage.reports else self._program.report(at, found[0]))
            self._states[p] = found[0]
            parts += found[1:]
        self._aggregate(reports)
        if stage.parts:
            self._combine(parts)

    def _observe(self, stage: Stage) -> None:
        reports, blocks = [], freeze(self._blocks)
        for at, state in zip(self._here, freeze(self._states), strict=True):
            if stage.order is None:
                reports.append(stage.function(at, state, *stage.args))
            met = [line[at.number] for line in stage.order or ()]
            reports += [stage.function(at._replace(block=b), state, blocks[b], *stage.args) for b in met if b >= 0]
        self._aggregate(reports)

    def _rotate(self, stage: Stage) -> None:
        assert stage.order is not None
        left = [sum(line[p] >= 0 for line in stage.order) for p in range(len(self._here))]
        for line in stage.order:
            reports = []
            for p, b in enumerate(line):
                if b < 0:
                    continue
                left[p] -= 1
                at, state = self._here[p]._replace(block=b, is_last=not left[p]), self._states[p]
                piece = stage.division.split(at, state) if stage.division else state
                changing = stage.kind == "changes"
                made = stage.function(at, piece, self._blocks[b] if changing else freeze(self._blocks[b]), *stage.args)
                found = list(made) if changing or stage.synced else [made]
                if stage.synced:
                    reports.append(found.pop())
                if not stage.division:
                    self._states[p] = found[0]
                if changing:
                    self._blocks[b] = found[1]
            if stage.synced:
                self._aggregate(reports)
