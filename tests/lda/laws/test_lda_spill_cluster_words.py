"""Tokens on the disks of a cluster, and no rows of words: the same bits as in memory, in however many slices."""

import os
import threading
import time
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from distributed import Client, LocalCluster
from lda_cases import random_counts

from schmp_estimators import DistributedLDA
from schmp_estimators.core.places import disks
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.disks import Disk, disks_of
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.store import Store
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill, spilled_fit
from schmp_estimators.lda.programs.sliced_groups import SlicedGroups
from schmp_estimators.lda.programs.spilled_groups import SpilledGroups

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])
#: A word that has more tokens than all others together.
HEAVY = np.insert(SMALL, 5, 60, axis=1)


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


def in_memory(counts, **parameters):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        return make(**parameters).fit(counts)


def divide(monkeypatch, n_slices):
    """Let fits go to the disks of the workers, without rows, each shard in so many slices."""
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 0))
    monkeypatch.setattr(spill, "divide_group", lambda sizes, n_shards, left: spill.Division(n_slices, has_rows=False))


def wait_for_nothing(client):
    """Wait until the workers have no folders of fits, and the scheduler no keys of theirs."""
    folders = list(client.run(lambda dask_worker: dask_worker.local_directory).values())
    deadline = time.monotonic() + 60  # a sweep that nobody waited for may still be at work
    while found := [name for folder in folders for name in os.listdir(folder) if name.startswith("schmp")]:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.fixture
def without_rows(client, monkeypatch):
    """A cluster with so little memory that rows have no place in it; nothing is left on it."""
    divide(monkeypatch, 3)
    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield client
    wait_for_nothing(client)


SETTINGS = {
    "default": {},
    "one proposal": {"mh_steps": 1},
    "uniform": {"init": "uniform"},
    "passages": {"init": "documents"},
    "sparse": {"init": "sparse"},
    "tempered": {"init": "tempered", "max_iter": 7},
    "one topic": {"n_components": 1},
    "more topics than words": {"n_components": 300},
    "topics of four bytes, packed": {"n_components": 32_768, "max_iter": 2},
    "packed": {"mh_steps": 4},
    "packed, learned priors": {"mh_steps": 4, "doc_topic_prior": "learn", "max_iter": 13},
    "too much for packing": {"mh_steps": 4, "n_components": 5000, "max_iter": 2},
    "prior of each topic": {"doc_topic_prior": [0.1, 0.2, 0.4, 3.0]},
    "learned priors": {"doc_topic_prior": "learn", "max_iter": 13},
    "seeds": {"seed_words": {0: [1, 2], 3: [0]}},
    "seeds, not packed": {"seed_words": {0: [1, 2], 3: [0]}, "mh_steps": 4},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


def some(names, *of_every_change):
    """Return names for parametrize, of which some run with every change."""
    return [name if name in of_every_change else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("setting", some(SETTINGS, "default", "packed", "learned priors", "seeds, not packed"))
def test_slices_on_workers_have_the_bits_of_memory(setting, without_rows):
    lda = make(**SETTINGS[setting], spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, in_memory(X, **SETTINGS[setting]))
    assert lda.n_shards_ == 2
    np.testing.assert_array_equal(lda.topic_word_counts_.sum(axis=0), X.sum(axis=0))


@pytest.mark.parametrize("n_shards", some([1, 3, 20], 3))
@pytest.mark.parametrize("n_slices", some([1, 4, 100], 4))
def test_any_number_of_shards_and_slices(n_shards, n_slices, without_rows, tmp_path, monkeypatch):
    divide(monkeypatch, n_slices)
    cases = EMPTY, SMALL[:1], HEAVY, random_counts(n_shards), np.full((40, 5), 9), np.ones((5, 1), int)
    for number, counts in enumerate(cases):
        expected = in_memory(counts)
        for where in ("auto", tmp_path / str(number)):
            lda = make(n_shards=n_shards, spill=where).fit(counts)
            assert_same_bits(lda, expected)
            assert lda.n_shards_ == min(n_shards, len(counts))


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("n_workers", [1, 3, 4])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_any_number_of_workers(n_workers, n_threads, monkeypatch):
    divide(monkeypatch, 3)
    with (
        LocalCluster(n_workers, threads_per_worker=n_threads, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        pytest.warns(SpillWarning),
    ):
        assert_same_bits(make(spill="auto").fit(da.from_array(X, chunks=(7, 11))), in_memory(X))
        wait_for_nothing(client)


def test_worker_processes(processes, monkeypatch, tmp_path):
    divide(monkeypatch, 3)
    with processes.as_current(), pytest.warns(SpillWarning):
        lda = make(spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, in_memory(X))
    assert lda.n_shards_ == 3
    with processes.as_current():
        assert_same_bits(make(spill=tmp_path / "folder").fit(X), lda)
    wait_for_nothing(processes)


@pytest.mark.slow
@pytest.mark.parametrize("setting", some(["default", "packed", "learned priors", "seeds"], "seeds"))
def test_batches(setting, without_rows):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting]
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**parameters).partial_fit(batches[0]).partial_fit(batches[1])
        warm = make(**parameters, warm_start=True).fit(batches[0]).fit(batches[1])
    lda = make(**parameters, spill="auto")
    assert_same_bits(lda.partial_fit(batches[0]).partial_fit(batches[1]), expected)
    lda = make(**parameters, spill="auto", warm_start=True)
    assert_same_bits(lda.fit(batches[0]).fit(batches[1]), warm)


class Files:
    """A callback that asks for the topics after each sweep, and notes which files the workers have then."""

    def __init__(self, client):
        self.client, self.seen = client, []

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep":
            estimator._as_if_fitted()
            folders = self.client.run(lambda dask_worker: dask_worker.local_directory).values()
            found = [path for folder in folders for path in Path(folder).glob("schmp*/**/*.spill")]
            self.seen.append({path.stem for path in found})
            if len(self.seen) == 1:  # as who dies in the middle of a sweep leaves one
                for path in found:
                    if path.stem.startswith("met-"):
                        path.with_name("meeting-left.spill").write_bytes(b"tokens")


def test_files_of_earlier_sweeps_go(without_rows):
    files = Files(without_rows)
    make(max_iter=8, spill="auto", evaluate_every=0).set_callbacks(files).fit(X)
    for done, names in enumerate(files.seen, 1):
        for what in ("topics", "drawn", "met", "words", "rows-0"):
            sweeps = {int(name.rpartition("-")[2]) for name in names if name.startswith(f"{what}-")}
            assert sweeps and sweeps <= {done - 2, done - 1, done, done + 1}, (what, done)
        assert done <= 2 or "meeting-left" not in names


class Look:
    """A callback that looks at the topics after each sweep, and may stop after the second."""

    def __init__(self, *, stops=False):
        self.stops, self.seen = stops, []

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep":
            self.seen.append(estimator._as_if_fitted().topic_word_counts_)
            if self.stops and context.task_id == 1:
                raise KeyboardInterrupt


@pytest.mark.parametrize("is_mapped", [False, True])
def test_topics_are_seen_while_later_sweeps_run(is_mapped, without_rows, monkeypatch, caplog):
    looks = Look(), Look()
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        make(max_iter=7).set_callbacks(looks[0]).fit(X)
    if is_mapped:
        monkeypatch.setattr(spill, "memory_left", lambda: 100)
    make(max_iter=7, spill="auto").set_callbacks(looks[1]).fit(X)
    assert len(looks[1].seen) == 7
    for found, expected in zip(looks[1].seen, looks[0].seen, strict=True):
        assert (found != expected).nnz == 0
        assert found.data.flags.writeable != is_mapped
    assert not caplog.records  # nothing was lost and made again


@pytest.mark.parametrize("has_rows", some([(False, False), (False, True), (True, False)], (False, False)))
def test_an_interrupted_fit_goes_on_with_rows_or_without(has_rows, without_rows, monkeypatch, tmp_path):
    for rows, n_shards, stops in ((has_rows[0], 3, True), (has_rows[1], 2, False)):
        found = spill.Division(2, rows)
        monkeypatch.setattr(spill, "divide_group", lambda sizes, n_shards, left, found=found: found)
        lda = make(spill=tmp_path, n_shards=n_shards).set_callbacks(Look(stops=stops))
        if stops:
            with pytest.raises(KeyboardInterrupt):
                lda.fit(X)
        else:
            assert_same_bits(lda.fit(X), in_memory(X))
    left = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert left == ["lock.spill", "manifest.spill", "shard", "shard"]
    assert [path.name for path in tmp_path.glob("shard-*/*")] == ["kept-topics-4.spill"] * 2


def test_rows_that_went_with_a_worker_are_made_again(without_rows, monkeypatch, caplog):
    fetch, lost = Disk.fetch, []

    def lose(self, place, held, at, array):
        if not lost:
            lost.append(held.name)
            raise WorkLostError("gone")
        fetch(self, place, held, at, array)

    monkeypatch.setattr(Disk, "fetch", lose)
    assert_same_bits(make(spill="auto").fit(X), in_memory(X))
    assert lost == ["rows-0-4"] and not caplog.records  # the fit has not begun anew


@pytest.mark.parametrize("lost", ["drawn-3", "met-3", "words-2"])
def test_tokens_that_are_gone_are_made_again(lost, without_rows, monkeypatch, caplog):
    read, gone = disks._read_held, []

    def lose(folder, name, *more):
        if name == lost and not gone:
            gone.append(name)
            raise WorkLostError("gone")
        read(folder, name, *more)

    monkeypatch.setattr(disks, "_read_held", lose)
    assert_same_bits(make(spill="auto", max_iter=6).fit(X), in_memory(X, max_iter=6))
    assert gone and "going on from the end of sweep -1" in caplog.text


@pytest.mark.parametrize(("mh_steps", "n_bytes"), [(2, 6), (4, 8)])  # as they are, and packed
def test_each_pass_reads_ahead_and_reads_all_once(mh_steps, n_bytes, without_rows, monkeypatch):
    read, seen, lock = disks._read_held, [], threading.Lock()

    def note(folder, name, at, array):
        with lock:
            ahead = not threading.current_thread().name.startswith("Dask")
            seen.append((ahead, name.split("-")[0], array.nbytes))
        read(folder, name, at, array)

    monkeypatch.setattr(disks, "_read_held", note)
    make(spill="auto", max_iter=2, evaluate_every=0, n_shards=2, mh_steps=mh_steps).fit(X)
    for what, of_a_token in (("drawn", 2 * n_bytes), ("met", 2 * n_bytes), ("words", 2)):
        assert sum(size for _, name, size in seen if name == what) == of_a_token * X.sum()
    assert sum(size for ahead, *_, size in seen if ahead) > 0.6 * sum(size for *_, size in seen)


# What is read of others.


def test_a_file_is_read_wherever_it_is_and_only_while_it_has_its_name(client, monkeypatch):
    content = np.arange(10_000, dtype=np.int32)

    def write(number):
        disk = Disk(token, None)
        with disk.opened(number) as store:
            store.write("drawn-3", content)
        return disk.held(number, "drawn-3")

    def read(held, at, n):
        array = np.empty(n, np.int32)
        Disk(token, None).reader(held)(at, array)
        return array

    monkeypatch.setattr(disks, "_READ_AT_ONCE", 1000)
    monkeypatch.setattr(disks, "_AT_ONCE", 1000)
    monkeypatch.setattr(disks, "_CONNECTING", 0.1)
    place = DaskPlace(client)
    with dask.config.set({"distributed.comm.timeouts.connect": "100ms"}), disks_of(place, None) as disk:
        token = disk.token
        workers = list(client.scheduler_info()["workers"])
        held = client.submit(write, 5, workers=workers[:1], pure=False).result()
        assert held.holder == workers[0]
        for address in workers:
            found = client.submit(read, held, 40, 5000, workers=[address], pure=False).result()
            np.testing.assert_array_equal(found, content[10:5010])
        found = np.empty(5000, np.int32)
        disk.fetch(place, held, 40, found)
        np.testing.assert_array_equal(found, content[10:5010])
        for wrong in (held._replace(name="drawn-4"), held._replace(holder="tcp://127.0.0.1:9")):
            for address in workers:
                error = client.submit(read, wrong, 0, 10, workers=[address], pure=False).exception()
                assert isinstance(error, WorkLostError)
            with pytest.raises(WorkLostError):
                disk.fetch(place, wrong, 0, found)


def test_what_is_written_into_meanwhile_is_not_taken_for_what_it_was(tmp_path, monkeypatch):
    store = Store(str(tmp_path), is_kept=False)
    store.write("drawn-3", np.arange(4))
    read, found = Store.read, np.empty(4, np.int64)
    disks._read_held(str(tmp_path), "drawn-3", 0, found)
    np.testing.assert_array_equal(found, np.arange(4))

    def lose(self, name, at, *arrays):
        read(self, name, at, *arrays)
        self.take_name(name, "drawing")

    monkeypatch.setattr(Store, "read", lose)
    with pytest.raises(WorkLostError, match="not there any more"):
        disks._read_held(str(tmp_path), "drawn-3", 0, found)


# Memory.


def sizes(**changed):
    given = {"n_tokens": 100_000_000, "longest": 100, "n_topics": 10, "mh_steps": 2, "fixed": 500_000} | changed
    return spill.Sizes(**{"rows": 200_000_000, "n_words": 1000, "heaviest": 300_000} | given)


def test_slices_follow_from_memory():
    for n_shards in (1, 4):
        found = []
        for left in (2 * 10**9, 7 * 10**8, 10**8, 7 * 10**7):
            n_slices, has_rows = spill.divide_group(sizes(), n_shards, left)
            assert has_rows == (left == 2 * 10**9)
            found.append(n_slices)
            if not has_rows:
                largest = 100_000_000 / n_shards / n_slices + 100 + 300_000
                assert 64 * n_shards * n_slices**2 <= 0.1 * 0.95 * left
                needed = 200 * 1000 + 100 * 10 + spill.ON_THEIR_WAY + largest * sizes().of_a_token
                assert needed <= 0.95 * left
        assert found[1:] == sorted(found[1:]) and found[-1] > 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heaviest": 90_000_000}, r"word with most \(90000000 tokens\) need 2\.\d+ GiB.*: 0\.0885 GiB, 95% of what a"),
        ({"longest": 90_000_000}, r"longest document \(90000000 tokens\)"),
        ({"n_topics": 10**7}, r"n_components=10000000 topics.*need .*GiB"),
        ({"n_words": 10**6}, r"arrays over 1000000 words.*workers with more memory"),
    ],
)
def test_what_cannot_fit_is_refused_with_its_numbers(changed, message):
    with pytest.raises(MemoryError, match=message):
        spill.divide_group(sizes(**changed), 4, 10**8)


def test_which_program_runs_follows_from_memory(client, monkeypatch, tmp_path):
    ran = []
    for program in (SpilledGroups, SlicedGroups):
        schedule = program.schedule
        monkeypatch.setattr(
            program, "schedule", lambda self, *args, of=schedule: ran.append(type(self)) or of(self, *args)
        )
    monkeypatch.setattr(spill, "ON_THEIR_WAY", 0)
    expected, kinds = in_memory(X, max_iter=1, n_components=100), []
    for left in (28_000, 34_500, 36_000, 60_000):
        monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place, left=left: (left, 2 * left))
        with client.as_current():
            try:
                lda = make(max_iter=1, n_components=100, spill=tmp_path / str(left)).fit(X)
            except MemoryError:
                kinds.append(None)
                assert not ran
                continue
        kinds.append(ran[-1])
        assert_same_bits(lda, expected)
    assert kinds == [None, SlicedGroups, SlicedGroups, SpilledGroups]
