"""Tokens and rows of words on disk: the same bits as in memory, in however many slices of words."""

import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from textwrap import dedent

import dask
import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, planted
from lda_cases import random_counts
from scipy import sparse

from schmp_estimators import DistributedLDA
from schmp_estimators.core.store import Store
from schmp_estimators.exceptions import SpillWarning
from schmp_estimators.lda import spill
from schmp_estimators.lda.programs.spilled import SpilledLDA
from schmp_estimators.lda.programs.spilled_words import SlicedLDA
from schmp_estimators.lda.programs.warp import WarpLDA

X = planted(n_docs=60, length=30)[0]
EMPTY = np.vstack([np.zeros((3, 11), int), SMALL[:9], np.zeros((2, 11), int)])
LONG = np.insert(SMALL, 12, 40 * np.arange(11), axis=0)
#: A word that has more tokens than all others together, first, in the middle, and last.
HEAVY = [np.insert(SMALL, at, 60, axis=1) for at in (0, 5, 11)]


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 4, "random_state": 7, "sampler": "warp", "max_iter": 4, "evaluate_every": 2} | parameters
    )


def divided(n_shards, *, has_rows=False):
    return lambda sizes, n_docs: spill.Division(min(n_shards, n_docs), has_rows)


@pytest.fixture
def without_rows(monkeypatch, tmp_path):
    """So little memory that fits go to disk, in three shards, and rows have no place in it."""
    monkeypatch.setattr(spill, "memory_left", lambda: 50_000)
    monkeypatch.setattr(spill, "divide", divided(3))
    with dask.config.set({"temporary-directory": str(tmp_path / "scratch")}):
        yield


SETTINGS = {
    "default": {},
    "one proposal": {"mh_steps": 1},
    "uniform": {"init": "uniform"},
    "passages": {"init": "documents"},
    "sparse": {"init": "sparse"},
    "tempered": {"init": "tempered", "max_iter": 7},
    "one topic": {"n_components": 1},
    "more topics than words": {"n_components": 300},
    "topics of four bytes": {"n_components": 32_768, "max_iter": 2},
    "prior of each topic": {"doc_topic_prior": [0.1, 0.2, 0.4, 3.0]},
    "learned priors": {"doc_topic_prior": "learn", "max_iter": 13},
    "seeds": {"seed_words": {0: [1, 2], 3: [0]}},
    "threads": {"n_jobs": 2},
    "until it converges": {"tol": 0.05, "max_iter": 30, "evaluate_every": 1},
}


@pytest.mark.covering
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("n_shards", [1, 3, 7])
def test_slices_of_words_have_the_bits_of_memory(setting, n_shards, without_rows, tmp_path):
    for number, counts in enumerate((X, SMALL)):
        lda = make(**SETTINGS[setting], n_shards=n_shards, spill=tmp_path / str(number)).fit(counts)
        assert_same_bits(lda, make(**SETTINGS[setting]).fit(counts))
        assert lda.n_shards_ == n_shards
        np.testing.assert_array_equal(lda.topic_word_counts_.sum(axis=0), counts.sum(axis=0))


@pytest.mark.covering
@pytest.mark.parametrize(
    "counts",
    [EMPTY, SMALL[:1], LONG, *HEAVY, np.ones((5, 1), int), np.eye(9, dtype=int), np.full((40, 5), 9)],
    ids=lambda counts: str(counts.shape),
)
@pytest.mark.parametrize("n_shards", [1, 3, 100])
def test_strange_corpora(counts, n_shards, without_rows, tmp_path):
    lda = make(n_shards=n_shards, spill=tmp_path).fit(counts)
    assert_same_bits(lda, make().fit(counts))


@pytest.mark.parametrize("seed", range(6))
def test_random_corpora(seed, without_rows, tmp_path):
    counts = random_counts(seed)
    rng = np.random.default_rng(seed)
    setting = {"n_components": int(rng.integers(1, 9)), "mh_steps": int(rng.integers(1, 3)), "random_state": seed}
    lda = make(**setting, n_shards=int(rng.integers(1, 12)), spill=tmp_path).fit(counts)
    assert_same_bits(lda, make(**setting).fit(counts))


@pytest.mark.parametrize("setting", ["default", "learned priors", "seeds"])
def test_batches(setting, without_rows):
    batches, parameters = (X[:40], X[20:]), SETTINGS[setting]
    for method, warm in (("partial_fit", False), ("fit", True)):
        found, expected = (make(**parameters, warm_start=warm, spill=where) for where in ("auto", None))
        for batch in batches:
            with pytest.warns(SpillWarning):
                getattr(found, method)(batch)
            getattr(expected, method)(batch)
        assert_same_bits(found, expected)


class Stop:
    """A callback that raises an error after the second sweep."""

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep" and context.task_id == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("setting", ["default", "learned priors"])
@pytest.mark.parametrize("has_rows", [(False, False), (False, True), (True, False)])
def test_a_fit_goes_on_with_rows_or_without(has_rows, setting, tmp_path, monkeypatch):
    parameters = {"max_iter": 13} | SETTINGS[setting]
    for n_shards, had, end in ((3, has_rows[0], True), (2, has_rows[1], False)):
        monkeypatch.setattr(spill, "divide", divided(n_shards, has_rows=had))
        lda = make(**parameters, spill=tmp_path)
        if end:
            with pytest.raises(KeyboardInterrupt):
                lda.set_callbacks(Stop()).fit(X)
        else:
            assert_same_bits(lda.fit(X), make(**parameters).fit(X))


def test_which_program_runs_follows_from_memory(monkeypatch, tmp_path):
    ran = []
    for program in (SpilledLDA, SlicedLDA):
        schedule = program.schedule
        monkeypatch.setattr(
            program, "schedule", lambda self, *args, of=schedule: ran.append(type(self)) or of(self, *args)
        )
    kept, left = make(max_iter=1, n_components=100).fit(X), []
    for memory in range(40_000, 400_000, 4_000):
        monkeypatch.setattr(spill, "memory_left", lambda memory=memory: memory)
        try:
            lda = make(max_iter=1, n_components=100, spill=tmp_path / str(memory)).fit(X)
        except MemoryError:
            assert not ran
            continue
        left.append((ran[-1], lda.n_shards_))
        assert_same_bits(lda, kept)
    kinds = [kind for kind, _ in left]
    n_sliced = kinds.count(SlicedLDA)
    assert 0 < n_sliced < len(kinds) and kinds == [SlicedLDA] * n_sliced + [SpilledLDA] * (len(kinds) - n_sliced)
    assert left[0][1] > 1


def test_each_pass_reads_ahead_and_reads_all_once(without_rows, tmp_path, monkeypatch):
    read, seen = Store.read, []

    def note(self, name, at, *arrays):
        seen.append((threading.current_thread().name.startswith("schmp-read"), name, sum(one.nbytes for one in arrays)))
        read(self, name, at, *arrays)

    monkeypatch.setattr(Store, "read", note)
    make(n_shards=5, spill=tmp_path, max_iter=1, evaluate_every=0).fit(X)
    of_all = X.sum() * 3 * 2
    tokens = [(ahead, size) for ahead, name, size in seen if name == "tokens"]
    assert sum(size for _, size in tokens) == 3 * of_all  # both passes, and the harvest
    assert sum(size for ahead, size in tokens if ahead) > 0.7 * 2 * of_all


def test_proposals_are_drawn_again_only_where_a_fit_goes_on(without_rows, tmp_path, monkeypatch):
    restore, drawn = WarpLDA.restore, []

    def note(self, at, saved):
        drawn.append(at.sweep)
        return restore(self, at, saved)

    monkeypatch.setattr(WarpLDA, "restore", note)
    for max_iter in (3, 5):
        make(max_iter=max_iter, spill=tmp_path).fit(X)
    assert drawn == [-1] * 3 + [2] * 3


def test_counts_that_do_not_fit_are_mapped(without_rows, tmp_path, monkeypatch):
    expected = make().fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        for memory, is_mapped in ((50_000, False), (100, True)):
            monkeypatch.setattr(spill, "memory_left", lambda memory=memory: memory)
            for where in ("auto", tmp_path / f"{memory}"):
                lda = make(spill=where).fit(X)
                assert_same_bits(lda, expected)
                assert lda.topic_word_counts_.data.flags.writeable != is_mapped
                np.testing.assert_array_equal(lda.transform(X), expected.transform(X))
    assert sorted(path.name for path in (tmp_path / "100").iterdir()) == [
        "lock.spill", "manifest.spill", "topics-even.spill",
    ]  # fmt: skip


class Look(Stop):
    """A callback that keeps the counts after each sweep, and what they are then."""

    def setup(self, estimator, context):
        self.seen = []

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep":
            counts = estimator._as_if_fitted().topic_word_counts_
            self.seen.append((counts, counts.toarray()))


def test_counts_of_earlier_sweeps_stay_as_they_were(without_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "memory_left", lambda: 100)
    look = Look()
    make(spill=tmp_path).set_callbacks(look).fit(X)
    assert len(look.seen) == 4
    assert all((counts.toarray() == then).all() for counts, then in look.seen)
    assert (look.seen[0][1] != look.seen[3][1]).any()


KILLED = """
    import os, signal, sys
    from corpora import planted
    from schmp_estimators import DistributedLDA
    from schmp_estimators.core import store
    from schmp_estimators.lda import spill

    write, calls = store.write_array, []

    def write_some(file, array):
        calls.append(1)
        if len(calls) == int(sys.argv[2]):
            write(file, array[: len(array) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(file, array)

    store.write_array = write_some
    spill.divide = lambda sizes, n_docs: spill.Division(3, False)
    X = planted(n_docs=60, length=30)[0]
    DistributedLDA(4, random_state=7, sampler="warp", max_iter=4, spill=sys.argv[1]).fit(X)
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 24, 38, 45, 50, 60, 70])
def test_killed_in_the_middle_of_a_write(at, tmp_path, monkeypatch):
    # 21 arrays of the shards, 12 of first topics and proposals; in each sweep 3 slices, and 12 of the shards.
    command = [sys.executable, "-c", dedent(KILLED), str(tmp_path / "folder"), str(at)]
    done = subprocess.run(command, check=False, env=paths())
    assert done.returncode == -signal.SIGKILL
    monkeypatch.setattr(spill, "divide", divided(4))
    assert_same_bits(make(evaluate_every=10, spill=tmp_path / "folder").fit(X), make(evaluate_every=10).fit(X))


def paths():
    """Return the environment of a process that finds all modules, the folder of the tests included."""
    found = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": found}


# Memory.


def sizes(**changed):
    given = {"n_tokens": 1_000_000, "longest": 100, "n_topics": 10, "mh_steps": 2, "fixed": 500_000} | changed
    return spill.Sizes(**{"rows": 200_000, "n_words": 1000, "heaviest": 300} | given)


@pytest.mark.parametrize("memory", [10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**8])
def test_what_is_planned_fits(memory, monkeypatch):
    monkeypatch.setattr(spill, "memory_left", lambda: 2 * memory)
    given = sizes()
    if memory == 10**5:
        with pytest.raises(MemoryError):
            spill.divide(given, 10**6)
        return
    n_shards, has_rows = spill.divide(given, 10**6)
    largest = -(-given.n_tokens // n_shards) + (given.longest if has_rows else given.longest + given.heaviest)
    needed = given.fixed - (0 if has_rows else 2 * given.rows) + largest * given.of_a_token + 160 * n_shards
    assert needed <= memory and has_rows == (memory >= 10**6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heaviest": 90_000}, r"word with most \(90000 tokens\) need 0\.00\d+ GiB.*: 0\.00\d+ GiB, 50% of what is"),
        ({"longest": 90_000}, r"longest document \(90000 tokens\)"),
        ({"n_topics": 10**6, "fixed": 10**8}, r"n_components=1000000 topics.*need 0\.\d+ GiB"),
    ],
)
def test_what_cannot_fit_is_refused_with_its_numbers(changed, message, monkeypatch):
    monkeypatch.setattr(spill, "memory_left", lambda: 10**6)
    with pytest.raises(MemoryError, match=message):
        spill.divide(sizes(**changed), 100)


LIMITED = """
    import resource, sys, warnings
    from pathlib import Path
    import numpy as np
    from scipy import sparse
    from schmp_estimators import DistributedLDA
    from schmp_estimators.lda import spill

    warnings.simplefilter("ignore")
    def no_rows(division):
        assert not division.has_rows and division.n_shards > 5
        return division

    folder, more = sys.argv[1], int(sys.argv[2])
    parameters = {"max_iter": 2, "sampler": "warp", "random_state": 0, "init": "uniform"}
    lda = DistributedLDA(40_000, spill="auto" if more else None, **parameters)
    parts = [np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
    X = sparse.csr_array(tuple(parts), shape=(40_000, 3000), copy=False)
    if more:
        left, divide = spill.memory_left, spill.divide  # a small fit in the same way, which loads the kernels
        spill.memory_left, spill.divide = lambda: 10**5, lambda sizes, n_docs: spill.Division(2, False)
        lda.fit(np.random.default_rng(0).poisson(0.2, (40, 60)))
        spill.memory_left, spill.divide = left, divide
        taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (taken + more, resource.RLIM_INFINITY))
        spill.divide = lambda *given: no_rows(divide(*given))
    counts = lda.fit(X).topic_word_counts_
    assert lda.n_shards_ > 1 or not more
    print([hash(array.tobytes()) for array in (counts.data, counts.indices, counts.indptr)], counts.sum())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits that Linux has")
def test_under_a_real_limit_of_memory(tmp_path):
    rng, (n_docs, length, n_words) = np.random.default_rng(0), (40_000, 250, 3000)
    weights = 1 / np.arange(10, 10 + n_words)
    columns = rng.choice(n_words, size=(n_docs, length), p=weights / weights.sum()).astype(np.int32).reshape(-1)
    ptr = np.arange(0, n_docs * length + 1, length, dtype=np.int32)
    X = sparse.csr_array((np.ones(n_docs * length, np.int32), columns, ptr), shape=(n_docs, n_words))
    X.sum_duplicates()
    for name in ("data", "indices", "indptr"):
        np.save(tmp_path / f"{name}.npy", getattr(X, name))
    found = []
    for more in (0, 140_000_000):  # of which topics and proposals alone would take 120, and rows of all words 80
        command = [sys.executable, "-c", dedent(LIMITED), str(tmp_path), str(more)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=paths())
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1] and found[0].endswith(" 10000000\n")
