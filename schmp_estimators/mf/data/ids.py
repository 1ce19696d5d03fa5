"""Ids of users and items, of any kind, and the rows of the factors that belong to them.

The ids that occur are *numbered*: row n of the factors belongs to the n-th entry of a table.  In a
first fit the table is in ascending order; later fits append new ids.  The ids of a matrix are its
row and column numbers.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_missing
from schmp_estimators.core.typing import Array, Integers

#: The number of an unknown id: beyond all rows.
UNKNOWN = np.iinfo(np.int64).max
#: Numbers below this many times their count are counted and looked up in an array: sorting and
#: searching take longer.
_SPAN = 4
#: What is wrong with a missing id.
_MISSING = "is missing. Drop these rows first, for example with dropna()"

Table = Array
#: Returns the row of each id, or `UNKNOWN` for ids that have none.
Rows = Callable[[Array], Integers]


KINDS = ("user", "item")


class Known(NamedTuple):
    """The ids of a fit: tables of users and of items."""

    users: Table
    items: Table


#: The ids that are known before the first fit.
NOBODY = Known(np.empty(0, np.int64), np.empty(0, np.int64))


def read_ids(column: Any, kind: str, source: str = "pairs") -> Array:
    """Return ids as an array of integers, or of strings as Python objects.

    Parameters
    ----------
    column : array of shape (n,)
        Integers, whole numbers of any dtype, or strings.
    kind : {"user", "item"}
    source : str
        Name of the input for the user.

    Raises
    ------
    ValueError
        If an id is missing, negative, fractional or of another kind.
    """
    array = np.asarray(unmask(column, source))
    code = array.dtype.kind
    if code == "O":
        return _read_objects(array, kind, source)
    if code in "US":
        return as_objects(array.tolist())
    refuse = partial(_refuse, array, kind, source)
    if code not in "iuf":
        refuse(
            True,
            f"has the dtype {array.dtype}; ids are whole numbers or strings. Convert them, for "
            "example with .astype(str)",
        )
    if code == "f":
        refuse(np.isnan(array), _MISSING)
        whole = np.isfinite(array) & (array == np.floor(array))
        refuse(
            ~(whole & (np.abs(array) < np.float64(2.0**63))),
            "is no whole number. Pass ids as integers or as strings",
        )
        array = array.astype(np.int64)
    if array.size and array.min() < 0:
        refuse(
            array < 0,
            "is negative; ids count from 0. Pass names that happen to be numbers, such as signed "
            "hashes, as strings",
        )
    return array


def warn_of_unknown(ids: Array, kind: str, source: str) -> None:
    """Warn of ids that are unknown, and name some of them."""
    names = list(dict.fromkeys(ids.tolist()))
    if names:
        shown, more = names[:3], names[3:]
        warnings.warn(
            f"{source} holds {len(names)} ids of {kind}s that were in no fit, so that nothing is "
            f"known of them: {', '.join(map(repr, shown))}{', …' if more else ''}",
            UserWarning,
            stacklevel=4,
        )


def _read_objects(array: Array, kind: str, source: str) -> Array:
    types = set(map(type, array))
    if not types:
        return array.astype(np.int64)
    if all(issubclass(one, str) for one in types) or all(issubclass(one, bytes) for one in types):
        plain = str if isinstance(array[0], str) else bytes
        return array if types == {plain} else as_objects(map(plain, array))
    if all(issubclass(one, Integral) and one is not bool for one in types):
        exact = np.array(list(map(int, array)))
        if exact.dtype.kind not in "iu":
            raise ValueError(f"{source} holds {kind}s of more than 64 bits; pass them as strings")
        return read_ids(exact, kind, source)
    missing = np.array([is_missing(one) for one in array])
    _refuse(array, kind, source, missing, _MISSING)
    if all(issubclass(one, Real) and one is not bool for one in types):
        return read_ids(array.astype(np.float64), kind, source)
    alike = next((one for one in (str, bytes, Real) if isinstance(array[0], one)), ())
    row = next(
        row for row, one in enumerate(array) if type(one) is bool or not isinstance(one, alike)
    )
    names = sorted(one.__name__ for one in types)
    raise ValueError(
        f"{source} holds the {kind} {array[row]!r} in row {row}, and {kind}s of the types "
        f"{', '.join(names)}; ids are whole numbers or strings, and all alike. Pass them as "
        "strings, for example with .astype(str)."
    )


def as_objects(values: Any) -> Array:
    """Return values as the entries of an array, whatever they are: nothing is converted."""
    return np.fromiter(values, object)


def _refuse(ids: Array, kind: str, source: str, where: Any, fault: str) -> None:
    """Raise ValueError about the first id of those that have a fault."""
    if ids.size and np.any(where):
        row = int(np.argmax(where))
        raise ValueError(f"{source} holds the {kind} {ids[row]} in row {row}, which {fault}.")


def at_least_one(number: Any, name: str, what: str = "") -> int:
    """Return a number that is an integer of at least 1; errors say by `what` what it counts."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ValueError(f"{name}={number!r}; it is {what}an integer of at least 1")
    return int(number)


def is_text(ids: Array) -> bool:
    """Return whether ids are strings."""
    return bool(ids.dtype == object)


def distinct(ids: Array) -> Table:
    """Return the ids that occur, in ascending order."""
    if is_text(ids):
        return as_objects(sorted(set(ids)))
    if ids.size and ids.max() < _SPAN * ids.size:
        return np.flatnonzero(np.bincount(ids.astype(np.int64, copy=False)))
    return np.unique(ids)


def merge(tables: Sequence[Table], kind: str) -> Table:
    """Return the distinct ids of all tables together, in ascending order.

    Raises
    ------
    ValueError
        If some tables have strings, and others numbers or bytes.
    """
    tables = [table for table in tables if table.size]
    if len(tables) < 2:
        return tables[0] if tables else np.empty(0, np.int64)
    if len({type(table[0]) if is_text(table) else int for table in tables}) > 1:
        raise ValueError(
            f"some {kind}s are of other types than others; they must all be whole numbers, or all "
            "strings; convert them, for example with .astype(str)"
        )
    return distinct(_joined(tables))


def extend(known: Table, found: Table, kind: str) -> Table:
    """Return a table with new ids appended: those in `found` that it does not have yet.

    `found` comes from `distinct`.
    """
    new = found[number(found, known, kind) == UNKNOWN]
    return _joined([known, new] if known.size else [new])


def _joined(tables: list[Table]) -> Table:
    """Return tables of one kind one after the other.

    Numbers are int64, or uint64 if some are too large for that.
    """
    if is_text(tables[0]):
        return np.concatenate(tables)
    numbers = np.concatenate([table.astype(np.uint64) for table in tables])
    large = numbers.size and numbers.max() > UNKNOWN
    return numbers if large else numbers.astype(np.int64)


def are_positions(table: Table) -> bool:
    """Return whether ids are the numbers of their rows."""
    return not is_text(table) and bool((table == np.arange(table.size)).all())


def look_up(table: Table) -> Rows:
    """Return a function that finds the rows of ids.

    They must be of the same kind as those of `table`.
    """
    if is_text(table):
        rows = {one: row for row, one in enumerate(table)}
        return lambda ids: np.fromiter(map(rows.get, ids, repeat(UNKNOWN)), np.int64, ids.size)
    wide = table.astype(np.uint64)
    least = wide.min(keepdims=True)
    span = int(wide.max() - wide.min()) + 1
    if span <= _SPAN * wide.size:
        places = np.full(
            span + 2, UNKNOWN
        )  # the first and the last place are for all other numbers
        places[1:-1][wide - least] = np.arange(wide.size)
        before = least.astype(np.int64) - 1
        return lambda ids: places.take(ids.astype(np.int64, copy=False) - before, mode="clip")
    order = np.argsort(wide, kind="stable")
    ascending = wide[order]

    def find(ids: Array) -> Integers:
        place = np.minimum(np.searchsorted(ascending, ids.astype(np.uint64)), ascending.size - 1)
        return np.where(ascending[place] == ids.astype(np.uint64), order[place], UNKNOWN)

    return find


def number(
    ids: Array, known: Table, kind: str, source: str = "pairs", rows: Rows | None = None
) -> Integers:
    """Return the row of each id, or a number beyond all rows if it is not known.

    `rows` is the result of `look_up` for `known`, if it is there already.

    Raises
    ------
    ValueError
        If ids are strings but those of the fit were numbers, or the other way round.
    """
    if not (ids.size and known.size):  # an empty array does not say whether its ids are strings
        return np.full(ids.size, UNKNOWN)
    if is_text(ids) != is_text(known):
        here, there = ("strings", "whole numbers") if is_text(ids) else ("whole numbers", "strings")
        raise ValueError(
            f"{source} holds {kind}s that are {here}, but in fit they were {there}; convert them"
        )
    return (rows or look_up(known))(ids)
