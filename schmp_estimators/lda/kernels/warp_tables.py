"""Rows and draw tables of the word pass of the frozen-count sampler."""

import numpy as np

from schmp_estimators.core.jit import inlined, part

#: Slots of a head word's draw table: few enough for a cache, enough to resolve most draws without a search.
MAX_SLOTS = 1 << 14
#: Entries that `_fill` may write beyond the end of what it fills: one vector.
SLACK = 16


@inlined
def _fill(slots, start, end, value):
    """Write `value` to the slots from `start` to `end`, a vector at a time to spare branches."""
    first = start
    while True:
        for i in range(SLACK):
            slots[np.uint64(first + i)] = value
        first += SLACK
        if first >= end:
            break


@part
def fill_slots(row, n_slots_max, slots, ends):
    """Make the draw table of a head word: the inverse distribution function of its row, coarsened by a power of two.

    Parameters
    ----------
    row : (K,) int32
        Counts.
    n_slots_max : int
        The table is coarsened until it has no more slots.
    slots : (n_slots_max + SLACK,) int16 or int32
        Mutated: slot ``x >> shift`` is the topic of x, or ``~k`` when a search from topic k has to find it.
    ends : (K,) int64
        Mutated: cumulative counts.

    Returns
    -------
    int
        The shift.

    Notes
    -----
    1 ns per topic and 0.1 ns per slot.
    """
    total = np.int64(0)
    for k in range(len(row)):
        total += row[k]
        ends[k] = total
    shift = 0
    while total > np.int64(n_slots_max) << shift:
        shift += 1
    filled = np.int64(0)
    if shift == 0:
        for k in range(len(row)):
            _fill(slots, filled, ends[k], k)
            filled = ends[k]
        return shift
    for k in range(len(row)):
        end = ends[k]
        whole = end >> shift
        if whole > filled:
            _fill(slots, filled, whole, k)
            filled = whole
        if filled << shift < end:
            slots[filled] = ~k
            filled += 1
    return shift


@part
def add_fixed(fixed, word, row, fixed_ends):
    """Add a word's row of `fixed` to `row`, and write its cumulative counts to `fixed_ends`; 1 ns per entry."""
    total = np.int64(0)
    first = fixed.ptr[word]
    for i in range(first, fixed.ptr[word + 1]):
        row[fixed.topic[i]] += fixed.tokens[i]
        total += fixed.tokens[i]
        fixed_ends[i - first] = total


@part
def clear_row(row, topics, n, fixed, word):
    """Set `row` to zero again: only the entries of n topics and of a word's row of `fixed`, if they are few."""
    first, last = fixed.ptr[word], fixed.ptr[word + 1]
    if 8 * (n + last - first) > len(row):
        row[:] = 0
        return
    for i in range(n):
        row[np.uint32(topics[i])] = 0
    for i in range(first, last):
        row[fixed.topic[i]] = 0
