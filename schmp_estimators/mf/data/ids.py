"""Ids of users and items, of any kind: which rows of the factors they are.

Whole numbers that leave few gaps are row numbers as they are.  All others are *numbered*: the rows of the factors are
those of a table of the ids that occur, in ascending order, so that memory follows from how many there are.
"""

from __future__ import annotations

from math import isnan
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.door.masks import unmask

#: The number of an id that is not known: beyond all rows.
UNKNOWN = np.iinfo(np.int64).max
#: Whole numbers below this are row numbers whatever is missing.
_SMALL = 1024
#: So are others, if at least every fourth number below the largest occurs.
_GAPS = 4

Table = NDArray[Any]


class Known(NamedTuple):
    """The ids of a fit: for users and for items a table, or None where ids are row numbers."""

    users: Table | None
    items: Table | None


def read_ids(column: Any, kind: str, source: str = "pairs") -> NDArray[Any]:
    """Return ids as an array of integers, or of strings as Python objects.

    Parameters
    ----------
    column : array of shape (n,)
        Integers, whole numbers of any dtype, or strings.
    kind : {"user", "item"}
    source : str
        What the caller calls the input.

    Raises
    ------
    ValueError
        If an id is missing, negative, fractional or of another kind.
    """
    array = np.asarray(unmask(column, source))
    code = array.dtype.kind
    if code == "O":
        return _read_objects(array, kind, source)
    if code == "f":
        _refuse(np.isnan(array), array, kind, source, "is missing", "Drop these rows first, for example with dropna()")
        whole = np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < np.float64(2.0**63))
        _refuse(~whole, array, kind, source, "is no whole number", "Pass ids as integers or as strings")
        array = array.astype(np.int64)
    elif code in "US":
        return _as_objects(array.tolist())
    elif code not in "iu":
        fault = f"has the dtype {array.dtype}; ids are whole numbers or strings"
        _refuse(np.ones(array.size, bool), array, kind, source, fault, "Convert them, for example with .astype(str)")
    if code in "if" and array.size and array.min() < 0:
        remedy = "Pass names that happen to be numbers, such as signed hashes, as strings"
        _refuse(array < 0, array, kind, source, "is negative; ids count from 0", remedy)
    return array


def _read_objects(array: NDArray[Any], kind: str, source: str) -> NDArray[Any]:
    types = set(map(type, array))
    if types and all(issubclass(one, str | bytes) for one in types):
        if len({issubclass(one, str) for one in types}) == 1:
            return _as_objects(str(one) if isinstance(one, str) else bytes(one) for one in array)
    elif all(issubclass(one, Integral) and one is not bool for one in types):
        exact = list(map(int, array))
        if max(exact, default=0) >= 2**64 or min(exact, default=0) < -(2**63):
            raise ValueError(f"{source} holds {kind}s of more than 64 bits; pass them as strings")
        return read_ids(np.array(exact, np.uint64 if min(exact, default=0) >= 0 else np.int64), kind, source)
    missing = np.array([_is_missing(one) for one in array])
    _refuse(missing, array, kind, source, "is missing", "Drop these rows first, for example with dropna()")
    if all(issubclass(one, Real) and one is not bool for one in types):
        return read_ids(array.astype(np.float64), kind, source)
    alike = next((one for one in (str, bytes, Real) if isinstance(array[0], one)), ())
    row = next(row for row, one in enumerate(array) if type(one) is bool or not isinstance(one, alike))
    names = sorted(one.__name__ for one in types)
    raise ValueError(
        f"{source} holds the {kind} {array[row]!r} in row {row}, and {kind}s of the types {', '.join(names)}; ids are "
        "whole numbers or strings, and all alike. Pass them as strings, for example with .astype(str)."
    )


def _is_missing(one: Any) -> bool:
    return one is None or type(one).__name__ in ("NAType", "NaTType") or (isinstance(one, float) and isnan(one))


def _as_objects(values: Any) -> NDArray[Any]:
    values = list(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _refuse(bad: NDArray[Any], ids: NDArray[Any], kind: str, source: str, fault: str, remedy: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{source} holds the {kind} {ids[row]} in row {row}, which {fault}. {remedy}.")


def is_text(ids: NDArray[Any]) -> bool:
    """Return whether ids are strings."""
    return bool(ids.dtype == object)


def distinct(ids: NDArray[Any]) -> Table:
    """Return the ids that occur, in ascending order."""
    if is_text(ids):
        return _as_objects(sorted(set(ids)))
    if ids.size and ids.max() < _GAPS * ids.size + _SMALL:  # counting is faster than sorting
        return np.flatnonzero(np.bincount(ids.astype(np.int64, copy=False)))
    return np.unique(ids)


def merge(tables: list[Table], kind: str) -> Table:
    """Return what `distinct` would return of the parts put together.

    Raises
    ------
    ValueError
        If some are strings and others are numbers.
    """
    tables = [table for table in tables if table.size]
    if len(tables) < 2:
        return tables[0] if tables else np.empty(0, np.int64)
    if len({is_text(table) for table in tables}) > 1:
        raise ValueError(f"some {kind}s are numbers and others strings; pass all as strings, for example .astype(str)")
    if not is_text(tables[0]):
        tables = [_narrow(table) for table in tables]
        if len({table.dtype for table in tables}) > 1:
            tables = [table.astype(np.uint64) for table in tables]
        return np.unique(np.concatenate(tables))
    return distinct(np.concatenate(tables))


def extend(known: Table | None, n_known: int, found: Table, kind: str) -> Table | None:
    """Return the table of a fit whose ids are `found`, or None if they are row numbers.

    Parameters
    ----------
    known : array or None
        The table so far; new ids are put behind it.
    n_known : int
        Rows so far; 0 for a fit that starts anew.
    found : array
        The ids that occur, from `distinct`.
    kind : {"user", "item"}
    """
    if known is None and not is_text(found):
        highest = int(found[-1]) + 1 if found.size else 0
        if highest <= max(_SMALL, n_known, _GAPS * (n_known + found.size)):
            return None
    if known is None:
        known = np.arange(n_known)
    if n_known:
        check_alike(known, found, kind)
    new = found[number(found, known, kind) == UNKNOWN]
    if is_text(found):
        return np.concatenate([known, new]) if n_known else new
    parts = [_narrow(known), _narrow(new)]
    return np.concatenate(parts if parts[0].dtype == parts[1].dtype else [part.astype(np.uint64) for part in parts])


def _narrow(table: Table) -> Table:
    """Return numbers as int64, or as uint64 where they are too large for that."""
    large = table.dtype == np.uint64 and table.size and table.max() > np.uint64(UNKNOWN)
    return table if large else table.astype(np.int64, copy=False)


def check_alike(known: Table | None, ids: NDArray[Any], kind: str, source: str = "pairs") -> None:
    """Raise if ids are strings where those of the fit were numbers, or the other way round."""
    if ids.size and is_text(ids) != (known is not None and known.size > 0 and is_text(known)):
        here, there = ("strings", "whole numbers") if is_text(ids) else ("whole numbers", "strings")
        raise ValueError(f"{source} holds {kind}s that are {here}, but in fit they were {there}; convert them")


def look_up(table: Table) -> Any:
    """Return what `number` finds the rows of ids by."""
    if is_text(table):
        return {one: row for row, one in enumerate(table)}
    wide = table.astype(np.uint64)
    order = np.argsort(wide, kind="stable")
    return order, wide[order]


def number(
    ids: NDArray[Any], known: Table | None, kind: str, source: str = "pairs", looked_up: Any = None
) -> NDArray[np.int64]:
    """Return the row of each id, or a number beyond all rows if it is not known.

    `looked_up` is what `look_up` returns of `known`, if that has been asked before.
    """
    if not ids.size:  # nobody knows whether they would be strings
        return np.empty(0, np.int64)
    if known is None:
        check_alike(known, ids, kind, source)
        return np.minimum(ids, np.uint64(UNKNOWN)).astype(np.int64) if ids.dtype == np.uint64 else ids.astype(np.int64)
    if not known.size:
        return np.full(ids.size, UNKNOWN)
    check_alike(known, ids, kind, source)
    rows = look_up(known) if looked_up is None else looked_up
    if is_text(ids):
        return np.fromiter((rows.get(one, UNKNOWN) for one in ids), np.int64, ids.size)
    (order, ascending), ids = rows, ids.astype(np.uint64)
    place = np.minimum(np.searchsorted(ascending, ids), known.size - 1)
    return np.where(ascending[place] == ids, order[place], UNKNOWN)


def united(
    occur: NDArray[np.bool_], n_users: int, earlier: tuple[NDArray[np.bool_], ...]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which users and which items have ratings, now or in earlier fits.

    Parameters
    ----------
    occur : ndarray of shape (n_users + n_items,)
        Which of them have ratings now.
    n_users : int
    earlier : tuple of two ndarray of bool, or of none
        What this function has returned for the fits before; they may have had fewer rows.
    """
    users, items = occur[:n_users].copy(), occur[n_users:].copy()
    for now, before in zip((users, items), earlier, strict=False):
        now[: before.size] |= before
    return users, items
