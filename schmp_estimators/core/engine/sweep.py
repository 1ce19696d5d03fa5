"""The interpreter: it defines what the stages of a program do.

All runs use it.  A run has one or more ranks (see the glossary), and each rank interprets the
stages for its shards.  It gets what it needs from other ranks through its communicator.  A run in
one process has one rank, which holds all shards and exchanges nothing.  A shard *meets* a block
when the function of a stage is called with both.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import time
from typing import Any, TypeVar

from schmp_estimators.core.engine.shards import Reports, Shards, made_anew
from schmp_estimators.core.io.archive import pack
from schmp_estimators.core.io.checkpoint import refusing_damage
from schmp_estimators.core.program import Program, Saved
from schmp_estimators.core.schedules.rotation import Leg, Visit, plan_route
from schmp_estimators.core.stages import (
    At,
    Stage,
    check_stages,
    described,
    for_all,
    name_of,
    naming,
    unpack,
)
from schmp_estimators.core.typing import Named, Numbered
from schmp_estimators.core.values import claim, freeze, own, own_views

T = TypeVar("T")


class Rank(Shards):
    """The shards of a rank, with their states, the blocks that it holds, and the model.

    Parameters are as in `Shards`.
    """

    def begin(self, sweep: int, saved: Saved | None = None) -> None:
        """Set states, blocks and model.

        They are the first ones, or those that were saved at the end of sweep `sweep`.
        """
        self._ats = [at._replace(sweep=sweep) for at in self._ats]
        given = list[Mapping[int, Any]]([{}] * len(self._ats))
        reports = Reports(self._n_shards, None)

        def start(i: int, at: At) -> None:
            if saved:
                what = f"what was saved of shard {at.number}"
                with refusing_damage(what, "is not what this run can restore"):
                    before = at._replace(model=freeze(saved.model))
                    made = self._begun("restore", before, freeze(saved.shards[at.number]))
            else:
                made = self._begun("init", at)
            self.states[i], given[i] = map(self.kept, made)
            reports.add(at.number, self._report(at, self.states[i]))

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
        if not saved:  # a run without a checkpoint may get one later
            program = self._program
            shards = self.states if type(program).save is Program.save else []
            blocks = self.blocks if program.saves_blocks else {}
            pack({}, {"model": self.model, "shards": shards, "blocks": blocks})

    def _begun(self, method: str, at: At, *saved: Any) -> Any:
        """Return the state of a shard and its parts of blocks, as a method makes them.

        The method is one of the program.
        """
        with self._named(method, at):
            made = getattr(self._program, method)(at, *saved)
            if (
                type(made) not in (tuple, list)
                or len(made) != 2
                or not isinstance(made[1], Mapping)
            ):
                raise TypeError(
                    f"{type(self._program).__name__}.{method} must return a state and a dict of "
                    f"parts of blocks, {{}} if there are none; got {described(made)}"
                )
        return made

    def _report(self, at: At, state: Any) -> Any:
        with self._named("report", at):
            return self._program.report(at, state)

    def _naming(self, method: str, *where: str) -> AbstractContextManager[None]:
        """Say in an error of a method that is not called on a shard where it was raised."""
        return naming(self._program, method, self._ats[0].sweep, *where)

    def sweep(self, number: int, *, saves: bool = False) -> Named:
        """Do all stages of a sweep, and return the record of the sweep."""
        self._ats = [at._replace(sweep=number, saves=saves) for at in self._ats]
        with self._naming("schedule"):
            stages = self.checked(self._program.schedule(number, self._n_shards))
        return self._work(stages)

    def checked(self, stages: Any) -> tuple[Stage, ...]:
        """Check stages with `check_stages`, and return them as a tuple."""
        return check_stages(self._program, stages, self._n_shards, self._n_blocks)

    def observe(self, stages: Sequence[Stage]) -> Named:
        """Return the record that the last sweep would have if it ended with these stages.

        They are made by `observes`.

        They have been checked.  They may belong to the client's copy of the program, which is equal
        to this one.
        """
        before = self.model
        record = self._work(stages)
        self.model = before
        return record

    def harvest(self) -> tuple[list[Any], Numbered]:
        """Return the results of this rank's shards, and results of blocks by their numbers.

        The latter are those of this rank's blocks.  If the program has a stage
        `Program.harvesting`, they are the reports of this stage, on rank 0.
        """
        stage = self._program.harvesting(self._n_shards)
        if stage is None:
            blocks = {}
            for b, block in self.blocks.items():
                with self._naming("harvest_block", f"block {b}"):
                    blocks[b] = self._program.harvest_block(freeze(block))
        else:
            blocks = dict(enumerate(self._brought(self._observe(stage)) or ()))
        return self.ask("harvest"), own_views(blocks) if self.slices is None else blocks

    def save(self) -> tuple[list[Any], Numbered]:
        """Return what a restart needs of this rank's shards.

        It has the rank's blocks, too, if the program saves blocks.
        """
        return self.ask("save"), own(self.blocks) if self._program.saves_blocks else {}

    def _work(self, stages: Sequence[Stage]) -> Named:
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
        with self._naming("record"):
            return self._program.record(self._ats[0].sweep, self.model)

    def _split(self, stage: Stage) -> list[list[Any]]:
        """Return for each shard of this rank its pieces for all shards.

        They are what the `split` of the stage returns.
        """
        split = stage.split
        assert split is not None

        def cut(i: int, at: At) -> list[Any]:
            with self._named(name_of(split), at):
                return list(self.kept(for_all(split, at, freeze(self.states[i]))))

        # without a model: a piece must not depend on the moment at which it is made
        return self._for_each(cut, None)

    def _exchange(self, stage: Stage) -> list[list[Any]]:
        """Send pieces to all shards; return the answers to those of this rank.

        There are answers of all shards for each shard of this rank.
        """
        made = self._split(stage)
        answers = [[None] * self._n_shards for _ in self.states]
        for turn in self._turns():
            found = self._answer(stage, self._swap(made, None, turn), turn)
            for mine, of_turn in zip(answers, self._swap(found, turn, None), strict=True):
                for p, one in of_turn.items():
                    mine[p] = one
        return answers

    def _answer(self, stage: Stage, pieces: list[Numbered], turn: range) -> list[list[Any]]:
        """Return the answers of the shards at the positions `turn` to all shards.

        Drop pieces that have been used.
        """
        here = [i for i in turn if i < len(self.states)]

        def answer(i: int, at: At) -> list[Any]:
            brought = _in_order(pieces[i - turn[0]])
            pieces[i - turn[0]] = {}
            with self._timed(stage, at):
                return list(self.kept(for_all(stage.function, at, brought, *stage.args)))

        return self._for_each(answer, self.model, here)

    def _each(self, stage: Stage, answers: list[list[Any]]) -> None:
        """Call the function of the stage on each shard, then aggregate and combine.

        Drop answers that were used.
        """
        reports = Reports(self._n_shards, stage.merge, self._ats[0].sweep)
        given = list[Mapping[int, Any]]([{}] * len(self._ats))

        def update(i: int, at: At) -> None:
            brought = [_taken(answers, i)] if answers else []
            with self._timed(stage, at):
                found = unpack(stage, stage.function(at, self.states[i], *brought, *stage.args))
            reports.add(at.number, found.report if stage.reports else self._report(at, found.state))
            self.states[i] = self.kept(found.state)
            if stage.parts:
                given[i] = self.kept(found.parts)

        self._for_each(update, self.model)
        self._aggregate(reports)
        if stage.parts:
            self._combine(given)

    def _combine(self, given: list[Mapping[int, Any]]) -> None:
        """Make all blocks from the parts that the shards have given.

        Each block is made on the rank that will hold it.
        """
        self.holders = made_anew(self._rank_of, self._n_blocks)
        self.blocks = {}
        if not self._n_blocks:
            return
        sent: list[Any] = [[{} for _ in given] for _ in self._groups]
        for i, of_shard in enumerate(given):
            for b, part in of_shard.items():
                if not 0 <= b < self._n_blocks:
                    raise ValueError(
                        f"a shard made a part of block {b}; there are blocks 0 … "
                        f"{self._n_blocks - 1}"
                    )
                sent[self.holders[b]][i][b] = part
        given.clear()
        found: dict[int, Mapping[int, Any]] = {}
        for group, received in zip(self._groups, self._communicator.alltoall(sent), strict=True):
            found |= zip(group, freeze(self.kept(received)), strict=True)
        mine = [b for b, rank in enumerate(self.holders) if rank == self._communicator.rank]

        def combine(b: int) -> Any:
            parts = [found[p][b] for p in range(self._n_shards) if b in found[p]]
            with self._naming("combine", f"block {b}"):
                return self.kept(self._program.combine(b, parts))

        self.blocks = dict(zip(mine, self._communicator.each(combine, mine), strict=True))

    def _observe(self, stage: Stage) -> Reports:
        """Return reports of a stage made by `observes`.

        Its function may get blocks, or pieces of all states.
        """
        if stage.order is not None:
            return self._meet(stage, Counter())
        reports = Reports(self._n_shards, stage.merge, self._ats[0].sweep)
        made = self._split(stage) if stage.split else []

        for turn in self._turns():
            pieces = self._swap(made, None, turn) if stage.split else []

            def look(i: int, at: At, turn: range = turn, pieces: list[Numbered] = pieces) -> None:
                brought = [_in_order(pieces[i - turn[0]])] if stage.split else []
                with self._timed(stage, at):
                    report = stage.function(at, freeze(self.states[i]), *brought, *stage.args)
                reports.add(at.number, report if stage.merge else self.kept(report))

            self._for_each(look, self.model, [i for i in turn if i < len(self.states)])
        return reports

    def _rotate(self, stage: Stage) -> None:
        """Let the shards meet blocks in the order of the stage.

        Aggregate after each step if the stage is synced.
        """
        assert stage.order is not None
        left = Counter(p for line in stage.order for p, b in enumerate(line) if b >= 0)
        if not stage.synced:
            self._meet(stage, left)
            return
        for line in stage.order:
            self._aggregate(self._meet(stage._replace(order=(line,)), left))

    def _meet(self, stage: Stage, left: Counter[int]) -> Reports:
        """Let the shards of this rank meet blocks in the order of the stage.

        Return a list of reports for each shard.

        In one step each shard and each block occur at most once, so threads can do all visits of a
        step together.

        Parameters
        ----------
        stage : Stage
        left : Counter
            Number of blocks that each shard still has to meet; updated.
        """
        assert stage.order is not None
        reports: dict[int, list[Any]] = {at.number: [] for at in self._ats}
        route = plan_route(stage.order, self._rank_of, self.holders, self._communicator.rank)
        for b, to in route.leaves.items():
            self._pass_on(b, to)
        arrived: Numbered = {}
        if self.slices is not None and stage.kind != "changes" and not stage.synced:
            self._meet_by_shard(stage, route.legs, reports)
        else:
            for leg in route.legs:
                last = {visit.block: visit for visit in leg.visits}
                for visits in self._runs(stage, leg):
                    self._visit(stage, visits, leg, last, arrived, left, reports)
        self.holders = route.holders
        found = Reports(self._n_shards, None, are_lists=True)
        for number, of_shard in reports.items():
            found.add(number, of_shard)
        return found

    def _meet_by_shard(
        self, stage: Stage, legs: Sequence[Leg], reports: dict[int, list[Any]]
    ) -> None:
        """Receive all blocks, which are only read; let shards meet them one after another."""
        seen: Numbered = {}
        visits: dict[int, list[int]] = {at.number: [] for at in self._ats}
        arrived: Numbered = {}
        for leg in legs:
            for visit in leg.visits:
                self._await([visit.block], leg, arrived)
                seen[visit.block] = self.blocks[visit.block]
                visits[visit.shard].append(visit.block)
            for b, to in leg.goes.items():
                self._pass_on(b, to)
        here = self.blocks
        self.blocks = seen

        def meet(i: int, at: At) -> None:
            for b in visits[at.number]:
                where = at._replace(block=b, is_last=b == visits[at.number][-1])
                with self._timed(stage, where):
                    reports[at.number] += self._met(stage, i, where)
            self.states[i] = self.kept(self.states[i])

        self._for_each(meet, self._model_for(stage))
        self.blocks = here
        # wait for all ranks: those in one process share files, and none may change a block that
        # another still reads
        self._communicator.alltoall([None] * len(self._groups))

    def _runs(self, stage: Stage, leg: Leg) -> Iterable[Sequence[Visit]]:
        """Return visits of a leg that are begun together.

        They are those of a step, or all if one thread does them.
        """
        if stage.together and self._communicator.n_threads == self._communicator.size == 1:
            return [leg.visits]
        return [list(visits) for _, visits in groupby(leg.visits, attrgetter("step"))]

    def _do_together(self, stage: Stage, visits: Sequence[Visit]) -> None:
        """Do visits of a stage in one call."""
        assert stage.together is not None
        blocks = {b: claim(self.blocks[b]) for b in {visit.block: None for visit in visits}}
        self.blocks |= blocks
        shards = {visit.shard: self._position[visit.shard] for visit in visits}
        model = self._model_for(stage)
        ats = {p: self._ats[i]._replace(model=model) for p, i in shards.items()}
        states = {p: self.states[i] for p, i in shards.items()}
        began, (step, shard, block) = time(), visits[0]
        where = f"shard {shard} and block {block}" if len(visits) == 1 else f"step {step}"
        with self._naming(name_of(stage.together), where):
            stage.together(ats, states, blocks, visits, *stage.args)
        of_block = block if len(visits) == 1 else -1
        self._communicator.note(self._word(stage), began, self._ats[0].sweep, of_block)

    def _model_for(self, stage: Stage) -> Any:
        """Return the model that functions may read in this stage's visits, or None."""
        return self.model if self._program.meets_model or stage.kind == "observes" else None

    def _visit(
        self,
        stage: Stage,
        visits: Sequence[Visit],
        leg: Leg,
        last: Mapping[int, Visit],
        arrived: Numbered,
        left: Counter[int],
        reports: dict[int, list[Any]],
    ) -> None:
        """Let shards meet blocks in one step.

        Send each block on after its last visit if the route says so.
        """
        model = self._model_for(stage)

        def meet(visit: Visit) -> None:
            i = self._position[visit.shard]
            at = self._ats[i]._replace(
                model=model, block=visit.block, is_last=not left[visit.shard]
            )
            with self._timed(stage, at):
                reports[visit.shard] += self._met(stage, i, at)

        left.subtract(visit.shard for visit in visits)
        found: tuple[list[Visit], list[Visit]] = ([], [])
        for visit in visits:
            found[visit.block not in self.blocks].append(visit)
        for some in found:
            self._await({visit.block for visit in some}, leg, arrived)
            if stage.together:
                size = -(-len(some) // self._communicator.n_threads) or 1
                cut = [some[first : first + size] for first in range(0, len(some), size)]
                self._communicator.each(partial(self._do_together, stage), cut)
            else:
                self._communicator.each(meet, some)
            for visit in some:
                if (
                    visit.block in leg.goes and visit is last[visit.block]
                ):  # it travels while other shards work
                    self._pass_on(visit.block, leg.goes[visit.block])

    def _await(self, wanted: Iterable[int], leg: Leg, arrived: Numbered) -> None:
        """Wait until the wanted blocks are here.

        Other blocks that arrive before them are kept in `arrived`.
        """
        for b in wanted:
            while b not in self.blocks and b not in arrived:
                arrived.update([self._communicator.receive(leg.comes[b])])
            if b in arrived:
                self.blocks[b] = self.kept(arrived.pop(b))

    def _met(self, stage: Stage, i: int, at: At) -> list[Any]:
        """Let the shard at position `i` meet a block.

        Return a list with its report, or an empty list.
        """
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

    def _swap(
        self, made: list[list[Any]], givers: range | None, takers: range | None
    ) -> list[Numbered]:
        """Send values from shards to shards.

        Return for each taker of this rank the values of all givers, by number.

        Parameters
        ----------
        made : list of lists
            The values of each giver of this rank for all shards; those that are sent are removed.
        givers, takers : range, optional
            Positions of these shards in their ranks; by default all.
        """
        sent = [
            [[_taken(of_shard, p) for p in _some(group, takers)] for of_shard in made]
            for group in self._groups
        ]
        found: list[Numbered] = [{} for _ in _some(self._ats, takers)]
        for rank, received in enumerate(self._communicator.alltoall(sent)):
            # values for a single shard stay in memory, because they are needed only while it works
            come = received if rank == self._communicator.rank or takers else self.kept(received)
            for p, of_shard in zip(_some(self._groups[rank], givers), come, strict=True):
                for mine, one in zip(found, of_shard, strict=True):
                    mine[p] = one
        return freeze(found)

    def _aggregate(self, reports: Reports) -> None:
        """Let rank 0 make the new model, and give it to all ranks."""
        brought = self._brought(reports)
        model = None
        if brought is not None:
            with self._naming("aggregate"):
                model = self._program.aggregate(self.model, freeze(brought))
        self.model = freeze(self._communicator.broadcast(freeze(model)))

    def _brought(self, reports: Reports) -> list[Any] | None:
        """Return the reports of all shards on rank 0, and None on other ranks.

        The reports are merged if the stage allows it.
        """
        if reports.merge:
            nodes = self._communicator.reduce(reports.nodes, self._n_shards, reports.merge, least=2)
            # at most two nodes, of one level: `tree_sum` of these has the bits of `tree_sum` of all
            # reports
            return None if nodes is None else [nodes[place] for place in sorted(nodes)]
        gathered = self._communicator.gather([reports.nodes[0, at.number] for at in self._ats])
        if gathered is None:
            return None
        of_shard: Numbered = {}
        for group, some in zip(self._groups, gathered, strict=True):
            of_shard |= zip(group, some, strict=True)
        in_order = [of_shard[p] for p in range(self._n_shards)]
        return [one for some in in_order for one in some] if reports.are_lists else in_order


def _taken(values: list[Any], at: int) -> Any:
    """Return an element of a list, and replace it with None."""
    value = values[at]
    values[at] = None
    return value


def _some(values: Sequence[T], positions: range | None) -> Sequence[T]:
    return values if positions is None else values[positions.start : positions.stop]


def _in_order(found: Mapping[int, Any]) -> list[Any]:
    """Return the values of all shards in the order of their numbers."""
    return [found[p] for p in range(len(found))]
