"""What every engine on every runtime does: the same as the serial engine, which is the definition."""

import pytest
from toys import PROGRAMS, Divided, Ring, make_shards

from schmp_estimators.core.engines.serial import run_serial
from schmp_estimators.core.engines.static import Source, StaticRun
from schmp_estimators.core.places.dask import DaskRuntime
from schmp_estimators.core.places.local import LocalRuntime
from schmp_estimators.core.program import Local, Rotation

N_SWEEPS = 7


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
        pytest.param("dask", marks=pytest.mark.cluster),
        pytest.param("dask, cut every 2 sweeps", marks=pytest.mark.cluster),
    ]
)
def runtime(request):
    if request.param == "one thread":
        runtime = LocalRuntime()
    elif request.param == "three threads":
        runtime = LocalRuntime(3)
    else:
        client = request.getfixturevalue("client")
        runtime = DaskRuntime(client, cut_every=2 if "cut" in request.param else 25)
    yield runtime
    runtime.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("n_shards", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_every_sweep_equals_the_serial_engine(runtime, program, n_shards):
    with StaticRun(program, sources(n_shards), runtime, n_sweeps=N_SWEEPS) as run:
        found = [(record, run.harvest()) for record in run]
    expected = by_definition(program, n_shards)
    assert [record for record, _ in found] == [record for record, _ in expected]
    for (_, harvest), (_, other) in zip(found, expected, strict=True):
        assert harvest.shards == other.shards
        assert harvest.blocks == other.blocks


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_records_do_not_depend_on_being_asked(runtime, program):
    with StaticRun(program, sources(3), runtime, n_sweeps=N_SWEEPS) as run:
        assert list(run) == [record for record, _ in by_definition(program, 3)]
        assert run.harvest().shards == by_definition(program, 3)[-1][1].shards


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("stop", [1, 4])
def test_saved_and_resumed_equals_uninterrupted(client, program, stop):
    with StaticRun(program, sources(3), LocalRuntime(), n_sweeps=stop) as run:
        first = list(run)
        saved = run.save()
    with StaticRun(program, sources(3), DaskRuntime(client), n_sweeps=N_SWEEPS, saved=saved, first=stop) as run:
        second = list(run)
        harvest = run.harvest()
    expected = by_definition(program, 3)
    assert first + second == [record for record, _ in expected]
    assert (harvest.shards, harvest.blocks) == (expected[-1][1].shards, expected[-1][1].blocks)


def test_harvest_before_the_first_sweep(runtime):
    with StaticRun(Ring(), sources(2), runtime, n_sweeps=3) as run:
        assert run.harvest().shards == [shard.tolist() for shard in make_shards(2)]


def test_error_of_a_program_is_raised_as_it_is(runtime):
    with (
        pytest.raises(ZeroDivisionError, match="the program itself is wrong"),
        StaticRun(Ring(fail_at=2), sources(2), runtime, n_sweeps=N_SWEEPS) as run,
    ):
        list(run)


def test_stopping_early_equals_a_shorter_run(runtime):
    with StaticRun(Ring(), sources(3), runtime, n_sweeps=N_SWEEPS) as run:
        for record in run:
            if record["sweep"] == 2:
                break
        assert run.harvest().blocks == by_definition(Ring(), 3)[2][1].blocks


class NoBarrier(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[:1]


class Clash(Ring):
    def schedule(self, sweep, n_shards):
        return Rotation("turn", ((0, 0), (1, 1)), moves=True, divided=False), Local("sum-up")


class TwiceDivided(Divided):
    def schedule(self, sweep, n_shards):
        visit, remake = super().schedule(sweep, n_shards)
        return visit, visit, remake


class Namesake(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[0], Local("report")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (Namesake(), "rename the stage"),
        (NoBarrier(), "must be Local"),
        (Clash(), "never two shards"),
        (TwiceDivided(), "divides the state"),
    ],
)
def test_impossible_schedule_is_refused(program, message):
    with (
        pytest.raises(ValueError, match=message),
        StaticRun(program, sources(2), LocalRuntime(), n_sweeps=1) as run,
    ):
        list(run)
