"""Documents on disk: the same bits as in memory, into however many shards they are cut, and wherever a fit goes on."""

import threading
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import make_shards, random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill
from schmp_estimators.lda.data.spilled import SpilledShard
from schmp_estimators.lda.kernels.warp_documents import sample_documents
from schmp_estimators.lda.programs.warp import WarpLDA

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])
#: A document that is longer than all others together, first, in the middle, and last.
LONG = [np.insert(SMALL, at, 40 * np.arange(11), axis=0) for at in (0, 12, 23)]


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """So little that fits go to disk, in several shards."""
    monkeypatch.setattr(spill, "memory_left", lambda: 50_000)
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
    "another random state": {"random_state": 123},
    "threads": {"n_jobs": 2},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


@pytest.mark.covering
@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=pytest.mark.slow) if name == "three proposals" else name for name in SETTINGS]
)
@pytest.mark.parametrize("n_shards", [1, 2, 5])
def test_shards_on_disk_have_the_bits_of_memory(setting, n_shards, tmp_path):
    for number, counts in enumerate((X, SMALL)):
        lda = make(**SETTINGS[setting], n_shards=n_shards, spill=tmp_path / str(number)).fit(counts)
        assert_same_bits(lda, make(**SETTINGS[setting]).fit(counts))
        assert lda.n_shards_ == n_shards


@pytest.mark.covering
@pytest.mark.parametrize(
    "counts",
    [EMPTY, SMALL[:1], *LONG, np.ones((5, 1), int), np.eye(9, dtype=int)],
    ids=lambda counts: str(counts.shape),
)
@pytest.mark.parametrize("n_shards", [1, 3, 100])
def test_strange_corpora(counts, n_shards, tmp_path):
    lda = make(n_shards=n_shards, spill=tmp_path).fit(counts)
    assert_same_bits(lda, make().fit(counts))
    assert lda.n_shards_ == min(n_shards, len(counts))


@pytest.mark.parametrize("seed", range(8))
def test_random_corpora(seed, tmp_path):
    counts = random_counts(seed)
    rng = np.random.default_rng(seed)
    setting = {"n_components": int(rng.integers(1, 9)), "mh_steps": int(rng.integers(1, 3)), "random_state": seed}
    lda = make(**setting, n_shards=int(rng.integers(1, 12)), spill=tmp_path).fit(counts)
    assert_same_bits(lda, make(**setting).fit(counts))


@pytest.mark.parametrize("n_components", [32_767, pytest.param(32_768, marks=pytest.mark.slow)])
def test_topics_of_two_and_of_four_bytes(n_components, tmp_path):
    lda = make(n_components=n_components, max_iter=2, n_shards=3, spill=tmp_path).fit(SMALL)
    assert_same_bits(lda, make(n_components=n_components, max_iter=2).fit(SMALL))


def test_head_words_too(tmp_path):
    counts = np.random.default_rng(1).poisson(9, (40, 5))  # each word has many more tokens than twice the topics
    assert_same_bits(make(n_shards=4, spill=tmp_path).fit(counts), make().fit(counts))


def fit_auto(method, *batches, **parameters):
    """Fit batch after batch; each has to go to disk."""
    lda = make(spill="auto", **parameters)
    for batch in batches:
        with pytest.warns(SpillWarning, match=r"bytes of tokens into .*schmp-spill"):
            getattr(lda, method)(batch)
        assert lda.n_shards_ > 1
    return lda


@pytest.mark.parametrize("setting", ["default", "learned priors", "seeds", "tempered"])
def test_batches_on_disk(setting, little_memory):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting]
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


def test_auto_samples_by_warp_whether_or_not_it_spills(little_memory, monkeypatch):
    spilled = fit_auto("fit", X, sampler="auto")
    monkeypatch.setattr(spill, "memory_left", lambda: 1 << 40)
    stayed = make(sampler="auto", spill="auto").fit(X)
    assert (spilled.sampler_, stayed.sampler_, stayed.n_shards_) == ("warp", "warp", 1)
    assert_same_bits(spilled, stayed)


def test_a_document_pass_that_keeps_topics_is_the_same():
    [shard], _ = make_shards(random_counts(3, n_docs=30))
    rng, n = np.random.default_rng(0), len(shard.place)
    before = rng.integers(0, 5, (n, 3)).astype(np.int16)
    inverse, key = freeze(rng.random(5).astype(np.float32)), stream_key(1, 2)
    results = []
    for saved in (np.empty(0, np.int16), np.empty(n, np.int16)):
        tokens, totals = before.copy(), np.zeros(5, np.int64)
        given = 0, len(shard.doc_ptr) - 1, shard, tokens.reshape(-1), inverse, np.float32(0.3), key, totals, (0, 0)
        moved = sample_documents(*given, saved)
        results.append((moved, tokens, totals, saved))
    (moved, tokens, totals, _), (other, same, sums, saved) = results
    assert moved == other > 0
    np.testing.assert_array_equal(same, tokens)
    np.testing.assert_array_equal(saved, tokens[shard.place, 0])
    np.testing.assert_array_equal(sums, totals)


@pytest.mark.parametrize("n_shards", [1, 2, 4])
def test_shards_are_read_ahead(n_shards, tmp_path, monkeypatch):
    read, readers = SpilledShard._read, []

    def note(self, reading):
        readers.append((threading.current_thread().name.startswith("schmp-read"), *reading[:2]))
        return read(self, reading)

    monkeypatch.setattr(SpilledShard, "_read", note)
    make(n_shards=n_shards, spill=tmp_path, max_iter=3, evaluate_every=1).fit(X)
    numbers = list(range(n_shards))
    start = [(False, n, None) for n in numbers] + [(False, n, 0) for n in numbers]  # first topics, and first rows
    visits = [(True, n, look) for look in (0, 1, 1, 0, 0, 1) for n in numbers]  # each sweep, and a look at its end
    if n_shards == 1:  # of which nothing can be read ahead
        assert readers == [(False, 0, None), (False, 0, 0), *[(False, n, look) for _, n, look in visits]]
    else:
        assert readers[: 2 * n_shards] == start
        assert readers[2 * n_shards] == (False, 0, 0)
        assert readers[2 * n_shards + 1 :] == [*visits[1:], (True, 0, 1)]


@pytest.mark.parametrize("where", ["auto", "folder"])
def test_proposals_are_drawn_again_only_where_a_fit_goes_on(where, little_memory, tmp_path, monkeypatch):
    restore, drawn = WarpLDA.restore, []

    def note(self, at, saved):
        drawn.append(at.sweep)
        return restore(self, at, saved)

    monkeypatch.setattr(WarpLDA, "restore", note)
    for max_iter in (3, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpillWarning)
            make(max_iter=max_iter, n_shards=3, spill="auto" if where == "auto" else tmp_path / "here").fit(X)
    assert drawn == ([-1] * 6 if where == "auto" else [-1] * 3 + [2] * 3)


# Memory.


def sizes(**changed):
    given = {"n_tokens": 1_000_000, "longest": 100, "n_topics": 10, "mh_steps": 2, "fixed": 1000} | changed
    return spill.Sizes(**given)


def test_shards_follow_from_memory(monkeypatch):
    of_a_token = sizes().of_a_token
    assert of_a_token == 26  # twice a place of 4 bytes, a topic of 2 and its proposals, and 3 topics more
    found = []
    for left in (10**9, 10**7, 10**6, 3 * 10**5):
        monkeypatch.setattr(spill, "memory_left", lambda left=left: left)
        found.append(spill.divide(sizes(), 10**6).n_shards)
        largest = -(-1_000_000 // found[-1]) + 100
        assert 1000 + largest * of_a_token + 16 * 10 * found[-1] <= 0.5 * left
    assert found[0] == 1 and found == sorted(set(found))


def test_what_cannot_fit_is_refused_with_its_numbers_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(spill, "memory_left", lambda: 10_000)
    for n_shards in (None, 60):
        lda = make(spill=tmp_path / "none", n_shards=n_shards)
        with pytest.raises(
            MemoryError, match=r"n_components=4.*longest document.*GiB.*fewer topics.*most frequent words.*memory-limit"
        ):
            lda.fit(X)
        assert not hasattr(lda, "topic_word_counts_") and not (tmp_path / "none").exists()
    with pytest.raises(MemoryError, match=r"longest document \(90000 tokens\)"):
        monkeypatch.setattr(spill, "memory_left", lambda: 10**6)
        spill.divide(sizes(longest=90_000), 100)


def test_rows_are_counted_as_they_are():
    n_topics, totals = 3, np.array([0, 5, 6, 100])

    class Corpus:
        word_totals, lengths = totals, np.array([11, 100])

    more_lists, more_heads = (spill.Sizes.of(Corpus, k, 2).fixed for k in (n_topics, 2))
    of_lists, of_heads = 2 * (4 * 3 * 2 + 2 * 5 + 16 * 4), 2 * (4 * 2 * 3 + 16 * 4)
    assert more_lists - more_heads == of_lists - of_heads + 100
