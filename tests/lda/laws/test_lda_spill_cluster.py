"""Documents on the disks of a cluster: the same bits as in memory, and nothing left behind."""

import os
import time
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill, spilled_fit

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


@pytest.fixture
def spilling(client, monkeypatch):
    """A cluster with so little memory that fits go to disk, each shard in three slices; nothing is left on it."""
    monkeypatch.setattr(spilled_fit, "left_of_workers", lambda place: (1 << 30, 0))
    monkeypatch.setattr(spill, "choose_slices", lambda sizes, n_shards, left: 3)
    folders = list(client.run(lambda dask_worker: dask_worker.local_directory).values())
    with client.as_current(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        yield client
    deadline = time.monotonic() + 20  # a sweep that nobody waited for may still be at work
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


@pytest.mark.parametrize("setting", SETTINGS)
def test_shards_on_workers_have_the_bits_of_memory(setting, spilling):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**SETTINGS[setting]).fit(X)
    lda = make(**SETTINGS[setting], spill="auto").fit(da.from_array(X, chunks=(7, 11)))
    assert_same_bits(lda, expected)
    assert lda.n_shards_ == 2


@pytest.mark.parametrize("n_shards", [1, 3, pytest.param(20, marks=pytest.mark.slow)])
def test_any_number_of_shards(n_shards, spilling, tmp_path):
    for number, counts in enumerate((EMPTY, SMALL[:1], random_counts(n_shards), np.full((40, 5), 9))):
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            expected = make().fit(counts)
        for where in ("auto", tmp_path / str(number)):
            lda = make(n_shards=n_shards, spill=where).fit(counts)
            assert_same_bits(lda, expected)
            assert lda.n_shards_ == min(n_shards, len(counts))


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


@pytest.mark.parametrize("form", FORMS)
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


@pytest.mark.parametrize("setting", ["default", "learned priors", "seeds"])
def test_batches(setting, spilling):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting]
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = make(**parameters).partial_fit(batches[0]).partial_fit(batches[1])
        warm = make(**parameters, warm_start=True).fit(batches[0]).fit(batches[1])
    lda = make(**parameters, spill="auto")
    assert_same_bits(lda.partial_fit(batches[0]).partial_fit(batches[1]), expected)
    lda = make(**parameters, spill="auto", warm_start=True)
    assert_same_bits(lda.fit(batches[0]).fit(batches[1]), warm)
