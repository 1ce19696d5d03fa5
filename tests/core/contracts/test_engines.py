"""What every engine on every runtime does: the same as the serial engine, which is the definition."""

import pickle
from contextlib import closing

import dask
import numpy as np
import pytest
from definition import run_serial
from schmp_estimators.core.engines.static import StaticRun
from schmp_estimators.core.places.post import shelf_of
from toys import PROGRAMS, Divided, Exchanging, ExchangingHere, Foretold, Merging, Observed, Ring, make_shards

from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.places import dask as dask_place
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Ref
from schmp_estimators.core.program import Source
from schmp_estimators.core.stages import changes, each, observes

N_SWEEPS = 5


def sources(n_shards):
    return [Source(_pass, (lambda shard=shard: shard,)) for shard in make_shards(n_shards)]


def _pass(shard):
    return shard


def by_definition(program, n_shards):
    return [(record, harvest) for record, harvest, _ in run_serial(program, make_shards(n_shards), N_SWEEPS)]


@pytest.fixture(
    params=[
        "one thread",
        "three threads",
        pytest.param("dask", marks=[pytest.mark.cluster, pytest.mark.slow]),
        pytest.param("dask, cut every 2 sweeps", marks=pytest.mark.cluster),
        pytest.param("dask, by tasks, cut every 2 sweeps", marks=pytest.mark.cluster),
    ]
)
def runtime(request):
    together = "by tasks" not in request.param
    if request.param == "one thread":
        runtime = LocalPlace()
    elif request.param == "three threads":
        runtime = LocalPlace(3)
    else:
        client = request.getfixturevalue("client")
        runtime = DaskPlace(client, cut_every=2 if "cut" in request.param else 25)
    with dask.config.set({"schmp-estimators.sweeps-together": together}):
        yield runtime
    runtime.close()


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("n_shards", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_every_sweep_equals_the_serial_engine(runtime, program, n_shards):
    with static_run(program, sources(n_shards), runtime, n_sweeps=N_SWEEPS) as run:
        found = [(record, run.harvest()) for record in run]
    expected = by_definition(program, n_shards)
    assert [record for record, _ in found] == [record for record, _ in expected]
    for (_, harvest), (_, other) in zip(found, expected, strict=True):
        assert harvest.shards == other.shards
        assert harvest.blocks == other.blocks


@pytest.mark.parametrize("n_threads", [1, 3])
def test_who_meets_no_block_observes_none(n_threads):
    with static_run(Observed(), sources(2), LocalPlace(n_threads), n_sweeps=N_SWEEPS) as run:
        assert list(run) == [record for record, _ in by_definition(Observed(), 2)]


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_records_do_not_depend_on_being_asked(runtime, program):
    with static_run(program, sources(3), runtime, n_sweeps=N_SWEEPS) as run:
        assert list(run) == [record for record, _ in by_definition(program, 3)]
        assert run.harvest().shards == by_definition(program, 3)[-1][1].shards


@pytest.mark.covering
def test_shards_are_told_which_sweeps_will_be_saved(runtime):
    with static_run(Foretold(), sources(3), runtime, n_sweeps=N_SWEEPS, saves=lambda sweep: sweep in (0, 3)) as run:
        found = [record["saves"] for record in run]
    is_cut = getattr(runtime, "cut_every", 0) == 2
    assert found == [True, is_cut, False, True, False]


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("stop", [1, 4])
def test_saved_and_resumed_equals_uninterrupted(client, program, stop):
    with static_run(program, sources(3), LocalPlace(), n_sweeps=stop) as run:
        first = list(run)
        saved = run.save()
    with static_run(program, sources(3), DaskPlace(client), n_sweeps=N_SWEEPS, saved=saved, first=stop) as run:
        second = list(run)
        harvest = run.harvest()
    expected = by_definition(program, 3)
    assert first + second == [record for record, _ in expected]
    assert (harvest.shards, harvest.blocks) == (expected[-1][1].shards, expected[-1][1].blocks)


class Bare(Ring):
    """Saves and harvests what it goes on writing into."""

    def harvest(self, at, state):
        return state

    def harvest_block(self, block):
        return block


def test_what_is_saved_or_harvested_stays_as_it_was(runtime):
    expected = list(run_serial(Bare(), make_shards(3), 4))
    with static_run(Bare(), sources(3), runtime, n_sweeps=4) as run:
        found = [(record, run.harvest(), run.save()) for record in run]
    assert str(found) == str(expected)
    saved = found[1][2]
    for _ in range(2):  # a run that begins from it does not change it either
        with static_run(Bare(), sources(3), runtime, n_sweeps=4, saved=saved, first=2) as run:
            assert [record for record, *_ in found[2:]] == list(run)
    assert str(found) == str(expected)


def test_harvest_before_the_first_sweep(runtime):
    with static_run(Ring(), sources(2), runtime, n_sweeps=3) as run:
        assert run.harvest().shards == [shard.tolist() for shard in make_shards(2)]


def test_error_of_a_program_is_raised_as_it_is(runtime):
    with (
        pytest.raises(ZeroDivisionError, match="the program itself is wrong"),
        static_run(Ring(fail_at=2), sources(2), runtime, n_sweeps=N_SWEEPS) as run,
    ):
        list(run)


def test_stopping_early_equals_a_shorter_run(runtime):
    with static_run(Ring(), sources(3), runtime, n_sweeps=N_SWEEPS) as run:
        for record in run:
            if record["sweep"] == 2:
                break
        assert run.harvest().blocks == by_definition(Ring(), 3)[2][1].blocks


class NoBarrier(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[:1]


class Ordered(Ring):
    """Meets blocks in an order that a test gives."""

    def __init__(self, order, synced=False):
        super().__init__()
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "synced", synced)

    def schedule(self, sweep, n_shards):
        return changes(self.turn, order=self.order, synced=self.synced), each(self.sum_up)


class TwiceDivided(Divided):
    def schedule(self, sweep, n_shards):
        visit, remake, *_ = super().schedule(sweep, n_shards)
        return visit, visit, remake


class HalfDivided(Divided):
    def schedule(self, sweep, n_shards):
        visit, *rest = super().schedule(sweep, n_shards)
        return visit._replace(order=visit.order[:1]), *rest


class Unanswered(Exchanging):
    def schedule(self, sweep, n_shards):
        mix_up, _ = super().schedule(0, n_shards)
        return mix_up, mix_up, each(self.take, 7)


class TooFew(Exchanging):
    def split(self, at, state):
        return super().split(at, state)[1:]


class TooMany(Exchanging):
    def mix_up(self, at, pieces, factor):
        return [*super().mix_up(at, pieces, factor), None]


class TooManyHere(ExchangingHere):
    def mix_up_here(self, at, shards, states, factor):
        return [*super().mix_up_here(at, shards, states, factor), None]


class Namesake(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[0], each(self.report)


class Stranger(Ring):
    def schedule(self, sweep, n_shards):
        return each(lambda at, state: state)


class NoStage(Ring):
    def schedule(self, sweep, n_shards):
        return self.turn, each(self.sum_up)


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (Namesake(), ValueError, "rename the function"),
        (NoBarrier(), ValueError, "must be each or observes"),
        (Ordered([[0, 0], [1, 1]]), ValueError, r"two shards meet the same block in step 0: \(0, 0\)"),
        (Ordered([[0, 1], [0, -1]]), ValueError, r"shard 0 meet a block twice: \[0, 0\]"),
        (Ordered([[0, 2]]), ValueError, "beyond 0 … 1 in step 0"),
        (Ordered([[0, -2]]), ValueError, "beyond 0 … 1 in step 0"),
        (Ordered([[0, 1, 2]]), ValueError, "3 entries in step 0; there are 2 shards"),
        (Ordered([[0, -1]], synced=True), ValueError, "idle in step 0"),
        (TwiceDivided(), ValueError, "divides the state, so the next stage must be each, not reads"),
        (HalfDivided(), ValueError, "shard 0 must meet all of 2 blocks"),
        (Unanswered(), ValueError, "exchanges pieces of states, so the next stage must be each, not exchanges"),
        (TooFew(), ValueError, "split returned a list of 1 for 2 shards"),
        (TooMany(), ValueError, "mix_up returned a list of 3 for 2 shards"),
        (TooManyHere(), ValueError, "mix_up_here returned a list of 3 for 2 shards"),
        (Stranger(), TypeError, "must be a method of Stranger"),
        (NoStage(), TypeError, "is no stage; make one with reads"),
    ],
)
@pytest.mark.parametrize("engine", ["static", "serial"])
def test_impossible_schedule_is_refused(program, error, message, engine):
    with pytest.raises(error, match=message):
        if engine == "serial":
            list(run_serial(program, make_shards(2), 1))
        else:
            with StaticRun(program, sources(2), LocalPlace(), n_sweeps=1) as run:
                list(run)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_a_task_is_told_does_not_grow_with_the_number_of_shards(program):
    largest = {}
    for n_shards in (4, 24):
        tasks = LocalPlace()
        tasks.sizes = []
        submit = tasks.submit

        def look(graph, wanted, submit=submit, tasks=tasks):
            tasks.sizes += [len(pickle.dumps(tuple(a for a in task.args if not isinstance(a, Ref)))) for task in graph]
            submit(graph, wanted)

        tasks.submit = look
        with StaticRun(program, [Source(np.zeros, (4,))] * n_shards, tasks, n_sweeps=1) as run:
            run.start()
            tasks.sizes.clear()
            if n_shards == 4:
                list(run)
            else:
                run._submit(0)
        largest[n_shards] = max(tasks.sizes)
    assert largest[24] <= largest[4] + 16 < 4000


def test_observed_without_going_on(runtime):
    program = Observed()
    with static_run(program, sources(2), runtime, n_sweeps=N_SWEEPS) as run:
        records = [(record, run.observe(observes(program.tell))) for record in run]
    expected = [record for record, _ in by_definition(program, 2)]
    assert [record for record, _ in records] == expected
    assert all(seen != record and seen["sweep"] == record["sweep"] for record, seen in records)


class OnlyHere(ExchangingHere):
    def mix_up(self, at, pieces, factor):
        raise AssertionError("nothing needs to be cut in one process")


@pytest.mark.parametrize("n_threads", [1, 3])
def test_states_that_are_all_here_are_not_cut(n_threads):
    with closing(LocalPlace(n_threads)) as place, static_run(OnlyHere(), sources(3), place, n_sweeps=N_SWEEPS) as run:
        found = [(record, run.harvest().shards) for record in run]
    expected = by_definition(Exchanging(), 3)
    assert found == [(record, harvest.shards) for record, harvest in expected]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("program", "n_shards", "tasks"),
    [
        (Exchanging(), 4, 16),
        (Merging(), 5, 1),  # one task serves two shards
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in [(Exchanging(), 1, 16), (Exchanging(), 10, 16), (Exchanging(), 11, 2), (Merging(), 23, 1)]
        ),
    ],
)
def test_exchange_by_post_equals_the_serial_engine(client, monkeypatch, program, n_shards, tasks):
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", 0)
    monkeypatch.setattr(dask_place, "TASKS_OF_A_THREAD", tasks)
    place = DaskPlace(client)
    with static_run(program, sources(n_shards), place, n_sweeps=N_SWEEPS) as run:
        found = [(record, run.harvest()) for record in run]
        assert sum(client.run(_kept).values()) > 0  # or this was no post
    assert set(client.run(_kept).values()) == {0}
    for (record, harvest), (other_record, other) in zip(found, by_definition(program, n_shards), strict=True):
        assert (record, harvest.shards, harvest.blocks) == (other_record, other.shards, other.blocks)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("program", "n_shards", "cut", "save"), [(Exchanging(), 3, 5, 5), (Exchanging(), 2, 25, 5), (Ring(), 3, 25, 0)]
)
def test_only_shards_that_exchange_are_saved_often_and_by_post_cut(client, monkeypatch, program, n_shards, cut, save):
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", 2)
    place = DaskPlace(client, cut_every=25)
    with StaticRun(program, sources(n_shards), place, n_sweeps=2) as run:
        list(run)
    assert (place.cut_every, place.save_every) == (cut, save)


def _kept(dask_worker):
    return len(shelf_of(dask_worker))


def test_shards_see_blocks_or_pieces():
    program = Exchanging()
    with pytest.raises(ValueError, match="order, to see blocks, or split"):
        observes(program.see, order=[[0]], split=program.split)


@pytest.mark.cluster
@pytest.mark.parametrize("tasks", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_pieces_that_are_gone_are_work_lost(client, monkeypatch, caplog, tasks):
    """A worker that has lost what it kept, as one does that was restarted, costs no bit."""
    monkeypatch.setattr(dask_place, "EXCHANGED_BY_TASKS", 0)
    monkeypatch.setattr(dask_place, "TASKS_OF_A_THREAD", tasks)
    place, expected = DaskPlace(client), by_definition(Exchanging(), 4)
    lost = []

    def lose(sweep):
        if sweep == 3 and not lost:
            lost.append(client.run(_lose_next))

    with static_run(Exchanging(), sources(4), place, n_sweeps=N_SWEEPS) as run:
        records = []
        for sweep, record in enumerate(run):
            records.append(record)
            lose(sweep)
        assert run.harvest().shards == expected[-1][1].shards
    assert records == [record for record, _ in expected]
    assert "a piece for shard" in caplog.text
    assert "going on from the end of sweep" in caplog.text


def _lose_next(dask_worker):
    """Let the next pieces that a worker is given to keep be lost."""
    shelf = shelf_of(dask_worker)
    put = shelf.put

    def lose(token, key, pieces):
        shelf.put = put

    shelf.put = lose


def _load_and_tell(shard):
    return shard, {"first": shard[:1]}


@pytest.mark.parametrize("kind", ["serial", "threads", "dask"])
@pytest.mark.parametrize("n_shards", [1, 5])
def test_sources_tell_once_of_what_is_no_part_of_their_shards(request, kind, n_shards):
    program, shards = Ring(), make_shards(n_shards)
    place = {"serial": LocalPlace, "threads": lambda: LocalPlace(3)}.get(
        kind, lambda: DaskPlace(request.getfixturevalue("client"))
    )()
    telling = [Source(_load_and_tell, (shard,), tells=True) for shard in shards]
    with closing(place), static_run(program, telling, place, n_sweeps=3) as run:
        assert [one["first"].tolist() for one in run.told_by_sources()] == [shard[:1].tolist() for shard in shards]
        assert run.told_by_sources() == [None] * n_shards
        assert list(run) == [record for record, *_ in run_serial(program, shards, 3)]
    with closing(LocalPlace()) as place, static_run(program, sources(n_shards), place, n_sweeps=1) as run:
        assert run.told_by_sources() == [None] * n_shards
