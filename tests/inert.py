"""A law of all estimators: a parameter changes the result, or is refused by name."""

import re
import warnings


def outcome(make, fit, given):
    """Return what ``fit(make(**given))`` has learned, or the ValueError that it raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps are enough to compare bits
        try:
            return fit(make(**given))
        except ValueError as error:
            return error


def inert(make, fit, given, changes):
    """Return the changes that do nothing and are not refused either.

    Parameters
    ----------
    make : callable
        Returns an estimator, given its parameters by name.
    fit : callable
        Fits an estimator; returns what it has learned, as a value that ``==`` compares to the bit.
    given : dict
        Parameters of the setting, which must be accepted.
    changes : dict
        By the name of a parameter, values that are not its default; a parameter that is in `given`
        is left out.

    Returns
    -------
    list of str
        ``name=value``: the fit has the bits of the fit with `given` alone; or ``name=value:
        message`` if an error does not name the parameter.
    """
    usual = outcome(make, fit, given)
    assert not isinstance(usual, Exception), (given, usual)
    found = []
    for name, values in changes.items():
        for value in values if name not in given else ():
            now = outcome(make, fit, {**given, name: value})
            if not isinstance(now, Exception):
                found += [f"{name}={value!r}"] if now == usual else []
            elif not re.search(rf"\b{name}\b", str(now)):
                found.append(f"{name}={value!r}: {now}")
    return found


def refused(make, fit, given, changes):
    """Return the changes that are refused, as ``name=value: message``; see `inert`."""
    tried = [(name, value) for name, values in changes.items() for value in values]
    found = [(*one, outcome(make, fit, {**given, one[0]: one[1]})) for one in tried]
    return [f"{name}={value!r}: {now}" for name, value, now in found if isinstance(now, Exception)]
