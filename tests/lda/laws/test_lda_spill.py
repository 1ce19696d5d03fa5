"""Fits beyond memory: the same bits as in memory, into however many slices documents are cut."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io import slices
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import fit, spill

SAMPLERS = ["warp", "frozen", "saber"]
X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])
#: A document that is longer than all others together.
LONG = np.insert(SMALL, 12, 10 * np.arange(11), axis=0)
#: A word that has more tokens than all others together.
HEAVY = np.insert(SMALL, 5, 20, axis=1)


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


@pytest.fixture(autouse=True)
def all_arrays(monkeypatch):
    """Put small arrays into files, too."""
    monkeypatch.setattr(slices, "LEAST_BYTES", 1)


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """So little that fits go to disk, in several slices."""
    monkeypatch.setattr(spill, "memory_left", lambda: 60_000)
    monkeypatch.setattr(spill, "OF_A_PIECE", 1)
    with dask.config.set({"temporary-directory": str(tmp_path / "scratch")}):
        yield


SETTINGS = {
    "default": {},
    "one proposal": {"mh_steps": 1},
    "three proposals": {"mh_steps": 3},
    "uniform": {"init": "uniform"},
    "passages": {"init": "documents"},
    "sparse": {"init": "sparse"},
    "tempered": {"init": "tempered", "max_iter": 7},
    "one topic": {"n_components": 1},
    "more topics than words": {"n_components": 300},
    "prior of each topic": {"doc_topic_prior": [0.1, 0.2, 0.4, 3.0]},
    "learned priors": {"doc_topic_prior": "learn", "max_iter": 13},
    "seeds": {"seed_words": {0: [1, 2], 3: [0]}},
    "topics of four bytes": {"n_components": 32_768, "max_iter": 2},
    "another random state": {"random_state": 123},
    "threads": {"n_jobs": 2},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


SLOW = {"three proposals", "topics of four bytes", "one proposal", "another random state"}


@pytest.mark.covering
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SETTINGS]
)
def test_slices_have_the_bits_of_memory(setting, sampler, tmp_path):
    if sampler != "warp" and setting == "topics of four bytes":
        pytest.skip("it would take a table of gigabytes")
    lda = make(**SETTINGS[setting], sampler=sampler, n_shards=5, spill=tmp_path).fit(SMALL)
    assert_same_bits(lda, make(**SETTINGS[setting], sampler=sampler).fit(SMALL))
    assert lda.n_shards_ == 5


@pytest.mark.covering
@pytest.mark.parametrize(
    "counts",
    [EMPTY, SMALL[:1], LONG, HEAVY, np.ones((5, 1), int), np.eye(9, dtype=int)],
    ids=lambda counts: str(counts.shape),
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_strange_corpora(counts, sampler, tmp_path, monkeypatch):
    expected = make(sampler=sampler).fit(counts)
    for n in (1, 4):
        monkeypatch.setattr(spill, "count_slices", lambda *args, n=n: n)
        assert_same_bits(make(sampler=sampler, spill=tmp_path / str(n)).fit(counts), expected)


@pytest.mark.parametrize("seed", range(3))
def test_random_corpora(seed, tmp_path):
    counts = random_counts(seed)
    rng = np.random.default_rng(seed)
    setting = {"n_components": int(rng.integers(1, 9)), "mh_steps": int(rng.integers(1, 3)), "random_state": seed}
    setting["sampler"] = SAMPLERS[seed % 3]
    lda = make(**setting, n_shards=int(rng.integers(1, 12)), spill=tmp_path).fit(counts)
    assert_same_bits(lda, make(**setting).fit(counts))


def fit_auto(method, *batches, **parameters):
    """Fit batch after batch; each has to go to disk."""
    lda = make(spill="auto", **parameters)
    for batch in batches:
        with pytest.warns(SpillWarning, match=r"bytes of tokens into files of .*scratch"):
            getattr(lda, method)(batch)
        assert lda.n_shards_ == 1
    return lda


@pytest.mark.covering
@pytest.mark.parametrize("setting", ["learned priors", "seeds", "tempered"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_batches_on_disk(setting, sampler, little_memory):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting] | {"sampler": sampler}
    lda = make(**parameters).partial_fit(batches[0]).partial_fit(batches[1])
    assert_same_bits(fit_auto("partial_fit", *batches, **parameters), lda)
    lda = make(**parameters, warm_start=True).fit(batches[0]).fit(batches[1])
    assert_same_bits(fit_auto("fit", *batches, **parameters, warm_start=True), lda)


FORMS = {
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "floats": lambda counts: counts.astype(float),
    "dask": lambda counts: da.from_array(counts, chunks=(7, 11)),
    "dask, sparse": lambda counts: da.from_array(counts, chunks=(7, -1)).map_blocks(sparse.csr_array),
    "delayed": lambda counts: [dask.delayed(sparse.csr_array)(counts[i : i + 13]) for i in range(0, 60, 13)],
}


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("init", ["uniform", "documents"])
def test_any_input_goes_to_disk(form, init, little_memory):
    assert_same_bits(fit_auto("fit", FORMS[form](X), init=init), make(init=init).fit(X))


@pytest.mark.parametrize("form", FORMS)
def test_what_fits_stays_in_memory(form, tmp_path):
    with dask.config.set({"temporary-directory": str(tmp_path / "none")}):
        lda = make(spill="auto", n_shards=2).fit(FORMS[form](X))
    assert_same_bits(lda, make().fit(X))
    assert list(tmp_path.iterdir()) == []


def test_auto_samples_in_the_same_way_whether_or_not_it_spills(little_memory):
    spilled, stayed = fit_auto("fit", X, sampler="auto"), make(sampler="auto").fit(X)
    assert spilled.sampler_ == stayed.sampler_ == "frozen"
    assert_same_bits(spilled, stayed)


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
    return spill.Sizes(**given | {"state": 6, "table": 0, "rows": 0} | changed)


@pytest.mark.parametrize("n_processes", [1, 4])
def test_slices_follow_from_memory(n_processes):
    assert sizes().of_a_token == 26  # twice a place of 4 bytes, a topic of 2 and its proposals, and 3 topics more
    found = []
    for room in (10**9, 10**7, 4 * 10**6, 2_200_000):
        n = spill.count_slices(sizes(), room, n_processes)
        largest = 1.25 * 1_000_000 / n / n_processes + 1100
        needed = 100 * 50 + 32 * 50 + n * (160 + spill.OF_A_PIECE * n * n_processes) + largest * 26
        assert needed <= room
        assert n == 1 or sizes().with_slices(n - 1, n_processes) > room
        found.append(n)
    assert found[0] == 1 and found == sorted(found) and found[-1] > 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"longest": 900_000}, r"longest document \(900000 tokens\)"),
        ({"n_topics": 10**7}, r"n_components=10000000 topics.*need .*GiB.*fewer topics"),
        ({"n_words": 10**6}, r"arrays over 1000000 words.*most frequent words.*memory-limit.*workers"),
        ({"table": 10**6}, r"GiB"),
    ],
)
def test_what_cannot_fit_is_refused_with_its_numbers(changed, message):
    with pytest.raises(MemoryError, match=message):
        spill.count_slices(sizes(**changed), 10**6)


def test_it_is_refused_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(spill, "memory_left", lambda: 10_000)
    for where in ("auto", tmp_path / "none"):
        lda = make(spill=where)
        with pytest.raises(MemoryError, match="n_components=4"):
            lda.fit(X)
        assert not hasattr(lda, "topic_word_counts_") and not (tmp_path / "none").exists()
