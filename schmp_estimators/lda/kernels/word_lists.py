"""The rows of a block's words as lists of (topic, count), the largest counts first."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, maker, part
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.lda.blocks import HEAD

#: Lists up to this length are sorted in one pass, which is short where little has changed.
_SHORT = 48
#: The lists of the words that come so many tokens later are fetched into the cache, their bounds before that.
_AHEAD, _FAR_AHEAD = 6, 12


class WordLists(NamedTuple):
    """For each word of a block a list of its topics and of how many tokens each has, earlier batches included."""

    #: (2 * n_words + 1,) for each word the first entry and the one after the last; there is room up to the next word,
    #: for one entry of each token as far as there are topics.  At the end the number of entries.
    bounds: NDArray[np.int64]
    #: (2 * n_entries,) for each entry topic and count.
    entries: NDArray[np.int32]


@inlined
def sort_falling(keys):
    """Sort in place, in falling order: by insertion, of long lists of keys far from each other first (Shell)."""
    gap = len(keys) >> 1 if len(keys) > _SHORT else 1
    while gap > 0:
        for i in range(gap, len(keys)):
            key, at = keys[i], i
            while at >= gap and keys[at - gap] < key:
                keys[at] = keys[at - gap]
                at -= gap
            keys[at] = key
        gap = gap * 5 // 11 if gap != 2 else 1


@maker
def _lay_out(block, n_topics):
    """Return the bounds of lists that are empty as yet."""
    n_heads, fixed = len(block.heads), block.fixed
    n_words, end = n_heads + len(block.tail_ptr) - 1, np.int64(0)
    bounds = np.empty(2 * n_words + 1, np.int64)
    for word in range(n_words):
        n = np.int64(HEAD) * n_topics
        if word >= n_heads:
            n = block.tail_ptr[word - n_heads + 1] - block.tail_ptr[word - n_heads]
        bounds[2 * word] = end
        end += min(np.int64(n_topics), n + fixed.ptr[word + 1] - fixed.ptr[word])
    bounds[2 * n_words] = end
    return bounds


@part
def count_row(block, word, row, topics):
    """Add the counts of a word to `row` (K,), zero before, and list its topics; return how many there are."""
    n, tail, fixed = 0, word - len(block.heads), block.fixed
    if tail < 0:
        for k in range(len(row)):
            if block.heads[word, k] > 0:
                row[k] = block.heads[word, k]
                topics[n] = k
                n += 1
    else:
        for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
            k = np.uint32(block.tails[np.uint64(i)])
            if row[k] == 0:
                topics[n] = k
                n += 1
            row[k] += 1
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        k = np.uint32(fixed.topic[i])
        if row[k] == 0:
            topics[n] = k
            n += 1
        row[k] += fixed.tokens[i]
    return n


@maker
def list_words(block, n_topics):
    """Return the WordLists of a block.

    Parameters
    ----------
    block : WordBlock
        Any.
    n_topics : int
        K.

    Notes
    -----
    2 ns per token and 15 ns per entry.  Equal counts are in the order of topics, so that the lists are a function of
    the counts.
    """
    bounds = _lay_out(block, n_topics)
    entries = np.empty(2 * bounds[-1], np.int32)
    row, keys = np.zeros(n_topics, np.int64), np.empty(n_topics, np.int64)
    for word in range(len(bounds) >> 1):
        n, at = count_row(block, word, row, keys), 2 * bounds[2 * word]
        for i in range(n):
            k = keys[i]
            keys[i] = (row[k] << 32) + (n_topics - k)
            row[k] = 0
        sort_falling(keys[:n])
        for i in range(n):
            entries[at + 2 * i] = n_topics - (keys[i] & 0xFFFFFFFF)
            entries[at + 2 * i + 1] = keys[i] >> 32
        bounds[2 * word + 1] = bounds[2 * word] + n
    return WordLists(bounds, entries)


@inlined
def sum_entries(entries, start, end, weights):
    """Return the sum of ``count * weights[topic]`` over the entries from `start` to `end`."""
    at, last = np.uint64(2 * start), np.uint64(2 * end)
    one, two = 0.0, 0.0
    while at + np.uint64(8) <= last:
        one += weights[np.uint32(entries[at])] * entries[at + np.uint64(1)] + (
            weights[np.uint32(entries[at + np.uint64(4)])] * entries[at + np.uint64(5)]
        )
        two += weights[np.uint32(entries[at + np.uint64(2)])] * entries[at + np.uint64(3)] + (
            weights[np.uint32(entries[at + np.uint64(6)])] * entries[at + np.uint64(7)]
        )
        at += np.uint64(8)
    while at < last:
        one += weights[np.uint32(entries[at])] * entries[at + np.uint64(1)]
        at += np.uint64(2)
    return one + two


@inlined
def entry_of(entries, start, end, topic):
    """Return the entry of a topic, or `end`."""
    at, last = np.uint64(2 * start), np.uint64(2 * end)
    while at < last and np.uint32(entries[at]) != np.uint32(topic):
        at += np.uint64(2)
    return np.int64(at >> np.uint64(1))


@inlined
def find_entry(entries, start, end, skipped, weights, point):
    """Return the entry in which `point` lies of the sum of ``count * weights[topic]``, or `end`; and the sum with it.

    The topic `skipped` is left out.
    """
    at, before = start, 0.0
    while at < end:
        k = np.uint64(entries[np.uint64(2 * at)])
        if k != skipped:
            before += weights[k] * entries[np.uint64(2 * at + 1)]
            if before > point:
                break
        at += 1
    return at, before


@inlined
def fetch_lists(own, cell, visit):
    """Fetch the lists of words that come later: `own` has bounds and entries."""
    word = cell.state.visits.word
    if visit + _FAR_AHEAD < cell.state.visits.ptr[cell.number, -1]:
        prefetch(own.bounds, 2 * word[np.uint64(visit + _FAR_AHEAD)])
        coming = own.bounds[np.uint64(2 * word[np.uint64(visit + _AHEAD)])]
        for line in range(3):
            prefetch(own.entries, 2 * coming + 16 * line)
