"""What a member of a team does in a stretch of sweeps: its shards work, and what they need of others is sent to them.

It does what the serial engine does, with its own shards, in the same order; states are changed where they are.  No task
ends within a stretch, so nothing goes by way of the scheduler, and no state is there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from schmp_estimators.core.engines.cells import Blocks, Outcome, Several, block_of, outcome_of, single
from schmp_estimators.core.engines.handing_over import HandedOver, take_over
from schmp_estimators.core.engines.itineraries import made_anew, plan_journeys
from schmp_estimators.core.engines.legs import Visit
from schmp_estimators.core.engines.team import Nodes, add_up
from schmp_estimators.core.places.place import quick
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.recycling import RECYCLER
from schmp_estimators.core.stages import At, Each, Stage, check_stages, for_all
from schmp_estimators.core.values import freeze, own

Merge = Callable[[Any, Any], Any] | None


class ExchangingTeam(Protocol):
    """A team whose members say something else to each of the others."""

    #: 0 for the first member
    rank: int
    #: Applies a function to every job, with the threads that this member has.
    each: Each

    def swap(self, said: list[Any]) -> list[Any]:
        """Return what every member says to this one, in their order, given what this one says to each."""

    def tell(self, value: Any) -> None:
        """Say something to all others, as the first member."""

    def listen(self) -> Any:
        """Return what the first member tells."""

    def send(self, to: int, value: Any) -> None:
        """Say something to another member, without waiting until it is gone."""

    def hear(self, other: int) -> Any:
        """Return what another member says next."""

    def bring_to_first(self, parts: Sequence[Any]) -> list[Any] | None:
        """Return what is said of each shard, in order, to the first member, and None to the others."""

    def merge_to_first(self, nodes: Nodes, merge: Callable[[Any, Any], Any]) -> Nodes | None:
        """Return nodes of the tree over all shards, merged on their way to the first member; None to the others."""


class Stretch(NamedTuple):
    """Consecutive sweeps of a program, which workers do among themselves."""

    program: AnyProgram
    first: int
    n_sweeps: int
    #: The shards of each member.
    groups: tuple[tuple[int, ...], ...]
    #: The member that has each block as the stretch begins.
    holders: tuple[int, ...] = ()
    #: Says of the records so far whether the run ends there: all members have the same ones.
    ends: Callable[[Sequence[dict[str, Any]]], bool] | None = None
    #: Whether it is known that the state after the last sweep will be saved.
    saves: bool = False


class Places(NamedTuple):
    """Where a member finds what it works on, among the inputs that follow its shards."""

    #: For each of its shards which input holds the state, and which one of the outcomes there, -1 if there is only one.
    states: Sequence[tuple[int, int]]
    #: For each of its blocks which input holds it.
    blocks: dict[int, int]


class Told(NamedTuple):
    """What the client hears of a stretch."""

    records: list[dict[str, Any]]
    #: That each sweep took.
    seconds: list[float]


class _Summary(NamedTuple):
    told: Told
    model: Any


def go_on(team: ExchangingTeam, stretch: Stretch, places: Places, model: Any, *inputs: Any) -> Outcome | Several:
    """Work on the shards of a member to the end of a stretch; the first member's first outcome has the summary.

    Parameters
    ----------
    team : ExchangingTeam
    stretch : Stretch
    places : Places
    model : object
        As it is before the stretch.
    *inputs : object
        The shards, what holds their states and blocks, and what only has to be there first.

    Returns
    -------
    Outcome, or Several of them
        For each shard; the first one has all blocks that are here.
    """
    shards, held = inputs[: len(places.states)], inputs[len(places.states) :]
    states = [take_over(outcome_of(held[at], which).state) for at, which in places.states]
    blocks = {b: own(block_of(held[at], b), RECYCLER.copy) for b, at in places.blocks.items()}
    member = _Member(stretch, team, freeze(list(shards)), states, blocks, freeze(model))
    records, seconds = [], []
    for sweep in range(stretch.first, stretch.first + stretch.n_sweeps):
        began = perf_counter()
        member.sweep(sweep)
        records.append(stretch.program.record(sweep, member.model))
        seconds.append(perf_counter() - began)
        if stretch.ends and stretch.ends(records):
            break
    made = [Outcome(HandedOver(state)) for state in member.states]
    made[0] = made[0]._replace(block=Blocks(freeze(member.blocks)) if stretch.holders else None)
    if not team.rank:
        made[0] = made[0]._replace(report=_Summary(Told(records, seconds), member.model))
    return made[0] if len(made) == 1 else Several(made)


@quick
def take_told(held: Any) -> Told | None:
    """Keep only what the first member has to tell the client; None of the others."""
    summary = single([held])[0].report
    return summary.told if summary else None


@quick
def be_there(held: Any) -> None:
    """Say, by being done, that something has been made."""


@quick
def take_model(held: Any) -> Any:
    """Keep the model only, of what the first member has made."""
    return single([held])[0].report.model


@quick
def take_all_blocks(held: Any) -> Blocks:
    """Keep the blocks only, of what a member has made."""
    found: Blocks = single([held])[0].block
    return found


class _Reports:
    """What the shards of a member report, merged as soon as that can be, since reports may be large."""

    def __init__(self, n_shards: int, merge: Merge, *, are_lists: bool = False) -> None:
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


class _Member:
    """The shards of a member in the middle of a stretch."""

    def __init__(
        self,
        stretch: Stretch,
        team: ExchangingTeam,
        shards: Sequence[Any],
        states: list[Any],
        blocks: dict[int, Any],
        model: Any,
    ) -> None:
        self.states, self.blocks, self.model = states, blocks, model
        self._program, self._team, self._groups = stretch.program, team, stretch.groups
        #: Blocks that have come to be read: nobody may write to them.
        self._read_only: set[int] = set()
        self._saved = stretch.first + stretch.n_sweeps - 1 if stretch.saves else None
        self._holders, n_shards = stretch.holders, sum(map(len, stretch.groups))
        self._rank_of = [0] * n_shards
        for rank, group in enumerate(stretch.groups):
            for p in group:
                self._rank_of[p] = rank
        numbered = zip(shards, stretch.groups[team.rank], strict=True)
        n_blocks = len(stretch.holders)
        self._ats = [At(shard, None, -1, p, n_shards, n_blocks=n_blocks, each=team.each) for shard, p in numbered]
        #: What each shard has given for blocks that are made anew.
        self._parts: list[Mapping[int, Any]] = [{}] * len(self._ats)

    def sweep(self, number: int) -> None:
        """Do all stages of a sweep."""
        ats = self._ats = [at._replace(sweep=number, saves=number == self._saved) for at in self._ats]
        n_shards, n_blocks, answers = ats[0].n_shards, len(self._holders), list[list[Any]]()
        for stage in check_stages(self._program, self._program.schedule(number, n_shards), n_shards, n_blocks):
            if stage.kind == "exchanges":
                answers = self._swap(self._work(stage, self._pieces(stage)))
            elif stage.kind == "each":
                self._aggregate(self._each(stage, answers))
                answers = []
                if stage.parts:
                    self._combine()
            elif stage.kind == "observes":
                self._aggregate(self._observe(stage))
            else:
                self._rotate(stage)

    def _for_each(self, function: Callable[[int, At], Any], model: Any) -> list[Any]:
        """Return what a function makes of the shards, with the threads that this member has."""
        ats = [at._replace(model=model) for at in self._ats]
        return self._team.each(lambda i: function(i, ats[i]), range(len(ats)))

    def _pieces(self, stage: Stage) -> list[list[Any]]:
        """Return for each shard of this member the pieces that all shards have for it."""
        split = stage.split
        assert split is not None
        # no model, as where pieces are cut before it is made
        return self._swap(self._for_each(lambda i, at: for_all(split, at, freeze(self.states[i])), None))

    def _work(self, stage: Stage, pieces: list[list[Any]]) -> list[Sequence[Any]]:
        """Return what the shards answer to all; pieces go as they are used."""
        return self._for_each(lambda i, at: for_all(stage.function, at, _taken(pieces, i), *stage.args), self.model)

    def _each(self, stage: Stage, answers: list[list[Any]]) -> _Reports:
        """Update the shards, and return their reports; answers go as they are used."""
        reports = _Reports(len(self._rank_of), stage.merge)

        def update(i: int, at: At) -> None:
            made = stage.function(at, self.states[i], *([_taken(answers, i)] if answers else []), *stage.args)
            self.states[i], *others = made if stage.parts or stage.reports else (made,)
            reports.add(at.number, others.pop() if stage.reports else self._program.report(at, self.states[i]))
            if stage.parts:
                [self._parts[i]] = others

        self._for_each(update, self.model)
        return reports

    def _combine(self) -> None:
        """Make all blocks anew of what shards have given for them, each where it begins."""
        n_shards, n_blocks = len(self._rank_of), len(self._holders)
        self._holders, self.blocks, self._read_only = made_anew(self._rank_of, n_blocks), {}, set()
        given, self._parts = self._parts, [{}] * len(self._ats)
        said = [
            [{b: part for b, part in of_shard.items() if self._holders[b] == rank} for of_shard in given]
            for rank in range(len(self._groups))
        ]
        del given
        found: dict[int, Mapping[int, Any]] = {}
        for group, heard in zip(self._groups, self._team.swap(said), strict=True):
            found |= zip(group, freeze(heard), strict=True)
        mine = [b for b, rank in enumerate(self._holders) if rank == self._team.rank]

        def combine(b: int) -> Any:
            return self._program.combine(b, [found[p][b] for p in range(n_shards) if b in found[p]])

        self.blocks = dict(zip(mine, self._team.each(combine, mine), strict=True))

    def _observe(self, stage: Stage) -> _Reports:
        """Return the reports of shards that see themselves, and perhaps pieces of all states, or blocks."""
        if stage.order is not None:
            return self._observe_blocks(stage)
        reports, pieces = _Reports(len(self._rank_of), stage.merge), self._pieces(stage) if stage.split else []

        def look(i: int, at: At) -> None:
            reports.add(at.number, stage.function(at, freeze(self.states[i]), *pieces[i : i + 1], *stage.args))

        self._for_each(look, self.model)
        return reports

    def _observe_blocks(self, stage: Stage) -> _Reports:
        """Return lists of what each shard reports of the blocks that it sees."""
        seen: dict[int, list[Any]] = {at.number: [] for at in self._ats}
        for visit, i in self._visits(stage):
            at = self._ats[i]._replace(model=self.model, block=visit.block)
            block = freeze(self.blocks[visit.block])
            seen[visit.shard].append(stage.function(at, freeze(self.states[i]), block, *stage.args))
        return self._listed(seen)

    def _listed(self, seen: Mapping[int, list[Any]]) -> _Reports:
        """Return lists of reports, one for each shard of this member."""
        reports = _Reports(len(self._rank_of), None, are_lists=True)
        for number, of_shard in seen.items():
            reports.add(number, of_shard)
        return reports

    def _rotate(self, stage: Stage) -> None:
        """Let the shards meet blocks."""
        assert stage.order is not None
        left = Counter(p for line in stage.order for p, b in enumerate(line) if b >= 0)
        if not stage.synced:
            self._meet(stage, left)
            return
        for line in stage.order:
            self._aggregate(self._listed(self._meet(stage._replace(order=(line,)), left)))

    def _meet(self, stage: Stage, left: Counter[int]) -> dict[int, list[Any]]:
        """Let the shards meet blocks; `left` says how many each has still to meet.

        Returns
        -------
        dict of int to list
            What each shard of this member reports, nothing if steps end in no barrier.
        """
        changing, model = stage.kind == "changes", self.model if self._program.meets_model else None
        told: dict[int, list[Any]] = {at.number: [] for at in self._ats}
        for (_, p, b), i in self._visits(stage):
            left[p] -= 1
            at = self._ats[i]._replace(model=model, block=b, is_last=not left[p])
            if changing and b in self._read_only:
                self.blocks[b] = own(self.blocks[b], RECYCLER.copy)
                self._read_only.remove(b)
            state = stage.division.split(at, self.states[i]) if stage.division else self.states[i]
            made = stage.function(at, state, self.blocks[b] if changing else freeze(self.blocks[b]), *stage.args)
            found = list(made) if changing or stage.synced else [made]
            if stage.synced:
                told[p].append(found.pop())
            if changing:
                self.blocks[b] = found.pop()
            if not stage.division:  # else it has changed a part of the state, where that is
                [self.states[i]] = found
        return told

    def _visits(self, stage: Stage) -> Iterator[tuple[Visit, int]]:
        """Give what shards of this member meet which block, each with the position of the shard, as blocks come by."""
        assert stage.order is not None
        rank, arrived = self._team.rank, dict[int, Any]()
        position = {at.number: i for i, at in enumerate(self._ats)}
        plan = plan_journeys(stage.order, self._rank_of, self._holders, rank)
        for b, to in plan.leaves.items():
            self._pass_on(b, to)
        for leg, comes, goes in plan.journeys:
            last = {visit.block: visit for visit in leg.visits}
            for visit in leg.visits:
                b = visit.block
                while b not in self.blocks and b not in arrived:  # a sender may send others first
                    arrived.update([self._team.hear(comes[b])])
                if b in arrived:
                    self.blocks[b] = arrived.pop(b)
                    self._read_only.add(b)
                yield visit, position[visit.shard]
                if b in goes and visit is last[b]:  # it travels while others are worked on
                    self._pass_on(b, goes[b])
        self._holders = plan.holders

    def _pass_on(self, block: int, to: int) -> None:
        self._team.send(to, (block, freeze(self.blocks.pop(block))))
        self._read_only.discard(block)

    def _swap(self, made: list[Sequence[Any]]) -> list[list[Any]]:
        """Return for each shard of this member what all shards have for it, given what those of this one have."""
        said = [[[of_shard[p] for p in group] for of_shard in made] for group in self._groups]
        made.clear()
        found: list[dict[int, Any]] = [{} for _ in self.states]
        for group, heard in zip(self._groups, self._team.swap(said), strict=True):
            for p, of_shard in zip(group, heard, strict=True):
                for mine, one in zip(found, of_shard, strict=True):
                    mine[p] = one
        return [freeze([of_all[p] for p in range(len(of_all))]) for of_all in found]

    def _aggregate(self, reports: _Reports) -> None:
        """Let the first member make the new model for all."""
        brought = self._brought(reports)
        if brought is None:
            self.model = freeze(self._team.listen())
        else:
            self.model = freeze(self._program.aggregate(self.model, freeze(brought)))
            self._team.tell(self.model)

    def _brought(self, reports: _Reports) -> list[Any] | None:
        """Return the reports of all shards, merged if they may be, to the first member, and None to the others."""
        if not reports.merge:
            of_shards = self._team.bring_to_first([reports.nodes[0, at.number] for at in self._ats])
            return [one for some in of_shards for one in some] if of_shards and reports.are_lists else of_shards
        nodes = self._team.merge_to_first(reports.nodes, reports.merge)
        # two of one level of the tree: `aggregate` adds them up as it would add up all leaves
        return None if nodes is None else [nodes[place] for place in sorted(nodes)]


def _taken(values: list[Any], at: int) -> Any:
    """Return an element of a list, which has it no longer."""
    value, values[at] = values[at], None
    return value
