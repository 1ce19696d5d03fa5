"""Stretches of a run, which workers do among themselves, as the client sees them: when there is one, and its tasks.

Through the scheduler a sweep takes half a dozen tasks that wait for each other, and each copies the states it changes.
Where each worker has a thread to spare, all its shards get one task for several sweeps instead; see `members`.  A
stretch ends where somebody may ask for more than records, where the state is to be saved, where records say so, and
after a second or two.  If one fails, the run goes on from its last cut, by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Any, NamedTuple

from schmp_estimators.core.engines import members
from schmp_estimators.core.engines.graph import SweepGraph
from schmp_estimators.core.engines.itineraries import begin_with, made_anew, plan_journeys
from schmp_estimators.core.engines.keys import Keys, member
from schmp_estimators.core.engines.leading import may_lead
from schmp_estimators.core.engines.ledger import Rhythm
from schmp_estimators.core.places.place import Key, Place, Ref
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.stages import Stage, check_stages

#: See `members.Stretch.ends`.
Ends = Callable[[Sequence[dict[str, Any]]], bool] | None

#: Seconds after which a stretch should end, so that the client hears of it.
LONGEST = 2.0


class Begun(NamedTuple):
    """A stretch that is under way."""

    #: By the clock.
    began: float
    #: Where what members tell of it will be.
    told: list[Key]
    #: Its first sweep.
    first: int
    #: Where all else will be at its end, and the blocks of each member.
    keys: Keys
    of_member: list[Key]
    groups: tuple[tuple[int, ...], ...]


class Ended(NamedTuple):
    """A stretch that is over."""

    #: The records of its sweeps, and the seconds that each of these took.
    told: list[tuple[dict[str, Any], float]]
    keys: Keys


class Stretches:
    """Says which sweeps of a run are done together, and lets them be done.

    Parameters
    ----------
    program : Program
    place : Place
    n_shards : int
    rhythm : Rhythm
        When the run is cut and saved.
    may_ask, ends : callable
        As in `StaticRun`.
    stay : ExitStack
        Until it is closed no other fit of this process has stretches.
    """

    def __init__(
        self,
        program: AnyProgram,
        place: Place,
        n_shards: int,
        rhythm: Rhythm,
        may_ask: Callable[[int], bool],
        ends: Callable[[], Ends],
        stay: ExitStack,
    ) -> None:
        self._program, self._place, self._n_shards = program, place, n_shards
        self._rhythm, self._may_ask, self._ends = rhythm, may_ask, ends
        #: Seconds of a sweep, as far as one is known.
        self._pace: float | None = None
        wanted = bool(place.teams(n_shards)) and self._suits(rhythm.first)
        self._may = wanted and stay.enter_context(may_lead(place))

    def __bool__(self) -> bool:
        """Return whether there may be any."""
        return self._may

    def give_up(self) -> None:
        """Have no more of them."""
        self._may = False

    def length(self, first: int) -> int:
        """Return how many sweeps to do together from `first` on, which may be none."""
        if not self or not self._place.teams(self._n_shards):
            return 0
        most = 1 if self._pace is None else max(1, int(LONGEST / self._pace))
        end = min(self._rhythm.last_before_cut(first) + 1, first + most)
        for sweep in range(first, end):
            if not self._suits(sweep):
                return sweep - first
            if self._may_ask(sweep) or self._rhythm.saves(sweep):
                return sweep + 1 - first
        return end - first

    def _suits(self, sweep: int) -> bool:
        """Return whether members can do a sweep: where blocks go round, only if none of them has more than a thread."""
        stages = self._stages(sweep)
        most = max(map(len, self._place.teams(self._n_shards)))
        return most <= self._place.shards_of_a_thread(self._n_shards) or not any(stage.order for stage in stages)

    def _stages(self, sweep: int) -> tuple[Stage, ...]:
        program, n = self._program, self._n_shards
        return check_stages(program, program.schedule(sweep, n), n, program.n_blocks(n))

    def _holders(self, groups: Sequence[Sequence[int]], sweeps: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """Return which member has each block before, and which after these sweeps."""
        rank_of, n_blocks = (
            {p: rank for rank, some in enumerate(groups) for p in some},
            self._program.n_blocks(self._n_shards),
        )
        members = [rank_of[p] for p in range(self._n_shards)]
        stages = [stage for sweep in sweeps for stage in self._stages(sweep)]
        orders = [stage.order for stage in stages if stage.order is not None]
        first = last = begin_with(orders[0], members, n_blocks) if orders else (0,) * n_blocks
        for stage in stages:
            if stage.order is not None:
                last = plan_journeys(stage.order, members, last, 0).holders
            elif stage.parts:
                last = made_anew(members, n_blocks)
        return first, last

    def begin(self, graph: SweepGraph, n_sweeps: int, after: Sequence[Key], saves: bool = False) -> Begun:
        """Let members begin the sweep of a graph, and those after it that belong to the stretch.

        Parameters
        ----------
        graph : SweepGraph
            Of the first sweep, with keys of before it.
        n_sweeps : int
            How many there are, at most.
        after : sequence of Key
            For each shard what has to be made of its state before that changes; none of any, if it is empty.
        saves : bool, default=False
            Whether it is known that the state after the last of them will be saved.
        """
        began, place, keys = perf_counter(), self._place, graph.keys
        if self._pace is None:
            self._await_all(graph)
        groups = tuple(map(tuple, place.teams(self._n_shards)))  # now: while states were made a worker may have died
        first = graph.number
        holders, _ = self._holders(groups, range(first, first + n_sweeps))
        stretch = members.Stretch(self._program, first, n_sweeps, groups, holders, self._ends(), saves)
        made, args = [], []
        for rank, shards in enumerate(groups):
            mine = {b: keys.blocks[b] for b, holder in enumerate(holders) if holder == rank}
            refs = {
                key: at for at, key in enumerate(dict.fromkeys([*(keys.states[p] for p in shards), *mine.values()]))
            }
            states = tuple((refs[keys.states[p]], member(keys.states, p)) for p in shards)
            places = members.Places(states, {b: refs[key] for b, key in mine.items()})
            made.append(graph.key("sweeps", shards[0]))
            needed = (*(keys.shards[p] for p in shards), *refs, *(after[p] for p in shards if after))
            args.append((stretch, places, Ref(keys.model), *map(Ref, needed)))
        place.submit_together(made, groups, members.go_on, args)
        outcomes = list(zip((shards[0] for shards in groups), map(Ref, made), strict=True))
        told = [graph.add("report", p, members.take_told, outcome) for p, outcome in outcomes]
        model = graph.add("model", *outcomes[0][:1], members.take_model, outcomes[0][1])
        of_member = [graph.add("pass-on", p, members.take_all_blocks, outcome) for p, outcome in outcomes if holders]
        place.submit(graph.tasks, [*told, model, *of_member])
        of_shard = {p: key for shards, key in zip(groups, made, strict=True) for p in shards}
        after_it = Keys(keys.shards, tuple(of_shard[p] for p in range(self._n_shards)), (), model)
        return Begun(began, told, first, after_it, of_member, groups)

    def end(self, begun: Begun) -> Ended:
        """Return what there is after a stretch, once it is over."""
        # All are waited for: whoever is left says at once that there is no team any more.
        found = self._place.fetch(begun.told)[0]
        seconds = perf_counter() - begun.began
        self._pace = seconds / len(found.records)
        scale = seconds / sum(found.seconds)
        _, holders = self._holders(begun.groups, range(begun.first, begun.first + len(found.records)))
        keys = begun.keys._replace(blocks=tuple(begun.of_member[rank] for rank in holders))
        return Ended([(one, scale * took) for one, took in zip(found.records, found.seconds, strict=True)], keys)

    def _await_all(self, graph: SweepGraph) -> None:
        """Wait until all states are there: members wait for each other a few seconds only, loading may take longer."""
        held = enumerate(graph.keys.states)
        ready = [graph.add("report", p, members.be_there, Ref(key), at=(p,)) for p, key in held]
        self._place.submit(graph.tasks, ready)
        self._place.fetch(ready)
        self._place.drop(ready)
        graph.tasks.clear()
