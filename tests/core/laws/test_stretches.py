"""Sweeps that members of a team do among themselves: what the serial engine does, without anybody in between."""

import pickle
import threading
from contextlib import ExitStack
from queue import SimpleQueue

import numpy as np
import pytest
from definition import run_serial
from schmp_estimators.core.engines import members
from schmp_estimators.core.engines.cells import Blocks, Outcome, Several, outcome_of
from schmp_estimators.core.engines.handing_over import HandedOver, look_at, take_over
from schmp_estimators.core.engines.itineraries import begin_with, plan_journeys
from schmp_estimators.core.engines.ledger import Rhythm
from schmp_estimators.core.engines.stretches import LONGEST, Stretches
from schmp_estimators.core.engines.team import add_up
from toys import (
    Divided,
    DividedSynced,
    Exchanging,
    ExchangingHere,
    FewBlocks,
    ManyBlocks,
    Merging,
    Observed,
    Partial,
    Resting,
    Ring,
    Synced,
    make_shards,
    scramble,
)

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, changes, each, in_turn, observes, reads

N_SWEEPS = 6


class Hall:
    """Where the members of a team of threads talk; what is said is pickled on its way."""

    def __init__(self, groups):
        self.groups = groups
        n = len(groups)
        self.said = [[SimpleQueue() for _ in range(n)] for _ in range(n)]


class Member:
    each = staticmethod(in_turn)

    def __init__(self, hall, rank):
        self.hall, self.rank, self.others = hall, rank, [r for r in range(len(hall.groups)) if r != rank]

    def say(self, to, value):
        self.hall.said[self.rank][to].put(pickle.dumps(value))

    def hear(self, other):
        return pickle.loads(self.hall.said[other][self.rank].get(timeout=30))

    def swap(self, said):
        for other in self.others:
            self.say(other, said[other])
        return [said[r] if r == self.rank else self.hear(r) for r in range(len(self.hall.groups))]

    def tell(self, value):
        for other in self.others:
            self.say(other, value)

    def listen(self):
        return self.hear(0)

    send = say

    def merge_to_first(self, nodes, merge):
        if self.rank:
            self.say(0, nodes)
            return None
        for other in self.others:
            nodes |= self.hear(other)
        return add_up(nodes, sum(map(len, self.hall.groups)), merge, least=2)

    def bring_to_first(self, parts):
        if self.rank:
            self.say(0, parts)
            return None
        found = dict(zip(self.hall.groups[0], parts, strict=True))
        for other in self.others:
            found |= zip(self.hall.groups[other], self.hear(other), strict=True)
        return [found[p] for p in range(len(found))]


def begin(program, shards):
    """Return states, blocks and a model, as they are before the first sweep."""
    n_blocks = program.n_blocks(len(shards))
    ats = [At(shard, None, -1, p, len(shards), n_blocks=n_blocks) for p, shard in enumerate(shards)]
    states, parts = zip(*map(program.init, ats), strict=True)
    blocks = {b: program.combine(b, [part[b] for part in parts if b in part]) for b in range(n_blocks)}
    reports = [program.report(at, state) for at, state in zip(ats, states, strict=True)]
    return states, blocks, program.aggregate(None, reports)


class Free(LocalPlace):
    """Has a team whose members have a thread each."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def teams(self, n_shards):
        return list(map(list, self.groups))

    def shards_of_a_thread(self, n_shards):
        return n_shards


def go_together(program, shards, groups, lengths):
    """Return records, states and blocks after stretches of so many sweeps each."""
    states, blocks, model = begin(program, shards)
    held = [Outcome(HandedOver(state)) for state in states]
    records, first = [], 0
    for n_sweeps in lengths:
        with ExitStack() as stay:
            seen = Stretches(program, Free(groups), len(shards), Rhythm(0, 9, 0, 0), never, lambda: None, stay)
            assert seen
            holders, after_it = seen._holders(groups, range(first, first + n_sweeps))
        stretch, hall = members.Stretch(program, first, n_sweeps, groups, holders), Hall(groups)
        made, here = [None] * len(groups), Blocks(blocks)

        def work(rank, stretch=stretch, hall=hall, made=made, model=model, held=held, here=here):
            numbers = groups[rank]
            states = tuple((at, -1) for at in range(len(numbers)))
            mine = {b: len(numbers) for b, holder in enumerate(stretch.holders) if holder == rank}
            inputs = *(shards[p] for p in numbers), *(held[p] for p in numbers), here
            made[rank] = members.go_on(Member(hall, rank), stretch, members.Places(states, mine), model, *inputs)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(groups))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        told = [members.take_told(one) for one in made]
        assert told[1:] == [None] * (len(groups) - 1)
        assert all(seconds > 0 for seconds in told[0].seconds)
        records += told[0].records
        model, first = members.take_model(made[0]), first + n_sweeps
        if blocks:
            blocks = {b: members.take_all_blocks(made[rank])[b] for b, rank in enumerate(after_it)}
            assert not any(block.flags.writeable for block in blocks.values())
        for numbers, found in zip(groups, made, strict=True):
            assert isinstance(found, Several) == (len(numbers) > 1)
            for i, p in enumerate(numbers):
                with pytest.raises(WorkLostError, match="taken over"):
                    held[p].state.look()
                held[p] = outcome_of(found, i if len(numbers) > 1 else -1)
    return records, [one.state.look() for one in held], list(blocks.values())


class Modest(Merging):
    """What cuts a state knows the sweep for which it does, and no model."""

    def split(self, at, state):
        assert at.model is None
        return [piece + at.sweep for piece in super().split(at, state)]


class Alone(Merging):
    """Shards work alone, and their reports are merged."""

    def schedule(self, sweep, n_shards):
        return each(self.work, merge=self.mix), observes(self.look, merge=self.mix)

    def work(self, at, state):
        return self.take(at, state, [at.model] * at.n_shards, 3)

    def look(self, at, state):
        return state.sum(1)


class TakesAndWorks(Exchanging):
    """After the stage that gets answers there is one that gets none."""

    def schedule(self, sweep, n_shards):
        return (*super().schedule(0, n_shards), each(self.work))

    def work(self, at, state, *answers):
        assert not answers
        return state + at.number


class ListsOfBlocks(Observed):
    """What shards report of blocks are lists; in every other sweep others meet a block first."""

    name = "lists-of-blocks"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        turn, *_ = super().schedule(sweep, n_shards)
        return turn._replace(order=order[::-1] if sweep % 2 else order), observes(self.list, order=order)

    def list(self, at, state, block):
        return [super().tell_of_block(at, state, block, 3)]

    def aggregate(self, model, reports):
        return super().aggregate(model, [one[0] if isinstance(one, list) else one for one in reports])


class ReadAndChanged(Ring):
    """Blocks that have come to be read are changed."""

    name = "read-and-changed"
    look = Resting.look

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        return reads(self.look, order=order), changes(self.turn, order=order[1:]), each(self.sum_up)


class ManySynced(ManyBlocks):
    """Every step ends in a barrier, and some blocks rest meanwhile."""

    name = "many-synced"
    turn_and_tell = Synced.turn_and_tell

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards, self.n_blocks(n_shards))
        return changes(self.turn_and_tell, sweep, order=order, synced=True), each(self.sum_up)


class Remade(ManyBlocks):
    """In every other sweep blocks are made anew of parts, which come with reports; not all shards have one for each."""

    name = "remade"

    def schedule(self, sweep, n_shards):
        turn, sum_up = super().schedule(sweep, n_shards)
        return (turn, each(self.remake, parts=True, reports=True)) if sweep % 2 else (turn, sum_up)

    def remake(self, at, state):
        state = self.sum_up(at, state)
        parts = {b: state + b for b in range(at.n_blocks) if (b + at.number) % 3}
        return state, parts, self.report(at, state)

    def combine(self, index, parts):
        return scramble(*parts)


ALONE = [Exchanging(), Merging(), Modest(), ExchangingHere(), Alone(), TakesAndWorks()]
PROGRAMS = [*ALONE, Ring(), Resting(), ManyBlocks(), FewBlocks(), Partial(), Observed(), ListsOfBlocks()]
PROGRAMS += [Divided(), DividedSynced(), ReadAndChanged(), Remade(), Synced(), ManySynced()]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: type(program).__name__)
@pytest.mark.parametrize("groups", [((0,), (1,)), ((0, 1, 2), (3,)), ((2, 0), (1, 3), (4,)), ((0, 3), (1,), (2, 4, 5))])
@pytest.mark.parametrize("lengths", [(6,), (1, 3, 2)])
def test_members_do_what_the_serial_engine_does(program, groups, lengths):
    shards = make_shards(sum(map(len, groups)))
    records, states, blocks = go_together(program, shards, groups, lengths)
    expected = list(run_serial(program, shards, N_SWEEPS))
    assert records == [record for record, *_ in expected]
    assert [state.tolist() for state in states] == expected[-1][1].shards
    if program.n_blocks(len(shards)):
        assert [block.tolist() for block in blocks] == expected[-1][1].blocks


def test_a_state_is_taken_over_once():
    array = np.arange(3)
    handed = HandedOver((array, {"a": np.ones(2)}))
    with pytest.raises(ValueError, match="read-only"):
        handed.look()[0][0] = 5
    assert handed.__sizeof__() >= array.nbytes + 16
    come = pickle.loads(pickle.dumps(handed))
    assert take_over(handed)[0] is array
    for ask in (handed.look, handed.take):
        with pytest.raises(WorkLostError, match="taken over"):
            ask()
    taken = come.take()
    assert taken[0].flags.writeable
    assert taken[0].tolist() == [0, 1, 2]
    plain = (array,)
    assert look_at(plain) is plain
    assert not np.shares_memory(take_over(plain)[0], array)


class Teaming(LocalPlace):
    """Has a team, perhaps one that is busy."""

    def __init__(self, groups=((0,), (1,)), spare=True):
        super().__init__()
        self.groups, self.spare = groups, spare

    def teams(self, n_shards):
        return list(map(list, self.groups))

    def has_threads_to_spare(self):
        return self.spare


def never(sweep):
    return False


def stretches(program, place, stay, may_ask=never, rhythm=None):
    return Stretches(program, place, 2, rhythm or Rhythm(0, 9, 0, 0), may_ask, lambda: None, stay)


def test_a_stretch_ends_where_it_must():
    program, place = Exchanging(), Teaming()
    with ExitStack() as stay:
        found = stretches(program, place, stay)
        assert found.length(0) == 1  # nobody knows how long a sweep takes
        found._pace = LONGEST / 4.5
        assert (found.length(0), found.length(7)) == (4, 2)
        found._pace = 2 * LONGEST
        assert found.length(0) == 1
        assert not stretches(program, place, stay)  # one fit of a process at a time
        found.give_up()
        assert found.length(0) == 0
    for options, expected in [
        ({"may_ask": lambda sweep: sweep in (2, 4)}, [3, 2, 1, 2, 1, 4]),
        ({"rhythm": Rhythm(0, 9, 0, 4)}, [4, 3, 2, 1, 4, 3]),
        ({"rhythm": Rhythm(0, 9, 4, 0)}, [4, 3, 2, 1, 4, 3]),
        ({"rhythm": Rhythm(1, 9, 6, 0)}, [None, 6, 5, 4, 3, 2]),
    ]:
        with ExitStack() as stay:
            found = stretches(program, place, stay, **options)
            found._pace = 1e-3
            lengths = [found.length(first) for first in range(6)]
            assert lengths[expected[0] is None :] == expected[expected[0] is None :]


@pytest.mark.parametrize("place", [Teaming(spare=False), Teaming(groups=()), LocalPlace()])
def test_without_a_team_that_is_free_there_is_no_stretch(place):
    with ExitStack() as stay:
        assert stretches(Exchanging(), place, stay).length(0) == 0


@pytest.mark.parametrize(
    ("program", "place", "expected"),
    [
        (Ring(), Teaming(), 1),
        (Ring(), Teaming(((0, 1), (2,))), 0),  # whose threads take turns
        (Ring(), Free(((0, 1), (2,))), 1),
        (Exchanging(), Teaming(((0, 1), (2,))), 1),
        (Synced(), Free(((0,), (1,))), 1),
        (Divided(), Free(((0,), (1,))), 1),
    ],
)
def test_blocks_go_round_where_no_member_has_more_than_a_thread(program, place, expected):
    with ExitStack() as stay:
        assert stretches(program, place, stay).length(0) == expected


@pytest.mark.parametrize("members_of", [[0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 0, 1], [2, 1, 1, 0]])
@pytest.mark.parametrize("n_blocks", [2, 4, 7])
def test_every_block_that_comes_has_been_sent(members_of, n_blocks):
    order, n_members = schedule_rotation(4, n_blocks), max(members_of) + 1
    holders = begin_with(order, members_of, n_blocks)
    for turn in range(2):  # the second begins where the first has ended
        plans = [plan_journeys(order, members_of, holders, rank) for rank in range(n_members)]
        assert turn or not any(plan.leaves for plan in plans)  # they begin where they are met first
        sent = [(b, rank, to) for rank, plan in enumerate(plans) for b, to in plan.leaves.items()]
        come, met = [], []
        for rank, plan in enumerate(plans):
            for journey in plan.journeys:
                sent += [(b, rank, to) for b, to in journey.goes.items()]
                come += [(b, sender, rank) for b, sender in journey.comes.items()]
                met += journey.leg.visits
        assert sorted(sent) == sorted(come)
        assert all(sender != rank for _, sender, rank in sent)
        assert sorted(met) == sorted((s, p, b) for s, line in enumerate(order) for p, b in enumerate(line) if b >= 0)
        assert len({plan.holders for plan in plans}) == 1
        holders = plans[0].holders
