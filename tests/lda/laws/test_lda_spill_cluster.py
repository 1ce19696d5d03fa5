"""Fits beyond the memory of a cluster: the same bits as in memory, and nothing left behind."""

import gc
import os
import time
import warnings
from contextlib import suppress
from socket import gethostname

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from distributed import Client, LocalCluster
from lda_cases import random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.engine import static
from schmp_estimators.core.engine.static import GroupRun
from schmp_estimators.core.io import slices
from schmp_estimators.exceptions import CheckpointMismatchError, NotSharedError, SpillWarning
from schmp_estimators.lda import spill

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])
#: A word that has more tokens than all others together.
HEAVY = np.insert(SMALL, 5, 60, axis=1)


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


def some(names, *of_every_change):
    """Return names for parametrize, of which some run with every change."""
    return [name if name in of_every_change else pytest.param(name, marks=pytest.mark.slow) for name in names]


def files_in(folder):
    """Return how many files of this process are in a folder, those without a name included."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # one that is closed meanwhile
            found += os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/")
    return found


def divide(monkeypatch, n):
    """Let fits go to the disks of the workers, each of which cuts its documents into so many slices."""
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)
    monkeypatch.setattr(spill, "memory_of_workers", lambda place: [0])
    monkeypatch.setattr(spill, "count_slices", lambda *args: n)


@pytest.fixture
def dividing(client, monkeypatch):
    """A cluster with so little memory that fits go to disk, in three slices of each worker."""
    divide(monkeypatch, 3)
    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield client


@pytest.fixture
def spilling(dividing):
    """The same, on which nothing is left."""
    folders = list(dividing.run(lambda dask_worker: dask_worker.local_directory).values())
    yield dividing
    deadline = time.monotonic() + 60  # a sweep that nobody waited for may still be at work
    while found := sum(map(files_in, folders)):
        assert time.monotonic() < deadline, found
        gc.collect()
        time.sleep(0.05)


SETTINGS = {
    "default": {},
    "one proposal": {"mh_steps": 1},
    "sparse": {"init": "sparse"},
    "passages": {"init": "documents"},
    "tempered": {"init": "tempered", "max_iter": 7},
    "more topics than words": {"n_components": 300},
    "prior of each topic": {"doc_topic_prior": [0.1, 0.2, 0.4, 3.0]},
    "learned priors": {"doc_topic_prior": "learn", "max_iter": 13},
    "seeds": {"seed_words": {0: [1, 2], 3: [0]}},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


CASES = [(setting, "warp") for setting in SETTINGS]
CASES += [(setting, sampler) for setting in ("passages", "learned priors", "seeds") for sampler in ("frozen", "saber")]


@pytest.mark.parametrize("case", some(CASES, ("default", "warp"), ("passages", "frozen"), ("learned priors", "saber")))
def test_slices_on_workers_have_the_bits_of_memory(case, spilling):
    setting, sampler = case
    parameters = SETTINGS[setting] | {"sampler": sampler}
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**parameters).fit(X)
    lda = make(**parameters, spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, expected)
    assert lda.n_shards_ == 1  # as in memory: so few tokens are not divided


@pytest.mark.slow
@pytest.mark.parametrize("n_shards", some([1, 3, 20], 3))
@pytest.mark.parametrize("n_slices", [1, 4, 100])
def test_any_number_of_shards_and_slices(n_shards, n_slices, spilling, tmp_path, monkeypatch):
    divide(monkeypatch, n_slices)
    cases = EMPTY, SMALL[:1], HEAVY, random_counts(n_shards), np.full((40, 5), 9), np.ones((5, 1), int)
    for number, counts in enumerate(cases):
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            expected = make().fit(counts)
        for where in ("auto", tmp_path / str(number)):
            lda = make(n_shards=n_shards, spill=where).fit(counts)
            assert_same_bits(lda, expected)
            assert lda.n_shards_ == min(n_shards, *counts.shape)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("n_workers", [1, 3, 4])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_any_number_of_workers(n_workers, n_threads, monkeypatch):
    divide(monkeypatch, 3)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    with (
        LocalCluster(n_workers, threads_per_worker=n_threads, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        pytest.warns(SpillWarning, match=r"into files of workers, in their folders \(local_directory\)"),
    ):
        assert_same_bits(make(spill="auto").fit(da.from_array(X, chunks=(7, 11))), expected)


def test_worker_processes(processes, monkeypatch, tmp_path):
    divide(monkeypatch, 3)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    with processes.as_current():
        with pytest.warns(SpillWarning):
            assert_same_bits(make(spill="auto").fit(da.from_array(X, chunks=(7, 11))), expected)
        assert_same_bits(make(spill=tmp_path / "folder").fit(X), expected)


def test_snapshots_of_what_is_in_files(spilling, monkeypatch):
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 0.0)
    monkeypatch.setattr(static, "SNAPSHOT_SHARE", 0.0)
    collected, seen = GroupRun._collected, []

    def note(self, owed):
        seen.append(owed.sweep)
        return collected(self, owed)

    monkeypatch.setattr(GroupRun, "_collected", note)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(max_iter=7).fit(X)
    assert_same_bits(make(max_iter=7, spill="auto").fit(X), expected)
    assert seen


def memory_mapped(folder):
    parts = []
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(sparse.csr_array(X), name))
        parts.append(np.load(folder / f"{name}.npy", mmap_mode="r"))
    return sparse.csr_array(tuple(parts), shape=X.shape, copy=False)


def mapped_rows(folder):
    np.save(folder / "X.npy", np.vstack([X[:1], X]))
    return np.load(folder / "X.npy", mmap_mode="r")[1:]


FORMS = {
    "memory-mapped": memory_mapped,
    "memory-mapped, dense": mapped_rows,
    "csr": lambda folder: sparse.csr_array(X),
    "fortran": lambda folder: np.asfortranarray(X.astype(float)),
    "sparse chunks": lambda folder: da.from_array(X, chunks=(7, -1)).map_blocks(sparse.csr_array),
    "delayed": lambda folder: [dask.delayed(sparse.csr_array)(X[i : i + 13]) for i in range(0, 60, 13)],
    "persisted": lambda folder: da.from_array(X, chunks=(20, -1)).persist().map_blocks(sparse.csr_array),
}


@pytest.mark.parametrize("form", some(FORMS, "sparse chunks", "memory-mapped"))
def test_any_input_goes_to_the_disks(form, spilling, tmp_path, monkeypatch):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    (tmp_path / "input").mkdir()
    counts = FORMS[form](tmp_path / "input")
    for where in ("auto", tmp_path / "folder"):
        assert_same_bits(make(spill=where).fit(counts), expected)
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["checkpoint", "lock"]
    monkeypatch.setattr(spill, "memory_of_workers", lambda place: [1 << 40])
    assert_same_bits(make(spill="auto").fit(counts), expected)  # now it fits into memory


@pytest.mark.slow
@pytest.mark.parametrize("setting", some(["default", "learned priors", "seeds"], "seeds"))
def test_batches(setting, dividing):  # Dask's record of messages in this process has the arrays of a warm start
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting]
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**parameters).partial_fit(batches[0]).partial_fit(batches[1])
        warm = make(**parameters, warm_start=True).fit(batches[0]).fit(batches[1])
    lda = make(**parameters, spill="auto")
    assert_same_bits(lda.partial_fit(batches[0]).partial_fit(batches[1]), expected)
    lda = make(**parameters, spill="auto", warm_start=True)
    assert_same_bits(lda.fit(batches[0]).fit(batches[1]), warm)


# What ends, and what cannot begin.


class Stop:
    """A callback that raises an error after the second sweep."""

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep" and context.task_id == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_fit_leaves_nothing_or_goes_on(spilling, tmp_path):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    for where in ("auto", tmp_path):
        lda = make(spill=where).set_callbacks(Stop())
        with pytest.raises(KeyboardInterrupt):
            lda.fit(X)
        assert not hasattr(lda, "topic_word_counts_")
    for n_shards in (3, 2):  # the second has nothing left to do
        assert_same_bits(make(spill=tmp_path, n_shards=n_shards).fit(X), expected)
    kept = tmp_path / "checkpoint"
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(CheckpointMismatchError, match=r"spill=.*is no checkpoint, or a damaged one"):
        make(spill=tmp_path).fit(X)


def test_what_cannot_fit_is_refused_with_its_numbers_before_any_work(client, monkeypatch, tmp_path):
    monkeypatch.setattr(spill, "memory_of_workers", lambda place: [10_000, 20_000])
    for where in ("auto", tmp_path / "none"):
        with client.as_current(), pytest.raises(MemoryError, match=r"longest document.*GiB.*that of the workers"):
            make(spill=where).fit(X)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("there", ["nothing", "a folder", "the folder, on some"])
def test_a_folder_that_is_another_one_on_workers_is_refused_and_nothing_is_left(there, processes, apart):
    (path, (own, *others)), workers = apart, sorted(processes.run(os.getpid))
    if there != "nothing":
        for one in (own, *others):
            (one / "spill").mkdir()
    if there == "the folder, on some":
        for one in others[:2]:
            (one / "spill").rmdir()
            (one / "spill").symlink_to(own / "spill")
        workers = workers[2:]
    before = set(own.parent.rglob("*"))
    with (
        processes.as_current(),
        pytest.raises(NotSharedError, match=r"'auto', so that each uses its own disk") as caught,
    ):
        make(spill=f"{path}/spill").fit(X)
    where = f"host {gethostname()} (worker {workers[0]})"
    assert f"spill={path + '/spill'!r} is another folder, or none, on {where};" in str(caught.value)
    assert set(own.parent.rglob("*")) == before


def test_a_folder_that_workers_may_not_write_into_is_refused(spilling, monkeypatch, tmp_path):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    with pytest.raises(NotSharedError, match=rf"host .* may not write into spill='{tmp_path}/new'"):
        make(spill=tmp_path / "new").fit(X)
    assert not list(tmp_path.iterdir())


def test_a_fault_is_told_with_its_row(spilling):
    bad = X.astype(float)
    bad[50, 3] = 1.5
    for counts in (bad, da.from_array(bad, chunks=(7, -1))):
        with pytest.raises(ValueError, match=r"X\[50, 3\] is 1\.5"):
            make(spill="auto").fit(counts)
