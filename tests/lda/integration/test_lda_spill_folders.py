"""Folders of fits beyond memory: going on after any end, and telling what is wrong with one."""

import resource
from pathlib import Path

import dask
import numpy as np
import pytest
from callbacks import dies
from corpora import SMALL, assert_same_bits, planted

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io import slices
from schmp_estimators.exceptions import (
    CheckpointMismatchError,
    SpillError,
    SpillWarning,
)
from schmp_estimators.lda import spill

X = planted(n_docs=60, length=30)[0]
#: Documents about nothing, whose tokens move at the slightest change.
NOISE = np.random.default_rng(3).poisson(0.6, (300, 15))


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 7} | parameters)


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture(autouse=True)
def all_arrays(monkeypatch):
    """Put small arrays into files, too."""
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)


def interrupted(at, error=KeyboardInterrupt, counts=X, **parameters):
    lda = make(**parameters).set_callbacks(dies(at, error))
    with pytest.raises(error):
        lda.fit(counts)
    assert not hasattr(lda, "topic_word_counts_")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "memory_left", lambda: 60_000)
    monkeypatch.setattr(spill, "OF_A_PIECE", 1)
    (tmp_path / "scratch").mkdir()
    with dask.config.set({"temporary-directory": str(tmp_path / "scratch")}):
        yield tmp_path / "scratch"


@pytest.mark.covering
@pytest.mark.parametrize("at", [1, 2, 6, 7])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"doc_topic_prior": "learn", "max_iter": 14},
        {"init": "tempered"},
        {"sampler": "frozen"},
        {"sampler": "saber", "doc_topic_prior": "learn"},
    ],
)
def test_an_interrupted_fit_goes_on_in_its_folder(at, parameters, tmp_path):
    interrupted(at, **parameters, spill=tmp_path, n_shards=3)
    assert files(tmp_path) == ["checkpoint", "lock"]
    lda = make(**parameters, spill=tmp_path, n_shards=2).fit(X)  # cut in another way
    assert_same_bits(lda, make(**parameters).fit(X))


def test_what_is_learned_in_a_fit_is_gone_on_with(tmp_path):
    parameters = {"doc_topic_prior": "learn", "max_iter": 20, "evaluate_every": 3}
    # priors are learned after 15 sweeps, the first multiple of 5 in the second half
    interrupted(15, counts=NOISE, **parameters, spill=tmp_path, n_shards=3)
    lda, expected = make(**parameters, spill=tmp_path, n_shards=4).fit(NOISE), make(**parameters).fit(NOISE)
    assert_same_bits(lda, expected)
    np.testing.assert_array_equal(lda.doc_topic_prior_, expected.doc_topic_prior_)


def test_a_finished_fit_stays_small_is_read_and_can_be_prolonged(tmp_path):
    once = make(spill=tmp_path, n_shards=3).fit(X)
    assert files(tmp_path) == ["checkpoint", "lock"]
    again = make(spill=tmp_path, n_shards=3).fit(X)
    assert once.history_ == again.history_
    assert_same_bits(once, again)
    with pytest.raises(CheckpointMismatchError, match="7 iterations behind it"):
        make(spill=tmp_path, max_iter=6).fit(X)


@pytest.mark.parametrize(("init", "others"), [("uniform", 5), ("tempered", 9), ("tempered", 20)])
def test_a_folder_may_be_gone_on_with_for_another_number_of_sweeps(init, others, tmp_path):
    at = {"checkpoint": tmp_path / "kept.npz", "checkpoint_every": 1}
    interrupted(4, init=init, max_iter=12, spill=tmp_path / "folder", n_shards=3)
    interrupted(4, init=init, max_iter=12, **at)  # a tempered start ends sooner where fewer sweeps are wanted
    lda = make(init=init, max_iter=others, spill=tmp_path / "folder").fit(X)
    assert_same_bits(lda, make(init=init, max_iter=others, **at).fit(X))
    if init == "uniform":
        assert_same_bits(lda, make(init=init, max_iter=others).fit(X))


@pytest.mark.parametrize(
    ("parameters", "counts", "what"),
    [
        ({"random_state": 8}, X, "random_state"),
        ({"n_components": 5}, X, "n_components"),
        ({"mh_steps": 1}, X, "mh_steps"),
        ({}, X[::-1], "data"),
    ],
)
def test_the_folder_of_another_fit_is_refused_and_left_alone(parameters, counts, what, tmp_path):
    interrupted(2, spill=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointMismatchError, match=rf"spill=.*{what}: .* there.*give another folder"):
        make(**parameters, spill=tmp_path).fit(counts)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_temporary_folder_is_gone_whatever_ends_the_fit(error, scratch):
    with pytest.warns(SpillWarning):
        interrupted(2, error, spill="auto")
    assert files(scratch) == []


def test_a_full_disk_ends_the_fit_and_what_was_done_stays(scratch, tmp_path):
    interrupted(2, spill=tmp_path / "named", n_shards=3)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        for where in (tmp_path / "named", tmp_path / "new"):
            lda = make(spill=where, n_shards=3)
            with pytest.raises(SpillError, match=r"no room for what spill puts into .* free some"):
                lda.fit(X)
            assert not hasattr(lda, "topic_word_counts_") and not hasattr(lda, "n_features_in_")
        with pytest.warns(SpillWarning), pytest.raises(SpillError, match="no room"):
            make(spill="auto").fit(X)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert files(scratch) == []
    assert_same_bits(make(spill=tmp_path / "named").fit(X), make().fit(X))
    assert len(make(spill=tmp_path / "new").fit(X).history_) == 7


# What does not go together.


@pytest.mark.parametrize("sampler", ["fplus", "sparse", "light", "alias", "hybrid", "data-parallel"])
def test_other_samplers_are_refused_with_the_remedy(sampler, tmp_path):
    for where in ("auto", tmp_path):
        with pytest.raises(
            ValueError, match=rf"spill goes with .*'warp', 'frozen', 'saber'.*sampler='{sampler}'.*spill=None"
        ):
            make(sampler=sampler, spill=where).fit(SMALL)


def test_a_named_folder_needs_to_know_its_fit_again(tmp_path):
    with pytest.raises(ValueError, match=r"needs an int as random_state"):
        make(random_state=None, spill=tmp_path / "none").fit(SMALL)
    assert not (tmp_path / "none").exists()


def test_a_named_folder_is_for_fits_that_start_anew(tmp_path):
    for lda, method in ((make(), "partial_fit"), (make(warm_start=True), "fit")):
        with pytest.raises(ValueError, match=r"starts anew; set spill='auto' for partial_fit and for warm_start"):
            getattr(lda.fit(SMALL).set_params(spill=tmp_path), method)(SMALL)


def test_a_checkpoint_beside_it_is_refused(tmp_path):
    for where in ("auto", tmp_path / "none"):
        with pytest.raises(ValueError, match=r"do not go together.*set checkpoint=None"):
            make(checkpoint="kept.npz", spill=where).fit(SMALL)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("where", ["", "s3://bucket/folder", "memory://folder", "nowhere://folder"])
def test_what_is_no_folder_here_is_refused(where):
    with pytest.raises(ValueError, match=r"is no folder on a disk of this machine"):
        make(spill=where).fit(SMALL)


def test_one_process_and_a_cluster_go_on_in_each_others_folders(client, tmp_path):
    expected = make().fit(X)
    interrupted(2, spill=tmp_path / "here")
    with client.as_current():
        interrupted(2, spill=tmp_path / "there")
        assert_same_bits(make(spill=tmp_path / "here").fit(X), expected)
    assert_same_bits(make(spill=tmp_path / "there").fit(X), expected)


@pytest.mark.parametrize("sampler", ["warp", "saber"])
def test_documents_that_change_are_noticed(sampler, tmp_path):
    rng = np.random.default_rng(0)
    chunks = [dask.delayed(lambda n: rng.poisson(1, (n, 5)), pure=False)(10) for _ in range(3)]
    with pytest.raises(ValueError, match="X has changed while it was read"):
        make(spill=tmp_path, sampler=sampler).fit(chunks)
    same_lengths = [dask.delayed(lambda: np.eye(9, dtype=int)[[rng.integers(9)]], pure=False)() for _ in range(20)]
    with pytest.raises(ValueError, match="X has changed while it was read"):
        make(spill=tmp_path / "other", sampler=sampler, n_shards=3).fit(same_lengths)
