"""What the benchmarks share: corpora, timing, tables."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy import sparse

import schmp_estimators

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.append(str(DOCS))
import figures  # noqa: E402

#: What runs before this command has begun.
LOAD = os.getloadavg()[0]


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
    software = versions("numpy", "numba", "dask", "scikit-learn")
    python = f"Python {platform.python_version()}"
    return (
        f"{cpu}, {os.cpu_count()} cores; {python}, {software}, "
        f"schmp_estimators {schmp_estimators.__version__}"
    )


def versions(*packages):
    """Return packages with their versions."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def machine_name():
    """Return what the pages call this machine, or its processor."""
    told = dict(line.split("\t: ", 1) for line in _cpuinfo() if "\t: " in line)
    told = {name.strip(): value for name, value in told.items()}
    flags = told.get("flags", "").split()
    if "amx_tile" in flags:
        return "AMX"
    if (told.get("vendor_id"), told.get("cpu family")) == ("AuthenticAMD", "25"):
        return "Zen 4" if "avx512f" in flags else "Zen 3"
    return told.get("model name", platform.machine())


def package_version():
    """Return the version of the package, and the last commit that changed it."""
    package = Path(schmp_estimators.__file__).parent

    def git(*words):
        command = ["git", *words, "--", "."]
        return subprocess.check_output(command, cwd=package, text=True).strip()

    changed = ", changed" if git("status", "--porcelain") else ""
    return f"{schmp_estimators.__version__} at {git('log', '-1', '--format=%h')}{changed}"


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


def parse(parser, *subparsers):
    """Return the arguments of this command, among which may be ``--record``."""
    where = "docs/measurements/figures.toml"
    for one in subparsers or [parser]:
        one.add_argument("--record", action="store_true", help=f"write the rows into {where}")
    options = parser.parse_args()
    if options.record and not any(map(is_shown, figures.read())):
        parser.error(f"no table of {where} shows this command, so that nothing would be recorded")
    return options


def shown_commands(name, path=figures.PATH):
    """Return the commands that a table of the measurements shows, each as a list of words."""
    return figures.commands(figures.read(path)[name])


def is_shown(name, path=figures.PATH):
    """Return whether this is a command that a table shows, apart from folders."""
    asked = figures.plain([word for word in sys.argv if word != "--record"])
    return asked in map(figures.plain, shown_commands(name, path))


def record(name, rows, key=1, peers=(), *, is_chosen=False, path=figures.PATH):
    """Write rows into a table of the measurements, if this command has ``--record``.

    Nothing is written if the table does not show this command.  The first `key` cells name a row,
    and `peers` are the packages beside which it was measured.  Of a table whose rows are chosen by
    hand no others are written.
    """
    if "--record" not in sys.argv or not is_shown(name, path):
        return
    told = {
        "machine": machine_name(),
        "version": package_version(),
        "date": datetime.date.today().isoformat(),
        "peers": versions(*peers),
        "state": f"load of {LOAD:.1f} before",
    }
    tables = figures.read(path)
    if tables[name]["machine"] == figures.ANY:
        told |= {"machine": figures.ANY, "state": tables[name].get("state", "")}
    figures.renew(tables[name], rows, key, told, is_chosen)
    figures.write(tables, path)
