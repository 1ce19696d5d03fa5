"""What programs can rely on wherever they run: what is defined, and errors that say what is wrong."""

import gc
import threading
import weakref
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import pytest
from definition import Run
from distributed import Client, LocalCluster
from ranks import RankPlace
from toys import PROGRAMS, Exchanging, Observed, Remade, Ring, bits, make_shards, make_sources

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


@pytest.fixture(scope="module")
def pairs():
    """A cluster in this process of two workers with two threads each."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
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
            found.append(bits((run.observe(program.observing(n_shards)), *run.harvest(), *run.save())))
    return found


class Defined(Run):
    def __iter__(self):
        return map(self.sweep, range(N_SWEEPS))


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("n_shards", [1, 2, 3, 5])
@pytest.mark.parametrize("asked", [range(N_SWEEPS), [2]], ids=["always", "once"])
def test_every_place_does_what_is_defined(make_place, program, n_shards, asked):
    expected = outcomes(Defined(program, make_shards(n_shards)), program, n_shards, asked)
    options = {"n_sweeps": N_SWEEPS, "may_ask": lambda sweep: sweep in asked}
    with static_run(program, make_sources(n_shards), make_place(n_shards), **options) as run:
        assert outcomes(run, program, n_shards, asked) == expected


@pytest.mark.covering
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("n_shards", [1, 5])
def test_arrays_in_files_do_what_is_defined(make_place, program, n_shards, tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)
    expected = outcomes(Defined(program, make_shards(n_shards)), program, n_shards)
    files = Slices(str(tmp_path), is_named=True)
    with static_run(program, make_sources(n_shards), make_place(n_shards), n_sweeps=N_SWEEPS, slices=files) as run:
        assert outcomes(run, program, n_shards) == expected


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
    for place in (Place(), make_place(3)):  # the first run does not change what the second one begins from
        with static_run(program, make_sources(3), place, n_sweeps=4, first=2, saved=saved) as run:
            records = list(run)
            harvest = run.harvest()
        assert bits(saved) == bits(expected.save())
    assert bits(records) == bits([expected.sweep(2), expected.sweep(3)])
    assert bits(harvest) == bits(expected.harvest())


def test_harvest_before_the_first_sweep_and_after_an_early_end(make_place):
    expected = Run(Ring(), make_shards(3))
    with static_run(Ring(), make_sources(3), make_place(3), n_sweeps=9) as run:
        before = run.harvest()
        assert bits(before) == bits(expected.harvest())
        for record in run:
            expected.sweep(record["sweep"])
            if record["sweep"] == 2:
                break
        assert bits(run.harvest()) == bits(expected.harvest())
        assert bits(before) != bits(run.harvest())  # it stays as it was


def load_and_tell(shard):
    return shard, f"shard {shard[1]}"


@pytest.mark.parametrize("n_shards", [1, 5])
def test_sources_tell_once_of_what_is_no_part_of_their_shards(make_place, n_shards):
    expected = Defined(Ring(), make_shards(n_shards))
    telling = [Source(load_and_tell, one.pieces, tells=True) for one in make_sources(n_shards)]
    with static_run(Ring(), telling, make_place(n_shards), n_sweeps=N_SWEEPS) as run:
        assert run.told_by_sources() == [f"shard {p}" for p in range(n_shards)]
        assert run.told_by_sources() == [None] * n_shards
        assert list(run) == list(expected)
    with static_run(Ring(), make_sources(n_shards), make_place(n_shards), n_sweeps=1) as run:
        assert run.told_by_sources() == [None] * n_shards


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


@pytest.mark.parametrize("n_shards", [1, 2])
def test_threads_share_shards_and_the_jobs_of_a_shard(n_shards):
    class Program(Meeting):
        def turn(self, at, state, block):
            return super().turn(at, state, block) if n_shards > 1 else (state, block)

    with closing(Place(2)) as place, static_run(Program(), make_sources(n_shards), place, n_sweeps=2) as run:
        assert len(list(run)) == 2


# What is refused


class Ordered(Ring):
    """Meets blocks in an order that a test gives."""

    def __init__(self, order, synced=False):
        super().__init__()
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "synced", synced)

    def schedule(self, sweep, n_shards):
        return changes(self.turn, order=self.order, synced=self.synced), each(self.sum_up)


class Scheduled(Exchanging):
    """Has the stages that a test gives."""

    def __init__(self, *stages):
        super().__init__()
        object.__setattr__(self, "stages", stages)

    def schedule(self, sweep, n_shards):
        return [stage(self) if callable(stage) else stage for stage in self.stages]


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


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (Scheduled(), ValueError, "must be each or observes"),
        (Scheduled(mix), ValueError, "must be each or observes"),
        (Scheduled(mix, mix, take), ValueError, "exchanges pieces of states, so the next stage must be each, not exch"),
        (Scheduled(lambda self: each(lambda at, state: state)), TypeError, "must be a method of Scheduled"),
        (Scheduled(lambda self: each(self.work, merge=max)), TypeError, r"max.* must be a method of Scheduled"),
        (Scheduled(3, take), TypeError, "3 is no stage; make one with reads"),
        (Ordered([[0, 0], [1, 1]]), ValueError, r"two shards meet the same block in step 0: \(0, 0\)"),
        (Ordered([[0, 1], [0, -1]]), ValueError, r"shard 0 meet a block twice: \[0, 0\]"),
        (Ordered([[0, 2]]), ValueError, "beyond 0 … 1 in step 0"),
        (Ordered([[0, -2]]), ValueError, "beyond 0 … 1 in step 0"),
        (Ordered([[0, 1, 2]]), ValueError, "3 entries in step 0; there are 2 shards"),
        (Ordered([[0, -1]], synced=True), ValueError, "idle in step 0"),
        (TooFew(), ValueError, "split returned a list of 1 for 2 shards"),
        (TooMany(), ValueError, "mix_up returned a list of 3 for 2 shards"),
        (Beyond(), ValueError, "a part of block 2; there are blocks 0 … 1"),
    ],
)
@pytest.mark.parametrize("place", [Place(), RankPlace([[0], [1]])], ids=["here", "ranks"])
def test_an_impossible_schedule_is_refused(program, error, message, place):
    with pytest.raises(error, match=message), static_run(program, make_sources(2), place, n_sweeps=1) as run:
        list(run)


class Returning(Ring):
    """Its functions return what a test gives."""

    def __init__(self, made, kind, **options):
        super().__init__()
        for name, value in {"made": made, "kind": kind, "options": options}.items():
            object.__setattr__(self, name, value)

    def schedule(self, sweep, n_shards):
        wrong = changes if self.kind == "changes" else each
        options = {"order": [range(n_shards)]} if wrong is changes else {}
        return wrong(self.work, **options, **self.options), each(self.sum_up)

    def work(self, at, state, *block):
        return self.made


ARRAY = np.zeros(4)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Returning(None, "each"), "work returned None; in a stage made by each it returns the state"),
        (Returning(None, "changes"), r"work returned None; in a stage made by changes it returns \(state, block\)"),
        (Returning(ARRAY, "changes"), r"returned one ndarray; .* \(state, block\)"),
        (Returning((None, ARRAY), "changes"), r"returned a tuple of 2, None first; .* \(state, block\)"),
        (Returning((ARRAY, ARRAY), "changes", synced=True), r"returned a tuple of 2; .* \(state, block, report\)"),
        (Returning([ARRAY] * 3, "changes"), r"returned a list of 3; .* \(state, block\)"),
        (Returning((ARRAY, {}), "each", parts=True, reports=True), r"a tuple of 2; .* \(state, parts, report\)"),
        (Returning({}, "each", parts=True), r"returned one dict; .* \(state, parts\)"),
    ],
)
def test_what_a_stage_returns_is_checked(program, message):
    with (
        pytest.raises(TypeError, match=message) as caught,
        static_run(program, make_sources(2), Place(), n_sweeps=1) as run,
    ):
        list(run)
    assert caught.value.__notes__[0].startswith("in Returning.work, sweep 0, shard 0")


class CarelessModel(Ring):
    def aggregate(self, model, reports):
        if model is not None:
            model.total[:] = 0
        return super().aggregate(model, reports)


class CarelessReports(Ring):
    def aggregate(self, model, reports):
        reports[0].total[:] = 0
        return super().aggregate(model, reports)


class CarelessCombine(Remade):
    def combine(self, index, parts):
        parts[0][:] = 0
        return super().combine(index, parts)


class CarelessRead(Observed):
    def tell(self, at, state):
        state[:] = 0
        return super().tell(at, state)


class CarelessHarvest(Ring):
    def harvest(self, at, state):
        state[:] = 0


@pytest.mark.parametrize(
    "program", [CarelessModel(), CarelessReports(), CarelessCombine(), CarelessRead(), CarelessHarvest()]
)
@pytest.mark.parametrize("place", [Place(), RankPlace([[0], [1]])], ids=["here", "ranks"])
def test_what_others_read_cannot_be_written_to(program, place):
    with (
        pytest.raises((ValueError, AssertionError), match=r"read-only|flags\.writeable"),
        static_run(program, make_sources(2), place, n_sweeps=2) as run,
    ):
        list(run)
        run.harvest()
