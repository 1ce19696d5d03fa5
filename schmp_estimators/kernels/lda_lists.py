"""The topics of documents as short lists of (topic, count): what a Gibbs sampler runs through for every token."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.kernels._jit import inlined, kernel

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


def empty_lists(doc_ptr: NDArray[np.int64], n_topics: int, dtype: type[np.signedinteger]) -> TopicLists:
    """Return lists for documents with these offsets, none of them in use."""
    ptr = np.concatenate([[0], np.cumsum(np.minimum(np.diff(doc_ptr), n_topics))]).astype(np.int64)
    return TopicLists(ptr, np.zeros(len(ptr) - 1, np.int32), np.zeros(ptr[-1], dtype), np.zeros(ptr[-1], np.int32))


@kernel
def list_topics(doc_ptr, place, topic, n_topics, document, lists):
    """Make the topic lists of documents from the topics of their tokens, in no particular order.

    Parameters
    ----------
    doc_ptr, place
        Of the TokenShard.
    topic : (n_tokens,) int16 or int32
        Topics, word-major.
    n_topics : int
        K.
    document : (n_tokens,) uint32
        Mutated: document of each token, word-major.
    lists : TopicLists
        Mutated.

    Notes
    -----
    8 ns per token.
    """
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
def sum_list(topics, tokens, start, n, q, ends):
    """Return the sum of ``tokens * q[topic]`` over the n entries from `start`; `ends` gets it at every fourth."""
    total = 0.0
    at = np.uint64(start)
    for block in range(n >> 2):
        a, b, c, d = at, at + np.uint64(1), at + np.uint64(2), at + np.uint64(3)
        total += (tokens[a] * q[np.uint32(topics[a])] + tokens[b] * q[np.uint32(topics[b])]) + (
            tokens[c] * q[np.uint32(topics[c])] + tokens[d] * q[np.uint32(topics[d])]
        )
        ends[np.uint64(block)] = total
        at += np.uint64(4)
    for _ in range(n & 3):
        total += tokens[at] * q[np.uint32(topics[at])]
        at += np.uint64(1)
    return total


@inlined
def find_in_list(topics, tokens, start, n, q, ends, point):
    """Return the place of the entry in which `point` lies, after `sum_list`."""
    block = 0
    while block < n >> 2 and point >= ends[np.uint64(block)]:
        block += 1
    if block > 0:
        point -= ends[np.uint64(block - 1)]
    first = min(block << 2, n - 1)
    at, last = np.uint64(start + first), np.uint64(start + min(first + 3, n - 1))
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
def add_to_list(topics, tokens, end, old_at, new_at, new):
    """Add a token of topic `new`, found at `new_at` or, if that is `end`, nowhere; return by how much the list grows.

    The entry at `old_at` has lost a token: if it was the last one, the entry gives way.
    """
    if new_at == end:
        if tokens[old_at] == 0:
            new_at = old_at
        topics[new_at] = new
        tokens[new_at] = 1
        return np.int32(new_at == end)
    tokens[new_at] += 1
    if tokens[old_at] > 0:
        return np.int32(0)
    topics[old_at] = topics[end - np.uint64(1)]
    tokens[old_at] = tokens[end - np.uint64(1)]
    return np.int32(-1)
