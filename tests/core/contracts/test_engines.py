"""What programs can rely on wherever they run.

What is defined, and errors that say what is wrong.
"""

import gc
import threading
import weakref
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import pytest
from clusters import own_cluster
from definition import Run
from ranks import RankPlace
from toys import (
    PROGRAMS,
    Exchanging,
    Observed,
    Remade,
    Ring,
    Together,
    bits,
    changed,
    make_shards,
    make_sources,
)

from schmp_estimators.core.engine import static
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.io import slices
from schmp_estimators.core.io.slices import Slices
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Source
from schmp_estimators.core.stages import changes, each, exchanges

N_SWEEPS = 4
#: Which ranks have which shards.
GROUPS = {1: [[0]], 2: [[1], [0]], 3: [[2, 0], [1]], 5: [[2, 0], [1, 3], [4]]}


@pytest.fixture(autouse=True)
def no_snapshots_by_the_clock(monkeypatch):
    """Of which shards would know on a slow machine."""
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 1e9)


@pytest.fixture(scope="module")
def pairs():
    """A cluster in this process of two workers with two threads each."""
    with own_cluster(threads_per_worker=2, set_as_default=False) as client:
        yield client


@pytest.fixture(
    params=[
        "one thread",
        "three threads",
        "ranks",
        pytest.param("dask", marks=pytest.mark.cluster),
        pytest.param("processes", marks=[pytest.mark.cluster, pytest.mark.slow]),
    ]
)
def make_place(request):
    """A function that makes a place for so many shards."""
    with ExitStack() as stack:
        if request.param in ("dask", "processes"):
            client = request.getfixturevalue("pairs" if request.param == "dask" else "processes")
            yield lambda n_shards: stack.enter_context(closing(DaskPlace(client)))
        elif request.param == "ranks":
            yield lambda n_shards: RankPlace(GROUPS[n_shards])
        else:
            n_threads = 1 if request.param == "one thread" else 3
            yield lambda n_shards: stack.enter_context(closing(Place(n_threads)))


def outcomes(run, program, n_shards, asked=range(N_SWEEPS)):
    """Return records, and after some sweeps all that a run can be asked for."""
    found = []
    for sweep, record in enumerate(run):
        found.append(bits(record))
        if sweep in asked:
            found.append(bits((run.observe(program.observing), *run.harvest(), *run.save())))
    return found


class Defined(Run):
    def __iter__(self):
        return map(self.sweep, range(N_SWEEPS))


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("n_shards", [1, 2, 3, 5])
@pytest.mark.parametrize("asked", [range(N_SWEEPS), [2]], ids=["always", "once"])
@pytest.mark.parametrize("in_files", [False, True], ids=["in memory", "in files"])
def test_every_place_does_what_is_defined(
    make_place, program, n_shards, asked, in_files, tmp_path, monkeypatch
):
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)
    expected = outcomes(Defined(program, make_shards(n_shards)), program, n_shards, asked)
    options = {"n_sweeps": N_SWEEPS, "may_ask": lambda sweep: sweep in asked}
    options |= {"slices": Slices(str(tmp_path), is_named=True)} if in_files else {}
    with static_run(program, make_sources(n_shards), make_place(n_shards), **options) as run:
        assert outcomes(run, program, n_shards, asked) == expected


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_was_saved_anywhere_goes_on_anywhere(make_place, program):
    expected = Defined(program, make_shards(3))
    for sweep in range(2):
        expected.sweep(sweep)
    with static_run(program, make_sources(3), make_place(3), n_sweeps=2) as run:
        list(run)
        saved = run.save()
    assert bits(saved) == bits(expected.save())
    for place in (
        Place(),
        make_place(3),
    ):  # the first run does not change what the second one begins from
        with static_run(program, make_sources(3), place, n_sweeps=4, first=2, saved=saved) as run:
            records = list(run)
            harvest = run.harvest()
        assert bits(saved) == bits(expected.save())
    assert bits(records) == bits([expected.sweep(2), expected.sweep(3)])
    assert bits(harvest) == bits(expected.harvest())


def test_harvest_before_the_first_sweep_and_after_an_early_end(make_place):
    expected = Run(Ring(), make_shards(3))
    with static_run(Ring(), make_sources(3), make_place(3), n_sweeps=9) as run:
        harvests, found = [run.harvest()], [bits(expected.harvest())]
        for record in run:
            expected.sweep(record["sweep"])
            harvests.append(run.harvest())
            found.append(bits(expected.harvest()))
            if record["sweep"] == 2:
                break
        assert list(map(bits, harvests)) == found  # they stay as they were


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_input_is_let_go_as_soon_as_there_are_shards(n_threads):
    inputs = make_shards(2)
    watched = [weakref.ref(one) for one in inputs]
    pieces = [Source(np.array, (partial(inputs.__getitem__, p),)) for p in range(2)]
    with (
        closing(Place(n_threads)) as place,
        static_run(Ring(), pieces, place, n_sweeps=2, release=inputs.clear),
    ):
        gc.collect()
        assert [one() for one in watched] == [None, None]


MEETING = threading.Barrier(2)


class Meeting(Ring):
    """Two shards at a time wait for each other, and so do two jobs of a shard."""

    def turn(self, at, state, block):
        MEETING.wait(30)
        return super().turn(at, state, block)

    def sum_up(self, at, state):
        at.each(lambda _: MEETING.wait(30), range(2 if at.n_shards == 1 else 1))
        return state


@pytest.mark.parametrize(("n_shards", "n_threads"), [(2, 1), (12, 1), (2, 3), (12, 3)])
def test_calls_do_not_grow_with_the_number_of_visits(n_shards, n_threads):
    calls = []

    class Counted(Together):
        def mix_all(self, ats, states, blocks, visits, told):
            calls.append(len(visits))
            super().mix_all(ats, states, blocks, visits, told)

    with (
        closing(Place(n_threads)) as place,
        static_run(Counted(), make_sources(n_shards), place, n_sweeps=1) as run,
    ):
        list(run)
    assert sum(calls) == n_shards * (n_shards + 2)
    assert len(calls) <= (1 if n_threads == 1 else n_threads * (n_shards + 2))


@pytest.mark.parametrize("n_shards", [1, 2])
def test_threads_share_shards_and_the_jobs_of_a_shard(n_shards):
    class Program(Meeting):
        def turn(self, at, state, block):
            return super().turn(at, state, block) if n_shards > 1 else (state, block)

    with (
        closing(Place(2)) as place,
        static_run(Program(), make_sources(n_shards), place, n_sweeps=2) as run,
    ):
        assert len(list(run)) == 2


# What is refused


def scheduled(kind, *stages, **methods):
    """Return a program with the stages that functions of it make, and with methods of its own."""

    def schedule(self, sweep, n_shards):
        return [stage(self) if callable(stage) else stage for stage in stages]

    return type("Scheduled", (kind,), {"schedule": schedule, **methods})()


def ordered(order, synced=False):
    return scheduled(
        Ring,
        lambda self: changes(self.turn, order=order, synced=synced),
        lambda self: each(self.sum_up),
    )


def mix(self):
    return exchanges(self.mix_up, 5, split=self.split)


def take(self):
    return each(self.take, 7)


class TooFew(Exchanging):
    def split(self, at, state):
        return super().split(at, state)[1:]


class TooMany(Exchanging):
    def mix_up(self, at, pieces, factor):
        return [*super().mix_up(at, pieces, factor), None]


class Beyond(Ring):
    def init(self, at):
        return super().init(at)[0], {at.n_blocks: np.zeros(4)}


class Blockless(Ring):
    def init(self, at):
        return super().init(at)[0], {}

    def n_blocks(self, n_shards):
        return 0


class StateAlone(Ring):
    def init(self, at):
        return super().init(at)[0]


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (scheduled(Exchanging), ValueError, "must be each or observes"),
        (scheduled(Exchanging, mix), ValueError, "must be each or observes"),
        (
            scheduled(Exchanging, mix, mix, take),
            ValueError,
            "so the next stage must be each, not exchanges",
        ),
        (
            scheduled(Exchanging, lambda self: each(lambda at, state: state)),
            TypeError,
            "must be a method of Scheduled",
        ),
        (
            scheduled(Exchanging, lambda self: each(self.work, merge=max)),
            TypeError,
            r"max.* must be a method of",
        ),
        (scheduled(Exchanging, 3, take), TypeError, "3 is no stage; make one with reads"),
        (
            ordered([[0, 0], [1, 1]]),
            ValueError,
            r"two shards meet the same block in step 0: \(0, 0\)",
        ),
        (ordered([[0, 1], [0, -1]]), ValueError, r"shard 0 meet a block twice: \[0, 0\]"),
        (ordered([[0, 2]]), ValueError, "no block in step 0.*blocks are 0 to 1"),
        (ordered([[0, -2]]), ValueError, "no block in step 0.*blocks are 0 to 1"),
        (
            scheduled(Blockless, lambda self: changes(self.turn, order=[[0, -1]])),
            ValueError,
            "n_blocks returns 0",
        ),
        (StateAlone(), TypeError, r"StateAlone\.init must return a state and a dict of parts"),
        (ordered([[0, 1, 2]]), ValueError, "3 entries in step 0; there are 2 shards"),
        (ordered([[0, -1]], synced=True), ValueError, "idle in step 0"),
        (TooFew(), ValueError, "split returned a list of 1 for 2 shards"),
        (TooMany(), ValueError, "mix_up returned a list of 3 for 2 shards"),
        (Beyond(), ValueError, "a part of block 2; there are blocks 0 … 1"),
    ],
)
@pytest.mark.parametrize("place", [Place(), RankPlace([[0], [1]])], ids=["here", "ranks"])
def test_an_impossible_schedule_is_refused(program, error, message, place):
    with (
        pytest.raises(error, match=message),
        static_run(program, make_sources(2), place, n_sweeps=1) as run,
    ):
        list(run)


def returning(made, kind, **options):
    """Return a program one of whose functions returns this."""

    def work(self, at, state, *block):
        return made

    options |= {"order": [range(2)]} if kind is changes else {}
    return scheduled(
        Ring, lambda self: kind(self.work, **options), lambda self: each(self.sum_up), work=work
    )


ARRAY = np.zeros(4)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (returning(None, each), "work returned None; in a stage made by each it returns the state"),
        (
            returning(None, changes),
            r"work returned None; in a stage made by changes it returns \(state, block\)",
        ),
        (returning(ARRAY, changes), r"returned one ndarray; .* \(state, block\)"),
        (
            returning((None, ARRAY), changes),
            r"returned a tuple of 2, None first; .* \(state, block\)",
        ),
        (
            returning((ARRAY, ARRAY), changes, synced=True),
            r"returned a tuple of 2; .* \(state, block, report\)",
        ),
        (returning([ARRAY] * 3, changes), r"returned a list of 3; .* \(state, block\)"),
        (
            returning((ARRAY, {}), each, parts=True, reports=True),
            r"a tuple of 2; .* \(state, parts, report\)",
        ),
        (returning({}, each, parts=True), r"returned one dict; .* \(state, parts\)"),
    ],
)
def test_what_a_stage_returns_is_checked(program, message):
    with (
        pytest.raises(TypeError, match=message) as caught,
        static_run(program, make_sources(2), Place(), n_sweeps=1) as run,
    ):
        list(run)
    assert caught.value.__notes__[0].startswith("in Scheduled.work, sweep 0, shard 0")


def spoil(array):
    array[:] = 0


@pytest.mark.parametrize(
    "program",
    [
        changed(Ring, "aggregate", lambda model, reports: model is None or spoil(model.total)),
        changed(Ring, "aggregate", lambda model, reports: spoil(reports[0].total)),
        changed(Remade, "combine", lambda index, parts: spoil(parts[0])),
        changed(Observed, "tell", lambda at, state: spoil(state)),
        changed(Ring, "harvest", lambda at, state: spoil(state)),
    ],
)
@pytest.mark.parametrize("place", [Place(), RankPlace([[0], [1]])], ids=["here", "ranks"])
def test_what_others_read_cannot_be_written_to(program, place):
    with (
        pytest.raises((ValueError, AssertionError), match=r"read-only|flags\.writeable"),
        static_run(program, make_sources(2), place, n_sweeps=2) as run,
    ):
        list(run)
        run.harvest()
