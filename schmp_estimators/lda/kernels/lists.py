"""The topics of documents or words as short lists of (topic, count).

A Gibbs sampler reads one for every token.

"fplus" and "sparse" change their lists with every token, and read them entry by entry.  "saber"
only reads its lists, in vectors.  A list of "saber" has blocks: `LANES` topics, and then their
counts.  Zeros fill up the last block.

`add_listed` adds up the products of counts and weights.  Those of the topics in place j of all
blocks go to lane j of a vector, one after the other.  The sums of the lanes are then added up in
steps that double, as in `draw`.  So bits are the same on every processor.  A token that is drawn
anew is left out: its topic has one token less, and a weight that the caller gives.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from schmp_estimators.core.jit import index, inlined, kernel, maker, part
from schmp_estimators.core.lanes import LANES, NUMBER, SHORT, VECTOR, Value, emitted
from schmp_estimators.core.typing import AnySigned, Integers, Integers32
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.draw import add_up
from schmp_estimators.lda.kernels.rows import count_row

#: More than any topic.
_LAST = 1 << 31


#: Lists up to this length are sorted in one pass, which is short where little has changed.
_SHORT = 48


class TopicLists(NamedTuple):
    """For each document, or word, a list of its topics and of how many of its tokens each has."""

    #: (n_lists + 1,) offsets of the lists, which have room for the lesser of K and the number of
    #: tokens.
    ptr: Integers
    #: (n_lists,) entries in use.
    length: Integers32
    #: Topics, of `topic_dtype`.
    topic: AnySigned
    #: Counts.
    tokens: Integers32


@inlined
def sort_falling(keys):
    """Sort in place, in falling order, by insertion.

    Of long lists, keys far from each other are sorted first (Shell).
    """
    gap = len(keys) >> 1 if len(keys) > _SHORT else 1
    while gap > 0:
        for i in range(gap, len(keys)):
            key, at = keys[i], i
            while at >= gap and keys[at - gap] < key:
                keys[at] = keys[at - gap]
                at -= gap
            keys[at] = key
        gap = gap * 5 // 11 if gap != 2 else 1


@part
def _order(lists, d, keys):
    """Sort a list by descending count, then topic; `keys` has room for its entries."""
    start, n = lists.ptr[d], np.int64(lists.length[d])
    for i in range(n):
        keys[i] = (np.int64(lists.tokens[start + i]) << 32) + (_LAST - lists.topic[start + i])
    sort_falling(keys[:n])
    for i in range(n):
        lists.topic[start + i] = _LAST - (keys[i] & 0xFFFFFFFF)
        lists.tokens[start + i] = keys[i] >> 32


@kernel
def order_lists(lists):
    """Sort the topic lists of documents by descending count, then topic.

    Likely topics come first, so that searches are short.  The order decides for which topic a
    random number stands; so it becomes a function of the counts alone.  1 ns per entry if little
    has changed.
    """
    most = 0
    for d in range(len(lists.length)):
        most = max(most, np.int64(lists.length[d]))
    room = np.empty(most, np.int64)
    for d in range(len(lists.length)):
        _order(lists, d, room)


@maker
def list_words(block, n_topics):
    """Return the lists of the words of a WordBlock, in the order of `order_lists`.

    This takes 2 ns per token and 15 ns per entry.
    """
    n_heads = len(block.heads)
    n_words = n_heads + len(block.tail_ptr) - 1
    ptr = np.zeros(n_words + 1, np.int64)
    length = np.empty(n_words, np.int32)
    for word in range(n_words):
        n = np.int64(HEAD) * n_topics
        if word >= n_heads:
            n = block.tail_ptr[word - n_heads + 1] - block.tail_ptr[word - n_heads]
        ptr[word + 1] = ptr[word] + min(np.int64(n_topics), n)
    lists = TopicLists(ptr, length, np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.int32))
    row = np.zeros(n_topics, np.int32)
    keys = np.empty(n_topics, np.int64)
    for word in range(n_words):
        start, end = ptr[word], ptr[word + 1]
        length[word] = count_row(block, word, row, lists.topic[start:end])
        for i in range(start, start + length[word]):
            lists.tokens[i] = row[lists.topic[i]]
            row[lists.topic[i]] = 0
        _order(lists, word, keys)
    return lists


@inlined
def sum_list(topics, tokens, start, n, q):
    """Return the sum of ``tokens * q[topic]`` over the n entries from `start`.

    Four partial sums overlap.
    """
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    end = start + n
    whole = end - n % 4
    for i in range(start, whole, 4):
        at = index(i)
        a += tokens[at] * q[np.uint32(topics[at])]
        b += tokens[at + index(1)] * q[np.uint32(topics[at + index(1)])]
        c += tokens[at + index(2)] * q[np.uint32(topics[at + index(2)])]
        d += tokens[at + index(3)] * q[np.uint32(topics[at + index(3)])]
    for i in range(whole, end):
        a += tokens[index(i)] * q[np.uint32(topics[index(i)])]
    return (a + b) + (c + d)


@inlined
def find_in_list(topics, tokens, start, n, q, point):
    """Return the place of the entry in which `point` lies in the sum of `sum_list`.

    If rounding puts `point` beyond the sum, this is the last entry.
    """
    at, last = index(start), index(start + n - 1)
    while at < last:
        point -= tokens[at] * q[np.uint32(topics[at])]
        if point < 0.0:
            break
        at += index(1)
    return at


@inlined
def place_of(topics, first, last, topic):
    """Return the place of a topic between two places, or the last of these."""
    at = index(first)
    while at < index(last) and np.uint32(topics[at]) != topic:
        at += index(1)
    return at


@inlined
def move_in_list(topics, tokens, end, old_at, new_at, new):
    """Add a token of topic `new`, and return by how much the list grows.

    The topic was found at `new_at` or, if that is `end`, nowhere.

    The entry at `old_at` has lost a token: if it was the last one, the entry gives way.
    """
    if new_at == end:
        grown = np.int32(tokens[old_at] > 0)
        if grown == 0:
            new_at = old_at
        topics[new_at] = new
        tokens[new_at] = 1
        return grown
    tokens[new_at] += 1
    if tokens[old_at] > 0:
        return np.int32(0)
    topics[old_at] = topics[end - index(1)]
    tokens[old_at] = tokens[end - index(1)]
    return np.int32(-1)


@emitted(lambda *kinds: types.float32)
def add_listed(code, lists, first, n_blocks, weights, own, own_weight, sums, start):
    """Add up a list's counts times weights in `LANES` lanes, and return the sum of all.

    Parameters
    ----------
    lists : contiguous array of uint8, int16 or int32, of one dimension
        The list has the blocks from number `first` on.
    first, n_blocks : int
        Where it begins, and its blocks.
    weights : (K,) float32
        Of all topics, not negative.
    own, own_weight : int and float32
        A topic that counts one token less, if it is in the list, and has this weight.
    sums : (at least start + LANES * (n_blocks + 1),) float32
        Mutated from `start` on: what `draw.add_up` stores.
    """
    build = code.builder
    number = lists.element
    own_lanes = own.narrowed(number).spread()
    own_weights = own_weight.spread()
    begin = first * (2 * LANES)

    def weigh(at):
        place = begin + at * 2
        topics, counts = (
            lists.load(place + lane, ir.VectorType(number, LANES)) for lane in (0, LANES)
        )
        none = counts.constant(0)
        # What fills up a list may have the number of the topic, and has no tokens.
        fewer = (counts - counts.constant(1)).where(counts.equals(none), none)
        is_own = topics.equals(own_lanes)
        counts = Value(build, build.sitofp(counts.where(is_own, fewer).value, VECTOR))
        found = VECTOR(ir.Undefined)
        for lane in range(LANES):
            # Atomic, so that it stays a load: LLVM would take the topics out of the vector, one
            # after the other, which takes 10 ns more for a list of nine blocks.
            topic = Value(build, build.zext(lists.alone(place + lane), ir.IntType(64)))
            found = build.insert_element(found, weights.load(topic, NUMBER).value, SHORT(lane))
        return counts * Value(build, found).where(is_own, own_weights)

    return add_up(code, sums, start, n_blocks * LANES, LANES, weigh)
