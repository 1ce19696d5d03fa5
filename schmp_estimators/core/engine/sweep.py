"""The interpreter: what the stages of a program mean, for the shards of one rank.

A run has one rank or many.  Each has some of the shards, and what it needs of other ranks comes by a communicator; the
only rank of a run in one process has all shards, and nobody to talk to.  Nothing else interprets a stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from schmp_estimators.core.engine.shards import Reports, Shards, made_anew
from schmp_estimators.core.program import Saved
from schmp_estimators.core.schedules.rotation import Leg, Visit, plan_route
from schmp_estimators.core.stages import At, Stage, check_stages, for_all, unpack
from schmp_estimators.core.values import claim, freeze, own, own_views

T = TypeVar("T")


class Rank(Shards):
    """The shards of a rank, with their states, the blocks that are here, and the model; parameters as in `Shards`."""

    def begin(self, sweep: int, saved: Saved | None = None) -> None:
        """Make the first states, blocks and model, or take up those that were saved after a sweep."""
        self._ats = [at._replace(sweep=sweep) for at in self._ats]
        given, reports = list[Mapping[int, Any]]([{}] * len(self._ats)), Reports(self._n_shards, None)

        def start(i: int, at: At) -> None:
            if saved:
                before = at._replace(model=freeze(saved.model))
                state, parts = self._program.restore(before, freeze(saved.shards[at.number]))
            else:
                state, parts = self._program.init(at)
            self.states[i], given[i] = self.kept(state), self.kept(parts)
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

    def harvest(self) -> tuple[list[Any], dict[int, Any]]:
        """Return what the program harvests of the shards of this rank, and of blocks, by number.

        These are the blocks of this rank; or, on rank 0, the reports of the stage that `Program.harvesting` returns.
        """
        stage = self._program.harvesting(self._n_shards)
        if stage is None:
            blocks = {b: self._program.harvest_block(freeze(block)) for b, block in self.blocks.items()}
        else:
            blocks = dict(enumerate(self._brought(self._observe(stage)) or ()))
        return self.ask(self._program.harvest), own_views(blocks) if self.slices is None else blocks

    def save(self) -> tuple[list[Any], dict[int, Any]]:
        """Return what a run needs to go on, of the shards and of the blocks of this rank."""
        return self.ask(self._program.save), own(self.blocks) if self._program.saves_blocks else {}

    def _work(self, stages: Sequence[Stage]) -> dict[str, Any]:
        answers: list[list[Any]] = []
        for stage in stages:
            if stage.kind == "exchanges":
                answers = self._exchange(stage)
            elif stage.kind == "each":
                self._each(stage, answers)
                answers = []
            elif stage.kind == "observes":
                self._aggregate(self._observe(stage))
            else:
                self._rotate(stage)
        return self._program.record(self._ats[0].sweep, self.model)

    def _split(self, stage: Stage) -> list[list[Any]]:
        """Return what the shards of this rank have for all shards."""
        split = stage.split
        assert split is not None
        # no model: a piece must not depend on when it is cut
        return self._for_each(lambda i, at: list(self.kept(for_all(split, at, freeze(self.states[i])))), None)

    def _exchange(self, stage: Stage) -> list[list[Any]]:
        """Return for each shard of this rank what all shards answer to the pieces that they get of all."""
        made, answers = self._split(stage), [[None] * self._n_shards for _ in self.states]
        for turn in self._turns():
            found = self._answer(stage, self._swap(made, None, turn), turn)
            for mine, of_turn in zip(answers, self._swap(found, turn, None), strict=True):
                for p, one in of_turn.items():
                    mine[p] = one
        return answers

    def _answer(self, stage: Stage, pieces: list[dict[int, Any]], turn: range) -> list[list[Any]]:
        """Return what some shards answer to all; pieces go as they are used."""
        here = [i for i in turn if i < len(self.states)]

        def answer(i: int, at: At) -> list[Any]:
            brought, pieces[i - turn[0]] = _in_order(pieces[i - turn[0]]), {}
            with self._named(stage, at):
                return list(self.kept(for_all(stage.function, at, brought, *stage.args)))

        return self._for_each(answer, self.model, here)

    def _each(self, stage: Stage, answers: list[list[Any]]) -> None:
        """Update the shards, and let their reports make the new model; answers go as they are used."""
        reports = Reports(self._n_shards, stage.merge)
        given = list[Mapping[int, Any]]([{}] * len(self._ats))

        def update(i: int, at: At) -> None:
            brought = [_taken(answers, i)] if answers else []
            with self._named(stage, at):
                found = unpack(stage, stage.function(at, self.states[i], *brought, *stage.args))
            reports.add(at.number, found.report if stage.reports else self._program.report(at, found.state))
            self.states[i] = self.kept(found.state)
            if stage.parts:
                given[i] = self.kept(found.parts)

        self._for_each(update, self.model)
        self._aggregate(reports)
        if stage.parts:
            self._combine(given)

    def _combine(self, given: list[Mapping[int, Any]]) -> None:
        """Make all blocks anew of what shards have given for them, each on the rank that will hold it."""
        self.holders, self.blocks = made_anew(self._rank_of, self._n_blocks), {}
        if not self._n_blocks:
            return
        sent: list[Any] = [[{} for _ in given] for _ in self._groups]
        for i, of_shard in enumerate(given):
            for b, part in of_shard.items():
                if not 0 <= b < self._n_blocks:
                    raise ValueError(f"a shard made a part of block {b}; there are blocks 0 … {self._n_blocks - 1}")
                sent[self.holders[b]][i][b] = part
        given.clear()
        found: dict[int, Mapping[int, Any]] = {}
        for group, received in zip(self._groups, self._communicator.alltoall(sent), strict=True):
            found |= zip(group, freeze(self.kept(received)), strict=True)
        mine = [b for b, rank in enumerate(self.holders) if rank == self._communicator.rank]

        def combine(b: int) -> Any:
            return self.kept(self._program.combine(b, [found[p][b] for p in range(self._n_shards) if b in found[p]]))

        self.blocks = dict(zip(mine, self._communicator.each(combine, mine), strict=True))

    def _observe(self, stage: Stage) -> Reports:
        """Return the reports of shards that see themselves, and perhaps pieces of all states, or blocks."""
        if stage.order is not None:
            return self._meet(stage, Counter())
        reports = Reports(self._n_shards, stage.merge)
        made = self._split(stage) if stage.split else []

        for turn in self._turns():
            pieces = self._swap(made, None, turn) if stage.split else []

            def look(i: int, at: At, turn: range = turn, pieces: list[dict[int, Any]] = pieces) -> None:
                brought = [_in_order(pieces[i - turn[0]])] if stage.split else []
                with self._named(stage, at):
                    report = stage.function(at, freeze(self.states[i]), *brought, *stage.args)
                reports.add(at.number, report if stage.merge else self.kept(report))

            self._for_each(look, self.model, [i for i in turn if i < len(self.states)])
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

    def _meet(self, stage: Stage, left: Counter[int]) -> Reports:
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
        if self.slices is not None and stage.kind != "changes" and not stage.synced:
            self._meet_by_shard(stage, route.legs, reports)
        else:
            for leg in route.legs:
                for _, visits in groupby(leg.visits, lambda visit: visit.step):
                    self._visit(stage, list(visits), leg, arrived, left, reports)
        self.holders = route.holders
        found = Reports(self._n_shards, None, are_lists=True)
        for number, of_shard in reports.items():
            found.add(number, of_shard)
        return found

    def _meet_by_shard(self, stage: Stage, legs: Sequence[Leg], reports: dict[int, list[Any]]) -> None:
        """Let all blocks come by, which are only read; then let one shard after the other meet them."""
        seen: dict[int, Any] = {}
        visits: dict[int, list[int]] = {at.number: [] for at in self._ats}
        arrived: dict[int, Any] = {}
        for leg in legs:
            for visit in leg.visits:
                self._await([visit.block], leg, arrived)
                seen[visit.block] = self.blocks[visit.block]
                visits[visit.shard].append(visit.block)
            for b, to in leg.goes.items():
                self._pass_on(b, to)
        here, self.blocks = self.blocks, seen

        def meet(i: int, at: At) -> None:
            for b in visits[at.number]:
                where = at._replace(block=b, is_last=b == visits[at.number][-1])
                with self._named(stage, where):
                    reports[at.number] += self._met(stage, i, where)
            self.states[i] = self.kept(self.states[i])

        self._for_each(meet, self._model_for(stage))
        self.blocks = here
        # in one process ranks share files: nobody may change a block that another one still looks at
        self._communicator.alltoall([None] * len(self._groups))

    def _model_for(self, stage: Stage) -> Any:
        """Return what shards are told of the model as they meet blocks."""
        return self.model if self._program.meets_model or stage.kind == "observes" else None

    def _visit(
        self,
        stage: Stage,
        visits: Sequence[Visit],
        leg: Leg,
        arrived: dict[int, Any],
        left: Counter[int],
        reports: dict[int, list[Any]],
    ) -> None:
        """Let shards meet blocks in one step, and pass the blocks on that other ranks wait for."""
        model = self._model_for(stage)

        def meet(visit: Visit) -> None:
            i = self._position[visit.shard]
            at = self._ats[i]._replace(model=model, block=visit.block, is_last=not left[visit.shard])
            with self._named(stage, at):
                reports[visit.shard] += self._met(stage, i, at)

        left.subtract(visit.shard for visit in visits)
        last = {visit.block: visit for visit in leg.visits}
        here = [visit for visit in visits if visit.block in self.blocks]
        for some in here, [visit for visit in visits if visit not in here]:
            self._await({visit.block for visit in some}, leg, arrived)
            self._communicator.each(meet, some)
            for visit in some:
                if visit.block in leg.goes and visit is last[visit.block]:  # it travels while others are worked on
                    self._pass_on(visit.block, leg.goes[visit.block])

    def _await(self, wanted: Iterable[int], leg: Leg, arrived: dict[int, Any]) -> None:
        """Wait for the blocks that other ranks send; those that come before they are wanted are kept in `arrived`."""
        for b in wanted:
            while b not in self.blocks and b not in arrived:
                arrived.update([self._communicator.receive(leg.comes[b])])
            if b in arrived:
                self.blocks[b] = self.kept(arrived.pop(b))

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

    def _swap(self, made: list[list[Any]], givers: range | None, takers: range | None) -> list[dict[int, Any]]:
        """Return for each taker of this rank what all givers have for it, by their numbers.

        Parameters
        ----------
        made : list of lists
            What each giver of this rank has for all shards; what is taken goes.
        givers, takers : range, optional
            Their positions in their ranks; by default all.
        """
        sent = [[[_taken(of_shard, p) for p in _some(group, takers)] for of_shard in made] for group in self._groups]
        found: list[dict[int, Any]] = [{} for _ in _some(self._ats, takers)]
        for rank, received in enumerate(self._communicator.alltoall(sent)):
            # what comes for one shard is there only for as long as it is worked upon
            come = received if rank == self._communicator.rank or takers else self.kept(received)
            for p, of_shard in zip(_some(self._groups[rank], givers), come, strict=True):
                for mine, one in zip(found, of_shard, strict=True):
                    mine[p] = one
        return freeze(found)

    def _aggregate(self, reports: Reports) -> None:
        """Let rank 0 make the new model for all."""
        brought = self._brought(reports)
        model = None if brought is None else self._program.aggregate(self.model, freeze(brought))
        self.model = freeze(self._communicator.broadcast(freeze(model)))

    def _brought(self, reports: Reports) -> list[Any] | None:
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


def _taken(values: list[Any], at: int) -> Any:
    """Return an element of a list, which has it no longer."""
    value, values[at] = values[at], None
    return value


def _some(values: Sequence[T], positions: range | None) -> Sequence[T]:
    return values if positions is None else values[positions.start : positions.stop]


def _in_order(found: Mapping[int, Any]) -> list[Any]:
    """Return what is there of all shards in the order of their numbers."""
    return [found[p] for p in range(len(found))]
