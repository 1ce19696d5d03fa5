"""Random inputs, each judged: the very bits, a right result, a clear error; or wrong, a crash, a hang.

    python tests/hostile/fuzz.py 1000 --seconds 1800    # inputs 0 to 999, as many as the time allows
    python tests/hostile/fuzz.py 1 --first 417 --verbose    # one of them again

Inputs are tried in child processes, so that a crash or a hang is seen and named, and the next input is tried in a fresh
one.  Everything follows from the seed: `one(417)` makes input 417 again.  The exit code is 1 if any outcome is bad.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

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
    #: "result", "error", or "either".
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

    family, kind = FAMILIES[seed % 4], KINDS[seed // 4 % len(KINDS)]
    made = kind(family, np.random.default_rng(seed))
    how = getattr(made.estimator, "sampler", getattr(made.estimator, "solver", getattr(made.estimator, "schedule", "")))
    return made._replace(label=f"{family.name} {how} {made.label}")


def in_another_form(family: Any, rng: Any) -> Input:
    import numpy as np
    from fuzz_inputs import another_form, responses
    from fuzz_models import canonical, require, value_of
    from sklearn.base import clone

    X, y = family.data(rng)
    estimator = family.estimator(rng)
    name, form = another_form(X, family, rng)
    other = None if y is None else responses(y, rng)

    def run() -> str:
        expected = family.fit(clone(estimator), canonical(family, X), y)
        found = family.fit(estimator, form, other)
        family.obey(found, X, y)
        said = value_of(family.use(found, form))
        if not family.same_bits:
            np.testing.assert_allclose(said, family.use(found, canonical(family, X)), rtol=1e-4, atol=1e-4)
            return "right"
        require(np.array_equal(family.state(found), family.state(expected)), "another form gives the same bits")
        np.testing.assert_allclose(said, family.use(expected, canonical(family, X)), rtol=1e-9, atol=1e-9)
        return "same bits"

    return Input(name, "result", run, estimator)


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
    from fuzz_inputs import bad_indices, bad_object, bad_shape, bad_value
    from fuzz_models import canonical, draw

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

    return Input(f"{spoil.label}{', in use' * in_use}", spoil.expects, run, estimator)


def length_of(X: Any, otherwise: int) -> int:
    """Return how many responses an X wants, so that their number is not what is wrong."""
    shape = getattr(X, "shape", ())
    if isinstance(X, list) and any(hasattr(chunk, "dask") for chunk in X):
        return otherwise * len(X)
    return int(shape[0]) if isinstance(shape, tuple) and shape else otherwise


#: What follows on each other.
KINDS = [
    in_another_form,
    with_extremes,
    in_another_form,
    *(partial(spoiled, misfit=misfit, in_use=in_use) for misfit in (False, True) for in_use in (False, True)),
]


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
    from fuzz_inputs import OwnError

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


def serve(pipe: Any, judged: Callable[[int], Outcome], errors: Path) -> None:
    """Be a child: read seeds, and write what came of them."""
    import resource

    faulthandler.enable(errors.open("w"))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    with suppress(EOFError):
        while True:
            pipe.send(judged(pipe.recv()))


class Child:
    """A process that tries inputs until one ends it."""

    def __init__(self, errors: Path, judged: Callable[[int], Outcome] = one) -> None:
        self._errors, self._judged = errors, judged
        self._process: Any = None

    def try_one(self, seed: int, limit: float) -> Outcome:
        """Return what came of one input, within `limit` seconds."""
        if self._process is None:
            self._errors.write_text("")
            spawn = multiprocessing.get_context("spawn")
            self._pipe, there = spawn.Pipe()
            self._process = spawn.Process(target=serve, args=(there, self._judged, self._errors), daemon=True)
            self._process.start()
            there.close()
            limit += START
        self._pipe.send(seed)
        try:
            if self._pipe.poll(limit):
                return cast(Outcome, self._pipe.recv())
            kind, detail = "hang", f"no end in {limit:g} s"
        except EOFError:
            self._process.join()
            kind, detail = "crash", f"exit code {self._process.exitcode}"
        self.close()
        lines = [line for line in self._errors.read_text().splitlines() if "File" in line or "Fatal" in line]
        return Outcome(seed, make(seed).label, kind, "\n".join([detail, *lines[:6]]))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def run_many(
    number: int, *, first: int = 0, seconds: float = float("inf"), limit: float = 120.0, folder: Path
) -> Iterator[Outcome]:
    """Yield the outcomes of inputs `first` to `first + number - 1`, as many as begin within `seconds`."""
    child, deadline = Child(folder / "fuzz-child.log"), time.monotonic() + seconds
    try:
        for seed in range(first, first + number):
            if time.monotonic() > deadline:
                break
            yield child.try_one(seed, limit)
    finally:
        child.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=200, help="inputs to try")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no input after so long")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which an input is a hang")
    parser.add_argument("--verbose", action="store_true", help="print good outcomes, too")
    given = parser.parse_args()
    prepare()
    began, kinds = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        options = {name: getattr(given, name) for name in ("first", "seconds", "limit")}
        for outcome in run_many(given.number, folder=Path(folder), **options):
            kinds[outcome.kind] += 1
            if given.verbose or outcome.kind in BAD:
                print(f"{outcome.seed} {outcome.kind} | {outcome.label} | {outcome.detail}", flush=True)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in (*GOOD, *BAD))
    print(f"{kinds.total()} inputs in {time.monotonic() - began:.0f} s: {counts}")
    return int(any(kinds[kind] for kind in BAD))


if __name__ == "__main__":
    sys.exit(main())
