"""The rows of a block's words for single look-ups: dense, or by open addressing where that is shorter.

This is LightLDA's storage (Yuan et al., WWW 2015, section 5): a tail word has a hash row with at least twice as many
places as it can have topics, so that a look-up takes one or two probes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import copy_to, inlined, maker

#: The multiplier of Fibonacci hashing.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE, _HALF = np.uint64(1), np.uint64(32)


class CountRows(NamedTuple):
    """For each word of a block the counts of its topics, earlier batches included."""

    #: (2 * n_words,) for each word where its row begins in `cells`, and one less than its places; -1 for a dense row.
    rows: NDArray[np.int64]
    #: Counts by topic of dense rows, pairs of topic and count of others; a free place has topic -1.
    cells: NDArray[np.int32]


@inlined
def _home(topic, mask):
    """Return the place where the search for a topic begins."""
    return (np.uint64(topic) * _SPREAD >> _HALF) & mask


@inlined
def cell_of(start, mask, topic):
    """Return where in the cells the search for a topic begins, for `prefetch`."""
    return start + (np.int64(topic) if mask < 0 else np.int64(_home(topic, np.uint64(mask)) << _ONE))


@inlined
def count_of(cells, start, mask, topic):
    """Return the count of a topic in a row."""
    if mask < 0:
        found = cells[np.uint64(start + np.int64(topic))]
    else:
        base, wrap = np.uint64(start), np.uint64(mask)
        place = _home(topic, wrap)
        while True:
            at = base + (place << _ONE)
            if np.uint32(cells[at]) == np.uint32(topic):
                found = cells[at + _ONE]
                break
            if cells[at] < 0:
                found = np.int32(0)
                break
            place = (place + _ONE) & wrap
    return found


@inlined
def add_to(cells, start, mask, topic, n):
    """Add n tokens, more than none, to a topic of a row."""
    if mask < 0:
        cells[np.uint64(start + np.int64(topic))] += n
    else:
        base, wrap = np.uint64(start), np.uint64(mask)
        place = _home(topic, wrap)
        while cells[base + (place << _ONE)] >= 0 and np.uint32(cells[base + (place << _ONE)]) != np.uint32(topic):
            place = (place + _ONE) & wrap
        at = base + (place << _ONE)
        if cells[at] < 0:
            cells[at] = topic
            cells[at + _ONE] = 0
        cells[at + _ONE] += n


@inlined
def take_one(cells, start, mask, topic):
    """Take a token from a topic of a row; a place that becomes free is filled by those that had to go on from it."""
    if mask < 0:
        cells[np.uint64(start + np.int64(topic))] -= 1
    else:
        base, wrap = np.uint64(start), np.uint64(mask)
        place = _home(topic, wrap)
        while np.uint32(cells[base + (place << _ONE)]) != np.uint32(topic):
            place = (place + _ONE) & wrap
        at = base + (place << _ONE)
        cells[at + _ONE] -= 1
        if cells[at + _ONE] == 0:
            later = place
            while True:
                later = (later + _ONE) & wrap
                found = base + (later << _ONE)
                if cells[found] < 0:
                    break
                if ((later - _home(cells[found], wrap)) & wrap) >= ((later - place) & wrap):
                    cells[at] = cells[found]
                    cells[at + _ONE] = cells[found + _ONE]
                    place, at = later, found
            cells[at] = -1


@maker
def make_rows(block, n_topics):
    """Return the CountRows of a WordBlock; 3 ns per token, and what it takes to clear them."""
    n_heads, fixed = len(block.heads), block.fixed
    n_words = n_heads + len(block.tail_ptr) - 1
    rows, end = np.empty(2 * n_words, np.int64), np.int64(0)
    for word in range(n_words):
        room, mask = np.int64(n_topics), np.int64(1)
        if word >= n_heads:
            n = block.tail_ptr[word - n_heads + 1] - block.tail_ptr[word - n_heads]
            room = min(room, n + fixed.ptr[word + 1] - fixed.ptr[word])
        while mask < 2 * room:
            mask *= 2
        rows[2 * word] = end
        rows[2 * word + 1] = -1 if 2 * mask >= n_topics else mask - 1
        end += n_topics if 2 * mask >= n_topics else 2 * mask
    cells = np.empty(end, np.int32)
    for word in range(n_words):
        start, mask = rows[2 * word], rows[2 * word + 1]
        if mask < 0:
            cells[start : start + n_topics] = 0
        else:
            cells[start : start + 2 * (mask + 1)] = -1
        if word < n_heads:
            copy_to(block.heads[word], cells[start : start + n_topics])
        else:
            for i in range(block.tail_ptr[word - n_heads], block.tail_ptr[word - n_heads + 1]):
                add_to(cells, start, mask, np.uint32(block.tails[np.uint64(i)]), np.int32(1))
        for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
            add_to(cells, start, mask, np.uint32(fixed.topic[i]), fixed.tokens[i])
    return CountRows(rows, cells)
