"""Runs by ranks.

What a batch is, what may be asked between two of them, and that no loss changes anything.
"""

import logging
import pickle
import re
import weakref
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import count
from types import SimpleNamespace

import pytest
from definition import run_serial
from ranks import Handle, RankPlace
from toys import (
    Exchanging,
    Foretold,
    Merging,
    Observed,
    Remade,
    Ring,
    Synced,
    bits,
    changed,
    make_shards,
    make_sources,
    scramble,
)

from schmp_estimators.core.engine import batch, static
from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.errors import WorkerLostError, WorkLostError
from schmp_estimators.core.io.checkpoint import Checkpoint
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Source
from schmp_estimators.core.values import itself

N_SWEEPS = 13
GROUPS = [[0, 3], [1], [2, 4]]


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch):
    """However slow the machine is, batches end where they must, without snapshots in between."""
    monkeypatch.setattr(static, "LONGEST_BATCH", 60.0)
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 3600.0)


def expected(program, n_sweeps=N_SWEEPS, n_shards=5):
    return [bits(one) for one in run_serial(program, make_shards(n_shards), n_sweeps)]


def outcome(record, run):
    return bits((record, run.harvest(), run.save()))


def go(program, place, *, asks=(), stop=None, n_sweeps=N_SWEEPS, **options):
    """Return all records, what was found where it was asked for, and where batches began."""
    records, found, begun, ends = [], [], [], options.pop("ends", lambda: None)

    def note():
        begun.append(len(records))
        return ends()

    asked = {n_sweeps - 1, *asks}
    options = {
        "may_ask": lambda sweep: sweep in asked,
        "n_sweeps": n_sweeps,
        "ends": note,
    } | options
    with static_run(program, make_sources(5), place, **options) as run:
        for record in run:
            assert run.took > 0
            records.append(record)
            if len(records) - 1 in asked or len(records) == stop:
                found.append(outcome(record, run))
            if len(records) == stop:
                break
    assert place.held == set()
    return records, found, begun


@pytest.mark.parametrize(
    "program", [Synced(), Remade(), Merging()], ids=lambda program: program.name
)
def test_between_batches_there_is_all_that_may_be_asked_for(program):
    every = expected(program)
    records, found, begun = go(program, RankPlace(GROUPS), asks=(6,))
    assert bits(records)[1] == [one[1][0] for one in every]
    assert found == [every[6], every[-1]]
    assert begun == [0, 1, 7]  # nobody knows at first how long a sweep takes


@pytest.mark.parametrize(
    ("options", "begun"),
    [
        ({}, [0, 1]),
        ({"asks": range(N_SWEEPS)}, list(range(N_SWEEPS))),
        ({"saves": lambda sweep: sweep in (4, 7)}, [0, 1, 5, 8]),
        ({"may_ask": lambda sweep: True, "n_sweeps": 4}, [0, 1, 2, 3]),
    ],
)
def test_a_batch_ends_where_somebody_may_ask(options, begun):
    assert go(Ring(), RankPlace(GROUPS), **options)[2] == begun


def test_shards_know_which_sweep_will_be_saved():
    records, *_ = go(Foretold(), RankPlace(GROUPS), saves=lambda sweep: sweep == 7)
    assert [sweep for sweep, record in enumerate(records) if record["saves"]] == [7]


@pytest.mark.parametrize("program", [Ring(), Merging()], ids=lambda program: program.name)
@pytest.mark.parametrize("is_over", [True, False])
def test_a_batch_ends_where_its_records_say_that_the_run_does(program, is_over):
    every = expected(program)
    *_, (last, *_) = run_serial(program, make_shards(5), 9)
    stop = 9 if is_over else None  # else it goes on in spite of it
    records, found, begun = go(
        program, RankPlace(GROUPS), ends=lambda: lambda told: told[-1] == last, stop=stop
    )
    assert found == [every[8 if is_over else -1]]
    assert begun == ([0, 1] if is_over else [0, 1, 9])
    assert len(records) == (9 if is_over else N_SWEEPS)


# Losses


class Timed(RankPlace):
    """A place in which each call of ranks takes 100 seconds of its own clock.

    It counts the snapshots.
    """

    seconds, n_saves = 0.0, 0

    def call_ranks(self, *given, **options):
        self.seconds += 100.0
        return super().call_ranks(*given, **options)

    def call(self, word, *given, **options):
        self.n_saves += word.endswith("-save")
        return super().call(word, *given, **options)


def test_sweeps_that_run_meanwhile_are_no_time_of_a_snapshot(monkeypatch):
    place = Timed(GROUPS)
    monkeypatch.setattr(static, "monotonic", lambda: place.seconds)
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 300.0)
    with static_run(Exchanging(), make_sources(5), place, n_sweeps=N_SWEEPS) as run:
        assert len(list(run)) == N_SWEEPS
    assert place.n_saves == 2 * len(
        GROUPS
    )  # one is due after each third sweep, and begins with the sweep after that


class Late(RankPlace):
    """Makes a snapshot when somebody needs it, and no sooner."""

    def call(self, word, function, args, p, *, pinned=False):
        make, place = partial(super().call, word, function, args, p), self

        class Snapshot(Handle):
            def __init__(self, place):
                place.held.add(self)

            @cached_property
            def value(self):
                made = make()
                place.release([made])
                return made.value

        return Snapshot(self)


def test_a_batch_begins_when_the_snapshot_of_the_one_before_is_there(snapshots):
    place = Late(GROUPS)
    assert go(Ring(), place, asks=range(N_SWEEPS))[1] == expected(Ring())
    assert place.n_resets == 0


def checkpointed(place, program):
    """Return records, what is found after every other sweep, and the checkpoint.

    All that a run can be asked for is returned, too.
    """
    records, found, checkpoint = [], [], Checkpoint("memory://lost-work", {"program": program.name})
    explained_errors = [Source(_load_and_tell, one.pieces, tells=True) for one in make_sources(5)]
    options = {"n_sweeps": 4, "may_ask": lambda sweep: sweep in (1, 3)}
    with static_run(program, explained_errors, place, **options) as run:
        assert run.told_by_sources() == [f"shard {p}" for p in range(5)]
        for record in run:
            records.append(record)
            if len(records) in (2, 4):
                run.keep(checkpoint, len(records), tuple)
                found += [outcome(record, run), bits(run.observe(program.observing))]
        assert run.told_by_sources() == [None] * 5
    assert place.held == set()
    return bits(records), found, bits(checkpoint.read())


def _load_and_tell(shard):
    return shard, f"shard {shard[1]}"


@pytest.mark.parametrize(
    ("program", "has_snapshots", "step"),
    [
        *((Exchanging(), True, 3), (Synced(), False, 3)),
        *(
            pytest.param(one, not isinstance(one, Synced), 1, marks=pytest.mark.slow)
            for one in (Exchanging(), Synced(), Ring(), Remade())
        ),
    ],
    ids=str,
)
def test_work_lost_at_any_moment_changes_nothing(program, has_snapshots, step, request):
    if has_snapshots:
        request.getfixturevalue("snapshots")
    whole = RankPlace(GROUPS)
    outcomes = checkpointed(whole, program)
    every = expected(program, 4)
    assert outcomes[0][1] == [one[1][0] for one in every]
    assert outcomes[1][::2] == [every[1], every[3]]
    assert outcomes[2][1] == every[3][1][2][1]
    for loss in range(1, whole.n_calls + 1, step):
        place = RankPlace(GROUPS, [loss, loss + 2])
        assert checkpointed(place, program) == outcomes
        assert place.n_resets in (1, 2)


class Losing(RankPlace):
    """Loses what is done in the batch that begins with a sweep, the first time."""

    def __init__(self, sweep):
        super().__init__(GROUPS)
        self.sweep = sweep

    def call_ranks(self, word, function, args, groups, take=None):
        if not self.n_resets and function is batch.advance and args[0][1].first == self.sweep:
            raise WorkLostError("on purpose")
        return super().call_ranks(word, function, args, groups, take)


@pytest.mark.parametrize(
    ("has_snapshots", "origin"), [(True, "going on after sweep 6"), (False, "starting again")]
)
def test_after_a_loss_a_run_goes_on_from_its_last_snapshot(has_snapshots, origin, request, caplog):
    if has_snapshots:
        request.getfixturevalue("snapshots")
    with caplog.at_level(logging.WARNING):
        records, *_ = go(Ring(), Losing(7), asks=range(N_SWEEPS))
    assert bits(records)[1] == [one[1][0] for one in expected(Ring())]
    assert f"schmp: on purpose; {origin}\n" in caplog.text


@pytest.mark.parametrize("n_losses", [5, 6])
def test_work_lost_without_progress_is_given_up_after_six_times(n_losses):
    place = RankPlace(GROUPS, range(4, 4 + n_losses))
    expectation = (
        pytest.raises(
            WorkerLostError, match="6 times, each time before a further sweep was recorded"
        )
        if n_losses == 6
        else nullcontext()
    )
    with expectation:
        go(Ring(), place, asks=range(N_SWEEPS))
    assert place.held == set()


def test_work_lost_after_progress_is_begun_again_however_often(snapshots):
    place = RankPlace(GROUPS, range(10, 99, 10))
    assert go(Ring(), place, asks=range(N_SWEEPS))[1] == expected(Ring())
    assert place.n_resets > 6


def test_a_rank_that_was_on_disk_goes_on_and_one_that_has_gone_on_is_not_used_again():
    class Moving(RankPlace):
        """Puts all ranks on disk once and brings them back, as Dask does where memory is short."""

        n_moved = 0

        def call_ranks(self, word, function, args, groups, take=None):
            if function is batch.advance and args[0][1].first == 3 and not self.n_moved:
                self.n_moved = len(groups)
                for held, *_ in args:
                    buffers = []
                    data = pickle.dumps(held.value, protocol=5, buffer_callback=buffers.append)
                    held.value = pickle.loads(
                        data, buffers=[bytes(one.raw()) for one in buffers]
                    )  # read-only
            for held, *_ in args if function is batch.harvest else ():
                held.value.rank.harvest = partial(self.asked, held.value)
            return super().call_ranks(word, function, args, groups, take)

        def asked(self, held):
            """Put a rank on disk that is at work with others."""
            del held.rank.harvest
            copy = pickle.loads(pickle.dumps(held))
            assert bits(copy.rank.states) == bits(held.rank.states)
            return held.rank.harvest()

    place = Moving(GROUPS)
    assert go(Ring(), place, asks=range(N_SWEEPS))[1] == expected(Ring())
    assert (place.n_moved, place.n_resets) == (3, 0)

    class Repeating(RankPlace):
        """Does a batch twice, as Dask may if it has not heard of the first time."""

        def call_ranks(self, word, function, args, groups, take=None):
            if function is batch.advance and not self.n_resets:
                self.release(super().call_ranks(word, function, args, groups, take)[0])
            return super().call_ranks(word, function, args, groups, take)

    place = Repeating(GROUPS)
    assert go(Ring(), place, asks=range(N_SWEEPS))[1] == expected(Ring())
    assert place.n_resets == 1


def test_a_rank_goes_on_from_its_own_sweep_only():
    with pytest.raises(WorkLostError, match="gone on already"):
        batch.PausedRank(SimpleNamespace(leave=lambda: None), 3).take(2)


# Errors


def fail(at, *_):
    if (at.sweep, at.number) == (2, 3):
        raise ZeroDivisionError("the program itself is wrong")


@pytest.mark.parametrize(
    ("kind", "method", "where"),
    [
        (Observed, "turn", r", sweep 2, shard 3 and block \d"),
        (Observed, "sum_up_and_tell", ", sweep 2, shard 3"),
        (Observed, "tell", ", sweep 2, shard 3"),
        (Exchanging, "mix_up", ", sweep 2, shard 3"),
    ],
)
def test_an_error_of_a_program_is_raised_as_it_is_and_says_where_it_was(kind, method, where):
    place = RankPlace(GROUPS)
    with pytest.raises(ZeroDivisionError) as caught:
        go(changed(kind, method, fail), place)
    [note] = caught.value.__notes__
    assert re.fullmatch(rf"in Changed\.{method}{where}", note)
    assert (place.held, place.n_resets) == (set(), 0)


@pytest.mark.parametrize(
    ("number", "shards"), [(0, "0 to 1"), (1, "2 to 3"), (2, "0 to 3"), (3, "4 to 5")]
)
def test_an_error_of_a_merge_says_where_it_was(number, shards):
    """Six shards, the last two of which are merged after the tree over the others."""
    calls = count()

    def fail(*_):
        if next(calls) == number:
            raise ZeroDivisionError("the program itself is wrong")

    class Joined(Merging):
        def aggregate(self, model, reports):
            return scramble(*reports)

    program = changed(Joined, "mix", fail)
    with (
        pytest.raises(ZeroDivisionError) as caught,
        static_run(program, make_sources(6), Place(), n_sweeps=1) as run,
    ):
        list(run)
    assert caught.value.__notes__ == [
        "in Changed.mix, sweep 0",
        f"for the parts of shards {shards} together",
    ]


@pytest.mark.parametrize("end", ["error", "loss", "success"])
def test_a_checkpoint_that_is_being_written_is_finished_whatever_happens(tmp_path, end):
    """Before an error, after a loss, and before the next one."""
    place = Losing(4) if end == "loss" else RankPlace(GROUPS)
    checkpoints = [Checkpoint(tmp_path / name, {"program": "ring"}) for name in ("one", "two")]
    with (
        pytest.raises(KeyboardInterrupt) if end == "error" else nullcontext(),
        static_run(Ring(), make_sources(5), place, n_sweeps=9) as run,
    ):
        for record in run:
            if record["sweep"] == 3:
                for checkpoint in checkpoints:
                    run.keep(checkpoint, 4, tuple)
                if end == "error":
                    raise KeyboardInterrupt
    *_, (_, _, kept) = run_serial(Ring(), make_shards(5), 4)
    assert [bits(one.read()) for one in checkpoints] == [bits(tuple(kept))] * 2
    assert (place.held, place.n_resets) == (set(), end == "loss")


def test_shards_of_a_local_run_are_released_before_the_last_harvest():
    shards = make_shards(2)
    seen = weakref.ref(shards[0])
    sources = [Source(itself, (shard,)) for shard in shards]
    with static_run(Ring(), sources, Place(), n_sweeps=1) as run:
        del shards, sources
        list(run)
        assert seen() is not None
        run.finish()
        assert seen() is None
