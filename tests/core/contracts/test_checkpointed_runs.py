"""Runs with checkpoints: they end alike, can be resumed anywhere, and losses change no checkpoint."""

import os
from functools import partial

import fsspec
import pytest
from definition import run_serial
from ranks import RankPlace
from toys import Remade, Resting, Ring, bits, make_shards, make_sources

from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.io.checkpoint import Checkpoint, CheckpointWarning, read_checkpoint
from schmp_estimators.core.places.place import Place

MARK = {"data": "abc"}


@pytest.fixture
def url(tmp_path):
    return tmp_path / "state"


GROUPS = [[0, 2], [1]]
N_SWEEPS = 8


def values_after(done, saved):
    return {"done": done, "saved": saved}


def run_kept(program, place, checkpoint, saved=None, first=0, every=2):
    """Run with a checkpoint after every second sweep; return what is left."""
    with static_run(program, make_sources(3), place, n_sweeps=N_SWEEPS, saved=saved, first=first) as run:
        for done, record in enumerate(run, first + 1):  # noqa: B007
            if done % every == 0:
                run.keep(checkpoint, done, partial(values_after, done))
        harvest = run.harvest()
    assert not getattr(place, "held", ())
    return bits((record, harvest))


def by_definition(program):
    *_, (record, harvest, _) = run_serial(program, make_shards(3), N_SWEEPS)
    return bits((record, harvest))


@pytest.mark.parametrize("program", [Ring(), Resting(), Remade()], ids=lambda program: program.name)
def test_a_run_with_checkpoints_ends_alike_and_can_be_resumed(program, url, tmp_path):
    checkpoint = Checkpoint(url, MARK)
    assert run_kept(program, RankPlace(GROUPS), checkpoint, every=5) == by_definition(program)
    found = read_checkpoint(url, MARK)
    assert found["done"] == 5
    for place in (RankPlace([[0, 1, 2]]), Place()):
        assert run_kept(program, place, Checkpoint(url, MARK), found["saved"], first=5, every=8) == by_definition(
            program
        )
    assert os.listdir(tmp_path) == ["state"]


def test_work_lost_at_any_moment_changes_neither_the_result_nor_the_checkpoint():
    program, expected, store = Ring(), by_definition(Ring()), fsspec.filesystem("memory")
    whole = RankPlace(GROUPS)
    run_kept(program, whole, Checkpoint("memory://lost/whole", MARK))
    for loss in range(1, whole.n_calls + 1):
        url, place = f"memory://lost/{loss}", RankPlace(GROUPS, [loss, loss + 2])
        assert run_kept(program, place, Checkpoint(url, MARK)) == expected
        assert place.n_resets
        assert str(read_checkpoint(url, MARK)) == str(read_checkpoint("memory://lost/whole", MARK))
    store.rm("/lost", recursive=True)


def full(descriptor):
    raise OSError("no space left on device")


def test_where_nobody_can_write_a_warning_says_so_and_nothing_is_left(url, tmp_path, monkeypatch):
    with (
        monkeypatch.context() as patch,
        pytest.warns(CheckpointWarning, match="after iteration 2 .*no space") as caught,
    ):
        patch.setattr(os, "fsync", full)
        assert run_kept(Ring(), RankPlace(GROUPS), Checkpoint(url, MARK)) == by_definition(Ring())
    assert len(caught) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", [Place(), RankPlace(GROUPS)], ids=["here", "ranks"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_ends_with_an_error_still_hands_over_its_checkpoint(url, place, error):
    with pytest.raises(error), static_run(Ring(), make_sources(3), place, n_sweeps=N_SWEEPS) as run:
        for done, _ in enumerate(run, 1):
            if done == 4:
                run.keep(Checkpoint(url, MARK), done, partial(values_after, done))
                raise error
    assert read_checkpoint(url, MARK)["done"] == 4
    assert not getattr(place, "held", ())
