"""Fits beyond memory.

The bits of memory, whatever the slices; folders to go on in; and what is refused.
"""

import pickle
import resource
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pytest
from callbacks import dies
from corpora import SMALL, assert_same_bits, planted
from covering import slow_but

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io import slices
from schmp_estimators.exceptions import CheckpointMismatchError, SpillError, SpillWarning
from schmp_estimators.lda import fit, spill

SAMPLERS = ["warp", "frozen", "saber"]
X = planted(n_docs=60, length=30)[0]


make = partial(DistributedLDA, n_components=4, random_state=7, sampler="warp", max_iter=7)


@pytest.fixture(autouse=True)
def all_arrays(monkeypatch):
    """Put small arrays into files, too."""
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """So little that fits go to disk, in several slices."""
    monkeypatch.setattr(spill, "memory_left", lambda: 45_000)
    monkeypatch.setattr(spill, "OF_A_PIECE", 1)
    (tmp_path / "scratch").mkdir()
    with dask.config.set({"temporary-directory": str(tmp_path / "scratch")}):
        yield tmp_path / "scratch"


LEARNED = {"doc_topic_prior": "learn", "topic_word_prior": "learn"}
SETTINGS = {
    "default": {"max_iter": 4, "evaluate_every": 2},
    "one proposal": {"mh_steps": 1},
    "three proposals": {"mh_steps": 3},
    "passages": {"init": "documents"},
    "sparse": {"init": "sparse"},
    "tempered": {"init": "tempered"},
    "one topic": {"n_components": 1},
    "more topics than words": {"n_components": 300},
    "prior of each topic": {"doc_topic_prior": [0.1, 0.2, 0.4, 3.0]},
    "learned priors": {**LEARNED, "max_iter": 13},
    "seeds": {"seed_words": {0: [1, 2], 3: [0]}},
    "topics of four bytes": {"n_components": 32_768, "max_iter": 2},
    "threads": {"n_jobs": 2},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


SLOW = {"three proposals", "topics of four bytes", "one proposal", "seeds"}
SLOW |= {"one topic", "sparse", "prior of each topic"}  # which are in memory as they are here


@pytest.mark.covering
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("setting", slow_but({*SETTINGS} - SLOW, SETTINGS))
def test_slices_have_the_bits_of_memory(setting, sampler, tmp_path):
    if sampler != "warp" and setting == "topics of four bytes":
        pytest.skip("it would take a table of gigabytes")
    if sampler != "warp" and "mh_steps" in SETTINGS[setting]:
        pytest.skip("it makes no proposals")
    lda = make(**SETTINGS[setting], sampler=sampler, n_shards=5, spill=tmp_path).fit(SMALL)
    assert_same_bits(lda, make(**SETTINGS[setting], sampler=sampler).fit(SMALL))
    assert lda.n_shards_ == 5


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["fplus", "sparse", "data-parallel"])
def test_samplers_that_see_changes_spill_their_shards(sampler, tmp_path):
    given = {"sampler": sampler, "n_shards": 3, "max_iter": 4}
    found = make(**given, spill=tmp_path).fit(SMALL)
    assert_same_bits(found, make(**given).fit(SMALL))


def test_shards_are_not_made_more_where_topics_depend_on_them(little_memory):
    with pytest.raises(MemoryError, match=r"n_shards=1.*sampler='fplus'.*set n_shards=[3-9] or"):
        make(sampler="fplus", spill="auto").fit(X)


def fit_auto(method, *batches, **parameters):
    """Fit batch after batch; each has to go to disk."""
    lda = make(spill="auto", **parameters)
    for batch in batches:
        with pytest.warns(SpillWarning, match=r"bytes of tokens into files of .*scratch"):
            getattr(lda, method)(batch)
        assert lda.n_shards_ == 1
    return lda


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["learned priors", "seeds", "tempered"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_batches_on_disk(setting, sampler, little_memory):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting] | {"sampler": sampler}
    lda = make(**parameters).partial_fit(batches[0]).partial_fit(batches[1])
    assert_same_bits(fit_auto("partial_fit", *batches, **parameters), lda)
    lda = make(**parameters, warm_start=True).fit(batches[0]).fit(batches[1])
    assert_same_bits(fit_auto("fit", *batches, **parameters, warm_start=True), lda)


def test_counts_that_do_not_fit_are_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "memory_left", lambda: 100)
    lda = make(spill=tmp_path, n_shards=3).fit(X)
    assert_same_bits(lda, make().fit(X))
    for array in (lda.topic_word_counts_.data, lda.topic_word_counts_.indices):
        assert slices._place_of(array) is not None
    assert_same_bits(pickle.loads(pickle.dumps(lda)), lda)


# Memory.


def sizes(**changed):
    given = {"n_tokens": 1_000_000, "n_docs": 50, "n_words": 40, "n_topics": 10, "longest": 100}
    return spill.Sizes(**given | {"state": 3, "table": 0, "rows": 0} | changed)


@pytest.mark.parametrize("n_processes", [1, 4])
def test_slices_follow_from_memory(n_processes):
    assert (
        sizes().of_a_token == 17
    )  # twice a place of 4 bytes, a topic of 1 and its proposals, and 3 topics more
    found = []
    for room in (10**9, 10**7, 4 * 10**6, 1_750_000):
        n = spill.count_slices(sizes(), room, n_processes)
        largest = 1.25 * 1_000_000 / n / n_processes + 1100
        needed = 100 * 50 + 32 * 50 + n * (160 + spill.OF_A_PIECE * n * n_processes) + largest * 17
        assert needed <= room
        assert n == 1 or sizes().with_slices(n - 1, n_processes) > room
        found.append(n)
    assert found[0] == 1 and found == sorted(found) and found[-1] > 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest": 900_000}, r"longest document \(900000 tokens\)"),
        ({"n_topics": 10**7}, r"n_components=10000000 topics.*need .*GiB.*fewer topics"),
        (
            {"n_words": 10**6},
            r"arrays over 1000000 words.*most frequent words.*memory-limit.*workers",
        ),
        ({"table": 10**6}, r"GiB"),
    ],
)
def test_what_cannot_fit_is_refused_with_its_numbers(changed, message):
    with pytest.raises(MemoryError, match=message):
        spill.count_slices(sizes(**changed), 2 * 10**6)


# Folders.


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def interrupted(at, error=KeyboardInterrupt, **parameters):
    lda = make(**parameters).set_callbacks(dies(at, error))
    with pytest.raises(error):
        lda.fit(X)
    assert not hasattr(lda, "topic_word_counts_")


@pytest.mark.covering
@pytest.mark.parametrize("at", [1, 2, 6, 7])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"init": "tempered"},
        {"sampler": "frozen", **LEARNED, "max_iter": 14},
        {"sampler": "saber"},
    ],
    ids=str,
)
def test_an_interrupted_fit_goes_on_in_its_folder(at, parameters, tmp_path):
    interrupted(at, **parameters, spill=tmp_path, n_shards=3)
    assert files(tmp_path) == ["checkpoint", "lock"]
    lda = make(**parameters, spill=tmp_path, n_shards=2).fit(X)  # cut in another way
    assert_same_bits(lda, make(**parameters).fit(X))


@pytest.mark.parametrize(
    ("parameters", "counts", "what"),
    [({"random_state": 8}, X, "random_state"), ({}, X[::-1], "data")],
)
def test_the_folder_of_another_fit_is_refused_and_left_alone(parameters, counts, what, tmp_path):
    interrupted(2, spill=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        CheckpointMismatchError, match=rf"spill=.*{what}: .* there.*give another folder"
    ):
        make(**parameters, spill=tmp_path).fit(counts)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_full_disk_ends_the_fit_and_what_was_done_stays(little_memory, tmp_path):
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
    assert files(little_memory) == []
    assert_same_bits(make(spill=tmp_path / "named").fit(X), make().fit(X))
    assert len(make(spill=tmp_path / "new").fit(X).history_) == 7


# What does not go together.


NO_FOLDER = "is no folder on a disk of this machine"


@pytest.mark.parametrize(
    ("where", "parameters", "message"),
    [
        ("none", {"random_state": None}, "needs an int as random_state"),
        ("none", {"checkpoint": "kept.npz"}, r"do not go together.*set checkpoint=None"),
        ("auto", {"checkpoint": "kept.npz"}, r"do not go together.*set checkpoint=None"),
        *(
            (where, {}, NO_FOLDER)
            for where in ("", "s3://bucket/folder", "memory://folder", "nowhere://folder")
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_remedy(where, parameters, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make(**parameters, spill=tmp_path / where if where == "none" else where).fit(SMALL)
    assert not (tmp_path / "none").exists()


def test_what_cannot_fit_is_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(spill, "memory_left", lambda: 10_000)
    for where in ("auto", tmp_path / "none"):
        lda = make(spill=where)
        with pytest.raises(MemoryError, match="n_components=4"):
            lda.fit(X)
        assert not hasattr(lda, "topic_word_counts_") and not (tmp_path / "none").exists()


def test_a_named_folder_is_for_fits_that_start_anew(tmp_path):
    lda = make(warm_start=True).fit(SMALL).set_params(spill=tmp_path)
    with pytest.raises(ValueError, match=r"starts anew; set spill='auto' for warm_start"):
        lda.fit(SMALL)


@pytest.mark.parametrize("sampler", ["warp", "saber"])
def test_documents_that_change_are_noticed(sampler, tmp_path):
    rng = np.random.default_rng(0)
    for number, read in enumerate(
        (
            lambda: rng.poisson(1, (10, 5)),
            lambda: np.eye(99, dtype=int)[[rng.integers(99)]],  # documents are as long as before
            lambda: rng.permutation([[3, 1], [1, 0]]),  # of the same words
        )
    ):
        chunks = [dask.delayed(read, pure=False)() for _ in range(20)]
        with pytest.raises(ValueError, match="X has changed while it was read"):
            make(spill=tmp_path / f"{number}", sampler=sampler, n_shards=3).fit(chunks)
