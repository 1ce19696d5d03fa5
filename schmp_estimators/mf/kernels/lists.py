"""Sparse matrices row by row, sums over their entries, and the best items by such sums."""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import index, inlined, kernel
from schmp_estimators.core.typing import Floats32, Integers
from schmp_estimators.mf.kernels.foldin import insert

ONE = index(1)


class Lists(NamedTuple):
    """The entries of a sparse matrix above 0, row by row."""

    offsets: Integers  #: (n_rows + 1,) int64
    ids: Any  #: columns, uint32
    values: Floats32  #: empty if all are 1


@inlined
def value_of(lists, at):
    """Return the value of an entry."""
    return np.float64(lists.values[at]) if lists.values.size else 1.0


@inlined
def sum_of(lists, start, stop, vector):
    """Return the inner product of some entries and a vector, by four sums that do not wait."""
    at, end = index(start), index(stop)
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    while at + index(3) < end:
        first += value_of(lists, at) * vector[lists.ids[at]]
        second += value_of(lists, at + ONE) * vector[lists.ids[at + ONE]]
        third += value_of(lists, at + index(2)) * vector[lists.ids[at + index(2)]]
        fourth += value_of(lists, at + index(3)) * vector[lists.ids[at + index(3)]]
        at += index(4)
    while at < end:
        first += value_of(lists, at) * vector[lists.ids[at]]
        at += ONE
    return (first + second) + (third + fourth)


@inlined
def add_to(factor, lists, start, stop, vector):
    """Add a multiple of some entries to a vector."""
    at, end = index(start), index(stop)
    while at < end:
        vector[lists.ids[at]] += factor * value_of(lists, at)
        at += ONE


@kernel
def rank_rows(told, model, usual, may_be, seen_ptr, seen_items, out_items, out_scores):
    """Find the items with the largest scores for each row, except those in the list of the row.

    Parameters
    ----------
    told : Lists
        What each of n users has taken.
    model : Lists
        For each item the coefficients with which it speaks for others.
    usual : (n_items,) float64
        Scores for rows for which no coefficient speaks.
    may_be : (n_items,) bool
        Which items may be found.
    seen_ptr, seen_items : (n + 1,) int64, int32
        The lists.
    out_items, out_scores : (n, n_top) int64 and float64
        Mutated: best first, of equal scores the lower number first; -1 and -inf if no item is left.
    """
    n_items = usual.size
    n_top = out_items.shape[1]
    scores = np.zeros(n_items)
    is_out = np.empty(n_items, np.bool_)
    for row in range(out_items.shape[0]):
        scores[:] = 0.0
        spoken = False
        for at in range(told.offsets[row], told.offsets[row + 1]):
            item = told.ids[at]
            first, last = model.offsets[item], model.offsets[item + ONE]
            spoken |= last > first
            add_to(value_of(told, at), model, first, last, scores)
        for item in range(n_items):
            is_out[item] = not may_be[item]
        for at in range(seen_ptr[row], seen_ptr[row + 1]):
            is_out[seen_items[at]] = True
        best, values = out_items[row], out_scores[row]
        best[:] = -1
        values[:] = -np.inf
        for item in range(n_items):
            score = scores[item] if spoken else usual[item]
            if is_out[item] or not score > values[n_top - 1]:
                continue
            insert(score, item, values, best)


@kernel
def score_pairs(rows, items, told, model, out):
    """Fill `out` (n,) with the scores of n pairs of a row and an item; `model` has sorted rows."""
    for number in range(rows.size):
        total = 0.0
        for at in range(told.offsets[rows[number]], told.offsets[rows[number] + 1]):
            first = model.offsets[told.ids[at]]
            last = model.offsets[told.ids[at] + ONE]
            where = first + np.searchsorted(model.ids[first:last], np.uint32(items[number]))
            if where < last and model.ids[where] == items[number]:
                total += value_of(told, at) * value_of(model, where)
        out[number] = total
