"""Word rows: topics of tokens in word-major order, rows of a block, and rows for single look-ups.

Rows for look-ups are dense, or hash tables with open addressing if these are shorter.  This is
LightLDA's storage (Yuan et al., WWW 2015, section 5): the table of a word has at least twice as
many places as the word can have topics, so that a look-up takes one or two probes.
"""

import numpy as np

from schmp_estimators.core.jit import copy_to, index, inlined, kernel, maker, part
from schmp_estimators.lda.blocks import HEAD


@part
def add_row(block, word, row):
    """Add the counts of a word of a WordBlock to a dense row; 1 ns per token."""
    tail = word - len(block.heads)
    if tail < 0:
        for k in range(len(row)):
            row[k] += block.heads[word, k]
    else:
        for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
            row[np.uint32(block.tails[index(i)])] += 1


@part
def count_row(block, word, row, topics):
    """Add the counts of a word to `row` (K,), zero before, list its topics, and return how many."""
    n = 0
    tail = word - len(block.heads)
    if tail < 0:
        for k in range(len(row)):
            if block.heads[word, k] > 0:
                row[k] = block.heads[word, k]
                topics[n] = k
                n += 1
    else:
        for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
            k = np.uint32(block.tails[index(i)])
            if row[k] == 0:
                topics[n] = k
                n += 1
            row[k] += 1
    return n


@kernel
def look_up(block, words, ptr, topics, n_topics, out):
    """Write how many tokens words of a WordBlock have in topics; O(K) each.

    Those of word i begin at ``ptr[i]``.
    """
    row = np.zeros(n_topics, np.int64)
    for i in range(len(words)):
        add_row(block, words[i], row)
        for j in range(ptr[i], ptr[i + 1]):
            out[j] = row[topics[j]]
        row[:] = 0


@kernel
def pack_rows(word_ptr, topic, n_topics):
    """Pack the topics of a shard's tokens of consecutive words.

    A dense row is made where that is shorter, else a list.

    Parameters
    ----------
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    topic : (n_tokens,) uint8, int16 or int32
        Topics in word-major order, perhaps a strided view.
    n_topics : int
        K.

    Returns
    -------
    lists : uint8, int16 or int32
        Topics of the words with fewer than ``HEAD * K`` tokens, one after the other.
    dense : (n_dense, K) int32
        Counts of the others.

    Notes
    -----
    1 ns per token: the kernel makes the arrays, so that LLVM knows that they are nowhere else.
    """
    limit = HEAD * n_topics
    n_listed = 0
    n_dense = 0
    for word in range(len(word_ptr) - 1):
        n = word_ptr[word + 1] - word_ptr[word]
        n_dense += n >= limit
        n_listed += n if n < limit else 0
    lists = np.empty(n_listed, topic.dtype)
    dense = np.zeros((n_dense, n_topics), np.int32)
    n_listed = n_dense = 0
    for word in range(len(word_ptr) - 1):
        first, last = word_ptr[word], word_ptr[word + 1]
        if last - first >= limit:
            row = dense[n_dense]
            n_dense += 1
            for i in range(first, last):
                row[np.uint32(topic[index(i)])] += 1
        else:
            for i in range(first, last):
                lists[index(n_listed)] = topic[index(i)]
                n_listed += 1
    return lists, dense


@kernel
def unpack_rows(lengths, lists, dense, heads, tails, cursor):
    """Add the packed rows of a shard to a block.

    Parameters
    ----------
    lengths : (n_words,) int32
        Tokens of each word.
    lists, dense
        From `pack_rows`.
    heads : (n_heads, K) int32
        Mutated: counts of the first words.
    tails : uint8, int16 or int32
        Mutated: topics of the tokens of the other words.
    cursor : (n_tails,) int64
        Mutated: next free slot of each of them.

    Notes
    -----
    1 ns per token of a list, 0.2 ns per entry of a dense row.
    """
    n_heads = len(heads)
    limit = HEAD * heads.shape[1]
    at = row = 0
    for word in range(len(lengths)):
        n = int(lengths[word])
        if n >= limit:
            heads[word] += dense[row]
            row += 1
            continue
        if word < n_heads:
            for i in range(n):
                heads[word, np.uint32(lists[index(at + i)])] += 1
        else:
            start = cursor[word - n_heads]
            for i in range(n):
                tails[index(start + i)] = lists[index(at + i)]
            cursor[word - n_heads] = start + n
        at += n


#: The multiplier of Fibonacci hashing.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE, _HALF = np.uint64(1), np.uint64(32)


@inlined
def _hashed(topic, mask):
    """Return the place where the search for a topic begins."""
    return (np.uint64(topic) * _SPREAD >> _HALF) & mask


@inlined
def cell_of(start, mask, topic):
    """Return where in the cells the search for a topic begins, for `prefetch`."""
    return start + (np.int64(topic) if mask < 0 else np.int64(_hashed(topic, index(mask)) << _ONE))


@inlined
def _find(cells, start, mask, topic):
    """Return the place of a topic in a row, or the free one where the search for it ends.

    The search is by open addressing.
    """
    base, wrap = index(start), index(mask)
    place = _hashed(topic, wrap)
    while cells[base + (place << _ONE)] >= 0 and np.uint32(
        cells[base + (place << _ONE)]
    ) != np.uint32(topic):
        place = (place + _ONE) & wrap
    return place


@inlined
def count_of(cells, start, mask, topic):
    """Return the count of a topic in a row."""
    if mask < 0:
        found = cells[index(start + np.int64(topic))]
    else:
        at = index(start) + (_find(cells, start, mask, topic) << _ONE)
        found = cells[at + _ONE] if cells[at] >= 0 else np.int32(0)
    return found


@inlined
def add_to(cells, start, mask, topic, n):
    """Add n tokens, at least one, to a topic of a row."""
    if mask < 0:
        cells[index(start + np.int64(topic))] += n
    else:
        at = index(start) + (_find(cells, start, mask, topic) << _ONE)
        if cells[at] < 0:
            cells[at] = topic
            cells[at + _ONE] = 0
        cells[at + _ONE] += n


@inlined
def take_one(cells, start, mask, topic):
    """Take a token from a topic of a row.

    If its place becomes free, later entries that passed it move up.
    """
    if mask < 0:
        cells[index(start + np.int64(topic))] -= 1
    else:
        base = index(start)
        wrap = index(mask)
        place = _find(cells, start, mask, topic)
        at = base + (place << _ONE)
        cells[at + _ONE] -= 1
        if cells[at + _ONE] == 0:
            later = place
            while True:
                later = (later + _ONE) & wrap
                found = base + (later << _ONE)
                if cells[found] < 0:
                    break
                if ((later - _hashed(cells[found], wrap)) & wrap) >= ((later - place) & wrap):
                    cells[at] = cells[found]
                    cells[at + _ONE] = cells[found + _ONE]
                    place, at = later, found
            cells[at] = -1


@maker
def make_rows(block, n_topics):
    """Return for each word of a WordBlock the counts of its topics.

    This takes 3 ns per token, and the time to clear the cells.

    Returns
    -------
    rows : (2 * n_words,) int64
        For each word where its row begins in `cells`, and one less than its places; -1 for a dense
        row.
    cells : int32
        Counts by topic of dense rows, pairs of topic and count of others; a free place has topic
        -1.
    """
    n_heads = len(block.heads)
    n_words = n_heads + len(block.tail_ptr) - 1
    rows = np.empty(2 * n_words, np.int64)
    end = np.int64(0)
    for word in range(n_words):
        room, mask = np.int64(n_topics), np.int64(1)
        if word >= n_heads:
            room = min(room, block.tail_ptr[word - n_heads + 1] - block.tail_ptr[word - n_heads])
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
                add_to(cells, start, mask, np.uint32(block.tails[index(i)]), np.int32(1))
    return rows, cells
