"""Shards that share a thread of a cluster: one task works off the cells of several, and no bit changes."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given
from hypothesis import strategies as st
from schmp_estimators.core.engines import cells, group_cells
from schmp_estimators.core.engines.legs import plan_legs
from schmp_estimators.core.engines.static import StaticRun
from toys import (
    Divided,
    DividedSynced,
    Exchanging,
    FewBlocks,
    ManyBlocks,
    Merging,
    Observed,
    Partial,
    Resting,
    Ring,
    Synced,
    make_shards,
)

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Mode, Ref, in_turn
from schmp_estimators.core.program import Program, Source
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import each, observes

N_SWEEPS = 6


class Grouped(LocalPlace):
    """Executes pure cells, twice each; shards are dealt to homes, anew in every sweep if there are several deals."""

    lookahead, cut_every = 1, 4

    def __init__(self, *deals, beside, loss=0):
        super().__init__()
        self.deals, self.beside, self.loss, self.n_fetched, self.tasks = deals, beside, loss, 0, []

    def mode(self, n_shards):
        return Mode(in_place=False, each=in_turn)

    def homes(self, n_shards):
        self.deals = (*self.deals[1:], self.deals[0])
        return self.deals[-1]

    def shards_of_a_thread(self, n_shards):
        return self.beside

    def _execute(self, task, made):
        first, second = super()._execute(task, made), super()._execute(task, made)
        assert repr(first) == repr(second), f"{task.key} has changed its inputs"
        return second

    def submit(self, tasks, wanted, *, soon=False):
        self.tasks += tasks
        assert len({task.key for task in tasks}) == len(tasks)
        super().submit(tasks, wanted)

    def fetch(self, keys):
        self.n_fetched += 1
        if self.n_fetched == self.loss:
            raise WorkLostError("on purpose")
        return super().fetch(keys)


def finish(program, place, shards):
    with StaticRun(program, [Source(np.array, (lambda s=one: s,)) for one in shards], place, n_sweeps=N_SWEEPS) as run:
        found = [(record, run.harvest(), run.save()) for record in run]
    return [(record, one.shards, one.blocks, repr(kept)) for record, one, kept in found]


def by_definition(program, shards):
    found = run_serial(program, shards, N_SWEEPS)
    return [(record, one.shards, one.blocks, repr(kept)) for record, one, kept in found]


PROGRAMS = [
    *(Ring(), Resting(), ManyBlocks(), FewBlocks(), Partial(), Observed()),
    *(Synced(), Divided(), DividedSynced(), Exchanging(), Merging()),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize(
    ("deals", "beside"),
    [
        (["aabb"], 2),
        (["aaabbbb"], 4),
        (["aaabb"], 2),  # groups of two and of one
        (["abab"], 2),  # neighbours live apart
        (["aaaabb", "aabbcc", "bbbbbb"], 3),  # workers come and go
        (["aabbc", "abcde"], 2),  # there are groups in every other sweep only
    ],
)
def test_groups_have_the_bits_of_single_shards(program, deals, beside):
    shards = make_shards(len(deals[0]))
    assert finish(program, Grouped(*deals, beside=beside), shards) == by_definition(program, shards)


@pytest.mark.parametrize("loss", [3, 9])
def test_groups_go_on_after_a_loss(loss):
    shards = make_shards(5)
    assert finish(Ring(), Grouped("aaabb", beside=3, loss=loss), shards) == by_definition(Ring(), shards)


@dataclass(frozen=True)
class Floats(Program):
    """Sums of floats of all sizes, whose bits show any other order."""

    name: ClassVar[str] = "floats"

    def n_blocks(self, n_shards):
        return 0

    def schedule(self, sweep, n_shards):
        return each(self.double, merge=self.add), observes(self.look, merge=self.add)

    def init(self, at):
        return np.array(at.shard), {}

    def double(self, at, state):
        state *= 1.7
        return state

    def look(self, at, state):
        return state / 3

    def report(self, at, state):
        return np.array(state)

    def add(self, one, other):
        return one + other

    def aggregate(self, model, reports):
        assert len(reports) > 1  # a lone report is that of a lone shard
        summed = tree_sum(list(reports))
        return summed if model is None else model * 0.3 + summed

    def record(self, sweep, model):
        return {"total": model.tobytes()}


@pytest.mark.parametrize(("n_groups", "beside"), [(1, 40), (2, 40), (3, 40), (3, 5), (20, 40)])
def test_reports_of_groups_are_added_up_as_those_of_shards(n_groups, beside):
    rng = np.random.default_rng(0)
    for n_shards in (2, 3, 5, 8, 11, 16, 23, 32, 40):
        shards = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(n_shards)]
        place = Grouped([p * n_groups // n_shards for p in range(n_shards)], beside=beside)
        expected = [record for record, *_ in run_serial(Floats(), shards, 2)]
        with StaticRun(Floats(), [Source(lambda s=one: s) for one in shards], place, n_sweeps=2) as run:
            assert list(run) == expected
        gathered = [task for task in place.tasks if task.function is group_cells.aggregate_segments]
        assert all(sum(isinstance(arg, Ref) for arg in task.args) <= 1 + 8 for task in gathered)


def test_a_sweep_has_few_tasks():
    place = Grouped("aaaabbbb", beside=4)
    finish(Ring(), place, make_shards(8))
    functions = Counter(task.function for task in place.tasks if task.key[2] == 1)
    assert functions[group_cells.meet_some] == 2 * 3  # before blocks come, once they have, once they are back
    assert functions[group_cells.work_together] == 2
    assert functions[cells.meet] == functions[cells.work_alone] == 0
    assert functions[cells.take_blocks] <= 2 * 4


@dataclass(frozen=True)
class Blind(Ring):
    """What meets blocks knows no model."""

    name: ClassVar[str] = "blind"
    meets_model: ClassVar[bool] = False

    def turn(self, at, state, block):
        assert at.model is None
        block += state
        return state + block, block


@pytest.mark.parametrize("beside", [1, 2])
def test_nobody_waits_for_a_model_that_is_not_read(beside):
    shards, place = make_shards(4), Grouped("aabb", beside=beside)
    assert finish(Blind(), place, shards) == by_definition(Blind(), shards)
    met = [task for task in place.tasks if task.function in (cells.meet, group_cells.meet_some)]
    assert met
    assert not any("aggregate" in arg.key[0] for task in met for arg in task.args if isinstance(arg, Ref))
    with StaticRun(Blind(), [Source(np.array, (lambda s=one: s,)) for one in shards], LocalPlace(), n_sweeps=2) as run:
        list(run)


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_legs_have_every_cell_once_and_wait_for_earlier_ones_only(n_shards, n_blocks, data):
    order = schedule_rotation(n_shards, n_blocks)
    order = [[b if data.draw(st.booleans()) else -1 for b in line] for line in order]
    group_of = sorted(data.draw(st.lists(st.integers(0, 3), min_size=n_shards, max_size=n_shards)))
    legs = plan_legs(order, group_of)
    visits = [visit for leg in legs for visit in leg.visits]
    assert sorted(visits) == [(s, p, b) for s, line in enumerate(order) for p, b in enumerate(line) if b >= 0]
    assert len({(leg.number, leg.group) for leg in legs}) == len(legs)
    assert all(group_of[visit.shard] == leg.group for leg in legs for visit in leg.visits)
    place = {visit: (n, leg) for n, leg in enumerate(legs) for visit in leg.visits}
    for field in ("shard", "block"):
        ways: dict[int, list] = {}
        for visit in sorted(visits):
            ways.setdefault(getattr(visit, field), []).append(visit)
        for before, after in (pair for way in ways.values() for pair in pairwise(way)):
            (first, one), (second, other) = place[before], place[after]
            assert first < second or (one is other and one.visits.index(before) < one.visits.index(after))
            assert one.group == other.group or one.number < other.number
