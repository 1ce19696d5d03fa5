"""The interpreter: what the stages of a program mean, for the shards of one rank.

A run has one rank or many.  Each has some of the shards, and what it needs of other ranks comes by a communicator; the
only rank of a run in one process has all shards, and nobody to talk to.  Nothing else interprets a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from threading import Lock
from time import time
from typing import Any

from schmp_estimators.core.engine.communicator import Alone, Communicator
from schmp_estimators.core.engine.routes import Segment, Visit, made_anew, plan_route
from schmp_estimators.core.program import AnyProgram, Saved
from schmp_estimators.core.reduction import Nodes, add_up
from schmp_estimators.core.stages import At, Each, Stage, check_stages, for_all, in_turn, unpack
from schmp_estimators.core.values import claim, freeze, own, own_views


class Rank:
    """The shards of a rank, with their states, the blocks that are here, and the model.

    Parameters
    ----------
    program : Program
    communicator : Communicator
    groups : sequence of sequences of int
        The shards of each rank.
    shards : sequence
        The data of this rank's shards.
    inside : callable, optional
        What functions of the program get as ``at.each``; by default that of the communicator.

    Attributes
    ----------
    states : list
        One for each shard of this rank; they are changed in place.
    blocks : dict of int
        The blocks that are here, by number.
    holders : tuple of int
        The rank that has each block.
    model : object
        What `aggregate` has returned last; the same on all ranks.
    """

    def __init__(
        self,
        program: AnyProgram,
        communicator: Communicator,
        groups: Sequence[Sequence[int]],
        shards: Sequence[Any],
        inside: Each | None = None,
    ) -> None:
        self._program, self._communicator, self._groups = program, communicator, groups
        self._n_shards = sum(map(len, groups))
        rank_of = {p: rank for rank, group in enumerate(groups) for p in group}
        self._rank_of = [rank_of[p] for p in range(self._n_shards)]
        self._n_blocks = program.n_blocks(self._n_shards)
        numbered = zip(shards, groups[communicator.rank], strict=True)
        shared: dict[str, Any] = {"n_blocks": self._n_blocks, "each": inside or communicator.each}
        self._ats = [At(shard, None, -1, p, self._n_shards, **shared) for shard, p in numbered]
        self._position = {at.number: i for i, at in enumerate(self._ats)}
        self.states: list[Any] = [None] * len(self._ats)
        self.blocks: dict[int, Any] = {}
        self.holders = made_anew(self._rank_of, self._n_blocks)
        self.model: Any = None

    def begin(self, sweep: int, saved: Saved | None = None) -> None:
        """Make the first states, blocks and model, or take up those that were saved after a sweep."""
        self._ats = [at._replace(sweep=sweep) for at in self._ats]
        given, reports = list[Mapping[int, Any]]([{}] * len(self._ats)), _Reports(self._n_shards, None)

        def start(i: int, at: At) -> None:
            if saved:
                before = at._replace(model=freeze(saved.model))
                self.states[i], given[i] = self._program.restore(before, freeze(saved.shards[at.number]))
            else:
                self.states[i], given[i] = self._program.init(at)
            reports.add(at.number, self._program.report(at, self.states[i]))

        self._for_each(start, None)
        if saved and self._program.saves_blocks:
            mine = [b for b, rank in enumerate(self.holders) if rank == self._communicator.rank]
            self.blocks = {b: own(saved.blocks[b]) for b in mine}
        else:
            self._combine(given)
        if saved and saved.model is not None:
            self.model = freeze(saved.model)
        else:
            self._aggregate(reports)

    def sweep(self, number: int, *, saves: bool = False) -> dict[str, Any]:
        """Do all stages of a sweep, and return its record."""
        self._ats = [at._replace(sweep=number, saves=saves) for at in self._ats]
        return self._work(self.checked(self._program.schedule(number, self._n_shards)))

    def checked(self, stages: Any) -> tuple[Stage, ...]:
        """Return stages of this rank's program as `check_stages` does."""
        return check_stages(self._program, stages, self._n_shards, self._n_blocks)

    def observe(self, stages: Sequence[Stage]) -> dict[str, Any]:
        """Return the record that the last sweep would have if these stages, which observe, were its last ones.

        They have been checked, and may be those of an equal program: the one that the client has.
        """
        before = self.model
        record = self._work(stages)
        self.model = before
        return record

    def ask(self, method: Callable[[At, Any], Any]) -> list[Any]:
        """Return what a method of the program makes of each shard."""
        return own_views(self._for_each(lambda i, at: method(at, freeze(self.states[i])), self.model))

    def harvest(self) -> tuple[list[Any], dict[int, Any]]:
        """Return what the program harvests of the shards of this rank, and of blocks, by number.

        These are the blocks of this rank; or, on rank 0, what `Program.harvesting` sees.
        """
        stage = self._program.harvesting(self._n_shards)
        if stage is None:
            blocks = {b: self._program.harvest_block(freeze(block)) for b, block in self.blocks.items()}
        else:
            blocks = dict(enumerate(self._brought(self._observe(stage)) or ()))
        return self.ask(self._program.harvest), own_views(blocks)

    def save(self) -> tuple[list[Any], dict[int, Any]]:
        """Return what a run needs to go on, of the shards and of the blocks of this rank."""
        return self.ask(self._program.save), own(self.blocks) if self._program.saves_blocks else {}

    def join(self, communicator: Communicator, shards: Sequence[Any]) -> None:
        """Go on with another communicator of the same ranks, and with the data of this rank's shards."""
        self._communicator = communicator
        given = zip(self._ats, freeze(list(shards)), strict=True)
        self._ats = [at._replace(each=communicator.each, shard=shard) for at, shard in given]

    def leave(self) -> None:
        """Stop, without a communicator and data, so that the rank can be kept, or travel."""
        self._communicator = Alone()
        self._ats = [at._replace(each=in_turn, shard=None) for at in self._ats]

    def _work(self, stages: Sequence[Stage]) -> dict[str, Any]:
        answers: list[list[Any]] = []
        for stage in stages:
            if stage.kind == "exchanges":
                answers = self._swap(self._answer(stage, self._pieces(stage)))
            elif stage.kind == "each":
                self._each(stage, answers)
                answers = []
            elif stage.kind == "observes":
                self._aggregate(self._observe(stage))
            else:
                self._rotate(stage)
        return self._program.record(self._ats[0].sweep, self.model)

    def _for_each(self, function: Callable[[int, At], Any], model: Any) -> list[Any]:
        """Return what a function makes of the shards of this rank, with its threads."""
        ats = [at._replace(model=model) for at in self._ats]
        return self._communicator.each(lambda i: function(i, ats[i]), range(len(ats)))

    @contextmanager
    def _named(self, stage: Stage, at: At) -> Iterator[None]:
        """Take note of a call of a stage's function, and let an error say where it was."""
        began = time()
        try:
            yield
            self._communicator.note(f"{self._program.name}-{stage.name}", began, at.sweep, at.block)
        except Exception as error:
            where = f"shard {at.number}" + (f" and block {at.block}" if at.block >= 0 else "")
            error.add_note(f"in {type(self._program).__name__}.{stage.function.__name__}, sweep {at.sweep}, {where}")
            raise

    def _pieces(self, stage: Stage) -> list[list[Any]]:
        """Return for each shard of this rank the pieces that all shards have for it."""
        split = stage.split
        assert split is not None
        # no model: a piece must not depend on when it is cut
        return self._swap(self._for_each(lambda i, at: for_all(split, at, freeze(self.states[i])), None))

    def _answer(self, stage: Stage, pieces: list[list[Any]]) -> list[Sequence[Any]]:
        """Return what the shards answer to all; pieces go as they are used."""

        def answer(i: int, at: At) -> Sequence[Any]:
            with self._named(stage, at):
                return for_all(stage.function, at, _taken(pieces, i), *stage.args)

        return self._for_each(answer, self.model)

    def _each(self, stage: Stage, answers: list[list[Any]]) -> None:
        """Update the shards, and let their reports make the new model; answers go as they are used."""
        reports = _Reports(self._n_shards, stage.merge)
        given = list[Mapping[int, Any]]([{}] * len(self._ats))

        def update(i: int, at: At) -> None:
            brought = [_taken(answers, i)] if answers else []
            with self._named(stage, at):
                found = unpack(stage, stage.function(at, self.states[i], *brought, *stage.args))
            self.states[i] = found.state
            reports.add(at.number, found.report if stage.reports else self._program.report(at, found.state))
            if stage.parts:
                given[i] = found.parts

        self._for_each(update, self.model)
        self._aggregate(reports)
        if stage.parts:
            self._combine(given)

    def _combine(self, given: list[Mapping[int, Any]]) -> None:
        """Make all blocks anew of what shards have given for them, each on the rank that will hold it."""
        self.holders, self.blocks = made_anew(self._rank_of, self._n_blocks), {}
        sent = [
            [{b: of_shard[b] for b in of_shard if b in held} for of_shard in given]
            for held in (
                {b for b, holder in enumerate(self.holders) if holder == rank} for rank in range(len(self._groups))
            )
        ]
        given.clear()
        found: dict[int, Mapping[int, Any]] = {}
        for group, received in zip(self._groups, self._communicator.alltoall(sent), strict=True):
            found |= zip(group, freeze(received), strict=True)
        mine = [b for b, rank in enumerate(self.holders) if rank == self._communicator.rank]

        def combine(b: int) -> Any:
            return self._program.combine(b, [found[p][b] for p in range(self._n_shards) if b in found[p]])

        self.blocks = dict(zip(mine, self._communicator.each(combine, mine), strict=True))

    def _observe(self, stage: Stage) -> _Reports:
        """Return the reports of shards that see themselves, and perhaps pieces of all states, or blocks."""
        if stage.order is not None:
            return self._meet(stage, Counter())
        reports, pieces = _Reports(self._n_shards, stage.merge), self._pieces(stage) if stage.split else []

        def look(i: int, at: At) -> None:
            with self._named(stage, at):
                report = stage.function(at, freeze(self.states[i]), *pieces[i : i + 1], *stage.args)
            reports.add(at.number, report)

        self._for_each(look, self.model)
        return reports

    def _rotate(self, stage: Stage) -> None:
        """Let the shards meet blocks."""
        assert stage.order is not None
        left = Counter(p for line in stage.order for p, b in enumerate(line) if b >= 0)
        if not stage.synced:
            self._meet(stage, left)
            return
        for line in stage.order:
            self._aggregate(self._meet(stage._replace(order=(line,)), left))

    def _meet(self, stage: Stage, left: Counter[int]) -> _Reports:
        """Let the shards of this rank meet blocks, as these come by; return a list of what each shard reports.

        Visits of one step share neither shard nor block, so the threads of this rank do them at the same time.

        Parameters
        ----------
        stage : Stage
        left : Counter
            How many blocks each shard has still to meet; mutated.
        """
        assert stage.order is not None
        reports: dict[int, list[Any]] = {at.number: [] for at in self._ats}
        route = plan_route(stage.order, self._rank_of, self.holders, self._communicator.rank)
        for b, to in route.leaves.items():
            self._pass_on(b, to)
        arrived: dict[int, Any] = {}
        for segment in route.segments:
            for _, visits in groupby(segment.leg.visits, lambda visit: visit.step):
                self._visit(stage, list(visits), segment, arrived, left, reports)
        self.holders = route.holders
        found = _Reports(self._n_shards, None, are_lists=True)
        for number, of_shard in reports.items():
            found.add(number, of_shard)
        return found

    def _visit(
        self,
        stage: Stage,
        visits: Sequence[Visit],
        segment: Segment,
        arrived: dict[int, Any],
        left: Counter[int],
        reports: dict[int, list[Any]],
    ) -> None:
        """Let shards meet blocks in one step, and pass the blocks on that other ranks wait for."""
        model = self.model if self._program.meets_model or stage.kind == "observes" else None

        def meet(visit: Visit) -> None:
            i = self._position[visit.shard]
            at = self._ats[i]._replace(model=model, block=visit.block, is_last=not left[visit.shard])
            with self._named(stage, at):
                reports[visit.shard] += self._met(stage, i, at)

        left.subtract(visit.shard for visit in visits)
        last = {visit.block: visit for visit in segment.leg.visits}
        here = [visit for visit in visits if visit.block in self.blocks]
        for some in here, [visit for visit in visits if visit not in here]:
            self._await({visit.block for visit in some}, segment, arrived)
            self._communicator.each(meet, some)
            for visit in some:
                if visit.block in segment.goes and visit is last[visit.block]:  # it travels while others are worked on
                    self._pass_on(visit.block, segment.goes[visit.block])

    def _await(self, wanted: Iterable[int], segment: Segment, arrived: dict[int, Any]) -> None:
        """Wait for the blocks that other ranks send; those that come before they are wanted are kept in `arrived`."""
        for b in wanted:
            while b not in self.blocks and b not in arrived:
                arrived.update([self._communicator.receive(segment.comes[b])])
            if b in arrived:
                self.blocks[b] = arrived.pop(b)

    def _met(self, stage: Stage, i: int, at: At) -> list[Any]:
        """Let a shard meet a block; return what it reports, if it does."""
        b = at.block
        if stage.kind == "observes":
            return [stage.function(at, freeze(self.states[i]), freeze(self.blocks[b]), *stage.args)]
        if stage.kind == "changes":
            self.blocks[b] = block = claim(self.blocks[b])
        else:
            block = freeze(self.blocks[b])
        found = unpack(stage, stage.function(at, self.states[i], block, *stage.args))
        if stage.kind == "changes":
            self.blocks[b] = found.block
        self.states[i] = found.state
        return [found.report] if stage.synced else []

    def _pass_on(self, block: int, to: int) -> None:
        self._communicator.send(to, (block, self.blocks.pop(block)))

    def _swap(self, made: list[Sequence[Any]]) -> list[list[Any]]:
        """Return for each shard of this rank what all shards have for it, given what those of this rank have."""
        sent = [[[of_shard[p] for p in group] for of_shard in made] for group in self._groups]
        made.clear()
        found: list[dict[int, Any]] = [{} for _ in self.states]
        for group, received in zip(self._groups, self._communicator.alltoall(sent), strict=True):
            for p, of_shard in zip(group, received, strict=True):
                for mine, one in zip(found, of_shard, strict=True):
                    mine[p] = one
        return [freeze([of_all[p] for p in range(len(of_all))]) for of_all in found]

    def _aggregate(self, reports: _Reports) -> None:
        """Let rank 0 make the new model for all."""
        brought = self._brought(reports)
        model = None if brought is None else self._program.aggregate(self.model, freeze(brought))
        self.model = freeze(self._communicator.broadcast(freeze(model)))

    def _brought(self, reports: _Reports) -> list[Any] | None:
        """Return the reports of all shards on rank 0, merged if they may be, and None on the others."""
        if reports.merge:
            nodes = self._communicator.reduce(reports.nodes, self._n_shards, reports.merge, least=2)
            # two of one level of the tree: `aggregate` adds them up as it would add up all leaves
            return None if nodes is None else [nodes[place] for place in sorted(nodes)]
        gathered = self._communicator.gather([reports.nodes[0, at.number] for at in self._ats])
        if gathered is None:
            return None
        of_shard: dict[int, Any] = {}
        for group, some in zip(self._groups, gathered, strict=True):
            of_shard |= zip(group, some, strict=True)
        in_order = [of_shard[p] for p in range(self._n_shards)]
        return [one for some in in_order for one in some] if reports.are_lists else in_order


class _Reports:
    """What the shards of a rank report, merged as soon as that can be, since reports may be large."""

    def __init__(self, n_shards: int, merge: Callable[[Any, Any], Any] | None, *, are_lists: bool = False) -> None:
        self.nodes: Nodes = {}
        self.merge = None if merge is None else partial(_merged, merge)
        #: Whether each shard has a list of them.
        self.are_lists = are_lists
        self._n_shards, self._lock = n_shards, Lock()

    def add(self, number: int, report: Any) -> None:
        """Add the report of a shard."""
        with self._lock:
            self.nodes[0, number] = freeze(report)
            if self.merge:
                self.nodes = add_up(self.nodes, self._n_shards, self.merge, least=2)


def _merged(merge: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return freeze(merge(freeze(left), freeze(right)))


def _taken(values: list[Any], at: int) -> Any:
    """Return an element of a list, which has it no longer."""
    value, values[at] = values[at], None
    return value
