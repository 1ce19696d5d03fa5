"""Reports that are merged on their way to `aggregate`: the bits of the serial engine, and few arguments of any task."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
from definition import run_serial
from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.static import StaticRun
from toys import Ring

from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Ref
from schmp_estimators.core.program import Program, Source
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import each, observes


class Told(NamedTuple):
    total: np.ndarray
    first: int


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
        return Told(state / 3, at.number)

    def report(self, at, state):
        return Told(np.array(state), at.number)

    def add(self, one, other):
        assert one.first < other.first
        return Told(one.total + other.total, one.first)

    def aggregate(self, model, reports):
        assert [one.first for one in reports] == sorted(one.first for one in reports)
        summed = tree_sum([one.total for one in reports])
        return summed if model is None else model * 0.3 + summed

    def record(self, sweep, model):
        return {"total": model.tobytes()}


class Noting(LocalPlace):
    """Notes how many results a task that is not told of parts takes."""

    most = 0
    #: How many neighbours there are at a place.
    n_neighbours = 1

    def homes(self, n_shards):
        return [p // self.n_neighbours for p in range(n_shards)]

    def submit(self, tasks, wanted, *, soon=False):
        begun = [task for task in tasks if task.key[2] >= 0 and "-combine-" not in task.key[0]]
        self.most = max(self.most, *(sum(isinstance(one, Ref) for one in task.args) for task in begun), 0)
        super().submit(tasks, wanted)


@pytest.mark.parametrize(
    ("n_threads", "n_neighbours", "counts", "most"),
    [(1, 1, (*range(1, 41), 64, 65, 130), 9), (3, 12, (*range(1, 41), 64, 65, 130), 9), (1, 64, (64, 65, 130), 64)],
)
def test_merged_reports_have_the_bits_of_all_of_them(n_threads, n_neighbours, counts, most):
    rng = np.random.default_rng(0)
    for n_shards in counts:
        shards = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(n_shards)]
        expected = [record for record, *_ in run_serial(Floats(), shards, 3)]
        place = Noting(n_threads)
        place.n_neighbours = n_neighbours
        with StaticRun(Floats(), [Source(lambda s=one: s) for one in shards], place, n_sweeps=3) as run:
            assert list(run) == expected
        assert place.most <= most  # eight reports, and the model; or outcomes at one place, which do not travel
        place.close()


@pytest.mark.parametrize(("n_neighbours", "apart"), [(1, 40), (16, 0), (12, 16), (40, 0)])
def test_only_outcomes_at_one_place_meet_in_a_task(n_neighbours, apart):
    place = Noting()
    place.n_neighbours = n_neighbours
    with StaticRun(Floats(), [Source(np.ones, (3,))] * 40, place, n_sweeps=1) as run:
        run.start()
        submit, seen = place.submit, []

        def look(tasks, wanted):
            seen.extend(tasks)
            submit(tasks, wanted)

        place.submit = look
        list(run)
    assert sum(task.function is cells.take_report for task in seen) == apart
    for task in seen:
        if task.function is cells.merge_reports:
            assert len({arg.key[4] // n_neighbours for arg in task.args if isinstance(arg, Ref)}) == 1


def test_a_sum_in_another_order_would_be_noticed():
    rng = np.random.default_rng(0)
    shards = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(20)]
    [(record, *_)] = run_serial(Floats(), shards, 1)
    [(other, *_)] = run_serial(Floats(), shards[::-1], 1)
    assert record != other


@dataclass(frozen=True)
class Foreign(Ring):
    def schedule(self, sweep, n_shards):
        return each(self.sum_up, merge=max)


def test_what_merges_is_a_method_of_the_program():
    with pytest.raises(TypeError, match=r"max.* must be a method of Foreign"):
        next(run_serial(Foreign(), [np.zeros(4, np.int64)], 1))
