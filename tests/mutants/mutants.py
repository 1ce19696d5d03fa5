"""Break the package at one place at a time, and see whether a test notices.

    python tests/mutants/mutants.py --check                  do all mutants still fit the source?
    nice python tests/mutants/mutants.py --seconds 1800 --jobs 2   run what the log does not know
    nice python tests/mutants/mutants.py --whole             survivors meet all fast tests, once
    python tests/mutants/mutants.py --report                 what the log says
    python tests/mutants/mutants.py --tidy                   forget those that are in no table

The mutants stand in ``tests/mutants/*.toml``, one file for each part of the package, which also
names the tests of that part.  Each is tried in a copy of the tree: `mutant_guard` sees to it that
the tests import that copy, and machine code of everything that was compiled from the changed module
is set aside, since numba looks at nothing but the file of the function itself.  Killed is a mutant
by a failing test only: neither by an error while tests are collected or prepared, nor by the time
limit.  Before the mutants of a part its tests must pass on the unchanged copy, and the mutants
marked as controls must be killed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

TABLES = Path(__file__).resolve().parent
ROOT = TABLES.parent.parent
PACKAGE = "schmp_estimators"
#: By this module kernels call the functions of penalties and losses.
_CONTRACT = Path(PACKAGE, "linear/penalties/base.py")
#: What the tests need of the tree.
_COPIED = (
    "pyproject.toml",
    "setup.cfg",
    "README.md",
    "CHANGELOG.md",
    "docs",
    "examples",
    "benchmarks",
    "tests",
    PACKAGE,
)
_PYTEST = (
    "-x",
    "-q",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "mutant_guard",
    "-o",
    "addopts=",
)


@dataclass(frozen=True)
class Mutant:
    """A change of the package, and the tests that should notice it."""

    part: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    #: Whether this is so obvious a breakage that its survival would show that nothing is tested.
    control: bool = False
    #: Why no test can tell it from the original; empty if one can.
    equivalent: str = ""
    #: Whether slow tests are run, too: what a whole table says.
    slow: bool = False

    @property
    def digest(self) -> str:
        """Changes when the mutant or its tests do."""
        fields = {name: value for name, value in asdict(self).items() if name != "slow"}
        return hashlib.sha256(repr(fields).encode()).hexdigest()[:12]

    def text(self, root: Path) -> tuple[str, str]:
        """Return the text of the file before and after.

        Raise ValueError if it does not fit any more.
        """
        path = root / PACKAGE / self.file
        if not path.is_file():
            raise ValueError(f"stale: {self.part}: {self.name}: no file {PACKAGE}/{self.file}")
        before = path.read_text()
        if before.count(self.old) != 1:
            raise ValueError(
                f"stale: {self.part}: {self.name}: the old text is {before.count(self.old)} times "
                "there"
            )
        return before, before.replace(self.old, self.new)


def is_there(test: str) -> bool:
    """Return whether a test, or a file or folder of tests, still has its name."""
    file, *names = test.partition("[")[0].split("::")
    return (ROOT / file).exists() and all(name in (ROOT / file).read_text() for name in names)


def read_tables(only: list[str] | None = None, controls: bool = True) -> list[Mutant]:
    """Return the mutants whose part or name holds one of the words `only`.

    Each part is led by its controls.
    """
    mutants = []
    for path in sorted(TABLES.glob("*.toml")):
        table = tomllib.loads(path.read_text())
        tests, part, slow = tuple(table["tests"]), path.stem, table.get("slow", False)
        rows = [
            Mutant(part, **{"slow": slow, **row, "tests": tuple(row.get("tests", tests))})
            for row in table["mutant"]
        ]
        every = tuple(dict.fromkeys(test for row in rows for test in row.tests))
        rows = [
            row for row in rows if not only or any(word in f"{part}: {row.name}" for word in only)
        ]
        if rows:
            unchanged = (
                [Mutant(part, "no change", "", "", "", every, slow=slow)] if controls else []
            )
            mutants += [*unchanged, *sorted(rows, key=lambda row: not row.control)]
    names = Counter((mutant.part, mutant.name) for mutant in mutants)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"names must be unique: {twice}")
    return mutants


def copy_tree(into: Path) -> Path:
    """Copy the tree with its machine code, which stays valid as long as modification times do."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns(".asv"))
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, into / name)
    return into


def dependents(tree: Path, file: str) -> set[Path]:
    """Return the module `file` of the package and all modules, tests too, that import it.

    They import it in however many steps.

    Kernels that are given a penalty or a loss call what its module has, and import no more than
    `_CONTRACT`.
    """
    modules = {
        path.relative_to(tree): path
        for folder in (PACKAGE, "tests")
        for path in (tree / folder).rglob("*.py")
    }
    imports = {name: set(_imported(path)) for name, path in modules.items()}
    changed = Path(PACKAGE, file)
    found, new = (
        set(),
        {changed, _CONTRACT} if changed.with_name("base.py") in modules else {changed},
    )
    while new:
        found |= new
        dotted = {str(name.with_suffix("")).replace("/", ".") for name in new}
        new = {name for name, wanted in imports.items() if wanted & dotted} - found
    return {tree / name for name in found}


def _imported(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, `from package import module` among them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _machine_code(modules: set[Path]) -> list[Path]:
    """Return the files in which numba keeps what it has compiled from the modules."""
    return [
        path
        for module in modules
        for kind in ("nbi", "nbc")
        for path in (module.parent / "__pycache__").glob(f"{module.stem}.*.{kind}")
    ]


@contextmanager
def applied(mutant: Mutant, tree: Path) -> Iterator[list[str]]:
    """Change the copy.

    In the end the list that is given holds the names of what has been compiled anew.
    """
    compiled: list[str] = []
    if not mutant.file:
        yield compiled
        return
    path = tree / PACKAGE / mutant.file
    before, after = mutant.text(tree)
    stamp, modules = path.stat(), dependents(tree, mutant.file)
    with tempfile.TemporaryDirectory(dir=tree.parent) as aside:
        kept = _machine_code(modules)
        for number, file in enumerate(kept):
            shutil.move(file, Path(aside, str(number)))
        path.write_text(after)
        try:
            yield compiled
        finally:
            fresh = _machine_code(modules)
            compiled += sorted({file.name.split("-")[0] for file in fresh})
            for file in fresh:
                file.unlink()
            for number, file in enumerate(kept):
                shutil.move(Path(aside, str(number)), file)
            path.write_text(before)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def run_tests(
    tree: Path, tests: tuple[str, ...], limit: float, processes: int = 0, slow: bool = False
) -> tuple[str, dict]:
    """Run tests in the copy, and return the result, and what the guard wrote down.

    The result is "passed", "failed", "timeout" or "error".
    """
    report = tree / "report.json"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree), str(TABLES)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MUTANT_TREE": str(tree),
        "MUTANT_REPORT": str(report),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    lane = "slow or not slow" if slow else "not slow"
    command = [sys.executable, "-m", "pytest", *_PYTEST, "-m", lane, "-n", str(processes), *tests]
    with open(tree / "output.txt", "w+") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return "timeout", {}
        finally:  # with the workers of its clusters, if it has left any behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = json.loads(report.read_text()) if report.exists() else {}
        if found.get("failed") and not found.get("errors"):
            return "failed", found
        if process.returncode == 0 and found.get("passed"):
            return "passed", found
        output.seek(0)
        found["output"] = output.read()[-2000:]
    return "error", found


def try_mutant(mutant: Mutant, tree: Path, limit: float, whole: bool) -> dict:
    """Run the tests on a mutant, and return its record."""
    tests, processes = (("tests",), 2) if whole else (mutant.tests, 0)
    began = time.perf_counter()
    with applied(mutant, tree) as compiled:
        outcome, found = run_tests(tree, tests, limit, processes, mutant.slow)
    record = {"part": mutant.part, "name": mutant.name, "digest": mutant.digest, "outcome": outcome}
    if outcome == "passed" and "/kernels/" in mutant.file and not compiled:
        record["outcome"] = "error"
        found["output"] = "no test has compiled anything of the changed module"
    record |= {
        "by": (found.get("failed") or [None])[0],
        "passed": found.get("passed", 0),
        "whole": whole,
    }
    record |= {"compiled": compiled, "seconds": round(time.perf_counter() - began, 1)}
    if record["outcome"] == "error":
        record["why"] = found.get("errors") or found.get("output", "")
    return record


def verdict(mutant: Mutant, record: dict | None) -> str:
    """Return what a record says of a mutant."""
    if record is None:
        return "not tried"
    outcome = record["outcome"]
    if not mutant.file:
        return "control passed" if outcome == "passed" else f"CONTROL {outcome}"
    if mutant.control:
        return "control killed" if outcome == "failed" else f"CONTROL {outcome}"
    if mutant.equivalent:
        return "equivalent" if outcome == "passed" else f"NOT EQUIVALENT: {outcome}"
    return {"failed": "killed", "passed": "SURVIVED"}.get(outcome, outcome)


_GOOD = {"killed", "equivalent", "control passed", "control killed"}
_FINE = _GOOD | {"not tried"}


def read_log(path: Path) -> dict[str, dict]:
    """Return the last record of each mutant, by digest."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["digest"]: record for record in map(json.loads, lines)}


def tidy(path: Path) -> None:
    """Keep one line in the log for each mutant of the tables that has been tried."""
    log = read_log(path)
    kept = [log[mutant.digest] for mutant in read_tables() if mutant.digest in log]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in kept))


def report(mutants: list[Mutant], log: dict[str, dict]) -> bool:
    """Print what is not as it should be, and the numbers.

    Return whether all is well with those that were tried.
    """
    verdicts = [(mutant, verdict(mutant, log.get(mutant.digest))) for mutant in mutants]
    for mutant, found in verdicts:
        if found not in _FINE:
            print(f"{found:16s} {mutant.part}: {mutant.name}")
    for part in dict.fromkeys(mutant.part for mutant in mutants):
        counts = Counter(found for mutant, found in verdicts if mutant.part == part)
        spent = sum(
            log[mutant.digest]["seconds"]
            for mutant in mutants
            if mutant.part == part and mutant.digest in log
        )
        print(
            f"{part:12s} {spent:7.0f} s  "
            + ", ".join(f"{count} {found}" for found, count in sorted(counts.items()))
        )
    counts = Counter(found for mutant, found in verdicts if mutant.file and not mutant.control)
    print(
        f"{counts.total()} mutants: "
        + ", ".join(f"{count} {found}" for found, count in sorted(counts.items()))
    )
    return all(found in _FINE for _, found in verdicts)


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only look whether every mutant fits the source, and its tests are there",
    )
    parser.add_argument("--report", action="store_true", help="only say what the log says")
    parser.add_argument(
        "--tidy", action="store_true", help="drop from the log what is not in the tables"
    )
    parser.add_argument("--whole", action="store_true", help="run survivors against all fast tests")
    parser.add_argument("--only", nargs="+", help="words, one of which must be in 'part: name'")
    parser.add_argument(
        "--hasty",
        action="store_true",
        help="do not run the tests of a part without any change first",
    )
    parser.add_argument(
        "--log",
        type=Path,
        default=TABLES / "log.jsonl",
        help="tried mutants; those in it are skipped",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no mutant after so many seconds"
    )
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds for the tests of one mutant"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="mutants at a time, each in a copy of its own"
    )
    options = parser.parse_args()
    mutants, log = read_tables(options.only, not options.hasty), read_log(options.log)
    stale = False
    for mutant in mutants:
        if gone := [test for test in mutant.tests if not is_there(test)]:
            print(f"stale: {mutant.part}: {mutant.name}: no tests {gone}")
            stale = True
        try:
            if mutant.file:
                ast.parse(mutant.text(ROOT)[1])
        except (ValueError, SyntaxError) as error:
            print(
                error if isinstance(error, ValueError) else f"{mutant.part}: {mutant.name}: {error}"
            )
            stale = True
    if options.check or stale:
        return int(stale)
    if options.tidy:
        tidy(options.log)
    elif not options.report:
        run(mutants, log, options)
    return int(not report(mutants, log))


def run(mutants: list[Mutant], log: dict[str, dict], options: argparse.Namespace) -> None:
    """Try the mutants that are not in the log yet, or with `--whole` the survivors."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        found = log.get(mutant.digest)
        if options.whole and found is not None:
            again = verdict(mutant, found) == "SURVIVED" and not found["whole"]
        else:
            again = found is None and not options.whole
        if again:
            waiting.put(mutant)
    lock, end, hopeless = threading.Lock(), [time.monotonic() + options.seconds], set()

    def work(tree: Path) -> None:
        with suppress(queue.Empty):
            while time.monotonic() < end[0]:
                mutant = waiting.get_nowait()
                if mutant.part in hopeless:
                    continue
                record = try_mutant(
                    mutant, tree, options.limit * (6 if options.whole else 1), options.whole
                )
                with lock:
                    log[mutant.digest] = record
                    with open(options.log, "a") as file:
                        file.write(json.dumps(record) + "\n")
                    found = verdict(mutant, record)
                    if not mutant.file and found not in _GOOD:
                        hopeless.add(mutant.part)
                    print(
                        f"{found:16s} {record['seconds']:6.1f} s  {mutant.part}: {mutant.name}  "
                        f"{record['by'] or ''}"
                    )
                    print(f"    {record['why']}\n" if "why" in record else "", end="", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        threads = []
        for number in range(options.jobs):
            tree = Path(folder, str(number), "tree")
            tree.mkdir(parents=True)
            threads.append(threading.Thread(target=work, args=(copy_tree(tree),)))
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except (
            KeyboardInterrupt
        ):  # let those under way come to their end: they undo what they have done to their copy
            end[0] = 0.0
            for thread in threads:
                thread.join()
            raise


if __name__ == "__main__":
    sys.exit(main())
