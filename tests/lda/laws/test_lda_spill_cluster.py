"""Documents on the disks of a cluster: the same bits as in memory, and nothing left behind."""

import os
import time
import warnings
from socket import gethostname

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.disks import Disk, KeptLostError, disks_of
from schmp_estimators.core.store import Store
from schmp_estimators.exceptions import CheckpointMismatchError, NotSharedError, SpillWarning
from schmp_estimators.lda import spill, spilled_fit
from schmp_estimators.lda.programs import spilled_groups

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


def some(names, *of_every_change):
    """Return names for parametrize, of which some run with every change."""
    return [name if name in of_every_change else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture
def spilling(client, monkeypatch):
    """A cluster with so little memory that fits go to disk, each shard in three slices; nothing is left on it."""
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 0))
    monkeypatch.setattr(spill, "divide_group", lambda sizes, n_shards, left: spill.Division(3, has_rows=True))
    folders = list(client.run(lambda dask_worker: dask_worker.local_directory).values())
    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield client
    deadline = time.monotonic() + 60  # a sweep that nobody waited for may still be at work
    while found := [name for folder in folders for name in os.listdir(folder) if name.startswith("schmp")]:
        assert time.monotonic() < deadline, found
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


@pytest.mark.parametrize("setting", some(SETTINGS, "default", "passages"))
def test_shards_on_workers_have_the_bits_of_memory(setting, spilling):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**SETTINGS[setting]).fit(X)
    lda = make(**SETTINGS[setting], spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, expected)
    assert lda.n_shards_ == 2


@pytest.mark.slow
@pytest.mark.parametrize("n_shards", some([1, 3, 20], 3))
def test_any_number_of_shards(n_shards, spilling, tmp_path):
    for number, counts in enumerate((EMPTY, SMALL[:1], random_counts(n_shards), np.full((40, 5), 9))):
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            expected = make().fit(counts)
        for where in ("auto", tmp_path / str(number)):
            lda = make(n_shards=n_shards, spill=where).fit(counts)
            assert_same_bits(lda, expected)
            assert lda.n_shards_ == min(n_shards, len(counts))


@pytest.mark.parametrize("lost", [False, True])
def test_proposals_are_drawn_again_only_where_they_are_lost(lost, spilling, monkeypatch):
    take_name, visit, seen = Store.take_name, spilled_groups.visit, []

    def lose(self, name, other):
        return take_name(self, name, other) and not lost

    def note(warp, at, tokens, *more):
        seen.append((at.sweep, tokens.ndim))
        return visit(warp, at, tokens, *more)

    monkeypatch.setattr(Store, "take_name", lose)
    monkeypatch.setattr(spilled_groups, "visit", note)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make().fit(X)
    assert_same_bits(make(spill="auto").fit(da.from_array(X, chunks=(7, 11))), expected)
    assert sorted(seen) == sorted([(sweep, 1 if lost else 2) for sweep in range(4)] * 6)


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
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "folder").iterdir())
    assert left == ["lock.spill", "manifest.spill", "shard", "shard"]
    inner = [path.name for folder in (tmp_path / "folder").glob("shard-*") for path in folder.iterdir()]
    assert inner == ["kept-topics-4.spill"] * 2
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 1 << 40))
    assert_same_bits(make(spill="auto").fit(counts), expected)  # now it fits into memory


@pytest.mark.slow
@pytest.mark.parametrize("setting", some(["default", "learned priors", "seeds"], "seeds"))
def test_batches(setting, spilling):
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
    [part] = tmp_path.glob("shard-0-*/kept-topics-4.spill")
    part.write_bytes(bytes([part.read_bytes()[0] ^ 1]) + part.read_bytes()[1:])
    with pytest.raises(CheckpointMismatchError, match=r"is not as it was written"):
        make(spill=tmp_path).fit(X)


def test_what_cannot_fit_is_refused_with_its_numbers_before_any_work(client, monkeypatch, tmp_path):
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (10_000, 20_000))
    for where in ("auto", tmp_path / "none"):
        with client.as_current(), pytest.raises(MemoryError, match=r"longest document.*GiB.*workers with more memory"):
            make(spill=where).fit(X)
    assert not (tmp_path / "none").exists()


def test_slices_follow_from_memory():
    sizes = spill.Sizes(1_000_000, 100, 10, 2, 0, rows=1000, n_words=5)
    fixed = 4 * 1000 + 200 * 5 + 100 * 10
    for n_shards in (1, 4):
        found = []
        for left in (10**9, 10**7, 10**6, 10**5):
            n_slices, has_rows = spill.divide_group(sizes, n_shards, left)
            assert has_rows
            found.append(n_slices)
            largest = 1_000_000 / n_shards / found[-1] + 100
            assert fixed + largest * sizes.of_a_token <= 0.95 * left
        assert found[0] == 1 and found == sorted(found) and found[-1] > 10


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


def test_a_worker_that_comes_late_and_does_not_see_the_folder_leaves_nothing_there(tmp_path):
    disk, message = Disk("0" * 12, str(tmp_path)), rf"spill='{tmp_path}' is another folder, or none, on host"
    for _ in range(2):
        with pytest.raises(NotSharedError, match=message), disk.opened(3):
            pass
        (tmp_path / "mark-111111111111.spill").touch()  # that of another fit
    assert len(list(tmp_path.iterdir())) == 1


def test_what_no_fit_can_go_on_from_goes(spilling, monkeypatch, tmp_path):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, "commit_parts", fail)
        make(spill=tmp_path / "folder", max_iter=1).fit(X)
    assert not (tmp_path / "folder").exists()


def test_a_fault_is_told_with_its_row(spilling):
    bad = X.astype(float)
    bad[50, 3] = 1.5
    for counts in (bad, da.from_array(bad, chunks=(7, -1))):
        with pytest.raises(ValueError, match=r"X\[50, 3\] is 1\.5"):
            make(spill="auto").fit(counts)


def test_what_neighbours_have_is_brought_back(client):
    def work(number, kept=None):
        disk = Disk(token, None)
        if kept is None:
            with disk.opened(number) as store:
                store.write("topics-3", np.arange(100, dtype=np.uint8))
            return disk.keep(number, "topics-3", 100, ())
        disk.bring(number, kept, "topics-4")
        with disk.opened(number) as store:
            data = np.empty(100, np.uint8)
            store.read("topics-4", 0, data)
        return data

    first, second = client.scheduler_info()["workers"]
    with disks_of(DaskPlace(client), None) as disk:
        token = disk.token
        kept = client.submit(work, 5, workers=[first], pure=False).result()
        assert set(kept.holders) == {first, second} and kept.size == 100
        for holders in (kept.holders, (first,), (second,)):
            for address in (first, second):
                one = client.submit(work, 5, kept._replace(holders=holders), workers=[address], pure=False).result()
                np.testing.assert_array_equal(one, np.arange(100))
        # not raised here, as tracebacks keep what is in their frames: the future would stay on the scheduler
        lost = client.submit(work, 5, kept._replace(name="kept-topics-9"), workers=[first], pure=False).exception()
        assert isinstance(lost, KeptLostError) and "kept-topics-9 of shard 5 is lost" in str(lost)
