"""Random inputs, each judged: the very bits, a right result, a clear error; or wrong, a crash, a hang.

    python tests/hostile/fuzz.py 1000 --seconds 1800    # inputs 0 to 999, as many as the time allows
    python tests/hostile/fuzz.py 1 --first 417 --verbose    # one of them again

Inputs are tried in child processes, so that a crash or a hang is seen and named, and the next input is tried in a fresh
one.  Everything follows from the seed: `one(417)` makes input 417 again.  The exit code is 1 if any outcome is bad.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import queue
import re
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
GOOD, BAD = ("same bits", "right", "clear error"), ("wrong", "crash", "hang")
#: Bytes of address space of a child: what asks for more gets a MemoryError, and does not take the machine down.
ADDRESS_SPACE = 12 << 30
#: Seconds that a new child may take, on a busy machine, to import everything and to make its first input.
START = 120.0
#: What a clear error names, if not a parameter of the estimator: an input, or in scikit-learn's words what is wrong.
CLEAR = re.compile(
    r"\b(X|y|pairs|users?|exclude|ratings?|chunks? of|Input|sample_weight|classes)\b|Expected 2D|Found (array|input)|"
    r"[Cc]omplex|dtype|convert|sample\(s\)|feature\(s\)|features|infinity|GiB"
)


class Input(NamedTuple):
    """What is tried with an estimator: `run` returns "same bits" or "right", or raises."""

    label: str
    expects: str
    run: Callable[[], str]
    estimator: Any


class Outcome(NamedTuple):
    seed: int
    label: str
    kind: str
    detail: str


# -- one input -----------------------------------------------------------------------------------------------------


def make(seed: int) -> Input:
    """Return the input of a number: kinds follow each other, everything else is drawn."""
    import numpy as np
    from fuzz_models import FAMILIES

    kinds = [in_another_form, with_extremes, in_another_form, spoiled, spoiled_in_use, misfit, misfit_in_use]
    family, kind = FAMILIES[seed % 4], kinds[seed // 4 % len(kinds)]
    made = kind(family, np.random.default_rng(seed))
    how = getattr(made.estimator, "sampler", getattr(made.estimator, "solver", getattr(made.estimator, "schedule", "")))
    return made._replace(label=f"{family.name} {how} {kind.__name__}: {made.label}")


def in_another_form(family: Any, rng: Any) -> Input:
    import numpy as np
    from fuzz_forms import another_form, responses
    from fuzz_models import canonical, require, value_of
    from sklearn.base import clone

    X, y = family.data(rng)
    estimator = family.estimator(rng)
    form = another_form(X, family, rng)
    other = None if y is None else responses(y, rng)

    def run() -> str:
        expected = family.fit(clone(estimator), canonical(family, X), y)
        found = family.fit(estimator, form.X, other)
        family.obey(found, X, y)
        said = value_of(family.use(found, form.X))
        if not family.same_bits:
            np.testing.assert_allclose(said, family.use(found, canonical(family, X)), rtol=1e-4, atol=1e-4)
            return "right"
        require(np.array_equal(family.state(found), family.state(expected)), "another form gives the same bits")
        np.testing.assert_allclose(said, family.use(expected, canonical(family, X)), rtol=1e-9, atol=1e-9)
        return "same bits"

    return Input(form.label, "result" if form.legal else "either", run, estimator)


def with_extremes(family: Any, rng: Any) -> Input:
    from fuzz_models import canonical, draw

    X, y = family.data(rng)
    X = family.extreme_data(X, rng)
    estimator = family.extreme(rng)
    y = None if y is None else family.extreme_responses(y[: len(X)], rng)
    given = X.astype(float) if family.name != "mf" and draw(rng, True, False) else canonical(family, X)
    penalty = {name: 0.3 for name in ("alpha", "C") if hasattr(estimator, name)}

    def run() -> str:
        if getattr(estimator, "warm_start", False):  # what was there before must not show
            asked = estimator.get_params()
            family.fit(estimator.set_params(**penalty), given, y if y is None else y[::-1])
            estimator.set_params(**asked)
        family.fit(estimator, given, y)
        family.obey(estimator, X, y)
        family.use(estimator, given)
        return "right"

    shown = {name: getattr(estimator, name) for name in family.extreme_parameters}
    about = "" if y is None else f" y={y.dtype}{y.ravel()[:2].tolist()}"
    return Input(
        f"{shown} {type(given).__name__}{X.shape} with {X.ravel()[:3].tolist()}{about}", "either", run, estimator
    )


def spoiled(family: Any, rng: Any, *, in_use: bool = False, misfit: bool = False) -> Input:
    import numpy as np
    from fuzz_models import canonical, draw
    from fuzz_spoils import bad_indices, bad_object, bad_shape, bad_value

    X, y = family.data(rng)
    estimator = family.estimator(rng)
    how = bad_indices if misfit else draw(rng, bad_value, bad_value, bad_shape, bad_object)
    spoil = how(X, family, rng)

    def run() -> str:
        if in_use:
            family.use(family.fit(estimator, canonical(family, X), y), spoil.X)
            return "right"
        family.fit(estimator, spoil.X, None if y is None else np.resize(y, length_of(spoil.X, len(X))))
        family.obey(estimator, None, y)
        family.use(estimator, spoil.X)
        return "right"

    return Input(spoil.label, spoil.expects, run, estimator)


def length_of(X: Any, otherwise: int) -> int:
    """Return how many responses an X wants, so that their number is not what is wrong."""
    shape = getattr(X, "shape", ())
    if isinstance(X, list) and any(hasattr(chunk, "dask") for chunk in X):
        return otherwise * len(X)
    return int(shape[0]) if isinstance(shape, tuple) and shape else otherwise


def spoiled_in_use(family: Any, rng: Any) -> Input:
    return spoiled(family, rng, in_use=True)


def misfit(family: Any, rng: Any) -> Input:
    return spoiled(family, rng, misfit=True)


def misfit_in_use(family: Any, rng: Any) -> Input:
    return spoiled(family, rng, misfit=True, in_use=True)


def judge(seed: int, case: Input) -> Outcome:
    """Try an input, and say what came of it."""
    from fuzz_models import WrongError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind, detail = case.run(), ""
    except (WrongError, AssertionError) as broken:
        kind, detail = "wrong", f"broken law: {' '.join(str(broken).split())}"
    except Exception as error:
        kind, detail = judge_error(error, case)
    else:
        if case.expects == "error":
            kind, detail = "wrong", "accepted"
    return Outcome(seed, case.label, kind, detail[:400])


def judge_error(error: Exception, case: Input) -> tuple[str, str]:
    from fuzz_spoils import OwnError

    from schmp_estimators.exceptions import SchMPError

    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if case.expects == "result":
        return "wrong", f"refused: {said}"
    if isinstance(error, OwnError) or type(error).__name__ == "DuplicateError":  # scikit-learn's, of names of columns
        return "clear error", said
    chosen = ValueError, TypeError, OverflowError, MemoryError, NotImplementedError, SchMPError
    named = any(name in str(error) for name in case.estimator.get_params())
    if isinstance(error, chosen) and (named or CLEAR.search(str(error))):
        return "clear error", said
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "wrong", f"unclear error: {said} @ {Path(frame.filename).name}:{frame.lineno}"


def one(seed: int) -> Outcome:
    """Return the outcome of one input, tried in this process."""
    prepare()
    return judge(seed, make(seed))


def prepare() -> None:
    import dask

    for folder in (HERE, HERE.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    dask.config.set(scheduler="sync")


# -- many inputs, in child processes -------------------------------------------------------------------------------


def serve() -> None:
    """Be a child: read seeds, write what is begun and what came of it."""
    import resource

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    answers, sys.stdout = sys.stdout, sys.stderr
    prepare()
    for line in sys.stdin:
        case = make(int(line))
        print(json.dumps(case.label), file=answers, flush=True)
        print(json.dumps(judge(int(line), case)), file=answers, flush=True)


class Child:
    """A process that tries inputs until one ends it."""

    def __init__(self, errors: Path, command: list[str] | None = None) -> None:
        self._errors = errors
        self._command = command or [sys.executable, str(HERE / "fuzz.py"), "--serve"]
        self._process: Any = None

    def try_one(self, seed: int, limit: float) -> Outcome:
        """Return what came of one input, within `limit` seconds."""
        if self._process is None:
            self._begin()
        label = "not begun"
        try:
            self._process.stdin.write(f"{seed}\n")
            self._process.stdin.flush()
            label = self._answer(limit + START)
            return Outcome(*self._answer(limit))
        except queue.Empty:
            self.close()
            return Outcome(seed, label, "hang", f"no end in {limit:g} s\n{self._last_words()}")
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            self.close()
            return Outcome(seed, label, "crash", f"exit code {code}\n{self._last_words()}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            with suppress(OSError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def _begin(self) -> None:
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()

    @staticmethod
    def _read(stream: Any, lines: queue.Queue[str]) -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    def _answer(self, limit: float) -> Any:
        line = self._lines.get(timeout=limit)
        if not line:
            raise EOFError
        return json.loads(line)

    def _last_words(self) -> str:
        lines = [line for line in self._errors.read_text().splitlines() if "File" in line or "Fatal" in line]
        return "\n".join(lines[:6])


def run_many(
    number: int, *, first: int = 0, seconds: float = float("inf"), limit: float = 120.0, jobs: int = 1, folder: Path
) -> Iterator[Outcome]:
    """Yield the outcomes of inputs `first` to `first + number - 1`, as many as begin within `seconds`."""
    seeds, outcomes = iter(range(first, first + number)), queue.Queue[Outcome | None]()
    lock, deadline = threading.Lock(), time.monotonic() + seconds

    def work(name: int) -> None:
        child = Child(folder / f"fuzz-child-{name}.log")
        try:
            while time.monotonic() < deadline:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    break
                outcomes.put(child.try_one(seed, limit))
        finally:
            child.close()
            outcomes.put(None)

    for name in range(jobs):
        threading.Thread(target=work, args=(name,), daemon=True).start()
    working = jobs
    while working:
        outcome = outcomes.get()
        if outcome is None:
            working -= 1
        else:
            yield outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=200, help="inputs to try")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no input after so long")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which an input is a hang")
    parser.add_argument("--jobs", type=int, default=1, help="child processes at a time")
    parser.add_argument("--verbose", action="store_true", help="print good outcomes, too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return 0
    import tempfile

    began, kinds = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        options = {name: getattr(given, name) for name in ("first", "seconds", "limit", "jobs")}
        for outcome in run_many(given.number, folder=Path(folder), **options):
            kinds[outcome.kind] += 1
            if given.verbose or outcome.kind in BAD:
                print(f"{outcome.seed} {outcome.kind} | {outcome.label} | {outcome.detail}", flush=True)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in (*GOOD, *BAD))
    print(f"{kinds.total()} inputs in {time.monotonic() - began:.0f} s: {counts}")
    return int(any(kinds[kind] for kind in BAD))


if __name__ == "__main__":
    sys.exit(main())
