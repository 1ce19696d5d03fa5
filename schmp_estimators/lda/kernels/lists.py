"""The topics of documents as short lists of (topic, count): what a Gibbs sampler runs through for every token."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel

#: Lists up to this length are sorted by insertion, which takes one pass where little has changed.
_SHORT = 48


class TopicLists(NamedTuple):
    """For each document a list of its topics and of how many of its tokens each has."""

    #: (n_docs + 1,) offsets of the lists, which have room for the lesser of K and the document's length.
    ptr: NDArray[np.int64]
    #: (n_docs,) entries in use.
    length: NDArray[np.int32]
    #: Topics, int16 or int32.
    topic: NDArray[np.signedinteger]
    #: Counts.
    tokens: NDArray[np.int32]


@kernel
def list_topics(doc_ptr, place, topic, n_topics):
    """Return the topic lists of documents, in no particular order, and the document of each token, word-major.

    Parameters
    ----------
    doc_ptr, place
        Of the TokenShard.
    topic : (n_tokens,) int16 or int32
        Topics, word-major.
    n_topics : int
        K.

    Returns
    -------
    document : (n_tokens,) uint32
    lists : TopicLists

    Notes
    -----
    8 ns per token.
    """
    n_docs, document, ptr = len(doc_ptr) - 1, np.empty(len(place), np.uint32), np.zeros(len(doc_ptr), np.int64)
    for d in range(n_docs):
        ptr[d + 1] = ptr[d] + min(np.int64(n_topics), doc_ptr[d + 1] - doc_ptr[d])
    lists = TopicLists(ptr, np.zeros(n_docs, np.int32), np.zeros(ptr[-1], topic.dtype), np.zeros(ptr[-1], np.int32))
    slot = np.full(n_topics, -1, np.int32)
    for d in range(len(doc_ptr) - 1):
        start, n = lists.ptr[d], 0
        for i in range(doc_ptr[d], doc_ptr[d + 1]):
            at = np.uint64(place[i])
            document[at] = d
            k = topic[at]
            if slot[k] < 0:
                slot[k] = n
                lists.topic[start + n] = k
                lists.tokens[start + n] = 0
                n += 1
            lists.tokens[start + slot[k]] += 1
        for k in lists.topic[start : start + n]:
            slot[k] = -1
        lists.length[d] = n
    return document, lists


@kernel
def order_lists(lists):
    """Sort the topic lists of documents by descending count, then topic.

    Likely topics come first, so that searches are short; and the order, which decides for which topic a random number
    stands, becomes a function of the counts alone.  1 ns per entry if little has changed.
    """
    for d in range(len(lists.length)):
        start, stop = lists.ptr[d], lists.ptr[d] + lists.length[d]
        topic, tokens = lists.topic[start:stop], lists.tokens[start:stop]
        if len(topic) <= _SHORT:
            for i in range(1, len(topic)):
                k, n, at = topic[i], tokens[i], i
                while at > 0 and (tokens[at - 1] < n or (tokens[at - 1] == n and topic[at - 1] > k)):
                    topic[at], tokens[at] = topic[at - 1], tokens[at - 1]
                    at -= 1
                topic[at], tokens[at] = k, n
        else:
            keys = np.empty(len(topic), np.int64)
            for i in range(len(topic)):
                keys[i] = (-np.int64(tokens[i]) << 32) + topic[i]
            keys.sort()
            for i in range(len(topic)):
                topic[i] = keys[i] & 0xFFFFFFFF
                tokens[i] = -(keys[i] >> 32)


@inlined
def sum_list(topics, tokens, start, n, q, sums):
    """Return the sum of ``tokens * q[topic]`` over the n entries from `start`; `sums` gets those of blocks of eight."""
    total = 0.0
    at = np.uint64(start)
    for block in range(n >> 3):
        part = 0.0
        for _ in range(2):
            a, b, c, d = at, at + np.uint64(1), at + np.uint64(2), at + np.uint64(3)
            part += (tokens[a] * q[np.uint32(topics[a])] + tokens[b] * q[np.uint32(topics[b])]) + (
                tokens[c] * q[np.uint32(topics[c])] + tokens[d] * q[np.uint32(topics[d])]
            )
            at += np.uint64(4)
        sums[np.uint64(block)] = part
        total += part
    part = 0.0
    for _ in range(n & 7):
        part += tokens[at] * q[np.uint32(topics[at])]
        at += np.uint64(1)
    sums[np.uint64(n >> 3)] = part
    return total + part


@inlined
def block_of(at, start):
    """Return the number of the block of eight entries in which a place lies."""
    return (at - np.uint64(start)) >> np.uint64(3)


@inlined
def find_in_list(topics, tokens, start, n, q, sums, point):
    """Return the place of the entry in which `point` lies, after `sum_list`."""
    block = 0
    while block < (n - 1) >> 3 and point >= sums[np.uint64(block)]:
        point -= sums[np.uint64(block)]
        block += 1
    first = block << 3
    at, last = np.uint64(start + first), np.uint64(start + min(first + 7, n - 1))
    while at < last:
        point -= tokens[at] * q[np.uint32(topics[at])]
        if point < 0.0:
            break
        at += np.uint64(1)
    return at


@inlined
def place_of(topics, first, last, topic):
    """Return the place of a topic between two places, or the last of these."""
    at = np.uint64(first)
    while at < np.uint64(last) and np.uint32(topics[at]) != topic:
        at += np.uint64(1)
    return at


@inlined
def move_in_list(topics, tokens, start, end, old_at, new_at, new, before, q, sums):
    """Add a token of topic `new`, found at `new_at` or, if that is `end`, nowhere.

    The entry at `old_at` has lost a token: if it was the last one, the entry gives way.  `before` is what ``q[new]``
    was when `sums` were made.  Returns by how much the list and its sum grow.
    """
    weight = q[new]
    if new_at == end:
        grown = np.int32(tokens[old_at] > 0)
        if grown == 0:
            new_at = old_at
        topics[new_at] = new
        tokens[new_at] = 1
        block = block_of(new_at, start)
        if grown and ((new_at - np.uint64(start)) & np.uint64(7)) == 0:
            sums[block] = weight
        else:
            sums[block] += weight
        return grown, weight
    gain = (tokens[new_at] + 1) * weight - tokens[new_at] * before
    tokens[new_at] += 1
    sums[block_of(new_at, start)] += gain
    if tokens[old_at] > 0:
        return np.int32(0), gain
    last = end - np.uint64(1)
    shifted = tokens[last] * q[np.uint32(topics[last])]
    sums[block_of(old_at, start)] += shifted
    sums[block_of(last, start)] -= shifted
    topics[old_at] = topics[last]
    tokens[old_at] = tokens[last]
    return np.int32(-1), gain
