"""What the benchmarks share: corpora, timing, tables."""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import schmp_estimators


def corpus(name):
    """Return word counts.

    "docstrings" is the text of installed packages, "synthetic:TOKENS" are documents made up here;
    any other name is that of a file ``NAME.npz`` in $SCHMP_DATA.
    """
    if name.startswith("synthetic"):
        return synthetic(int(float(name.partition(":")[2] or 1e6)))
    if name == "docstrings":
        return docstrings()[0]
    return sparse.csr_array(sparse.load_npz(corpus_file(f"{name}.npz"))).astype(np.int32)


def corpus_file(name):
    """Return the path of a file in $SCHMP_DATA."""
    folder = os.environ.get("SCHMP_DATA")
    path = Path(folder or ".") / name
    if not path.exists():
        raise SystemExit(
            f"{path} is not there; set SCHMP_DATA to the folder of the corpora, or use docstrings "
            "or synthetic:1e6"
        )
    return path


def docstrings():
    """Return word counts of the docstrings of installed packages, and the package of each.

    Versions decide the text.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    from schmp_estimators.datasets import load_docstrings

    found = load_docstrings()
    counts = CountVectorizer(min_df=5, max_df=0.3, token_pattern=r"[A-Za-z]{3,}").fit_transform(
        found.data
    )
    return sparse.csr_array(counts).astype(np.int32), np.array(found.target_names)[found.target]


def synthetic(n_tokens, n_words=50_000, n_topics=200, length=170, seed=0):
    """Return documents drawn from a topic model whose words follow Zipf's law."""
    rng = np.random.default_rng(seed)
    n_docs = n_tokens // length
    weight = 1.0 / np.arange(1, n_words + 1)
    rank = np.argsort(rng.random((n_topics, n_words)) * np.linspace(0.2, 1, n_words), axis=1)
    doc, word = [], []
    for d in range(n_docs):
        topics = rng.choice(n_topics, 5)
        draws = rng.choice(n_words, length, p=weight / weight.sum())
        doc.append(np.full(length, d))
        word.append(rank[topics[rng.integers(0, 5, length)], draws])
    doc, word = np.concatenate(doc), np.concatenate(word)
    return sparse.csr_array((np.ones(len(doc), np.int32), (doc, word)), shape=(n_docs, n_words))


def split(X, share=0.1, seed=0):
    """Return documents to train on and documents to test on."""
    test = np.random.default_rng(seed).random(X.shape[0]) < share
    return X[~test], X[test]


def digest(lda):
    """Return a fingerprint of the fitted counts."""
    counts = lda.topic_word_counts_
    arrays = counts.indptr.astype(np.int64), counts.indices.astype(np.int64), counts.data
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]


def machine():
    """Return a line about the machine and the software."""
    cpu = next(
        (s.partition(":")[2].strip() for s in _cpuinfo() if s.startswith("model name")),
        platform.machine(),
    )
    packages = ("numpy", "numba", "dask", "scikit-learn")
    from importlib.metadata import version

    software = ", ".join(f"{package} {version(package)}" for package in packages)
    python = f"Python {platform.python_version()}"
    return (
        f"{cpu}, {os.cpu_count()} cores; {python}, {software}, "
        f"schmp_estimators {schmp_estimators.__version__}"
    )


def _cpuinfo():
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def resident():
    """Return the bytes of memory that this process has now."""
    return _memory("VmRSS")


def peak():
    """Return the largest number of bytes that this process has had since `forget_peak`."""
    return _memory("VmHWM")


def forget_peak():
    """Let `peak` begin anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


class SweepClock:
    """A callback that takes the CPU seconds of each sweep.

    Those of other callbacks and of the set-up are left out.
    """

    def __init__(self, at_end=None):
        self.cpu, self.wall, self._at_end = [], [], at_end

    def setup(self, estimator, context):
        """Start anew."""
        self.cpu, self.wall = [], []

    def teardown(self, estimator, context):
        """Do nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Start the clock of a sweep."""
        self._began = time.process_time(), time.perf_counter()

    def on_fit_task_end(self, estimator, context):
        """Stop the clock of a sweep.

        Tell `at_end` what has been used so far, and return what it says.
        """
        if context.task_name != "sweep":
            return None
        self.cpu.append(time.process_time() - self._began[0])
        self.wall.append(time.perf_counter() - self._began[1])
        return (
            self._at_end(context.task_id + 1, sum(self.cpu), estimator._as_if_fitted)
            if self._at_end
            else None
        )


def median(values):
    """Return the median."""
    return statistics.median(values)


def milliseconds(repeats, function, *data, **options):
    """Return the median of the CPU time of a call, but the first one."""
    function(*data, **options)
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        function(*data, **options)
        taken.append(time.process_time() - begun)
    return 1e3 * median(taken)


def table(title, header, rows):
    """Print a table in Markdown."""
    print(f"\n{title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print(
            "| "
            + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row)
            + " |"
        )
    print(flush=True)
