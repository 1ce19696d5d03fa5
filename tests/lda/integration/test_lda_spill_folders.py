"""Folders of fits beyond memory: going on after any end, and telling what is wrong with one."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io import archive, slices
from schmp_estimators.exceptions import (
    CheckpointMismatchError,
    CheckpointWarning,
    SpillError,
    SpillInUseError,
    SpillWarning,
)
from schmp_estimators.lda import spill

X = planted(n_docs=60, length=30)[0]
#: Documents about nothing, whose tokens move at the slightest change.
NOISE = np.random.default_rng(3).poisson(0.6, (300, 15))


class Stop:
    """A callback that raises an error after some sweeps."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep" and context.task_id + 1 == self.at:
            raise self.error


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 7} | parameters)


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture(autouse=True)
def all_arrays(monkeypatch):
    """Put small arrays into files, too."""
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)


def interrupted(at, error=KeyboardInterrupt, counts=X, **parameters):
    lda = make(**parameters).set_callbacks(Stop(at, error))
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
    for at in (14, 15, 16):  # priors are learned after 15 sweeps, the first multiple of 5 in the second half
        interrupted(at, counts=NOISE, **parameters, spill=tmp_path / str(at), n_shards=3)
        lda = make(**parameters, spill=tmp_path / str(at), n_shards=4).fit(NOISE)
        assert_same_bits(lda, make(**parameters).fit(NOISE))
        np.testing.assert_array_equal(lda.doc_topic_prior_, make(**parameters).fit(NOISE).doc_topic_prior_)


def test_a_finished_fit_stays_small_is_read_and_can_be_prolonged(tmp_path):
    once = make(spill=tmp_path, n_shards=3).fit(X)
    assert files(tmp_path) == ["checkpoint", "lock"]
    again = make(spill=tmp_path, n_shards=3).fit(X)
    assert once.history_ == again.history_
    assert_same_bits(once, again)
    with pytest.raises(CheckpointMismatchError, match="7 iterations behind it"):
        make(spill=tmp_path, max_iter=6).fit(X)


@pytest.mark.parametrize("init", ["uniform", "tempered"])
@pytest.mark.parametrize("others", [5, 9, 20])
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


@pytest.mark.parametrize("change", [lambda old: b"", lambda old: old[:-9], lambda old: bytes(len(old))])
def test_a_damaged_folder_is_refused(change, tmp_path):
    interrupted(3, spill=tmp_path)
    path = tmp_path / "checkpoint"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointMismatchError, match=r"cannot be gone on with.*give another folder"):
        make(spill=tmp_path).fit(X)


def test_what_a_fit_without_a_whole_sweep_left_is_nothing(tmp_path):
    for name in ("lock", "checkpoint.0123456789abcdef.part", ".nfs0001"):
        (tmp_path / name).write_bytes(b"")
    assert_same_bits(make(spill=tmp_path).fit(X), make().fit(X))
    assert files(tmp_path) == [".nfs0001", "checkpoint", "lock"]


def test_a_folder_of_an_older_version_is_refused_by_name(tmp_path):
    (tmp_path / "manifest.spill").write_bytes(b"")
    with pytest.raises(CheckpointMismatchError, match=r"spill=.* was begun by an older version.*give another folder"):
        make(spill=tmp_path).fit(X)


def test_two_fits_at_a_time_need_two_folders(tmp_path):
    class Meanwhile(Stop):
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "sweep":
                with pytest.raises(SpillInUseError, match="another fit works in"):
                    make(spill=tmp_path).fit(X)

    assert_same_bits(make(spill=tmp_path).set_callbacks(Meanwhile(1, None)).fit(X), make().fit(X))


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


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    save, calls = archive._save, []

    def fail(*args):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("broken")
        save(*args)

    monkeypatch.setattr(archive, "_save", fail)
    with pytest.warns(CheckpointWarning, match="broken"):
        lda = make(spill=tmp_path, n_shards=3).fit(X)
    assert_same_bits(lda, make().fit(X))
    assert_same_bits(make(spill=tmp_path).fit(X), lda)


KILLED = """
    import os, signal, sys
    from corpora import planted
    from schmp_estimators import DistributedLDA
    from schmp_estimators.core.io import archive, slices

    save, calls, slices.LEAST_BYTES = archive._save, [], 1

    def save_some(head, arrays, file):
        calls.append(1)
        if len(calls) == int(sys.argv[2]):
            file.write(b"half of it")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        save(head, arrays, file)

    archive._save = save_some
    X = planted(n_docs=60, length=30)[0]
    DistributedLDA(4, random_state=7, sampler="warp", max_iter=7, n_shards=3, spill=sys.argv[1]).fit(X)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 7])
def test_killed_in_the_middle_of_a_write(at, tmp_path):
    command = [sys.executable, "-c", dedent(KILLED), str(tmp_path / "folder"), str(at)]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths()}, check=False)
    assert found.returncode == -signal.SIGKILL
    assert ("checkpoint" in files(tmp_path / "folder")) == (at > 1)
    lda = make(spill=tmp_path / "folder", n_shards=4).fit(X)
    assert_same_bits(lda, make().fit(X))


def paths():
    """Return where modules are looked for, the folder of the tests included."""
    return os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])


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


def test_documents_that_change_places_are_noticed(tmp_path):
    calls = []

    def turn(rows):
        calls.append(1)
        return rows if len(calls) <= 2 else rows[::-1]  # once all have been counted

    chunks = [dask.delayed(turn, pure=False)(rows) for rows in (SMALL[:12], SMALL[12:])]
    with pytest.raises(ValueError, match="X has changed while it was read"):
        make(spill=tmp_path, init="uniform").fit(chunks)


def test_faults_are_told_with_their_row(tmp_path):
    bad = X.astype(float)
    bad[50, 3] = 1.5
    for counts in (bad, da.from_array(bad, chunks=(7, -1))):
        with pytest.raises(ValueError, match=r"X\[50, 3\] is 1\.5"):
            make(spill=tmp_path / "none").fit(counts)
    assert not (tmp_path / "none").exists()
