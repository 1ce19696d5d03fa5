"""Random inputs, each judged: the very bits, a right result or a clear error; else the test fails.

    # inputs 0 to 999
    FUZZ=0-1000 python -m pytest tests/hostile/test_fuzz.py -m slow --session-timeout 1800
    # one of them again
    FUZZ=417-418 python -m pytest tests/hostile/test_fuzz.py -m slow

Everything follows from the number of the input.  pytest-xdist names an input that crashes its
process and goes on with the next one; so does pytest-timeout with an input that hangs.
"""

import os
import re
import resource
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import dask
import numpy as np
import pytest
from fuzz_inputs import (
    OwnError,
    another_form,
    bad_indices,
    bad_object,
    bad_shape,
    bad_value,
    responses,
)
from fuzz_models import FAMILIES, WrongError, canonical, draw, require, value_of
from sklearn.base import clone

from schmp_estimators import PrioritizedLasso
from schmp_estimators.exceptions import SchMPError

FIRST, STOP = map(int, os.environ.get("FUZZ", "10000-10084").split("-"))
#: Bytes of address space of a process: what asks for more gets a MemoryError, and does not take the
#: machine down.
ADDRESS_SPACE = 12 << 30
#: What a clear error names, if not a parameter of the estimator: an input, or in scikit-learn's
#: words what is wrong.
CLEAR = re.compile(
    r"\b(X|y|pairs|users?|exclude|ratings?|chunks? of|Input|sample_weight|classes)\b|"
    r"Expected 2D|Found (array|input)|[Cc]omplex|dtype|convert|"
    r"sample\(s\)|feature\(s\)|features|infinity|GiB"
)
#: Kinds of errors that the package or scikit-learn raises on purpose.
CHOSEN = ValueError, TypeError, OverflowError, MemoryError, NotImplementedError, SchMPError


class Input(NamedTuple):
    """What is tried with an estimator: `run` raises where a law is broken."""

    label: str
    #: "result", "error", or "either".
    expects: str
    run: Callable[[], None]
    estimator: Any


def make(number):
    """Return the input of a number: kinds follow each other, everything else is drawn."""
    family, kind = FAMILIES[number % 4], KINDS[number // 4 % len(KINDS)]
    return kind(family, np.random.default_rng(number))


def in_another_form(family, rng):
    X, y = family.data(rng)
    estimator = family.estimator(rng)
    name, form = another_form(X, family, rng)
    other = None if y is None else responses(y, rng)

    def run():
        expected = family.fit(clone(estimator), canonical(family, X), y)
        found = family.fit(estimator, form, other)
        family.obey(found, X, y)
        said, tolerance = value_of(family.use(found, form)), 1e-9 if family.same_bits else 1e-4
        if family.same_bits:
            require(
                np.array_equal(family.state(found), family.state(expected)),
                "another form gives the same bits",
            )
        model = expected if family.same_bits else found
        np.testing.assert_allclose(
            said, family.use(model, canonical(family, X)), rtol=tolerance, atol=tolerance
        )

    return Input(name, "result", run, estimator)


def with_extremes(family, rng):
    X, y = family.data(rng)
    X = family.extreme_data(X, rng)
    estimator = family.extreme(rng)
    y = None if y is None else family.extreme_responses(y[: len(X)], rng)
    given = (
        X.astype(float) if family.name != "mf" and draw(rng, True, False) else canonical(family, X)
    )
    penalty = {name: 0.3 for name in ("alpha", "C") if hasattr(estimator, name)}

    def run():
        if getattr(estimator, "warm_start", False):  # what was there before must not show
            asked = estimator.get_params()
            family.fit(estimator.set_params(**penalty), given, y if y is None else y[::-1])
            estimator.set_params(**asked)
        family.fit(estimator, given, y)
        family.obey(estimator, X, y)
        family.use(estimator, given)

    return Input(
        f"{type(given).__name__}{X.shape} with {X.ravel()[:3].tolist()}", "either", run, estimator
    )


def spoiled(family, rng, *, in_use=False, misfit=False):
    X, y = family.data(rng)
    estimator = family.estimator(rng)
    how = bad_indices if misfit else draw(rng, bad_value, bad_value, bad_shape, bad_object)
    spoil = how(X, family, rng)

    def run():
        if in_use:
            family.fit(estimator, canonical(family, X), y)
        else:
            family.fit(
                estimator, spoil.X, None if y is None else np.resize(y, length_of(spoil.X, len(X)))
            )
            family.obey(estimator, None, y)
        family.use(estimator, spoil.X)

    return Input(f"{spoil.label}{', in use' * in_use}", spoil.expects, run, estimator)


def length_of(X, otherwise):
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
    *(
        partial(spoiled, misfit=misfit, in_use=in_use)
        for misfit in (False, True)
        for in_use in (False, True)
    ),
]


def assert_right(case):
    """Try an input; raise if what comes of it is neither right nor a clear error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            case.run()
        except (WrongError, AssertionError):
            raise
        except Exception as error:
            require(case.expects != "result", f"what is legal was refused: {error!r}")
            named = any(name in str(error) for name in case.estimator.get_params()) or CLEAR.search(
                str(error)
            )
            # of the user's own code, and scikit-learn's, of names of columns
            foreign = isinstance(error, OwnError) or type(error).__name__ == "DuplicateError"
            if not foreign and not (isinstance(error, CHOSEN) and named):
                raise
        else:
            require(case.expects != "error", "what is no input was accepted")


@pytest.mark.parametrize(
    ("run", "expects", "kind", "message"),
    [
        (lambda: require(False, "water is wet"), "either", WrongError, "water is wet"),
        (lambda: np.testing.assert_allclose(1, 2), "either", AssertionError, "Not equal"),
        (lambda: int("X"), "result", WrongError, "what is legal was refused: ValueError"),
        (lambda: None, "error", WrongError, "accepted"),
        (lambda: int("a"), "either", ValueError, "invalid literal"),
        (lambda: {}["alpha"], "either", KeyError, "alpha"),
    ],
)
def test_what_is_wrong_is_noticed(run, expects, kind, message):
    assert_right(Input("a clear error", "error", lambda: np.float64("X"), PrioritizedLasso()))
    with pytest.raises(kind, match=message):
        assert_right(Input("a bad outcome", expects, run, PrioritizedLasso()))


@pytest.mark.slow
@pytest.mark.timeout(240, method="thread")
@pytest.mark.parametrize("number", range(FIRST, STOP))
def test_random_input(number):
    before, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, most))
    try:
        case = make(number)
        print(case.label, case.estimator)  # shown where it fails
        with dask.config.set(scheduler="sync"):
            assert_right(case)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))
