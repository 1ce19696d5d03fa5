"""The order in which engines send work out, what they keep, and how they go on after a loss."""

import gc
import weakref
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from definition import run_serial
from schmp_estimators.core.engines.graph import SweepGraph
from schmp_estimators.core.engines.keys import Keys, Run
from schmp_estimators.core.engines.static import StaticRun
from toys import Divided, Exchanging, Resting, Ring, make_shards

from schmp_estimators.core.engine.dynamic import run_rounds
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.places.errors import WorkerLostError, WorkLostError
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Mode, Ref, in_turn
from schmp_estimators.core.program import Source

N_SWEEPS = 8


class Recording(LocalPlace):
    """Executes pure cells, twice each, as a cluster may; notes which sweeps are sent and fetched; loses work on demand.

    `losses` are the fetches of a record, counted from one, at which all that was kept is lost.
    """

    lookahead, cut_every = 1, 3

    def __init__(self, losses=()):
        super().__init__()
        self.events, self.losses, self.n_fetched = [], set(losses), 0

    def mode(self, n_shards):
        return Mode(in_place=False, each=in_turn)

    def _execute(self, task, made):
        first, second = super()._execute(task, made), super()._execute(task, made)
        assert repr(first) == repr(second), f"{task.key} has changed its inputs"
        return second

    def submit(self, tasks, wanted, *, soon=False):
        records = [task.key for task in tasks if "-record-" in task.key[0]]
        self.events += [("sent", key[2]) for key in records]
        super().submit(tasks, wanted)

    def fetch(self, keys):
        records = [key for key in keys if "-record-" in key[0]]
        self.n_fetched += len(records)
        if records and self.n_fetched in self.losses:
            raise WorkLostError("on purpose")
        self.events += [("fetched", key[2]) for key in records]
        return super().fetch(keys)

    def drop_after(self, keys, known):
        assert {*keys, known} <= self._results.keys()
        self.drop(keys)


def sources(n_shards):
    return [Source(np.array, (lambda shard=shard: shard,)) for shard in make_shards(n_shards)]


def by_definition(program, n_shards=3):
    *_, (record, harvest, _) = run_serial(program, make_shards(n_shards), N_SWEEPS)
    return record, harvest.shards, harvest.blocks


def finish(program, runtime, n_shards=3):
    with StaticRun(program, sources(n_shards), runtime, n_sweeps=N_SWEEPS) as run:
        *_, record = run
        harvest = run.harvest()
    return record, harvest.shards, harvest.blocks


@pytest.mark.parametrize("program", [Ring(), Resting(), Divided()], ids=["ring", "resting", "divided"])
@pytest.mark.parametrize("losses", [(), (2,), (5, 9), (1, 3, 6, 10, 12)])
def test_pure_cells_and_restored_runs_give_the_same_result(program, losses):
    assert finish(program, Recording(losses)) == by_definition(program)


@pytest.mark.parametrize(("homes", "n_passed_on"), [((0, 1, 2, 3), 16), ((0, 0, 1, 1), 4 + 3 * 2), ((0, 0, 0, 0), 4)])
@pytest.mark.parametrize("losses", [(), (5,)])
def test_a_block_is_passed_on_where_it_leaves_and_at_the_end_of_a_sweep(homes, n_passed_on, losses):
    passed_on = []

    class Grouped(Recording):
        def homes(self, n_shards):
            return homes

        def submit(self, tasks, wanted, *, soon=False):
            if any("-record-" in task.key[0] for task in tasks):
                passed_on.append(sum("-pass-on-" in task.key[0] for task in tasks))
            super().submit(tasks, wanted)

    assert finish(Ring(), Grouped(losses), len(homes)) == by_definition(Ring(), len(homes))
    assert set(passed_on) == {n_passed_on}


@pytest.mark.parametrize("losses", [(), (5,)])
def test_each_shard_has_one_state_beside_that_which_is_sent_ahead(losses):
    n_states = []

    class Counting(Recording):
        def fetch(self, keys):
            if any("-record-" in key[0] for key in keys):
                n_states.append(sum("-sum-up-" in key[0] for key in self._results))
            return super().fetch(keys)

    finish(Ring(), Counting(losses))
    assert max(n_states) == 2 * 3


def test_states_go_once_the_next_sweep_is_known():
    dropped = []

    class Noting(Recording):
        def drop_after(self, keys, known):
            super().drop_after(keys, known)
            dropped.append((sorted({key[0].split("-")[1] for key in keys}), known[0].split("-")[1], known[2]))

    finish(Exchanging(), Noting())
    assert dropped.pop(0) == (["input"], "load", -1)
    assert [sweep for _, _, sweep in dropped] == [0, 1, 2, 4, 5, 7]  # what a cut begins with is asked for
    assert all(states in (["start"], ["take"], ["kept"]) for states, _, _ in dropped)
    assert {known for _, known, _ in dropped} == {"aggregate"}


def test_what_is_asked_for_after_a_sweep_is_still_there():
    expected = run_serial(Ring(), make_shards(3), N_SWEEPS)
    with StaticRun(Ring(), sources(3), Recording(), n_sweeps=N_SWEEPS) as run:
        for _, (_, harvest, kept) in zip(run, expected, strict=True):
            assert run.harvest().shards == harvest.shards
            np.testing.assert_array_equal(run.save().shards, kept.shards)


def test_work_lost_without_progress_is_given_up_after_four_times():
    assert finish(Ring(), Recording((4, 5, 6))) == by_definition(Ring())
    with pytest.raises(WorkerLostError, match="4 times without a sweep"):
        finish(Ring(), Recording((4, 5, 6, 7)))


def test_one_sweep_is_sent_ahead_but_none_beyond_a_cut_or_the_end():
    runtime = Recording()
    finish(Ring(), runtime)
    expected = []
    for group in ([0, 1, 2], [3, 4, 5], [6, 7]):  # a cut after every third sweep
        sent = iter(group)
        expected.append(("sent", next(sent)))
        for sweep in group:
            expected += [("sent", ahead) for ahead in [next(sent, None)] if ahead is not None]
            expected.append(("fetched", sweep))
    assert runtime.events == expected


def test_after_a_loss_a_run_goes_on_from_its_last_cut():
    runtime = Recording((5,))
    finish(Ring(), runtime)
    sent = [sweep for what, sweep in runtime.events if what == "sent"]
    assert sent == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]  # lost while sweep 4 was waited for; sweep 2 ended in a cut


def test_a_block_that_is_only_read_is_fetched_while_the_one_before_is_worked_on():
    n_shards, names = 4, ["visit"]
    keys = Keys(*(tuple((name, p) for p in range(n_shards)) for name in ("shard", "state", "block")), ("model",))
    graph = SweepGraph(Divided(), Mode(False, in_turn), Run("run"), 0, keys)
    graph.sweep()
    met = {task.key: task for task in graph.tasks if task.key[0].split("-")[1] in names}
    for key, task in met.items():
        *_, place, step, block = key
        assert block == (place + step) % n_shards
        earlier = {arg.key for arg in task.args if isinstance(arg, Ref) and arg.key in met}
        assert earlier == {(*key[:-2], step - 2, (place + step - 2) % n_shards)} & set(met)


@pytest.mark.parametrize("kept", ["reports", "model"])
def test_aggregate_cannot_write_into_what_it_is_given(kept):
    class Careless(Ring):
        def aggregate(self, model, reports):
            given = [model] if kept == "model" else reports
            for one in given:
                if one is not None:
                    one.total[:] = 0
            return super().aggregate(model, reports)

    with (
        pytest.raises(ValueError, match="read-only"),
        StaticRun(Careless(), sources(2), Recording(), n_sweeps=3) as run,
    ):
        list(run)


def test_combine_cannot_write_into_parts_that_may_be_read_again():
    class Careless(Divided):
        def combine(self, index, parts):
            parts[0][:] = 0
            return super().combine(index, parts)

    with (
        pytest.raises(ValueError, match="read-only"),
        StaticRun(Careless(), sources(2), Recording(), n_sweeps=3) as run,
    ):
        list(run)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_input_is_let_go_as_soon_as_there_are_shards(n_threads):
    inputs = make_shards(2)
    watched = [weakref.ref(one) for one in inputs]
    pieces = [Source(np.array, (partial(inputs.__getitem__, p),)) for p in range(2)]
    with (
        closing(LocalPlace(n_threads)) as place,
        static_run(Ring(), pieces, place, n_sweeps=2, release=inputs.clear),
    ):
        gc.collect()
        assert [one() for one in watched] == [None, None]


class Jobs:
    """A program of six jobs that notes how many were under way when each was made, and the order of their results."""

    def __init__(self):
        self.made, self.under_way, self.results = 0, [], []

    def schedule(self, model):
        if self.made == 6:
            return None
        self.under_way.append(self.made - len(self.results))
        self.made += 1
        return self.made - 1

    @staticmethod
    def update(partition, job):
        return partition, job

    def aggregate(self, model, job, partials):
        assert partials == [job]
        self.results.append(job)


class OnePartition:
    @staticmethod
    def submit(function, job):
        return [function(None, job)[1]]

    @staticmethod
    def collect(ticket):
        return ticket


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_as_many_jobs_are_under_way_as_asked_for_and_end_in_their_order(depth):
    program = Jobs()
    run_rounds(program, None, OnePartition(), depth)
    assert program.results == list(range(6))
    assert max(program.under_way) == depth - 1


@pytest.mark.parametrize("losses", [(), (5,)])
def test_states_that_are_saved_between_cuts_go_once_all_that_use_them_are_known(losses):
    graphs, saved = [], []

    class Saving(Recording):
        cut_every, save_every = 0, 3

        def submit(self, tasks, wanted, *, soon=False):
            graphs.append(tasks)
            super().submit(tasks, wanted)

        def drop_after(self, keys, known):
            refs, [sent] = {Ref(key) for key in keys}, [n for n, tasks in enumerate(graphs) if known in _keys(tasks)]
            assert not any(refs & {*filter(_is_ref, task.args)} for tasks in graphs[sent + 1 :] for task in tasks)
            saved.append(known[2] if "-save-" in known[0] else None)
            super().drop_after(keys, known)

    place = Saving(losses)
    assert finish(Exchanging(), place) == by_definition(Exchanging())
    assert {2, 5} <= set(saved)
    if losses:  # the fetch of sweep 4 has failed: what was saved last is sweep 2
        assert [place.events.count(("sent", sweep)) for sweep in (2, 3)] == [1, 2]


def _keys(tasks):
    return [task.key for task in tasks]


def _is_ref(arg):
    return isinstance(arg, Ref)
