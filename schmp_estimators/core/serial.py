"""The serial engine: the definition of what a program means, one cell after the other.  It writes in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.checkpoint import Checkpoint, settle
from schmp_estimators.core.program import AnyProgram, Harvest, Saved
from schmp_estimators.core.stages import At, Each, Stage, check_stages, for_all, in_turn
from schmp_estimators.core.values import freeze, own, own_views


class Source(NamedTuple):
    """Where a shard comes from: ``function(*pieces)``, on the worker that will hold the shard.

    A piece is a callable that returns a value, or something that the place holds already.
    """

    function: Callable[..., Any]
    pieces: tuple[Any, ...] = ()
    #: Whether the function returns the shard and, beside it, what the run can be asked for by `told_by_sources`.
    tells: bool = False


class SerialRun:
    """A run of a program, which has begun: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.

    Parameters
    ----------
    program, sources, n_sweeps, saved, first, release
        As in `StaticRun`.
    each : callable
        What functions of the program get as ``at.each``.
    saves : callable, optional
        As in `StaticRun`.
    """

    #: Sweeps come one by one.
    took: ClassVar[None] = None

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source],
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
        release: Callable[[], None] | None = None,
        each: Each = in_turn,
        saves: Callable[[int], bool] = lambda sweep: False,
    ) -> None:
        self._saves = saves
        self._kept: Checkpoint | None = None
        self._program, self._sweeps = program, range(first, n_sweeps)
        shards, self._told = [], []
        for load, pieces, tells in sources:
            brought = [piece() if callable(piece) else piece for piece in pieces]
            found = freeze(load(*freeze(brought)))
            shards.append(found[0] if tells else found)
            self._told.append(found[1] if tells else None)
        if release is not None:
            release()
        n, self._n_blocks = len(shards), program.n_blocks(len(shards))
        #: What functions are told, shard by shard, and what all shards are told anew.
        self._ats: list[At] = []
        self._now: dict[str, Any] = {"sweep": first - 1, "model": None}
        self._states, parts, reports = [], [], []
        for p, shard in enumerate(shards):
            at = At(shard, None, first - 1, p, n, n_blocks=self._n_blocks, each=each)
            if saved:
                state, made = program.restore(at._replace(model=freeze(saved.model)), freeze(saved.shards[p]))
            else:
                state, made = program.init(at)
            self._ats.append(at)
            self._states.append(state)
            parts.append(made)
            reports.append(program.report(at, state))
        if saved and program.saves_blocks:
            self._blocks = own(list(saved.blocks))
        else:
            self._combine(parts)
        if saved and saved.model is not None:
            self._now["model"] = freeze(saved.model)
        else:
            self._aggregate(reports)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        n = len(self._ats)
        for sweep in self._sweeps:
            self._now |= {"sweep": sweep, "saves": self._saves(sweep)}
            self._work(check_stages(self._program, self._program.schedule(sweep, n), n, self._n_blocks))
            yield self._program.record(sweep, self._now["model"])

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has told beside its shard; None, if it does not."""
        told, self._told = self._told, [None] * len(self._told)
        return told

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        stage = self._program.harvesting(len(self._ats))
        if stage is None:
            blocks = [self._program.harvest_block(block) for block in freeze(self._blocks)]
        else:
            blocks = self._seen(stage)
        return Harvest(self._now["model"], self._ask(self._program.harvest), own_views(blocks))

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        blocks = own(self._blocks) if self._program.saves_blocks else []
        return Saved(self._now["model"], self._ask(self._program.save), blocks)

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Let a checkpoint of the current sweep be written; the arguments are those of `StaticRun.keep`."""
        self._kept = checkpoint
        checkpoint.write_behind(done, values(self.save()))

    def __enter__(self) -> SerialRun:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Wait for a checkpoint that is being written."""
        settle(self._kept, error)

    def observe(self, stages: Any) -> dict[str, Any]:
        """Return the record that the current sweep would have if these stages, which observe, were its last ones."""
        before = dict(self._now)
        self._work(check_stages(self._program, stages, len(self._ats), self._n_blocks))
        record = self._program.record(self._now["sweep"], self._now["model"])
        self._now = before
        return record

    def _ask(self, method: Callable[[At, Any], Any]) -> list[Any]:
        asked = zip(self._ats, freeze(self._states), strict=True)
        return own_views([method(at._replace(**self._now), state) for at, state in asked])

    def _aggregate(self, reports: list[Any]) -> None:
        self._now["model"] = freeze(self._program.aggregate(self._now["model"], freeze(reports)))

    def _combine(self, parts: Sequence[Mapping[int, Any]]) -> None:
        made = [[of_shard[b] for of_shard in parts if b in of_shard] for b in range(self._n_blocks)]
        self._blocks = [self._program.combine(b, of_block) for b, of_block in enumerate(made)]

    def _work(self, stages: Sequence[Stage]) -> None:
        answers: list[list[Any]] = []
        for stage in stages:
            if stage.kind == "each":
                self._let_each(stage, answers)
                answers = []
            elif stage.kind == "observes":
                self._aggregate(self._seen(stage))
            elif stage.kind == "exchanges":
                answers = self._exchange(stage)
            else:
                self._rotate(stage)

    def _exchange(self, stage: Stage) -> list[list[Any]]:
        """Return for every shard what all shards answer."""
        if stage.here:
            of_all = [at.shard for at in self._ats], self._states
            answers = [for_all(stage.here, at._replace(**self._now), *of_all, *stage.args) for at in self._ats]
            return _transposed(answers)
        met = zip(self._ats, self._pieces(stage), strict=True)
        return _transposed(
            [for_all(stage.function, at._replace(**self._now), of_all, *stage.args) for at, of_all in met]
        )

    def _pieces(self, stage: Stage) -> list[list[Any]]:
        """Return for every shard the pieces that all shards have for it."""
        assert stage.split is not None
        shards = zip(self._ats, freeze(self._states), strict=True)
        now = {**self._now, "model": None}  # as where pieces are cut before the model is made
        return _transposed([for_all(stage.split, at._replace(**now), state) for at, state in shards])

    def _let_each(self, stage: Stage, answers: Sequence[list[Any]]) -> None:
        reports, parts = [], []
        for p, shard in enumerate(self._ats):
            at = shard._replace(**self._now)
            made = stage.function(at, self._states[p], *answers[p : p + 1], *stage.args)
            found = list(made) if stage.parts or stage.reports else [made]
            reports.append(found.pop() if stage.reports else self._program.report(at, found[0]))
            self._states[p] = found[0]
            parts += found[1:]
        self._aggregate(reports)
        if stage.parts:
            self._combine(parts)

    def _seen(self, stage: Stage) -> list[Any]:
        """Return what shards report that observe."""
        reports, blocks = [], freeze(self._blocks)
        pieces = self._pieces(stage) if stage.split else []
        for shard, state in zip(self._ats, freeze(self._states), strict=True):
            at = shard._replace(**self._now)
            if stage.order is None:
                reports.append(stage.function(at, state, *pieces[at.number : at.number + 1], *stage.args))
            met = [line[at.number] for line in stage.order or ()]
            reports += [stage.function(at._replace(block=b), state, blocks[b], *stage.args) for b in met if b >= 0]
        return reports

    def _rotate(self, stage: Stage) -> None:
        assert stage.order is not None
        left = (np.array(stage.order) >= 0).sum(axis=0)  # blocks that each shard has still to meet
        for line in stage.order:
            reports, now = [], self._now if self._program.meets_model else {**self._now, "model": None}
            for p, b in enumerate(line):
                if b < 0:
                    continue
                left[p] -= 1
                state = self._states[p]
                at = self._ats[p]._replace(**now, block=b, is_last=bool(left[p] == 0))
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


def _transposed(of_shards: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return what all have for the first, for the second, and so on."""
    return [list(one) for one in zip(*of_shards, strict=True)]
